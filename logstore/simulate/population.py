"""The keys of a topic, recorded and new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from logstore.record.columns import BytesColumn
from logstore.simulate.recording import hashes_of, pieces_of
from logstore.simulate.scenario import KnownKeys
from logstore.workload import draws
from logstore.workload.draws import Stream, key_bytes, key_numbers, parse_key_numbers, partitions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.simulate.recording import TopicRecording
    from logstore.workload.blocks import Block
    from logstore.workload.spec import Spec

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RECENT = 13
"""Random stream to select a partition or an earlier record."""

_KEYS_AT_ONCE = 1 << 20
_DIGITS = 12
_FILL = b"~"
"""Padding of new keys up to the size of a recorded key."""


class Keys(Protocol):
    """Numbered keys of a topic. Negative numbers are null keys."""

    @property
    def count(self) -> int:
        """Number of keys so far."""

    def spread(self, partitions: int) -> None:
        """Set the number of partitions over which keys are spread from now on."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return the partitions of keys."""

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys in the log of a partition."""

    def column(self, block: Block) -> BytesColumn | None:
        """Return the keys of a block, or None if the block contains them."""


class SpecKeys:
    """The keys of a workload spec."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._partitions = spec.partitions
        self.count = spec.keys.count

    def spread(self, partitions: int) -> None:
        """Set the number of partitions; see `Keys`."""
        self._partitions = partitions

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return the partitions of keys; see `Keys`."""
        result = np.empty(len(numbers), np.int32)
        for start in range(0, len(numbers), _KEYS_AT_ONCE):
            some = slice(start, start + _KEYS_AT_ONCE)
            keys = key_bytes(self._spec, numbers[some])
            result[some] = partitions_of(keys, self._partitions)
        return result

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys in the log of a partition; see `Keys`."""
        width = len(self._spec.keys.prefix.encode()) + self._spec.keys.digits
        return parse_key_numbers(self._spec, keys.data[keys.starts[:, None] + np.arange(width)])

    def column(self, block: Block) -> BytesColumn | None:
        """Return None, because the block contains its keys; see `Keys`."""
        return None


class _Pool:
    """Keys of a partition, drawn with a weight of their number of writes minus a discount."""

    def __init__(self, written: Ints, discount: float = 0.0) -> None:
        self._keys, counts = np.unique(written, return_counts=True)
        self._cumulative = np.cumsum(counts - discount)

    def draw(self, numbers: Ints, rows: NDArray[np.bool_], uniform: Floats) -> None:
        """Set the numbers of some rows to drawn keys, unless the pool is empty.

        `uniform` contains a random number in [0, 1) for each row.
        """
        if len(self._keys):
            weights = uniform[rows] * self._cumulative[-1]
            at = np.searchsorted(self._cumulative, weights, side="right")
            numbers[rows] = self._keys[np.minimum(at, len(self._keys) - 1)]


class KnownPopulation:
    """The keys of a recorded topic, numbered by rank, followed by new keys.

    Parameters
    ----------
    words : KnownKeys or None
        Key distribution. If None, the spec's distribution is used over the ranks.
    shares : mapping of int to float
        Fraction of records by partition. Empty for equal fractions.
    spec : Spec, optional
        Workload. Without a spec, no keys are drawn.
    unknown : int64, optional
        Keys of the table that count as not yet written.

    Notes
    -----
    Blocks must be requested in order, because an update may repeat the key of an earlier record.
    """

    def __init__(
        self,
        recording: TopicRecording,
        words: KnownKeys | None,
        shares: Mapping[int, float],
        spec: Spec | None = None,
        unknown: Ints | None = None,
    ) -> None:
        self._table = table = recording.keys
        self._words = words
        self._spec = spec
        self._prefix = (KnownKeys() if words is None else words).prefix.encode()
        while table.has_prefix(self._prefix):  # new keys must differ from all recorded ones
            self._prefix = b"x" + self._prefix
        self._partitions = np.array(recording.partitions, np.int64)
        weights = np.array([shares.get(number, 0.0) for number in recording.partitions])
        if not weights.sum():
            weights = np.ones(len(self._partitions))
        self._cumulative = np.cumsum(weights) / weights.sum()
        key = recording.arrivals.key
        discount = 0.0 if words is None else words.discount
        self._written = {
            number: _Pool(
                key[(recording.arrivals.partition == number) & (key >= 0) & (key < table.held)],
                discount,
            )
            for number in recording.partitions
        }
        is_written = np.zeros(table.count, np.bool_)
        is_written[key[key >= 0]] = True
        if unknown is not None:
            is_written[unknown] = True
        quiet = np.flatnonzero(~is_written[: table.held])
        self._quiet = {
            number: _Pool(quiet[table.partition[quiet] == number])
            for number in recording.partitions
        }
        self._earlier: Ints = np.zeros(0, np.int64)
        if words is not None and words.recent:
            keyed = key[(key >= 0) & (key < table.held)]
            self._earlier = keyed[-words.recent :]
        self._beyond = table.count - table.held
        self.count = table.count
        if words is not None:
            self.count += words.unseen
        elif spec is not None:
            self.count += max(0, spec.keys.count - table.held)

    # -- drawing keys ----------------------------------------------------------------------

    def numbers(self, block: int, events: Ints) -> Ints:
        """Return the key number of each event; see `workload.blocks.Population`."""
        assert self._spec is not None
        words, seed, count = self._words, self._spec.seed, len(events)
        if words is None:
            ranks = key_numbers(self._spec, block, events)
            return np.where(ranks < self._table.held, ranks, ranks + self._beyond)
        kind = Stream(seed, block, draws.KEYS).uniform(count)
        uniform = Stream(seed, block, draws.HOT).uniform(count)
        selector = Stream(seed, block, RECENT).uniform(count)
        index = np.searchsorted(self._cumulative, selector, side="right")
        partition_of = self._partitions[index]
        numbers = np.full(count, -1, np.int64)
        null = kind < words.null_share
        numbers[null] = -1 - partition_of[null]
        new = ~null & (kind < words.null_share + words.new_share)
        quiet = kind < words.null_share + words.new_share + words.quiet_share
        quiet &= ~null & ~new
        update = ~null & ~new & ~quiet
        for partition in self._partitions.tolist():
            here = partition_of == partition
            self._quiet[partition].draw(numbers, here & quiet, uniform)
            if not words.recent:
                self._written[partition].draw(numbers, here & update, uniform)
        lacking = (numbers == -1) & ~null & ~new  # the partition has no such key
        if words.recent:
            lacking &= ~update
            if not len(self._earlier):
                first = np.flatnonzero(update)[:1]
                new[first], update[first] = True, False
        new |= lacking
        rows = np.flatnonzero(new)
        if words.unseen:
            numbers[rows] = self._table.count + (uniform[rows] * words.unseen).astype(np.int64)
        else:
            numbers[rows] = self.count + np.arange(len(rows))
            self.count += len(rows)
        if words.recent:
            self._repeat(numbers, update, uniform, words.recent)
        return numbers

    def _repeat(
        self, numbers: Ints, update: NDArray[np.bool_], uniform: Floats, recent: int
    ) -> None:
        """Give each update the key of a random record among the `recent` preceding ones."""
        keyed = np.flatnonzero((numbers >= 0) | update)
        earlier = len(self._earlier)
        index = earlier + np.arange(len(keyed))
        choices = np.minimum(recent, index)
        source = index - 1 - (uniform[keyed] * choices).astype(np.int64)
        is_update = update[keyed]
        # An update may repeat another update, so double the jumps until none ends at an update.
        source = np.where(is_update, source, index)
        pointers = np.concatenate((np.arange(earlier), source))
        while True:
            further = pointers[pointers]
            if (further == pointers).all():
                break
            pointers = further
        keys = np.concatenate((self._earlier, numbers[keyed]))[pointers]
        numbers[keyed] = keys[earlier:]
        self._earlier = keys[-recent:]

    # -- partitions and bytes of keys ------------------------------------------------------

    def spread(self, partitions: int) -> None:
        """Do nothing, because the partitions are recorded; see `Keys`."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return the partitions of keys; see `Keys`."""
        result = (-1 - numbers).astype(np.int32)
        known = (numbers >= 0) & (numbers < self._table.count)
        result[known] = self._table.partition[numbers[known]]
        new = numbers >= self._table.count
        index = np.searchsorted(self._cumulative, _mixed(numbers[new]), side="right")
        result[new] = self._partitions[index]
        return result

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys in the log of a partition; see `Keys`."""
        pieces = pieces_of(keys)
        numbers = self._table.find(hashes_of(partition, pieces))
        numbers[keys.sizes < 0] = -1 - partition
        begin = len(self._prefix)
        for row in np.flatnonzero((numbers < 0) & (keys.sizes >= begin + _DIGITS)).tolist():
            key = pieces[row]
            digits = key[begin : begin + _DIGITS]
            if key.startswith(self._prefix) and digits.isdigit():
                numbers[row] = self._table.count + int(digits)
        return numbers

    def column(self, block: Block) -> BytesColumn | None:
        """Return the keys of a block; see `Keys`."""
        table, numbers = self._table, block.key_number
        known = np.flatnonzero((numbers >= 0) & (numbers < table.held))
        new = np.flatnonzero(numbers >= table.count)
        sizes = np.full(len(numbers), -1, np.int64)
        sizes[known] = table.sizes[numbers[known]]
        fresh = [self._new_key(number) for number in numbers[new].tolist()]
        sizes[new] = list(map(len, fresh))
        starts = np.zeros(len(numbers), np.int64)
        ordered = np.concatenate((known, new))
        starts[ordered] = np.cumsum(sizes[ordered]) - sizes[ordered]
        total = int(sizes[known].sum())
        skipped = np.repeat(table.starts[numbers[known]] - starts[known], sizes[known])
        data = table.data[np.arange(total) + skipped]
        data = np.concatenate((data, np.frombuffer(b"".join(fresh), np.uint8)))
        return BytesColumn(data, starts, sizes.astype(np.int32))

    def _new_key(self, number: int) -> bytes:
        """Return a new key with the size of a recorded key."""
        table = self._table
        key = self._prefix + b"%0*d" % (_DIGITS, number - table.count)
        size = int(table.sizes[number * 2_654_435_761 % table.held]) if table.held else 0
        return key.ljust(size, _FILL)


def _mixed(numbers: Ints) -> Floats:
    """Map each number to [0, 1) deterministically (with the mixer of SplitMix64)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
