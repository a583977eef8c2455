"""Transaction APIs: producer ids, transactions, and the administration of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from logstore.coordinator.groups.offsets import ConsumerGroupMetadata
from logstore.coordinator.markers import MarkerErrors, write_markers
from logstore.coordinator.markers import partitions_of as marked_partitions
from logstore.coordinator.transactions.state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
)
from logstore.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidRegularExpressionError,
    InvalidTxnStateError,
    KafkaStorageError,
    LogStoreError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
)
from logstore.messages.types import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.runtime.patterns import compile_pattern
from logstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from logstore.wire.groups import NOT_ALLOWED as GROUP_NOT_ALLOWED
from logstore.wire.groups import (
    allowed_offsets,
    code_of,
    errors_by_topic,
    exists,
    partitions_of,
)
from logstore.wire.registry import handles

if TYPE_CHECKING:
    from logstore.wire.session import Session

NOT_ALLOWED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
TOPIC_NOT_ALLOWED = "TOPIC_AUTHORIZATION_FAILED"

NOBODY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _error_of(call: Callable[[], object], session: Session, fenced_from: int) -> str | None:
    """Call the coordinator. Return its error name, or None on success.

    Parameters
    ----------
    fenced_from : int
        The first version with PRODUCER_FENCED. Older versions use INVALID_PRODUCER_EPOCH.
    """
    try:
        call()
    except ProducerFencedError as error:
        return error.kafka_error if session.version >= fenced_from else "INVALID_PRODUCER_EPOCH"
    except ConcurrentTransactionsError as error:
        return error.kafka_error
    except NotEnoughReplicasError:
        return "COORDINATOR_NOT_AVAILABLE"  # clients retry after this error
    except (KafkaStorageError, NotLeaderForPartitionError):
        return "NOT_COORDINATOR"
    except LogStoreError as error:
        return error.kafka_error
    return None


# -- producers -------------------------------------------------------------------------------------

_INIT_FENCED_FROM = 4


@handles("InitProducerId")
def init_producer_id(request: InitProducerIdRequest, session: Session) -> InitProducerIdResponse:
    """Allocate a producer id and epoch, and fence earlier producers of the transactional id."""
    given: list[ProducerIdAndEpoch] = []
    error = _init_refusal(request, session) or _error_of(
        lambda: given.append(_given(request, session)), session, _INIT_FENCED_FROM
    )
    producer_id, epoch = given[0] if given else NOBODY
    return InitProducerIdResponse(
        error_code=code_of(error), producer_id=producer_id, producer_epoch=epoch
    )


def _init_refusal(request: InitProducerIdRequest, session: Session) -> str | None:
    if request.transactional_id is not None:
        if not session.allows("write", "transactional_id", request.transactional_id):
            return NOT_ALLOWED
    elif not (
        session.allows("idempotent_write", "cluster") or session.allows_any("write", "topic")
    ):
        return "CLUSTER_AUTHORIZATION_FAILED"
    is_half = (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    )
    return "INVALID_REQUEST" if is_half or request.transactional_id == "" else None


def _given(request: InitProducerIdRequest, session: Session) -> ProducerIdAndEpoch:
    coordinator = session.service.transactions
    if request.transactional_id is None:
        try:
            return ProducerIdAndEpoch(coordinator.new_producer_id(), 0)
        # without a transactional id, the producer cannot look up a coordinator
        except KafkaStorageError as error:
            raise CoordinatorLoadInProgressError(str(error)) from error
    known = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    return coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected=None if known == NOBODY else known,
    )


# -- transactions ----------------------------------------------------------------------------------

_FENCED_FROM = 2
_BATCHED_FROM = 4
_OFFSETS_ABORTABLE_FROM = 4
_OFFSETS_ADDED_FROM = 5
_BUMPED_FROM = 5

_Errors = Mapping[TopicPartition, str | None]
"""The error name of each partition, or None on success."""


@handles("AddPartitionsToTxn")
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, session: Session
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction. If any partition is refused, no partition is added."""
    if session.version >= _BATCHED_FROM:
        return _add_for_brokers(request, session)
    transactional_id = request.v3_and_below_transactional_id
    topics = request.v3_and_below_topics
    partitions = _topic_partitions(topics)
    errors: _Errors
    if not session.allows("write", "transactional_id", transactional_id):
        errors = dict.fromkeys(partitions, NOT_ALLOWED)
    else:
        errors = _refused_partitions(partitions, session)
        if not any(errors.values()):
            producer = ProducerIdAndEpoch(
                request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            )
            error = _in_transaction(transactional_id, producer, partitions, session)
            errors = dict.fromkeys(partitions, error)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_added(topics, errors))


def _add_for_brokers(
    request: AddPartitionsToTxnRequest, session: Session
) -> AddPartitionsToTxnResponse:
    """Add partitions to several transactions, or verify them, at the request of their leaders."""
    if not session.allows("cluster_action", "cluster"):
        return AddPartitionsToTxnResponse(error_code=code_of("CLUSTER_AUTHORIZATION_FAILED"))
    results = []
    for transaction in request.transactions:
        partitions = _topic_partitions(transaction.topics)
        errors = _with_not_attempted(_unknown_partitions(partitions, session))
        if not any(errors.values()):
            errors = _added_or_verified(transaction, partitions, session)
        results.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_added(transaction.topics, errors),
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _added_or_verified(
    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
    session: Session,
) -> _Errors:
    transactional_id = transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        error = _in_transaction(
            transactional_id, producer, partitions, session, TransactionVersion.V2
        )
        return dict.fromkeys(partitions, error)
    if not transactional_id:
        return dict.fromkeys(partitions, "INVALID_REQUEST")
    found: list[frozenset[TopicPartition]] = []
    error = _error_of(
        lambda: found.append(
            session.service.transactions.open_partitions(transactional_id, producer)
        ),
        session,
        _FENCED_FROM,
    )
    if error is not None:
        return dict.fromkeys(partitions, error)
    return {tp: None if tp in found[0] else "TRANSACTION_ABORTABLE" for tp in partitions}


def _topic_partitions(
    topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic],
) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _added(
    topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic], errors: _Errors
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=code_of(errors[TopicPartition(topic.name, number)]),
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def _refused_partitions(partitions: list[TopicPartition], session: Session) -> _Errors:
    errors = dict(_unknown_partitions(partitions, session))
    for tp in partitions:
        is_internal = tp.topic in INTERNAL_COMPACTED_TOPICS
        if is_internal or not session.allows("write", "topic", tp.topic):
            errors[tp] = TOPIC_NOT_ALLOWED
    return _with_not_attempted(errors)


def _with_not_attempted(errors: _Errors) -> _Errors:
    """Return the errors. If any partition was refused, the rest get OPERATION_NOT_ATTEMPTED."""
    if not any(errors.values()):
        return errors
    return {tp: error or "OPERATION_NOT_ATTEMPTED" for tp, error in errors.items()}


def _unknown_partitions(partitions: list[TopicPartition], session: Session) -> _Errors:
    return {
        tp: None if exists(session.service, tp) else "UNKNOWN_TOPIC_OR_PARTITION"
        for tp in partitions
    }


def _in_transaction(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    session: Session,
    version: TransactionVersion = TransactionVersion.V0,
) -> str | None:
    """Add partitions to a transaction. Return an error name, or None on success."""
    if not transactional_id:
        return "INVALID_REQUEST"
    coordinator = session.service.transactions
    return _error_of(
        lambda: coordinator.add_partitions(transactional_id, producer, partitions, version),
        session,
        _FENCED_FROM,
    )


@handles("AddOffsetsToTxn")
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, session: Session
) -> AddOffsetsToTxnResponse:
    """Add the `__consumer_offsets` partition of a group to a transaction."""
    if not session.allows("write", "transactional_id", request.transactional_id):
        error: str | None = NOT_ALLOWED
    elif not session.allows("read", "group", request.group_id):
        error = GROUP_NOT_ALLOWED
    else:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        try:
            partition = session.service.groups.partition_for(request.group_id)
            error = _in_transaction(request.transactional_id, producer, [partition], session)
        except LogStoreError:
            error = "COORDINATOR_NOT_AVAILABLE"
    return AddOffsetsToTxnResponse(error_code=code_of(error))


@handles("TxnOffsetCommit")
def txn_offset_commit(request: TxnOffsetCommitRequest, session: Session) -> TxnOffsetCommitResponse:
    """Commit a group's offsets as part of a transaction."""
    errors: dict[TopicPartition, str | None] = {}
    if not session.allows("write", "transactional_id", request.transactional_id):
        errors = dict.fromkeys(partitions_of(request.topics), NOT_ALLOWED)
    elif not session.allows("read", "group", request.group_id):
        errors = dict.fromkeys(partitions_of(request.topics), GROUP_NOT_ALLOWED)
    else:
        _commit_offsets(request, session, errors)
    return TxnOffsetCommitResponse(
        topics=errors_by_topic(
            request.topics,
            errors,
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
        )
    )


def _commit_offsets(
    request: TxnOffsetCommitRequest, session: Session, errors: dict[TopicPartition, str | None]
) -> None:
    """Append the valid offsets. Set the error name of each partition, or None, in `errors`."""
    coordinator = session.service.transactions
    groups = coordinator.groups
    offsets = allowed_offsets(request.topics, session, errors)
    group = ConsumerGroupMetadata(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    for tp, offset in list(offsets.items()):
        try:
            groups.check_transactional(group, {tp: offset})
        except (OffsetMetadataTooLargeError, UnknownTopicOrPartitionError) as error:
            del offsets[tp]
            errors[tp] = error.kafka_error
        except LogStoreError as error:  # an error of the group applies to all partitions
            errors |= dict.fromkeys(offsets, error.kafka_error)
            return
    if not offsets:
        return
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    adds = session.version >= _OFFSETS_ADDED_FROM
    outcome = None
    try:
        if adds:
            partition = groups.partition_for(request.group_id)
        else:
            partition = groups.partition_of(request.group_id)
        groups.check_epoch(request.group_id, producer)
        owner = coordinator.of(request.transactional_id, producer.producer_id)
        with owner.verified(partition, producer, request.transactional_id, adds=adds):
            wait = groups.append_transactional(request.group_id, offsets, producer)
        wait()
    except (MessageSizeTooLargeError, RecordListTooLargeError):
        outcome = "INVALID_COMMIT_OFFSET_SIZE"
    except (KafkaStorageError, NotLeaderForPartitionError) as error:
        is_concurrent = adds and isinstance(error, ConcurrentTransactionsError)
        outcome = error.kafka_error if is_concurrent else "NOT_COORDINATOR"
    except NotEnoughReplicasError:
        outcome = "COORDINATOR_NOT_AVAILABLE"
    except InvalidTxnStateError as error:
        is_old = session.version < _OFFSETS_ABORTABLE_FROM
        outcome = error.kafka_error if is_old else "TRANSACTION_ABORTABLE"
    except LogStoreError as error:
        outcome = error.kafka_error
    errors |= dict.fromkeys(offsets, outcome)


@handles("EndTxn")
def end_txn(request: EndTxnRequest, session: Session) -> EndTxnResponse:
    """Commit or abort a transaction. Since version 5, return the producer's next epoch."""
    transactional_id = request.transactional_id
    next_producer: list[ProducerIdAndEpoch] = []
    if not session.allows("write", "transactional_id", transactional_id):
        error: str | None = NOT_ALLOWED
    elif not transactional_id:
        error = "INVALID_REQUEST"
    else:
        coordinator = session.service.transactions
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        is_bumped = session.version >= _BUMPED_FROM
        version = TransactionVersion.V2 if is_bumped else TransactionVersion.V0
        error = _error_of(
            lambda: next_producer.append(
                coordinator.end_transaction(
                    transactional_id, producer, commit=request.committed, version=version
                )
            ),
            session,
            _FENCED_FROM,
        )
    producer_id, epoch = next_producer[0] if next_producer else NOBODY
    return EndTxnResponse(error_code=code_of(error), producer_id=producer_id, producer_epoch=epoch)


# -- markers ---------------------------------------------------------------------------------------

_MARKER_TIMEOUT_S = 30
"""How long a marker may await replication (a broker's `request.timeout.ms`)."""


@handles("WriteTxnMarkers")
async def write_txn_markers(
    request: WriteTxnMarkersRequest, session: Session
) -> WriteTxnMarkersResponse:
    """Write transaction markers to partitions that this broker leads."""
    if session.allows("alter", "cluster") or session.allows("cluster_action", "cluster"):
        errors = await _write_markers(request, session)
    else:
        errors = {
            marker.producer_id: dict.fromkeys(
                marked_partitions(marker), "CLUSTER_AUTHORIZATION_FAILED"
            )
            for marker in request.markers
        }
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id, topics=_marker_results(of_producer)
            )
            for producer_id, of_producer in errors.items()
        ]
    )


async def _write_markers(request: WriteTxnMarkersRequest, session: Session) -> MarkerErrors:
    service = session.service
    errors, delayed = await session.run(partial(write_markers, request, service.nodes))
    deadline = service.loops.loop.time() + _MARKER_TIMEOUT_S
    if delayed:
        await service.purgatory.wait_in(service.loops, list(delayed.values()), deadline)
    for (producer_id, tp), waiting in delayed.items():
        if waiting.error is not None:
            errors[producer_id][tp] = waiting.error.kafka_error
    return errors


def _marker_results(
    errors: _Errors,
) -> list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]:
    by_topic: dict[str, list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]] = {}
    for tp, error in errors.items():
        by_topic.setdefault(tp.topic, []).append(
            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                partition_index=tp.partition, error_code=code_of(error)
            )
        )
    return [
        WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]


# -- administration --------------------------------------------------------------------------------


@handles("DescribeTransactions")
def describe_transactions(
    request: DescribeTransactionsRequest, session: Session
) -> DescribeTransactionsResponse:
    """Return the states of transactional ids."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(each, session)
            for each in session.each(list(dict.fromkeys(request.transactional_ids)))
        ]
    )


def _described(
    transactional_id: str, session: Session
) -> DescribeTransactionsResponse.TransactionState:
    error, metadata = None, None
    if not session.allows("describe", "transactional_id", transactional_id):
        error = NOT_ALLOWED
    else:
        try:
            metadata = session.service.transactions.describe(transactional_id)
        except (NotCoordinatorError, CoordinatorLoadInProgressError) as refusal:
            error = refusal.kafka_error
        else:
            error = "TRANSACTIONAL_ID_NOT_FOUND" if metadata is None else None
    if error is not None or metadata is None:
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=transactional_id, error_code=code_of(error)
        )
    topics: dict[str, list[int]] = {}
    if metadata.state is TransactionState.ONGOING or metadata.state.is_prepared:
        for tp in sorted(metadata.partitions):
            if session.allows("describe", "topic", tp.topic):
                topics.setdefault(tp.topic, []).append(tp.partition)
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.kafka_name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


@handles("ListTransactions")
def list_transactions(
    request: ListTransactionsRequest, session: Session
) -> ListTransactionsResponse:
    """Return the transactional ids of this coordinator that the client may describe."""
    service = session.service
    known = service.transactions.transactions()
    states = {each.kafka_name for each in TransactionState}
    wanted = set(request.state_filters) & states
    ids = set(request.producer_id_filters)
    now_ms = service.runtime.clock.now_ms()
    pattern = request.transactional_id_pattern
    try:
        matches = compile_pattern(pattern) if pattern else None
    except InvalidRegularExpressionError as error:
        return ListTransactionsResponse(error_code=error.code)

    def is_wanted(metadata: TransactionMetadata) -> bool:
        if matches is not None and not matches(metadata.transactional_id):
            return False
        if request.state_filters and metadata.state.kafka_name not in wanted:
            return False
        if ids and metadata.producer_id not in ids:
            return False
        return request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter

    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in states],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.kafka_name,
            )
            for each in known.values()
            if is_wanted(each)
            and session.allows("describe", "transactional_id", each.transactional_id)
        ],
    )
