"""Recordings: the keys of the topics in a data directory, and their write rates.

The disk is not changed. Damage is skipped and reported. *Arrivals* are uncleaned records: those
after both the cleaner checkpoint and the last offset gap. Only arrivals show how often keys are
written. Older records still show the keys and, because offsets are never reused, the rates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from logstore.record.batch import stored_columns
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.simulate.scenario import internal_topic_error

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.record.columns import BytesColumn, RecordColumns
    from logstore.record.header import BatchHeader
    from logstore.record.survey import Damage
    from logstore.runtime import Clock
    from logstore.types import TopicPartition

Ints = NDArray[np.int64]

KEYS_MAX = 2_000_000
"""Maximum number of keys per topic whose bytes are retained, the last written ones. Others are
never written."""

ARRIVALS_MAX = 2_000_000
"""Maximum number of arrivals per partition, the latest ones."""

PARTITIONS_MAX = 256
"""Maximum number of partitions in a recording."""

ARRIVALS_MIN = 100
"""With fewer arrivals, cleaned records are used as well."""

_FOLD_RECORDS = 1 << 17
_HASHED = xxhash.xxh3_64_intdigest

Progress = Callable[[str, int, int], object]
"""Receives a partition, the number of bytes read, and its size."""


class Rates(NamedTuple):
    """Number of records over time, one row per batch.

    Attributes
    ----------
    time_ms : int64
        Maximum timestamp in the partition up to this batch.
    partition : int64
    records : int64
        Number of offsets since the previous batch, including removed records.
    """

    time_ms: Ints
    partition: Ints
    records: Ints


class Batches(NamedTuple):
    """The batches of the arrivals.

    Attributes
    ----------
    time_ms : int64
        See `Rates`.
    records : int64
    bytes : int64
        Size of the batch.
    section_bytes : int64
        Size of the batch's uncompressed records.
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
    """Uncleaned records in arrival order.

    Attributes
    ----------
    time_ms : int64
        Maximum timestamp in the partition up to this record.
    late_ms : int64
        `time_ms` minus the record's timestamp, or -1 if it has no timestamp.
    partition : int64
    key : int64
        Number in the key table, or -1 - partition for a null key.
    value_bytes : int64
        Size of the value, or -1 for null.
    is_first : bool
        Whether the log has no earlier record with the same key.
    """

    time_ms: Ints
    late_ms: Ints
    partition: Ints
    key: Ints
    value_bytes: Ints
    is_first: NDArray[np.bool_]

    def before(self, time_ms: int) -> Arrivals:
        """Return the arrivals before a time."""
        early = self.time_ms < time_ms
        return Arrivals._make(column[early] for column in self)

    def since(self, time_ms: int) -> Arrivals:
        """Return the arrivals at or after a time."""
        late = self.time_ms >= time_ms
        return Arrivals._make(column[late] for column in self)


class KeyTable:
    """Keys of a topic, numbered by how often they occur in the recording, most frequent first.

    Attributes
    ----------
    count : int
        Number of keys.
    held : int
        Number of keys whose bytes are in the table. They have the lowest numbers.
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
        """Return the numbers of keys by hash, or -1 for unknown keys."""
        if not self.count:
            return np.full(len(hashes), -1)
        indices = np.minimum(np.searchsorted(self._hashes, hashes), self.count - 1)
        return np.where(self._hashes[indices] == hashes, self._numbers[indices], -1)

    def has_prefix(self, prefix: bytes) -> bool:
        """Return whether any key starts with a prefix."""
        expected = np.frombuffer(prefix, np.uint8)
        long = np.flatnonzero(self.sizes >= len(expected))
        rows = self.data[self.starts[long][:, None] + np.arange(len(expected))]
        return bool((rows == expected).all(axis=1).any())


def hashes_of(partition: int, keys: Iterable[bytes]) -> Ints:
    """Hash keys of a partition to 64 bits deterministically."""
    return np.fromiter((_HASHED(key, partition) for key in keys), np.uint64).view(np.int64)


def pieces_of(column: BytesColumn) -> list[bytes]:
    """Return the byte strings of a column. Null becomes an empty string."""
    raw = column.data.tobytes()
    return [
        raw[start : start + size] if size > 0 else b""
        for start, size in zip(column.starts.tolist(), column.sizes.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TopicRecording:
    """The recording of a topic.

    Attributes
    ----------
    partitions : tuple of int
        Partitions in the directory.
    configs : mapping of str to str
        Topic configs. Always includes the cleanup policy.
    newest_ms : int or None
        Maximum timestamp, or None if there is none.
    rates, batches, arrivals, keys
        See `Rates`, `Batches`, `Arrivals` and `KeyTable`.
    newest_version : int or None
        Maximum version in the log if the strategy compares a header, otherwise None.
    next_producer_id : int
        A producer id above all ids in the logs.
    is_cleaned : bool
        Whether cleaned records are used because there are too few arrivals. They do not show how
        often keys are written.
    left_out : int
        Number of older arrivals omitted because of the limit.
    assumed : tuple of str
        Assumptions about configs that the directory does not contain.
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
    """The recording of a directory.

    Attributes
    ----------
    paths : tuple of str
        Absolute paths of the directories.
    directories : tuple of str
        Data directories at the paths.
    topics : mapping of str to TopicRecording
    damages : tuple of Damage
        Damage that was skipped.
    left_out : tuple of str
        For each topic omitted from a recording of all topics, a sentence that gives the reason.
    """

    paths: tuple[str, ...]
    directories: tuple[str, ...]
    topics: Mapping[str, TopicRecording]
    damages: tuple[Damage, ...]
    left_out: tuple[str, ...] = ()


class Origin(NamedTuple):
    """Open directories: their partitions, and the read-only broker of each."""

    brokers: Mapping[TopicPartition, Broker]

    def brokers_of(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[Broker, list[TopicPartition]]:
        """Group partitions by broker."""
        found: dict[Broker, list[TopicPartition]] = {}
        for tp in partitions:
            found.setdefault(self.brokers[tp], []).append(tp)
        return found


@contextmanager
def open_origin(
    paths: Sequence[str], clock: Clock | None = None, broker_config: BrokerConfig | None = None
) -> Iterator[Origin]:
    """Open data directories and partition directories read-only, skipping damage.

    Raises
    ------
    InvalidConfigurationError
        A directory does not exist or has no partitions, or a partition is in two directories.
    """
    fs = ReadOnlyFileSystem(DiskFileSystem())
    brokers: dict[TopicPartition, Broker] = {}
    homes: dict[TopicPartition, str] = {}
    with ExitStack() as opened:
        for path in paths:
            place = locate(fs, os.path.abspath(path), path)  # noqa: PTH100  # a link keeps its name
            broker = Broker(
                list(place.directories),
                clock=clock,
                broker_config=broker_config,
                read_only=True,
                on_damage="pass_over",
                shown=place.shown,
            )
            opened.enter_context(broker)
            shown = place.shown
            # The topics file next to a single partition directory also lists other partitions.
            found = broker.partitions() if shown is None else [shown.topic_partition]
            for tp in found:
                if tp in homes:
                    raise InvalidConfigurationError(f"{tp} is in {homes[tp]} and in {path}")
                brokers[tp], homes[tp] = broker, path
        yield Origin(dict(sorted(brokers.items())))


def select_partitions(origin: Origin, topics: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of the given topics, or of all except internal topics, by topic.

    Raises
    ------
    UnknownTopicOrPartitionError
        A topic does not exist.
    InvalidConfigurationError
        A topic is internal, all topics are internal, or there are too many partitions.
    """
    existing: dict[str, list[TopicPartition]] = {}
    for tp in origin.brokers:
        existing.setdefault(tp.topic, []).append(tp)
    if not existing:
        raise InvalidConfigurationError("the directory contains no partition")
    for name in topics:
        if name not in existing:
            listed = ", ".join(list(existing)[:5]) + (" …" if len(existing) > 5 else "")
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'; existing topics: {listed}")
    names = topics or [name for name in existing if name not in KAFKAS_OWN_TOPICS]
    for name in names or existing:
        if name in KAFKAS_OWN_TOPICS:
            raise InvalidConfigurationError(internal_topic_error(name))
    selection = {name: existing[name] for name in names}
    count = sum(map(len, selection.values()))
    if count > PARTITIONS_MAX:
        raise InvalidConfigurationError(
            f"{count} partitions of {len(selection)} topics are more than {PARTITIONS_MAX}: choose "
            "topics by name"
        )
    return selection


def record(
    paths: str | Sequence[str],
    topics: Sequence[str] = (),
    *,
    configs: Mapping[str, str] | None = None,
    broker_config: BrokerConfig | None = None,
    progress: Progress | None = None,
    keys_max: int = KEYS_MAX,
    arrivals_max: int = ARRIVALS_MAX,
) -> Recording:
    """Record topics of a directory.

    Parameters
    ----------
    paths : str or sequence of str
        Data directories, directories of data directories, or partition directories.
    topics : sequence of str
        Topic names, or empty for all.
    configs : mapping, optional
        Overrides of topic configs.
    broker_config : BrokerConfig, optional
        Defaults of topic configs.
    progress : callable, optional
        Called before each batch.
    keys_max, arrivals_max : int
        Maximum number of keys per topic, and of arrivals per partition.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `open_origin` and `select_partitions`.
    CorruptionError, KafkaStorageError, UnsupportedFormatError
        A partition of `topics` cannot be opened or, without `topics`, no topic can be opened.

    Notes
    -----
    Takes a few µs per record. Requires about 100 bytes of memory for each of `keys_max` keys, 16
    for each further key, 48 for each of `arrivals_max` records, and 24 for each batch.
    """
    paths = [paths] if isinstance(paths, str) else paths
    with open_origin(paths, broker_config=broker_config) as origin:
        opened = dict.fromkeys(origin.brokers.values())
        directories = tuple(path for broker in opened for path in data_dirs(broker))
        recordings: dict[str, TopicRecording] = {}
        damages: list[Damage] = []
        selection = select_partitions(origin, topics)
        own = {tp.topic for tp in origin.brokers} & KAFKAS_OWN_TOPICS
        left_out = [] if topics else [internal_topic_error(name) for name in sorted(own)]
        failures: list[LogStoreError] = []
        for name, partitions in selection.items():
            brokers = origin.brokers_of(partitions)
            for broker in brokers:
                broker.override_configs(name, configs or {})
            recorder = _TopicRecorder(keys_max, arrivals_max)
            assumed: list[str] = []
            try:
                for tp in partitions:
                    broker = origin.brokers[tp]
                    view = PartitionView(broker, tp)
                    recorder.read(view, cleaner_offset(broker, tp) or 0, progress)
                    damages += view.damages
                    assumed += assumptions(broker.manager, tp, cleaning=True)
            except (CorruptionError, KafkaStorageError, UnsupportedFormatError) as error:
                if topics:
                    raise
                failures.append(error)
                left_out.append(f"topic {name!r} is left out: {error}")
                continue
            # Directories are usually copied without their topic configs.
            broker = next((each for each in brokers if each.topic(name).configs), broker)
            settings = {**broker.topic(name).configs, **(configs or {})}
            policy = topic_config(broker, name).cleanup_policy
            settings.setdefault("cleanup.policy", ",".join(policy))
            numbers = tuple(tp.partition for tp in partitions)
            assumptions_made = tuple(dict.fromkeys(assumed))
            recordings[name] = recorder.finish(name, numbers, settings, assumptions_made)
        if not recordings:
            raise failures[0]
    absolute = tuple(map(os.path.abspath, paths))
    return Recording(absolute, directories, recordings, tuple(damages), tuple(left_out))


class _Keys:
    """The keys found so far, numbered in order of their first records."""

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
        """Return the number of each key, and whether this is the key's first record."""
        hashes = hashes_of(partition, keys)
        unique, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        indices = np.searchsorted(self._hashes, unique)
        is_known = np.zeros(len(unique), np.bool_)
        if len(self._hashes):
            inside = np.minimum(indices, len(self._hashes) - 1)
            is_known = self._hashes[inside] == unique
        fresh = np.flatnonzero(~is_known)
        fresh = fresh[np.argsort(first[fresh])]
        numbers = np.empty(len(unique), np.int64)
        numbers[is_known] = self._numbers[indices[is_known]]
        numbers[fresh] = len(self.keys) + np.arange(len(fresh))
        by_hash = np.sort(fresh)
        self._hashes = np.insert(self._hashes, indices[by_hash], unique[by_hash])
        self._numbers = np.insert(self._numbers, indices[by_hash], numbers[by_hash])
        self.keys += [keys[row] for row in first[fresh].tolist()]
        self.partition = np.append(self.partition, np.full(len(fresh), partition))
        self.last_seen = np.append(self.last_seen, np.zeros(len(fresh), np.int64))
        row_numbers: Ints = numbers[inverse]
        self.last_seen[row_numbers] = self._clock + np.arange(len(row_numbers))
        self._clock += len(row_numbers)
        self._held += len(fresh)
        if self._held > 2 * self._keys_max:
            self._evict()
        is_first = np.zeros(len(keys), np.bool_)
        is_first[first[fresh]] = True
        return row_numbers, is_first

    def _evict(self) -> None:
        """Discard the bytes of all keys except the `keys_max` most recent ones."""
        for number in np.argsort(-self.last_seen, kind="stable")[self._keys_max :].tolist():
            self.keys[number] = None
        self._held = min(self._held, self._keys_max)

    def rank(self, written: Ints) -> tuple[KeyTable, Ints]:
        """Return the key table and the rank of each key, given each key's number of writes."""
        self._evict()
        lost = np.array([key is None for key in self.keys], np.bool_)
        order = np.lexsort((np.arange(len(lost)), -written, lost))
        rank: Ints = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keys = [self.keys[number] for number in order.tolist()]
        table = KeyTable(self._hashes, rank[self._numbers], self.partition[order], keys)
        return table, rank


class _Piece(NamedTuple):
    """Consecutive arrivals of a partition, and their batches as rows of `Batches`."""

    arrivals: Arrivals
    batches: list[tuple[int, ...]]

    @classmethod
    def concatenate(cls, pieces: Sequence[_Piece]) -> _Piece:
        """Concatenate pieces. The result may be empty."""
        none: Ints = np.zeros(0, np.int64)
        empty = Arrivals(none, none, none, none, none, none.astype(np.bool_))
        columns = zip(empty, *(piece.arrivals for piece in pieces), strict=True)
        arrivals = Arrivals._make(map(np.concatenate, columns))
        return cls(arrivals, [row for piece in pieces for row in piece.batches])


class _Window:
    """The last arrivals of a partition, in pieces. Pieces beyond the limit are removed.

    The last cleaned piece is stored separately, because it shows the sizes of records but not their
    frequencies.
    """

    def __init__(self, arrivals_max: int) -> None:
        self._arrivals_max = arrivals_max
        self.pieces: list[_Piece] = []
        self.cleaned: list[_Piece] = []
        self.records = self.left_out = 0

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.records += len(piece.arrivals.key)
        while len(self.pieces) > 1:
            oldest = len(self.pieces[0].arrivals.key)
            if self.records - oldest < self._arrivals_max:
                break
            del self.pieces[0]
            self.records -= oldest
            self.left_out += oldest

    def clear(self) -> None:
        self.cleaned = self.pieces[-1:] or self.cleaned
        self.pieces = []
        self.records = self.left_out = 0


class _Pending:
    """Batches of a partition whose keys have not been numbered yet."""

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

    def take(self, keys: _Keys) -> _Piece:
        """Remove the pending batches and return them as a piece with numbered keys."""
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


class _TopicRecorder:
    """Reads a topic one partition at a time."""

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
        done, total = 0, log.size_bytes
        previous = running_ms = -1
        was_cleaned = False
        strategy = Strategy.of(log.config)
        for stored, columns in view.decoded(stored_columns):
            if progress is not None:
                progress(str(tp), done, total)
            done += stored.size_bytes
            header = stored.batch.header
            self._next_producer_id = max(self._next_producer_id, header.producer_id + 1)
            is_cleaned = header.last_offset < first_dirty or _has_hole(header, previous)
            records = header.last_offset - (previous if previous >= 0 else header.base_offset - 1)
            previous = header.last_offset
            if header.is_control:
                continue
            if len(pending) and (is_cleaned != was_cleaned or len(pending) >= _FOLD_RECORDS):
                window.add(pending.take(self._keys))
            if was_cleaned or is_cleaned:
                window.clear()
            was_cleaned = is_cleaned
            if header.max_timestamp >= 0:
                running_ms = max(running_ms, header.max_timestamp)
                self._newest_ms = max(self._newest_ms or 0, header.max_timestamp)
            self._rates.append((running_ms, tp.partition, records))
            visible = columns.between(log.log_start_offset)
            if len(visible):
                if strategy.name == HEADER:
                    self._note_versions(strategy, visible)
                row = (
                    running_ms,
                    header.record_count,
                    stored.size_bytes,
                    columns.section_bytes,
                    header.codec_id,
                    header.producer_id,
                    int(header.is_transactional),
                )
                pending.add(visible, row)
        if len(pending):
            window.add(pending.take(self._keys))
        if was_cleaned:
            window.clear()

    def _note_versions(self, strategy: Strategy, columns: RecordColumns) -> None:
        in_columns = (strategy.version_in(columns.headers(row)) for row in range(len(columns)))
        versions = [self._newest_version, *in_columns]
        self._newest_version = max((each for each in versions if each is not None), default=0)

    def finish(
        self,
        name: str,
        partitions: tuple[int, ...],
        configs: Mapping[str, str],
        assumed: tuple[str, ...],
    ) -> TopicRecording:
        """Build the recording from all partitions."""
        pieces = [piece for window in self._windows for piece in window.pieces]
        is_cleaned = sum(len(piece.arrivals.key) for piece in pieces) < ARRIVALS_MIN
        if is_cleaned:
            pieces = [
                piece for window in self._windows for piece in (*window.cleaned, *window.pieces)
            ]
        arrivals, rows = _Piece.concatenate(pieces)
        keyed = arrivals.key >= 0
        written = np.bincount(arrivals.key[keyed], minlength=len(self._keys.keys))
        table, rank = self._keys.rank(written)
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
    """Return whether records were removed from a batch or directly before it."""
    is_sparse = header.record_count <= header.last_offset - header.base_offset
    return is_sparse or (previous >= 0 and header.base_offset > previous + 1)
