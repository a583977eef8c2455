"""APIs for the administration of topics, partitions and log directories.

Source: ReplicationControlManager, ControllerApis, KafkaApis and ReplicaManager of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from logstore.config.overrides import alter_overrides, describe
from logstore.errors import (
    KAFKA_CODES,
    InvalidTopicError,
    LogStoreError,
    NoReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.messages.schema import ZERO_UUID
from logstore.messages.types import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logstore.names import INTERNAL_COMPACTED_TOPICS, validate_topic_name
from logstore.types import NO_OFFSET, TopicPartition
from logstore.wire.configs import SOURCES
from logstore.wire.refusal import Refusal, code_of, message_of
from logstore.wire.registry import HandlerThread, handles

if TYPE_CHECKING:
    from logstore.wire.nodes import DelayedDeletion, Nodes
    from logstore.wire.session import Session

_BROKERS_DEFAULT = -1
_CONFIGS_SINCE = 5
_TOO_MANY = "Excessively large number of {} per request."


# -- topics --------------------------------------------------------------------------------------

CreatedTopic = CreateTopicsResponse.CreatableTopicResult


@handles("CreateTopics", HandlerThread.WORKER)
def create_topics(request: CreateTopicsRequest, session: Session) -> CreateTopicsResponse:
    """Create topics. Each topic succeeds or fails independently."""
    asked = Counter(topic.name for topic in request.topics)
    may_create_any = session.allows("create", "cluster")
    default = session.service.manager.broker_config.num_partitions
    partitions = sum(
        len(topic.assignments) or max(0, topic.num_partitions) or default
        for topic in request.topics
    )
    similar = _similar_names(request, session.service.nodes)
    results = []
    for topic in {each.name: each for each in request.topics}.values():
        try:
            if partitions > session.service.limits.partitions:
                raise Refusal("POLICY_VIOLATION", _TOO_MANY.format("partitions"))
            if asked[topic.name] > 1:
                raise Refusal("INVALID_REQUEST", "Duplicate topic name.")
            if not (may_create_any or session.allows("create", "topic", topic.name)):
                raise Refusal("TOPIC_AUTHORIZATION_FAILED", "Authorization failed.")
            others = similar.get(_plain(topic.name), ())
            results.append(_create(topic, session, others, validate_only=request.validate_only))
        except LogStoreError as error:
            created = CreatedTopic(name=topic.name, configs=[])
            created.error_code, created.error_message = code_of(error), message_of(error)
            results.append(created)
    return CreateTopicsResponse(topics=results)


def _create(
    topic: CreateTopicsRequest.CreatableTopic,
    session: Session,
    similar: Iterable[str],
    *,
    validate_only: bool,
) -> CreatedTopic:
    manager, nodes = session.service.manager, session.service.nodes
    try:
        validate_topic_name(topic.name)
    except InvalidTopicError as error:
        raise Refusal("INVALID_TOPIC_EXCEPTION", str(error)) from error
    with suppress(UnknownTopicOrPartitionError):
        if not nodes.topic(topic.name).adopted:
            raise Refusal("TOPIC_ALREADY_EXISTS", f"Topic '{topic.name}' already exists.")
    for other in similar:
        if other != topic.name:
            text = f"Topic '{topic.name}' collides with existing topic: {other}"
            raise Refusal("INVALID_TOPIC_EXCEPTION", text)
    count, factor = _placement(topic, manager.broker_config.num_partitions, nodes)
    assignment = [each.broker_ids for each in topic.assignments] or None
    configs = {each.name: each.value for each in topic.configs}
    for name, value in configs.items():
        if value is None:
            raise Refusal("INVALID_CONFIG", f"Null value not supported for topic configs: {name}")
    overrides, _ = alter_overrides({}, configs, (), manager.broker_config)
    topic_id = ZERO_UUID
    if not validate_only:
        try:
            created_topic = nodes.create_topic(topic.name, overrides, count, factor, assignment)
            topic_id = created_topic.id or ZERO_UUID
        except TopicAlreadyExistsError as error:  # another client has just created the topic
            message = f"Topic '{topic.name}' already exists."
            raise Refusal("TOPIC_ALREADY_EXISTS", message) from error
    created = CreatedTopic(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=factor,
        configs=[],
    )
    if session.version < _CONFIGS_SINCE:
        return created
    if not session.allows("describe_configs", "topic", topic.name):
        created.topic_config_error_code = KAFKA_CODES["TOPIC_AUTHORIZATION_FAILED"]
        created.num_partitions = created.replication_factor = -1
        created.configs = None
        return created
    created.configs = [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=key, value=row.value, config_source=SOURCES[row.origin]
        )
        for key, row in describe(overrides, manager.broker_config).items()
    ]
    return created


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _similar_names(request: CreateTopicsRequest, nodes: Nodes) -> dict[str, list[str]]:
    """Return the existing topics whose metric names would collide with new topics' names."""
    similar: dict[str, list[str]] = {
        plain: [] for each in request.topics if "_" in (plain := _plain(each.name))
    }
    for other in nodes.topics() if similar else ():
        if (plain := _plain(other.name)) in similar:
            similar[plain].append(other.name)
    return similar


def _placement(
    topic: CreateTopicsRequest.CreatableTopic, default: int, nodes: Nodes
) -> tuple[int, int]:
    """Return the partition count and replication factor of a new topic, or raise `Refusal`."""
    if topic.assignments:
        if topic.replication_factor != _BROKERS_DEFAULT:
            raise Refusal(
                "INVALID_REQUEST",
                "A manual partition assignment was specified, but replication factor was not set"
                " to -1.",
            )
        if topic.num_partitions != _BROKERS_DEFAULT:
            raise Refusal(
                "INVALID_REQUEST",
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        numbers = [each.partition_index for each in topic.assignments]
        if len(set(numbers)) < len(numbers):
            raise Refusal("INVALID_REPLICA_ASSIGNMENT", "Found multiple manual assignments.")
        for each in topic.assignments:
            check_replicas(each.broker_ids, nodes.running)
        if len({len(each.broker_ids) for each in topic.assignments}) > 1:
            raise Refusal(
                "INVALID_REPLICA_ASSIGNMENT",
                "The manual partition assignment has different numbers of replicas.",
            )
        if sorted(numbers) != list(range(len(numbers))):
            raise Refusal(
                "INVALID_REPLICA_ASSIGNMENT",
                "partitions should be a consecutive 0-based integer sequence",
            )
        topic.assignments.sort(key=lambda each: each.partition_index)
        return len(numbers), len(topic.assignments[0].broker_ids)
    if topic.replication_factor < _BROKERS_DEFAULT or topic.replication_factor == 0:
        raise Refusal(
            "INVALID_REPLICATION_FACTOR",
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < _BROKERS_DEFAULT or topic.num_partitions == 0:
        raise Refusal(
            "INVALID_PARTITIONS",
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = topic.replication_factor
    if factor == _BROKERS_DEFAULT:
        factor = nodes.default_replication_factor
    nodes.check_replication_factor(factor)
    return (default if topic.num_partitions == _BROKERS_DEFAULT else topic.num_partitions), factor


def check_replicas(broker_ids: Sequence[int], allowed: Collection[int]) -> None:
    """Raise `Refusal` if an assignment is empty, has duplicates, or contains unknown brokers."""
    if not broker_ids:
        raise Refusal(
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes an empty replica list.",
        )
    for broker_id in broker_ids:
        if broker_id not in allowed:
            raise Refusal(
                "INVALID_REPLICA_ASSIGNMENT",
                f"The manual partition assignment includes broker {broker_id}, but no such broker"
                " is registered.",
            )
    for broker_id, times in Counter(broker_ids).items():
        if times > 1:
            raise Refusal(
                "INVALID_REPLICA_ASSIGNMENT",
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )


DeletedTopic = DeleteTopicsResponse.DeletableTopicResult


@handles("DeleteTopics", HandlerThread.WORKER)
def delete_topics(request: DeleteTopicsRequest, session: Session) -> DeleteTopicsResponse:
    """Delete topics by name or, since version 6, by topic id."""
    asked = Counter(
        [
            *((name, ZERO_UUID) for name in request.topic_names),
            *((each.name, each.topic_id) for each in request.topics),
        ]
    )
    results = []
    for name, topic_id in asked:
        result = DeletedTopic(name=name, topic_id=topic_id)
        try:
            if asked[name, topic_id] > 1:
                raise Refusal("INVALID_REQUEST", "Duplicate topic name.")
            _delete(result, session)
        except LogStoreError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _delete(asked: DeletedTopic, session: Session) -> None:
    """Delete a topic. Its name and id are only returned to clients that may describe it."""
    name = asked.name
    if asked.topic_id != ZERO_UUID:
        if name is not None:
            raise Refusal("INVALID_REQUEST", "You may not specify both topic name and topic id.")
        name = session.service.topic_of_id(asked.topic_id)
        if name is None:
            raise Refusal("UNKNOWN_TOPIC_ID", "This server does not host this topic ID.")
    elif name is None:
        raise Refusal("INVALID_REQUEST", "Neither topic name nor id were specified.")
    may_describe = session.allows("describe", "topic", name)
    if not session.allows("delete", "topic", name):
        if may_describe:
            asked.name = name
        raise Refusal("TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed.")
    nodes = session.service.nodes
    try:
        topic_id = nodes.topic(name).id or ZERO_UUID
    except UnknownTopicOrPartitionError as error:
        message = "This server does not host this topic-partition."
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", message) from error
    asked.name, asked.topic_id = name, topic_id
    nodes.delete_topic(name)


@handles("CreatePartitions", HandlerThread.WORKER)
def create_partitions(
    request: CreatePartitionsRequest, session: Session
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    asked = Counter(topic.name for topic in request.topics)
    catalog = session.service.manager.catalog
    now = {topic.name: len(topic.partitions) for topic in catalog.topics()}
    more = sum(max(0, topic.count - now.get(topic.name, 0)) for topic in request.topics)
    results = []
    for topic in {each.name: each for each in request.topics}.values():
        result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name)
        try:
            if more > session.service.limits.partitions:
                raise Refusal("POLICY_VIOLATION", _TOO_MANY.format("additional partitions"))
            if asked[topic.name] > 1:
                raise Refusal("INVALID_REQUEST", "Duplicate topic name.")
            if not session.allows("alter", "topic", topic.name):
                raise Refusal("TOPIC_AUTHORIZATION_FAILED", None)
            _grow(topic, session, validate_only=request.validate_only)
        except LogStoreError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _grow(
    topic: CreatePartitionsRequest.CreatePartitionsTopic, session: Session, *, validate_only: bool
) -> None:
    nodes = session.service.nodes
    try:
        now = len(nodes.topic(topic.name).partitions)
    except UnknownTopicOrPartitionError as error:
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", None) from error
    if topic.count == now:
        raise Refusal("INVALID_PARTITIONS", f"Topic already has {now} partition(s).")
    if topic.count < now:
        raise Refusal(
            "INVALID_PARTITIONS",
            f"The topic {topic.name} currently has {now} partition(s); {topic.count} would not be"
            " an increase.",
        )
    if topic.assignments is not None:
        if len(topic.assignments) != topic.count - now:
            raise Refusal(
                "INVALID_REPLICA_ASSIGNMENT",
                f"Attempted to add {topic.count - now} additional partition(s), but only"
                f" {len(topic.assignments)} assignment(s) were specified.",
            )
        for assignment in topic.assignments:
            check_replicas(assignment.broker_ids, nodes.running)
    if not validate_only:
        assignments = topic.assignments
        replicas = None if assignments is None else [each.broker_ids for each in assignments]
        nodes.create_partitions(topic.name, topic.count, replicas)


# -- records, producers --------------------------------------------------------------------------


DeletedPartition = DeleteRecordsResponse.DeleteRecordsPartitionResult


@handles("DeleteRecords")
async def delete_records(request: DeleteRecordsRequest, session: Session) -> DeleteRecordsResponse:
    """Delete the records below an offset in each partition, on all live replicas (KIP-107)."""
    service = session.service
    begun: list[tuple[DeletedPartition, DelayedDeletion]] = []

    def begin() -> list[DeleteRecordsResponse.DeleteRecordsTopicResult]:
        return [
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _deleted(
                        TopicPartition(topic.name, each.partition_index),
                        each.offset,
                        session,
                        begun,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]

    topics = await session.run(begin)
    deadline = service.loops.loop.time() + max(0, request.timeout_ms) / 1000
    waiting = [delayed for _, delayed in begun]
    await service.purgatory.wait_in(service.loops, waiting, deadline)
    for result, delayed in begun:
        result.low_watermark = delayed.low_watermark
        if delayed.error is not None:
            result.error_code = delayed.error.code
    return DeleteRecordsResponse(topics=topics)


def _deleted(
    tp: TopicPartition,
    before_offset: int,
    session: Session,
    begun: list[tuple[DeletedPartition, DelayedDeletion]],
) -> DeletedPartition:
    result = DeletedPartition(partition_index=tp.partition, low_watermark=NO_OFFSET)
    try:
        if not session.allows("delete", "topic", tp.topic):
            raise Refusal("TOPIC_AUTHORIZATION_FAILED")
        if tp.topic in INTERNAL_COMPACTED_TOPICS:
            raise Refusal("INVALID_TOPIC_EXCEPTION")
        begun.append((result, session.service.nodes.delete_records(tp, before_offset)))
    except LogStoreError as error:
        result.error_code = code_of(error)
    return result


@handles("DescribeProducers")
def describe_producers(
    request: DescribeProducersRequest, session: Session
) -> DescribeProducersResponse:
    """Return the producer state of partitions with a replica on this broker (KIP-664)."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _producers_of(TopicPartition(topic.name, number), session)
                    for number in session.each(topic.partition_indexes)
                ],
            )
            for topic in session.each(request.topics)
        ]
    )


def _producers_of(
    tp: TopicPartition, session: Session
) -> DescribeProducersResponse.PartitionResponse:
    result = DescribeProducersResponse.PartitionResponse(partition_index=tp.partition)
    try:
        if not session.allows("read", "topic", tp.topic):
            raise Refusal("TOPIC_AUTHORIZATION_FAILED")
        log = session.service.nodes.replica(tp)
        with log.lock:
            entries = log.producer_state.entries()
        result.active_producers = [
            DescribeProducersResponse.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for entry in entries
        ]
    except LogStoreError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
    return result


# -- log directories -----------------------------------------------------------------------------


@handles("DescribeLogDirs")
def describe_log_dirs(request: DescribeLogDirsRequest, session: Session) -> DescribeLogDirsResponse:
    """Return the log directories and the size of each partition in them."""
    if not session.allows("describe", "cluster"):
        code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"] if session.version >= 3 else 0
        return DescribeLogDirsResponse(error_code=code)
    manager = session.service.manager
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(each.topic, n) for each in request.topics for n in each.partitions}
    )
    results = []
    for directory in manager.directories:
        result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=directory.path)
        results.append(result)
        if not directory.is_online:
            result.error_code = KAFKA_CODES["KAFKA_STORAGE_ERROR"]
            continue
        topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
        for tp in sorted(directory.partitions):
            if wanted is not None and tp not in wanted:
                continue
            try:
                size = manager.log(tp).size_bytes
            except LogStoreError:  # the topic has just been deleted
                continue
            topic = topics.setdefault(
                tp.topic, DescribeLogDirsResponse.DescribeLogDirsTopic(name=tp.topic)
            )
            topic.partitions.append(
                DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=tp.partition, partition_size=size
                )
            )
        result.topics = list(topics.values())
        if (space := manager.runtime.fs.space(directory.path)) is not None:
            result.total_bytes, result.usable_bytes = space
    return DescribeLogDirsResponse(results=results)


@handles("AlterReplicaLogDirs", HandlerThread.WORKER)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, session: Session
) -> AlterReplicaLogDirsResponse:
    """Move partitions to other log directories. Respond when all moves are complete."""
    is_allowed = session.allows("alter", "cluster")
    results: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                code = 0
                try:
                    if not is_allowed:
                        raise Refusal("CLUSTER_AUTHORIZATION_FAILED")
                    tp = TopicPartition(topic.name, number)
                    session.service.manager.registry.move_partition(tp, directory.path)
                except LogStoreError as error:
                    code = code_of(error)
                result = results.setdefault(
                    topic.name,
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                        topic_name=topic.name
                    ),
                )
                result.partitions.append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=code
                    )
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


# -- leaders and replicas ------------------------------------------------------------------------


def _partitions(asked: Iterable[Any] | None, session: Session) -> dict[str, list[int]]:
    """Return the requested partitions by topic, or all partitions if `asked` is None."""
    if asked is not None:
        found: dict[str, list[int]] = {}
        for topic in asked:
            numbers = topic.partitions
            found.setdefault(topic.topic, []).extend(numbers)
        return found
    return {topic.name: list(topic.partitions) for topic in session.service.nodes.topics()}


def _check_exists(topic: str, number: int, session: Session) -> TopicPartition:
    try:
        known = session.service.nodes.topic(topic)
    except UnknownTopicOrPartitionError as error:
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", f"No such topic as {topic}") from error
    if number not in known.partitions:
        text = f"No such partition as {topic}-{number}"
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", text)
    return TopicPartition(topic, number)


_UNCLEAN = 1
"""Election type UNCLEAN; PREFERRED is 0."""


@handles("ElectLeaders")
def elect_leaders(request: ElectLeadersRequest, session: Session) -> ElectLeadersResponse:
    """Elect the preferred replicas as leaders, or any live replica if the election is unclean.

    A request for all partitions only returns partitions whose leader has changed, and errors.
    """
    if not session.allows("alter", "cluster"):
        return _elections_refused(request, session)
    is_all = request.topic_partitions is None
    results = []
    for topic, numbers in _partitions(request.topic_partitions, session).items():
        found = []
        for number in numbers:
            result = ElectLeadersResponse.PartitionResult(partition_id=number, error_message=None)
            try:
                tp = _check_exists(topic, number, session)
                unclean = request.election_type == _UNCLEAN
                if not session.service.nodes.elect(tp, unclean=unclean):
                    if is_all:
                        continue
                    raise Refusal(
                        "ELECTION_NOT_NEEDED", "Leader election not needed for topic partition."
                    )
            except LogStoreError as error:
                result.error_code, result.error_message = code_of(error), message_of(error)
            found.append(result)
        if found or not is_all:
            results.append(
                ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=found)
            )
    return ElectLeadersResponse(replica_election_results=results)


def _elections_refused(request: ElectLeadersRequest, session: Session) -> ElectLeadersResponse:
    """Return an error for each partition and, since version 1, at the top level."""
    code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
    return ElectLeadersResponse(
        error_code=code if session.version else 0,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(
                        partition_id=number, error_code=code, error_message=None
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


ReassignedPartition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


@handles("AlterPartitionReassignments", HandlerThread.WORKER)
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, session: Session
) -> AlterPartitionReassignmentsResponse:
    """Start or cancel partition reassignments."""
    may_change_factor = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, error_message=None
    )
    if not session.allows("alter", "cluster"):
        response.error_code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        return response
    targets: dict[TopicPartition, list[int] | None] = {}
    accepted: dict[TopicPartition, ReassignedPartition] = {}
    for topic in request.topics:
        found = []
        for partition in topic.partitions:
            result = ReassignedPartition(
                partition_index=partition.partition_index, error_message=None
            )
            try:
                tp = _checked_move(
                    topic.name, partition, session, may_change_factor=may_change_factor
                )
                targets[tp], accepted[tp] = partition.replicas, result
            except LogStoreError as error:
                result.error_code, result.error_message = code_of(error), message_of(error)
            found.append(result)
        response.responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name, partitions=found
            )
        )
    for tp, refusal in session.service.nodes.reassign(targets).items():
        accepted[tp].error_code = code_of(refusal)
        if not isinstance(refusal, NoReassignmentInProgressError):
            accepted[tp].error_message = message_of(refusal)
    return response


def _checked_move(
    topic: str,
    asked: AlterPartitionReassignmentsRequest.ReassignablePartition,
    session: Session,
    *,
    may_change_factor: bool,
) -> TopicPartition:
    """Return the partition of a valid reassignment, or raise `Refusal`."""
    nodes, number = session.service.nodes, asked.partition_index
    try:
        known = nodes.topic(topic)
    except UnknownTopicOrPartitionError as error:
        text = f"Unable to find a topic named {topic}."
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", text) from error
    if number not in known.partitions:
        raise Refusal("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {topic}:{number}.")
    tp = TopicPartition(topic, number)
    if asked.replicas is not None:
        check_replicas(asked.replicas, nodes.registered)
        view = nodes.partition(tp)
        # During a reassignment, compare with the replication factor after it.
        before, after = len(set(view.replicas) - set(view.removing)), len(asked.replicas)
        if before != after and not may_change_factor:
            raise Refusal(
                "INVALID_REPLICATION_FACTOR",
                f"The replication factor is changed from {before} to {after}",
            )
    return tp


@handles("ListPartitionReassignments")
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, session: Session
) -> ListPartitionReassignmentsResponse:
    """Return the partitions that are being reassigned."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    if not session.allows("describe", "cluster"):
        response.error_code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        return response
    nodes = session.service.nodes
    if request.topics is None:
        asked = [(topic.name, topic.partitions) for topic in nodes.topics()]
    else:
        asked = [(topic.name, tuple(topic.partition_indexes)) for topic in request.topics]
    for name, numbers in asked:
        views = [(number, nodes.partition(TopicPartition(name, number))) for number in numbers]
        moving = [
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(view.replicas),
                adding_replicas=list(view.adding),
                removing_replicas=list(view.removing),
            )
            for number, view in views
            if view.adding or view.removing
        ]
        if moving:
            response.topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                    name=name, partitions=moving
                )
            )
    return response
