"""Verdicts and rules, without Spark: how they are merged, refused, printed and put into JSON."""

import pytest

pytest.importorskip("pyspark")

from logstore.errors import InvalidConfigurationError
from logstore.spark.commands.generate import print_stages
from logstore.spark.commands.verify import _examples, print_verdict
from logstore.spark.oracle.kinds import example, sort_examples
from logstore.spark.oracle.verify import Rules, Verdict
from logstore.spark.oracle.violations import KINDS
from tests.support.world.messages import exactly

TOPIC = "t"
NOW = 1_700_000_000_000


def test_verdicts_on_different_partitions_are_put_together():
    def shown(kind, offset):
        return {"kind": kind, "topic": "t", "partition": 0, "offset": offset}

    one = Verdict(
        {"tail_lost": 2},
        [shown("tail_lost", 7), shown("tail_lost", 9)],
        10,
        8,
        ("a",),
        2,
        ("lags",),
    )
    two = Verdict(
        {"tail_lost": 1, "survivor_lost": 4},
        [shown("tail_lost", 3)],
        5,
        1,
        ("a", "b"),
        3,
        ("retention", "lags"),
    )
    both = Verdict.of([one, two], examples=2)
    assert both == Verdict(
        {"survivor_lost": 4, "tail_lost": 3},
        [shown("tail_lost", 3), shown("tail_lost", 7)],
        15,
        9,
        ("a", "b"),
        5,
        ("lags", "retention"),
    )
    assert not both.ok
    assert Verdict.of([]).ok


@pytest.mark.parametrize(
    ("key", "shown", "printed"),
    (
        (b"ann", {"key": "ann"}, "ann"),
        (b"\xff", {"key_base64": "/w=="}, "base64:/w=="),
        (None, {"key": None}, "∅"),
    ),
)
def test_keys_of_examples_are_shown_as_those_of_records(key, shown, printed):
    found = example("survivor_lost", TOPIC, 7, 3, key)
    assert {name: value for name, value in found.items() if name.startswith("key")} == shown
    verdict = Verdict({"survivor_lost": 1}, [found], 1, 0)
    assert list(_examples(verdict)) == [("survivor_lost", f"{TOPIC}-7", "3", printed)]


def test_examples_are_sorted_by_kind_topic_partition_and_offset():
    first, *_, last = KINDS
    expected = [
        example(first, "u", 1, 5),
        example(last, "t", 0, None),
        example(last, "t", 0, 0),
        example(last, "t", 1, 9),
        example(last, "t", 1, 10),
        example(last, "u", 0, 3, b"k"),
    ]
    assert sort_examples(reversed(expected)) == expected


def test_a_verdict_is_put_into_json():
    shown = [example("tail_lost", TOPIC, 3, 7, b"ann")]
    verdict = Verdict({"tail_lost": 2}, shown, 10, 8, ("so",), 2, ("lags",))
    assert verdict.as_json() == {
        "ok": False,
        "violations": {"tail_lost": 2},
        "examples": shown,
        "records_before": 10,
        "records_after": 8,
        "gone_from_front": 2,
        "unproven": ["lags"],
        "notes": ["so"],
    }


def test_a_verdict_is_printed(capsys):
    print_verdict(Verdict({}, [], 1, 0))
    assert capsys.readouterr() == ("correct: 1 record before, 0 after\n", "")
    print_verdict(Verdict({}, [], 1200, 1100, ("so",), 7, ("lags", "retention")))
    assert capsys.readouterr() == (
        "correct: 1,200 records before, 1,100 after, 7 below the new log start; unproven: lags,"
        " retention\n",
        "note: so\n",
    )
    shown = [
        example("tail_lost", TOPIC, 3, 7, b"ann"),
        example("partition_lost", TOPIC, 4, None),
    ]
    print_verdict(Verdict({"tail_lost": 2, "partition_lost": 1}, shown, 10, 8))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 violations: 10 records before, 8 after"
    blank = lines.index("")
    assert lines[3].split()[:3] == ["tail_lost", "2", KINDS["tail_lost"].split()[0]]
    assert lines[blank + 1].split() == ["example", "partition", "offset", "key"]
    assert [line.split() for line in lines[blank + 3 :]] == [
        ["tail_lost", "t-3", "7", "ann"],
        ["partition_lost", "t-4", "∅"],
    ]


def test_stages_are_printed_with_their_speed(capsys):
    print_stages({"generate": 2.0, "clean": 0.0, "verify": 0.26}, 1_001)
    first, _, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [first, *lines] == [
        ["stage", "seconds", "records/s"],
        ["generate", "2.0", "500"],
        ["clean", "0.0"],
        ["verify", "0.3", "3,850"],
    ]


@pytest.mark.parametrize(
    ("wrong", "text"),
    (
        (
            {"strategy": "newest"},
            "compaction.strategy 'newest' is not one of offset, timestamp, header",
        ),
        ({"strategy": "header"}, "the strategy 'header' needs the name of the header"),
        (
            {"encoding": "short"},
            "encoding 'short' of the version header is not one of long, varlong",
        ),
        (
            {"since_ms": NOW + 1},
            ("the first cleaning pass (1700000000001) is later than the last (1700000000000)"),
        ),
    ),
)
def test_impossible_rules_are_rejected(wrong, text):
    with pytest.raises(InvalidConfigurationError, match=exactly(text)):
        Rules(**{"since_ms": NOW, "now_ms": NOW, **wrong})


@pytest.mark.parametrize(
    ("given", "order"),
    (
        ({}, ("offset", "", "long")),
        (
            {"strategy": "timestamp", "header": "v", "encoding": "varlong"},
            ("timestamp", "", "long"),
        ),
        ({"strategy": "header", "header": "v", "encoding": "varlong"}, ("header", "v", "varlong")),
    ),
)
def test_the_order_of_rules_has_only_what_counts(given, order):
    assert Rules(since_ms=None, now_ms=NOW, **given).order == order
