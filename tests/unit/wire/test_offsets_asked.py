"""Epochs of an empty log, and offset requests that no log answers."""

from __future__ import annotations

import pytest

from logstore import Broker
from logstore.messages.types import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tests.support.world.wire import Client, fetch_of

EARLIEST, EARLIEST_LOCAL = -2, -4


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic("t")


def listed(client, version, timestamp):
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", (1, 2, 3))
def test_versions_without_leader_epochs_are_answered(client, version):
    assert listed(client, version, EARLIEST).offset == 0


@pytest.mark.parametrize("timestamp", (EARLIEST, EARLIEST_LOCAL))
def test_the_start_of_an_empty_log_is_of_its_leaders_epoch(client, timestamp):
    assert listed(client, 8, timestamp).leader_epoch == 0


def test_the_epoch_of_an_empty_log_ends_at_its_start(client):
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
    answer = client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 4)
    end = answer.topics[0].partitions[0]
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "partition", "error", "aborted"), ((0, 77, 3, []), (10, 0, 1, None))
)
def test_the_fetch_error_source_is_in_the_aborted_transactions(
    client, offset, partition, error, aborted
):
    asked = FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=100
    )
    topic = FetchRequest.FetchTopic(topic="t", partitions=[asked])
    answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
    found = answer.responses[0].partitions[0]
    assert (found.error_code, found.aborted_transactions) == (error, aborted)


@pytest.mark.parametrize(("version", "error"), ((9, 76), (10, 0)))
def test_clients_that_cannot_know_zstd_are_refused_a_topic_of_it(version, error):
    with Broker() as broker:
        broker.create_topic("t", configs={"compression.type": "zstd"})
        with broker.listen() as listener, Client(listener) as client:
            answer = client.ask(fetch_of("t", 0), version)
    assert answer.responses[0].partitions[0].error_code == error
