"""Offsets of consumer groups in transactions; the records against bytes of Kafka's classes.

The hexadecimal strings are what `OffsetCommitKey` and `OffsetCommitValue` of Kafka 3.9.2 and 4.4.0
give (`MessageUtil.toVersionPrefixedBytes`), the one with a tag 4.4.0 alone.
"""

from collections import namedtuple

import pytest

from logstore.coordinator.groups.offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    to_group_metadata,
    to_offsets,
)
from logstore.coordinator.groups.records import decode_key, decode_value, encode_key, encode_value
from logstore.coordinator.transactions.state import decode_value as decode_transaction
from logstore.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    LogStoreError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.storage.log import NewRecord
from logstore.types import TopicPartition
from tests.support.world.messages import exactly
from tests.support.world.transactions import Bench, markers, stamps

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 1_700_000_000_123

KEYS = {
    "000100016700017400000000": ("g", T0),
    "0001000767c3a9f09f988000066f72646572737fffffff": (
        "gé😀",
        TopicPartition("orders", 2**31 - 1),
    ),
    "000100087061796d656e74730007612e622d635f6400000007": (
        "payments",
        TopicPartition("a.b-c_d", 7),
    ),
}
VALUES = {
    "0000000000000000002a0003c3a9310000018bcfe5687b": OffsetAndMetadata(42, "é1"),
    "0001000000000000002a0003c3a9310000018bcfe5687b0000018bcfe58f0f": OffsetAndMetadata(42, "é1"),
    "0002000000000000002a0003c3a9310000018bcfe5687b": OffsetAndMetadata(42, "é1"),
    "0003000000000000002a000000050003c3a9310000018bcfe5687b": OffsetAndMetadata(42, "é1", 5),
    "0004000000000000002a0000000504c3a9310000018bcfe5687b00": OffsetAndMetadata(42, "é1", 5),
    "0004000000000000002a0000000504c3a9310000018bcfe5687b01001000000000000000010000000000000002": (
        OffsetAndMetadata(42, "é1", 5)
    ),
}


@pytest.fixture
def bench():
    """A broker with a topic of two partitions, and one partition for the offsets of all groups."""
    bench = Bench(broker_config={"offsets.topic.num.partitions": 1})
    bench.broker.create_topic("t", 2)
    return bench


def committed(bench, group="g"):
    return bench.broker.groups.committed(group)


def offsets_log(bench):
    return bench.log(GROUP_OFFSETS_TOPIC)


# -- records ---------------------------------------------------------------------------------


def test_keys_are_kafkas():
    for text, (group, tp) in KEYS.items():
        assert encode_key(group, tp).hex() == text
        assert decode_key(bytes.fromhex(text)) == (group, tp)
        assert decode_key(bytes(2) + bytes.fromhex(text)[2:]) == (group, tp)


def test_other_records_of_a_group_are_skipped():
    assert decode_key(bytes.fromhex("0002000167")) is None


def test_values_are_kafkas():
    assert encode_value(OffsetAndMetadata(42, "é1", 5), NOW_MS).hex() in VALUES
    assert (
        encode_value(OffsetAndMetadata(2**63 - 1), 0).hex()
        == "00037fffffffffffffffffffffff00000000000000000000"
    )
    for text, value in VALUES.items():
        assert decode_value(bytes.fromhex(text)).committed == value


def test_no_prefix_of_a_record_is_valid():
    for decode, texts in ((decode_value, VALUES), (decode_key, KEYS)):
        for text in texts:
            for size in range(len(text) // 2):
                with pytest.raises(InvalidRecordError):
                    decode(bytes.fromhex(text)[:size])


def test_unknown_records():
    with pytest.raises(InvalidRecordError):
        decode_key(None)
    with pytest.raises(UnsupportedFormatError):
        decode_value(bytes.fromhex("0005") + bytes(40))


@pytest.mark.parametrize(
    ("group", "number"), (("g", 3), ("gé😀", 35), ("payments", 13), ("polygenelubricants", 0))
)
def test_a_group_has_the_partition_that_it_has_in_kafka(group, number):
    """The hash of the last group is the smallest int, whose absolute value overflows in Java."""
    bench = Bench()
    partition = bench.broker.groups.partition_of(group)
    assert partition == TopicPartition("__consumer_offsets", number)


# -- in transactions -------------------------------------------------------------------------


def test_offsets_are_committed_with_the_transaction(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"out", partition=1)
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "half way", 2)}, "g")
    assert committed(bench) == {}
    log = offsets_log(bench)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 1)
    producer.commit_transaction()
    assert committed(bench) == {T0: OffsetAndMetadata(5, "half way", 2)}
    assert committed(bench, "another") == {}
    assert log.last_stable_offset == log.log_end_offset == 2
    assert markers(log) == [(1, *producer._session.producer, "COMMIT", 0)]


def test_offsets_of_an_aborted_transaction_are_ignored(bench):
    producer = bench.transactional()
    for offset in (5, 9):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, "g")
        producer.commit_transaction() if offset == 5 else producer.abort_transaction()
    assert committed(bench) == {T0: OffsetAndMetadata(5)}
    assert [marker[3] for marker in markers(offsets_log(bench))] == ["COMMIT", "ABORT"]


def test_a_marker_takes_effect_despite_an_open_transaction_of_another_group(bench):
    """The later record of a group's two transactions counts, whichever ends last."""
    first, second = bench.transactional("x"), bench.transactional("y")
    first.begin_transaction()
    first.send_offsets_to_transaction({T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(2)}, "h")
    second.begin_transaction()
    second.send_offsets_to_transaction({T0: OffsetAndMetadata(3)}, "g")
    second.send_offsets_to_transaction({T0: OffsetAndMetadata(4)}, "h")
    second.commit_transaction()
    assert (committed(bench, "g"), committed(bench, "h")) == (
        {T0: OffsetAndMetadata(3)},
        {T0: OffsetAndMetadata(4)},
    )
    first.commit_transaction()
    assert committed(bench, "h") == {T0: OffsetAndMetadata(4), T1: OffsetAndMetadata(2)}


def test_a_call_is_one_batch_with_unchecked_sequences(bench):
    """Kafka's group coordinator also writes each batch with sequence 0."""
    producer = bench.transactional()
    producer.begin_transaction()
    for offset in (1, 2):
        both = {T1: OffsetAndMetadata(offset), T0: OffsetAndMetadata(offset + 10)}
        producer.send_offsets_to_transaction(both, "g")
    producer.commit_transaction()
    assert stamps(offsets_log(bench)) == [(0, 0, 0, 0, True), (2, 0, 0, 0, True)]
    assert committed(bench) == {T0: OffsetAndMetadata(12), T1: OffsetAndMetadata(2)}


def test_the_partition_is_part_of_the_transaction_before_it_gets_offsets(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    states = [
        decode_transaction("x", record.value)
        for _, record in bench.log("__transaction_state").reader.records(0)
    ]
    assert states[-1].partitions == {TopicPartition(GROUP_OFFSETS_TOPIC, 0)}


def test_the_topic_is_created_with_kafka_s_configs():
    bench = Bench()
    bench.broker.create_topic("t")
    assert GROUP_OFFSETS_TOPIC not in [topic.name for topic in bench.broker.topics()]
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "payments")
    producer.commit_transaction()
    topic = bench.broker.topic(GROUP_OFFSETS_TOPIC)
    assert topic.partitions == tuple(range(50))
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compaction.strategy": "offset",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert bench.log(GROUP_OFFSETS_TOPIC, 13).log_end_offset == 2


def test_group_configs_default_to_the_broker_configuration(bench):
    config = bench.broker.groups.config
    assert config is bench.broker.manager.broker_config
    assert config.offsets_topic_num_partitions == 1


def test_no_offsets_change_nothing(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({}, "g")
    producer.commit_transaction()
    assert bench.state() == "Empty"
    assert GROUP_OFFSETS_TOPIC not in [topic.name for topic in bench.broker.topics()]


def test_a_null_value_deletes_an_offset(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    producer.commit_transaction()
    log = offsets_log(bench)
    log.writer.append_records(
        [NewRecord(encode_key("g", T0), None), NewRecord(b"\0\2\0\1g", b"members")]
    )
    assert committed(bench) == {}


def test_offsets_survive_a_cleaning(bench):
    producer = bench.transactional()
    for offset in range(4):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, "g")
        producer.commit_transaction() if offset != 2 else producer.abort_transaction()
    log = offsets_log(bench)
    log.writer.roll()
    log.writer.append_records(
        [NewRecord(encode_key("g", T1), encode_value(OffsetAndMetadata(7), 0))]
    )
    bench.broker.clean(GROUP_OFFSETS_TOPIC, force=True)
    assert [record.offset for _, record in log.reader.records(0)] == [6, 8]
    assert committed(bench) == {T0: OffsetAndMetadata(3), T1: OffsetAndMetadata(7)}


# -- fencing and timeouts --------------------------------------------------------------------


def test_a_transaction_that_a_crash_left_open_is_aborted(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    offsets_log(bench).flush()
    bench.reopen()
    assert offsets_log(bench).last_stable_offset == 0
    bench.transactional()
    assert [marker[3] for marker in markers(offsets_log(bench))] == ["ABORT"]
    assert committed(bench) == {}


def test_a_fenced_producer_commits_no_offsets(bench):
    old = bench.transactional()
    old.begin_transaction()
    new = bench.transactional()
    with pytest.raises(ProducerFencedError):
        old.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    new.begin_transaction()
    new.send_offsets_to_transaction({T0: OffsetAndMetadata(6)}, "g")
    new.commit_transaction()
    assert committed(bench) == {T0: OffsetAndMetadata(6)}


def test_a_timed_out_producer_cannot_commit_offsets(bench):
    """Its partition was added before, so the log rejects the batch."""
    producer = bench.transactional(transaction_timeout_ms=60_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    bench.clock.advance(minutes=2)
    assert bench.coordinator.abort_timed_out() == ["x"]
    with pytest.raises(InvalidProducerEpochError):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(6)}, "g")
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction()
    assert committed(bench) == {}
    assert offsets_log(bench).log_end_offset == 2


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "offsets", "error", "name"),
    (
        ("", {T0: OffsetAndMetadata(5)}, InvalidGroupIdError, "INVALID_GROUP_ID"),
        (
            ConsumerGroupMetadata("g", 0),
            {T0: OffsetAndMetadata(5)},
            UnknownMemberIdError,
            "UNKNOWN_MEMBER_ID",
        ),
        (
            ConsumerGroupMetadata("g", 7, "member"),
            {T0: OffsetAndMetadata(5)},
            UnknownMemberIdError,
            "UNKNOWN_MEMBER_ID",
        ),
        (
            "g",
            {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(5, "😀" * 2049)},
            OffsetMetadataTooLargeError,
            "OFFSET_METADATA_TOO_LARGE",
        ),
        (
            "g",
            {T0: OffsetAndMetadata(5), TopicPartition("t", 2): OffsetAndMetadata(5)},
            UnknownTopicOrPartitionError,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            "g",
            {TopicPartition("u", 0): OffsetAndMetadata(5)},
            UnknownTopicOrPartitionError,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        ("g" * 32768, {T0: OffsetAndMetadata(5)}, InvalidRecordError, "INVALID_RECORD"),
    ),
)
def test_after_an_error_only_abort_is_possible(bench, group, offsets, error, name):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(4, "😀" * 2048)}, "g")
    before = [batch.data for batch in offsets_log(bench).reader.batches(0)]
    with pytest.raises(error) as caught:
        producer.send_offsets_to_transaction(offsets, group)
    assert caught.value.kafka_error == name
    assert [batch.data for batch in offsets_log(bench).reader.batches(0)] == before
    with pytest.raises(error):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed(bench) == {}


def test_after_a_refused_record_only_abort_is_possible(bench):
    bench.transactional("y")
    bench.coordinator.groups.partition_for("g")
    bench.broker.alter_configs(GROUP_OFFSETS_TOPIC, {"max.message.bytes": "100"})
    producer = bench.transactional()
    producer.begin_transaction()
    with pytest.raises(LogStoreError) as caught:
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "x" * 100)}, "g")
    assert caught.value.kafka_error == "MESSAGE_TOO_LARGE"
    assert offsets_log(bench).log_end_offset == 0
    producer.abort_transaction()


def test_calls_in_the_wrong_order(bench):
    producer = bench.transactional()
    for offsets in ({}, {T0: OffsetAndMetadata(5)}):
        with pytest.raises(IllegalStateError):
            producer.send_offsets_to_transaction(offsets, "g")
    with pytest.raises(IllegalStateError):
        bench.broker.producer().send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    producer.close()
    with pytest.raises(IllegalStateError):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")


FIVE = OffsetAndMetadata(5)


@pytest.mark.parametrize(
    ("group", "offsets", "error", "message"),
    (
        (b"g", {T0: FIVE}, TypeError, "expected a ConsumerGroupMetadata or a group id, not b'g'"),
        (None, {T0: FIVE}, TypeError, "expected a ConsumerGroupMetadata or a group id, not None"),
        (
            ConsumerGroupMetadata("g", 1),
            {T0: FIVE},
            ValueError,
            "generation 1 requires a member id: ConsumerGroupMetadata(group_id='g',"
            " generation_id=1, member_id='', group_instance_id=None)",
        ),
        (
            "g",
            [(T0, 5)],
            TypeError,
            f"offsets must be a mapping by TopicPartition, not {[(T0, 5)]}",
        ),
        ("g", {T0: 5}, TypeError, "expected an OffsetAndMetadata, not 5"),
        (
            "g",
            {("t", 0): FIVE},
            TypeError,
            "keys of offsets must be TopicPartitions, not ('t', 0)",
        ),
        *(
            ("g", {T0: each}, TypeError, f"expected an OffsetAndMetadata, not {each!r}")
            for each in (OffsetAndMetadata(5.0), OffsetAndMetadata(5, b"x"))
        ),
        *(
            ("g", {T0: each}, ValueError, f"offset or leader epoch out of range: {each!r}")
            for each in (
                OffsetAndMetadata(-1),
                OffsetAndMetadata(1 << 63),
                OffsetAndMetadata(5, "", -2),
            )
        ),
        ("g", {T0: OffsetAndMetadata(5, "\ud800")}, ValueError, None),
    ),
)
def test_other_arguments_change_nothing(bench, group, offsets, error, message):
    producer = bench.transactional()
    producer.begin_transaction()
    with pytest.raises(error) as caught:
        producer.send_offsets_to_transaction(offsets, group)
    assert message in (None, str(caught.value))
    producer.send_offsets_to_transaction({T0: FIVE}, "g")
    producer.commit_transaction()
    assert committed(bench) == {T0: FIVE}


def test_numbers_at_the_ends_of_their_ranges():
    """Offsets are 0 to the largest of 64 bits, leader epochs -1 to the largest of 32 bits."""
    ends = {T0: OffsetAndMetadata(0, "", -1), T1: OffsetAndMetadata(2**63 - 1, "m", 2**31 - 1)}
    assert to_offsets(ends) == ends
    refused = OffsetAndMetadata(5, "", 2**31)
    with pytest.raises(
        ValueError, match=exactly(f"offset or leader epoch out of range: {refused}")
    ):
        to_offsets({T0: refused})
    for key in (
        *(TopicPartition("t", each) for each in (True, 5.0, None)),
        TopicPartition(b"t", 0),
    ):
        message = f"keys of offsets must be TopicPartitions, not {key!r}"
        with pytest.raises(TypeError, match=exactly(message)):
            to_offsets({key: FIVE})
    numbers = (True, 5.0, None)
    for value in (
        *(OffsetAndMetadata(each) for each in numbers),
        *(OffsetAndMetadata(5, "", each) for each in numbers[:2]),
    ):
        with pytest.raises(
            TypeError, match=exactly(f"expected an OffsetAndMetadata, not {value!r}")
        ):
            to_offsets({T0: value})


@pytest.mark.parametrize(
    ("group", "is_member"),
    (
        (ConsumerGroupMetadata("g"), False),
        (ConsumerGroupMetadata("g", 0), True),
        (ConsumerGroupMetadata("g", -1, "m"), True),
        (ConsumerGroupMetadata("g", -1, "", "i"), True),
        (ConsumerGroupMetadata("g", 3, "m", "i"), True),
    ),
)
def test_metadata_of_groups(group, is_member):
    assert to_group_metadata(group) == group
    assert group.is_member is is_member
    for wrong in (group._replace(group_id=b"g"), group._replace(generation_id=True)):
        message = f"expected a ConsumerGroupMetadata or a group id, not {wrong!r}"
        with pytest.raises(TypeError, match=exactly(message)):
            to_group_metadata(wrong)


def test_arguments_of_kafka_python(bench):
    """kafka-python's tuples, including the older one without a leader epoch, and metadata None."""
    partition = namedtuple("TopicPartition", ("topic", "partition"))
    older = namedtuple("OffsetAndMetadata", ("offset", "metadata"))
    newer = namedtuple("OffsetAndMetadata", ("offset", "metadata", "leader_epoch"))
    group = namedtuple(
        "ConsumerGroupMetadata",
        ("group_id", "generation_id", "member_id", "group_instance_id", "state"),
    )
    producer = bench.transactional()
    producer.begin_transaction()
    offsets = {partition("t", 0): older(5, None), partition("t", 1): newer(6, "m", 3)}
    whose = group("g", -1, "", None, "<unjoined>")
    producer.send_offsets_to_transaction(offsets, whose)
    producer.commit_transaction()
    assert committed(bench) == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6, "m", 3)}


def test_a_copied_topic_is_taken_over_by_the_first_offsets(bench):
    """A copy from a broker has only partition folders, and maybe not all of them."""
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, "g")
    producer.commit_transaction()
    bench.broker.close()
    for name in bench.fs.list_dir(bench.path):
        if name.endswith(".json"):
            bench.fs.remove(f"{bench.path}/{name}")
    bench.fs.rename(
        f"{bench.path}/{GROUP_OFFSETS_TOPIC}-0", f"{bench.path}/{GROUP_OFFSETS_TOPIC}-3"
    )
    bench.options["broker_config"] = {}
    bench.open()
    assert bench.broker.topic(GROUP_OFFSETS_TOPIC).adopted
    assert committed(bench) == {T0: OffsetAndMetadata(5)}
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T1: OffsetAndMetadata(6)}, "g")
    producer.commit_transaction()
    assert len(bench.broker.topic(GROUP_OFFSETS_TOPIC).partitions) == 50
    assert committed(bench) == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)}
