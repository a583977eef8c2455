"""The page makes the same sentences of reasons as the command line."""

from itertools import cycle, islice

import pytest

from logstore.reasons import Reason, render
from logstore.reasons.templates import TEMPLATES
from logstore.types import INT64_MAX
from tools.reason_docs import fields

TIMES_MS = (1_704_067_200_000, 0, 1_768_521_600_001, 2_524_608_000_000, 1_999_999_999_999, -1)
SPANS_MS = (1, 0, 999, 60_000, 90_061_001, 604_800_000, 5_400_000, 1500, INT64_MAX)
NUMBERS = (1, 0, 2, 999, 1000, 1_700_605_005_775, 2**53 - 1, 2**53, INT64_MAX)
RATIOS = (0, 1, 0.5, 1 / 3, 2 / 3, 0.03125, 0.015625, 0.00005, 0.00004, 0.99999, 1e-9, 0.1 + 0.2)
TEXTS = ("compact,delete", "", "at {position} 1700605005775: Unix ms 5", "ключ")
ROUNDS = 12


def values_of(code):
    """Yield the values of a code, with every kind of number under each name."""
    names = sorted(fields(code))
    columns = {name: islice(cycle(kind(name)), slot, None) for slot, name in enumerate(names)}
    for _ in range(ROUNDS):
        yield {name: next(column) for name, column in columns.items()}


def kind(name):
    if name.endswith("at_ms"):
        return TIMES_MS
    if name.endswith("_ms"):
        return SPANS_MS
    if name.endswith("ratio"):
        return RATIOS
    return TEXTS if name in ("message", "policy", "setting", "topic") else NUMBERS


def test_every_sentence_is_the_same_on_the_page(front):
    reasons = [Reason(code, values) for code in TEMPLATES for values in values_of(code)]
    shown = front.call("reasons.js", "render", *((reason.to_json(),) for reason in reasons))
    assert shown == [reason.text for reason in reasons]


@pytest.mark.parametrize(
    ("code", "values"),
    (("gate.of_tomorrow", {}), ("toString", {}), ("gate.size", {"bytes": 1}), ("gate.size", {})),
)
def test_an_unknown_code_or_a_missing_value_leaves_the_text(front, code, values):
    reason = {"code": code, "values": values, "text": "as it came"}
    assert front.call("reasons.js", "render", (reason,)) == ["as it came"]
    assert render(code, values, "as it came") == "as it came"


def test_several_reasons_are_one_text(front):
    reasons = [Reason.of("cure.force").to_json(), Reason.of("cure.roll").to_json()]
    assert front.call("reasons.js", "renderAll", (reasons,), (reasons, "; or ")) == [
        "force a cleaning pass; roll the active segment",
        "force a cleaning pass; or roll the active segment",
    ]


def test_a_gate_is_named_in_words(front):
    named = front.call("reasons.js", "words", ("condition", "policy"), ("condition", "tomorrow"))
    assert named == ["compacted", "tomorrow"]


SHOWN = """async (world, [module, name, props]) => {
    const component = (await world.load(module))[name];
    const text = (node) =>
        node == null || typeof node === "boolean" ? []
        : Array.isArray(node) ? node.flatMap(text)
        : typeof node !== "object" ? [String(node)]
        : typeof node.type !== "function" ? text(node.props.children)
        : node.type.name === "Time" ? [`(${node.props.ms})`]
        : text(node.type(node.props));
    return text(component(props)).join("");
}"""


def test_an_explanation_shows_the_sentences_of_the_command_line(front, broker):
    broker.alter_configs("users", {"min.compaction.lag.ms": "1h"})
    broker.append("users", key=b"k2", value=None)
    [explained] = broker.explain("users").partitions
    props = {"item": explained.to_json(), "nowMs": broker.clock.now_ms()}
    shown = front.run(SHOWN, ["explain.js", "Explanation", props])
    reasons = [explained.reason, *(gate.reason for gate in explained.gates)]
    [binding] = [each for each in explained.remedies if each.gate == explained.binding]
    reasons += (*binding.causes, *binding.cures)
    reasons += (closing.reason for closing in explained.active_segment.closings)
    assert explained.tombstone_reasons
    for reason in (*reasons, *explained.tombstone_reasons):
        assert reason.text in shown, reason.code
    assert "Not met: old enough" in shown


def test_retention_shows_the_reason_of_each_segment(front, broker):
    broker.clock.advance(hours=2)
    report = broker.retain("events", dry_run=True)
    shown = front.run(SHOWN, ["actions.js", "Retention", {"done": report.to_json()}])
    removed = [verdict for decision in report.decisions for verdict in decision.removed]
    assert removed
    assert all(verdict.reason in shown for verdict in removed)


def test_a_refusal_to_clean_is_shown_with_its_detail(front, broker):
    report = broker.clean("events", dry_run=True)
    assert front.call("actions.js", "cleaningInWords", (report.to_json(),)) == [
        "Nothing would be cleaned: cleanup.policy is delete."
    ]
