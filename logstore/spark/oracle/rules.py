"""Rules of a cleaning: what it was asked to do and how far it came, as the oracle is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logstore.errors import InvalidConfigurationError
from logstore.spark.oracle.versions import ENCODINGS, HEADER, LONG, OFFSET, STRATEGIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A cleaning as it was asked for.

    Attributes
    ----------
    strategy : str
        `offset`, `timestamp` or `header`.
    header : str
        Name of the version header; needed by `header` only.
    encoding : str
        How that header states a number: `long`, 8 bytes, big-endian, or `varlong`.
    since_ms, now_ms : int
        When the first and the last cleaning between before and after began; equal for one pass.
        Without the former any tombstone without a horizon may have got one and seen it come.
    delete_retention_ms : int
        A tombstone is kept for so long after the first cleaning that saw it.
    min_compaction_lag_ms : int
        A record may not be removed before it is so old.
    max_compaction_lag_ms : int or None
        A log must have been cleaned up to what is so old; None: not looked at.
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
                f"compaction.strategy {self.strategy!r} is none of offset, timestamp, header"
            )
        if self.strategy == HEADER and not self.header:
            raise InvalidConfigurationError("the header strategy needs the header's name")
        if self.encoding not in ENCODINGS:
            raise InvalidConfigurationError(
                f"a version header's encoding {self.encoding!r} is none of long, varlong"
            )
        if self.since_ms is not None and self.since_ms > self.now_ms:
            raise InvalidConfigurationError(
                f"the first cleaning ({self.since_ms}) is later than the last ({self.now_ms})"
            )

    @property
    def order(self) -> tuple[str, str, str]:
        """By what records compete: strategy, header and encoding, blank where they do not count."""
        if self.strategy != HEADER:
            return self.strategy, "", LONG
        return self.strategy, self.header, self.encoding


class Cleaned(NamedTuple):
    """The cleaned range of one partition.

    Attributes
    ----------
    log_start_offset : int
        Records below are only counted: they were there when the cleaning began, or after it.
    end_offset : int
        First dirty offset after the cleaning; from here on nothing may have changed.
    log_end_offset : int
        When the cleaning began, exclusive. Versions never cost the log its last record.
    retention_ms : int or None
        A record below the log start may be gone only if it was older than this; None: that is not
        judged, since something else than its age may have moved the log start.
    """

    log_start_offset: int
    end_offset: int
    log_end_offset: int
    retention_ms: int | None = None


class Begin(NamedTuple):
    """State of a partition before the cleanings.

    Attributes
    ----------
    log_start_offset : int
        Then. What was removed from the front since may have beaten later records by version
        before it went; or not.
    first_dirty_offset : int
        What lies below had been cleaned before. If the cleaned range ends there too, the
        partition may have been rewritten once more, so that expired tombstones went, or not.
    """

    log_start_offset: int
    first_dirty_offset: int
