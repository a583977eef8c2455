"""Recordings: what a data directory tells of how its topics were written, and of their keys.

Read as commands read: nothing on the disk changes, damage is passed over and named. What counts
as *arrivals* are the records that no cleaning has seen, behind the cleaner checkpoint and behind
the last hole in the offsets: only they show how often a key was written. What lies before them
still tells when how much came, since offsets are never given twice, and which keys there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from logstore.analysis.assumptions import assumptions
from logstore.analysis.broker_state import cleaner_offset, data_dirs, topic_config
from logstore.analysis.locations import locate
from logstore.analysis.view import PartitionView
from logstore.broker.broker import Broker
from logstore.cleaner.strategy import HEADER, Strategy
from logstore.errors import (
    CorruptionError,
    InvalidConfigurationError,
    KafkaStorageError,
    LogStoreError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.names import KAFKAS_OWN_TOPICS
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.simulate.scenario import own_topic_text

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.record.columns import BytesColumn, RecordColumns
    from logstore.record.header import BatchHeader
    from logstore.record.survey import Damage
    from logstore.runtime import Clock
    from logstore.types import TopicPartition

Ints = NDArray[np.int64]

KEYS_MAX = 2_000_000
"""Keys of a topic whose bytes are held, those written last; others are known, but not written."""

ARRIVALS_MAX = 2_000_000
"""Records of a partition, the last ones, of which is held what each was."""

PARTITIONS_MAX = 256
"""Partitions that are recorded at once; a directory with more wants a choice."""

ARRIVALS_MIN = 100
"""With fewer records that no cleaning has seen, those that one has seen are looked at, too."""

_FOLD_RECORDS = 1 << 17
_HASHED = xxhash.xxh3_64_intdigest

Progress = Callable[[str, int, int], object]
"""Told a partition, and how many of its bytes are read."""


class Rates(NamedTuple):
    """When how much came: a row for each batch that is there.

    Attributes
    ----------
    time_ms : int64
        Its largest timestamp, or that of one before it if later.
    partition : int64
    records : int64
        Offsets from the batch before it on, what was cleaned away between them too.
    """

    time_ms: Ints
    partition: Ints
    records: Ints


class Batches(NamedTuple):
    """Batches of the arrivals.

    Attributes
    ----------
    time_ms : int64
        As in `Rates`.
    records, bytes, section_bytes : int64
        The bytes of all of it, and of its records uncompressed.
    codec, producer_id : int64
    is_transactional : int64
    """

    time_ms: Ints
    records: Ints
    bytes: Ints
    section_bytes: Ints
    codec: Ints
    producer_id: Ints
    is_transactional: Ints


class Arrivals(NamedTuple):
    """Records that nobody has cleaned, in the order in which they came.

    Attributes
    ----------
    time_ms : int64
        Its timestamp, or that of a record before it in the partition if later.
    late_ms : int64
        By how much its timestamp lies behind that; -1 where it has none.
    partition : int64
    key : int64
        Number in the key table, or -1 - partition for none.
    value_bytes : int64
        -1 for none.
    is_first : bool
        The log has no earlier record of its key.
    """

    time_ms: Ints
    late_ms: Ints
    partition: Ints
    key: Ints
    value_bytes: Ints
    is_first: NDArray[np.bool_]

    def before(self, time_ms: int) -> Arrivals:
        """Return those that came before a moment."""
        early = self.time_ms < time_ms
        return Arrivals._make(column[early] for column in self)

    def since(self, time_ms: int) -> Arrivals:
        """Return those that came at a moment or later."""
        late = self.time_ms >= time_ms
        return Arrivals._make(column[late] for column in self)


class KeyTable:
    """The keys of a topic, a number each: those that were written most often lately come first.

    Attributes
    ----------
    count : int
        Keys; those of numbers below `held` have their bytes here.
    partition : (count,) int64
    """

    def __init__(
        self, hashes: Ints, numbers: Ints, partition: Ints, keys: Sequence[bytes | None]
    ) -> None:
        self._hashes, self._numbers = hashes, numbers
        self.partition = partition
        self.count = len(partition)
        held = [key for key in keys if key is not None]
        self.held = len(held)
        self.sizes: Ints = np.fromiter(map(len, held), np.int64, len(held))
        self.starts: Ints = np.cumsum(self.sizes) - self.sizes
        self.data = np.frombuffer(b"".join(held), np.uint8)

    def find(self, hashes: Ints) -> Ints:
        """Return the numbers of keys by their hashes; -1 for those that are not here."""
        if not self.count:
            return np.full(len(hashes), -1)
        places = np.minimum(np.searchsorted(self._hashes, hashes), self.count - 1)
        return np.where(self._hashes[places] == hashes, self._numbers[places], -1)

    def begins_with(self, prefix: bytes) -> bool:
        """Tell whether a key begins so."""
        wanted = np.frombuffer(prefix, np.uint8)
        long = np.flatnonzero(self.sizes >= len(wanted))
        rows = self.data[self.starts[long][:, None] + np.arange(len(wanted))]
        return bool((rows == wanted).all(axis=1).any())


def hashes_of(partition: int, keys: Iterable[bytes]) -> Ints:
    """Hash keys of a partition: 64 bits, the same in every run."""
    return np.fromiter((_HASHED(key, partition) for key in keys), np.uint64).view(np.int64)


def pieces_of(column: BytesColumn) -> list[bytes]:
    """Return the byte strings of a column; a null as an empty one."""
    raw = column.data.tobytes()
    return [
        raw[start : start + size] if size > 0 else b""
        for start, size in zip(column.starts.tolist(), column.sizes.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TopicRecording:
    """What a directory tells of a topic.

    Attributes
    ----------
    partitions : tuple of int
        Those that lie in the directory.
    configs : mapping of str to str
        Its own, and its cleanup policy in any case.
    newest_ms : int or None
        The largest timestamp there is; None without any.
    batches, rates, arrivals, keys
        See there.
    newest_version : int or None
        The largest in the log if the strategy compares a header; None if it does not.
    next_producer_id : int
        Above all that the logs know.
    is_cleaned : bool
        There are hardly any arrivals: they are taken from what cleanings left, and tell nothing of
        how often keys are written.
    left_out : int
        Older arrivals for which there was no room.
    assumed : tuple of str
        What the directory does not say.
    """

    name: str
    partitions: tuple[int, ...]
    configs: Mapping[str, str]
    newest_ms: int | None
    rates: Rates
    batches: Batches
    arrivals: Arrivals
    is_cleaned: bool
    keys: KeyTable
    newest_version: int | None
    next_producer_id: int
    left_out: int
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a directory tells of some of its topics.

    Attributes
    ----------
    path : str
        Of the directory, absolute.
    directories : tuple of str
        The data directories that it stands for.
    damages : tuple of Damage
        What was passed over.
    left_out : tuple of str
        Why topics are not among them, though all were wanted; one sentence for each.
    """

    path: str
    directories: tuple[str, ...]
    topics: Mapping[str, TopicRecording]
    damages: tuple[Damage, ...]
    left_out: tuple[str, ...] = ()


class Origin(NamedTuple):
    """A directory that is open: a broker over it, and the partitions that its path names."""

    broker: Broker
    partitions: tuple[TopicPartition, ...]


@contextmanager
def opened(
    path: str, clock: Clock | None = None, broker_config: BrokerConfig | None = None
) -> Iterator[Origin]:
    """Open a data directory, or a partition's folder, only to be read; damage is passed over.

    Raises
    ------
    InvalidConfigurationError
        There is no such directory, or no partition in it.
    """
    fs = ReadOnlyFileSystem(DiskFileSystem())
    place = locate(fs, os.path.abspath(path), path)  # noqa: PTH100  # a link keeps its name
    with Broker(
        list(place.directories),
        clock=clock,
        broker_config=broker_config,
        read_only=True,
        on_damage="pass_over",
        shown=place.shown,
    ) as broker:
        shown = place.shown
        # The topics file around one folder names other partitions.
        there = broker.partitions() if shown is None else [shown.topic_partition]
        yield Origin(broker, tuple(there))


def chosen(origin: Origin, topics: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of some topics, or of all but Kafka's own, by topic.

    Raises
    ------
    UnknownTopicOrPartitionError
        There is no such topic.
    InvalidConfigurationError
        A topic is Kafka's own, there is no other, or there are too many at once.
    """
    there: dict[str, list[TopicPartition]] = {}
    for tp in origin.partitions:
        there.setdefault(tp.topic, []).append(tp)
    if not there:
        raise InvalidConfigurationError("no partition lies in the directory")
    for name in topics:
        if name not in there:
            shown = ", ".join(list(there)[:5]) + (" …" if len(there) > 5 else "")
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'; there are: {shown}")
    names = topics or [name for name in there if name not in KAFKAS_OWN_TOPICS]
    for name in names or there:
        if name in KAFKAS_OWN_TOPICS:
            raise InvalidConfigurationError(own_topic_text(name))
    found = {name: there[name] for name in names}
    count = sum(map(len, found.values()))
    if count > PARTITIONS_MAX:
        raise InvalidConfigurationError(
            f"{count} partitions of {len(found)} topics are more than {PARTITIONS_MAX}: choose "
            "topics by name"
        )
    return found


def record(
    path: str,
    topics: Sequence[str] = (),
    *,
    configs: Mapping[str, str] | None = None,
    broker_config: BrokerConfig | None = None,
    progress: Progress | None = None,
    keys_max: int = KEYS_MAX,
    arrivals_max: int = ARRIVALS_MAX,
) -> Recording:
    """Read what a directory tells of topics.

    Parameters
    ----------
    path : str
        A data directory, one that holds some, or a partition's folder.
    topics : sequence of str
        Which; none means all.
    configs : mapping, optional
        Configurations of the topics, laid over their own.
    broker_config : BrokerConfig, optional
        Gives topics what they do not say themselves.
    progress : callable, optional
        Told before each batch.
    keys_max, arrivals_max : int
        Keys of a topic and records of a partition that are held.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `opened` and `chosen`.
    CorruptionError, KafkaStorageError, UnsupportedFormatError
        A partition of one of `topics`, or of all topics, cannot be opened.

    Notes
    -----
    Some µs a record. Memory: about 100 bytes for each of `keys_max` keys and 16 for others, 48 for
    each of `arrivals_max` records, 24 for each batch.
    """
    with opened(path, broker_config=broker_config) as origin:
        broker = origin.broker
        directories = tuple(data_dirs(broker))
        found: dict[str, TopicRecording] = {}
        damages: list[Damage] = []
        wanted = chosen(origin, topics)
        own = {tp.topic for tp in origin.partitions} & KAFKAS_OWN_TOPICS
        left_out = [] if topics else [own_topic_text(name) for name in sorted(own)]
        failures: list[LogStoreError] = []
        for name, partitions in wanted.items():
            broker.override_configs(name, configs or {})
            reading = _Reading(keys_max, arrivals_max)
            assumed: list[str] = []
            try:
                for tp in partitions:
                    view = PartitionView(broker, tp)
                    reading.read(view, cleaner_offset(broker, tp) or 0, progress)
                    damages += view.damages
                    assumed += assumptions(broker.manager, tp, cleaning=True)
            except (CorruptionError, KafkaStorageError, UnsupportedFormatError) as error:
                if topics:
                    raise
                failures.append(error)
                left_out.append(f"topic {name!r} is left out: {error}")
                continue
            settings = {**broker.topic(name).configs, **(configs or {})}
            policy = topic_config(broker, name).cleanup_policy
            settings.setdefault("cleanup.policy", ",".join(policy))
            numbers = tuple(tp.partition for tp in partitions)
            found[name] = reading.finish(name, numbers, settings, tuple(dict.fromkeys(assumed)))
        if failures and not found:
            raise failures[0]
    path = os.path.abspath(path)  # noqa: PTH100  # see `opened`
    return Recording(path, directories, found, tuple(damages), tuple(left_out))


class _Keys:
    """The keys that were met so far, numbered as they came."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._hashes: Ints = np.zeros(0, np.int64)
        self._numbers: Ints = np.zeros(0, np.int64)
        self._held = 0
        self.keys: list[bytes | None] = []
        self.partition: Ints = np.zeros(0, np.int64)
        self.last_seen: Ints = np.zeros(0, np.int64)
        self._clock = 0

    def add(self, partition: int, keys: Sequence[bytes]) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the number of each key, and whether it is met for the first time."""
        hashes = hashes_of(partition, keys)
        unique, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        places = np.searchsorted(self._hashes, unique)
        is_known = np.zeros(len(unique), np.bool_)
        if len(self._hashes):
            inside = np.minimum(places, len(self._hashes) - 1)
            is_known = self._hashes[inside] == unique
        fresh = np.flatnonzero(~is_known)
        fresh = fresh[np.argsort(first[fresh])]
        numbers = np.empty(len(unique), np.int64)
        numbers[is_known] = self._numbers[places[is_known]]
        numbers[fresh] = len(self.keys) + np.arange(len(fresh))
        by_hash = np.sort(fresh)
        self._hashes = np.insert(self._hashes, places[by_hash], unique[by_hash])
        self._numbers = np.insert(self._numbers, places[by_hash], numbers[by_hash])
        self.keys += [keys[row] for row in first[fresh].tolist()]
        self.partition = np.append(self.partition, np.full(len(fresh), partition))
        self.last_seen = np.append(self.last_seen, np.zeros(len(fresh), np.int64))
        of_rows: Ints = numbers[inverse]
        self.last_seen[of_rows] = self._clock + np.arange(len(of_rows))
        self._clock += len(of_rows)
        self._held += len(fresh)
        if self._held > 2 * self._keys_max:
            self.forget()
        is_first = np.zeros(len(keys), np.bool_)
        is_first[first[fresh]] = True
        return of_rows, is_first

    def forget(self) -> None:
        """Let go of the bytes of all keys but those that were met last."""
        for number in np.argsort(-self.last_seen, kind="stable")[self._keys_max :].tolist():
            self.keys[number] = None
        self._held = min(self._held, self._keys_max)

    def ranked(self, written: Ints) -> tuple[KeyTable, Ints]:
        """Return the table by rank, and the rank of each number; `written` counts by number."""
        self.forget()
        lost = np.array([key is None for key in self.keys], np.bool_)
        order = np.lexsort((np.arange(len(lost)), -written, lost))
        rank: Ints = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keys = [self.keys[number] for number in order.tolist()]
        table = KeyTable(self._hashes, rank[self._numbers], self.partition[order], keys)
        return table, rank


class _Piece(NamedTuple):
    """Arrivals of a partition that follow one another, and their batches as rows of `Batches`."""

    arrivals: Arrivals
    batches: list[tuple[int, ...]]

    @classmethod
    def joined(cls, pieces: Sequence[_Piece]) -> _Piece:
        """Return all in one; of none an empty one."""
        none: Ints = np.zeros(0, np.int64)
        empty = Arrivals(none, none, none, none, none, none.astype(np.bool_))
        columns = zip(empty, *(piece.arrivals for piece in pieces), strict=True)
        arrivals = Arrivals._make(map(np.concatenate, columns))
        return cls(arrivals, [row for piece in pieces for row in piece.batches])


class _Window:
    """The arrivals of a partition, in pieces, the oldest of which go when there are too many.

    The last piece that a cleaning has seen is kept aside: it shows no frequencies, but sizes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self.pieces: list[_Piece] = []
        self.cleaned: list[_Piece] = []
        self.records = self.left_out = 0

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.records += len(piece.arrivals.key)
        while len(self.pieces) > 1:
            oldest = len(self.pieces[0].arrivals.key)
            if self.records - oldest < self._room:
                break
            del self.pieces[0]
            self.records -= oldest
            self.left_out += oldest

    def clear(self) -> None:
        self.cleaned = self.pieces[-1:] or self.cleaned
        self.pieces = []
        self.records = self.left_out = 0


class _Pending:
    """Batches of a partition whose records are not numbered yet."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._running_ms = -1
        self._clear()

    def _clear(self) -> None:
        self._timestamps: list[Ints] = []
        self._values: list[Ints] = []
        self._nulls: list[NDArray[np.bool_]] = []
        self._keys: list[bytes] = []
        self._batches: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, columns: RecordColumns, batch: tuple[int, ...]) -> None:
        self._timestamps.append(columns.timestamps)
        self._values.append(columns.values.sizes.astype(np.int64))
        self._nulls.append(columns.keys.sizes < 0)
        self._keys += pieces_of(columns.keys)
        self._batches.append(batch)

    def taken(self, keys: _Keys) -> _Piece:
        """Return what is pending, its keys numbered, and begin anew."""
        stamps = np.concatenate(self._timestamps)
        running = np.maximum.accumulate(np.append(self._running_ms, stamps))[1:]
        is_null = np.concatenate(self._nulls)
        rows = np.flatnonzero(~is_null)
        key = np.full(len(stamps), -1 - self._partition)
        is_first = np.zeros(len(stamps), np.bool_)
        if len(rows):
            key[rows], is_first[rows] = keys.add(
                self._partition, [self._keys[row] for row in rows.tolist()]
            )
        arrivals = Arrivals(
            time_ms=running,
            late_ms=np.where(stamps < 0, -1, running - stamps),
            partition=np.full(len(stamps), self._partition),
            key=key,
            value_bytes=np.concatenate(self._values),
            is_first=is_first,
        )
        piece = _Piece(arrivals, self._batches)
        self._running_ms = int(running[-1])
        self._clear()
        return piece


class _Reading:
    """A topic while it is read, partition by partition."""

    def __init__(self, keys_max: int, arrivals_max: int) -> None:
        self._keys = _Keys(keys_max)
        self._arrivals_max = arrivals_max
        self._windows: list[_Window] = []
        self._rates: list[tuple[int, int, int]] = []
        self._newest_ms: int | None = None
        self._next_producer_id = 0
        self._newest_version: int | None = None

    def read(self, view: PartitionView, first_dirty: int, progress: Progress | None) -> None:
        tp, log = view.topic_partition, view.log
        window = _Window(self._arrivals_max)
        self._windows.append(window)
        pending = _Pending(tp.partition)
        limit = log.config.logstore_decompression_max_bytes
        done, total = 0, log.size_bytes
        previous = running_ms = -1
        was_cleaned = False
        strategy = Strategy.of(log.config)
        for stored in view.batches():
            if progress is not None:
                progress(str(tp), done, total)
            done += stored.size_bytes
            header = stored.batch.header
            self._next_producer_id = max(self._next_producer_id, header.producer_id + 1)
            is_cleaned = header.last_offset < first_dirty or _has_hole(header, previous)
            came = header.last_offset - (previous if previous >= 0 else header.base_offset - 1)
            previous = header.last_offset
            if header.is_control:
                continue
            if len(pending) and (is_cleaned != was_cleaned or len(pending) >= _FOLD_RECORDS):
                window.add(pending.taken(self._keys))
            if was_cleaned or is_cleaned:
                window.clear()
            was_cleaned = is_cleaned
            if header.max_timestamp >= 0:
                running_ms = max(running_ms, header.max_timestamp)
                self._newest_ms = max(self._newest_ms or 0, header.max_timestamp)
            self._rates.append((running_ms, tp.partition, came))
            columns = stored.batch.columns(limit)
            section_bytes = columns.section_bytes
            columns = columns.between(log.log_start_offset)
            if len(columns):
                if strategy.name == HEADER:
                    self._note_versions(strategy, columns)
                row = (
                    running_ms,
                    header.record_count,
                    stored.size_bytes,
                    section_bytes,
                    header.codec_id,
                    header.producer_id,
                    int(header.is_transactional),
                )
                pending.add(columns, row)
        if len(pending):
            window.add(pending.taken(self._keys))
        if was_cleaned:
            window.clear()

    def _note_versions(self, strategy: Strategy, columns: RecordColumns) -> None:
        found = (strategy.version_in(columns.headers(row)) for row in range(len(columns)))
        known = [self._newest_version, *found]
        self._newest_version = max((each for each in known if each is not None), default=0)

    def finish(
        self,
        name: str,
        partitions: tuple[int, ...],
        configs: Mapping[str, str],
        assumed: tuple[str, ...],
    ) -> TopicRecording:
        """Return what was read of all partitions together."""
        pieces = [piece for window in self._windows for piece in window.pieces]
        is_cleaned = sum(len(piece.arrivals.key) for piece in pieces) < ARRIVALS_MIN
        if is_cleaned:
            pieces = [
                piece for window in self._windows for piece in (*window.cleaned, *window.pieces)
            ]
        arrivals, rows = _Piece.joined(pieces)
        keyed = arrivals.key >= 0
        written = np.bincount(arrivals.key[keyed], minlength=len(self._keys.keys))
        table, rank = self._keys.ranked(written)
        order = np.argsort(arrivals.time_ms, kind="stable")
        key = arrivals.key.copy()
        key[keyed] = rank[key[keyed]]
        arrivals = Arrivals._make(column[order] for column in arrivals._replace(key=key))
        batches = np.array(rows, np.int64).reshape(-1, len(Batches._fields)).T
        rates = np.array(self._rates, np.int64).reshape(-1, len(Rates._fields)).T
        return TopicRecording(
            name=name,
            partitions=partitions,
            configs=configs,
            newest_ms=self._newest_ms,
            rates=Rates._make(rates),
            batches=Batches._make(batches),
            arrivals=arrivals,
            is_cleaned=is_cleaned,
            keys=table,
            newest_version=self._newest_version,
            next_producer_id=self._next_producer_id,
            left_out=sum(window.left_out for window in self._windows),
            assumed=assumed,
        )


def _has_hole(header: BatchHeader, previous: int) -> bool:
    """Tell whether records are gone from a batch, or from before it."""
    is_sparse = header.record_count <= header.last_offset - header.base_offset
    return is_sparse or (previous >= 0 and header.base_offset > previous + 1)
