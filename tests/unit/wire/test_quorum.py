"""DescribeQuorum, UpdateFeatures, UnregisterBroker and ListConfigResources."""

import pytest

from logstore import Authorizer, Cluster
from logstore.messages.types import (
    DescribeQuorumRequest,
    ListConfigResourcesRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tests.support.world.wire import Client, name_of, versions

PREFIX = (
    "The update failed for all features since the following feature had an error: Invalid update"
    " version {} for feature {}. "
)


def quorum_of(topic="__cluster_metadata", partition=0):
    kind = DescribeQuorumRequest
    asked = kind.PartitionData(partition_index=partition)
    return kind(topics=[kind.TopicData(topic_name=topic, partitions=[asked])])


@pytest.fixture
def server():
    with Cluster(3) as cluster, cluster.listen() as server:
        cluster.create_topic("t")
        yield server


@versions("DescribeQuorum", 1)
def test_the_controller_is_the_only_voter(server, version):
    with Client(server[1]) as client:
        answer = client.ask(quorum_of(), version)
    assert (answer.error_code, answer.topics[0].topic_name) == (0, "__cluster_metadata")
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 0, 1)
    assert found.high_watermark > 0
    assert [each.replica_id for each in found.current_voters] == [0]
    assert [each.replica_id for each in found.observers] == [1, 2]
    for each in (*found.current_voters, *found.observers):
        assert each.log_end_offset == found.high_watermark
        assert (each.last_fetch_timestamp > 0) == (version >= 1)
    nodes = [(each.node_id, each.listeners[0].port) for each in answer.nodes]
    assert nodes == ([(0, server[0].port)] if version >= 2 else [])


def test_a_single_broker_is_its_own_quorum(client, broker):
    (found,) = client.ask(quorum_of(), 2).topics[0].partitions
    before = found.high_watermark
    assert (found.leader_id, found.observers) == (0, [])
    broker.create_topic("t")
    (found,) = client.ask(quorum_of(), 2).topics[0].partitions
    assert found.high_watermark > before


@pytest.mark.parametrize("asked", (("t", 0), ("__cluster_metadata", 1)))
def test_other_partitions_have_no_quorum(client, asked):
    answer = client.ask(quorum_of(*asked), 2)
    (found,) = answer.topics[0].partitions
    assert (answer.error_code, name_of(found.error_code)) == (0, "UNKNOWN_TOPIC_OR_PARTITION")
    assert (found.current_voters, answer.nodes) == ([], [])


def test_the_quorum_is_described_alone(client):
    """Otherwise a small request could ask for the quorum a hundred thousand times."""
    request = quorum_of()
    request.topics[0].partitions *= 2
    answer = client.ask(request, 2)
    found = [each.error_code for each in answer.topics[0].partitions]
    assert [name_of(each) for each in found] == ["UNKNOWN_TOPIC_OR_PARTITION"] * 2
    assert answer.nodes == []


def update(client, *updates, version=2):
    kind = UpdateFeaturesRequest
    asked = [
        kind.FeatureUpdateKey(feature=name, max_version_level=level)
        if version == 0
        else kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=each)
        for name, level, each in updates
    ]
    answer = client.ask(kind(timeout_ms=1000, feature_updates=asked), version)
    # Clients before Kafka 4 expect a result for each feature.
    has_results = version < 2 and not answer.error_code
    assert [(each.feature, each.error_code, each.error_message) for each in answer.results] == [
        (name, 0, "NONE") for name, _, _ in (updates if has_results else ())
    ]
    return name_of(answer.error_code), answer.error_message


@versions("UpdateFeatures", 1)
def test_present_levels_of_features_are_accepted(client, version):
    levels = [("group.version", 1, 1), ("transaction.version", 2, 1)]
    assert update(client, *levels, version=version) == ("NONE", None)
    assert update(client, version=version) == ("NONE", None)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    (
        ("group.version", 2, 1, "Local controller 0 only supports versions 0-1"),
        ("nope", 1, 1, "Local controller 0 does not support this feature."),
        ("group.version", 1, 0, "The controller does not support the given upgrade type."),
        ("group.version", -1, 1, "A feature version cannot be less than 0."),
        (
            "group.version",
            0,
            1,
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade.",
        ),
        (
            "transaction.version",
            1,
            2,
            "Feature levels are fixed: they depend on the API versions that this listener serves.",
        ),
    ),
)
def test_other_levels_of_features_are_refused(client, name, level, kind, reason):
    """Kafka 4.3.1 sends the same messages, except for the last one."""
    message = PREFIX.format(level, name) + reason
    assert update(client, ("group.version", 1, 1), (name, level, kind)) == (
        "INVALID_UPDATE_VERSION",
        message,
    )


@pytest.mark.parametrize(
    ("broker", "error", "message"),
    (
        (99, "BROKER_ID_NOT_REGISTERED", "Broker ID 99 is not currently registered"),
        (1, "INVALID_REQUEST", "The set of brokers in this cluster is fixed."),
    ),
)
def test_brokers_cannot_be_unregistered(server, broker, error, message):
    with Client(server[0]) as client:
        answer = client.ask(UnregisterBrokerRequest(broker_id=broker), 0)
    assert (name_of(answer.error_code), answer.error_message) == (error, message)


def resources(client, *kinds, version=1):
    answer = client.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    if answer.error_code:
        return name_of(answer.error_code)
    return sorted((each.resource_type, each.resource_name) for each in answer.config_resources)


def test_resources_with_configurations_are_listed(client, broker):
    broker.create_topic("t")
    configs = {"consumer.session.timeout.ms": "50000"}
    broker.manager.topics.alter_group("g", configs)
    assert resources(client) == [(2, "t"), (4, "0"), (8, "0"), (32, "g")]
    assert resources(client, 2) == [(2, "t")]
    assert resources(client, 4, 32) == [(4, "0"), (32, "g")]
    assert resources(client, 16) == []
    assert resources(client, 3) == "UNSUPPORTED_VERSION"
    assert resources(client, version=0) == [], "client metrics only"


def test_groups_of_a_cluster_are_listed():
    with Cluster(1) as cluster, cluster.listen() as server, Client(server[0]) as client:
        cluster.alter_group_configs("g", {"consumer.session.timeout.ms": "50000"})
        assert resources(client, 32) == [(32, "g")]


@pytest.mark.parametrize(
    ("request_", "version"),
    (
        (quorum_of(), 2),
        (UpdateFeaturesRequest(timeout_ms=1000), 2),
        (UnregisterBrokerRequest(broker_id=0), 0),
        (ListConfigResourcesRequest(), 1),
    ),
)
def test_they_need_permissions(broker, request_, version):
    with broker.listen(authorizer=Authorizer([])) as listener, Client(listener) as client:
        answer = client.ask(request_, version)
    assert name_of(answer.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
