"""The last records of a log, found from its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_GROWTH = 4


def last_of(
    read: Callable[[int], Iterable[T]], start_offset: int, end_offset: int, count: int
) -> Iterator[T]:
    """Yield the last `count` things that a read yields.

    Parameters
    ----------
    read : callable
        Yields what there is from an offset on, in order.
    start_offset, end_offset : int
        Where a read may begin at the earliest, and where it ends, exclusive.

    Notes
    -----
    Begins `count` offsets before the end, and further back each time that too little is there:
    of a log with holes, or if few are wanted, all may be read, and a third more. Memory: what is
    yielded.
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
