"""Regular expressions of clients: RE2 syntax, bounded size, linear time."""

import pytest

from logstore.errors import InvalidRegularExpressionError
from logstore.runtime.patterns import (
    PATTERN_CHARACTERS_MAX,
    compile_pattern,
    compile_search,
)
from tests.support.world.messages import exactly


@pytest.mark.parametrize(
    ("pattern", "text", "whole", "prefix"),
    (
        ("orders-.*", "orders-eu", True, True),
        ("orders-", "orders-eu", False, True),
        ("eu", "orders-eu", False, False),
        ("a|ab", "ab", True, True),
        ("a|b", "bc", False, True),
        ("(?i)ORDERS", "orders", True, True),
        ("t.", "té", True, True),
        (r"\d+$", "12", True, True),
        ("", "", True, True),
        ("", "a", False, True),
    ),
)
def test_matches(pattern, text, whole, prefix):
    assert compile_pattern(pattern)(text) is whole
    assert compile_pattern(pattern, is_prefix=True)(text) is prefix


REFUSED = {
    "a(b": "missing ): a(b",
    "[é": "missing ]: [é",
    "*": "no argument for repetition operator: *",
    ")(": "unexpected ): )(",
    "(?=x)a": "invalid perl operator: (?=",  # lookahead
    r"(a)\1": r"invalid escape sequence: \1",  # back-reference
    "x{1001}": "invalid repetition size: {1001}",
    "(((x{100}){10}){10}){10}": "invalid repetition size: {10}",
    "\ud800": (
        "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed"
    ),
    "(.{100}|[a-z]{100}){9}" * 8: "pattern too large - compile failed",
}


@pytest.mark.parametrize("compile_", (compile_pattern, compile_search))
@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_that_are_refused(pattern, compile_, capfd):
    with pytest.raises(InvalidRegularExpressionError) as caught:
        compile_(pattern)
    assert str(caught.value) == f"Invalid pattern (RE2 syntax): {REFUSED[pattern]}"
    assert caught.value.code == 128
    assert capfd.readouterr() == ("", "")


def test_the_length_of_a_pattern_is_limited():
    longest = "a" * PATTERN_CHARACTERS_MAX
    assert compile_pattern(longest)(longest)
    with pytest.raises(
        InvalidRegularExpressionError,
        match=exactly("The pattern has 10001 characters; at most 10000 are allowed"),
    ):
        compile_pattern(f"{longest}a")


def test_bytes_are_searched_as_utf8():
    search = compile_search("é.b")
    assert search("xé1by".encode())
    assert search("éüb".encode())
    for data in (b"xe1b", "éb".encode(), b"\xff\xe9xb"):
        assert search(data) is False


def test_time_is_linear():
    """Backtracking would take 2 to the power of 40,000 steps."""
    assert not compile_pattern("(a|aa)+$")("a" * 40_000 + "b")
    assert not compile_pattern("(a*)*b")("a" * 40_000)
