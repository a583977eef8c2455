"""Populations: the keys of a topic, those that a directory knows and those that come."""

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
"""The stream of random words by which a partition or an earlier record is chosen."""

_KEYS_AT_ONCE = 1 << 20
_DIGITS = 12
_FILL = b"~"
"""What new keys are filled up with to the length of a known one."""


class Keys(Protocol):
    """The keys of a topic, a number each; below 0 is none."""

    @property
    def count(self) -> int:
        """Keys that have a number so far."""

    def spread(self, partitions: int) -> None:
        """Let keys belong to so many partitions from now on."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return where keys belong."""

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys that lie in a partition's log."""

    def column(self, block: Block) -> BytesColumn | None:
        """Return the keys of a block; None if it has them itself."""


class SpecKeys:
    """The keys of a workload."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._partitions = spec.partitions
        self.count = spec.keys.count

    def spread(self, partitions: int) -> None:
        """Let keys belong to so many partitions from now on; see `Keys`."""
        self._partitions = partitions

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return where keys belong; see `Keys`."""
        found = np.empty(len(numbers), np.int32)
        for start in range(0, len(numbers), _KEYS_AT_ONCE):
            some = slice(start, start + _KEYS_AT_ONCE)
            keys = key_bytes(self._spec, numbers[some])
            found[some] = partitions_of(keys, self._partitions)
        return found

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys in a log; see `Keys`."""
        width = len(self._spec.keys.prefix.encode()) + self._spec.keys.digits
        return parse_key_numbers(self._spec, keys.data[keys.starts[:, None] + np.arange(width)])

    def column(self, block: Block) -> BytesColumn | None:
        """Return None: a block has them; see `Keys`."""
        return None


class _Pool:
    """Keys of a partition, each as likely as it was written often, less a discount."""

    def __init__(self, written: Ints, discount: float = 0.0) -> None:
        self._keys, counts = np.unique(written, return_counts=True)
        self._reached = np.cumsum(counts - discount)

    def take(self, numbers: Ints, rows: NDArray[np.bool_], within: Floats) -> None:
        """Give rows a key each, if there is any, by numbers of [0, 1)."""
        if len(self._keys):
            at = np.searchsorted(self._reached, within[rows] * self._reached[-1], side="right")
            numbers[rows] = self._keys[np.minimum(at, len(self._keys) - 1)]


class KnownPopulation:
    """The keys of a recorded topic, by rank, and those that are new.

    Parameters
    ----------
    words : KnownKeys or None
        How they are written; None: as the spec draws them, the numbers being ranks.
    shares : mapping of int to float
        Of the records, by partition; empty: evenly.
    spec : Spec, optional
        What is written; without it nothing is.
    unknown : int64, optional
        Keys of the table that are not there yet.

    Notes
    -----
    Its blocks are asked for in order: an update may take the key of an earlier record.
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
        while table.begins_with(self._prefix):  # a new key is none that is there
            self._prefix = b"x" + self._prefix
        self._places = np.array(recording.partitions, np.int64)
        weights = np.array([shares.get(number, 0.0) for number in recording.partitions])
        if not weights.sum():
            weights = np.ones(len(self._places))
        self._reached = np.cumsum(weights) / weights.sum()
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
            lately = key[(key >= 0) & (key < table.held)]
            self._earlier = lately[-words.recent :]
        self._beyond = table.count - table.held
        self.count = table.count
        if words is not None:
            self.count += words.unseen
        elif spec is not None:
            self.count += max(0, spec.keys.count - table.held)

    # -- what is written -------------------------------------------------------------------

    def numbers(self, block: int, events: Ints) -> Ints:
        """Return which key each event of a block is about; see `workload.blocks.Population`."""
        assert self._spec is not None
        words, seed, count = self._words, self._spec.seed, len(events)
        if words is None:
            ranks = key_numbers(self._spec, block, events)
            return np.where(ranks < self._table.held, ranks, ranks + self._beyond)
        kind = Stream(seed, block, draws.KEYS).uniform(count)
        within = Stream(seed, block, draws.HOT).uniform(count)
        which = Stream(seed, block, RECENT).uniform(count)
        place = self._places[np.searchsorted(self._reached, which, side="right")]
        numbers = np.full(count, -1, np.int64)
        null = kind < words.null_share
        numbers[null] = -1 - place[null]
        new = ~null & (kind < words.null_share + words.new_share)
        quiet = kind < words.null_share + words.new_share + words.quiet_share
        quiet &= ~null & ~new
        update = ~null & ~new & ~quiet
        for partition in self._places.tolist():
            here = place == partition
            self._quiet[partition].take(numbers, here & quiet, within)
            if not words.recent:
                self._written[partition].take(numbers, here & update, within)
        lacking = (numbers == -1) & ~null & ~new  # nothing of the kind lies there
        if words.recent:
            lacking &= ~update
            if not len(self._earlier):
                first = np.flatnonzero(update)[:1]
                new[first], update[first] = True, False
        new |= lacking
        rows = np.flatnonzero(new)
        if words.unseen:
            numbers[rows] = self._table.count + (within[rows] * words.unseen).astype(np.int64)
        else:
            numbers[rows] = self.count + np.arange(len(rows))
            self.count += len(rows)
        if words.recent:
            self._repeat(numbers, update, within, words.recent)
        return numbers

    def _repeat(
        self, numbers: Ints, update: NDArray[np.bool_], within: Floats, recent: int
    ) -> None:
        """Give each update the key of one of the records before it, in this block or earlier."""
        keyed = np.flatnonzero((numbers >= 0) | update)
        known = len(self._earlier)
        place = known + np.arange(len(keyed))
        room = np.minimum(recent, place)
        source = place - 1 - (within[keyed] * room).astype(np.int64)
        is_update = update[keyed]
        # Whom it repeats may repeat another: pointers jump till all end outside or at no update.
        source = np.where(is_update, source, place)
        pointers = np.concatenate((np.arange(known), source))
        while True:
            further = pointers[pointers]
            if (further == pointers).all():
                break
            pointers = further
        found = np.concatenate((self._earlier, numbers[keyed]))[pointers]
        numbers[keyed] = found[known:]
        self._earlier = found[-recent:]

    # -- what they are ---------------------------------------------------------------------

    def spread(self, partitions: int) -> None:
        """Do nothing: the partitions are those that are recorded; see `Keys`."""

    def partitions(self, numbers: Ints) -> NDArray[np.int32]:
        """Return where keys belong; see `Keys`."""
        found = (-1 - numbers).astype(np.int32)
        known = (numbers >= 0) & (numbers < self._table.count)
        found[known] = self._table.partition[numbers[known]]
        new = numbers >= self._table.count
        places = np.searchsorted(self._reached, _scattered(numbers[new]), side="right")
        found[new] = self._places[places]
        return found

    def numbers_in(self, partition: int, keys: BytesColumn) -> Ints:
        """Return the numbers of keys in a log; see `Keys`."""
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
        """Return a key that was not there, as long as one that was."""
        table = self._table
        key = self._prefix + b"%0*d" % (_DIGITS, number - table.count)
        size = int(table.sizes[number * 2_654_435_761 % table.held]) if table.held else 0
        return key.ljust(size, _FILL)


def _scattered(numbers: Ints) -> Floats:
    """Return a number of [0, 1) for each, the same in every run (the mixer of SplitMix64)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
