"""Retention: which segments are deleted, and why the others are retained.

The decision is a pure function of the log's state. The log executes it, and `retain --dry-run`
prints it. Source: docs/spec/storage-format.md §13.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import CorruptRecordError, UnsupportedFormatError
from logstore.reasons import Reason, reasons_json, text_of
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.storage.segment.segment import LogSegment
    from logstore.types import TopicPartition


class RetentionRule(StrEnum):
    """The rules that delete segments, in the order of evaluation."""

    LOG_START = "log_start_offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class SegmentVerdict(NamedTuple):
    """The retention verdict on a segment.

    Attributes
    ----------
    base_offset, end_offset : int
        Inclusive and exclusive. The end is the next segment's base offset or the log end offset.
    rule : RetentionRule or None
        The rule that deletes the segment, or None if the segment is retained.
    reasons : tuple of Reason
        The reason for deleting the segment, or all reasons for keeping it.
    expires_at_ms : int or None
        Time at which the segment expires, in Unix milliseconds, if `retention.ms` is a reason to
        keep it. Only set for the oldest kept segment, because the others wait for it.
    delayed_by_merging : bool
        Under `compact,delete`: whether merging might have delayed the deletion, because the segment
        has been cleaned and its first records are older than `retention.ms`. A merged segment only
        expires with its newest record (a known limit of KIP-354).
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    rule: RetentionRule | None
    reasons: tuple[Reason, ...]
    expires_at_ms: int | None = None
    delayed_by_merging: bool = False

    @property
    def reason(self) -> str:
        """The reasons as text."""
        return text_of(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return the base offset, size and reasons as JSON."""
        return {
            "base_offset": self.base_offset,
            "size_bytes": self.size_bytes,
            "reason": self.reason,
            "code": self.reasons[0].code,
            "values": dict(self.reasons[0].values),
            "reasons": reasons_json(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The decision of a retention run on a log.

    Attributes
    ----------
    segments : tuple of SegmentVerdict
        All segments, oldest first, so deleted segments precede kept ones.
    rolls : bool
        Whether all segments are deleted. If so, the log first rolls to an empty segment.
    log_start_offset : int
        The log start after the run.
    """

    topic_partition: TopicPartition
    segments: tuple[SegmentVerdict, ...]
    rolls: bool
    log_start_offset: int

    @property
    def removed(self) -> tuple[SegmentVerdict, ...]:
        """The segments to remove."""
        return tuple(verdict for verdict in self.segments if verdict.rule is not None)

    @property
    def kept(self) -> tuple[SegmentVerdict, ...]:
        """The segments to keep."""
        return tuple(verdict for verdict in self.segments if verdict.rule is None)


class LogBounds(NamedTuple):
    """The offsets of a log that retention depends on."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class _Verdict(NamedTuple):
    """The verdict of a rule on a segment."""

    removes: bool
    reason: Reason


class _Removed(NamedTuple):
    """A segment that a rule deletes, its end offset, and the reason."""

    segment: LogSegment
    end_offset: int
    reason: Reason


Predicate = Callable[["LogSegment", "LogSegment | None"], _Verdict]
"""Judges a segment, given the next segment or None."""


def decide_retention(
    topic_partition: TopicPartition,
    segments: Sequence[LogSegment],
    config: LogConfig,
    bounds: LogBounds,
    now_ms: int,
    *,
    rules: Sequence[RetentionRule] = tuple(RetentionRule),
    first_dirty_offset: int = 0,
) -> RetentionDecision:
    """Decide which segments of a log are deleted.

    Parameters
    ----------
    segments : sequence of LogSegment
        All segments of the log (at least one), oldest first.
    bounds : LogBounds
        Offsets of the log. A segment that reaches beyond the high watermark is retained.
    now_ms : int
        Wall-clock time in Unix milliseconds.
    rules : sequence of RetentionRule
        Rules to apply, in order. Without `delete` in the policy, only the log start rule applies.
    first_dirty_offset : int
        End of the cleaned section, only used for `delayed_by_merging`. 0 if the log is not
        compacted.

    Notes
    -----
    Each rule starts at the oldest remaining segment and stops at the first segment that it keeps. A
    record dated in the future thus protects its segment and all later ones. No file is changed or
    created, and no record is read: the time rule opens the time indexes of the segments that it
    checks, and `delayed_by_merging` requires one batch header.
    """
    applied = [rule for rule in rules if rule is RetentionRule.LOG_START or config.delete]
    left = list(segments)
    removed: list[SegmentVerdict] = []
    for rule in applied:
        expired, _ = _walk(left, bounds, _predicate(rule, left, config, bounds, now_ms))
        for segment, end, reason in expired:
            base_offset, size_bytes = segment.base_offset, segment.size_bytes
            removed.append(SegmentVerdict(base_offset, end, size_bytes, rule, (reason,)))
        del left[: len(expired)]
        if not left:
            return RetentionDecision(topic_partition, tuple(removed), True, bounds.log_end_offset)
    # Each rule gives a reason to keep the first remaining segment.
    stops: list[Reason] = []
    for rule in applied:
        _, stop = _walk(left, bounds, _predicate(rule, left, config, bounds, now_ms))
        if stop is not None and stop not in stops:
            stops.append(stop)
    if not config.delete:
        policy = ",".join(config.cleanup_policy) or "(empty)"
        stops.append(Reason.of("retention.policy", policy=policy))
    kept = _kept(left, bounds.log_end_offset, tuple(stops))
    if RetentionRule.TIME in applied:
        kept[0] = _with_expiry(kept[0], left, config, now_ms, first_dirty_offset)
    start = bounds.log_start_offset
    if removed:
        start = max(start, left[0].base_offset)
    return RetentionDecision(topic_partition, (*removed, *kept), False, start)


def _walk(
    segments: Sequence[LogSegment], bounds: LogBounds, predicate: Predicate
) -> tuple[list[_Removed], Reason | None]:
    """Return the segments to delete, and the reason to keep the next one."""
    removed: list[_Removed] = []
    for segment, following in _with_next(segments):
        end = bounds.log_end_offset if following is None else following.base_offset
        if bounds.high_watermark < end:
            return removed, Reason.of(
                "retention.high_watermark",
                high_watermark_offset=bounds.high_watermark,
                end_offset=end,
            )
        verdict = predicate(segment, following)
        if not verdict.removes:
            return removed, verdict.reason
        if following is None and segment.size_bytes == 0:
            return removed, Reason.of("retention.active_empty")
        removed.append(_Removed(segment, end, verdict.reason))
    return removed, None


def _with_next(
    segments: Sequence[LogSegment],
) -> Iterator[tuple[LogSegment, LogSegment | None]]:
    """Yield each segment with the one after it."""
    return zip_longest(segments, islice(segments, 1, None))


# -- rules -----------------------------------------------------------------------------------


def _predicate(
    rule: RetentionRule,
    segments: Sequence[LogSegment],
    config: LogConfig,
    bounds: LogBounds,
    now_ms: int,
) -> Predicate:
    if rule is RetentionRule.LOG_START:
        return _log_start_rule(bounds.log_start_offset)
    if rule is RetentionRule.SIZE:
        return _size_rule(sum(segment.size_bytes for segment in segments), config.retention_bytes)
    return _time_rule(config.retention_ms, now_ms)


def _log_start_rule(log_start_offset: int) -> Predicate:
    def judge(_: LogSegment, following: LogSegment | None) -> _Verdict:
        if following is None:
            return _Verdict(False, Reason.of("retention.active"))
        removes = following.base_offset <= log_start_offset
        code = "retention.below_log_start" if removes else "retention.not_below_log_start"
        return _Verdict(removes, Reason.of(code, log_start_offset=log_start_offset))

    return judge


def _size_rule(total_bytes: int, retention_bytes: int) -> Predicate:
    excess = total_bytes - retention_bytes

    def judge(segment: LogSegment, _: LogSegment | None) -> _Verdict:
        nonlocal excess
        if retention_bytes < 0:
            return _Verdict(False, Reason.of("retention.size_unlimited"))
        if excess < 0:
            reason = Reason.of(
                "retention.size_within", total_bytes=total_bytes, limit_bytes=retention_bytes
            )
            return _Verdict(False, reason)
        removes = excess >= segment.size_bytes
        reason = Reason.of(
            "retention.size_exceeded" if removes else "retention.size_exceeded_less",
            excess_bytes=excess,
            limit_bytes=retention_bytes,
            segment_bytes=segment.size_bytes,
        )
        if removes:
            excess -= segment.size_bytes
        return _Verdict(removes, reason)

    return judge


def expires_at_ms(segment: LogSegment, config: LogConfig) -> int | None:
    """Return when a segment exceeds `retention.ms`, in Unix milliseconds, or None if never.

    The time is clamped to 2⁶³ − 1, Kafka's maximum timestamp.
    """
    if config.retention_ms < 0:
        return None
    return min(segment.largest_timestamp + config.retention_ms + 1, INT64_MAX)


def _time_rule(retention_ms: int, now_ms: int) -> Predicate:
    def judge(segment: LogSegment, _: LogSegment | None) -> _Verdict:
        if retention_ms < 0:
            return _Verdict(False, Reason.of("retention.time_unlimited"))
        newest_ms = segment.largest_timestamp
        age_ms = now_ms - newest_ms
        code = (
            "retention.record" if segment.max_timestamp_so_far.timestamp >= 0 else "retention.file"
        )
        if age_ms < 0:
            values = {"newest_at_ms": newest_ms, "span_ms": -age_ms}
            return _Verdict(False, Reason(f"{code}_in_future", values))
        values = {"newest_at_ms": newest_ms, "span_ms": age_ms, "limit_ms": retention_ms}
        removes = age_ms > retention_ms
        return _Verdict(removes, Reason(f"{code}_past" if removes else f"{code}_within", values))

    return judge


# -- kept segments ----------------------------------------------------------------------------


def _kept(
    segments: Sequence[LogSegment], log_end_offset: int, reasons: tuple[Reason, ...]
) -> list[SegmentVerdict]:
    """Return the verdicts on kept segments. Each waits for the previous one."""
    kept: list[SegmentVerdict] = []
    waiting = (Reason.of("retention.older_stays", offset=segments[0].base_offset),)
    for segment, following in _with_next(segments):
        end = log_end_offset if following is None else following.base_offset
        kept.append(SegmentVerdict(segment.base_offset, end, segment.size_bytes, None, reasons))
        reasons = waiting
    return kept


def _with_expiry(
    verdict: SegmentVerdict,
    segments: Sequence[LogSegment],
    config: LogConfig,
    now_ms: int,
    first_dirty_offset: int,
) -> SegmentVerdict:
    """Add to a verdict when the first segment expires, and whether merging delays that."""
    segment = segments[0]
    expires_at = expires_at_ms(segment, config)
    if (
        expires_at is None
        or expires_at <= now_ms
        or (len(segments) == 1 and not segment.size_bytes)
    ):
        return verdict
    verdict = verdict._replace(expires_at_ms=expires_at)
    # A segment that was never cleaned was never merged.
    if segment.base_offset >= first_dirty_offset:
        return verdict
    oldest = INT64_MAX
    with suppress(CorruptRecordError, UnsupportedFormatError):  # only for `delayed_by_merging`
        oldest = segment.first_batch_timestamp()
    if now_ms - oldest <= config.retention_ms:
        return verdict
    span_ms = segment.largest_timestamp - oldest
    code = "retention.merged" if span_ms > config.max_segment_ms else "retention.maybe_merged"
    note = Reason.of(code, first_at_ms=oldest, at_ms=expires_at)
    return verdict._replace(reasons=(*verdict.reasons, note), delayed_by_merging=True)
