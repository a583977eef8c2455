"""The files of a partition's log: segments, their removal and replacement, and durability.

Leader epochs and producer snapshots are in the same directory and are updated together with the
segments. `logstore.storage.log.offsets` contains the offsets that limit readers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from logstore.errors import (
    CorruptionError,
    IllegalStateError,
    KafkaStorageError,
    LogStoreError,
    UnknownTopicOrPartitionError,
)
from logstore.names import DELETED_SUFFIX, SEGMENT_SUFFIXES, file_name
from logstore.runtime import Lifetime, Signal
from logstore.runtime.guard import StorageGuard, is_disk_failure
from logstore.storage.log.replay import rebuild_producer_state
from logstore.storage.log.split import split_segment
from logstore.storage.segment.segment import LogSegment
from logstore.storage.segment.swap import swap_segments

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.runtime import Runtime
    from logstore.storage.log.epochs import LeaderEpochCache
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.segments import LogSegments
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class LogEnd(NamedTuple):
    """The published end of a log: the log end offset and its position.

    Publishing both as one value ensures that a reader that uses the offset reads no later bytes.
    """

    offset: int
    base_offset: int
    position: int


class _Deletion(NamedTuple):
    due_ms: int
    remove: Callable[[], None]


class LocalLog:
    """The files of a partition's log; base class of `Log`.

    The caller must hold `lock` for changes. Readers use the published segments and `log_end`.

    Attributes
    ----------
    log_end : LogEnd
        The published end of the log.
    recovery_point : int
        All records below it are durable or removed. It is never below the log start.
    last_flush_ms : int
        Time when the log was last flushed or opened.
    generation : int
        Number of truncations started. A cleaning pass must not swap in segments if it started in an
        earlier generation, and a reader must repeat its read.
    is_offline : bool
        Whether the log can no longer be used because of a disk failure.
    is_changing : bool
        Whether a thread is inside `change`. The lock is re-entrant, so a signal handler or a
        listener in that thread could acquire it again. Such a nested change is refused.
    is_unfinished : bool
        Whether files or offsets might be half changed. If `is_changing` is false, an interrupt
        (Ctrl-C, a test timeout) ended the last change, and the log recovers before its next use.
    reload : callable or None
        Recovers the log from its files, as after a crash. None if the log may not change the files
        from which it was opened.
    lifetime : Lifetime
        Ends when the log is closed or deleted.
    changed : Signal
        Emitted under the lock after an append, roll, flush, truncation or offset change is visible
        to readers.
    went_offline : Signal of str
        Emitted with the reason when a disk failure takes the log offline, under the locks that the
        failing thread holds.
    check_owner : callable
        Raises `KafkaStorageError` if another process might own the data directory.
    closed : Signal
        Emitted under the lock when the log is closed or deleted.
    """

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochCache,
        *,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.runtime = runtime
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments
        self.producer_state = producer_state
        self.epochs = epochs
        self.recovery_point = recovery_point
        self.generation = 0
        self.lock = runtime.lock()
        self.changed: Signal[[]] = Signal(f"a change of {topic_partition}")
        self.went_offline: Signal[[str]] = Signal(f"the failure of {topic_partition}")
        self.check_owner: Callable[[], None] = _accept_owner
        self.closed: Signal[[]] = Signal(f"the end of {topic_partition}")
        self.last_flush_ms = runtime.clock.now_ms()
        self.is_changing = False
        self.is_unfinished = False
        self.reload: Callable[[], None] | None = None
        self._truncating = False
        self.publish_end(log_end_offset)
        self._deletions: list[_Deletion] = []
        self.is_offline = False
        self._offline_reason: str | None = None
        self.lifetime = Lifetime(f"{topic_partition}: the log")
        self.lifetime.add(self)

    def publish_end(self, offset: int) -> None:
        """Publish the current segments and an end offset to readers."""
        active = self.segments.active
        # called for each append; see `logstore.storage.log.drafts`
        self.log_end = tuple.__new__(LogEnd, (offset, active.base_offset, active.size_bytes))

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch, from the epoch file or the last batch, or 0 if there is none.

        Raises `KafkaStorageError` if the last batch cannot be read.
        """
        entries = self.epochs.entries
        if entries:
            return entries[-1].epoch
        # A log start at the log end empties the file, but the batches below may still exist.
        with StorageGuard(None, self.topic_partition, "cannot read the leader epoch"):
            for segment in reversed(self.segments.view):
                last = segment.last_batch()
                if last is not None:
                    return max(last.header.partition_leader_epoch, 0)
        return 0

    def set_config(self, config: LogConfig) -> None:
        """Replace the configuration.

        As in Kafka, existing segments retain their jitter and index size.
        """
        self.change(self._set_config, config)

    def _set_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.set_config(config)

    # -- changes -------------------------------------------------------------------------

    def change(self, action: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an action that changes the log, under the lock.

        The action must call `begin` before it changes files or offsets. If it raises an exception
        after that, the log recovers. `LogWriter.append_record` inlines this for speed.

        Raises
        ------
        This thread is already changing the log.
            This thread is already changing the log.
        """
        with self.lock:
            if self.is_changing or self.is_unfinished:
                self.prepare_change()
            # Python runs signal handlers at calls and backward jumps only. There is none between an
            # assignment and the end of its block, so no handler can separate the two.
            try:
                self.is_changing = True
                result = action(*args, **kwargs)
                self.is_unfinished = False
                return result
            finally:
                self.is_changing = False
                if self.is_unfinished:
                    self.recover()

    def prepare_change(self) -> None:
        """Refuse a change during another change. Recover if the last change was interrupted.

        Raises
        ------
        IllegalStateError
            This thread is already changing the log.
        """
        if self.is_changing:
            raise IllegalStateError(
                f"{self.topic_partition} cannot be changed by a signal handler or a listener while"
                " the same thread is changing it: retry after that call has returned"
            )
        self.recover()

    def check_not_inside(self) -> None:
        """Raise `IllegalStateError` if this thread is changing the log."""
        if self.is_changing and self.lock.acquire(blocking=False):
            try:
                if self.is_changing:
                    self.prepare_change()
            finally:
                self.lock.release()

    def begin(self) -> None:
        """Declare that files or offsets are about to change; see `change`."""
        self.is_unfinished = True

    def recover(self) -> None:
        """Recover from a change that was interrupted, unless the log is closed or offline.

        The files are handled as after a crash: their names determine whether a swap is completed or
        undone, and a partially written batch is removed. If this is interrupted as well, the next
        use of the log recovers it. The caller must hold the lock.
        """
        if self.is_offline or self.lifetime.is_over or self.reload is None:
            self.is_unfinished = False
            return
        try:
            self.is_changing = True
            self.check_owner()
            self.reload()
            self.is_unfinished = False
            logger.warning("%s recovered from an interrupted change", self.topic_partition)
        except (LogStoreError, OSError) as error:
            is_ours = not isinstance(error, OSError) or is_disk_failure(error)
            if isinstance(error, IllegalStateError) or not is_ours:
                raise  # raised by a signal handler or a listener; the next use recovers
            self.is_unfinished = False
            logger.exception("%s: cannot recover from an interrupt", self.topic_partition)
            self.go_offline(f"cannot recover from an interrupt: {error}")
        finally:
            self.is_changing = False

    def _recover_unless_changing(self) -> None:
        with self.lock:
            if self.is_unfinished and not self.is_changing:
                self.recover()

    # -- in use, closed, offline ---------------------------------------------------------

    def check_open(self) -> None:
        """Raise `KafkaStorageError` if the log is offline."""
        if self.is_unfinished and not self.is_changing:
            self._recover_unless_changing()
        if self._offline_reason is not None:
            raise KafkaStorageError(f"{self.topic_partition} is offline: {self._offline_reason}")

    def check_changeable(self) -> None:
        """Raise `KafkaStorageError` if the log is offline or another process might own it.

        Not used for appends, which cannot afford to check the lock file each time.
        """
        self.check_open()
        self.check_owner()

    def guard(self, what: str) -> StorageGuard:
        """Take the log offline if a file operation inside fails. `what` is like "cannot append"."""
        return StorageGuard(self, self.topic_partition, what)

    def go_offline(self, reason: str) -> None:
        """Refuse further use until a restart recovers the log."""
        if self._offline_reason is None:
            self._offline_reason = reason
            self.is_offline = True
            self.went_offline.emit(reason)

    # -- durability ----------------------------------------------------------------------

    def flush(self, up_to: int | None = None, *, force: bool = False) -> None:
        """Make the log durable and raise the recovery point.

        Parameters
        ----------
        up_to : int, optional
            End of the records to make durable (exclusive). [default: the log end offset]
        force : bool
            Fsync the active segment even if it has no new records.
        """
        with self.lock:
            self.check_open()
            target = self.log_end.offset if up_to is None else up_to
            if target <= self.recovery_point and not force:
                return
            segments = set(self.segments.between(self.recovery_point, target))
            if force:
                segments.add(self.segments.active)
            with self.guard("cannot flush"):
                for segment in sorted(segments, key=lambda each: each.base_offset):
                    segment.flush()
                self.runtime.fs.sync_dir(self.directory)
            self.recovery_point = max(target, self.recovery_point)
            self.last_flush_ms = self.runtime.clock.now_ms()
            self.changed.emit()

    def prepare_shutdown(self) -> None:
        """Leave the files as after a clean shutdown. The caller must hold the lock."""
        # Trim the indexes before the flush, so that a clean shutdown leaves trimmed indexes.
        self.segments.active.on_become_inactive()
        self.flush(force=True)
        self.producer_state.take_snapshot()

    @contextmanager
    def files_at_rest(self) -> Iterator[None]:
        """Keep the files in the state of a clean shutdown. Reads continue; changes wait.

        Raises
        ------
        KafkaStorageError
            The disk failed, or the log is offline.
        """
        with self.lock:
            self.check_not_inside()
            self.check_open()
            try:
                self.is_changing = True
                self.begin()
                with self.guard("cannot flush"):
                    self.prepare_shutdown()
                self.is_unfinished = False
                try:
                    yield
                finally:
                    if not (self.lifetime.is_over or self.is_offline):
                        with self.guard("cannot go on"):
                            self.segments.active.resize_indexes()
            finally:
                self.is_changing = False
                if self.is_unfinished:
                    self.recover()

    def abandon(
        self,
        why: str = "was deleted",
        kind: type[LogStoreError] = UnknownTopicOrPartitionError,
    ) -> None:
        """Close all files unchanged, because the partition was moved or will be deleted.

        Segments that were removed earlier are deleted with the directory. Readers may still be
        using them. Any further use of the log raises an error of type `kind`.
        """
        with self.lock:
            self.close_files()
            self._deletions.clear()
            self.lifetime.end(why, kind)
            self.closed.emit()

    def close_files(self) -> None:
        """Close every file without flushing or trimming it."""
        for segment in self.segments:
            segment.close_handlers()

    def take_files_of(self, copy: LocalLog) -> None:
        """Switch to the files of a log that was opened on a copy of this log's files.

        The caller must hold this log at rest. A reader of the old files reads again.
        """
        old = self.segments.view
        self.take_state_of(copy)
        for segment in old:
            segment.close_handlers()

    def take_state_of(self, copy: LocalLog) -> None:
        """Take over the state of a log.

        Readers continue to use the files that they have open.
        """
        self.directory = copy.directory
        self.segments = copy.segments
        self.producer_state = copy.producer_state
        self.epochs = copy.epochs
        self.recovery_point = copy.recovery_point
        self._deletions.clear()  # the files were removed with the old directory or by the recovery
        self.publish_end(copy.log_end.offset)

    # -- removal and replacement ---------------------------------------------------------

    def remove_segments(self, segments: Iterable[LogSegment]) -> None:
        """Remove segments from the log. Their files are renamed now and deleted later.

        Parameters
        ----------
        segments : iterable of LogSegment
            Segments to remove, in this order.

        Notes
        -----
        Durable on return, because new records may get the same offsets. Each step is fsynced before
        the next one, because a disk may reorder renames. A crash must not remove a newer value or
        tombstone while an older value below it survives.
        """
        gone = list(segments)
        self.begin()
        self.segments.discard(gone)
        for segment in gone:
            segment.change_suffix(DELETED_SUFFIX)
            self.runtime.fs.sync_dir(self.directory)
            self._schedule_deletion(segment.remove_files)

    def swap_segments(
        self,
        new_segments: Sequence[LogSegment],
        old_segments: Sequence[LogSegment],
        *,
        apart: bool,
    ) -> None:
        """Swap segments and remove the old files later (`logstore.storage.segment.swap`)."""
        old = swap_segments(
            self.runtime.fs,
            self.directory,
            self.segments,
            new_segments,
            old_segments,
            apart=apart,
            before_rename=self.begin,
        )
        for segment in old:
            self._schedule_deletion(segment.remove_files)
        bases = (segment.base_offset for segment in old)
        self.delete_snapshots(base for base in bases if base not in self.segments)

    def swap_split(self, segment: LogSegment) -> list[LogSegment]:
        """Replace a segment by several; see `logstore.storage.log.split`."""
        new = split_segment(
            self.runtime,
            self.directory,
            self.segments,
            segment,
            self.config,
            before_rename=self.begin,
        )
        self._schedule_deletion(segment.remove_files)
        if segment.base_offset not in self.segments:
            self.delete_snapshots([segment.base_offset])
        return new

    def delete_snapshots(self, offsets: Iterable[int]) -> None:
        """Rename the producer snapshots of these offsets, and delete the files later."""
        for offset in offsets:
            path = self.producer_state.mark_snapshot_deleted(offset)
            if path is not None:
                self._schedule_deletion(partial(self._remove_file, path))

    def _schedule_deletion(self, remove: Callable[[], None]) -> None:
        delay_ms = self.config.file_delete_delay_ms
        self._deletions.append(_Deletion(self.runtime.clock.monotonic_ms() + delay_ms, remove))
        scheduler = self.runtime.scheduler
        if scheduler.is_started:
            scheduler.schedule("delete-file", self._delete_due_files, delay_ms=delay_ms)

    def deletion_due_ms(self, path: str) -> int | None:
        """Return the monotonic time (ms) at which a renamed file is deleted, or None if unknown."""
        with self.lock:
            for deletion in self._deletions:
                segment = getattr(deletion.remove, "__self__", None)
                if getattr(segment, "log_path", None) == path:
                    return deletion.due_ms
        return None

    def _delete_due_files(self) -> None:
        with self.lock:  # the log might be deleted and its files renamed in the meantime
            if not self.lifetime.is_over:
                self.delete_expired_files()

    def _remove_file(self, path: str) -> None:
        if self.runtime.fs.exists(path):
            self.runtime.fs.remove(path)

    def delete_expired_files(self, *, force: bool = False) -> int:
        """Delete files that were renamed to `.deleted` at least `file.delete.delay.ms` ago.

        Readers of a removed segment can continue, because its files remain open until the last
        reader is done. If the log is offline, the next start deletes the files.

        Returns
        -------
        int
            Number of segments and snapshots deleted.
        """
        with self.lock, self.guard("cannot delete segments"):
            if self.is_offline:
                return 0
            now_ms = self.runtime.clock.monotonic_ms()
            due = [d for d in self._deletions if force or d.due_ms <= now_ms]
            for deletion in due:
                deletion.remove()
            # Forget them last, so that after an interrupt the next call deletes the remaining
            # files.
            removed = set(map(id, due))
            self._deletions = [d for d in self._deletions if id(d) not in removed]
            return len(due)

    def delete_stale_files(self, base_offset: int) -> None:
        """Delete existing files with the names of a new segment at this base offset."""
        fs = self.runtime.fs
        for kind in SEGMENT_SUFFIXES:
            path = f"{self.directory}/{file_name(base_offset, kind)}"
            if fs.exists(path):
                logger.warning("newly rolled segment file %s already exists; deleting it", path)
                fs.remove(path)

    def add_segment(self, base_offset: int) -> LogSegment:
        """Add a new, empty segment."""
        segment = LogSegment(self.runtime, self.directory, base_offset, self.config, create=True)
        self.segments.add(segment)
        return segment

    def renew_segment(self, segment: LogSegment) -> LogSegment:
        """Replace an empty segment with a segment that uses the current settings.

        The `.log` file is retained, so that a crash never leaves a log without a segment, which
        would restart at offset 0. The file is not closed, because a reader may be using it.
        """
        assert segment.size_bytes == 0, "only an empty segment is replaced at its base"
        segment.remove_indexes()
        return self.add_segment(segment.base_offset)

    # -- truncation ----------------------------------------------------------------------

    @contextmanager
    def truncation(self) -> Iterator[None]:
        """Make readers wait while bytes change, and then repeat their reads."""
        self._truncating = True
        self.generation += 1
        try:
            yield
        finally:
            self._truncating = False

    def settled_generation(self) -> int:
        """Return the generation after waiting for any truncation in progress.

        Raises
        ------
        IllegalStateError
            This thread is performing the truncation.
        """
        while True:
            generation = self.generation
            if not self._truncating:
                return generation
            with self.lock:  # held during the truncation
                if self._truncating:
                    self._truncating = self.is_changing  # False if an interrupt ended it
                    if self.is_changing:
                        raise IllegalStateError(
                            f"{self.topic_partition} cannot be read by a signal handler or a"
                            " listener while the same thread truncates it"
                        )

    def cut_segments(self, offset: int) -> None:
        """Drop the records at or above `offset`, which must be at least the first base offset.

        The change is durable on return. After a crash in between, the log may end at a higher
        offset. If the segment to truncate cannot be read, the log does not change.
        """
        last, *above = self.segments.from_offset(offset)
        if offset > last.base_offset:
            last.translate_offset(offset)
        self.begin()
        self.remove_segments(reversed(above))
        last.truncate_to(offset)
        last.flush()
        self._end_at(offset)
        self.delete_snapshots(segment.base_offset for segment in above)
        self.epochs.truncate_from_end(offset, flush=True)

    def restart_at(self, offset: int) -> None:
        """Drop all records and continue with an empty segment at `offset`.

        The change is durable on return. The log always has a segment, and segments never overlap.
        After a crash in between, the log may therefore end at a lower offset, but it never restarts
        at 0.
        """
        self.begin()
        # Do this before adding the new segment, which is above the snapshots. Otherwise a recovery
        # would use them.
        self.producer_state.truncate_fully_and_start_at(offset)
        first = self.segments.first
        self.remove_segments(reversed(self.segments.view[1:]))
        if first.base_offset <= offset:
            first.truncate_to(first.base_offset)
            first.flush()
        if first.base_offset == offset:
            self.renew_segment(first)
        else:
            self.delete_stale_files(offset)
            self.add_segment(offset)
            self.runtime.fs.sync_dir(self.directory)
            self.remove_segments([first])
        self._end_at(offset)
        self.epochs.clear(flush=True)

    def _end_at(self, offset: int) -> None:
        self.publish_end(offset)
        self.recovery_point = min(self.recovery_point, offset)

    def rebuild_producer_state(self, log_start_offset: int, high_watermark: int) -> None:
        """Rebuild the producer state from the log; see `logstore.storage.log.replay`.

        Snapshots above the log end might reappear after a crash. Recovery drops them.
        """
        now_ms, end = self.runtime.clock.now_ms(), self.log_end.offset
        try:
            rebuild_producer_state(
                self.producer_state,
                self.segments,
                log_start_offset,
                end,
                now_ms,
                high_watermark=high_watermark,
            )
        except CorruptionError as error:
            self.go_offline(f"cannot rebuild the producer state: {error}")
            raise

    def _check_files(self) -> None:
        """Assert the invariants of the segments and their end."""
        view = self.segments.view
        assert view, "a log has at least one segment"
        for segment, following in pairwise(view):
            assert segment.base_offset < following.base_offset
        end, active = self.log_end, self.segments.active
        assert active.base_offset <= end.offset
        assert self.recovery_point <= end.offset
        assert end[1:] == (active.base_offset, active.size_bytes)


def _accept_owner() -> None:
    """Allow changes to a log that was opened without a log manager."""
