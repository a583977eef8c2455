"""Records of an export: batch by batch, with their fates in the next cleaning pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logstore.cleaner.passes.fate import FATES
from logstore.errors import InvalidRecordError, LogStoreError
from logstore.record.columns import RecordColumns
from logstore.record.control import ControlType, decode_control_key
from logstore.record.records import Record
from logstore.storage.loading.views import TRANSIENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.analysis.view import PartitionView
    from logstore.cleaner.passes.fate import FateChunk
    from logstore.record.batch import RecordBatch
    from logstore.record.records import RecordRow
    from logstore.storage.log.log import Log

Records = Sequence["RecordRow"] | RecordColumns

_CONTROLS = {ControlType.ABORT: "abort", ControlType.COMMIT: "commit"}
_OTHER_CONTROL = "other"


class FateColumns(NamedTuple):
    """The fates of n records; see `inspect --fate`.

    Attributes
    ----------
    codes : (n,) uint8
        Indexes into `FATES`, or `NO_FATE` if the fate is unknown because of damage.
    superseded_by : (n,) int64
        Offset of the superseding record, or -1 if there is none.
    """

    codes: NDArray[np.uint8]
    superseded_by: NDArray[np.int64]

    def slice(self, start: int, stop: int) -> FateColumns:
        """Return rows [start, stop)."""
        return FateColumns(self.codes[start:stop], self.superseded_by[start:stop])


NO_FATE = 255


class Part(NamedTuple):
    """Records of one batch, in offset order.

    Attributes
    ----------
    topic, partition : str or None, int or None
        Topic and partition, or None if the directory and file names do not contain them.
    position : int
        Position of the batch in its file.
    records : sequence of rows, or RecordColumns
    fates : FateColumns or None
        None if not requested.
    decoded : list of (dict or None), or None
        For each record `key` and `value` as JSON values, and `error` if decoding failed; for
        Kafka's internal topics also `type` and `version`. None if not requested.
    """

    topic: str | None
    partition: int | None
    batch: RecordBatch
    position: int
    records: Records
    fates: FateColumns | None
    decoded: list[dict[str, Any] | None] | None = None

    @property
    def controls(self) -> list[str] | None:
        """`abort`, `commit` or `other` for each control record. None for data."""
        if not self.batch.header.is_control:
            return None
        return [_control(row[2]) for row in _rows(self.records)]

    def slice(self, start: int, stop: int) -> Part:
        """Return rows [start, stop)."""
        if start == 0 and stop == len(self.records):
            return self
        records = self.records
        return self._replace(
            records=records.slice(start, stop)
            if isinstance(records, RecordColumns)
            else records[start:stop],
            fates=None if self.fates is None else self.fates.slice(start, stop),
            decoded=None if self.decoded is None else self.decoded[start:stop],
        )


class Row(NamedTuple):
    """A record of a `Part`.

    Attributes
    ----------
    control : str or None
        `abort`, `commit` or `other` for a control record. None for data.
    fate, superseded_by : str or None, int or None
        See `inspect --fate`. None if not requested, or unknown because of damage.
    decoded : dict or None
    """

    topic: str | None
    partition: int | None
    timestamp_type: int
    record: Record
    batch_base_offset: int
    position: int
    control: str | None
    fate: str | None
    superseded_by: int | None
    decoded: dict[str, Any] | None


def rows_of(part: Part) -> Iterator[Row]:
    """Yield the records of a part as objects."""
    header = part.batch.header
    nothing = repeat(None)
    fates: Iterable[str | None] = nothing
    winners: Iterable[int | None] = nothing
    if part.fates is not None:
        fates = [None if code == NO_FATE else FATES[code] for code in part.fates.codes.tolist()]
        winners = [None if at < 0 else at for at in part.fates.superseded_by.tolist()]
    columns = (part.controls or nothing, fates, winners, part.decoded or nothing)
    for row, control, fate, winner, decoded in zip(_rows(part.records), *columns, strict=False):
        yield Row(
            part.topic,
            part.partition,
            header.timestamp_type,
            Record._make(row),
            header.base_offset,
            part.position,
            control,
            fate,
            winner,
            decoded,
        )


def from_offset(records: Records, offset: int) -> Records:
    """Return the records with offsets from `offset` on."""
    if isinstance(records, RecordColumns):
        return records.between(offset)
    return [row for row in records if row[0] >= offset]


def _rows(records: Records) -> Sequence[RecordRow]:
    return records.to_records() if isinstance(records, RecordColumns) else records


def _control(key: bytes | None) -> str:
    try:
        kind = decode_control_key(key).control_type
    except InvalidRecordError:
        return _OTHER_CONTROL
    return _CONTROLS.get(kind, _OTHER_CONTROL)


RESTARTS_MAX = 64
"""How often the fates of a partition are computed again from its start, after damage."""


class Fates:
    """The fates of the records in a partition, in offset order.

    Damaged batches are skipped, as by other readers: the log is reopened, and the fates are
    restarted.

    Parameters
    ----------
    view : PartitionView
    start : callable
        Returns the fates of a log in chunks, starting at its first record.

    Attributes
    ----------
    failure : LogStoreError or None
        Why the fates end before the log does. A cleaning pass would also fail.
    """

    def __init__(self, view: PartitionView, start: Callable[[Log], Iterable[FateChunk]]) -> None:
        self._view = view
        self._start = start
        self._chunks: Iterator[FateChunk] | None = None
        self._next: FateChunk | None = None
        self._restarts = 0
        self.failure: LogStoreError | None = None

    def of(self, records: Records) -> FateColumns:
        """Return the fates of records. Offsets must not decrease between calls."""
        if isinstance(records, RecordColumns):
            offsets = records.offsets
        else:
            offsets = np.array([row[0] for row in records], np.int64)
        found = FateColumns(
            np.full(len(offsets), NO_FATE, np.uint8), np.full(len(offsets), -1, np.int64)
        )
        done = 0
        error: LogStoreError | None = None
        while done < len(offsets) and self.failure is None:
            try:
                if self._chunks is None:
                    self._begin(error)
                done = self._fill(found, offsets, done)
            except LogStoreError as raised:
                error = raised
                self._chunks = None
                self._restarts += 1
                if self._restarts > RESTARTS_MAX:
                    self.failure = error
        return found

    def _begin(self, error: LogStoreError | None) -> None:
        """Start the fates. After damage, reopen the log first."""
        pending = [error] if isinstance(error, TRANSIENT) else []

        def visit(log: Log) -> tuple[Iterator[FateChunk], FateChunk | None]:
            if pending:
                raise pending.pop()
            chunks = iter(self._start(log))
            return chunks, next(chunks, None)

        try:
            self._chunks, self._next = self._view.evaluate(visit)
        except LogStoreError as failure:
            self.failure = failure
            raise

    def _fill(self, found: FateColumns, offsets: NDArray[np.int64], done: int) -> int:
        """Fill in the rows from `done` on that the next chunk covers. Return the rows done."""
        assert self._chunks is not None
        while (chunk := self._next) is not None and (
            not len(chunk.offsets) or chunk.offsets[-1] < offsets[done]
        ):
            self._next = next(self._chunks, None)
        if chunk is None:
            return len(offsets)
        stop = int(np.searchsorted(offsets, chunk.offsets[-1], "right"))
        places = np.searchsorted(chunk.offsets, offsets[done:stop])
        known = chunk.offsets[places] == offsets[done:stop]
        found.codes[done:stop][known] = chunk.fates[places[known]]
        found.superseded_by[done:stop][known] = chunk.superseded_by[places[known]]
        return stop
