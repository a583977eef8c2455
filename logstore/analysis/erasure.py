"""Find all locations of a key, and when each of them can be removed.

Files are read as they are, including files that no longer belong to a log. Removal times are
determined by running the engine on a copy (`simulation`) rather than by evaluating rules. The
earliest time assumes appends that make passes due; the latest time assumes no appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from logstore.analysis.assumptions import assumptions
from logstore.analysis.committed import (
    ABORTED,
    COMMITTED,
    OPEN_TRANSACTION,
    UNSTABLE,
    CommittedData,
)
from logstore.analysis.log_simulation import (
    Cause,
    LogSimulation,
    TransactionEnd,
    WatchedRemovals,
    watch_removals,
)
from logstore.analysis.view import HasLogs
from logstore.cleaner.strategy import Strategy
from logstore.coordinator.host import CoordinatorHost
from logstore.coordinator.transactions.log import TransactionLog
from logstore.errors import CorruptionError, InvalidRecordError, LogStoreError
from logstore.names import (
    CLEANED_SUFFIX,
    DELETE_DIR_SUFFIX,
    DELETED_SUFFIX,
    LOCK_FILE,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_log_dir,
    parse_segment_file,
)
from logstore.reasons import Reason, reasons_json, text_of
from logstore.record import layout
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.record.header import BatchHeader
from logstore.record.json_text import bytes_item
from logstore.record.search import find_batch, is_plausible
from logstore.record.varint import encode_varint
from logstore.runtime import FileKind, OverlayFileSystem
from logstore.types import INT32_MAX, INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.cleaner.strategy import Order
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.coordinator.transactions.state import TransactionMetadata
    from logstore.runtime import Clock, File, FileSystem
    from logstore.storage.log.log import Log

LIVE = "live"
TOMBSTONE = "tombstone"
SUPERSEDED = "superseded"
BELOW_LOG_START = "below_log_start"
DELETED = "deleted"
SWAP = "swap"
CLEANED = "cleaned"
TORN_TAIL = "torn_tail"
DAMAGED = "damaged"
UNREADABLE = "unreadable"
DELETED_PARTITION = "deleted_partition"
FOREIGN = "foreign"

STATES = (
    LIVE,
    TOMBSTONE,
    SUPERSEDED,
    ABORTED,
    OPEN_TRANSACTION,
    UNSTABLE,
    BELOW_LOG_START,
    DELETED,
    SWAP,
    CLEANED,
    TORN_TAIL,
    DAMAGED,
    UNREADABLE,
    DELETED_PARTITION,
    FOREIGN,
)
"""States of locations. The reason `location.STATE` explains each."""

IN_THE_LOG = (LIVE, TOMBSTONE, SUPERSEDED, ABORTED, OPEN_TRANSACTION, UNSTABLE, BELOW_LOG_START)
_STATES_BY_SUFFIX = {DELETED_SUFFIX: DELETED, SWAP_SUFFIX: SWAP, CLEANED_SUFFIX: CLEANED}
_BLOCK = 1 << 20

ErasureProgress = Callable[[str, int, int], None]
"""Called with a task, the bytes done, and the total."""


class Erasable(HasLogs, Protocol):
    """The parts of a broker that are needed here."""

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""


def rule_json(reasons: Sequence[Reason]) -> dict[str, Any]:
    """Return the reasons of a location as JSON, with the rule as a separate member."""
    rule = reasons[1]
    return {
        "rule": text_of(reasons),
        "code": rule.code,
        "values": dict(rule.values),
        "reasons": reasons_json(reasons),
    }


class ErasurePlace(NamedTuple):
    """A location of a key.

    Attributes
    ----------
    position : int
        Position of the batch or, outside a valid batch, of the key itself.
    offset : int or None
        Offset of the record, or None outside a valid batch.
    state : str
        One of `STATES`.
    earliest_ms : int or None
        Earliest removal, in Unix milliseconds. Until then, a broker with the current config retains
        the bytes, regardless of appends for other keys. None if removal requires an event named in
        `reasons`.
    latest_ms : int or None
        Latest removal, in Unix milliseconds, if a broker runs from now on without appends, performs
        checks as late as its intervals permit, and deletes files `file.delete.delay.ms` after
        renaming them. None if removal requires an event.
    reasons : tuple of Reason
        Explanation of the state, of the rule that removes the bytes, and of its conditions.
    timestamp : int or None
        Timestamp of the record, or None outside a valid batch.
    """

    path: str
    position: int
    offset: int | None
    state: str
    earliest_ms: int | None
    latest_ms: int | None
    reasons: tuple[Reason, ...]
    timestamp: int | None

    @property
    def rule(self) -> str:
        """The reasons as text."""
        return text_of(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return an item of `places` in `logstore erasure --format json`."""
        item = self._asdict()
        del item["reasons"], item["timestamp"]
        return item | rule_json(self.reasons)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of `erasure` as of `now_ms`."""

    topic: str
    key: bytes
    places: tuple[ErasurePlace, ...]
    files: int
    bytes: int
    assumed: tuple[str, ...]
    now_ms: int

    @property
    def gone(self) -> bool:
        """Whether the key was not found anywhere."""
        return not self.places

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of `logstore erasure`."""
        return {
            **bytes_item("key", self.key),
            "gone": self.gone,
            "places": [place.to_json() for place in self.places],
            "topic": self.topic,
            "scanned": {"files": self.files, "bytes": self.bytes},
            "assumed": list(self.assumed),
            "now_ms": self.now_ms,
        }


# -- the scan ----------------------------------------------------------------------------------


class Occurrence(NamedTuple):
    """An occurrence of a key in a file."""

    path: str
    position: int
    record: tuple[int, int, bool, tuple[tuple[str, bytes | None], ...]] | None
    header: BatchHeader | None
    state: str

    @property
    def offset(self) -> int | None:
        """Offset of the record, or None outside a valid batch."""
        return None if self.record is None else self.record[0]


def scan_file(
    file: File, path: str, base_offset: int, key: bytes, limit: int
) -> Iterator[Occurrence]:
    """Yield the occurrences of a key in a `.log` file, both inside and outside valid batches.

    Outside valid batches, a key is recognized if it is preceded by its length, as in a record. A
    damaged compressed batch may contain any key.
    """
    size = file.size()
    position = 0
    while position < size:
        batch = _valid_batch(file, path, position, size)
        if batch is None and size > INT32_MAX:
            # No segment is this large, and searching a sparse file would take hours.
            yield Occurrence(path, position, None, None, UNREADABLE)
            return
        if batch is None:
            following = find_batch(file, position + 1, size, base_offset)
            end = size if following is None else following.position
            state = TORN_TAIL if following is None else DAMAGED
            yield from _raw(file, path, position, end, key, state)
            position = end
            continue
        yield from _records(batch, path, position, key, limit)
        position += len(batch.data)


def _valid_batch(file: File, path: str, position: int, size: int) -> RecordBatch | None:
    """Return the batch at a position, or None if it is not valid."""
    head = file.read(position, layout.HEADER_SIZE)
    if len(head) < layout.HEADER_SIZE:
        return None
    header = BatchHeader.unpack_from(head)
    if not is_plausible(header, size - position, header.base_offset):  # otherwise the CRC decides
        return None
    batch = RecordBatch(file.read(position, header.size_bytes), path, position)
    try:
        batch.ensure_valid()
    except CorruptionError:
        return None
    return batch


def _records(
    batch: RecordBatch, path: str, position: int, key: bytes, limit: int
) -> Iterator[Occurrence]:
    header = batch.header
    try:
        if header.is_control or key not in bytes(batch.section(limit)):
            return
        for record in batch.iter_records(limit):
            if record.key == key:
                known = (record.offset, record.timestamp, record.value is None, record.headers)
                yield Occurrence(path, position, known, header, "")
    except (CorruptionError, InvalidRecordError):
        end = position + len(batch.data)
        yield from _raw_bytes(batch.data, path, position, end, key, DAMAGED)


def _raw(
    file: File, path: str, position: int, end: int, key: bytes, state: str
) -> Iterator[Occurrence]:
    """Yield the occurrences of a key in bytes that are not a valid batch."""
    at = position
    overlap = len(key) + 2 * layout.HEADER_SIZE
    before = b""
    while at < end:
        data = file.read(at, min(_BLOCK, end - at))
        if not data:
            return
        start = at - len(before)
        for found in _raw_bytes(before + data, path, start, at + len(data), key, state):
            # A key that ends before this block was already found in the previous block.
            if found.state == UNREADABLE or found.position + len(key) > at:
                yield found
        at += len(data)
        before = data[-overlap:]


def _patterns(key: bytes) -> tuple[bytes, ...]:
    """Return the encodings of a key in magic 2 records and in magic 0 and 1 messages."""
    return (encode_varint(len(key)) + key, len(key).to_bytes(4, "big") + key)


def _raw_bytes(
    data: bytes, path: str, start: int, end: int, key: bytes, state: str
) -> Iterator[Occurrence]:
    occurrences: dict[int, int] = {}
    for pattern in _patterns(key) if key else ():  # an empty key matches everywhere
        at = data.find(pattern)
        while at >= 0:
            occurrences.setdefault(start + at + len(pattern) - len(key), at)
            at = data.find(pattern, at + 1)
    for position in sorted(occurrences):
        yield Occurrence(path, position, None, None, state)
    if not occurrences and len(data) > layout.HEADER_SIZE:
        header = BatchHeader.unpack_from(data)
        if header.magic <= layout.MAGIC and header.codec_id in tuple(Codec)[1:]:
            yield Occurrence(path, start, None, None, UNREADABLE)


class _Folder(NamedTuple):
    """A directory that may contain records of a partition."""

    path: str
    topic_partition: TopicPartition
    state: str


def _folders(broker: Erasable, fs: FileSystem, partition: TopicPartition) -> Iterator[_Folder]:
    for directory in broker.manager.directories:
        if not fs.is_dir(directory.path):
            continue
        for name in fs.list_dir(directory.path):
            parsed = parse_log_dir(name)
            if parsed is not None and parsed.topic_partition == partition:
                yield _Folder(f"{directory.path}/{name}", partition, parsed.state)


def _log_files(fs: FileSystem, folder: str) -> Iterator[tuple[str, int, str]]:
    """Yield the path, base offset and suffix of files that may contain records."""
    for name, kind in fs.kinds(folder).items():
        parts = parse_segment_file(name)
        is_log = parts is not None and parts.kind == LOG_SUFFIX
        if (
            parts is not None
            and is_log
            and kind is FileKind.FILE
            and parts.base_offset <= INT64_MAX
        ):
            yield f"{folder}/{name}", parts.base_offset, parts.state


# -- locations and removal times ---------------------------------------------------------------


def erasure(
    broker: Erasable,
    topic: str,
    key: bytes,
    partition: int | None = None,
    *,
    progress: ErasureProgress | None = None,
) -> ErasureReport:
    """Find all locations of a key in the partitions of a topic; see `Broker.erasure`."""
    fs = broker.manager.runtime.fs
    base = fs.base if isinstance(fs, OverlayFileSystem) else fs
    now_ms = broker.clock.now_ms()
    locations: list[ErasurePlace] = []
    assumed: dict[str, None] = {}
    transactions = _Transactions(broker)
    files = size = 0
    for tp in broker.manager.catalog.partitions(topic, partition):
        occurrences: list[tuple[_Folder, Occurrence]] = []
        for folder in _folders(broker, base, tp):
            for path, base_offset, suffix in _log_files(base, folder.path):
                file = base.open(path)
                try:
                    total = file.size()
                    if progress is not None:
                        progress(f"reading {tp}", size, size + total)
                    limit = broker.manager.catalog.config(topic).logstore_decompression_max_bytes
                    for each in scan_file(file, path, base_offset, key, limit):
                        state = each.state
                        if suffix and state != UNREADABLE:
                            state = _STATES_BY_SUFFIX.get(suffix, FOREIGN)
                        occurrences.append((folder, each._replace(state=state)))
                finally:
                    file.close()
                files += 1
                size += total
        for text in assumptions(broker.manager, tp, cleaning=True):
            assumed[text] = None
        if occurrences:
            ends = transactions.ends(tp)
            locations += _Partition(broker, base, tp, key, now_ms, ends, progress).locations(
                occurrences
            )
    return ErasureReport(topic, key, tuple(locations), files, size, tuple(assumed), now_ms)


class _Transactions:
    """The stored state of the transaction coordinator, read on demand."""

    def __init__(self, broker: Erasable) -> None:
        self._broker = broker
        self._known: list[TransactionMetadata] | None = None

    def ends(self, tp: TopicPartition) -> tuple[TransactionEnd, ...]:
        """Return how and when a partition's open transactions end without a request.

        Transactions unknown to the coordinator are omitted, because they never end.
        """
        producers = self._broker.manager.log(tp).producer_state
        if producers.first_undecided_offset() is None:
            return ()
        if self._known is None:
            host = CoordinatorHost(self._broker.manager)
            stored = TransactionLog(host, self._broker.broker_config).read()
            self._known = list(stored.by_id.values())
        return tuple(
            _end_of(metadata)
            for metadata in self._known
            if tp in metadata.partitions and producers.has_open_transaction(metadata.producer_id)
        )


def _end_of(metadata: TransactionMetadata) -> TransactionEnd:
    """Return the end of a transaction: its decided outcome, or an abort after the timeout."""
    producer_id, epoch = metadata.producer
    if metadata.state.is_prepared:
        return TransactionEnd(producer_id, epoch, metadata.state.is_commit, 0)
    return TransactionEnd(
        producer_id, epoch + 1, False, metadata.start_ms + metadata.timeout_ms + 1
    )


class _RemovalTimes(NamedTuple):
    """Earliest and latest removal of a location, and the reasons."""

    earliest_ms: int | None
    latest_ms: int | None
    reasons: tuple[Reason, ...]


class _Partition:
    """The locations in a single partition."""

    def __init__(
        self,
        broker: Erasable,
        fs: FileSystem,
        topic_partition: TopicPartition,
        key: bytes,
        now_ms: int,
        ends: tuple[TransactionEnd, ...],
        progress: ErasureProgress | None,
    ) -> None:
        self._ends = ends
        self._progress = progress
        self._broker = broker
        self._fs = fs
        self._tp = topic_partition
        self._key = key
        self._log: Log = broker.manager.log(topic_partition)
        self._now_ms = now_ms
        self._sizes: dict[str, int] | None = None  # segment sizes after a broker has started

    def locations(self, occurrences: list[tuple[_Folder, Occurrence]]) -> Iterator[ErasurePlace]:
        """Yield the locations with their states and removal times, in file order."""
        states = self._states([each for folder, each in occurrences if not folder.state])
        offsets = sorted(
            {
                each.offset
                for folder, each in occurrences
                if each.offset is not None and not folder.state and each.state in ("", SWAP)
            }
        )
        watches = self._simulate_removal(offsets)
        for folder, each in occurrences:
            state = each.state or states.get(each.offset, LIVE)
            if folder.state == DELETE_DIR_SUFFIX:
                state = DELETED_PARTITION
            elif folder.state:
                state = FOREIGN
            earliest_ms, latest_ms, reasons = self._removal(each, state, watches)
            reasons = (Reason(f"location.{state}", {}), *reasons)
            fields = (each.path, each.position, each.offset, state, earliest_ms, latest_ms)
            timestamp = None if each.record is None else each.record[1]
            yield ErasurePlace(*fields, reasons, timestamp)

    def _states(self, occurrences: list[Occurrence]) -> dict[int | None, str]:
        """Return the states of records in the log, by offset."""
        log = self._log
        committed = CommittedData(log)
        strategy = Strategy.of(log.config)
        states: dict[int | None, str] = {}
        orders: dict[int, Order] = {}
        for each in occurrences:
            if each.state or each.record is None or each.header is None:
                continue
            offset, timestamp, is_tombstone, headers = each.record
            states[offset] = committed.state_of(each.header)
            if states[offset] == COMMITTED:
                states[offset] = TOMBSTONE if is_tombstone else LIVE
                orders[offset] = strategy.order_of(offset, timestamp, headers)
        if orders:
            winner = max(orders, key=orders.__getitem__)
            for offset in orders:
                if offset != winner:
                    states[offset] = SUPERSEDED
        start = log.log_start_offset
        return {
            offset: BELOW_LOG_START if offset is not None and offset < start else state
            for offset, state in states.items()
        }

    def _open_simulation(self) -> LogSimulation:
        manager = self._broker.manager
        return LogSimulation(
            self._fs,
            [directory.path for directory in manager.directories],
            self._broker.broker_config,
            self._tp,
            manager.catalog.temporary_overrides(self._tp.topic),
            self._now_ms,
            self._ends,
            progress=self._progress,
        )

    def _simulate_removal(
        self, offsets: list[int]
    ) -> dict[int, tuple[WatchedRemovals, WatchedRemovals, WatchedRemovals]]:
        """Simulate cleaning with helpful appends, without appends, and without appends but late."""
        if not offsets:
            return {}
        run = partial(watch_removals, self._open_simulation, self._key, offsets)
        late = run(lambda simulation, _: simulation.run_without_appends(late=True))
        hurried = prompt = run(
            lambda simulation, wanted: simulation.run_with_appends(self._key, wanted)
        )
        config = self._log.config
        if config.compact and config.delete:
            # Cleaning merges segments, which can delay retention.
            prompt = run(lambda simulation, _: simulation.run_without_appends(late=False))
        return dict.fromkeys(offsets, (hurried, prompt, late))

    def _removal(
        self,
        occurrence: Occurrence,
        state: str,
        watches: Mapping[int, tuple[WatchedRemovals, WatchedRemovals, WatchedRemovals]],
    ) -> _RemovalTimes:
        """Return when a location can be removed, and by which rule."""
        now_ms, delay_ms = self._now_ms, self._log.config.file_delete_delay_ms
        if occurrence.offset is not None and (state in IN_THE_LOG or state == SWAP):
            return self._record_removal(occurrence.offset, state, watches[occurrence.offset])
        if state == DELETED:
            latest_ms: int | None = now_ms
            if self._has_writer():
                latest_ms = self._removal_ms(occurrence.path, now_ms + delay_ms)
            reason = Reason.of("erasure.file_delay", delay_ms=delay_ms)
            return _RemovalTimes(now_ms, latest_ms, (reason,))
        if state in (CLEANED, SWAP):
            latest_ms = None if self._has_writer() else now_ms
            return _RemovalTimes(now_ms, latest_ms, (Reason.of("erasure.start"),))
        if state == DELETED_PARTITION:
            reason = Reason.of("erasure.folder_delay", delay_ms=delay_ms)
            return _RemovalTimes(now_ms, now_ms + delay_ms, (reason,))
        if state in (TORN_TAIL, DAMAGED) and self._is_truncated(occurrence):
            return _RemovalTimes(now_ms, now_ms, (Reason.of("erasure.cut"),))
        return _RemovalTimes(None, None, (Reason.of("erasure.no_rule"),))

    def _record_removal(
        self,
        offset: int,
        state: str,
        watches: tuple[WatchedRemovals, WatchedRemovals, WatchedRemovals],
    ) -> _RemovalTimes:
        config = self._log.config
        hurried, prompt, late = watches
        if hurried.failure is not None:
            reason = Reason.of("erasure.not_opened", message=str(hurried.failure))
            return _RemovalTimes(None, None, (reason,))
        removals = [each.removals[offset] for each in (hurried, prompt)]
        first = min((each for each in removals if each is not None), default=None)
        last = late.removals[offset]
        earliest_ms: int | None = None if first is None else first.at_ms
        if config.delete and config.retention_bytes >= 0:
            earliest_ms = self._now_ms
        latest_ms: int | None = None
        reasons: list[Reason] = []
        if first is not None:
            reasons += _rules(first.cause, state, config)
            if first.cause is Cause.CLEANING and self._is_kept_as_last(offset):
                reasons.append(Reason.of("erasure.last_record"))
        elif earliest_ms is not None:
            reasons.append(Reason.of("erasure.by_size"))
        else:
            reasons.append(self._missing_condition(state))
        reasons += (
            Reason.of("erasure.transaction_timeout", producer_id=end.producer_id, at_ms=end.due_ms)
            for end in self._ends
            if end.due_ms
        )
        if last is None:
            reasons.append(Reason.of("erasure.not_due"))
        else:
            delay_ms = config.file_delete_delay_ms
            latest_ms = last.at_ms + (0 if last.cause is Cause.OPENING else delay_ms)
            reasons.append(Reason(_DUE[last.cause], {"at_ms": last.due_ms, "delay_ms": delay_ms}))
        return _RemovalTimes(earliest_ms, latest_ms, tuple(reasons))

    def _has_hanging_transaction(self) -> bool:
        """Return whether an open transaction will not end without intervention."""
        known = {end.producer_id for end in self._ends}
        return any(
            entry.current_txn_first_offset is not None and entry.producer_id not in known
            for entry in self._log.producer_state.entries()
        )

    def _is_kept_as_last(self, offset: int) -> bool:
        """Return whether cleaning retains a record only because it is the last one in the log."""
        log = self._log
        return Strategy.of(log.config).has_versions and offset == log.log_end_offset - 1

    def _missing_condition(self, state: str) -> Reason:
        """Return the unmet condition that prevents a record from ever being removed."""
        config = self._log.config
        if not config.compact and not config.delete:
            return Reason.of("erasure.empty_policy")
        if not config.compact:
            return Reason.of("erasure.unlimited")
        if state == LIVE:
            return Reason.of("erasure.until_superseded")
        if self._has_hanging_transaction():
            return Reason.of("erasure.hanging_transaction")
        if not self._broker.broker_config.log_cleaner_enable:
            return Reason.of("erasure.cleaner_disabled")
        return Reason.of("erasure.never_cleaned")

    def _has_writer(self) -> bool:
        """Return whether a process has the directory open for writing."""
        directory = self._broker.manager.registry.directory_of(self._tp)
        holder = self._fs.lock_holder(f"{directory.path}/{LOCK_FILE}")
        return holder is not None or not self._broker.manager.read_only

    def _removal_ms(self, path: str, default_ms: int) -> int:
        """Return when a renamed file will be deleted, as far as this process knows."""
        if self._broker.manager.read_only:
            return default_ms
        due_ms = self._log.deletion_due_ms(path)
        if due_ms is None:
            return default_ms
        return self._now_ms + max(0, due_ms - self._broker.clock.monotonic_ns() // 1_000_000)

    def _is_truncated(self, occurrence: Occurrence) -> bool:
        """Return whether a starting broker truncates bytes that are not a valid batch."""
        if self._sizes is None:
            self._sizes = {}
            with suppress(LogStoreError), closing(self._open_simulation()) as simulation:
                segments = simulation.log.segments
                self._sizes = {each.log_path: each.size_bytes for each in segments}
        return bool(self._sizes) and occurrence.position >= self._sizes.get(occurrence.path, 0)


def _rules(cause: Cause, state: str, config: LogConfig) -> Iterator[Reason]:
    """Yield the rule that removes a record, and its conditions."""
    if cause is Cause.OPENING:
        yield Reason.of("erasure.by_opening")
    elif cause is Cause.RETENTION and config.retention_ms < 0:
        yield Reason.of("erasure.by_log_start")
    elif cause is Cause.RETENTION:
        yield Reason.of("erasure.by_retention", retention_ms=config.retention_ms)
    elif state == TOMBSTONE:
        delete_retention_ms = config.delete_retention_ms
        yield Reason.of("erasure.by_horizon", delete_retention_ms=delete_retention_ms)
    else:
        is_aborted = state in (ABORTED, OPEN_TRANSACTION)
        yield Reason.of("erasure.by_cleaning" if is_aborted else "erasure.by_superseding")
        if config.min_compaction_lag_ms:
            yield Reason.of("erasure.min_lag", lag_ms=config.min_compaction_lag_ms)


_DUE = {
    Cause.OPENING: "erasure.start_due",
    Cause.CLEANING: "erasure.cleaning_due",
    Cause.RETENTION: "erasure.retention_due",
}
