"""The Fetch API: returns batches of several partitions, with or without a fetch session (KIP-227).

Batches are passed on as bytes, and their records are never decoded here.

Source: KafkaApis, ReplicaManager, Partition and FetchSession of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import KAFKA_CODES, LogStoreError, UnknownTopicOrPartitionError
from logstore.messages.schema import ZERO_UUID
from logstore.messages.types import FetchRequest, FetchResponse
from logstore.storage.log.reader import Isolation
from logstore.types import NO_OFFSET, TopicPartition
from logstore.wire.data import isolation_of
from logstore.wire.leaders import name_leaders
from logstore.wire.nodes import NO_LEADER
from logstore.wire.registry import handles
from logstore.wire.session import ELEMENTS_IN_LOOP

if TYPE_CHECKING:
    from logstore.runtime import Unsubscribe
    from logstore.storage.log.local_log import LogEnd
    from logstore.storage.log.log import Log
    from logstore.wire.fetch_sessions import Context, SessionPartition
    from logstore.wire.nodes import Nodes
    from logstore.wire.session import Session

NONE = 0

_ZSTD_FROM = 10

_FOLLOWERS_FROM = 11
"""The first version in which consumers may read from followers (KIP-392)."""

_LEADERS_FROM = 16
"""The first version that returns the leader to clients with outdated metadata (KIP-951)."""

_INCONSISTENT = KAFKA_CODES["INCONSISTENT_TOPIC_ID"]

_UNREAD = frozenset(
    KAFKA_CODES[name]
    for name in ("UNKNOWN_TOPIC_ID", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION")
)
"""Partition errors that do not end the wait for other partitions."""

FetchedPartition = FetchResponse.PartitionData


class _ReadResult(NamedTuple):
    """The response for all partitions after reading each of them once.

    `waits` is False if the response must be sent immediately, even if it is below min_bytes.
    """

    partitions: list[tuple[SessionPartition, FetchedPartition]]
    size_bytes: int
    waits: bool


class _PartitionRead(NamedTuple):
    """The response for one partition, and the size of its records.

    `waits` has the same meaning as in `_ReadResult`.
    """

    partition: FetchedPartition
    size_bytes: int = 0
    waits: bool = False


@handles("Fetch")
async def fetch(request: FetchRequest, session: Session) -> FetchResponse:
    """Return batches, after waiting up to max_wait_ms until at least min_bytes are available."""
    service = session.service
    sessions = service.fetch_sessions
    session.is_large |= sessions.size_of(request) > ELEMENTS_IN_LOOP
    reading = _Reading.of(request, session)
    may_wait = request.max_wait_ms > 0
    deadline = service.loops.loop.time() + max(0, request.max_wait_ms) / 1000

    def read(places: Sequence[SessionPartition]) -> tuple[_ReadPositions | None, _ReadResult]:
        # Get the positions before reading, so that a concurrent append is noticed.
        positions = (
            _ReadPositions.of(places, reading.isolation, service.nodes) if may_wait else None
        )
        return positions, reading.read(places)

    def begin() -> tuple[Context, _ReadPositions | None, _ReadResult]:
        context = sessions.open(request, session.version, service.topic_of_id)
        reading.only_news = bool(context.session_id)
        _locate(context.partitions, session)
        return context, *read(context.partitions)

    context, positions, found = await session.run(begin)
    if context.error is not None:
        return FetchResponse(error_code=KAFKA_CODES[context.error])
    while positions is not None and found.waits and found.size_bytes < request.min_bytes:
        delayed = _DelayedFetch(positions, request.min_bytes - found.size_bytes)
        # After the deadline, return the available records.
        may_wait = await service.purgatory.wait_in(service.loops, [delayed], deadline)
        positions, found = await session.run(partial(read, context.partitions))
    finish = partial(sessions.finish, context, found.partitions)
    finished = await session.run(finish) if session.is_large else finish()
    if finished is None:
        return FetchResponse(error_code=KAFKA_CODES["INVALID_FETCH_SESSION_EPOCH"])
    session_id, partitions = finished
    response = FetchResponse(session_id=session_id, responses=_by_topic(partitions))
    if session.version >= _LEADERS_FROM:
        answered = (
            (TopicPartition(topic.topic, each.partition_index), each)
            for topic in response.responses
            for each in topic.partitions
        )
        name_leaders(response, answered, session)
    return response


def _by_topic(
    partitions: Iterable[tuple[SessionPartition, FetchedPartition]],
) -> list[FetchResponse.FetchableTopicResponse]:
    topics: list[FetchResponse.FetchableTopicResponse] = []
    for place, found in partitions:
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (place.name, place.topic_id):
            topics.append(
                FetchResponse.FetchableTopicResponse(topic=place.name, topic_id=place.topic_id)
            )
        topics[-1].partitions.append(found)
    return topics


class _LogPosition(NamedTuple):
    """The positions of a log: the upper offset for readers, and the end of the log."""

    upper_offset: int
    end: LogEnd


@dataclass(frozen=True, slots=True)
class _ReadPositions:
    """The positions of all logs at the time of a read."""

    logs: list[Log]
    isolation: Isolation
    nodes: Nodes
    leaders: list[tuple[int, int]]
    ends: list[_LogPosition]

    @classmethod
    def of(
        cls, places: Iterable[SessionPartition], isolation: Isolation, nodes: Nodes
    ) -> _ReadPositions:
        """Return the current positions. A log that is requested repeatedly counts once."""
        # Read the attribute only once, because another request of the session may replace it.
        logs = {id(log): log for each in places if (log := each.log) is not None}
        return cls._now(list(logs.values()), isolation, nodes)

    @classmethod
    def _now(cls, logs: list[Log], isolation: Isolation, nodes: Nodes) -> _ReadPositions:
        try:
            leaders = [nodes.leader_of(log.topic_partition) for log in logs]
            ends = [
                _LogPosition(log.reader.upper_offset(isolation), log.log_end)
                for log in logs
                if not log.is_offline
            ]
        except LogStoreError:  # the log was deleted, or the broker was closed
            return cls(logs, isolation, nodes, [], [])
        return cls(logs, isolation, nodes, leaders, ends)

    def is_due(self, missing: int) -> bool:
        """Return whether to read again: enough bytes are new, or a log was moved or deleted.

        Bytes above the high watermark or last stable offset are appended before they become
        readable, so any advance of these offsets past such bytes counts.
        """
        now = _ReadPositions._now(self.logs, self.isolation, self.nodes)
        if now.leaders != self.leaders or len(now.ends) != len(self.ends):
            return True
        grown = 0
        has_moved = False
        for before, after in zip(self.ends, now.ends, strict=True):
            if before.upper_offset == after.upper_offset:
                continue
            has_moved = True
            was_held_back = before.upper_offset < before.end.offset
            more = after.end.position - before.end.position
            if was_held_back or more < 0 or before.end.base_offset != after.end.base_offset:
                return True
            grown += more
        return has_moved and grown >= missing


class _DelayedFetch:
    """A Fetch request in the purgatory that waits until enough bytes are available."""

    def __init__(self, positions: _ReadPositions, missing: int) -> None:
        self._positions = positions
        self._missing = missing

    def is_done(self) -> bool:
        """Return whether the logs should be read again."""
        return self._positions.is_due(self._missing)

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call the listener whenever a log or its leader changes."""
        with ExitStack() as subscriptions:
            subscriptions.callback(self._positions.nodes.changed.subscribe(listener))
            for log in self._positions.logs:
                with suppress(LogStoreError):  # the log was deleted or closed concurrently
                    subscriptions.callback(log.subscribe(listener))
            return subscriptions.pop_all().close


def _locate(places: Sequence[SessionPartition], session: Session) -> None:
    """Set the log or the error of each partition."""
    service = session.service
    faults, replica = service.manager.faults, service.nodes.replica
    name = topic_id = None
    error = NONE
    for place in session.each(places):
        if place.name != name or place.topic_id != topic_id or not name:
            error = _topic_error(place, session)
            name, topic_id = place.name, place.topic_id
        place.log, place.error = None, error
        if error and error != _INCONSISTENT:
            continue
        tp = TopicPartition(place.name, place.asked.partition)
        try:
            log = replica(tp)
            if faults.rules:
                log = faults.request("fetch", (tp,), partial(replica, tp))
        except LogStoreError as refusal:
            place.error = refusal.code
            continue
        if error:
            continue
        if session.version < _ZSTD_FROM and log.config.compression_type == "zstd":
            place.error = KAFKA_CODES["UNSUPPORTED_COMPRESSION_TYPE"]
        else:
            place.log = log


def _topic_error(place: SessionPartition, session: Session) -> int:
    """Return the error code of a topic, which may have been recreated during the session."""
    service = session.service
    if not place.name:
        place.name = service.topic_of_id(place.topic_id) or ""
        if not place.name:
            return KAFKA_CODES["UNKNOWN_TOPIC_ID"]
    if not session.allows("read", "topic", place.name):
        return KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"]
    if place.topic_id != ZERO_UUID:
        try:
            if service.nodes.topic(place.name).id != place.topic_id:
                return _INCONSISTENT
        except UnknownTopicOrPartitionError as error:
            return error.code
    return NONE


@dataclass
class _Reading:
    """The parameters with which a request reads its partitions.

    Attributes
    ----------
    session : Session
    isolation : Isolation
    limit : int
        Maximum size of all records in bytes.
    rack : str or None
        Rack of the consumer, or None if it can only read from leaders.
    only_news : bool
        Whether to omit partitions that have not changed since the session reported them.
    """

    session: Session
    isolation: Isolation
    limit: int
    rack: str | None
    only_news: bool = False

    @classmethod
    def of(cls, request: FetchRequest, session: Session) -> _Reading:
        """Return the parameters of a request."""
        limit = min(request.max_bytes, session.service.limits.fetch_bytes)
        rack = request.rack_id if session.version >= _FOLLOWERS_FROM else None
        return cls(session, isolation_of(request.isolation_level), limit, rack)

    def read(self, places: Sequence[SessionPartition]) -> _ReadResult:
        """Read each partition once."""
        # As in Kafka, unread partitions come last in the response, even in a new session.
        partitions, unread = [], []
        size = 0
        all_wait, any_read = True, False
        for each in self.session.each(places):
            if self.only_news and self._has_no_news(each):
                any_read = True
                continue
            found, records, waits = self._read_one(each, self.limit - size, at_least_one=size == 0)
            if each.error in _UNREAD:
                unread.append((each, found))
                continue
            partitions.append((each, found))
            size += records
            any_read = True
            all_wait &= waits
        return _ReadResult(partitions + unread, size, any_read and all_wait)

    def _check(self, log: Log, current_leader_epoch: int) -> None:
        nodes = self.session.service.nodes
        check = nodes.check if self.rack is None else nodes.check_readable
        check(log, current_leader_epoch)

    def _preferred_replica(self, log: Log, offset: int) -> int:
        if not self.rack:
            return NO_LEADER
        return self.session.service.nodes.preferred_replica(log, offset, self.rack)

    def _has_no_news(self, place: SessionPartition) -> bool:
        """Return whether the client has read a partition to its end and knows its state.

        This fast path covers most partitions of most requests. No response is built for them.
        """
        log, asked = place.log, place.asked
        if log is None or asked.last_fetched_epoch >= 0:
            return False
        try:
            self._check(log, asked.current_leader_epoch)
            return (
                asked.fetch_offset == log.reader.upper_offset(self.isolation)
                and place.is_reported(log.high_watermark, log.log_start_offset)
                and not log.is_offline
                and self._preferred_replica(log, asked.fetch_offset) < 0
            )
        except LogStoreError:
            return False

    def _read_one(
        self, place: SessionPartition, limit: int, *, at_least_one: bool
    ) -> _PartitionRead:
        partition, log = place.asked, place.log
        if log is None:
            # As in Kafka, the list of aborted transactions is empty if a request is refused early,
            # and null after other errors.
            refused = _unread(partition, place.error)
            if place.error in _UNREAD:
                refused.aborted_transactions = []
            if place.error == KAFKA_CODES["UNSUPPORTED_COMPRESSION_TYPE"]:
                refused.records = None
            return _PartitionRead(refused)
        try:
            self._check(log, partition.current_leader_epoch)
            preferred = self._preferred_replica(log, partition.fetch_offset)
            if preferred >= 0:
                redirected = _without_records(log, partition)
                redirected.preferred_read_replica = preferred  # KIP-392
                return _PartitionRead(redirected)
            if partition.last_fetched_epoch >= 0:
                diverging = _diverging(log, partition)
                if diverging is not None:
                    return _PartitionRead(diverging)
            return self._read_log(log, partition, limit, at_least_one=at_least_one)
        except LogStoreError as error:
            return _PartitionRead(_unread(partition, error.code))

    def _read_log(
        self, log: Log, partition: FetchRequest.FetchPartition, limit: int, *, at_least_one: bool
    ) -> _PartitionRead:
        read = log.reader.read(
            partition.fetch_offset,
            max(0, min(partition.partition_max_bytes, limit)),
            isolation=self.isolation,
            min_one_message=at_least_one,
        )
        # Clients cannot use an incomplete batch.
        data = b"" if read.first_entry_incomplete else read.data
        aborted = None
        if self.isolation is Isolation.READ_COMMITTED and not read.first_entry_incomplete:
            aborted = [
                FetchResponse.AbortedTransaction(
                    producer_id=each.producer_id, first_offset=each.first_offset
                )
                for each in read.aborted
            ]
        found = FetchedPartition(
            partition_index=partition.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=data,
        )
        is_committed = self.isolation is Isolation.READ_COMMITTED
        upper = found.last_stable_offset if is_committed else found.high_watermark
        # A read ends at the end of a segment. If later segments have readable records, do not wait
        # for more.
        is_cut = partition.fetch_offset < log.log_end.base_offset < upper
        return _PartitionRead(found, len(data), waits=not is_cut)


def _without_records(log: Log, partition: FetchRequest.FetchPartition) -> FetchedPartition:
    """Return a response with the offsets of a log but without records."""
    return FetchedPartition(
        partition_index=partition.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _unread(partition: FetchRequest.FetchPartition, error_code: int) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition.partition,
        error_code=error_code,
        high_watermark=NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


def _diverging(log: Log, partition: FetchRequest.FetchPartition) -> FetchedPartition | None:
    """Return the diverging epoch if the client has read past the end of an epoch (KIP-595)."""
    end = log.epochs.end_offset_for(partition.last_fetched_epoch, log.log_end_offset)
    if end.epoch < 0:
        return _unread(partition, KAFKA_CODES["OFFSET_OUT_OF_RANGE"])
    if end.epoch >= partition.last_fetched_epoch and end.end_offset >= partition.fetch_offset:
        return None
    found = _without_records(log, partition)
    found.diverging_epoch = FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    return found
