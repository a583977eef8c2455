"""Parameters and extent of the cleaning pass to verify."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logstore.errors import InvalidConfigurationError
from logstore.spark.oracle.versions import ENCODINGS, HEADER, LONG, OFFSET, STRATEGIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Parameters of a cleaning pass.

    Attributes
    ----------
    strategy : str
        `offset`, `timestamp` or `header`.
    header : str
        Name of the version header for strategy `header`.
    encoding : str
        Encoding of the version header: `long` (8 bytes, big-endian) or `varlong`.
    since_ms, now_ms : int
        Start times of the first and last cleaning pass, equal for a single pass. If `since_ms` is
        unknown, a tombstone without a horizon may have got a horizon that has passed.
    delete_retention_ms : int
        How long to retain a tombstone after its first cleaning pass.
    min_compaction_lag_ms : int
        Minimum age of removed records.
    max_compaction_lag_ms : int or None
        Maximum age of uncleaned records, or None if not checked.
    """

    strategy: str = OFFSET
    header: str = ""
    encoding: str = LONG
    since_ms: int | None
    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidConfigurationError(
                f"compaction.strategy {self.strategy!r} is not one of offset, timestamp, header"
            )
        if self.strategy == HEADER and not self.header:
            raise InvalidConfigurationError("the strategy 'header' needs the name of the header")
        if self.encoding not in ENCODINGS:
            raise InvalidConfigurationError(
                f"encoding {self.encoding!r} of the version header is not one of long, varlong"
            )
        if self.since_ms is not None and self.since_ms > self.now_ms:
            raise InvalidConfigurationError(
                f"the first cleaning pass ({self.since_ms}) is later than the last ({self.now_ms})"
            )

    @property
    def order(self) -> tuple[str, str, str]:
        """Strategy, header and encoding, with defaults for parameters that have no effect."""
        if self.strategy != HEADER:
            return self.strategy, "", LONG
        return self.strategy, self.header, self.encoding


class Cleaned(NamedTuple):
    """The cleaned range of a partition.

    Attributes
    ----------
    log_start_offset : int
        Offset at which the comparison starts. Lower records are only counted.
    end_offset : int
        First dirty offset after cleaning. Records at or above it must be unchanged.
    log_end_offset : int
        Log end offset when cleaning started. Version strategies always retain the last record.
    retention_ms : int or None
        Minimum age of removed records below the log start. None if the log start may have moved for
        a reason other than age.
    """

    log_start_offset: int
    end_offset: int
    log_end_offset: int
    retention_ms: int | None = None


class StartState(NamedTuple):
    """State of a partition before the cleaning passes.

    Attributes
    ----------
    log_start_offset : int
        Log start before cleaning. Records removed at the start since then may have superseded later
        records by version.
    first_dirty_offset : int
        End of the section that was already clean. If the cleaned range ends at the same offset, a
        pass may have rewritten the partition to remove expired tombstones.
    """

    log_start_offset: int
    first_dirty_offset: int
