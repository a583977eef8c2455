"""Two data directories, before and after cleaning: everything the oracle needs is found in them.

How far each partition was cleaned is what the cleaner wrote down, in the checkpoint of the
directory after. All else is judged from the records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from logstore.broker import Broker
from logstore.broker.setup import resolve_data_dirs
from logstore.config.log_config import LogConfig
from logstore.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from logstore.runtime import SystemClock
from logstore.spark.oracle.kinds import example
from logstore.spark.oracle.scan import scan, scan_folded, scan_in_order
from logstore.spark.oracle.verify import EXAMPLES, Begin, Cleaned, Rules, Verdict, verify
from logstore.spark.oracle.versions import HEADER, OFFSET
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logstore.config.broker_config import BrokerConfig

Directories = str | PathLike[str] | Sequence[str | PathLike[str]]

_ORDER_COLUMNS = ("topic", "partition", "offset")
_COMPARED = (
    *_ORDER_COLUMNS,
    *("key", "timestamp", "timestampType"),
    *("aborted", "deleteHorizonMs", "valueDigest", "headersDigest"),
)

TOMBSTONES, LAGS, RETENTION = "tombstones", "lags", "retention"
"""Things that a verdict may have to leave unproven."""


class _Partition(NamedTuple):
    """A partition as it lies in a directory.

    Attributes
    ----------
    log_start_offset, log_end_offset : int
        The latter is exclusive.
    base_offset : int
        Of the first segment. Retention lets the log start there; delete-records need not.
    first_dirty_offset : int or None
        What the cleaner's checkpoint says; None if nothing.
    config : LogConfig
        In force for its topic.
    adopted : bool
        The directory has no configuration for the topic.
    """

    log_start_offset: int
    log_end_offset: int
    base_offset: int
    first_dirty_offset: int | None
    config: LogConfig
    adopted: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is no record to look at."""
        return self.log_start_offset == self.log_end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The cleaning, as the caller tells of it."""

    strategy: str | None
    header: str | None
    encoding: str | None
    since_ms: int | None
    now_ms: int | None
    forced: bool

    @property
    def judges_lags(self) -> bool:
        """Whether anything is known of when which records had to go."""
        return self.now_ms is not None and not self.forced

    def rules(self, config: LogConfig) -> Rules:
        """Return the rules of a topic; what was said goes before what it says."""
        strategy = self.strategy or config.compaction_strategy or OFFSET
        header = self.header or config.compaction_strategy_header.strip()
        if strategy == HEADER and not header and self.strategy is None:
            strategy = OFFSET  # as KIP-280 has it
        since_ms, now_ms = self.since_ms, self.now_ms
        if now_ms is None:
            now_ms = SystemClock().now_ms()
        elif since_ms is None:
            since_ms = now_ms
        max_lag = config.max_compaction_lag_ms
        return Rules(
            strategy=strategy,
            header=header if strategy == HEADER else "",
            encoding=self.encoding or config.logstore_compaction_strategy_header_encoding,
            since_ms=since_ms,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            min_compaction_lag_ms=config.min_compaction_lag_ms if self.judges_lags else 0,
            max_compaction_lag_ms=max_lag if self.judges_lags and max_lag < INT64_MAX else None,
        )


def verify_directories(
    spark: SparkSession,
    before: Directories,
    after: Directories,
    *,
    strategy: str | None = None,
    header: str | None = None,
    encoding: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    since_ms: int | None = None,
    now_ms: int | None = None,
    forced: bool = False,
    require_cleaned: bool = False,
    broker_config: Mapping[str, object] | BrokerConfig | None = None,
    examples: int = EXAMPLES,
) -> Verdict:
    """Compare a data directory with what must follow from the one it was cleaned from.

    Parameters
    ----------
    before, after : path or sequence of paths
        The data directory, or all those of one broker. Both are opened read-only.
    strategy, header, encoding : str, optional
        By which records were to survive; by default what each topic says in `after`, or in
        `before` if it is configured there only.
    topic, partition : str, int, optional
        Only these; everything by default.
    since_ms, now_ms : int, optional
        When the first and the last cleaning in between began, in Unix ms. With `now_ms` alone there
        was one. With neither, a tombstone without a delete horizon may be there or not, one with a
        horizon must be there until the system clock reaches it, and lags are not judged.
    forced : bool
        The cleaning was told to heed no lag, so they are not judged.
    require_cleaned : bool
        Count partitions of compacted topics that no cleaning has touched as violations.
    broker_config : mapping or BrokerConfig, optional
        Gives topics their defaults, as it did when they were cleaned.
    examples : int
        Of each kind of violation, at most.

    Returns
    -------
    Verdict
        Its notes say what could not be judged, and `unproven` names it.

    Raises
    ------
    InvalidConfigurationError
        A directory does not exist or `before` holds no partition; a topic's rules are
        contradictory.
    UnknownTopicOrPartitionError
        `before` does not have it.
    KafkaStorageError, CorruptRecordError
        The disk failed, or a batch is damaged.

    Notes
    -----
    A partition without an entry in the cleaner's checkpoint of `after` was not cleaned: nothing
    may have changed. One whose entry is where it was may have been rewritten, so that expired
    tombstones went. Of a topic whose policy has `delete`, records below the log start of either
    side are counted, no more: retention and delete-records may take them. Where retention by age
    alone can have moved it (the log starts with a segment, `retention.bytes` is not set) and
    `now_ms` is given, none of them may be younger than `retention.ms`.
    """
    asked = _Asked(
        strategy=strategy,
        header=header,
        encoding=encoding,
        since_ms=since_ms,
        now_ms=now_ms,
        forced=forced,
    )
    paths = (
        resolve_data_dirs(before, absolute=False),
        resolve_data_dirs(after, absolute=False),
    )
    old = _partitions(paths[0], broker_config, topic, partition)
    if not any(old.values()):
        raise InvalidConfigurationError(f"{', '.join(paths[0])}: no partition to compare with")
    try:
        new = _partitions(paths[1], broker_config, topic, partition)
    except UnknownTopicOrPartitionError:
        new = {}
    verdicts = [_missing(old, new, examples)]
    rules = _rules(old, new, asked)
    if (header or encoding) and rules and all(r.strategy != HEADER for r in rules.values()):
        raise InvalidConfigurationError(
            "a version header counts for nothing: no topic is compacted by header; "
            "strategy 'header' asks for it"
        )
    if require_cleaned:
        verdicts.append(_untouched(old, new, examples))
    if rules:
        by_header = any(rule.strategy == HEADER for rule in rules.values())
        columns = (*_COMPARED, *(["headers"] if by_header else []))
        cleaned = {tuple(tp): _cleaned(old[tp], new[tp], asked) for tp in rules}
        by_offset = {
            tuple(tp): (cleaned[tuple(tp)].log_start_offset, cleaned[tuple(tp)].end_offset)
            for tp, rule in rules.items()
            if rule.strategy == OFFSET
        }
        verdicts.append(
            verify(
                scan(spark, paths[0], _options(rules, columns)),
                scan_in_order(spark, paths[1], _options(rules, _COMPARED, order="stored")),
                {tuple(tp): rule for tp, rule in rules.items()},
                cleaned,
                begun={tuple(tp): _begin(old[tp]) for tp in rules},
                order=scan(spark, paths[1], _options(rules, _ORDER_COLUMNS, order="stored")),
                folded=scan_folded(spark, paths[0], _options(rules, columns), by_offset),
                examples=examples,
            )
        )
    unproven = tuple(_unproven(asked, old, new))
    verdicts.append(Verdict({}, [], 0, 0, tuple(_notes(asked, old, new)), 0, unproven))
    return Verdict.of(verdicts, examples=examples)


# --- what lies there ----------------------------------------------------------------------------


def _partitions(
    paths: Sequence[str],
    broker_config: Mapping[str, object] | BrokerConfig | None,
    topic: str | None,
    partition: int | None,
) -> dict[TopicPartition, _Partition]:
    """Return the partitions that have a folder."""
    with Broker(list(paths), broker_config=broker_config, read_only=True) as broker:
        manager = broker.manager
        for directory in manager.directories:
            directory.check_online()
        there = {tp for directory in manager.directories for tp in directory.partitions}
        found = {}
        for tp in broker.partitions(topic, partition):
            if tp not in there:
                continue
            log = broker.log(*tp)
            found[tp] = _Partition(
                log.log_start_offset,
                log.log_end_offset,
                log.segments.first.base_offset,
                manager.registry.directory_of(tp).cleaner_offset(tp),
                manager.catalog.config(tp.topic),
                broker.topic(tp.topic).adopted,
            )
        return found


def _rules(
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
    asked: _Asked,
) -> dict[TopicPartition, Rules]:
    """Return the rules of the partitions that are on both sides and not empty on both."""
    found = {}
    of_topic: dict[str, Rules] = {}
    for tp in sorted(old.keys() & new.keys()):
        if old[tp].is_empty and new[tp].is_empty:
            continue
        if tp.topic not in of_topic:
            source = old[tp] if new[tp].adopted and not old[tp].adopted else new[tp]
            of_topic[tp.topic] = asked.rules(source.config)
        found[tp] = of_topic[tp.topic]
    return found


def _begin(old: _Partition) -> Begin:
    """Return where a cleaning had to begin; a checkpoint outside the log counts for nothing."""
    dirty = old.first_dirty_offset
    if dirty is None or not old.log_start_offset <= dirty <= old.log_end_offset:
        dirty = old.log_start_offset
    return Begin(old.log_start_offset, dirty)


def _cleaned(old: _Partition, new: _Partition, asked: _Asked) -> Cleaned:
    start, retention_ms = _start(old, new), None
    if start > old.log_start_offset and asked.now_ms is not None and _is_by_age(new):
        retention_ms = new.config.retention_ms if new.config.retention_ms >= 0 else INT64_MAX
    end = min(new.first_dirty_offset or 0, old.log_end_offset)
    return Cleaned(start, end, old.log_end_offset, retention_ms)


def _start(old: _Partition, new: _Partition) -> int:
    """Return from where on both sides are compared."""
    if old.config.delete or new.config.delete:
        # Retention and delete-records may take what lies at the front; nobody else.
        return max(old.log_start_offset, new.log_start_offset)
    return old.log_start_offset


def _is_by_age(new: _Partition) -> bool:
    """Tell whether nothing but the age of records can have moved the log start."""
    return new.config.retention_bytes < 0 and new.log_start_offset == new.base_offset


def _missing(
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
    examples: int,
) -> Verdict:
    """Tell of partitions that only one side has; those in which nothing ever was do not count."""
    counts, shown = {}, []
    for kind, places in (
        ("partition_lost", [tp for tp in old if tp not in new and old[tp].log_end_offset]),
        ("partition_invented", [tp for tp in new if tp not in old and new[tp].log_end_offset]),
    ):
        if places:
            counts[kind] = len(places)
            shown += [example(kind, *tp, None) for tp in sorted(places)[:examples]]
    return Verdict(counts, shown, 0, 0)


def _untouched_places(
    old: Mapping[TopicPartition, _Partition], new: Mapping[TopicPartition, _Partition]
) -> list[TopicPartition]:
    both = [tp for tp in sorted(old) if tp in new and not old[tp].is_empty]
    return [tp for tp in both if not new[tp].first_dirty_offset]


def _untouched(
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
    examples: int,
) -> Verdict:
    """Tell of partitions of compacted topics that were never cleaned."""
    places = [
        tp for tp in _untouched_places(old, new) if old[tp].config.compact or new[tp].config.compact
    ]
    counts = {"not_cleaned": len(places)} if places else {}
    return Verdict(counts, [example("not_cleaned", *tp, None) for tp in places[:examples]], 0, 0)


def _unproven(
    asked: _Asked,
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
) -> Iterable[str]:
    if asked.now_ms is None:
        yield TOMBSTONES
    both = [new[tp].config for tp in old.keys() & new.keys()]
    if not asked.judges_lags and any(
        config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < INT64_MAX
        for config in both
    ):
        yield LAGS
    if any(asked.now_ms is None or not _is_by_age(new[tp]) for tp in _shortened(old, new)):
        yield RETENTION


def _shortened(
    old: Mapping[TopicPartition, _Partition], new: Mapping[TopicPartition, _Partition]
) -> list[TopicPartition]:
    """Return the partitions whose log start moved, as their policy lets it."""
    both = sorted(old.keys() & new.keys())
    return [tp for tp in both if _start(old[tp], new[tp]) > old[tp].log_start_offset]


def _notes(
    asked: _Asked,
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
) -> Iterable[str]:
    untouched = _untouched_places(old, new)
    if untouched:
        yield f"never cleaned, and so compared record by record: {_named(untouched)}"
    if asked.now_ms is None:
        yield (
            "it is not known when the cleaning ran: tombstones without a delete horizon may be"
            " there or not, and lags are not judged"
        )
    if shortened := _shortened(old, new):
        yield f"the log start moved, so that what lies below is only counted: {_named(shortened)}"


def _named(places: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, places[:10])) + (", …" if len(places) > 10 else "")


def _options(
    places: Iterable[TopicPartition], columns: Iterable[str], **options: str
) -> dict[str, str]:
    """Return the data source's options for some partitions."""
    assigned = defaultdict(list)
    for tp in places:
        assigned[tp.topic].append(tp.partition)
    return {"assign": json.dumps(assigned), "columns": ",".join(columns), **options}
