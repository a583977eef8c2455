"""The contract of a fuzz target: it returns a result, or refuses the bytes by a documented error.

A target returns an outcome: `ok`, or the short name of the documented error it met. Anything
else (another exception, a broken comparison, a hang, too much memory) is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from logstore.config.log_config import LogConfig
from logstore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    CorruptRecordError,
    CorruptSnapshotError,
    InvalidConfigurationError,
    InvalidRecordError,
    LogStoreError,
    MessageError,
    UnsupportedFormatError,
)

LIMIT = 1 << 20
"""`logstore.decompression.max.bytes` in every target."""

CONFIG = LogConfig(
    segment_index_bytes=4000,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    logstore_decompression_max_bytes=LIMIT,
)

OUTCOMES: dict[type[LogStoreError], str] = {
    CorruptRecordError: "corrupt_record",
    UnsupportedFormatError: "unsupported_format",
    InvalidRecordError: "invalid_record",
    CorruptIndexError: "corrupt_index",
    CorruptSnapshotError: "corrupt_snapshot",
    CorruptCheckpointError: "corrupt_checkpoint",
    InvalidConfigurationError: "invalid_config",
    MessageError: "message_error",
}

OK = "ok"


class Target(NamedTuple):
    """A function under test, the shape of its input, where inputs start, and its cost.

    `weight` is its share of the executions of a long run.
    """

    run: Callable[[bytes], str]
    shape: str
    seeds: Callable[[], Sequence[bytes]]
    weight: int


def check(holds: bool, message: str) -> None:
    """Assert, also where a linter would rather see `pytest.raises`."""
    assert holds, message


def outcome_of(error: LogStoreError, *allowed: type[LogStoreError], path: str | None = None) -> str:
    """Name the outcome of an error that is allowed here; with a `path` it must say where."""
    if type(error) not in allowed:
        raise AssertionError(f"{type(error).__name__} is not documented here: {error}") from error
    if path is not None and isinstance(error, CorruptionError | UnsupportedFormatError):
        assert error.path == path, f"{error!r} names {error.path}, not {path}"
        if not isinstance(error, CorruptCheckpointError):
            assert error.position is not None, f"{error!r} does not say where"
            assert error.position >= 0, f"{error!r} is at {error.position}"
    assert str(error), "an error has a message"
    return OUTCOMES[type(error)]
