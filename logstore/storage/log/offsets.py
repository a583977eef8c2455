"""The offsets of a log: the log start and the ends of the readable records.

The log's lock protects changes. Readers use the published values without a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.storage.log.local_log import LocalLog


class CheckpointOffsets(NamedTuple):
    """Offsets of a log for the checkpoints of its data directory.

    Attributes
    ----------
    recovery_point, high_watermark : int
        Recovery point and high watermark of the log.
    log_start_offset : int or None
        The log start, or None if it equals the base offset of the first segment.
    """

    recovery_point: int
    high_watermark: int
    log_start_offset: int | None


class LogOffsets:
    """Log start, high watermark and last stable offset of one log.

    Attributes
    ----------
    log_start_offset : int
        First offset that can be read.
    high_watermark : int
        Exclusive end of the records visible to consumers.
    last_stable_offset : int
        Exclusive end of the decided records: the first open transaction or the high watermark.
    high_watermark_for : callable
        Returns the high watermark after an append, given the new log end. Without replicas, it is
        the log end. On a follower, it does not change until the leader reports a new one; see
        `freeze_high_watermark`. A leader installs its own function, and calls `set_high_watermark`
        as its followers catch up.
    """

    def __init__(
        self, local: LocalLog, log_start_offset: int, high_watermark: int | None = None
    ) -> None:
        self._local = local
        self.high_watermark_for: Callable[[int], int] = _log_end
        self._restarted_at = 0
        self.log_start_offset = log_start_offset
        self.high_watermark = self.last_stable_offset = log_start_offset
        if high_watermark is not None:
            self.freeze_high_watermark()
        self.set_high_watermark(local.log_end.offset if high_watermark is None else high_watermark)

    @property
    def is_alone(self) -> bool:
        """Whether the log has no followers, so that its high watermark is the log end offset."""
        return self.high_watermark_for is _log_end

    def freeze_high_watermark(self) -> None:
        """Do not advance the high watermark when the log grows, as on a follower."""
        self.high_watermark_for = self._keep

    def _keep(self, _: int) -> int:
        return self.high_watermark

    def follow_append(self, log_end_offset: int) -> None:
        """Advance the high watermark after an append. The caller must hold the lock."""
        high_watermark_for = self.high_watermark_for
        if high_watermark_for is _log_end and not self._local.producer_state.has_transactions:
            self.last_stable_offset = log_end_offset
            self.high_watermark = log_end_offset
            self._local.changed.emit()
        else:
            self._move_high_watermark(high_watermark_for(log_end_offset))

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark, clamped into [log_start_offset, log_end_offset].

        The last stable offset is updated accordingly.
        """
        with self._local.lock:
            self._move_high_watermark(offset)

    def _move_high_watermark(self, offset: int) -> None:
        local = self._local
        producer_state = local.producer_state
        high_watermark, end = offset, local.log_end.offset
        if high_watermark < self.log_start_offset:
            high_watermark = self.log_start_offset
        if high_watermark > end:
            high_watermark = end
        unstable = None
        if producer_state.has_transactions:
            producer_state.on_high_watermark_updated(high_watermark)
            unstable = producer_state.first_unstable_offset(high_watermark)
        stable = high_watermark
        if unstable is not None:
            stable = min(max(unstable, self.log_start_offset), high_watermark)
        self.last_stable_offset = stable
        self.high_watermark = high_watermark
        local.changed.emit()

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start, which hides lower offsets from readers.

        Returns False if the log start is already at or above `offset`.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark. Nothing is changed.
        """
        return self._local.change(self.increment_log_start, offset)

    def increment_log_start(self, offset: int) -> bool:
        """Implement `maybe_increment_log_start_offset`, inside a change of the log."""
        local = self._local
        with local.guard("cannot move the log start"):
            local.check_changeable()
            if offset > self.high_watermark:
                raise self.out_of_range(offset, "is above the high watermark")
            if offset <= self.log_start_offset:
                return False
            local.begin()
            self.log_start_offset = offset
            local.recovery_point = max(local.recovery_point, offset)
            local.epochs.truncate_from_start(offset, flush=True)
            local.producer_state.on_log_start_offset_incremented(offset)
            self.set_high_watermark(self.high_watermark)
            return True

    def follow_truncation(self) -> None:
        """Lower all offsets to the log end after a truncation."""
        end = self._local.log_end.offset
        self.log_start_offset = min(self.log_start_offset, end)
        high_watermark = min(self.high_watermark, end)
        self._local.rebuild_producer_state(self.log_start_offset, high_watermark)
        self.set_high_watermark(high_watermark)

    def restart(self, log_start_offset: int) -> None:
        """Reset the offsets for an empty log, whose high watermark is the log end."""
        end = self._local.log_end.offset
        self.log_start_offset = log_start_offset
        self._restarted_at = end
        self._local.rebuild_producer_state(log_start_offset, end)
        self.set_high_watermark(end)

    def recover(self, log_start_offset: int) -> None:
        """Adjust the offsets after the log was recovered from its files."""
        end = self._local.log_end.offset
        self.log_start_offset = log_start_offset
        self.high_watermark = min(self.high_watermark, end)
        self.follow_append(end)

    def checkpoint(self) -> CheckpointOffsets:
        """Return the offsets for the checkpoints."""
        local = self._local
        with local.lock:
            hides_records = self.log_start_offset > local.segments.first.base_offset
            start = self.log_start_offset if hides_records else None
            return CheckpointOffsets(local.recovery_point, self.high_watermark, start)

    def out_of_range(self, offset: int, why: str) -> OffsetOutOfRangeError:
        """Return the error for an invalid delete-records offset."""
        return OffsetOutOfRangeError(
            f"offset {offset} of {self._local.topic_partition} {why}: the log is"
            f" [{self.log_start_offset}, {self.high_watermark}]",
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self._local.log_end.offset,
        )

    def _check(self) -> None:
        """Assert every invariant between segments and offsets."""
        self._local._check_files()
        first = self._local.segments.first.base_offset
        assert first <= max(self.log_start_offset, self._restarted_at)
        assert self.log_start_offset <= self.high_watermark <= self._local.log_end.offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark


def _log_end(log_end_offset: int) -> int:
    return log_end_offset
