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
    WriteTxnMarkersRequest,
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


def produce(client, producer, **fields):
    return name_of(produced(client, producer, **fields).error_code)


def add_batched(client, *transactions, version=5):
    """Return the errors of (transactional id, producer, partitions of "t", verify only) each."""
    of_transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        transactions=[
            of_transaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=verify_only,
                topics=[of_topic(name="t", partitions=list(partitions))],
            )
            for transactional_id, producer, partitions, verify_only in transactions
        ]
    )
    return {
        each.transactional_id: [
            name_of(partition.partition_error_code)
            for topic in each.topic_results
            for partition in topic.results_by_partition
        ]
        for each in client.ask(request, version).results_by_transaction
    }


def write_markers(client, *markers, version=2):
    """Write (producer, coordinator epoch, commit, transaction version, partitions) each.

    Return the error of each partition by producer id.
    """
    of_topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                topics=[
                    of_topic(name=topic, partition_indexes=[number]) for topic, number in partitions
                ],
            )
            for producer, coordinator_epoch, commit, transaction_version, partitions in markers
        ]
    )
    return {
        each.producer_id: {
            (topic.name, partition.partition_index): name_of(partition.error_code)
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in client.ask(request, version).markers
    }


def end(client, producer, *, commit=True, version=3, transactional_id="x"):
    return ended(
        client, producer, commit=commit, version=version, transactional_id=transactional_id
    )[0]


def ended(client, producer, *, commit=True, version=5, transactional_id="x"):
    """Return the error, and the producer of the next transaction."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    answer = client.ask(request, version)
    result = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    return name_of(answer.error_code), result


def add_offsets(client, producer, version=3, group="g"):
    request = AddOffsetsToTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )
    return name_of(client.ask(request, version).error_code)


def commit_offsets(client, producer, *rows, version=3, transactional_id="x", **fields):
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
        transactional_id=transactional_id,
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
