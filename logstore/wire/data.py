"""Record APIs: Produce, ListOffsets and OffsetForLeaderEpoch. Fetch is in `fetch`.

Batches are passed on as bytes, and their records are never decoded here.

Source: KafkaApis, ReplicaManager, Partition and UnifiedLog of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.transactions.produce import add_to_transaction, append_as_client
from logstore.errors import (
    KAFKA_CODES,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaStorageError,
    LogStoreError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
)
from logstore.messages import Buffer
from logstore.messages.types import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from logstore.record import layout
from logstore.record.batch import RecordBatch, pack_batch
from logstore.record.codecs import Codec, size_bound
from logstore.storage.log.reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
)
from logstore.types import NO_OFFSET, TopicPartition
from logstore.wire.frames import LENGTH
from logstore.wire.leaders import name_leaders
from logstore.wire.registry import HandlerThread, handles

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.wire.nodes import DelayedAppend
    from logstore.wire.session import Session

NONE = 0

# -- Produce -------------------------------------------------------------------------------------

_ALL = -1
_ACKS = (_ALL, 0, 1)
_ABORTABLE_FROM = 11
"""The first version of Produce that can return TRANSACTION_ABORTABLE (KIP-890)."""

_LEADERS_FROM = 10
"""The first version that returns the leader to clients with outdated metadata (KIP-951)."""

_ADDS_FROM = 12
"""The first version of Produce that adds partitions to the transaction (KIP-890)."""

_TOPIC_IDS_FROM = 13
"""The first version of Produce that identifies topics by id (KIP-516)."""

_WITHOUT_LOG_START = (
    UnknownTopicOrPartitionError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    CorruptRecordError,
    InvalidTxnStateError,
    KafkaStorageError,
)
"""Errors for which Kafka's response contains no log start offset."""

_NO_COORDINATOR = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
"""Errors of an unavailable transaction coordinator."""

_UNVERIFIED = (InvalidProducerEpochError, InvalidProducerIdMappingError)
"""Errors that reject a transactional batch before it reaches the log."""

ProducedPartition = ProduceResponse.PartitionProduceResponse


@handles("Produce")
async def produce(request: ProduceRequest, session: Session) -> ProduceResponse | None:
    """Append a batch to each partition. With acks=all, wait for the in-sync replicas."""
    service = session.service
    if session.version >= _TOPIC_IDS_FROM:
        for topic in request.topic_data:
            topic.name = service.topic_of_id(topic.topic_id) or ""
    load = _Load.of(request)
    session.is_large = session.is_large or load.takes_long
    appended = await session.run(partial(_append_all, request, session, load.is_transactional))
    if request.acks == 0:
        # The client expects no response, so close the connection to report an error.
        session.ends = any(
            partition.error_code
            for topic in appended.responses
            for partition in topic.partition_responses
        )
        return None
    if appended.delayed:
        waiting = list(appended.delayed.values())
        deadline = service.loops.loop.time() + max(0, request.timeout_ms) / 1000
        await service.purgatory.wait_in(service.loops, waiting, deadline)
        for (name, index), delayed in appended.delayed.items():
            if delayed.error is not None:
                refused = _refused(index, delayed.error.code)
                _put(appended.responses, name, refused)
    response = ProduceResponse(responses=appended.responses)
    if session.version >= _LEADERS_FROM:
        partitions = (
            (TopicPartition(topic.name, each.index), each)
            for topic in response.responses
            for each in topic.partition_responses
        )
        name_leaders(response, partitions, session)
    return response


_LOOP_BYTES = 2 << 20
"""Maximum number of decompressed bytes that are validated and appended on the event loop."""

_LOOP_RECORDS = 20_000
"""Maximum number of records that are appended on the event loop.

Appending them takes about 40 ms without compiled kernels.
"""


class _Load(NamedTuple):
    """The estimated load of a Produce request, based on its batch headers.

    Attributes
    ----------
    takes_long : bool
        Whether the appends could block the event loop for too long. A batch of a few hundred bytes
        can decompress to a million records, or to 256 MiB.
    is_transactional : bool
        Whether any batch is transactional.
    """

    takes_long: bool
    is_transactional: bool

    @classmethod
    def of(cls, request: ProduceRequest) -> _Load:
        size = count = 0
        is_transactional = False
        for topic in request.topic_data:
            for partition in topic.partition_data:
                data = partition.records
                if data is None or len(data) < layout.HEADER_SIZE:
                    continue
                assert not isinstance(data, list), "the records of a decoded request are one buffer"
                attributes = data[layout.ATTRIBUTES_POSITION + 1]
                if attributes & layout.TRANSACTIONAL_BIT:
                    is_transactional |= data[layout.MAGIC_POSITION] == layout.MAGIC
                codec_id = attributes & layout.CODEC_MASK
                size += len(data)
                if Codec.NONE < codec_id <= Codec.ZSTD:  # the log rejects unknown codecs
                    section = memoryview(data)[layout.HEADER_SIZE :]
                    size += size_bound(Codec(codec_id), section)
                (records,) = LENGTH.unpack_from(data, layout.RECORD_COUNT_POSITION)
                if records > 0:
                    count += records
        return cls(size > _LOOP_BYTES or count > _LOOP_RECORDS, is_transactional)


class _Appended(NamedTuple):
    """The immediate responses to a Produce request, and the appends awaiting replication."""

    responses: list[ProduceResponse.TopicProduceResponse]
    delayed: dict[TopicPartition, DelayedAppend]


def _put(
    responses: Iterable[ProduceResponse.TopicProduceResponse], name: str, found: ProducedPartition
) -> None:
    """Replace the response for one partition."""
    for topic in responses:
        if topic.name == name:
            topic.partition_responses = [
                found if each.index == found.index else each for each in topic.partition_responses
            ]


def _append_all(request: ProduceRequest, session: Session, is_transactional: bool) -> _Appended:
    transactional_id = request.transactional_id
    is_authorized = not is_transactional or (
        transactional_id is not None
        and session.allows("write", "transactional_id", transactional_id)
    )
    has_acks = request.acks in _ACKS
    if transactional_id is not None and is_transactional and is_authorized and has_acks:
        _add_partitions(request, transactional_id, session)
    delayed: dict[TopicPartition, DelayedAppend] = {}
    responses = []
    for topic in request.topic_data:
        error = NONE
        if not is_authorized:
            error = KAFKA_CODES["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]
        elif session.version >= _TOPIC_IDS_FROM and not topic.name:
            error = KAFKA_CODES["UNKNOWN_TOPIC_ID"]
        elif not has_acks:
            error = KAFKA_CODES["INVALID_REQUIRED_ACKS"]
        partitions = [
            _refused(partition.index, error)
            if error
            else _produced(topic.name, partition, request, session, delayed)
            for partition in topic.partition_data
        ]
        responses.append(
            ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
            )
        )
    return _Appended(responses, delayed)


def _add_partitions(request: ProduceRequest, transactional_id: str, session: Session) -> None:
    """Add all partitions of the request's batches to its transaction in one step."""
    count = sum(len(topic.partition_data) for topic in request.topic_data)
    if session.version < _ADDS_FROM or count == 1:
        return
    batches = []
    for topic in request.topic_data:
        if not topic.name or not session.allows("write", "topic", topic.name):
            continue
        for partition in topic.partition_data:
            data = _one_batch(partition.records, session.version)
            if not isinstance(data, int):
                batches.append((TopicPartition(topic.name, partition.index), data))
    service = session.service
    add_to_transaction(service.manager, service.transactions, transactional_id, batches)


def _refused(index: int, error_code: int, message: str | None = None) -> ProducedPartition:
    return ProducedPartition(
        index=index, error_code=error_code, base_offset=NO_OFFSET, error_message=message
    )


def _produced(
    topic: str,
    partition: ProduceRequest.PartitionProduceData,
    request: ProduceRequest,
    session: Session,
    delayed: dict[TopicPartition, DelayedAppend],
) -> ProducedPartition:
    index = partition.index
    if not session.allows("write", "topic", topic):
        return _refused(index, KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"])
    data = _one_batch(partition.records, session.version)
    if isinstance(data, int):
        return _refused(index, data)
    service = session.service
    tp = TopicPartition(topic, index)
    log: Log | None = None
    try:
        log = service.nodes.log(tp)
        role = service.nodes.check_append(tp) if request.acks == _ALL else None
        if service.restamp:
            data = _restamped(data, service.shift_ms)
        info = append_as_client(
            service.manager,
            service.transactions,
            tp,
            data,
            request.transactional_id,
            adds=session.version >= _ADDS_FROM,
        )
        if request.acks == _ALL:
            waiting = service.nodes.delayed_append(tp, info.last_offset, role)
            if waiting is not None:
                delayed[tp] = waiting
        return ProducedPartition(
            index=index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=log.log_start_offset,
        )
    except LogStoreError as error:
        is_unverified = isinstance(error, _UNVERIFIED) and _is_transactional(data)
        return _refusal(index, error, None if is_unverified else log, session.version)


def _refusal(index: int, error: LogStoreError, log: Log | None, version: int) -> ProducedPartition:
    if isinstance(error, InvalidTxnStateError) and version >= _ABORTABLE_FROM:
        return _refused(index, KAFKA_CODES["TRANSACTION_ABORTABLE"])
    is_concurrent = isinstance(error, ConcurrentTransactionsError) and version < _ADDS_FROM
    if is_concurrent or isinstance(error, _NO_COORDINATOR):
        # Producers retry after this error. They do not expect coordinator errors from Produce.
        return _refused(index, KAFKA_CODES["NOT_ENOUGH_REPLICAS"])
    found = _refused(index, error.code)
    if isinstance(error, InvalidRecordError):
        found.error_message = str(error)
        found.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=row, batch_index_error_message=message
            )
            for row, message in error.record_errors
        ]
    if isinstance(error, InvalidTxnStateError):
        found.error_message = str(error)
    if log is not None and not isinstance(error, _WITHOUT_LOG_START):
        found.log_start_offset = log.log_start_offset
    return found


def _is_transactional(data: bytes) -> bool:
    """Return whether a batch returned by `_one_batch` is transactional."""
    return bool(data[layout.ATTRIBUTES_POSITION + 1] & layout.TRANSACTIONAL_BIT)


def _one_batch(records: Buffer | list[Buffer] | None, version: int) -> bytes | int:
    """Return the batch sent to a partition, or an error code unless there is exactly one.

    The log validates the batch's contents. Source: ProduceRequest.validateRecords.
    """
    assert not isinstance(records, list), "the records of a decoded request are one buffer"
    data = b"" if records is None else bytes(records)
    end = _batch_end(data, 0)
    if end is None or data[layout.MAGIC_POSITION] != layout.MAGIC:
        return KAFKA_CODES["INVALID_RECORD"]
    codec = data[layout.ATTRIBUTES_POSITION + 1] & layout.CODEC_MASK
    if codec == Codec.ZSTD and version < 7:
        return KAFKA_CODES["UNSUPPORTED_COMPRESSION_TYPE"]
    if end < len(data) and _batch_end(data, end) is not None:
        return KAFKA_CODES["INVALID_RECORD"]
    return data


def _batch_end(data: bytes, at: int) -> int | None:
    """Return the end of the batch that starts at a position, or None if it is incomplete."""
    if len(data) - at < layout.HEADER_SIZE:
        return None
    (length,) = LENGTH.unpack_from(data, at + layout.BATCH_LENGTH_POSITION)
    end = at + layout.LOG_OVERHEAD + int(length)
    return end if at + layout.HEADER_SIZE <= end <= len(data) else None


def _restamped(data: bytes, shift_ms: int) -> bytes:
    """Convert the timestamps of a batch from the client's clock to the broker's clock.

    Record timestamps are deltas, so only the base timestamp and the maximum timestamp change. A
    damaged batch, or a batch without timestamps, is returned unchanged.
    """
    batch = RecordBatch(data)
    header = batch.header
    times = (header.base_timestamp, header.max_timestamp)
    if not shift_ms or min(times) < 0 or min(times) + shift_ms < 0 or not batch.is_valid():
        return data
    moved = header._replace(base_timestamp=times[0] + shift_ms, max_timestamp=times[1] + shift_ms)
    base_offset, _, leader_epoch, _, _, *covered = moved
    body = memoryview(data)[layout.HEADER_SIZE :]
    return pack_batch(body, base_offset, leader_epoch, *covered)


# -- isolation levels ----------------------------------------------------------------------------


def isolation_of(level: int) -> Isolation:
    """Convert an isolation level from a request."""
    return Isolation.READ_COMMITTED if level else Isolation.READ_UNCOMMITTED


# -- ListOffsets ---------------------------------------------------------------------------------

_EARLIEST_PENDING_UPLOAD = -6
"""Requests the first offset pending upload to tiered storage, which does not exist here."""

_TARGETS_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""The special (negative) timestamps, and the ListOffsets version that introduced each."""

_AT_THE_START = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)

_LEADER_EPOCHS_FROM = 4

_NOT_AVAILABLE_FROM = 5

ListedPartition = ListOffsetsResponse.ListOffsetsPartitionResponse


@handles("ListOffsets")
async def list_offsets(request: ListOffsetsRequest, session: Session) -> ListOffsetsResponse:
    """Return the offsets for timestamps, or the start and end offsets of logs."""
    call = partial(_list_offsets, request, session)
    if not session.is_large and any(
        partition.timestamp >= 0 or partition.timestamp == MAX_TIMESTAMP
        for topic in request.topics
        for partition in topic.partitions
    ):
        # A lookup by timestamp decodes a batch, which may contain a million records.
        return await session.service.loops.blocking(call)
    return await session.run(call)


def _list_offsets(request: ListOffsetsRequest, session: Session) -> ListOffsetsResponse:
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    isolation = isolation_of(request.isolation_level)
    topics = []
    for topic in session.each(request.topics):
        allowed = session.allows("describe", "topic", topic.name)
        partitions = []
        for partition in session.each(topic.partitions):
            index = partition.partition_index
            if not allowed:
                found = _unlisted(index, KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"])
            elif asked[topic.name, index] > 1:
                found = _unlisted(index, KAFKA_CODES["INVALID_REQUEST"])
            else:
                found = _listed(topic.name, partition, isolation, session)
            partitions.append(found)
        topics.append(
            ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)
        )
    return ListOffsetsResponse(topics=topics)


def _unlisted(index: int, error_code: int) -> ListedPartition:
    return ListedPartition(partition_index=index, error_code=error_code)


def _listed(
    topic: str,
    partition: ListOffsetsRequest.ListOffsetsPartition,
    isolation: Isolation,
    session: Session,
) -> ListedPartition:
    index, target = partition.partition_index, partition.timestamp
    if target < 0 and session.version < _TARGETS_SINCE.get(target, session.version + 1):
        return _unlisted(index, KAFKA_CODES["UNSUPPORTED_VERSION"])
    try:
        tp = TopicPartition(topic, index)
        nodes = session.service.nodes
        log = nodes.log(tp, partition.current_leader_epoch)
        listed = _offset_of(log, target, isolation)
    except LogStoreError as error:
        return _unlisted(index, error.code)
    waits = target == LATEST_TIMESTAMP or (listed is None and target >= 0)
    if waits and not nodes.is_settled(log):
        # A new leader might not know yet how far consumers have read (KIP-207).
        name = "OFFSET_NOT_AVAILABLE"
        if session.version < _NOT_AVAILABLE_FROM:
            name = "LEADER_NOT_AVAILABLE"
        return _unlisted(index, KAFKA_CODES[name])
    if listed is None:
        return _unlisted(index, NONE)
    found = ListedPartition(partition_index=index, timestamp=listed.timestamp, offset=listed.offset)
    if session.version >= _LEADER_EPOCHS_FROM:
        # The current leader epoch might not have any records yet.
        is_silent = log.epochs.latest is None and target in _AT_THE_START
        found.leader_epoch = log.leader_epoch if is_silent else listed.leader_epoch
    return found


def _offset_of(log: Log, target: int, isolation: Isolation) -> ListedOffset | None:
    """Return the offset for a timestamp, or None if it is hidden by the isolation level.

    Source: Partition.fetchOffsetForTimestamp.
    """
    if target == _EARLIEST_PENDING_UPLOAD:
        return None
    end_offset = log.reader.upper_offset(isolation)
    if target == LATEST_TIMESTAMP:
        return ListedOffset(-1, end_offset, log.leader_epoch)
    listed = log.reader.offset_for_timestamp(target)
    if listed is None or target in _AT_THE_START:
        return listed
    return listed if listed.offset < end_offset else None


# -- OffsetForLeaderEpoch ------------------------------------------------------------------------


@handles("OffsetForLeaderEpoch", HandlerThread.LOOP)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, session: Session
) -> OffsetForLeaderEpochResponse:
    """Return the end offsets of leader epochs."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _epoch_end(topic.topic, partition, session)
                    for partition in session.each(topic.partitions)
                ],
            )
            for topic in session.each(request.topics)
        ]
    )


def _epoch_end(
    topic: str, partition: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, session: Session
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    found = OffsetForLeaderEpochResponse.EpochEndOffset(partition=partition.partition)
    if not session.allows("describe", "topic", topic):
        found.error_code = KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"]
        return found
    try:
        tp = TopicPartition(topic, partition.partition)
        log = session.service.nodes.log(tp, partition.current_leader_epoch)
        asked, end_offset = partition.leader_epoch, log.log_end_offset
        if asked == log.leader_epoch:
            found.leader_epoch, found.end_offset = asked, end_offset
        else:
            found.leader_epoch, found.end_offset = log.epochs.end_offset_for(asked, end_offset)
    except LogStoreError as error:
        found.error_code = error.code
    return found
