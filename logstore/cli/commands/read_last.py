"""Read the last records of a log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_GROWTH = 4


def last_of(
    read: Callable[[int], Iterable[T]], start_offset: int, end_offset: int, count: int
) -> Iterator[T]:
    """Yield the last `count` items of a log.

    Parameters
    ----------
    read : callable
        Yields the items starting at an offset, in order.
    start_offset, end_offset : int
        Bounds of the log. The end is exclusive.

    Notes
    -----
    Starts `count` offsets before the end, and further back as long as there are too few items. If
    the log has many gaps or few items match, up to 4/3 of the log is read. Only yielded items are
    in memory.
    """
    span = count
    found: deque[T] = deque(maxlen=count)
    while count:
        begin = max(start_offset, end_offset - span)
        found = deque(read(begin), maxlen=count)
        if len(found) == count or begin == start_offset:
            break
        span *= _GROWTH
    yield from found
