"""Records of Kafka's topics, as Kafka's dump tool prints them, and as JSON."""

import json
from random import Random

import pytest

from logstore.coordinator.transactions.state import TransactionState
from logstore.errors import UnsupportedFormatError
from logstore.inspect.decoders import (
    DECODERS,
    TRANSACTION_STATES,
    class_texts,
    decoder_class,
    java_double,
    java_json,
    scala_set,
)
from logstore.inspect.internal_topics import decode_internal_record
from logstore.messages import encode_versioned, types
from logstore.messages.compiler import uvarint
from logstore.record.records import Record
from logstore.types import TopicPartition
from tests.support.interop.decoded_records import FLAGS, pairs

OFFSETS = "__consumer_offsets"


def test_names_of_states_are_the_coordinators():
    assert tuple(state.kafka_name for state in TransactionState) == TRANSACTION_STATES


# -- what cannot be decoded ----------------------------------------------------------------------


@pytest.mark.parametrize("topic", DECODERS)
@pytest.mark.parametrize(
    ("key", "value"),
    (
        (None, None),
        (b"", b""),
        (b"\0", b"\1"),
        (b"\0\1", b"\1\x80"),
        (b"\0\1\0\3", b"\1\xff\xff\xff\xff\xff\xff"),
        (b"\x7f\xff", b"\2\0\0"),
        (b"\0\0\0\1a", b"\1\x7f\0"),
        (b"\0\0\0\1a", b"\x7f\xff"),
    ),
)
def test_invalid_lines_are_named_and_skipped(topic, key, value):
    texts = DECODERS[topic](Record(7, 0, key, value))
    said = " ".join(filter(None, texts))
    kind = int.from_bytes(key[:2]) if key and len(key) > 1 else 0
    if topic == "__transaction_state" and kind:
        assert said == f"unknown::version={kind}"
    else:
        assert "7, skipping." in said
    found = decode_internal_record(topic, key, value)
    assert (found["key"], found["value"]) == (None, None)
    assert found["error"]


@pytest.mark.parametrize("topic", FLAGS)
def test_damage_in_every_byte_is_survived(topic):
    rng = Random(topic)
    for key, value in list(pairs(topic, rng))[:60]:
        for data in filter(None, (key, value)):
            for _ in range(10):
                damaged = bytearray(data)
                damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                cut = bytes(damaged[: rng.choice((len(data), rng.randrange(len(data) + 1)))])
                record = Record(1, 0, cut if data is key else key, cut if data is value else value)
                DECODERS[topic](record)
                assert decode_internal_record(topic, record.key, record.value).keys() >= {
                    "key",
                    "value",
                }


# -- JSON ----------------------------------------------------------------------------------------


def test_a_committed_offset():
    key = encode_versioned(types.OffsetCommitKey(group="g", topic="t", partition=5), 1)
    value = encode_versioned(types.OffsetCommitValue(offset=9, metadata="m"), 3)
    assert decode_internal_record(OFFSETS, key, value) == {
        "type": "OffsetCommit",
        "version": 3,
        "key": {"group": "g", "topic": "t", "partition": 5},
        "value": {"offset": 9, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": 0},
    }
    forgotten = decode_internal_record(OFFSETS, key, None)
    assert (forgotten["version"], forgotten["value"]) == (None, None)


def test_group_members_report_their_positions():
    subscription = types.ConsumerProtocolSubscription(topics=["t"])
    member = types.GroupMetadataValue.MemberMetadata(
        member_id="m", subscription=encode_versioned(subscription, 1), assignment=b"\0\0" + bytes(8)
    )
    value = types.GroupMetadataValue(protocol_type="consumer", members=[member])
    key = encode_versioned(types.GroupMetadataKey(group="g"), 2)
    (told,) = decode_internal_record(OFFSETS, key, encode_versioned(value, 3))["value"]["members"]
    assert told["subscription"] == {"topics": ["t"], "userData": None, "ownedPartitions": []}
    assert told["assignment"]["assignedPartitions"] == []
    value.protocol_type = "connect"
    (told,) = decode_internal_record(OFFSETS, key, encode_versioned(value, 3))["value"]["members"]
    assert told["assignment"] == "AAAAAAAAAAAAAA=="


def test_metadata_of_a_cluster():
    topic = types.TopicRecord(name="orders", topic_id="AAECAwQFBgcICQoLDA0ODw")
    frame = uvarint(1) + uvarint(2) + uvarint(0)
    value = frame + b"".join((b"\7orders", bytes(range(16)), b"\0"))
    assert decode_internal_record("__cluster_metadata", None, value) == {
        "type": "TopicRecord",
        "version": 0,
        "key": None,
        "value": {"name": topic.name, "topicId": topic.topic_id},
    }


def test_share_groups():
    key = encode_versioned(types.ShareUpdateKey(group_id="g", partition=2), 1)
    assert decode_internal_record("__share_group_state", key, None)["type"] == "ShareUpdate"
    texts = DECODERS["__share_group_state"](Record(7, 0, key, None))
    zero = "A" * 22
    key_text = f'{{"type":"1","data":{{"groupId":"g","topicId":"{zero}","partition":2}}}}'
    assert texts == (key_text, "<DELETE>")


def test_topics_of_others_are_not_decoded():
    assert decode_internal_record("users", b"\0\1", b"") is None


# -- Java's and Scala's ways ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    (
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.5, "100.5"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e10, "-1.25E10"),
        (5e-324, "4.9E-324"),
        (1e23, "1.0E23"),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
    ),
)
def test_numbers_are_javas(value, text):
    assert java_double(value) == text


def test_json_is_jacksons():
    value = {"a": [1, True, None, 1.5], "é": '\x1f"\\\t🦜', "u": "\\u00ab"}
    text = java_json(value)
    assert text == '{"a":[1,true,null,1.5],"é":"\\u001F\\"\\\\\\t🦜","u":"\\\\u00ab"}'
    assert json.loads(text) == value


def test_a_set_of_scala_has_an_order_of_its_own():
    """As printed by Kafka 3.9.2 of five partitions that come at once."""
    batch = [TopicPartition("topic-1", number) for number in range(3)]
    assert sorted(scala_set([batch])) == batch
    assert scala_set([batch, batch]) == scala_set([batch])


# -- decoders by class -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "text"),
    (
        ("org.apache.kafka.tools.api.StringDecoder", b"a\xff", "a\ufffd"),
        ("kafka.serializer.StringDecoder", b"", ""),
        ("org.apache.kafka.tools.api.IntegerDecoder", b"\xff\xff\xff\xfe", "-2"),
        ("IntegerDecoder", b"\0\0\0\7 and more", "7"),
        ("LongDecoder", b"\x80" + bytes(7), str(-(2**63))),
    ),
)
def test_a_class_decodes_as_in_kafkas_tool(name, data, text):
    """The texts are the tool's; tests/interop/test_decoders.py holds ours against it."""
    found = decoder_class(name)
    assert found.text(data) == text
    record = Record(3, 0, data, None)
    assert class_texts(found, found, record) == (text, None)
    assert found.is_deprecated == name.startswith("kafka.serializer.")


def test_too_few_bytes_for_a_number_are_reported_in_place_of_the_record():
    found = decoder_class("LongDecoder")
    record = Record(3, 0, b"1234567", b"12345678")
    expected = "Error at offset 3, skipping. 7 bytes are too few for long"
    assert class_texts(found, found, record) == (expected, None)


@pytest.mark.parametrize(
    ("name", "why"),
    (
        ("org.example.Mine", "supported are StringDecoder, IntegerDecoder, LongDecoder"),
        ("org.apache.kafka.tools.api.DefaultDecoder", "shows an address in memory"),
    ),
)
def test_a_class_that_is_not_here_is_refused_by_name(name, why):
    with pytest.raises(UnsupportedFormatError, match=rf"decoder {name}.*{why}"):
        decoder_class(name)
