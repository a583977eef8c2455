"""The topics that match the patterns to which consumers are subscribed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from logstore.errors import InvalidRegularExpressionError
from logstore.runtime.patterns import compile_pattern


def resolve_patterns(
    patterns: Collection[str], names: Iterable[str], is_visible: Callable[[str], bool] | None = None
) -> Mapping[str, set[str]]:
    """Return the visible topics that match each pattern. Invalid patterns match no topic."""
    found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
    matchers = []
    for pattern in patterns:
        try:
            matchers.append((pattern, compile_pattern(pattern)))
        except InvalidRegularExpressionError:
            continue  # the pattern was stored by a different version
    for name in names:
        matched = [pattern for pattern, matches in matchers if matches(name)]
        if matched and (is_visible is None or is_visible(name)):
            for pattern in matched:
                found[pattern].add(name)
    return found
