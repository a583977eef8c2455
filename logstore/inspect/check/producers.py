"""The producers of a partition, derived from its batches.

Independent of `logstore.storage.producers.state`, whose files it verifies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logstore.inspect.check.findings import WARNING, CheckFinding, finding
from logstore.record.control import EndTxnMarker
from logstore.record.header import BatchHeader, increment_sequence
from logstore.storage.producers.snapshot import SnapshotEntry
from logstore.types import NO_SEQUENCE, AbortedTxn

_HALF = 1 << 30


@dataclass(slots=True)
class _Producer:
    """State of a producer. Unknown fields are None."""

    epoch: int
    last_sequence: int | None = None
    last_offset: int | None = None
    offset_delta: int = 0
    txn_first_offset: int | None = None
    has_lone_marker: bool = False  # a later marker follows whose transaction's data was removed


class ProducerHistory:
    """The producers of a partition up to the last batch read.

    Attributes
    ----------
    is_complete : bool
        Whether the state before the first batch is known.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}
        self.is_complete = True

    def start_from(self, entries: Iterable[SnapshotEntry]) -> None:
        """Start from the entries of a snapshot."""
        for entry in entries:
            has_batch = entry.last_offset >= 0
            open_at = entry.current_txn_first_offset
            self._producers[entry.producer_id] = _Producer(
                entry.producer_epoch,
                entry.last_sequence if has_batch else None,
                entry.last_offset if has_batch else None,
                entry.offset_delta if has_batch else 0,
                open_at if open_at >= 0 else None,
            )
            if open_at >= 0:
                self._open[entry.producer_id] = open_at

    def data(
        self, header: BatchHeader, path: str, position: int, *, gaps_explained: bool
    ) -> Iterator[CheckFinding]:
        """Apply a producer's data batch and yield findings."""
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            if known is not None:
                yield from _fallen_epoch(header, known, path, position)
            txn = None if known is None else known.txn_first_offset
            known = _Producer(header.producer_epoch, txn_first_offset=txn)
            self._producers[header.producer_id] = known
        if self.is_complete and known.txn_first_offset is not None and not header.is_transactional:
            yield finding(
                "txn_state",
                path,
                position,
                offset=header.base_offset,
                expected=f"the transaction that began at {known.txn_first_offset}",
                found="none",
            )
        last = known.last_sequence
        if last is not None and last >= 0 and header.base_sequence > 0:
            expected = increment_sequence(last, 1)
            jump = (header.base_sequence - expected) % (2 * _HALF)
            if jump >= _HALF or (jump and not gaps_explained):
                yield finding(
                    "sequence_order",
                    path,
                    position,
                    offset=header.base_offset,
                    expected=expected,
                    found=header.base_sequence,
                    severity=WARNING,
                )
        known.has_lone_marker = False
        known.last_sequence = header.last_sequence
        known.last_offset = header.last_offset
        known.offset_delta = header.last_offset_delta
        if header.is_transactional and known.txn_first_offset is None:
            known.txn_first_offset = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def marker(
        self, header: BatchHeader, marker: EndTxnMarker, path: str, position: int
    ) -> Iterator[CheckFinding | AbortedTxn]:
        """Apply a marker. Yield findings, and the index entry of an aborted transaction."""
        known = self._producers.get(header.producer_id)
        if known is not None:
            yield from _fallen_epoch(header, known, path, position)
        if known is None or known.epoch != header.producer_epoch:
            txn = None if known is None else known.txn_first_offset
            known = _Producer(header.producer_epoch, txn_first_offset=txn)
            self._producers[header.producer_id] = known
        first_offset = known.txn_first_offset
        known.has_lone_marker |= first_offset is None
        known.txn_first_offset = None
        self._open.pop(header.producer_id, None)
        if marker.is_abort and first_offset is not None:
            last_offset = header.last_offset
            stable = min(self._open.values(), default=last_offset + 1)
            yield AbortedTxn(header.producer_id, first_offset, last_offset, stable)

    def contradictions(
        self, entry: SnapshotEntry, missing_end: int, log_start_offset: int = 0
    ) -> Iterator[tuple[str, object, object]]:
        """Yield (field, expected, found) for each wrong field of a snapshot at this offset.

        Parameters
        ----------
        entry : SnapshotEntry
        missing_end : int
            End of the offsets in which batches are missing, so that this state may be incomplete.
        log_start_offset : int
            The log start. A log that rebuilds its producers after a truncation reads no batches
            below it.
        """
        known = self._producers.get(entry.producer_id)
        if known is None:
            return  # its batches were removed
        if known.last_offset is not None and known.last_offset > entry.last_offset:
            if known.last_offset < log_start_offset:
                return
            # A marker with a newer epoch has cleared the batches, and the cleaner has removed the
            # marker.
            is_bumped = entry.last_offset < 0 and entry.producer_epoch > known.epoch
            if is_bumped and known.last_offset + 1 < missing_end:
                return
            # The producer expired, then returned with only a marker, whose transaction's data the
            # cleaner removed.
            if entry.last_offset < 0 and known.has_lone_marker:
                return
            yield "lastOffset", known.last_offset, entry.last_offset
            return
        if known.last_offset is not None and known.last_offset == entry.last_offset:
            for name, expected, found in (
                ("producerEpoch", known.epoch, entry.producer_epoch),
                ("lastSequence", known.last_sequence, entry.last_sequence),
                ("offsetDelta", known.offset_delta, entry.offset_delta),
            ):
                if expected != found:
                    yield name, expected, found
        open_at = known.txn_first_offset
        expected = NO_SEQUENCE if open_at is None else open_at
        found = entry.current_txn_first_offset
        is_certain = (
            self.is_complete
            and min(each for each in (expected, found, missing_end) if each >= 0) >= missing_end
        )
        if expected != found and is_certain:
            yield "currentTxnFirstOffset", expected, found


def _fallen_epoch(
    header: BatchHeader, known: _Producer, path: str, position: int
) -> Iterator[CheckFinding]:
    if header.producer_epoch < known.epoch:
        yield finding(
            "producer_epoch",
            path,
            position,
            offset=header.base_offset,
            expected=known.epoch,
            found=header.producer_epoch,
            severity=WARNING,
        )
