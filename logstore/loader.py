"""Opening a partition directory: finish or undo what a crash interrupted, then load.

One function a stage, in the order of storage-format §11; running any of them twice changes
nothing. What was done is reported as findings. Read-only callers pass a runtime whose files
are an overlay, so the same code computes recovery without performing it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.epochs import LeaderEpochCache
from logstore.errors import CorruptCheckpointError, CorruptIndexError, CorruptRecordError
from logstore.log import Log
from logstore.names import (
    CLEANED_SUFFIX,
    DELETE_DIR_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
    parse_segment_file,
)
from logstore.producer_state import ProducerStateManager
from logstore.record.layout import HEADER_SIZE_UP_TO_MAGIC, MAGIC, MAGIC_POSITION
from logstore.record.walk import walk_headers
from logstore.recovery import recover_segment, replay_batches
from logstore.runtime import directory_of
from logstore.segment import LogSegment
from logstore.segments import LogSegments

if TYPE_CHECKING:
    from logstore.config import LogConfig
    from logstore.names import SegmentFile
    from logstore.runtime import Runtime
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


class Finding(NamedTuple):
    """Something that opening a log found and mended.

    `action` names the stage (`removed_leftover`, `finished_swap`, `rebuilt_index`,
    `truncated_tail`, `removed_segment`, `reset_log`), `path` the file, `detail` the reason.
    """

    action: str
    path: str
    detail: str


class LogLoader:
    """Loads one partition; see `open_log`."""

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        producer_id_expiration_ms: int,
    ) -> None:
        self.runtime = runtime
        self.fs = runtime.fs
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.findings: list[Finding] = []
        self._unsettled = False
        self.segments = LogSegments()
        self.epochs = self._load_epochs()
        self.producer_state = self._new_producer_state()

    def load(self) -> Log:
        """Run every stage and return the log."""
        self._refuse_old_formats()
        self._remove_leftovers()
        self._finish_swaps()
        self._load_segment_files()
        if not len(self.segments):
            # A new directory lasts no longer than its own name does.
            self.fs.sync_dir(directory_of(self.directory))
            self._create_segment(self.log_start_offset)
        if not self.clean and not self.directory.endswith(DELETE_DIR_SUFFIX):
            self._recover_segments()
        end_offset = self.segments.active.read_next_offset()
        wiped = end_offset < self.log_start_offset
        if wiped:
            end_offset = self._reset_to_log_start(end_offset)
        self.segments.active.resize_indexes()
        recovery_point = (
            end_offset if self.clean and not wiped else min(self.recovery_point, end_offset)
        )
        log_start = max(self.log_start_offset, self.segments.first.base_offset)
        self.epochs.truncate_from_end(end_offset, flush=True)
        # By the checkpoint, as Kafka does: an epoch may begin below the first segment's base.
        self.epochs.truncate_from_start(self.log_start_offset, flush=True)
        self._rebuild_producer_state(log_start, end_offset)
        return Log(
            self.runtime,
            self.directory,
            self.topic_partition,
            self.config,
            self.segments,
            self.producer_state,
            self.epochs,
            log_start_offset=log_start,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            findings=self.findings,
        )

    def _refuse_old_formats(self) -> None:
        """Raise `UnsupportedFormatError` before anything changes if a `.log` begins with one.

        Logs of old formats begin with them; recovery refuses those that stand elsewhere.
        """
        for path, _ in self._files(kind=LOG_SUFFIX):
            file = self.fs.open(path)
            try:
                head = file.read(0, HEADER_SIZE_UP_TO_MAGIC)
                if len(head) == HEADER_SIZE_UP_TO_MAGIC and head[MAGIC_POSITION] < MAGIC:
                    with suppress(CorruptRecordError):
                        next(walk_headers(file, path), None)
            finally:
                file.close()

    # -- steps 1 to 4: leftovers and swaps -----------------------------------------------

    def _files(
        self, *, kind: str | None = None, state: str | None = ""
    ) -> list[tuple[str, SegmentFile]]:
        """List (path, parts) of segment files, by kind and state suffix; None is any."""
        found = []
        for name in self.fs.list_dir(self.directory):
            parts = parse_segment_file(name)
            if parts is None:
                continue
            if kind in (None, parts.kind) and state in (None, parts.state):
                found.append((f"{self.directory}/{name}", parts))
        return found

    def _remove(self, path: str, action: str, detail: str) -> None:
        self._note(action, path, detail)
        self.fs.remove(path)
        self._unsettled = True

    def _settle(self) -> None:
        """Make the names durable, so that what follows cannot survive without what came before.

        A crash between two stages must leave a state that the next start reads the same way.
        """
        if self._unsettled:
            self.fs.sync_dir(self.directory)
            self._unsettled = False

    def _note(self, action: str, path: str, detail: str) -> None:
        logger.warning("%s: %s: %s", path, action, detail)
        self.findings.append(Finding(action, path, detail))

    def _remove_leftovers(self) -> None:
        """Delete `.deleted`, unfinished splits' `.swap`, and all `.cleaned` (steps 1, 2)."""
        for path, _ in self._files(state=DELETED_SUFFIX):
            self._remove(path, "removed_leftover", "its deletion had been scheduled")
        cleaned = self._files(state=CLEANED_SUFFIX)
        if cleaned:
            lowest = min(parts.base_offset for _, parts in cleaned)
            for path, parts in self._files(state=SWAP_SUFFIX):
                if parts.base_offset >= lowest:
                    self._remove(path, "removed_leftover", "its swap had not begun for all files")
            self._settle()  # a `.swap` without any `.cleaned` would count as complete
        for path, _ in cleaned:
            self._remove(path, "removed_leftover", "the cleaning that wrote it did not finish")
        self._settle()

    def _finish_swaps(self) -> None:
        """Delete what complete `.swap` segments supersede, then strip the suffix (3, 4)."""
        swaps = {parts.base_offset for _, parts in self._files(kind=LOG_SUFFIX, state=SWAP_SUFFIX)}
        if swaps:
            lowest = min(swaps)
            highest = max(self._next_offset_of_swap(base_offset) for base_offset in swaps)
            for path, parts in self._files(state=""):
                superseded = lowest <= parts.base_offset < highest
                if parts.kind in SEGMENT_SUFFIXES:
                    # The base itself counts even if the cleaned segment is empty.
                    superseded |= parts.base_offset in swaps
                elif parts.kind != SNAPSHOT_SUFFIX:
                    continue
                if superseded:
                    self._remove(path, "finished_swap", "a cleaned segment takes its place")
            self._settle()  # what is superseded must not come back beside its successor
        for path, _ in self._files(state=SWAP_SUFFIX):
            target = path.removesuffix(SWAP_SUFFIX)
            self._note("finished_swap", target, "renamed from .swap")
            self.fs.rename(path, target)
            self._unsettled = True
        self._settle()

    def _next_offset_of_swap(self, base_offset: int) -> int:
        segment = LogSegment(
            self.runtime, self.directory, base_offset, self.config, suffix=SWAP_SUFFIX
        )
        next_offset = base_offset
        for at in segment.batches():
            next_offset = at.header.next_offset
        segment.close_handlers()
        return next_offset

    # -- steps 5 to 7: segments ----------------------------------------------------------

    def _load_segment_files(self) -> None:
        logs = {parts.base_offset for _, parts in self._files(kind=LOG_SUFFIX)}
        for path, parts in self._files():
            is_index = parts.kind in SEGMENT_SUFFIXES and parts.kind != LOG_SUFFIX
            if is_index and parts.base_offset not in logs:
                self._remove(path, "removed_leftover", "an index without its .log")
        for base_offset in sorted(logs):
            segment = LogSegment(self.runtime, self.directory, base_offset, self.config)
            self.segments.add(segment)
            if reason := self._index_damage(segment):
                self._note("rebuilt_index", segment.log_path, reason)
                self._rebuild_indexes(segment)
        self._settle()

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        """Recover a segment that no recovery point may ask for again.

        Its indexes are built as `.cleaned` files, which a start after a crash removes: a sparse
        index bears no checksum, and is believed where it stands. The offset index comes back
        last, since its absence is what leads here.
        """
        indexes = (segment.offset_index, segment.time_index, segment.txn_index)
        for index in indexes:
            index.rename_to(index.path + CLEANED_SUFFIX)
        self.fs.sync_dir(self.directory)
        self._recover(segment)
        segment.flush()
        for index in reversed(indexes):
            if index is segment.offset_index:
                self.fs.sync_dir(self.directory)
            index.rename_to(index.path.removesuffix(CLEANED_SUFFIX))
        self.fs.sync_dir(self.directory)

    def _index_damage(self, segment: LogSegment) -> str | None:
        """Tell why a segment's indexes must be rebuilt before it is used; None if sound."""
        path = f"{self.directory}/{file_name(segment.base_offset, INDEX_SUFFIX)}"
        if not self.fs.exists(path):
            return "the offset index is missing"
        try:
            segment.txn_index.sanity_check()
        except CorruptIndexError as error:
            return str(error)
        return None

    def _recover(self, segment: LogSegment, before_cut: Callable[[], None] | None = None) -> int:
        """Recover one segment; return the bytes that were cut."""
        state = self._producer_state_at(segment.base_offset)
        result = recover_segment(segment, state, self.epochs, before_cut=before_cut)
        # The next segment's recovery starts from here instead of replaying this one.
        state.take_snapshot()
        if result.truncated_bytes:
            self._note(
                "truncated_tail",
                segment.log_path,
                f"{result.truncated_bytes} bytes cut after position {result.valid_bytes}: "
                f"{result.reason}",
            )
        return result.truncated_bytes

    def _create_segment(self, base_offset: int) -> None:
        self.segments.add(
            LogSegment(self.runtime, self.directory, base_offset, self.config, create=True)
        )

    # -- steps 8 and 9: unclean stop, lost data ------------------------------------------

    def _recover_segments(self) -> None:
        """Verify everything from the recovery point on; after a cut, later segments go."""
        pending = deque(self.segments.from_offset(self.recovery_point))
        while pending:
            segment = pending.popleft()
            before_cut = partial(self._drop_segments, pending, segment.base_offset)
            if self._recover(segment, before_cut):
                return

    def _drop_segments(self, segments: Iterable[LogSegment], cut_base_offset: int) -> None:
        """Drop what follows a cut, durably: the start after a crash must not find it sound."""
        for segment in segments:
            self._drop_segment(segment, f"it follows the cut in segment {cut_base_offset}")
        self._settle()

    def _drop_segment(self, segment: LogSegment, detail: str) -> None:
        self._note("removed_segment", segment.log_path, detail)
        self.segments.remove(segment.base_offset)
        segment.delete_if_exists()
        self._unsettled = True

    def _reset_to_log_start(self, end_offset: int) -> int:
        """Start anew at the log start offset when the data ends below it."""
        detail = f"the log ends at {end_offset}, below the log start {self.log_start_offset}"
        for segment in self.segments.view:
            self._drop_segment(segment, detail)
        self._settle()
        self.epochs.clear(flush=True)
        self.producer_state.truncate_fully_and_start_at(self.log_start_offset)
        self._create_segment(self.log_start_offset)
        self._note("reset_log", self.directory, detail)
        return self.log_start_offset

    # -- epochs and producers ------------------------------------------------------------

    def _load_epochs(self) -> LeaderEpochCache:
        try:
            return LeaderEpochCache(self.fs, self.directory)
        except CorruptCheckpointError as error:
            self._note("reset_epochs", self.directory, str(error))
            return LeaderEpochCache(self.fs, self.directory, load=False)

    def _new_producer_state(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.fs,
            self.directory,
            self.topic_partition,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )

    def _producer_state_at(self, offset: int) -> ProducerStateManager:
        """Return a scratch producer state that has seen everything below `offset`."""
        state = self._new_producer_state()
        state.truncate_and_reload(self.log_start_offset, offset, self.runtime.clock.now_ms())
        for segment in self.segments.between(state.map_end_offset, offset):
            replay_batches(segment, state, state.map_end_offset, offset)
        state.map_end_offset = offset
        # What a longer state left here is gone by now, and a cleaned segment ends below its
        # successor's base: only this keeps the snapshot that stood at the base.
        state.take_snapshot()
        return state

    def _rebuild_producer_state(self, log_start: int, end_offset: int) -> None:
        """Bring the producer state to the end of the log (storage-format §9.3)."""
        state = self.producer_state
        bases = [segment.base_offset for segment in self.segments]
        state.remove_straggler_snapshots(bases)
        if self.clean and not state.snapshot_offsets:
            # Nobody wrote with a producer id, or the snapshots would tell; spare the scan.
            for offset in (*bases[-2:], end_offset):
                state.map_end_offset = offset
                state.take_snapshot()
            return
        state.truncate_and_reload(log_start, end_offset, self.runtime.clock.now_ms())
        for segment in self.segments.between(state.map_end_offset, end_offset):
            start = max(segment.base_offset, state.map_end_offset, log_start)
            state.map_end_offset = start
            if segment.base_offset in bases[-2:]:
                state.take_snapshot()
            replay_batches(segment, state, start, end_offset)
        state.map_end_offset = end_offset
        state.take_snapshot()


def open_log(
    runtime: Runtime,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    producer_id_expiration_ms: int = 86_400_000,
) -> Log:
    """Open a partition's directory, created if missing, and bring it into a sound state.

    Parameters
    ----------
    clean : bool
        Whether the last owner closed in good order; then contents are not read.
    recovery_point, log_start_offset : int
        From the checkpoints of the data directory; 0 if absent.

    Raises
    ------
    UnsupportedFormatError
        A batch of magic 0 or 1; nothing was changed in its file.
    KafkaStorageError, OSError
        The disk failed.
    """
    runtime.fs.make_dirs(directory)
    return LogLoader(
        runtime,
        directory,
        topic_partition,
        config,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_id_expiration_ms=producer_id_expiration_ms,
    ).load()
