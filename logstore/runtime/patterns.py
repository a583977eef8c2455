"""Regular expressions from clients and users: RE2 syntax, matched in linear time.

Python's `re` takes exponential time for some patterns, so a single pattern from a client could
stall a broker. RE2 is also the syntax of Kafka 4, which uses RE2/J.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.errors import InvalidRegularExpressionError

PATTERN_CHARACTERS_MAX = 10_000
"""Maximum length of a pattern; Kafka has no limit."""

PATTERN_BYTES_MAX = 1 << 20
"""Maximum memory of a compiled pattern. Larger patterns are refused."""


def compile_pattern(text: str, *, is_prefix: bool = False) -> Callable[[str], bool]:
    """Return a function that returns whether a text matches a pattern.

    Parameters
    ----------
    is_prefix : bool
        Whether a match at the beginning of the text is sufficient.

    Raises
    ------
    InvalidRegularExpressionError
        The pattern is not valid RE2 syntax, or is too large.
    """
    pattern = _compiled(text)
    match = pattern.match if is_prefix else pattern.fullmatch
    return lambda name: match(name) is not None


def compile_search(text: str) -> Callable[[bytes], bool]:
    """Return a function that returns whether some part of the given bytes matches a pattern.

    The pattern and the bytes are interpreted as UTF-8. Bytes that are not UTF-8 never match.

    Raises
    ------
    InvalidRegularExpressionError
        The pattern is not valid RE2 syntax, or is too large.
    """
    search = _compiled(text).search
    return lambda data: search(data) is not None


def _compiled(text: str) -> Any:  # noqa: ANN401  # re2 has no types
    import re2  # only loaded if there is a pattern

    if len(text) > PATTERN_CHARACTERS_MAX:
        raise InvalidRegularExpressionError(
            f"The pattern has {len(text)} characters; at most {PATTERN_CHARACTERS_MAX} are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else str(error)
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise InvalidRegularExpressionError(f"Invalid pattern (RE2 syntax): {reason}") from error
