"""Metadata APIs: ApiVersions, Metadata, DescribeCluster and DescribeTopicPartitions.

Source: Kafka's KafkaApis, 3.9.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logstore.errors import (
    KAFKA_CODES,
    LogStoreError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.messages.schema import ZERO_UUID
from logstore.messages.types import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from logstore.names import GROUP_OFFSETS_TOPIC, INTERNAL_COMPACTED_TOPICS, validate_topic_name
from logstore.types import TopicPartition
from logstore.wire.nodes import NO_LEADER
from logstore.wire.registry import HandlerThread, handles
from logstore.wire.versions import features_of

if TYPE_CHECKING:
    from logstore.manager.topics.store import Topic
    from logstore.wire.session import Session

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The valid names and versions of client software (KIP-511)."""

_LEVEL_0_FROM = 4
"""The first version in which a feature's minimum level may be 0 (KAFKA-17492)."""

_FEATURES_EPOCH = 0
"""The epoch of the features, which never change. -1 would mean unknown."""


@handles("ApiVersions", HandlerThread.LOOP, before_authentication=True)
def api_versions(request: ApiVersionsRequest, session: Session) -> ApiVersionsResponse:
    """Return the served APIs and their versions."""
    if session.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=KAFKA_CODES["INVALID_REQUEST"])
    response = ApiVersionsResponse(api_keys=list(session.service.api_keys))
    features = features_of(session.service.versions)
    if features:
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, min_version_level=level, max_version_level=level
            )
            for name, level in features.items()
        ]
        response.finalized_features_epoch = _FEATURES_EPOCH
        if session.version >= _LEVEL_0_FROM:
            response.supported_features = [
                ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=level)
                for name, level in features.items()
            ]
    return response


# -- Metadata ------------------------------------------------------------------------------------

_TOPIC_IDS_FROM = 12

DescribedTopic = MetadataResponse.MetadataResponseTopic


@handles("Metadata")
def metadata(request: MetadataRequest, session: Session) -> MetadataResponse:
    """Return the brokers of the cluster, and the requested topics or all topics."""
    asked = request.topics or []
    if session.version < _TOPIC_IDS_FROM and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in asked
    ):
        # Versions 10 and 11 have a field for topic ids but do not support it.
        code = KAFKA_CODES["INVALID_REQUEST"]
        topics = [DescribedTopic(error_code=code, name=each.name or "") for each in asked]
        return MetadataResponse(topics=topics)
    nodes = session.service.nodes
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node_id, host=host, port=port, rack=nodes.rack(node_id)
            )
            for node_id, (host, port) in nodes.addresses(session.address).items()
        ],
        cluster_id=session.service.cluster_id,
        controller_id=nodes.controller_id,
        topics=_described_topics(request, session),
    )
    if request.include_cluster_authorized_operations and session.version <= 10:
        response.cluster_authorized_operations = (
            session.operations_on("cluster") if session.allows("describe", "cluster") else 0
        )
    return response


def _described_topics(request: MetadataRequest, session: Session) -> list[DescribedTopic]:
    topics = request.topics
    with_operations = bool(request.include_topic_authorized_operations)
    # A null list requests all topics. In version 0, which has no null lists, an empty list does.
    if topics is None or (session.version == 0 and not topics):
        return [
            _described(topic, session, with_operations=with_operations)
            for topic in session.service.nodes.topics()
            if session.allows("describe", "topic", topic.name)
        ]
    may_create = session.service.auto_create and request.allow_auto_topic_creation
    # As in Kafka, a topic that is listed more than once is described only once.
    named = {(each.name, each.topic_id): each for each in topics}
    return [
        _described_one(topic, session, may_create=may_create, with_operations=with_operations)
        for topic in session.each(list(named.values()))
    ]


def _described_one(
    asked: MetadataRequest.MetadataRequestTopic,
    session: Session,
    *,
    may_create: bool,
    with_operations: bool,
) -> DescribedTopic:
    name = asked.name
    if asked.topic_id != ZERO_UUID:
        found = session.service.topic_of_id(asked.topic_id)
        if found is None or not session.allows("describe", "topic", found):
            code = KAFKA_CODES["UNKNOWN_TOPIC_ID"]
            return DescribedTopic(error_code=code, name=None, topic_id=asked.topic_id)
        name = found
    if name is None:
        return DescribedTopic(error_code=KAFKA_CODES["INVALID_REQUEST"], name="")
    if not session.allows("describe", "topic", name):
        return _undescribed(name, "TOPIC_AUTHORIZATION_FAILED")
    try:
        topic = session.service.nodes.topic(name)
    except UnknownTopicOrPartitionError:
        try:
            validate_topic_name(name)
            if not may_create:
                return _undescribed(name, "UNKNOWN_TOPIC_OR_PARTITION")
            if not (session.allows("create", "cluster") or session.allows("create", "topic", name)):
                return _undescribed(name, "TOPIC_AUTHORIZATION_FAILED")
            topic = _created(name, session)
        except LogStoreError as error:
            return _undescribed(name, error.kafka_error)
    return _described(topic, session, with_operations=with_operations)


def _created(name: str, session: Session) -> Topic:
    """Create a topic automatically, `__consumer_offsets` through the group coordinator."""
    service = session.service
    if name in INTERNAL_COMPACTED_TOPICS:
        if name == GROUP_OFFSETS_TOPIC:
            service.groups.ensure_stored()
        return service.nodes.topic(name)
    try:
        count = service.manager.broker_config.num_partitions
        factor = service.nodes.default_replication_factor
        return service.nodes.create_topic(name, {}, count, factor)
    except TopicAlreadyExistsError:  # another client has just created the topic
        return service.nodes.topic(name)


def _undescribed(name: str, error: str) -> DescribedTopic:
    is_internal = name in INTERNAL_COMPACTED_TOPICS
    return DescribedTopic(error_code=KAFKA_CODES[error], name=name, is_internal=is_internal)


def _described(topic: Topic, session: Session, *, with_operations: bool) -> DescribedTopic:
    described = DescribedTopic(
        name=topic.name,
        topic_id=topic.id or ZERO_UUID,
        is_internal=topic.name in INTERNAL_COMPACTED_TOPICS,
        partitions=[_described_partition(topic.name, n, session) for n in topic.partitions],
    )
    if with_operations:
        described.topic_authorized_operations = session.operations_on("topic", topic.name)
    return described


def _described_partition(
    topic: str, number: int, session: Session
) -> MetadataResponse.MetadataResponsePartition:
    view = session.service.nodes.partition(TopicPartition(topic, number))
    code = 0 if view.error is None else view.error.code
    if view.leader == NO_LEADER:
        code = KAFKA_CODES["LEADER_NOT_AVAILABLE"]
    return MetadataResponse.MetadataResponsePartition(
        error_code=code,
        partition_index=number,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        replica_nodes=list(view.replicas),
        isr_nodes=list(view.isr),
        offline_replicas=list(view.offline),
    )


# -- DescribeCluster, DescribeTopicPartitions ----------------------------------------------------

_BROKERS = 1
"""The endpoint type of brokers. Controllers have type 2 (KIP-919)."""

_CONTROLLERS = 2


@handles("DescribeCluster", HandlerThread.LOOP)
def describe_cluster(request: DescribeClusterRequest, session: Session) -> DescribeClusterResponse:
    """Return the brokers of the cluster and the controller."""
    response = DescribeClusterResponse(endpoint_type=request.endpoint_type)
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        response.error_code = KAFKA_CODES[
            "MISMATCHED_ENDPOINT_TYPE" if known else "UNSUPPORTED_ENDPOINT_TYPE"
        ]
        return response
    nodes = session.service.nodes
    response.cluster_id = session.service.cluster_id
    response.controller_id = nodes.controller_id
    response.brokers = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=node_id, host=host, port=port, rack=nodes.rack(node_id)
        )
        for node_id, (host, port) in nodes.addresses(session.address).items()
    ]
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            session.operations_on("cluster") if session.allows("describe", "cluster") else 0
        )
    return response


_PARTITIONS_MAX = 2000
"""Maximum number of partitions in a response (Kafka's `max.request.partition.size.limit`)."""


@handles("DescribeTopicPartitions")
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, session: Session
) -> DescribeTopicPartitionsResponse:
    """Return topics and their partitions, sorted by name, one page at a time (KIP-966)."""
    names = sorted({topic.name for topic in request.topics})
    if not names:
        names = [topic.name for topic in session.service.nodes.topics()]
    is_all = not request.topics
    first = 0
    if (cursor := request.cursor) is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names[:1] == [cursor.topic_name]:
            first = max(0, cursor.partition_index)
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in session.each(names):
        found = _describe_by_name(name, session)
        if is_all and found.error_code:
            continue
        partitions = [each for each in found.partitions if each.partition_index >= first]
        first = 0
        if left == 0 or len(partitions) > left:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name,
                partition_index=partitions[left].partition_index if partitions else 0,
            )
            partitions = partitions[:left]
            if not partitions:
                break
        left -= len(partitions)
        response.topics.append(
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                error_code=found.error_code,
                name=found.name,
                topic_id=found.topic_id,
                is_internal=found.is_internal,
                # As in Kafka, the topic does not have to exist.
                topic_authorized_operations=session.operations_on("topic", name),
                partitions=[_with_elr(each) for each in partitions],
            )
        )
        if response.next_cursor is not None:
            break
    return response


def _describe_by_name(name: str, session: Session) -> DescribedTopic:
    asked = MetadataRequest.MetadataRequestTopic(name=name)
    return _described_one(asked, session, may_create=False, with_operations=False)


def _with_elr(
    found: MetadataResponse.MetadataResponsePartition,
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        error_code=found.error_code,
        partition_index=found.partition_index,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        replica_nodes=found.replica_nodes,
        isr_nodes=found.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=found.offline_replicas,
    )
