"""Regular expressions of clients: RE2 syntax, bounded size, linear time."""

import pytest

from logstore.errors import InvalidRegularExpressionError
from logstore.runtime.patterns import PATTERN_CHARACTERS_MAX, compile_pattern


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


@pytest.mark.parametrize(
    "pattern",
    (
        "a(b",
        "[",
        "*",
        ")(",
        "(?=x)a",  # lookahead
        r"(a)\1",  # back-reference
        "x{1001}",
        "(((x{100}){10}){10}){10}",
        "\ud800",
        "a" * (PATTERN_CHARACTERS_MAX + 1),
        "(.{100}|[a-z]{100}){9}" * 200,  # too much memory
    ),
)
def test_patterns_that_are_refused(pattern, capfd):
    with pytest.raises(InvalidRegularExpressionError) as caught:
        compile_pattern(pattern)
    assert caught.value.code == 128
    assert capfd.readouterr() == ("", "")


def test_time_is_linear():
    """Backtracking would take 2 to the power of 40,000 steps."""
    assert not compile_pattern("(a|aa)+$")("a" * 40_000 + "b")
    assert not compile_pattern("(a*)*b")("a" * 40_000)
