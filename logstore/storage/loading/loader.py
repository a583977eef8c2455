"""Open a partition directory: clean up after a crash, then load the log.

There is one function for each stage, in the order of storage-format §11. Running a stage a second
time has no effect. Each change is reported as a finding. Read-only callers pass a runtime that
keeps changes in memory, so the same code computes the recovery without changing files.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    CorruptRecordError,
    DataLossError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.names import (
    CLEANED_SUFFIX,
    DELETE_DIR_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from logstore.record.walk import refuse_old_format
from logstore.runtime import FileKind, directory_of
from logstore.storage.loading.leftovers import PartitionFiles, finish_swaps, remove_leftovers
from logstore.storage.loading.on_damage import OnDamage
from logstore.storage.loading.request import LoadRequest
from logstore.storage.loading.tail import find_tail
from logstore.storage.log.epochs import LeaderEpochCache
from logstore.storage.log.log import Log
from logstore.storage.log.recovery import has_aborted_transaction, recover_segment, replay_batches
from logstore.storage.log.replay import rebuild_producer_state
from logstore.storage.log.split import split_segment
from logstore.storage.producers.state import ProducerStateManager
from logstore.storage.segment.segment import LogSegment
from logstore.storage.segment.segments import LogSegments
from logstore.types import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from logstore.runtime import Runtime
    from logstore.storage.loading.damage import Lost
    from logstore.storage.loading.surveyed import SurveyedFiles
    from logstore.storage.log.recovery import SegmentRecovery

logger = logging.getLogger(__name__)


class _Walked(NamedTuple):
    """The result of walking a segment file of the given size to its end."""

    segment: LogSegment
    size_bytes: int
    next_offset: int


class LogLoader:
    """The stages of loading one partition; see `open_log`."""

    def __init__(self, runtime: Runtime, request: LoadRequest) -> None:
        self.runtime = runtime
        self.fs = runtime.fs
        self.request = request
        self.directory = request.directory
        self.config = request.config
        self.clean = request.clean
        self.recovery_point = request.recovery_point
        self.log_start_offset = request.log_start_offset
        self._reached_offset = max(request.reached_offset, request.recovery_point)
        self._lost: dict[str, Lost] = {}
        self._surveyed: SurveyedFiles | None = None
        self.files = PartitionFiles(runtime.fs, request.directory, request.finding_level)
        self._useless: set[int] = set()
        self._verified_ends: dict[int, int] = {}
        self._walked: _Walked | None = None
        self._is_end_lost = False
        self._is_end_damaged = False
        self._scratch_state: ProducerStateManager | None = None
        self.segments = LogSegments()
        self.epochs = self._load_epochs()
        self.producer_state = self._new_producer_state()

    def load(self) -> Log:
        """Run every stage and return the log."""
        self._refuse_old_formats()
        remove_leftovers(self.files, keeps_cleaned=self.request.keeps_cleaned)
        if self.request.surveys:
            from logstore.storage.loading.surveyed import survey_files  # see `_check_overlaps`

            self._surveyed = survey_files(self.files, self.config, self.clean)
        else:
            finish_swaps(self.files)
        self._load_segment_files()
        if not len(self.segments):
            if not self.request.is_named:
                # Make the name of a new directory durable before its files.
                self.fs.sync_dir(directory_of(self.directory))
            self._create_segment(self.log_start_offset)
        is_deleted = self.directory.endswith(DELETE_DIR_SUFFIX)
        self._check_log_start()
        if not self.clean and not is_deleted:
            self._recover_segments()
        end_offset = self._find_end()
        wiped = end_offset < self.log_start_offset
        if wiped:
            end_offset = self._reset_to_log_start(end_offset)
        elif not is_deleted:
            self._split_overflowed(end_offset)
        self.segments.active.resize_indexes()
        log_start = max(self.log_start_offset, self.segments.first.base_offset)
        recovery_point = (
            end_offset if self.clean and not wiped else min(self.recovery_point, end_offset)
        )
        self.epochs.truncate_from_end(end_offset, flush=True)
        # As in Kafka, truncate to the checkpointed log start offset. An epoch may start below the
        # first segment.
        self.epochs.truncate_from_start(self.log_start_offset, flush=True)
        self._rebuild_producer_state(log_start, end_offset)
        surveyed = self._surveyed
        return Log(
            self.runtime,
            self.directory,
            self.request.topic_partition,
            self.config,
            self.segments,
            self.producer_state,
            self.epochs,
            log_start_offset=log_start,
            log_end_offset=end_offset,
            # Records below the log start need not be durable.
            recovery_point=max(recovery_point, log_start),
            high_watermark=self.request.high_watermark,
            findings=self.files.findings,
            damages=() if surveyed is None else surveyed.damages,
            torn=() if surveyed is None else surveyed.torn,
            surveyed={} if surveyed is None else surveyed.bounds,
        )

    def _refuse_old_formats(self) -> None:
        """Raise `UnsupportedFormatError` if a `.log` starts with an old format.

        No file has been changed at this point. Recovery refuses batches of old formats elsewhere in
        a file.
        """
        for path, _ in self.files.listed(kind=LOG_SUFFIX):
            self._refuse_irregular(path)
            if self.request.surveys:
                continue
            with closing(self.fs.open(path)) as file:
                refuse_old_format(file, path)

    def _refuse_irregular(self, log_path: str) -> None:
        """Refuse segments that can be neither used nor repaired, before changing anything.

        These are a `.log` that is a symbolic link, unless the log is opened read-only, and a
        directory that is named like an index.

        Raises
        ------
        KafkaStorageError
        """
        if self.files.irregular(log_path) is not None:
            try:
                self.fs.open(log_path, write=True).close()
            except OSError as error:
                raise KafkaStorageError(f"{log_path} {error.strerror}") from error
        for kind in INDEX_SUFFIXES:
            path = log_path.removesuffix(LOG_SUFFIX) + kind
            if self.files.irregular(path) is FileKind.DIRECTORY:
                raise KafkaStorageError(f"{path} is a folder; expected an index file")

    def _check_overlaps(self) -> None:
        """Check whether the offset ranges of adjacent segments overlap.

        No other check detects this, because a reader leaves a segment at the base offset of the
        next one. With `PASS_OVER`, an overlap is an error, and the caller surveys every batch. With
        `REFUSE`, leftovers of a finished swap are removed and all other segments kept. A broker
        does not check for overlaps.

        Raises
        ------
        CorruptRecordError
            Two segments overlap, with `PASS_OVER`.
        """
        view = self.segments.view
        for segment, following in pairwise(view):
            with suppress(CorruptRecordError, UnsupportedFormatError):  # readers report it
                if (end_offset := segment.read_next_offset()) > following.base_offset:
                    break
        else:
            return
        if self.request.on_damage is OnDamage.PASS_OVER:
            raise _overlap(segment, end_offset, following)
        # Imported here because the survey is slow to import and few logs need it.
        from logstore.storage.loading.surveyed import find_superseded, leftover_text

        limit = self.config.logstore_decompression_max_bytes
        paths = {segment.base_offset: segment.log_path for segment in view}
        superseded = find_superseded(self.fs, paths, limit)
        for base, leftover in superseded.items():
            old = self.segments.floor(base)
            assert old is not None
            if leftover.is_whole:
                text = leftover_text(leftover.path, leftover.first_offset)
                self._drop_segment(old, text, "leftover_segment")
        self.files.sync_names()

    # -- steps 5 to 7: segments ----------------------------------------------------------

    def _load_segment_files(self) -> None:
        self._remove_useless_indexes()
        present = {(parts.kind, parts.base_offset) for _, parts in self.files.listed()}
        for path, (base_offset, kind, _) in self.files.listed():
            is_index = kind in SEGMENT_SUFFIXES and kind != LOG_SUFFIX
            if is_index and (LOG_SUFFIX, base_offset) not in present:
                self.files.remove(path, "removed_leftover", "an index without its .log")
        bases = sorted(base_offset for kind, base_offset in present if kind == LOG_SUFFIX)
        open_segment = partial(LogSegment, self.runtime, self.directory, config=self.config)
        self.segments.replace(map(open_segment, bases), ())
        for segment in self.segments:
            kinds = {kind for kind in SEGMENT_SUFFIXES if (kind, segment.base_offset) in present}
            if INDEX_SUFFIX in kinds and TIME_INDEX_SUFFIX not in kinds:
                # As in Kafka, create the index empty instead of rebuilding it. Zeros would count as
                # entries.
                self.fs.open(segment.time_index.path, create=True).close()
            has_index = INDEX_SUFFIX in kinds and segment.base_offset not in self._useless
            if self.clean and segment is self.segments.active and has_index:
                self._check_tail(segment)
            if reason := self._index_damage(segment, kinds):
                surveyed = self._surveyed
                if surveyed is None or segment.log_path not in surveyed.bounds:
                    self.files.note("rebuilt_index", segment.log_path, reason)
                self._rebuild_indexes(segment)
        self.files.sync_names()
        if self.request.on_damage is not OnDamage.RECOVER and not self.request.surveys:
            self._check_overlaps()

    def _check_tail(self, segment: LogSegment) -> None:
        """Truncate the end of the active segment if it is a torn batch.

        Records appended after a torn batch could not be read. That is also true of a damaged end,
        which is retained because it might contain records; appends then use a new segment.

        Raises
        ------
        CorruptRecordError
            The segment has no valid batch, so a new segment would have the same base offset.
        """
        tail = find_tail(segment)
        if self.request.on_damage is OnDamage.PASS_OVER and (tail is None or not tail.is_sound):
            position = 0 if tail is None else tail.position
            raise CorruptRecordError(
                "the end of the log is damaged", path=segment.log_path, position=position
            )
        if tail is None:
            return
        if not tail.size_bytes:
            self._walked = _Walked(segment, segment.size_bytes, tail.next_offset)
            return
        if tail.is_torn:
            segment.truncate_at(tail.position, tail.next_offset)
            segment.flush()
            self._is_end_lost = True
            self._note_cut(
                segment.log_path, tail.position, tail.size_bytes, "the last batch is torn"
            )
            return
        reason = f"{tail.size_bytes} bytes at position {tail.position} are not a torn batch"
        if tail.next_offset == segment.base_offset:
            raise CorruptRecordError(
                reason, path=segment.log_path, position=tail.position, check="torn_tail"
            )
        self._verified_ends[segment.base_offset] = tail.next_offset
        self._is_end_damaged = True
        self.files.note("left_damaged_end", segment.log_path, f"{reason}; a new segment follows")

    def _walked_end(self, segment: LogSegment) -> int | None:
        """Return the offset after a segment's last batch, or None if no walk reached the end."""
        walked = self._walked
        if walked is None or walked[:2] != (segment, segment.size_bytes):
            return None
        return walked.next_offset

    def _remove_useless_indexes(self) -> None:
        """Remove links and pipes that are named like an index.

        A link can be read, but a write would change its target.
        """
        for path, parts in self.files.listed():
            if parts.kind in INDEX_SUFFIXES and self.files.irregular(path) is not None:
                try:
                    self.fs.open(path, write=True).close()
                except OSError as error:
                    self.files.remove(path, "rebuilt_index", error.strerror or str(error))
                    self._useless.add(parts.base_offset)

    def _index_damage(self, segment: LogSegment, kinds: set[str]) -> str | None:
        """Return the reason why a segment's indexes must be rebuilt, or None if they are sound.

        `kinds` contains the suffixes of the segment's files.
        """
        if INDEX_SUFFIX not in kinds:
            return "the offset index is missing"
        if segment.base_offset in self._useless:
            return "an index was not a regular file"
        if self.clean and segment is self.segments.active:
            if self._is_end_damaged:
                return None  # recovery would truncate the damaged end
            next_offset = self._walked_end(segment)
            if not segment.is_index_end_sound(None if next_offset is None else next_offset - 1):
                return f"{segment.offset_index.path}: its last entry does not point to a batch"
        if TXN_INDEX_SUFFIX in kinds:
            return self._txn_index_damage(segment)
        return None

    def _txn_index_damage(self, segment: LogSegment) -> str | None:
        """Return why a transaction index must be rebuilt, or None if no damage is found.

        A file that merely lacks some entries is not detected, because that would require reading
        the whole segment, as `logstore.inspect.check` does.
        """
        following = self.segments.higher(segment.base_offset)
        end_offset = None if following is None else following.base_offset
        try:
            segment.txn_index.sanity_check(end_offset)
            if segment.txn_index.is_empty and self.clean and has_aborted_transaction(segment):
                return (
                    f"{segment.txn_index.path}: empty, but the segment has an aborted transaction"
                )
            if self.clean and (reason := segment.txn_index_contradiction()) is not None:
                return f"{segment.txn_index.path}: {reason}"
        except CorruptIndexError as error:
            return str(error)
        except (CorruptRecordError, UnsupportedFormatError):
            pass  # readers report it
        return None

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        """Recover a segment to rebuild its indexes.

        The indexes are built as `.cleaned` files, which the next start removes after a crash. A
        partial index in place would be trusted, because a sparse index has no checksum. The offset
        index is renamed last, because its absence triggers this rebuild.
        """
        indexes = (segment.offset_index, segment.time_index, segment.txn_index)
        for index in indexes:
            index.rename_to(index.path + CLEANED_SUFFIX)
        self.fs.sync_dir(self.directory)
        view = self.segments.view
        slot = view.index(segment)
        recovery = self._recover(segment, view[max(slot - 2, 0) : slot])
        if not recovery.must_split:
            segment.flush()
        for index in reversed(indexes):
            if index is segment.offset_index:
                self.fs.sync_dir(self.directory)
            index.rename_to(index.path.removesuffix(CLEANED_SUFFIX))
        self.fs.sync_dir(self.directory)
        if recovery.must_split:
            self._split(segment, recovery)

    def _recover(
        self,
        segment: LogSegment,
        latest: Sequence[LogSegment],
        before_cut: Callable[[], None] | None = None,
    ) -> SegmentRecovery:
        """Recover one segment, unless it must be split first.

        `latest` contains the last two segments loaded so far.
        """
        state = self._producer_state_at(segment.base_offset, latest)
        recovery = recover_segment(
            segment, state, self.epochs, before_cut=partial(self._check_cut, segment, before_cut)
        )
        if recovery.must_split:
            return recovery
        # The next segment's recovery starts from this snapshot instead of replaying the segment.
        state.take_snapshot()
        self._note_recovery(segment.log_path, recovery)
        self._verified_ends[segment.base_offset] = recovery.next_offset
        following = self.segments.higher(segment.base_offset)
        if following is not None and recovery.next_offset > following.base_offset:
            if self.request.on_damage is OnDamage.PASS_OVER:
                raise _overlap(segment, recovery.next_offset, following)
            self.files.note(
                "overlapping_segments",
                segment.log_path,
                f"its offsets end at {recovery.next_offset - 1}, not below the next segment's base"
                f" {following.base_offset}",
            )
        return recovery

    def _note_recovery(self, path: str, recovery: SegmentRecovery) -> None:
        if recovery.truncated_bytes:
            reason = recovery.reason
            if (lost := self._lost.get(path)) is not None:
                reason = f"{reason}; {lost} after it lost"
            self._note_cut(path, recovery.valid_bytes, recovery.truncated_bytes, reason)

    def _check_cut(
        self, segment: LogSegment, drop: Callable[[], None] | None, recovery: SegmentRecovery
    ) -> None:
        """Allow or refuse a cut, depending on the valid batches after it. If allowed, call `drop`.

        Raises
        ------
        CorruptRecordError
            With `PASS_OVER`: valid batches follow the damage.
        DataLossError
            The truncation would remove valid batches below `keep_below`.
        """
        from logstore.storage.loading.damage import (  # see `_check_overlaps`
            is_followed,
            lost_behind,
        )

        path, position = segment.log_path, recovery.valid_bytes
        later = [other for other in self.segments if other.base_offset > segment.base_offset]
        if is_followed(segment, position, later):
            if self.request.on_damage is OnDamage.PASS_OVER:
                raise CorruptRecordError(str(recovery.reason), path=path, position=position)
            lost = lost_behind(segment, position, () if drop is None else later)
            if lost.batches:
                if recovery.next_offset < self.request.keep_below:
                    raise DataLossError(
                        f"{_without_location(recovery.reason)}; opening the log for writing would"
                        f" truncate it here and lose {lost} after it",
                        path=path,
                        position=position,
                        check="recovery",
                    )
                self._lost[path] = lost
        if drop is not None:
            drop()

    def _note_cut(self, path: str, position: int, size_bytes: int, reason: str | None) -> None:
        detail = f"{size_bytes} bytes cut after position {position}: {reason}"
        self.files.note("truncated_tail", path, detail)

    def _split(
        self,
        segment: LogSegment,
        recovery: SegmentRecovery | None = None,
        before_cut: Callable[[], None] | None = None,
    ) -> list[LogSegment]:
        """Split a segment. Its files are removed after the new segments are in place."""
        path = segment.log_path
        new = split_segment(
            self.runtime,
            self.directory,
            self.segments,
            segment,
            self.config,
            recovery=recovery,
            before_cut=partial(self._check_cut, segment, before_cut),
        )
        if recovery is not None:
            self._note_recovery(path, recovery)
        bases = ", ".join(str(part.base_offset) for part in new)
        self.files.note(
            "split_segment", path, f"offsets more than 2^31-1 above its base; now at {bases}"
        )
        segment.delete_if_exists()
        self.files.changed()
        return new

    def _split_overflowed(self, end_offset: int) -> None:
        """Split segments with offset overflow that recovery did not read (step 6).

        After a clean shutdown, Kafka does not look for them and splits them at the next recovery or
        cleaning. Here the file names rule out all segments except those far below the next base
        offset or the log end. For the remaining segments, the batches after the last index entry
        are read.
        """
        view = self.segments.view
        for segment, following in zip_longest(view, view[1:]):
            if _fits(segment, end_offset if following is None else following.base_offset):
                continue
            with suppress(CorruptRecordError, UnsupportedFormatError):  # readers report it
                if not _fits(segment, segment.read_next_offset()):
                    self._split_if_possible(segment)

    def _split_if_possible(self, segment: LogSegment) -> None:
        try:
            self._split(segment)
        except (CorruptionError, UnsupportedFormatError, SegmentOverflowError) as error:
            self.files.note("kept_overflow", segment.log_path, str(error))

    def _create_segment(self, base_offset: int) -> None:
        """Add an empty segment. Its name may be the only record of the log's start or end.

        Therefore its name is fsynced at once, except at offset 0, where a log without segments
        starts anyway.
        """
        self.segments.add(
            LogSegment(self.runtime, self.directory, base_offset, self.config, create=True)
        )
        if base_offset > 0:
            self.fs.sync_dir(self.directory)

    # -- steps 8 and 9: unclean stop, lost data ------------------------------------------

    def _check_log_start(self) -> None:
        """Ignore a log start offset that is above any offset the log has reached.

        The checkpoint is damaged or belongs to a different log, and applying it would delete all
        records of a valid log. This must be checked before recovery, because the bytes that
        recovery removes were there when the log start was written. After an unclean stop, or if the
        end of the log is torn, the log start is valid if the recovery point or the high watermark
        is at least as high. These are in other files and never below the log start. In this case,
        the end of the log was lost or a truncation was interrupted, and the remaining records had
        already been deleted.
        """
        start, active = self.log_start_offset, self.segments.active
        has_lost = not self.clean or self._is_end_lost
        if start <= active.base_offset or (has_lost and self._reached_offset >= start):
            return
        end_offset = self._walked_end(active)
        if end_offset is None:
            end_offset = active.base_offset
            # After an unclean stop, the indexes are not trusted.
            at = active.indexed_position(INT64_MAX) if self.clean else 0
            with suppress(CorruptRecordError, UnsupportedFormatError):
                for batch in active.batches(at):
                    end_offset = batch.header.next_offset
        if end_offset < start:
            self.log_start_offset = 0
            self.files.note(
                "ignored_log_start",
                self.directory,
                f"the log start {start} is beyond the log end {end_offset};"
                f" the log starts at {self.segments.first.base_offset}",
            )
        elif has_lost:
            # After a crash, no other evidence remains. The next start must accept the log start.
            self._store_reached(start)

    def _store_reached(self, offset: int) -> None:
        """Store durably that the log once reached an offset, unless this is already stored."""
        if self._reached_offset < offset and self.request.store_reached_offset is not None:
            self.request.store_reached_offset(offset)
            self._reached_offset = offset

    def _recover_segments(self) -> None:
        """Verify all segments from the recovery point on. Remove the segments after a cut."""
        pending = deque(self.segments.from_offset(self.recovery_point))
        logger.info(
            "%s: not closed cleanly; recovering %d segments from offset %d on",
            self.directory,
            len(pending),
            self.recovery_point,
        )
        while pending:
            segment = pending.popleft()
            before_cut = partial(self._drop_segments, pending, segment.base_offset)
            recovery = self._recover(segment, self.segments.view[-2:], before_cut)
            if recovery.must_split:
                first = self._split(segment, recovery, before_cut)[0]
                start = max(first.base_offset, self.recovery_point)
                pending = deque(self.segments.from_offset(start))
            elif recovery.truncated_bytes:
                return

    def _find_end(self) -> int:
        """Return the log end offset.

        If an earlier segment reaches beyond the active one, a new segment starts above both, so
        that no offset is assigned twice. A new segment is also created after a damaged end.
        """
        end_offset = self._walked_end(self.segments.active)
        if end_offset is None:
            end_offset = self.segments.active.read_next_offset()
        reached = max(self._verified_ends.get(s.base_offset, 0) for s in self.segments)
        if end_offset < reached or self._is_end_damaged:
            self._create_segment(reached)
        return max(end_offset, reached)

    def _drop_segments(self, segments: Iterable[LogSegment], cut_base_offset: int) -> None:
        """Durably remove the segments after a truncation, which a later start could otherwise load.

        First, store the end offset of these segments as reached by the log.
        """
        self._store_reached(self.log_start_offset)
        for segment in segments:
            self._drop_segment(segment, f"it follows the cut in segment {cut_base_offset}")
        self.files.sync_names()

    def _drop_segment(
        self, segment: LogSegment, detail: str, action: str = "removed_segment"
    ) -> None:
        self.files.note(action, segment.log_path, detail)
        self.segments.remove(segment.base_offset)
        segment.delete_if_exists()
        self.files.changed()

    def _reset_to_log_start(self, end_offset: int) -> int:
        """Start an empty log at the log start offset, because the existing data ends below it."""
        detail = f"the log ends at {end_offset}, below the log start {self.log_start_offset}"
        for segment in self.segments.view:
            self._drop_segment(segment, detail)
        self.files.sync_names()
        self.epochs.clear(flush=True)
        self.producer_state.truncate_fully_and_start_at(self.log_start_offset)
        self._create_segment(self.log_start_offset)
        self.files.note("reset_log", self.directory, detail)
        return self.log_start_offset

    # -- epochs and producers ------------------------------------------------------------

    def _load_epochs(self) -> LeaderEpochCache:
        try:
            return LeaderEpochCache(
                self.fs, self.directory, max_bytes=self.request.small_file_max_bytes
            )
        except CorruptCheckpointError as error:
            self.files.note("reset_epochs", f"{self.directory}/{LEADER_EPOCHS}", str(error))
            return LeaderEpochCache(self.fs, self.directory, load=False)

    def _new_producer_state(self) -> ProducerStateManager:
        state = ProducerStateManager(
            self.fs,
            self.directory,
            self.request.topic_partition,
            producer_id_expiration_ms=self.request.producer_id_expiration_ms,
            small_file_max_bytes=self.request.small_file_max_bytes,
        )
        state.may_lack_batches = self.request.surveys
        return state

    def _producer_state_at(self, offset: int, latest: Sequence[LogSegment]) -> ProducerStateManager:
        """Return a temporary producer state with all batches below `offset` applied.

        Takes snapshots at the bases of the `latest` segments.
        """
        if self._scratch_state is None:  # shared, because creating it lists the directory
            self._scratch_state = self._new_producer_state()
        state = self._scratch_state
        state.map_end_offset = _NOT_LOADED
        state.truncate_and_reload(self.log_start_offset, offset, self.runtime.clock.now_ms())
        self._note_snapshots(state)
        for segment in self.segments.between(state.map_end_offset, offset):
            state.map_end_offset = max(state.map_end_offset, segment.base_offset)
            if segment in latest:
                state.take_snapshot()
            replay_batches(segment, state, state.map_end_offset, offset)
        state.map_end_offset = offset
        # Later snapshots were removed, and a cleaned segment might end below the next base offset.
        # Without this call, no snapshot would exist at that base offset.
        state.take_snapshot()
        return state

    def _rebuild_producer_state(self, log_start: int, end_offset: int) -> None:
        """Advance the producer state to the end of the log (storage-format §9.3)."""
        state = self.producer_state
        state.remove_straggler_snapshots([segment.base_offset for segment in self.segments])
        now_ms = self.runtime.clock.now_ms()
        rebuild_producer_state(
            state,
            self.segments,
            log_start,
            end_offset,
            now_ms,
            clean=self.clean,
            high_watermark=self.request.high_watermark,
        )
        self._note_snapshots(state)

    def _note_snapshots(self, state: ProducerStateManager) -> None:
        """Report damaged snapshots.

        Other deleted snapshots are not reported, because each clean restart leaves some behind.
        """
        for error in state.damaged_snapshots:
            self.files.note("removed_snapshot", str(error.path), error.message)


_NOT_LOADED = -1
"""Map end offset of a producer state that must be reloaded."""


def _without_location(reason: str | None) -> str:
    """Return the reason why a walk ended, without its file and position prefix."""
    head, _, tail = str(reason).rpartition(": ")
    return tail if " at position " in head else str(reason)


def _overlap(segment: LogSegment, end_offset: int, following: LogSegment) -> CorruptRecordError:
    return CorruptRecordError(
        f"its offsets end at {end_offset - 1}, not below the next segment's base"
        f" {following.base_offset}",
        path=segment.log_path,
        check="segment_overlap",
    )


def _fits(segment: LogSegment, end_offset: int) -> bool:
    """Return whether a segment can contain all offsets below `end_offset`."""
    return end_offset - segment.base_offset <= INT32_MAX + 1


def open_log(runtime: Runtime, request: LoadRequest) -> Log:
    """Open a partition and make its files consistent.

    Raises
    ------
    UnsupportedFormatError
        A batch has magic 0 or 1. Its file is unchanged.
    SegmentOverflowError
        Offsets in a segment that must be recovered exceed the segment's range and overlap the next
        segment or decrease, so a base offset must be damaged. The file is unchanged.
    CorruptRecordError
        A valid batch contradicts its producer's open transaction, or a cleanly closed log ends with
        damage other than a torn batch. The file is unchanged.
    KafkaStorageError, OSError
        The disk failed.
    """
    log = LogLoader(runtime, request).load()

    def reload() -> None:
        """Recovery requires durable names, as after a crash."""
        # Recovery relies on durable names, as they are after a crash.
        runtime.fs.sync_dir(log.directory)
        again = replace(
            request,
            directory=log.directory,
            config=log.config,
            clean=False,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            reached_offset=max(log.log_end.offset, log.log_start_offset),
            store_reached_offset=None,
            high_watermark=None if log.offsets.is_alone else log.high_watermark,
            on_damage=OnDamage.RECOVER,
            keep_below=0,
            keeps_cleaned=True,
        )
        log.adopt_recovered(LogLoader(runtime, again).load())

    if not request.surveys:
        log.reload = reload
    return log
