"""Producers and transactions over the wire, one request at a time."""

from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.messages.types import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.support.world.wire import name_of

CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
NOBODY = ProducerIdAndEpoch(-1, -1)


def coordinator_id(client, key, key_type=1):
    """Return the broker id of a coordinator: type 0 is a group, 1 a transactional id."""
    answer = client.ask(FindCoordinatorRequest(key=key, key_type=key_type), 3)
    assert name_of(answer.error_code) == "NONE"
    return answer.node_id


def init(client, version=4, transactional_id="x", timeout_ms=1000, known=NOBODY):
    """Return the error, and the producer."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
    )
    answer = client.ask(request, version)
    result = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    return name_of(answer.error_code), result


def add(client, producer, *partitions, version=3, transactional_id="x"):
    """Return the error of each partition."""
    topics = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[of_topic(name=t, partitions=each) for t, each in topics.items()],
    )
    return [
        name_of(each.partition_error_code)
        for topic in client.ask(request, version).results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def produced(
    client,
    producer,
    partition=0,
    transactional_id="x",
    sequence=0,
    version=9,
    *,
    is_transactional=True,
):
    """Return the answer to a batch of one record."""
    batch = build_batch(
        [Record(0, 1_704_067_200_000, b"k", b"v")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
    )
    ((result,),) = [topic.partition_responses for topic in client.ask(request, version).responses]
    return result


def produce(client, producer):
    return name_of(produced(client, producer).error_code)


def end(client, producer, *, commit=True, version=3, transactional_id="x"):
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    return name_of(client.ask(request, version).error_code)


def add_offsets(client, producer, version=3, group="g"):
    request = AddOffsetsToTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )
    return name_of(client.ask(request, version).error_code)


def commit_offsets(client, producer, *rows, version=3, **fields):
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topics = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                partition(partition_index=number, committed_offset=offset, committed_metadata=text)
            ],
        )
        for topic, number, offset, text in rows
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
        **fields,
    )
    answer = client.ask(request, version)
    return [name_of(each.error_code) for topic in answer.topics for each in topic.partitions]


def fetch_offsets(client, *partitions, group="g", require_stable=True, version=7):
    """Return the error and the committed offset of each (topic, partition)."""
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[number])
        for topic, number in partitions
    ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
    return [
        (name_of(each.error_code), each.committed_offset)
        for topic in client.ask(request, version).topics
        for each in topic.partitions
    ]
