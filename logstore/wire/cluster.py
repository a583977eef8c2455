"""The APIs of who is there: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions.

One broker, which is the controller and the leader of every partition.
Source: Kafka's KafkaApis, 3.9.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logstore.errors import (
    KAFKA_CODES,
    KafkaStorageError,
    LogStoreError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.messages.apis import apis_by_name
from logstore.messages.schema import ZERO_UUID
from logstore.messages.types import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from logstore.names import GROUP_OFFSETS_TOPIC, INTERNAL_COMPACTED_TOPICS, validate_topic_name
from logstore.types import BROKER_ID, CLUSTER_ID, DEFAULT_PARTITIONS, TopicPartition
from logstore.wire.registry import Where, handles

if TYPE_CHECKING:
    from logstore.topics.store import Topic
    from logstore.wire.session import Session

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client may call itself and its version (KIP-511)."""


@handles("ApiVersions", Where.LOOP, before_authentication=True)
def api_versions(request: ApiVersionsRequest, session: Session) -> ApiVersionsResponse:
    """Tell what is served, in which versions."""
    if session.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=KAFKA_CODES["INVALID_REQUEST"])
    service = session.service
    keys = {name: api.key for name, api in apis_by_name().items()}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=keys[name],
                min_version=service.versions[name].first_advertised,
                max_version=service.versions[name].last,
            )
            for name in sorted(service.handlers, key=keys.__getitem__)
        ]
    )


# -- Metadata ------------------------------------------------------------------------------------

DescribedTopic = MetadataResponse.MetadataResponseTopic


@handles("Metadata")
def metadata(request: MetadataRequest, session: Session) -> MetadataResponse:
    """Tell the brokers, and topics with their partitions: those asked for, or all."""
    host, port = session.address
    response = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=BROKER_ID, host=host, port=port)],
        cluster_id=CLUSTER_ID,
        controller_id=BROKER_ID,
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
    # All of them: no list, or in version 0, which had no null, an empty one.
    if topics is None or (session.version == 0 and not topics):
        catalog = session.service.manager.catalog
        return [
            _described(topic, session, with_operations=with_operations)
            for topic in catalog.topics()
            if session.allows("describe", "topic", topic.name)
        ]
    may_create = session.service.auto_create and request.allow_auto_topic_creation
    return [
        _described_one(topic, session, may_create=may_create, with_operations=with_operations)
        for topic in topics
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
        topic = session.service.manager.catalog.topic(name)
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
    """Create a topic that is asked for; that of the groups as their coordinator has it."""
    service = session.service
    if name in INTERNAL_COMPACTED_TOPICS:
        if name == GROUP_OFFSETS_TOPIC:
            service.groups.ensure_stored()
        return service.manager.catalog.topic(name)
    try:
        return service.manager.topics.create(name, DEFAULT_PARTITIONS, {})
    except TopicAlreadyExistsError:  # another client was faster
        return service.manager.catalog.topic(name)


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
    described = MetadataResponse.MetadataResponsePartition(
        partition_index=number,
        leader_id=BROKER_ID,
        replica_nodes=[BROKER_ID],
        isr_nodes=[BROKER_ID],
    )
    try:
        log = session.service.manager.log(TopicPartition(topic, number))
        described.leader_epoch = log.local.leader_epoch
    except KafkaStorageError:  # the only replica stands in a directory that failed
        described.error_code = KAFKA_CODES["LEADER_NOT_AVAILABLE"]
        described.leader_id = -1
        described.offline_replicas = [BROKER_ID]
    except LogStoreError as error:
        described.error_code = error.code
    return described
