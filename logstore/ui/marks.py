"""What differs after whatever changes a log: to know, cheaply, whether anything is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.storage.log.log import Log

Mark = tuple[object, ...]


def mark_of(log: Log) -> Mark:
    """Return a value that is another one once the log, its segments or settings are others.

    From memory, in about 2 µs; takes no lock.
    """
    return (
        id(log),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.generation,
        id(log.segments.view),
        id(log.config),
    )
