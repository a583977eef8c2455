"""A workload in columns: block after block, each a pure function of the spec and its number.

A block holds 65,536 *events* (changes at the source, in the order in which they happen). Producers
gather events into batches, so records *arrive* in another order; nothing crosses a block's border
but what both sides compute alike. Hence any number of tasks can make any blocks, and the bytes
are the same. NumPy only.
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
"""Forms of the version header: absent, 8 bytes, fewer bytes."""

MALFORMED_BYTES = 5

INT32_SPAN = 1 << 32


class Ragged(NamedTuple):
    """Byte strings of different lengths, as Arrow lays them out.

    Attributes
    ----------
    data : (total,) uint8
        All strings, one after another.
    ends : (n + 1,) int64
        String i is `data[ends[i]:ends[i + 1]]`.
    """

    data: Bytes
    ends: Ints

    def __getitem__(self, row: int) -> bytes:  # type: ignore[override]
        return self.data[self.ends[row] : self.ends[row + 1]].tobytes()


class Markers(NamedTuple):
    """Ends of a block's transactions: one marker in each partition that a transaction wrote to.

    Attributes
    ----------
    after : (m,) int64
        Sequence of the transaction's last record; in its partition the marker comes after every
        record up to this sequence. Rising.
    partition, producer, transaction : (m,) int32, int32, int64
        Where, by whom and which.
    commit : (m,) bool
        False: aborted.
    timestamp : (m,) int64
        When it was written, ms since the epoch.
    """

    after: Ints
    partition: NDArray[np.int32]
    producer: NDArray[np.int32]
    transaction: Ints
    commit: Bools
    timestamp: Ints


class Population(Protocol):
    """Keys that stand in the place of those of a spec; its block's `key` has no bytes then."""

    def numbers(self, block: int, events: Ints) -> Ints:
        """Return which key each event of a block is about; below 0 is none."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return the partition of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Records in the order in which they arrive; each column has n entries.

    Attributes
    ----------
    number : int
        Of the block.
    sequence : int64
        Place among all records of the workload; a partition's records stand in its order.
    event : int64
        Place of the change among all events at the source.
    partition : int32
        By murmur2 of the key.
    key_number : int64
        Which key, in [0, keys.count), or as a population has it.
    key : (n, width) uint8
        Keys of a workload are equally long.
    value : Ragged
        Empty where `tombstone`.
    tombstone : bool
        The value is null.
    timestamp : int64
        CreateTime in ms since the epoch: the event's arrival at the producer, minus its lag.
    appended : int64
        When the record's batch was sent, ms since the epoch; never falls.
    version : int64
        Of the header; 0 where there is none.
    version_form : uint8
        `NO_VERSION`, `VERSION` or `MALFORMED_VERSION`.
    producer : int32
        In [0, producers.count).
    transaction : int64
        Unique in the workload; `NO_TRANSACTION` outside of one.
    aborted : bool
        The record's transaction ends with an abort.
    batch : int64
        Unique in the workload; a batch's records are neighbours and share partition, producer
        and transaction.
    markers : Markers
        Ends of the transactions; none crosses the block's border.
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
        """Return the header's value of each record; empty where `NO_VERSION`.

        Notes
        -----
        A malformed one is the version's low bytes, so that a reader that pads it is found out.
        """
        whole = np.ascontiguousarray(self.version.astype(">i8")).view(np.uint8).reshape(-1, 8)
        sizes = np.array([0, 8, MALFORMED_BYTES])[self.version_form]
        taken = np.arange(8) >= (8 - sizes)[:, None]
        return Ragged(whole[taken], _ends(sizes))


def block_of(
    spec: Spec,
    number: int,
    recorded: Recorded | None = None,
    population: Population | None = None,
) -> Block:
    """Make one block.

    Parameters
    ----------
    number : int
        In [0, spec.blocks).
    recorded : Recorded, optional
        What says when events arrive, if not the spec; records of one moment share batches, and
        none waits for the next.
    population : Population, optional
        Other keys than the spec's.

    Raises
    ------
    IndexError
        The workload has no such block.

    Notes
    -----
    Pure, as far as the population is; about 0.1 s and three times the block's bytes at 100 bytes a
    value.
    """
    if not 0 <= number < spec.blocks:
        raise IndexError(f"block {number} of {spec.blocks}")
    first = number * BLOCK_RECORDS
    count = min(BLOCK_RECORDS, spec.records - first)
    events = np.arange(first, first + count, dtype=np.int64)
    if recorded is None:
        followers = _followers(spec, number, count)
        numbers, tombstone = _changes(spec, number, events, followers, population)
        arrival, lags = draws.arrival_ms(spec, number, events), _lags(spec, number, count)
        moments = None
    else:
        followers = np.zeros(0, dtype=np.int64)
        numbers, tombstone = _recorded_changes(spec, number, events, recorded)
        moments = recorded.arrivals(events)
        arrival, lags = spec.time.start_ms + moments, recorded.lag_ms[recorded.rows(events)]
    if population is None:
        keys = draws.key_bytes(spec, numbers)
        partition = draws.partitions_of(keys, spec.partitions)
    else:
        keys = np.empty((count, 0), np.uint8)
        partition = population.partitions(numbers)
    version, form = _versions(spec, number, events)
    sent = _sent(spec, number, partition, followers, moments)
    order = sent.order
    sizes = np.where(tombstone, 0, draws.value_sizes(spec, number, count))[order]
    ends = _ends(sizes)
    sequence = events  # the same numbers, now counting arrivals
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


def rest_of(block: Block, after_ms: int, partitions: int) -> Block:
    """Return what of a block is sent after a moment, to another number of partitions.

    A producer that is filling a batch when its topic gets partitions sends each key to where it
    belongs now: as several batches, in the order of the records. The ends of transactions go
    wherever these wrote, before or after.

    Parameters
    ----------
    after_ms : int
        Records that were appended till then, inclusive, are left out.
    partitions : int
        Of the topic from now on.
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
        markers=_markers_of_rest(block, rows, sequence, partition, sent),
    )


def _markers_of_rest(
    block: Block, rows: Ints, sequence: Ints, partition: NDArray[np.int32], sent: Ints
) -> Markers:
    """Return the ends of the transactions that are not through, in the order of writing."""
    inside = np.flatnonzero(block.transaction[rows] >= 0)
    names, number = np.unique(block.transaction[rows][inside], return_inverse=True)
    last = np.full(len(names), -1, dtype=np.int64)
    np.maximum.at(last, number, inside)
    before = last[np.searchsorted(names, block.transaction[sent])]
    found = np.concatenate(
        (last[number] * INT32_SPAN + partition[inside], before * INT32_SPAN + block.partition[sent])
    )
    row, where = np.divmod(np.unique(found), INT32_SPAN)
    return Markers(
        after=sequence[row],
        partition=where.astype(np.int32),
        producer=block.producer[rows][row],
        transaction=block.transaction[rows][row],
        commit=~block.aborted[rows][row],
        timestamp=block.appended[rows][row],
    )


def _changes(
    spec: Spec, block: int, events: Ints, followers: Ints, population: Population | None
) -> tuple[Ints, Bools]:
    """Return each event's key number, and whether it deletes the key."""
    if population is None:
        numbers = draws.key_numbers(spec, block, events)
    else:
        numbers = population.numbers(block, events)
    if spec.deletes.with_event:
        numbers[followers] = numbers[followers - 1]
        deletes = np.zeros(len(events), dtype=np.bool_)
        deletes[followers] = True
    else:
        deletes = _deletes_drawn(spec, block, len(events))
    if spec.deletes.on_expiry:
        start = draws.hot_set_start(spec, events)
        leaves = start > draws.hot_set_start(spec, events - 1)
        leaves &= events > 0
        numbers = np.where(leaves, (start - 1) % spec.keys.count, numbers)
        deletes = deletes | leaves
    return numbers, deletes


def _recorded_changes(
    spec: Spec, block: int, events: Ints, recorded: Recorded
) -> tuple[Ints, Bools]:
    """Return as `_changes` does; what was not recorded is drawn."""
    rows = recorded.rows(events)
    key, deletes = recorded.key, recorded.tombstone
    return (
        draws.key_numbers(spec, block, events) if key is None else key[rows],
        _deletes_drawn(spec, block, len(events)) if deletes is None else deletes[rows],
    )


def _deletes_drawn(spec: Spec, block: int, count: int) -> Bools:
    return Stream(spec.seed, block, draws.DELETES).chance(spec.deletes.share, count)


def _followers(spec: Spec, block: int, count: int) -> Ints:
    """Return the events that are tombstones of the delete before them.

    They are chosen by the deletes drawn: every other one of a run of these is an event with its
    tombstone behind it, and none that its block cannot hold with it.
    """
    if not spec.deletes.with_event:
        return np.zeros(0, dtype=np.int64)
    drawn = _deletes_drawn(spec, block, count)
    place = np.arange(count)
    begins = drawn & ~np.append(False, drawn[:-1])
    rank = place - np.maximum.accumulate(np.where(begins, place, 0))
    return np.flatnonzero(drawn[:-1] & (rank[:-1] % 2 == 0)) + 1


def _lags(spec: Spec, block: int, count: int) -> Ints:
    stream = Stream(spec.seed, block, draws.LATENESS)
    late = stream.chance(spec.time.late_share, count)
    return np.where(late, 1 + stream.below(spec.time.late_ms, count), 0)


def _versions(spec: Spec, block: int, events: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """Return each event's version, `first` or more unless it is late, and the header's form."""
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


class _Sent(NamedTuple):
    """Sending of a block's events, by event: the batch, its flush, and the order of arrival."""

    producer: NDArray[np.int32]
    transaction: Ints  # number in the block, -1 outside
    aborted: Bools
    batch: Ints  # number in the block, in order of arrival
    flush: Ints  # the event upon which the batch is sent
    order: Ints  # events in order of arrival


def _sent(
    spec: Spec,
    block: int,
    partition: NDArray[np.int32],
    followers: Ints,
    moments: Ints | None,
) -> _Sent:
    count = len(partition)
    producers = spec.producers
    producer = Stream(spec.seed, block, draws.PRODUCERS).below(producers.count, count)
    producer[followers] = producer[followers - 1]  # or a tombstone might overtake its event
    transaction = _transactions(spec, producer)
    # Everything sent by one producer to one partition in one transaction, in order of events.
    parcel = (producer * (transaction.max() + 2) + transaction + 1) * spec.partitions + partition
    by_parcel = np.argsort(parcel, kind="stable")
    rank = _ranks(parcel[by_parcel])
    low, high = spec.batches.min_records, spec.batches.max_records
    sizes = low + Stream(spec.seed, block, draws.BATCHES).below(high - low + 1, -(-count // low))
    cut = np.searchsorted(np.cumsum(sizes), rank, side="right")
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = (parcel[by_parcel][1:] != parcel[by_parcel][:-1]) | (cut[1:] != cut[:-1])
    if moments is not None:
        begins[1:] |= np.diff(moments[by_parcel]) != 0
    ends = np.append(np.flatnonzero(begins)[1:], count) - 1
    flush = np.empty(count, dtype=np.int64)
    flush[by_parcel] = by_parcel[ends][np.cumsum(begins) - 1]
    order = np.lexsort((np.arange(count), flush))
    batch = np.empty(count, dtype=np.int64)
    batch[order] = np.cumsum(np.append(True, flush[order][1:] != flush[order][:-1])) - 1
    aborts = Stream(spec.seed, block, draws.TRANSACTIONS).chance(producers.abort_share, count)
    aborted = (transaction >= 0) & aborts[transaction]
    return _Sent(producer.astype(np.int32), transaction, aborted, batch, flush, order)


def _transactions(spec: Spec, producer: Ints) -> Ints:
    """Return each event's transaction in the block: consecutive events of one producer, or -1."""
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
    sent: _Sent,
    sequence: Ints,
    partition: NDArray[np.int32],
    appended: Ints,
    first: int,
) -> Markers:
    """Return the ends of the transactions, in the order in which they are written."""
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
    """Return each entry's place in its group: 0, 1, … wherever a new group begins."""
    count = len(sorted_groups)
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = sorted_groups[1:] != sorted_groups[:-1]
    starts = np.flatnonzero(begins)
    ranks: Ints = np.arange(count) - starts[np.cumsum(begins) - 1]
    return ranks


def _ends(sizes: Ints) -> Ints:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)
