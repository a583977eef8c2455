"""Reasons: their sentences, and the table of codes against the code that makes reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from logstore.analysis.erasure import STATES
from logstore.reasons import Reason, format_value, render, text_of
from logstore.reasons.templates import TEMPLATES
from logstore.types import INT64_MAX
from tools import reason_docs
from tools.reason_docs import fields

ROOT = Path(__file__).resolve().parents[3]
NAMED = {"condition", "refusal", "verdict", "location"}
"""Groups whose codes end with the name of a gate or a state."""


@cache
def sources() -> dict[Path, str]:
    paths = (path for top in ("logstore", "cleaner") for path in (ROOT / top).rglob("*.py"))
    return {path: path.read_text("utf-8") for path in paths if path.name != "templates.py"}


def trees() -> Iterator[ast.Module]:
    return (ast.parse(text) for text in sources().values() if "Reason.of" in text)


def made() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call `Reason.of(code, …)`, once for each code that it may have."""
    for tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="Reason"), attr="of")):
                    pass
                case _:
                    continue
            if node.args:
                constants = (each for each in ast.walk(node.args[0]))
                texts = (each.value for each in constants if isinstance(each, ast.Constant))
                yield from ((text, node) for text in texts if isinstance(text, str))


def test_reasons_have_the_values_that_their_sentences_name():
    found = dict.fromkeys(code for code, _ in made())
    assert len(found) > 60
    for code, call in made():
        if code in TEMPLATES:
            assert {each.arg for each in call.keywords} == fields(code), code
        else:
            assert code == "retention.record" or code == "retention.file", code


def test_every_code_is_made_somewhere():
    literals = {
        text for source in sources().values() for text in re.findall(r'"([a-z._]+)"', source)
    }
    suffixes = {f"{code}{end}" for code in literals for end in ("_past", "_within", "_in_future")}
    for code in TEMPLATES:
        group, _, name = code.partition(".")
        if group == "check":  # each is provoked in test_check_damage_names.py
            continue
        is_named = group in NAMED and name in literals
        is_message = group == "gate" and fields(code) == {"message"} and name in literals
        assert is_named or is_message or code in literals | suffixes, code


def test_every_state_of_a_location_has_a_sentence():
    assert [state for state in STATES if f"location.{state}" not in TEMPLATES] == []


def test_only_what_helps_names_a_command_of_the_program():
    """To a sentence the command line adds it; other programs have other ways."""
    naming = {code for code, text in TEMPLATES.items() if "--" in text or "logstore " in text}
    assert {code.partition(".")[0] for code in naming} == {"help"}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    (
        ("at_ms", 1_768_521_600_001, "2026-01-16 00:00:00.001Z"),
        ("horizon_at_ms", 2_524_608_000_000, "2050-01-01 00:00:00.000Z"),  # after May 2033
        ("at_ms", INT64_MAX, "unlimited"),
        ("span_ms", 5_400_001, "1h 30m"),
        ("lag_ms", 5_400_000, "90m"),
        ("lag_ms", 1500, "1500ms"),
        ("limit_bytes", 1_073_741_824, "1,073,741,824"),
        ("offset", 1_700_605_005_775, "1700605005775"),
        ("producer_id", 1234, "1234"),
        ("ratio", 1 / 3, "0.3333"),
        ("threshold_ratio", 1.0, "1"),
        ("records", 1234, "1,234"),
        ("message", "at 1700605005775", "at 1700605005775"),
        ("expected", None, "none"),
    ),
)
def test_a_value_is_formatted_by_its_name(name, value, shown):
    assert format_value(name, value) == shown


def test_words_depend_on_a_number():
    texts = [Reason.of("gate.size", size_bytes=size).text for size in (0, 1, 2000)]
    assert texts == [
        "the log contains 0 bytes",
        "the log contains 1 byte",
        "the log contains 2,000 bytes",
    ]


def test_several_reasons_are_one_text():
    reasons = (Reason.of("cure.wait", at_ms=0), Reason.of("cure.force"))
    assert (
        text_of(reasons, "; or ") == "wait until 1970-01-01 00:00:00.000Z; or force a cleaning pass"
    )


@pytest.mark.parametrize("code", ("gate.of_tomorrow", "gate.size"))
def test_an_unknown_code_or_a_missing_value_leaves_the_text(code):
    assert render(code, {"offset": 1}, "as it came") == "as it came"


def test_json_has_code_values_and_text():
    assert Reason.of("cause.unknown_transaction", offset=7).to_json() == {
        "code": "cause.unknown_transaction",
        "values": {"offset": 7},
        "text": (
            "a transaction has been open since offset 7; data at or above this offset cannot be"
            " cleaned"
        ),
    }


@pytest.mark.parametrize(
    ("path", "text"),
    ((reason_docs.PAGE, reason_docs.page), (reason_docs.SCRIPT, reason_docs.script)),
    ids=("page", "script"),
)
def test_generated_docs_are_current(path, text):
    assert path.read_text(encoding="utf-8") == text(), "run: make docs"
