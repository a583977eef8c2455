"""APIs for the controller and the cluster as a whole.

The set of brokers in a cluster is fixed. The controller is a single object without a metadata log.
It is reported as a quorum with one voter, whose log end offset is the number of changes.

Source: KafkaApis, QuorumController and FeatureControlManager of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.errors import KAFKA_CODES
from logstore.messages.types import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from logstore.runtime import SystemClock
from logstore.wire.registry import HandlerThread, handles
from logstore.wire.versions import features_of

if TYPE_CHECKING:
    from logstore.wire.session import Session

# -- DescribeQuorum --------------------------------------------------------------------------------

_METADATA_TOPIC = "__cluster_metadata"
_TIMES_FROM = 1
_NODES_FROM = 2

QuorumPartition = DescribeQuorumResponse.PartitionData


@handles("DescribeQuorum", HandlerThread.LOOP)
def describe_quorum(request: DescribeQuorumRequest, session: Session) -> DescribeQuorumResponse:
    """Return the controller as the only voter, and the other running brokers as observers."""
    response = DescribeQuorumResponse(error_message="")
    if not session.allows("describe", "cluster"):
        response.error_code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        response.error_message = None
        return response
    asked = [
        (topic.topic_name, [each.partition_index for each in topic.partitions])
        for topic in request.topics
    ]
    # As in Kafka, all partitions are refused if the request contains any other partition.
    is_known = asked == [(_METADATA_TOPIC, [0])]
    nodes = session.service.nodes
    controller = nodes.controller_id  # read once, because it may change
    response.topics = [
        DescribeQuorumResponse.TopicData(
            topic_name=name,
            partitions=[
                _described_quorum(session, controller)
                if is_known
                else QuorumPartition(
                    partition_index=number,
                    error_code=KAFKA_CODES["UNKNOWN_TOPIC_OR_PARTITION"],
                    error_message="This server does not host this topic-partition.",
                )
                for number in numbers
            ],
        )
        for name, numbers in asked
    ]
    if is_known and session.version >= _NODES_FROM:
        address = nodes.addresses(session.address).get(controller, session.address)
        host, port = address
        listener = DescribeQuorumResponse.Listener(name="CONTROLLER", host=host, port=port)
        response.nodes = [DescribeQuorumResponse.Node(node_id=controller, listeners=[listener])]
    return response


def _described_quorum(session: Session, leader: int) -> DescribeQuorumResponse.PartitionData:
    nodes = session.service.nodes
    end_offset, now_ms = nodes.changes, -1
    if session.version >= _TIMES_FROM:
        now_ms = SystemClock().now_ms()

    def state(broker: int) -> DescribeQuorumResponse.ReplicaState:
        return DescribeQuorumResponse.ReplicaState(
            replica_id=broker,
            log_end_offset=end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    return QuorumPartition(
        error_message="",
        leader_id=leader,
        leader_epoch=1,
        high_watermark=end_offset,
        current_voters=[state(leader)],
        observers=[state(each) for each in nodes.running if each != leader],
    )


# -- UpdateFeatures --------------------------------------------------------------------------------

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TYPES_FROM = 1
_RESULTS_UNTIL = 1


@handles("UpdateFeatures", HandlerThread.LOOP)
def update_features(request: UpdateFeaturesRequest, session: Session) -> UpdateFeaturesResponse:
    """Accept the current levels of features, and refuse to change them."""
    if not session.allows("alter", "cluster"):
        code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        return UpdateFeaturesResponse(error_code=code, error_message=None)
    for each in request.feature_updates:
        kind = each.upgrade_type
        if session.version < _TYPES_FROM:
            kind = _SAFE_DOWNGRADE if each.allow_downgrade else _UPGRADE
        reason = _why_not(each.feature, each.max_version_level, kind, session)
        if reason is not None:
            return UpdateFeaturesResponse(
                error_code=KAFKA_CODES["INVALID_UPDATE_VERSION"],
                error_message="The update failed for all features since the following feature had"
                f" an error: Invalid update version {each.max_version_level} for feature"
                f" {each.feature}. {reason}",
            )
    response = UpdateFeaturesResponse(error_message=None)
    if session.version <= _RESULTS_UNTIL:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=each.feature, error_message="NONE"
            )
            for each in request.feature_updates
        ]
    return response


def _why_not(name: str, level: int, kind: int, session: Session) -> str | None:
    """Return why a feature cannot be set to a level, or None if that is its current level."""
    present = features_of(session.service.versions).get(name)
    controller = f"Local controller {session.service.nodes.controller_id}"
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if present is None:
        return f"{controller} does not support this feature."
    if level > present:
        return f"{controller} only supports versions 0-{present}"
    if level < present and kind == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if level < present:
        return (
            "Feature levels are fixed: they depend on the API versions that this listener serves."
        )
    return None


# -- UnregisterBroker ------------------------------------------------------------------------------


@handles("UnregisterBroker", HandlerThread.LOOP)
def unregister_broker(
    request: UnregisterBrokerRequest, session: Session
) -> UnregisterBrokerResponse:
    """Refuse the request, because the set of brokers is fixed."""
    error, message = "INVALID_REQUEST", "The set of brokers in this cluster is fixed."
    if not session.allows("alter", "cluster"):
        error, message = "CLUSTER_AUTHORIZATION_FAILED", ""
    elif request.broker_id not in session.service.nodes.registered:
        error = "BROKER_ID_NOT_REGISTERED"
        message = f"Broker ID {request.broker_id} is not currently registered"
    code = KAFKA_CODES[error]
    return UnregisterBrokerResponse(error_code=code, error_message=message or None)


# -- ListConfigResources ---------------------------------------------------------------------------

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
_TYPES_OF_RESOURCES_FROM = 1


@handles("ListConfigResources", HandlerThread.LOOP)
def list_config_resources(
    request: ListConfigResourcesRequest, session: Session
) -> ListConfigResourcesResponse:
    """Return the configurable resources. Version 0 only lists client metrics."""
    response = ListConfigResourcesResponse()
    if not session.allows("describe_configs", "cluster"):
        response.error_code = KAFKA_CODES["CLUSTER_AUTHORIZATION_FAILED"]
        return response
    wanted = set(request.resource_types) or {_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP}
    if session.version < _TYPES_OF_RESOURCES_FROM:
        wanted = {_METRICS}
    nodes = session.service.nodes
    brokers = [str(each) for each in nodes.running]
    names = {
        _GROUP: nodes.configured_groups(),
        _METRICS: [],
        _LOGGER: brokers,
        _BROKER: brokers,
        _TOPIC: [topic.name for topic in nodes.topics()],
    }
    if not wanted <= names.keys():
        response.error_code = KAFKA_CODES["UNSUPPORTED_VERSION"]
        return response
    response.config_resources = [
        ListConfigResourcesResponse.ConfigResource(resource_type=kind, resource_name=name)
        for kind, found in names.items()
        if kind in wanted
        for name in found
    ]
    return response
