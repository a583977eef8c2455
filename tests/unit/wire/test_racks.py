"""Racks, and consumers that read from followers (KIP-392), as Kafka 4.3.1 answers them."""

import pytest

from logstore import Broker, Cluster, InvalidConfigurationError, TopicPartition, VirtualClock
from logstore.cluster.leadership import Leadership
from logstore.coordinator.groups.cluster_topics import ClusterTopics, TopicInfo
from logstore.errors import KAFKA_CODES
from logstore.messages.types import (
    DescribeClusterRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.support.world.wire import Client, fetch_of

BY_RACK = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
LEADER_ONLY = {"replica.selector.class": "org.apache.kafka.common.replica.LeaderSelector"}
T = TopicPartition("t", 0)


def fetched(server, broker, offset=0, version=12, **fields):
    """Return error, number of bytes, high watermark and preferred replica."""
    with Client(server[broker]) as client:
        answer = client.ask(fetch_of("t", offset, **fields), version)
        found = answer.responses[0].partitions[0]
        return (
            found.error_code,
            len(found.records or b""),
            found.high_watermark,
            found.preferred_read_replica,
        )


def cluster_of(racks="abc", settings=BY_RACK, **options):
    return Cluster(len(racks), racks=racks, broker_config=settings, **options)


@pytest.fixture
def cluster():
    with cluster_of() as cluster:
        cluster.create_topic("t", replication_factor=3, assignment=[(0, 1, 2)])
        cluster.append("t", value=b"1")
        cluster.run_until(
            lambda: all(each.log("t").high_watermark == 1 for each in cluster.brokers.values()),
            timeout=20_000,
        )
        yield cluster


@pytest.fixture
def server(cluster):
    with cluster.listen() as server:
        yield server


def test_racks_are_reported(server):
    with Client(server[1]) as client:
        for request, version in ((MetadataRequest(), 12), (DescribeClusterRequest(), 2)):
            assert [each.rack for each in client.ask(request, version).brokers] == ["a", "b", "c"]
    with (
        Broker(broker_config={"broker.rack": "r"}) as broker,
        broker.listen() as listener,
        Client(listener) as client,
    ):
        assert client.ask(MetadataRequest(), 1).brokers[0].rack == "r"


@pytest.mark.parametrize("racks", ("ab", ["a", "b", ""]))
def test_each_broker_needs_a_rack(racks):
    with pytest.raises(InvalidConfigurationError):
        Cluster(3, racks=racks)


def test_the_leader_names_a_replica_in_the_rack_of_the_consumer(server):
    size = fetched(server, 0)[1]
    assert size > 0
    for rack, preferred in (("", -1), ("a", -1), ("b", 1), ("c", 2), ("other", -1)):
        expected = (0, 0 if preferred >= 0 else size, 1, preferred)
        assert fetched(server, 0, rack_id=rack) == expected, rack
    assert fetched(server, 0, 1, rack_id="b", max_wait_ms=60_000) == (0, 0, 1, 1), "at once"
    out_of_range = KAFKA_CODES["OFFSET_OUT_OF_RANGE"]
    assert fetched(server, 0, 2, rack_id="b") == (out_of_range, 0, -1, -1)


def test_followers_serve_consumers_that_may_know_racks(server):
    size = fetched(server, 0)[1]
    assert fetched(server, 1, version=11) == (0, size, 1, -1)
    assert fetched(server, 1, version=11, rack_id="b") == (0, size, 1, -1)
    refused = KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"]
    assert fetched(server, 1, version=10)[0] == refused
    assert fetched(server, 1, 2)[0] == KAFKA_CODES["OFFSET_OUT_OF_RANGE"]


def test_a_broker_without_a_replica_refuses(cluster, server):
    cluster.create_topic("u", assignment=[(0,)])
    with Client(server[1]) as client:
        found = client.ask(fetch_of("u", 0), 12).responses[0].partitions[0]
    assert found.error_code == KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"]


def test_a_follower_does_not_show_records_above_its_high_watermark(cluster, server):
    size = fetched(server, 0)[1]
    cluster.disconnect({0}, {2})
    cluster.append("t", value=b"2", acks=1)
    cluster.run_until(lambda: cluster.brokers[1].log("t").log_end_offset == 2, timeout=20_000)
    assert fetched(server, 1) == (0, size, 1, -1)
    assert fetched(server, 0) == (0, size, 1, -1)
    assert fetched(server, 0, 1, rack_id="c") == (0, 0, 1, 2), "in sync until it lags too long"
    cluster.heal()
    cluster.run_until(lambda: cluster.brokers[1].log("t").high_watermark == 2, timeout=20_000)
    assert fetched(server, 1)[1] == 2 * size


def test_log_starts_of_replicas_may_differ(cluster, server):
    cluster.append("t", value=b"2")
    cluster.run_until(lambda: cluster.brokers[2].log("t").high_watermark == 2, timeout=20_000)
    cluster.disconnect({0}, {2})
    cluster.delete_records({T: 2}, timeout_ms=1)
    out_of_range = KAFKA_CODES["OFFSET_OUT_OF_RANGE"]
    assert fetched(server, 0)[0] == out_of_range
    assert fetched(server, 2)[:1] == (0,), "it does not know yet"
    # The follower has the offset, so it may serve it, as in Kafka.
    assert fetched(server, 0, 1, rack_id="c") == (0, 0, 2, 2)
    cluster.heal()
    cluster.run_until(lambda: cluster.brokers[2].log("t").log_start_offset == 2, timeout=20_000)
    assert fetched(server, 2)[0] == out_of_range
    assert fetched(server, 0, 1, rack_id="c")[0] == out_of_range


def test_a_stopped_replica_is_not_preferred(cluster, server):
    cluster.kill(1)
    assert fetched(server, 0, rack_id="b")[3] == -1


@pytest.mark.parametrize("settings", ({}, LEADER_ONLY))
def test_without_the_selector_the_leader_serves_all(settings):
    with cluster_of("ab", settings) as cluster, cluster.listen() as server:
        cluster.create_topic("t", replication_factor=2)
        assert fetched(server, 0, rack_id="b") == (0, 0, 0, -1)


def test_a_new_leader_does_not_know_the_latest_offset_at_once():
    """Until its followers have reached the start of its epoch (KIP-207)."""
    with cluster_of("abc", {}) as cluster, cluster.listen() as server:
        cluster.create_topic("t", replication_factor=3, assignment=[(0, 1, 2)])
        cluster.disconnect({0}, {2})
        cluster.append("t", value=b"1", acks=1)
        cluster.run_until(lambda: cluster.brokers[1].log("t").log_end_offset == 1, timeout=20_000)
        cluster.disconnect({1}, {2})
        cluster.move_leader("t", to=1)
        cluster.disconnect({0}, {1})
        with Client(server[1]) as client:

            def listed(timestamp, version):
                partition = ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=0, timestamp=timestamp
                )
                topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])]
                request = ListOffsetsRequest(replica_id=-1, topics=topics)
                found = client.ask(request, version).topics[0].partitions[0]
                return found.error_code, found.offset

            assert cluster.brokers[1].log("t").high_watermark == 0
            assert listed(-1, 8) == (KAFKA_CODES["OFFSET_NOT_AVAILABLE"], -1)
            assert listed(0, 5) == (KAFKA_CODES["OFFSET_NOT_AVAILABLE"], -1)
            assert listed(-1, 4) == (KAFKA_CODES["LEADER_NOT_AVAILABLE"], -1)
            assert listed(-2, 8) == (0, 0)
            cluster.heal()
            cluster.run_until(
                lambda: cluster.brokers[1].log("t").high_watermark == 1, timeout=20_000
            )
            assert listed(-1, 8) == (0, 1)


def test_the_follower_with_the_longest_log_is_preferred():
    with cluster_of("abb", clock=VirtualClock()) as cluster:
        cluster.create_topic("t", replication_factor=3, assignment=[(0, 1, 2)])
        cluster.append("t", value=b"1")
        leadership = cluster.replicas(0).role(T)
        assert isinstance(leadership, Leadership)
        assert leadership.preferred_follower([1, 2], 0) == 2, "the larger id"
        cluster.disconnect({0}, {2})
        cluster.append("t", value=b"2", acks=1)
        cluster.clock.advance(ms=10)
        assert leadership.preferred_follower([1, 2], 0) == 1
        assert leadership.preferred_follower([2], 2) == -1


def test_new_topics_get_replicas_in_different_racks():
    with Cluster(6, racks="aabbcc", clock=VirtualClock()) as cluster:
        topic = cluster.create_topic("t", 6, replication_factor=3)
        for state in topic.partitions:
            assert len({"aabbcc"[broker] for broker in state.replicas}) == 3


def test_the_hash_of_a_topic_includes_racks():
    """The value is Kafka 4.3.1's, from a group's metadata in `__consumer_offsets`."""
    racks = [[each] for each in "ababba"]
    info = TopicInfo("g1795782297", "EFN70tGNR5KjMsinvhhByw", range(6), racks)
    topics = ClusterTopics([info])
    assert topics.hash_of([info.name]).to_bytes(8, "big", signed=True).hex() == "94e83a2da440fae6"


def test_coordinators_see_the_racks(cluster):
    host = cluster._nodes[1].host
    assert host.racks_of("t", [0]) == (("a", "b", "c"),)
    with Broker(broker_config={"broker.rack": "r"}) as broker:
        assert broker.groups._host.racks_of("t", [0, 1]) == (("r",), ("r",))
