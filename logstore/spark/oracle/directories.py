"""Verify a data directory after cleaning against a copy from before cleaning.

The end of each cleaned range is read from the cleaner checkpoint after cleaning. Everything else is
derived from the records and the topic configs.
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
from logstore.spark.oracle.verify import EXAMPLES, Cleaned, Rules, StartState, Verdict, verify
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
"""Rules that may be unproven."""


class _Partition(NamedTuple):
    """A partition in a data directory.

    Attributes
    ----------
    log_start_offset, log_end_offset : int
        Offset range of the log. The end is exclusive.
    base_offset : int
        Base offset of the first segment. Retention sets the log start offset to it, while
        delete-records may set any offset.
    first_dirty_offset : int or None
        Entry in the cleaner checkpoint, or None if there is none.
    config : LogConfig
        Effective configuration of the topic.
    adopted : bool
        Whether the directory has no config for the topic.
    """

    log_start_offset: int
    log_end_offset: int
    base_offset: int
    first_dirty_offset: int | None
    config: LogConfig
    adopted: bool

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The cleaning pass to verify, as described by the caller."""

    strategy: str | None
    header: str | None
    encoding: str | None
    since_ms: int | None
    now_ms: int | None
    forced: bool

    @property
    def checks_lags(self) -> bool:
        """Whether compaction lags can be checked."""
        return self.now_ms is not None and not self.forced

    def rules(self, config: LogConfig) -> Rules:
        """Return the rules of a topic. Values given by the caller override the topic config."""
        strategy = self.strategy or config.compaction_strategy or OFFSET
        header = self.header or config.compaction_strategy_header.strip()
        if strategy == HEADER and not header and self.strategy is None:
            strategy = OFFSET  # KIP-280
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
            min_compaction_lag_ms=config.min_compaction_lag_ms if self.checks_lags else 0,
            max_compaction_lag_ms=max_lag if self.checks_lags and max_lag < INT64_MAX else None,
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
    """Verify a data directory after cleaning against a copy from before cleaning.

    Parameters
    ----------
    before, after : path or sequence of paths
        Data directory, or all data directories of a broker. Opened read-only.
    strategy, header, encoding : str, optional
        Compaction strategy and version header. [default: the topic config in `after` or, if only
        that has one, in `before`]
    topic, partition : str, int, optional
        Topic and partition to verify. [default: all]
    since_ms, now_ms : int, optional
        Start times of the first and last cleaning pass, in Unix milliseconds. With only `now_ms`,
        there was one pass. With neither, tombstones without a delete horizon are accepted either
        way, tombstones with a horizon must exist until the system clock reaches it, and lags are
        not checked.
    forced : bool
        Whether the pass ignored compaction lags, in which case they are not checked.
    require_cleaned : bool
        Whether it is a violation if a partition of a compacted topic was never cleaned.
    broker_config : mapping or BrokerConfig, optional
        Topic defaults in effect during the cleaning pass.
    examples : int
        Maximum number of examples per kind of violation.

    Returns
    -------
    Verdict
        Rules that could not be checked are in `unproven`, with reasons in `notes`.

    Raises
    ------
    InvalidConfigurationError
        A directory does not exist, `before` has no partitions, or the rules of a topic contradict
        each other.
    UnknownTopicOrPartitionError
        `before` does not have the topic or partition.
    KafkaStorageError, CorruptRecordError
        The disk failed, or a batch is damaged.

    Notes
    -----
    A partition without an entry in the cleaner checkpoint of `after` was not cleaned and must be
    unchanged. If the entry is the same as before, a pass may have rewritten the partition to remove
    expired tombstones. If the policy of a topic includes `delete`, retention and delete-records may
    have removed records below the log start of either side. These are only counted. However, if
    `now_ms` is given and only retention by age can have moved the log start (it is the base offset
    of a segment, and `retention.bytes` is not set), none of them may be younger than
    `retention.ms`.
    """
    request = _Request(
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
    rules = _rules(old, new, request)
    if (header or encoding) and rules and all(r.strategy != HEADER for r in rules.values()):
        raise InvalidConfigurationError(
            "header and encoding have no effect: no topic is compacted by header; set strategy "
            "'header'"
        )
    wrong = _wrong_partitions(old, new)
    if require_cleaned:
        wrong["not_cleaned"] = [
            tp
            for tp in _uncleaned_partitions(old, new)
            if old[tp].config.compact or new[tp].config.compact
        ]
    facts = Verdict(
        {kind: len(partitions) for kind, partitions in wrong.items()},
        [example(kind, *tp, None) for kind, partitions in wrong.items() for tp in partitions],
        records_before=0,
        records_after=0,
        notes=tuple(_notes(request, old, new)),
        unproven=tuple(_unproven(request, old, new)),
    )
    verdicts = [facts]
    if rules:
        by_header = any(rule.strategy == HEADER for rule in rules.values())
        columns = (*_COMPARED, *(["headers"] if by_header else []))
        cleaned = {tuple(tp): _cleaned(old[tp], new[tp], request) for tp in rules}
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
    return Verdict.of(verdicts, examples=examples)


# --- partitions and rules -----------------------------------------------------------------------


def _partitions(
    paths: Sequence[str],
    broker_config: Mapping[str, object] | BrokerConfig | None,
    topic: str | None,
    partition: int | None,
) -> dict[TopicPartition, _Partition]:
    """Return the partitions that have a directory in the data directories."""
    with Broker(list(paths), broker_config=broker_config, read_only=True) as broker:
        manager = broker.manager
        for directory in manager.directories:
            directory.check_online()
        existing = {tp for directory in manager.directories for tp in directory.partitions}
        partitions = {}
        for tp in broker.partitions(topic, partition):
            if tp not in existing:
                continue
            log = broker.log(*tp)
            partitions[tp] = _Partition(
                log.log_start_offset,
                log.log_end_offset,
                log.segments.first.base_offset,
                manager.registry.directory_of(tp).cleaner_offset(tp),
                manager.catalog.config(tp.topic),
                broker.topic(tp.topic).adopted,
            )
        return partitions


def _rules(
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
    request: _Request,
) -> dict[TopicPartition, Rules]:
    """Return the rules of partitions that exist on both sides and are not empty on both."""
    rules = {}
    of_topic: dict[str, Rules] = {}
    for tp in sorted(old.keys() & new.keys()):
        if old[tp].is_empty and new[tp].is_empty:
            continue
        if tp.topic not in of_topic:
            source = old[tp] if new[tp].adopted else new[tp]
            of_topic[tp.topic] = request.rules(source.config)
        rules[tp] = of_topic[tp.topic]
    return rules


def _begin(old: _Partition) -> StartState:
    """Return the state before cleaning. A checkpoint outside the log is ignored."""
    dirty = old.first_dirty_offset
    if dirty is None or not old.log_start_offset <= dirty <= old.log_end_offset:
        dirty = old.log_start_offset
    return StartState(old.log_start_offset, dirty)


def _cleaned(old: _Partition, new: _Partition, request: _Request) -> Cleaned:
    start, retention_ms = _start(old, new), None
    if start > old.log_start_offset and request.now_ms is not None and _is_by_age(new):
        retention_ms = new.config.retention_ms if new.config.retention_ms >= 0 else INT64_MAX
    end = min(new.first_dirty_offset or 0, old.log_end_offset)
    return Cleaned(start, end, old.log_end_offset, retention_ms)


def _start(old: _Partition, new: _Partition) -> int:
    """Return the offset at which the comparison starts."""
    if old.config.delete or new.config.delete:
        # Only this policy permits retention and delete-records to move the log start.
        return max(old.log_start_offset, new.log_start_offset)
    return old.log_start_offset


def _is_by_age(new: _Partition) -> bool:
    """Return whether only retention by age can have moved the log start."""
    return new.config.retention_bytes < 0 and new.log_start_offset == new.base_offset


def _wrong_partitions(
    old: Mapping[TopicPartition, _Partition], new: Mapping[TopicPartition, _Partition]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that exist on only one side, unless their log end offset is 0."""
    return {
        "partition_lost": [tp for tp in old if tp not in new and old[tp].log_end_offset],
        "partition_invented": [tp for tp in new if tp not in old and new[tp].log_end_offset],
    }


def _uncleaned_partitions(
    old: Mapping[TopicPartition, _Partition], new: Mapping[TopicPartition, _Partition]
) -> list[TopicPartition]:
    both = [tp for tp in sorted(old) if tp in new and not old[tp].is_empty]
    return [tp for tp in both if not new[tp].first_dirty_offset]


def _unproven(
    request: _Request,
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
) -> Iterable[str]:
    if request.now_ms is None:
        yield TOMBSTONES
    both = [new[tp].config for tp in old.keys() & new.keys()]
    if not request.checks_lags and any(
        config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < INT64_MAX
        for config in both
    ):
        yield LAGS
    if any(request.now_ms is None or not _is_by_age(new[tp]) for tp in _shortened(old, new)):
        yield RETENTION


def _shortened(
    old: Mapping[TopicPartition, _Partition], new: Mapping[TopicPartition, _Partition]
) -> list[TopicPartition]:
    """Return the partitions whose log start moved as permitted by their policy."""
    both = sorted(old.keys() & new.keys())
    return [tp for tp in both if _start(old[tp], new[tp]) > old[tp].log_start_offset]


def _notes(
    request: _Request,
    old: Mapping[TopicPartition, _Partition],
    new: Mapping[TopicPartition, _Partition],
) -> Iterable[str]:
    never_cleaned = _uncleaned_partitions(old, new)
    if never_cleaned:
        yield f"never cleaned, expected to be unchanged: {_listed(never_cleaned)}"
    if request.now_ms is None:
        yield (
            "the time of the pass is unknown: tombstones without a delete horizon are accepted"
            " either way, and lags are not checked"
        )
    if shortened := _shortened(old, new):
        yield f"the log start moved, records below it are only counted: {_listed(shortened)}"


def _listed(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:10])) + (", …" if len(partitions) > 10 else "")


def _options(
    partitions: Iterable[TopicPartition], columns: Iterable[str], **options: str
) -> dict[str, str]:
    """Return data source options that select partitions and columns."""
    assigned = defaultdict(list)
    for tp in partitions:
        assigned[tp.topic].append(tp.partition)
    return {"assign": json.dumps(assigned), "columns": ",".join(columns), **options}
