"""Statistics of a partition: records, batches and keys, and which records are live.

All numbers are exact. A record is *live* if a table built from the topic would contain it: it is
committed (`analysis.committed`) and either has no key, or has a value and is the survivor for its
key under the topic's strategy. All other records are dead, even if they still exist. `dead`
contains the reasons.

Memory is limited to about 250 bytes for each of `KEYS_MAX` keys. If there are more keys, the
records are read again for other ranges of key hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from logstore.analysis.assumptions import assumptions
from logstore.analysis.committed import (
    ABORTED,
    COMMITTED,
    OPEN_TRANSACTION,
    UNSTABLE,
    CommittedData,
)
from logstore.analysis.verdict import RECORDS, partition_verdict
from logstore.analysis.view import PartitionView
from logstore.cleaner.strategy import Order, Strategy
from logstore.inspect.records import decoded_key_member
from logstore.record import kernels
from logstore.record.batch import stored_columns
from logstore.record.codecs import Codec
from logstore.record.columns import RecordColumns, join_columns
from logstore.record.json_text import bytes_item
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from logstore.analysis.facts import Cleaned
    from logstore.analysis.verdict import Verdict
    from logstore.cleaner.command import ProgressListener
    from logstore.types import TopicPartition

KEYS_MAX = 1 << 20
"""Maximum number of keys counted at once."""

NAMES_MAX = 1000
"""Maximum number of header names, and of producers, counted individually."""

OTHERS = "(others)"
"""Name under which all others are counted."""

DEAD = (
    *("superseded", "tombstone", ABORTED, OPEN_TRANSACTION, UNSTABLE, "control"),
    "below_log_start",
)
"""Why records are dead.

`tombstone`: the surviving record of its key has no value. `superseded`: another committed
record of its key survives. `open_transaction`, `unstable`: not committed yet; see `COMMIT_STATES`.
"""

GROUP_RECORDS = 1 << 10
"""Maximum number of records in batches that are counted together."""

GROUP_BYTES = 1 << 20
"""Maximum total size of batches that are counted together."""

_HASHES = 1 << 32

_LATEST = Order(False, 0, 0)
"""Order of the surviving record if only the offset matters."""

StatsProgress = Callable[[int, int], None]
"""Called with the bytes read and the total."""


class KeyStats(NamedTuple):
    """A key, and the number and uncompressed size of its records."""

    key: bytes
    records: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with `key`, or `key_base64` if it is not text."""
        return {**bytes_item("key", self.key), "records": self.records, "bytes": self.bytes}


class SegmentStats(NamedTuple):
    """A segment. `bytes` is the file size; all other sizes are of uncompressed records."""

    base_offset: int
    bytes: int
    batches: int
    records: int
    live_records: int
    dead_records: int
    record_bytes: int
    live_bytes: int


@dataclass(slots=True)
class Sizes:
    """A histogram of sizes by powers of two.

    Attributes
    ----------
    counts : list of int
        Item n counts sizes in [2^(n-1), 2^n); item 0 counts empty values.
    nulls : int
        Number of nulls.
    """

    counts: list[int] = field(default_factory=lambda: [0] * 33)
    nulls: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None

    def add(self, sizes: NDArray[np.int64]) -> None:
        """Count sizes. -1 means null."""
        there = sizes[sizes >= 0]
        self.nulls += len(sizes) - len(there)
        if not len(there):
            return
        exponents = np.frexp(there.astype(np.float64))[1]  # exact below 2^53
        for exponent, count in enumerate(np.bincount(exponents).tolist()):
            self.counts[exponent] += count
        self.total += int(there.sum())
        least, most = int(there.min()), int(there.max())
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    @property
    def count(self) -> int:
        """Number of sizes, excluding nulls."""
        return sum(self.counts)

    def histogram(self) -> Iterator[tuple[int, int, int]]:
        """Yield (minimum, maximum, count) from the first to the last non-empty range."""
        filled = [number for number, count in enumerate(self.counts) if count]
        if filled:
            for number in range(filled[0], filled[-1] + 1):
                least = 1 << number - 1 if number else 0
                yield least, max((1 << number) - 1, 0), self.counts[number]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "count": self.count,
            "nulls": self.nulls,
            "bytes": self.total,
            "min": self.least,
            "max": self.most,
            "histogram": [
                {"from": least, "to": most, "count": count}
                for least, most, count in self.histogram()
            ],
        }


@dataclass(slots=True)
class Tally:
    """Number of batches, records and bytes of one kind."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    record_bytes: int = 0

    def add(self, batches: int, records: int, size: int, record_bytes: int) -> None:
        """Add to the counts."""
        self.batches += batches
        self.records += records
        self.bytes += size
        self.record_bytes += record_bytes


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """The statistics of a partition, with the member names used in JSON.

    Attributes
    ----------
    records : int
        All records in the files, including control records and records below the log start. Equals
        `live_records` plus `dead_records`.
    bytes : int
        Size of the `.log` files.
    record_bytes, live_bytes : int
        Uncompressed size of all records and of live records.
    tombstones : int
        Committed records with a null value at or above the log start, including superseded ones.
        `dead["tombstone"]` counts the surviving tombstones.
    live_keys, distinct_keys : int
        Number of keys with a live record, and of all keys.
    top_keys, top_keys_by_bytes : tuple of KeyStats
        Top keys by records and by bytes. Ties are ordered by the survivor's offset.
    dead : mapping
        Number of dead records by reason (`DEAD`).
    codecs, producers, days : mapping
        Batches and records by codec, by producer id (-1 for none), and by day of the timestamp.
    headers : mapping
        Number of records by header name.
    passes : int
        Number of times the records were read.
    verdict : Verdict
        State of the partition, and bytes that cleaning would free.
    """

    topic: str
    partition: int
    records: int
    bytes: int
    live_records: int
    dead_records: int
    tombstones: int
    live_keys: int
    top_keys: tuple[KeyStats, ...]
    top_keys_by_bytes: tuple[KeyStats, ...]
    distinct_keys: int
    keyless_records: int
    batches: int
    record_bytes: int
    live_bytes: int
    dead: Mapping[str, int]
    segments: tuple[SegmentStats, ...]
    key_sizes: Sizes
    value_sizes: Sizes
    records_with_headers: int
    headers: Mapping[str, int]
    codecs: Mapping[str, Tally]
    producers: Mapping[int | str, Tally]
    days: Mapping[str, Tally]
    first_timestamp: int | None
    last_timestamp: int | None
    cleanup_policy: str
    damages: tuple[str, ...]
    assumed: tuple[str, ...]
    passes: int
    verdict: Verdict

    def _key_json(self, key: KeyStats) -> dict[str, Any]:
        """Return a key as JSON. Keys of internal topics are also decoded."""
        return key.to_json() | decoded_key_member(self.topic, key.key)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore stats`."""
        plain = (
            *("topic", "partition", "records", "bytes", "live_records", "dead_records"),
            *("tombstones", "live_keys"),
        )
        later = (
            *("distinct_keys", "keyless_records", "batches", "record_bytes", "live_bytes"),
            *("records_with_headers", "first_timestamp", "last_timestamp", "cleanup_policy"),
            *("damages", "assumed", "passes"),
        )
        return {
            **{name: getattr(self, name) for name in plain},
            "top_keys": list(map(self._key_json, self.top_keys)),
            "top_keys_by_bytes": list(map(self._key_json, self.top_keys_by_bytes)),
            **{name: getattr(self, name) for name in later},
            "dead": dict(self.dead),
            "segments": [segment._asdict() for segment in self.segments],
            "key_sizes": self.key_sizes.to_json(),
            "value_sizes": self.value_sizes.to_json(),
            "headers": [{"name": n, "records": c} for n, c in self.headers.items()],
            "codecs": [_tally_json("codec", name, each) for name, each in self.codecs.items()],
            "producers": [
                _tally_json("producer_id", name, each) for name, each in self.producers.items()
            ],
            "verdict": self.verdict.to_json(),
            "days": [_tally_json("day", name, each) for name, each in self.days.items()],
        }


def _tally_json(kind: str, name: object, tally: Tally) -> dict[str, Any]:
    item: dict[str, Any] = {kind: name, "batches": tally.batches, "records": tally.records}
    if kind == "day":
        del item["batches"]
    else:
        item["bytes"] = tally.bytes
    return item | {"record_bytes": tally.record_bytes}


# -- keys --------------------------------------------------------------------------------------


class _Key:
    """Counts for one key in the current range."""

    __slots__ = ("bytes", "has_value", "offset", "order", "records", "size")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.order: Order | None = None
        self.offset = -1  # offset of the current survivor, or of any record if none is committed
        self.size = 0
        self.has_value = False


class _Keys:
    """The keys in a range of hashes. The range shrinks if it contains too many keys."""

    def __init__(self, strategy: Strategy, first_hash: int, keys_max: int) -> None:
        self._strategy = strategy
        self._keys_max = keys_max
        self.first_hash = first_hash
        self.end_hash = _HASHES
        self.known: dict[bytes, _Key] = {}

    @property
    def room(self) -> int:
        """Number of records that can be added before the range must shrink."""
        return self._keys_max - len(self.known)

    def add(self, columns: RecordColumns, *, is_committed: bool) -> None:
        """Count the records of a group. Only committed records can be survivors."""
        strategy, known = self._strategy, self.known
        first, end = self.first_hash, self.end_hash
        is_whole = first == 0 and end == _HASHES
        has_versions = strategy.has_versions
        digest = xxhash.xxh3_128_digest
        raw = columns.data.tobytes()
        extents = columns.extents
        record_sizes = _record_sizes(columns)
        for row, (offset, timestamp, start, size, value_size, record_size) in enumerate(
            zip(
                columns.offsets.tolist(),
                columns.timestamps.tolist(),
                extents[:, kernels.EXTENT_KEY_START].tolist(),
                extents[:, kernels.EXTENT_KEY_SIZE].tolist(),
                extents[:, kernels.EXTENT_VALUE_SIZE].tolist(),
                record_sizes.tolist(),
                strict=True,
            )
        ):
            if size < 0:
                continue
            hashed = digest(raw[start : start + size])
            if not is_whole and not first <= int.from_bytes(hashed[:4], "big") < end:
                continue
            key = known.get(hashed)
            if key is None:
                key = known[hashed] = _Key()
            key.records += 1
            key.bytes += record_size
            if not is_committed:
                if key.offset < 0:
                    key.offset = offset
                continue
            if has_versions:
                order = strategy.order_of(offset, timestamp, columns.headers(row))
                if key.order is not None and order < key.order:
                    continue
                key.order = order
            else:
                key.order = _LATEST  # the later offset wins
            key.offset, key.size, key.has_value = offset, record_size, value_size >= 0
        if len(known) > self._keys_max:
            self._shrink()

    def _shrink(self) -> None:
        """Leave the upper half of the known hashes to the next pass."""
        hashes = sorted(int.from_bytes(hashed[:4], "big") for hashed in self.known)
        middle = hashes[len(hashes) // 2]
        if middle == hashes[0]:
            return  # all keys have the same hash
        self.end_hash = middle
        self.known = {
            hashed: key
            for hashed, key in self.known.items()
            if int.from_bytes(hashed[:4], "big") < middle
        }


def _record_sizes(columns: RecordColumns) -> NDArray[np.int64]:
    """Return the encoded size of each record, including its length field."""
    return columns.extents[:, kernels.EXTENT_END] - columns.extents[:, kernels.EXTENT_START]


class _Kind(NamedTuple):
    """The properties shared by batches that are counted together."""

    segment: int
    codec_id: int
    producer_id: int
    is_control: bool
    commit_state: str


class _Group(NamedTuple):
    """Batches of the same kind, and their records."""

    kind: _Kind
    batches: int
    size_bytes: int
    columns: RecordColumns


# -- counting ----------------------------------------------------------------------------------


class _Contents:
    """Counts of records and batches, excluding counts by key."""

    def __init__(self, bases: list[int]) -> None:
        self.bases = bases
        self.segments = [Tally() for _ in bases]
        self.live = [[0, 0] for _ in bases]
        self.dead = dict.fromkeys(DEAD, 0)
        self.total = Tally()
        self.keyless_records = 0
        self.tombstones = 0
        self.key_sizes, self.value_sizes = Sizes(), Sizes()
        self.records_with_headers = 0
        self.headers: Counter[str] = Counter()
        self.codecs: dict[str, Tally] = {}
        self.producers: dict[int | str, Tally] = {}
        self.days: dict[int, Tally] = {}
        self.first_timestamp: int | None = None
        self.last_timestamp: int | None = None

    def slot(self, offset: int) -> int:
        """Return the index of the segment that contains an offset."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def add_live(self, offset: int, records: int, size: int) -> None:
        """Count live records in a segment."""
        live = self.live[self.slot(offset)]
        live[0] += records
        live[1] += size

    def add(self, group: _Group, log_start_offset: int) -> None:
        """Count batches and their records. Live records with a key are counted later."""
        kind, columns = group.kind, group.columns
        count = len(columns)
        record_bytes = int(_record_sizes(columns).sum())
        codec = Codec(kind.codec_id).name.lower()
        producer: int | str = kind.producer_id
        if producer not in self.producers and len(self.producers) >= NAMES_MAX:
            producer = OTHERS
        for tally in (
            self.total,
            self.segments[kind.segment],
            self.codecs.setdefault(codec, Tally()),
            self.producers.setdefault(producer, Tally()),
        ):
            tally.add(group.batches, count, group.size_bytes, record_bytes)
        sizes = _record_sizes(columns)[columns.offsets >= log_start_offset]
        visible = columns.between(log_start_offset)
        self.dead["below_log_start"] += count - len(visible)
        if kind.is_control:
            self.dead["control"] += len(visible)
        elif len(visible):
            self._add_data(visible, sizes, kind.commit_state)

    def _add_data(
        self, columns: RecordColumns, sizes: NDArray[np.int64], commit_state: str
    ) -> None:
        """Count data records that are visible to consumers."""
        keys, values = columns.keys, columns.values
        self.key_sizes.add(keys.sizes.astype(np.int64))
        self.value_sizes.add(values.sizes.astype(np.int64))
        self._add_times(columns, sizes)
        self._add_headers(columns)
        keyless = keys.sizes < 0
        count = int(keyless.sum())
        self.keyless_records += count
        if commit_state != COMMITTED:
            self.dead[commit_state] += len(columns)
            return
        self.tombstones += int((values.sizes < 0).sum())
        self.dead["superseded"] += len(columns) - count  # corrected by `add_survivors`
        if count:
            self.add_live(int(columns.offsets[0]), count, int(sizes[keyless].sum()))

    def add_survivors(self, keys: Iterable[_Key]) -> int:
        """Count the survivors of keys. Return how many have a value."""
        live = 0
        for key in keys:
            if key.order is None:
                continue  # no record is committed
            self.dead["superseded"] -= 1
            if key.has_value:
                live += 1
                self.add_live(key.offset, 1, key.size)
            else:
                self.dead["tombstone"] += 1
        return live

    def _add_times(self, columns: RecordColumns, sizes: NDArray[np.int64]) -> None:
        times = columns.timestamps
        there = times >= 0
        if not there.any():
            return
        days, places = np.unique(times[there] // DAY_MS, return_inverse=True)
        counts = np.bincount(places)
        weights = np.zeros(len(days), np.int64)
        np.add.at(weights, places, sizes[there])
        for day, count, weight in zip(
            days.tolist(), counts.tolist(), weights.tolist(), strict=True
        ):
            self.days.setdefault(day, Tally()).add(0, count, 0, weight)
        first, last = int(times[there].min()), int(times.max())
        if self.first_timestamp is None or first < self.first_timestamp:
            self.first_timestamp = first
        if self.last_timestamp is None or last > self.last_timestamp:
            self.last_timestamp = last

    def _add_headers(self, columns: RecordColumns) -> None:
        extents = columns.extents
        has = extents[:, kernels.EXTENT_END] - extents[:, kernels.EXTENT_HEADERS] > 1
        for row in has.nonzero()[0].tolist():
            self.records_with_headers += 1
            for name in dict.fromkeys(name for name, _ in columns.headers(row)):
                known = name in self.headers or len(self.headers) < NAMES_MAX
                self.headers[name if known else OTHERS] += 1


def partition_stats(
    broker: Cleaned,
    topic_partition: TopicPartition,
    *,
    top: int = 10,
    progress: StatsProgress | None = None,
    dry_run_progress: ProgressListener | None = None,
    keys_max: int = KEYS_MAX,
) -> PartitionStats:
    """Compute the statistics of a partition.

    Parameters
    ----------
    top : int
        Number of top keys, both by records and by bytes.
    progress : callable, optional
        Called before each batch with the number of bytes read in all passes.
    dry_run_progress : callable, optional
        Called before each chunk of the verdict's dry runs.
    keys_max : int
        Maximum number of keys counted at once.

    Notes
    -----
    Damage is skipped and reported. Takes a few µs per record.
    """
    view = PartitionView(broker, topic_partition)
    strategy = Strategy.of(view.log.config)
    contents = _Contents([segment.base_offset for segment in view.log.segments])
    by_records: list[_Rank] = []
    by_bytes: list[_Rank] = []
    first_hash = passes = live_keys = distinct = 0
    committed, end_offset = CommittedData(view.log), view.log.log_end_offset
    while first_hash < _HASHES:
        keys = _Keys(strategy, first_hash, keys_max)
        for group in _groups(view, end_offset, committed, contents, keys, progress):
            if passes == 0:
                contents.add(group, view.log.log_start_offset)
            if not group.kind.is_control:
                visible = group.columns.between(view.log.log_start_offset)
                keys.add(visible, is_committed=group.kind.commit_state == COMMITTED)
        distinct += len(keys.known)
        live_keys += contents.add_survivors(keys.known.values())
        known = keys.known.values()
        ranks = (_Rank(key.records, key.bytes, -key.offset, key) for key in known)
        by_records = nlargest(top, (*by_records, *nlargest(top, ranks)))
        ranks = (_Rank(key.bytes, key.records, -key.offset, key) for key in known)
        by_bytes = nlargest(top, (*by_bytes, *nlargest(top, ranks)))
        first_hash = keys.end_hash
        passes += 1
    return _build_stats(
        broker,
        view,
        dry_run_progress,
        contents,
        _key_stats(view, by_records),
        _key_stats(view, by_bytes),
        live_keys,
        distinct,
        passes,
    )


class _Rank(NamedTuple):
    """The sort key of a record key. Ties are ordered by the offset of a record."""

    first: int
    second: int
    earliness: int
    key: _Key


def _groups(
    view: PartitionView,
    end_offset: int,
    committed: CommittedData,
    contents: _Contents,
    keys: _Keys,
    progress: StatsProgress | None,
) -> Iterator[_Group]:
    """Yield the batches below an offset with their records. Small batches are combined.

    A group of several batches never causes the range of `keys` to shrink.
    """
    log = view.log
    done, total = 0, log.size_bytes
    kind: _Kind | None = None
    parts: list[RecordColumns] = []
    records = record_bytes = size_bytes = 0
    start = log.segments.first.base_offset
    for stored, columns in view.decoded(stored_columns, start, end_offset):
        if progress is not None:
            progress(done, total)
            done += stored.size_bytes
        header = stored.batch.header
        own = _Kind(
            contents.slot(header.base_offset),
            header.codec_id,
            header.producer_id,
            header.is_control,
            committed.state_of(header),
        )
        if kind is not None and (
            own != kind
            or records + len(columns) > min(GROUP_RECORDS, keys.room)
            or record_bytes + columns.data.nbytes > GROUP_BYTES
        ):
            yield _Group(kind, len(parts), size_bytes, join_columns(parts))
            parts, records, record_bytes, size_bytes = [], 0, 0, 0
        kind = own
        parts.append(columns)
        records += len(columns)
        record_bytes += columns.data.nbytes
        size_bytes += stored.size_bytes
    if kind is not None:
        yield _Group(kind, len(parts), size_bytes, join_columns(parts))


def _key_stats(view: PartitionView, ranks: Iterable[_Rank]) -> tuple[KeyStats, ...]:
    """Return statistics of ranked keys. Reads a record of each, because only hashes are known."""
    stats = []
    for rank in ranks:
        at = view.at(rank.key.offset)
        assert at is not None, "the record was counted"
        stats.append(KeyStats(at[1].key or b"", rank.key.records, rank.key.bytes))
    return tuple(stats)


def _build_stats(
    broker: Cleaned,
    view: PartitionView,
    dry_run_progress: ProgressListener | None,
    contents: _Contents,
    top_keys: tuple[KeyStats, ...],
    top_keys_by_bytes: tuple[KeyStats, ...],
    live_keys: int,
    distinct_keys: int,
    passes: int,
) -> PartitionStats:
    log, tp = view.log, view.topic_partition
    sizes = {segment.base_offset: segment.size_bytes for segment in log.segments}
    segments = tuple(
        SegmentStats(
            base,
            sizes.get(base, 0),
            tally.batches,
            tally.records,
            live,
            tally.records - live,
            tally.record_bytes,
            live_bytes,
        )
        for base, tally, (live, live_bytes) in zip(
            contents.bases, contents.segments, contents.live, strict=True
        )
    )
    return PartitionStats(
        topic=tp.topic,
        partition=tp.partition,
        records=contents.total.records,
        bytes=log.size_bytes,
        live_records=sum(segment.live_records for segment in segments),
        dead_records=sum(contents.dead.values()),
        tombstones=contents.tombstones,
        live_keys=live_keys,
        top_keys=top_keys,
        top_keys_by_bytes=top_keys_by_bytes,
        distinct_keys=distinct_keys,
        keyless_records=contents.keyless_records,
        batches=contents.total.batches,
        record_bytes=contents.total.record_bytes,
        live_bytes=sum(segment.live_bytes for segment in segments),
        dead=contents.dead,
        segments=segments,
        key_sizes=contents.key_sizes,
        value_sizes=contents.value_sizes,
        records_with_headers=contents.records_with_headers,
        headers=dict(contents.headers.most_common()),
        codecs=contents.codecs,
        producers=dict(
            sorted(contents.producers.items(), key=lambda item: (-item[1].records, str(item[0])))
        ),
        days={_day(day): contents.days[day] for day in sorted(contents.days)},
        first_timestamp=contents.first_timestamp,
        last_timestamp=contents.last_timestamp,
        cleanup_policy=",".join(log.config.cleanup_policy),
        damages=tuple(map(str, view.damages)),
        assumed=assumptions(broker.manager, tp),
        passes=passes,
        verdict=replace(
            partition_verdict(broker, tp, exact=True, progress=dry_run_progress), examined=RECORDS
        ),
    )


def _day(day: int) -> str:
    """Format a day since 1970 as a date, or as a number if out of range."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
    except OverflowError:
        return str(day)
