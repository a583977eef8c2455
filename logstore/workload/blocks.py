"""Workload records as blocks of columns. A block only depends on the spec and its number.

A block contains 65,536 *events* (changes at the source, in the order in which they happen).
Producers collect events into batches, so records *arrive* in a different order. Blocks share no
state: any number of tasks can generate them in any order and produce the same bytes. Uses only
NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from logstore.workload import draws
from logstore.workload.draws import Bools, Bytes, Ints, Stream
from logstore.workload.spec import BLOCK_RECORDS, Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.workload.recorded import Recorded

NO_TRANSACTION = -1

NO_VERSION, VERSION, MALFORMED_VERSION = range(3)
"""Forms of the version header: absent, 8 bytes, or fewer bytes."""

MALFORMED_BYTES = 5

INT32_SPAN = 1 << 32


class Ragged(NamedTuple):
    """Byte strings of varying length, in Arrow's layout.

    Attributes
    ----------
    data : (total,) uint8
        All strings, concatenated.
    ends : (n + 1,) int64
        String i is `data[ends[i]:ends[i + 1]]`.
    """

    data: Bytes
    ends: Ints

    def __getitem__(self, row: int) -> bytes:  # type: ignore[override]
        return self.data[self.ends[row] : self.ends[row + 1]].tobytes()


class Markers(NamedTuple):
    """Transaction markers of a block, one per partition of each transaction.

    Attributes
    ----------
    after : (m,) int64
        Sequence of the transaction's last record, ascending. In its partition, the marker follows
        all records up to this sequence.
    partition, producer, transaction : (m,) int32, int32, int64
        Partition, producer and transaction of the marker.
    commit : (m,) bool
        False if the transaction was aborted.
    timestamp : (m,) int64
        Append time, in Unix milliseconds.
    """

    after: Ints
    partition: NDArray[np.int32]
    producer: NDArray[np.int32]
    transaction: Ints
    commit: Bools
    timestamp: Ints


class Population(Protocol):
    """Keys that replace the spec's keys. The `key` column of the block is then empty."""

    def numbers(self, block: int, events: Ints) -> Ints:
        """Return the key number of each event. A negative number means a null key."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return the partition of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Records in arrival order. Each column has n entries.

    Attributes
    ----------
    number : int
        Number of the block.
    sequence : int64
        Position among all records of the workload. Records of a partition are in this order.
    event : int64
        Position among all events at the source.
    partition : int32
        Partition, chosen by murmur2 of the key.
    key_number : int64
        Key number, in [0, keys.count) or as defined by the population.
    key : (n, width) uint8
        Key bytes. All keys of a workload have the same length.
    value : Ragged
        Values, empty for tombstones.
    tombstone : bool
        Whether the value is null.
    timestamp : int64
        CreateTime in Unix milliseconds: arrival at the producer minus the lag.
    appended : int64
        Time when the batch was sent, in Unix milliseconds. Never decreases.
    version : int64
        Version in the header, or 0 if there is none.
    version_form : uint8
        `NO_VERSION`, `VERSION` or `MALFORMED_VERSION`.
    producer : int32
        Producer number, in [0, producers.count).
    transaction : int64
        Transaction number, unique in the workload, or `NO_TRANSACTION`.
    aborted : bool
        Whether the record's transaction is aborted.
    batch : int64
        Batch number, unique in the workload. Records of a batch are adjacent and have the same
        partition, producer and transaction.
    markers : Markers
        Transaction markers. No transaction spans two blocks.
    """

    number: int
    sequence: Ints
    event: Ints
    partition: NDArray[np.int32]
    key_number: Ints
    key: Bytes
    value: Ragged
    tombstone: Bools
    timestamp: Ints
    appended: Ints
    version: Ints
    version_form: NDArray[np.uint8]
    producer: NDArray[np.int32]
    transaction: Ints
    aborted: Bools
    batch: Ints
    markers: Markers

    def __len__(self) -> int:
        return len(self.sequence)

    def version_values(self) -> Ragged:
        """Return the value of each record's version header. Empty for `NO_VERSION`.

        Notes
        -----
        A malformed value consists of the low bytes of the version, so that a reader that pads it is
        detected.
        """
        whole = np.ascontiguousarray(self.version.astype(">i8")).view(np.uint8).reshape(-1, 8)
        sizes = np.array([0, 8, MALFORMED_BYTES])[self.version_form]
        taken = np.arange(8) >= (8 - sizes)[:, None]
        return Ragged(whole[taken], _ends(sizes))


def build_block(
    spec: Spec,
    number: int,
    recorded: Recorded | None = None,
    population: Population | None = None,
) -> Block:
    """Generate a single block.

    Parameters
    ----------
    number : int
        Block number, in [0, spec.blocks).
    recorded : Recorded, optional
        Recorded arrivals that replace the spec's arrivals. The records of a batch then have the
        same arrival time.
    population : Population, optional
        Keys that replace the spec's keys.

    Raises
    ------
    IndexError
        The number is out of range.

    Notes
    -----
    Pure if the population is pure. For values of 100 bytes, takes about 0.1 s and three times the
    size of the block in memory.
    """
    if not 0 <= number < spec.blocks:
        raise IndexError(f"block {number} of {spec.blocks}")
    first = number * BLOCK_RECORDS
    count = min(BLOCK_RECORDS, spec.records - first)
    events = np.arange(first, first + count, dtype=np.int64)
    if recorded is None:
        followers = _followers(spec, number, count)
        numbers, tombstone = _draw_changes(spec, number, events, followers, population)
        arrival, lags = draws.arrival_ms(spec, number, events), _draw_lags(spec, number, count)
        arrivals_ms = None
    else:
        followers = np.zeros(0, dtype=np.int64)
        numbers, tombstone = _replay_changes(spec, number, events, recorded)
        arrivals_ms = recorded.arrivals(events)
        arrival, lags = spec.time.start_ms + arrivals_ms, recorded.lag_ms[recorded.rows(events)]
    if population is None:
        keys = draws.key_bytes(spec, numbers)
        partition = draws.partitions_of(keys, spec.partitions)
    else:
        keys = np.empty((count, 0), np.uint8)
        partition = population.partitions(numbers)
    version, form = _draw_versions(spec, number, events)
    sent = _send(spec, number, partition, followers, arrivals_ms)
    order = sent.order
    sizes = np.where(tombstone, 0, draws.value_sizes(spec, number, count))[order]
    ends = _ends(sizes)
    sequence = events  # the same numbers, but in arrival order
    transaction = sent.transaction[order]
    appended = arrival[sent.flush[order]]
    return Block(
        number=number,
        sequence=sequence,
        event=events[order],
        partition=partition[order],
        key_number=numbers[order],
        key=keys[order],
        value=Ragged(draws.content(spec, number, int(ends[-1])), ends),
        tombstone=tombstone[order],
        timestamp=(arrival - lags)[order],
        appended=appended,
        version=version[order],
        version_form=form[order],
        producer=sent.producer[order],
        transaction=np.where(transaction < 0, NO_TRANSACTION, first + transaction),
        aborted=sent.aborted[order],
        batch=first + sent.batch[order],
        markers=_markers(sent, sequence, partition[order], appended, first),
    )


def repartition_block(block: Block, after_ms: int, partitions: int) -> Block:
    """Return the records of a block that are sent after a given time, repartitioned.

    Partitions may be added while a producer fills a batch. The batch's records are then split into
    one batch per new partition, in record order. Transaction markers are written to every partition
    that the transaction used before or after the change.

    Parameters
    ----------
    after_ms : int
        Records appended at or before this time are omitted.
    partitions : int
        New number of partitions of the topic.
    """
    is_left = block.appended > after_ms
    rows = np.flatnonzero(is_left)
    partition = draws.partitions_of(block.key[rows], partitions)
    order = np.lexsort((rows, partition, block.batch[rows]))
    sequence = block.sequence[rows]
    rows, partition = rows[order], partition[order]
    begins = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = np.diff(block.batch[rows]) != 0
    begins[1:] |= np.diff(partition) != 0
    starts, sizes = block.value.ends[:-1][rows], np.diff(block.value.ends)[rows]
    ends = _ends(sizes)
    data = block.value.data[np.arange(ends[-1]) + np.repeat(starts - ends[:-1], sizes)]
    transaction = block.transaction[rows]
    sent = np.flatnonzero(~is_left & np.isin(block.transaction, transaction[transaction >= 0]))
    return Block(
        number=block.number,
        sequence=sequence,
        event=block.event[rows],
        partition=partition,
        key_number=block.key_number[rows],
        key=block.key[rows],
        value=Ragged(data, ends),
        tombstone=block.tombstone[rows],
        timestamp=block.timestamp[rows],
        appended=block.appended[rows],
        version=block.version[rows],
        version_form=block.version_form[rows],
        producer=block.producer[rows],
        transaction=transaction,
        aborted=block.aborted[rows],
        batch=block.number * BLOCK_RECORDS + np.cumsum(begins) - 1,
        markers=_remaining_markers(block, rows, sequence, partition, sent),
    )


def _remaining_markers(
    block: Block, rows: Ints, sequence: Ints, partition: NDArray[np.int32], sent: Ints
) -> Markers:
    """Return the markers of unfinished transactions, in the order in which they are written."""
    inside = np.flatnonzero(block.transaction[rows] >= 0)
    names, number = np.unique(block.transaction[rows][inside], return_inverse=True)
    last = np.full(len(names), -1, dtype=np.int64)
    np.maximum.at(last, number, inside)
    before = last[np.searchsorted(names, block.transaction[sent])]
    ends = np.concatenate(
        (last[number] * INT32_SPAN + partition[inside], before * INT32_SPAN + block.partition[sent])
    )
    row, where = np.divmod(np.unique(ends), INT32_SPAN)
    return Markers(
        after=sequence[row],
        partition=where.astype(np.int32),
        producer=block.producer[rows][row],
        transaction=block.transaction[rows][row],
        commit=~block.aborted[rows][row],
        timestamp=block.appended[rows][row],
    )


def _draw_changes(
    spec: Spec, block: int, events: Ints, followers: Ints, population: Population | None
) -> tuple[Ints, Bools]:
    """Draw the key number of each event, and whether the event deletes the key."""
    if population is None:
        numbers = draws.key_numbers(spec, block, events)
    else:
        numbers = population.numbers(block, events)
    if spec.deletes.with_event:
        numbers[followers] = numbers[followers - 1]
        deletes = np.zeros(len(events), dtype=np.bool_)
        deletes[followers] = True
    else:
        deletes = _draw_deletes(spec, block, len(events))
    if spec.deletes.on_expiry:
        start = draws.hot_set_start(spec, events)
        leaves = start > draws.hot_set_start(spec, events - 1)
        leaves &= events > 0
        numbers = np.where(leaves, (start - 1) % spec.keys.count, numbers)
        deletes = deletes | leaves
    return numbers, deletes


def _replay_changes(spec: Spec, block: int, events: Ints, recorded: Recorded) -> tuple[Ints, Bools]:
    """Take key numbers and deletes from recorded columns. Missing columns are drawn."""
    rows = recorded.rows(events)
    key, deletes = recorded.key, recorded.tombstone
    return (
        draws.key_numbers(spec, block, events) if key is None else key[rows],
        _draw_deletes(spec, block, len(events)) if deletes is None else deletes[rows],
    )


def _draw_deletes(spec: Spec, block: int, count: int) -> Bools:
    return Stream(spec.seed, block, draws.DELETES).chance(spec.deletes.share, count)


def _followers(spec: Spec, block: int, count: int) -> Ints:
    """Return the events that are tombstones following a delete event.

    In each run of drawn deletes, every second event is the tombstone of the event before it. Both
    are in the same block.
    """
    if not spec.deletes.with_event:
        return np.zeros(0, dtype=np.int64)
    drawn = _draw_deletes(spec, block, count)
    index = np.arange(count)
    begins = drawn & ~np.append(False, drawn[:-1])
    rank = index - np.maximum.accumulate(np.where(begins, index, 0))
    return np.flatnonzero(drawn[:-1] & (rank[:-1] % 2 == 0)) + 1


def _draw_lags(spec: Spec, block: int, count: int) -> Ints:
    stream = Stream(spec.seed, block, draws.LATENESS)
    late = stream.chance(spec.time.late_share, count)
    return np.where(late, 1 + stream.below(spec.time.late_ms, count), 0)


def _draw_versions(spec: Spec, block: int, events: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """Draw each event's version (at least `first` unless late) and the form of its header."""
    versions, count = spec.versions, len(events)
    if not versions.header:
        return np.zeros(count, np.int64), np.full(count, NO_VERSION, np.uint8)
    stream = Stream(spec.seed, block, draws.VERSIONS)
    late = stream.chance(versions.late_share, count)
    version = (
        events + versions.first - np.where(late, 1 + stream.below(versions.late_records, count), 0)
    )
    drawn = Stream(spec.seed, block, draws.VERSION_FORMS).uniform(count)
    form = np.full(count, VERSION, np.uint8)
    form[drawn < versions.missing_share + versions.malformed_share] = MALFORMED_VERSION
    form[drawn < versions.missing_share] = NO_VERSION
    version[form == NO_VERSION] = 0
    return version, form


class _Sending(NamedTuple):
    """How the events of a block are sent: columns by event, and the arrival order."""

    producer: NDArray[np.int32]
    transaction: Ints  # number within the block, or -1 outside a transaction
    aborted: Bools
    batch: Ints  # number within the block, in arrival order
    flush: Ints  # event that completes the batch
    order: Ints  # events in arrival order


def _send(
    spec: Spec,
    block: int,
    partition: NDArray[np.int32],
    followers: Ints,
    arrivals_ms: Ints | None,
) -> _Sending:
    count = len(partition)
    producers = spec.producers
    producer = Stream(spec.seed, block, draws.PRODUCERS).below(producers.count, count)
    producer[followers] = producer[followers - 1]  # ensures that no tombstone overtakes its event
    transaction = _transactions(spec, producer)
    # A parcel consists of the events of one producer, partition and transaction, in event order.
    parcel = (producer * (transaction.max() + 2) + transaction + 1) * spec.partitions + partition
    by_parcel = np.argsort(parcel, kind="stable")
    rank = _ranks(parcel[by_parcel])
    low, high = spec.batches.min_records, spec.batches.max_records
    sizes = low + Stream(spec.seed, block, draws.BATCHES).below(high - low + 1, -(-count // low))
    cut = np.searchsorted(np.cumsum(sizes), rank, side="right")
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = (parcel[by_parcel][1:] != parcel[by_parcel][:-1]) | (cut[1:] != cut[:-1])
    if arrivals_ms is not None:
        begins[1:] |= np.diff(arrivals_ms[by_parcel]) != 0
    ends = np.append(np.flatnonzero(begins)[1:], count) - 1
    flush = np.empty(count, dtype=np.int64)
    flush[by_parcel] = by_parcel[ends][np.cumsum(begins) - 1]
    order = np.lexsort((np.arange(count), flush))
    batch = np.empty(count, dtype=np.int64)
    batch[order] = np.cumsum(np.append(True, flush[order][1:] != flush[order][:-1])) - 1
    aborts = Stream(spec.seed, block, draws.TRANSACTIONS).chance(producers.abort_share, count)
    aborted = (transaction >= 0) & aborts[transaction]
    return _Sending(producer.astype(np.int32), transaction, aborted, batch, flush, order)


def _transactions(spec: Spec, producer: Ints) -> Ints:
    """Return each event's transaction number within the block, or -1 if it has none.

    A transaction is a run of consecutive events from one producer.
    """
    producers = spec.producers
    transaction = np.full(len(producer), -1, dtype=np.int64)
    by_producer = np.argsort(producer, kind="stable")
    inside = by_producer[producer[by_producer] < producers.transactional]
    ranks = _ranks(producer[inside]) // producers.transaction_records
    if len(inside):
        pairs = np.stack((producer[inside], ranks))
        begins = np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0))
        transaction[inside] = np.cumsum(begins) - 1
    return transaction


def _markers(
    sent: _Sending,
    sequence: Ints,
    partition: NDArray[np.int32],
    appended: Ints,
    first: int,
) -> Markers:
    """Return the transaction markers, in the order in which they are written."""
    transaction = sent.transaction[sent.order]
    rows = np.flatnonzero(transaction >= 0)
    last = np.full(len(transaction) + 1, -1, dtype=np.int64)
    np.maximum.at(last, transaction[rows], rows)
    ends = last[transaction[rows]] * INT32_SPAN + partition[rows]
    row, where = np.divmod(np.unique(ends), INT32_SPAN)
    return Markers(
        after=sequence[row],
        partition=where.astype(np.int32),
        producer=sent.producer[sent.order][row],
        transaction=first + transaction[row],
        commit=~sent.aborted[sent.order][row],
        timestamp=appended[row],
    )


def _ranks(sorted_groups: Ints) -> Ints:
    """Return the position of each entry within its group, starting at 0."""
    count = len(sorted_groups)
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = sorted_groups[1:] != sorted_groups[:-1]
    starts = np.flatnonzero(begins)
    ranks: Ints = np.arange(count) - starts[np.cumsum(begins) - 1]
    return ranks


def _ends(sizes: Ints) -> Ints:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)
