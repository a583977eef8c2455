"""Effect of the next cleaning pass on each record of a partition, as in `inspect --fate`.

`logstore.cleaner.passes.fate` decides the fates. This module converts its columns to records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from json.encoder import encode_basestring_ascii as _quote
from typing import TYPE_CHECKING, NamedTuple

from logstore.inspect.records import decoded_key_member
from logstore.record.json_text import bytes_member
from logstore.runtime.guard import StorageGuard

if TYPE_CHECKING:
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.passes.fate import FateChunk
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_CONTROLS = {-1: None, 0: "abort", 1: "commit"}
_OTHER_CONTROL = "other"


class RecordFate(NamedTuple):
    """The fate of a record in the next cleaning pass.

    Attributes
    ----------
    key : bytes or None
        The key. None for null keys and for control records, whose keys are internal.
    fate : str
        `retained`, `superseded`, `tombstone_expired`, `aborted`, `control_expired` or `null_key` as
        in a `CleanReport`. Records that the pass does not read have `below_log_start`, `active` or
        `not_yet_cleanable`.
    superseded_by : int or None
        Offset of the superseding record, or None if the record is not superseded.
    control : str or None
        `abort`, `commit` or `other` for a control record. None for data.
    """

    offset: int
    key: bytes | None
    fate: str
    superseded_by: int | None
    control: str | None


def fate_json(topic_partition: TopicPartition, record: RecordFate, *, raw: bool = False) -> str:
    """Return the fate of a record as a single-line JSON object, as in `inspect --fate`.

    Unless `raw`, keys of internal topics are also decoded.
    """
    decoded = "" if raw else _decoded(topic_partition.topic, record)
    by = "null" if record.superseded_by is None else record.superseded_by
    control = "null" if record.control is None else _quote(record.control)
    return (
        f'{{"offset": {record.offset}, {bytes_member("key", record.key)}, '
        f'"fate": {_quote(record.fate)}, "superseded_by": {by}, "control": {control}, '
        f'"topic": {_quote(topic_partition.topic)}, "partition": {topic_partition.partition}'
        f"{decoded}}}"
    )


def _decoded(topic: str, record: RecordFate) -> str:
    if not topic.startswith("__"):
        return ""
    members = decoded_key_member(topic, record.key)
    return "".join(f', "{name}": {json.dumps(value)}' for name, value in members.items())


class FatesPage(NamedTuple):
    """A page of fates, and the number of records by fate.

    Attributes
    ----------
    counts : mapping of str to int
        Number of records by fate. Fates without records are omitted.
    """

    fates: tuple[RecordFate, ...]
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Number of records in the partition."""
        return sum(self.counts.values())


class PartitionFates:
    """The fates of all records in a partition. Each iteration dry-runs a pass.

    The pass covers the range of `decision`, with the offset map that would be built now, even if
    the partition is not due.

    Attributes
    ----------
    decision : CleaningDecision
        The range to clean and the closed gates at the time when this object was created.
    is_compacted : bool
        Whether the topic is compacted. If not, cleaning removes no records.
    stats : CleanerStats or None
        The statistics of the pass after a complete iteration. None before that, or if the topic is
        not compacted. If `end_offset` is below the end of the range, the map became full there: the
        pass retains later records, and more passes follow.

    Notes
    -----
    Iteration raises `CorruptRecordError`, `UnsupportedFormatError` or `SegmentOverflowError` if
    cleaning would mark the partition uncleanable, and `KafkaStorageError` if the disk fails. The
    caller must ensure that the log is not truncated in the meantime. Requires memory for the map
    and the I/O buffers.
    """

    def __init__(
        self,
        cleaner: LogCleanerManager,
        log: Log,
        *,
        force: bool = False,
        roll: bool = False,
        progress: ProgressListener | None = None,
    ) -> None:
        from logstore.cleaner.command import CleanCommand

        self._cleaner = cleaner
        self._log = log
        self._progress = progress
        self.decision: CleaningDecision = CleanCommand(cleaner, force=force, roll=roll).decision_of(
            log
        )
        self.is_compacted = log.config.compact
        self.stats: CleanerStats | None = None
        cleaner.lifetime.add(self)

    def __repr__(self) -> str:
        return f"PartitionFates({self._log.topic_partition})"

    def __iter__(self) -> Iterator[RecordFate]:
        """Yield the records in offset order, including control records."""
        for chunk in self.chunks():
            for record in _records(chunk):
                self._log.lifetime.check()
                yield record

    def page(self, first: int, count: int) -> FatesPage:
        """Return `count` fates starting at index `first`, and the counts of all fates.

        Raises the same errors as an iteration. Runs the entire pass, but only creates the returned
        records.
        """
        from logstore.cleaner.passes.fate import FATES

        selected: list[RecordFate] = []
        counts: Counter[int] = Counter()
        before = 0
        for chunk in self.chunks():
            size = len(chunk.offsets)
            start, end = max(first - before, 0), min(first + count - before, size)
            if start < end:
                selected += islice(_records(chunk), start, end)
            counts.update(chunk.fates.tolist())
            before += size
        return FatesPage(tuple(selected), {FATES[code]: counts[code] for code in sorted(counts)})

    def chunks(self) -> Iterator[FateChunk]:
        """Yield the fates as columns of a few batches each. Raises the errors of an iteration."""
        with StorageGuard(None, self._log.topic_partition, "cannot read"):
            for chunk in self._chunks():
                self._log.lifetime.check()
                yield chunk

    def _chunks(self) -> Iterator[FateChunk]:
        from logstore.cleaner.passes.fate import list_fates

        listener = self._progress
        progress = None if listener is None else partial(listener, self._log.topic_partition)
        state = self.decision.state if self.is_compacted else None
        self.stats = yield from list_fates(
            self._log, self._cleaner.config, state, progress=progress
        )


def _records(chunk: FateChunk) -> Iterator[RecordFate]:
    from logstore.cleaner.passes.fate import FATES

    data = chunk.data
    columns = (
        chunk.offsets,
        chunk.fates,
        chunk.superseded_by,
        chunk.controls,
        chunk.key_starts,
        chunk.key_sizes,
    )
    for offset, fate, winner, control, start, size in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        kind = _CONTROLS.get(control, _OTHER_CONTROL)
        has_key = size >= 0 and kind is None
        yield RecordFate(
            offset,
            data[start : start + size] if has_key else None,
            FATES[fate],
            winner if winner >= 0 else None,
            kind,
        )
