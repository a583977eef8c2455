"""Patterns of topic names to which consumers subscribe, in RE2 syntax, matched in linear time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

MAX_PATTERN_CHARACTERS = 10_000
"""Longest pattern, a bound of this engine."""


class InvalidPatternError(ValueError):
    """A pattern is not valid."""


def compile_pattern(text: str) -> Callable[[str], bool]:
    """Return a function that returns whether a whole name matches.

    Raises
    ------
    InvalidPatternError
    """
    import re2  # loaded for the first pattern

    if len(text) > MAX_PATTERN_CHARACTERS:
        raise InvalidPatternError(f"longer than {MAX_PATTERN_CHARACTERS} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPatternError(text) from error
    return lambda name: pattern.fullmatch(name) is not None


def resolve_patterns(
    patterns: Collection[str], names: Iterable[str], is_visible: Callable[[str], bool] | None = None
) -> Mapping[str, set[str]]:
    """Return the visible names that match each pattern; an invalid pattern matches none."""
    found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
    matchers = []
    for pattern in patterns:
        try:
            matchers.append((pattern, compile_pattern(pattern)))
        except InvalidPatternError:
            continue  # stored by another version
    for name in names:
        matched = [pattern for pattern, matches in matchers if matches(name)]
        if matched and (is_visible is None or is_visible(name)):
            for pattern in matched:
                found[pattern].add(name)
    return found
