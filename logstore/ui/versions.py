"""Cheap change detection for logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.storage.log.log import Log

LogVersion = tuple[object, ...]


def version_of(log: Log) -> LogVersion:
    """Return a value that changes with the log, its segments or its config.

    Takes about 2 µs and no lock.
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
