"""Messages to bytes and back: every version of every message, and bytes that are none."""

import random
import struct

import pytest

from logstore.errors import MessageError, TooManyElementsError, UnsupportedFormatError
from logstore.messages import (
    decode,
    decode_at,
    decode_bounded,
    decode_versioned,
    encode,
    encode_bytes,
    encode_versioned,
    schema,
    to_json,
    types,
)
from logstore.messages.compiler import uvarint
from logstore.messages.schema import definitions
from logstore.messages.types import ListOffsetsRequest
from tests.support.world.messages import exactly
from tests.support.world.random_messages import random_message

ID = "AAECAwQFBgcICQoLDA0ODw"


def versions(name):
    return sorted(schema(name).versions)


@pytest.mark.parametrize("name", definitions())
def test_records_are_read_back_with_their_exact_length(name):
    rng = random.Random(name)
    kind = getattr(types, name)
    for version in versions(name):
        message = random_message(rng, name, version)
        data = encode_bytes(message, version)
        again, end = decode_at(kind, version, b"\x07" + data, 1)
        assert encode_bytes(again, version) == data
        assert end == len(data) + 1
        assert decode(kind, version, memoryview(data)) == decode(kind, version, data)
        assert to_json(again, version) == to_json(message, version)
        with pytest.raises(MessageError, match="1 bytes after the message") as refused:
            decode(kind, version, data + b"\0")
        assert type(refused.value) is MessageError
        for cut in {
            *range(min(len(data), 12)),
            *rng.sample(range(len(data) or 1), k=min(len(data), 12)),
        }:
            with pytest.raises(MessageError) as caught:
                decode(kind, version, data[:cut])
            assert (caught.value.name, caught.value.version) == (name, version)
            assert 0 <= caught.value.position <= cut


def elements_of(message):
    """Return how many elements the arrays of a message have, of all depths."""
    count = 0
    for name in message.__slots__:
        value = getattr(message, name)
        if isinstance(value, list):
            count += len(value)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__slots__") and hasattr(each, "schema"):
                count += elements_of(each)
    return count


def has_tagged_fields(name, version):
    structs = schema(name).structs.values()
    return any(version in field.tagged for fields in structs for field in fields)


@pytest.mark.parametrize("name", definitions())
def test_elements_are_bounded_in_each_message(name):
    rng = random.Random(name)
    kind = getattr(types, name)
    for version in versions(name):
        data = encode_bytes(random_message(rng, name, version), version)
        message, end, elements = decode_bounded(kind, version, data, 0, 10**6)
        # Tagged fields count as well: there may be any number of them.
        assert end == len(data)
        assert elements >= elements_of(message)
        if not has_tagged_fields(name, version):
            assert elements == elements_of(message)
        assert decode_bounded(kind, version, data, 0, elements) == (message, end, elements)
        if elements:
            with pytest.raises(TooManyElementsError, match="elements are too many"):
                decode_bounded(kind, version, data, 0, elements - 1)


def test_tagged_fields_that_are_not_known_count_as_elements():
    data = encode_bytes(types.ApiVersionsRequest(), 3)[:-1] + uvarint(300) + b"\x7f\0" * 300
    assert decode_bounded(types.ApiVersionsRequest, 3, data, 0, 300)[2] == 300
    with pytest.raises(TooManyElementsError):
        decode_bounded(types.ApiVersionsRequest, 3, data, 0, 299)


def test_no_element_is_decoded_of_an_array_that_has_too_many(monkeypatch):
    topics = [types.MetadataRequest.MetadataRequestTopic(name="t")] * 1000
    data = encode_bytes(types.MetadataRequest(topics=topics), 1)
    # The bytes of the elements are not even looked at.
    damaged = data[:4] + b"\xff" * (len(data) - 4)
    with pytest.raises(TooManyElementsError, match="1000 elements are too many"):
        decode_bounded(types.MetadataRequest, 1, damaged, 0, 999)


def test_values_survive():
    request = types.FetchRequest(
        cluster_id="c",
        max_wait_ms=500,
        topics=[
            types.FetchRequest.FetchTopic(
                topic_id=ID, partitions=[types.FetchRequest.FetchPartition(fetch_offset=1 << 40)]
            )
        ],
    )
    assert decode(types.FetchRequest, 17, encode_bytes(request, 17)) == request


def test_bytes_of_an_inflexible_version():
    request = types.DeleteRecordsRequest(
        topics=[
            types.DeleteRecordsRequest.DeleteRecordsTopic(
                name="t",
                partitions=[
                    types.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=3, offset=-1)
                ],
            )
        ],
        timeout_ms=7,
    )
    assert encode_bytes(request, 1) == struct.pack(">ih1siiqi", 1, 1, b"t", 1, 3, -1, 7)


def test_bytes_of_a_flexible_version():
    response = types.DeleteRecordsResponse(throttle_time_ms=1)
    assert encode_bytes(response, 2) == b"\0\0\0\1" + b"\1" + b"\0"


def test_bytes_of_a_tagged_field():
    request = types.FetchRequest(cluster_id="ab")
    assert encode_bytes(request, 12).endswith(b"\1" + b"\0" + b"\3" + b"\3ab")
    assert encode_bytes(types.FetchRequest(), 12).endswith(b"\0")


def test_a_tagged_structure_of_defaults_is_omitted():
    partition = types.FetchResponse.PartitionData
    silent = partition(diverging_epoch=types.FetchResponse.EpochEndOffset())
    for each in (silent, partition()):
        response = types.FetchResponse(
            responses=[types.FetchResponse.FetchableTopicResponse(partitions=[each])]
        )
        again = decode(types.FetchResponse, 12, encode_bytes(response, 12))
        assert again.responses[0].partitions[0].diverging_epoch is None


def test_unknown_tagged_fields_are_skipped():
    response = encode_bytes(types.HeartbeatResponse(error_code=3), 4)
    assert response.endswith(b"\0")
    known = response[:-1] + b"\2" + b"\x05\2xy" + b"\x81\1\0"
    assert decode(types.HeartbeatResponse, 4, known).error_code == 3


def test_large_records_are_handed_on_as_they_are():
    records = bytes(4096)
    data = types.ProduceRequest.PartitionProduceData(records=[records, memoryview(records)])
    request = types.ProduceRequest(
        topic_data=[types.ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )
    for version in (3, 9):
        buffers = encode(request, version)
        assert buffers[1] is records
        assert buffers[2].obj is records
        whole = b"".join(buffers)
        (topic,) = decode(types.ProduceRequest, version, whole).topic_data
        assert topic.partition_data[0].records == records * 2
        assert topic.partition_data[0].records.obj is whole


def test_null_records_and_small_ones():
    partition = types.FetchResponse.PartitionData
    for records, expected in ((None, None), (b"", b""), ([b"a", b"b"], b"ab")):
        response = types.FetchResponse(
            responses=[
                types.FetchResponse.FetchableTopicResponse(partitions=[partition(records=records)])
            ]
        )
        for version in (4, 12):
            again = decode(types.FetchResponse, version, encode_bytes(response, version))
            assert again.responses[0].partitions[0].records == expected


# -- malformed bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "data", "field", "position", "reason"),
    (
        (1, b"\x7f\xff\xff\xff" + bytes(20), "Topics", 4, "2147483647 elements, 20 bytes left"),
        (1, b"\xff\xff\xff\xff" + bytes(20), "Topics", 4, "length -1 of a non-nullable field"),
        (1, b"\0\0\0\1\x7f\xff" + bytes(9), "Topics.Name", 6, "32767 bytes, 9 left"),
        (1, b"\0\0\0\1\xff\xff" + bytes(9), "Topics.Name", 6, "length -1 of a non-nullable field"),
        (1, b"\0\0\0\1\0\2\xc3\x28" + bytes(9), "Topics.Name", 6, "text is not valid UTF-8"),
        (1, b"\0\0\0", "Topics", 0, "unexpected end of data, 3 bytes left"),
        (2, b"\xff\xff\xff\xff\x0f" + bytes(9), "Topics", 5, "4294967294 elements, 9 bytes left"),
        (2, b"\xff\xff\xff\xff\xff\x0f" + bytes(9), "Topics", 1, "not a 32-bit varint"),
        (2, b"\xff\xff\xff\xff\x7f" + bytes(9), "Topics", 1, "not a 32-bit varint"),
        (2, b"\0" + bytes(9), "Topics", 1, "length -1 of a non-nullable field"),
        (2, b"\1" + bytes(2), "TimeoutMs", 1, "unexpected end of data, 2 bytes left"),
        (2, b"\1" + bytes(4) + b"\1\0\x64", "tagged fields", 8, "100 bytes, 0 left"),
        (
            2,
            b"\1" + bytes(4) + b"\xff\xff\xff\xff\x0f",
            "tagged fields",
            10,
            "unexpected end of data",
        ),
    ),
)
def test_malformed_bytes_name_field_and_position(version, data, field, position, reason):
    with pytest.raises(MessageError) as caught:
        decode(types.DeleteRecordsRequest, version, data)
    error = caught.value
    assert (error.name, error.version, error.field) == ("DeleteRecordsRequest", version, field)
    assert error.position == position
    assert reason in str(error)
    assert f"DeleteRecordsRequest.{field}, version {version} at byte {position}: " in str(error)


def test_a_compact_string_is_as_short_as_any_other():
    """Its length could be larger; Kafka refuses that, too."""
    text = b"x" * 32768
    for size, refused in ((32767, False), (32768, True)):
        data = uvarint(size + 1) + text[:size] + b"\0" * 4 + b"\1\0\0"
        if refused:
            with pytest.raises(MessageError, match="a string of 32768 bytes") as caught:
                decode(types.HeartbeatRequest, 4, data)
            assert caught.value.field == "GroupId"
        else:
            assert len(decode(types.HeartbeatRequest, 4, data).group_id) == size


def test_the_first_number_that_does_not_fit_is_named():
    data = encode_bytes(types.FetchRequest(), 12)
    names = {}
    for cut in range(25):
        with pytest.raises(MessageError) as caught:
            decode(types.FetchRequest, 12, data[:cut])
        names.setdefault(caught.value.field, (cut, caught.value.position))
    assert names == {
        "ReplicaId": (0, 0),
        "MaxWaitMs": (4, 4),
        "MinBytes": (8, 8),
        "MaxBytes": (12, 12),
        "IsolationLevel": (16, 16),
        "SessionId": (17, 17),
        "SessionEpoch": (21, 21),
    }


def test_a_tagged_field_with_a_wrong_length():
    data = encode_bytes(types.FetchRequest(cluster_id="ab"), 12)
    wrong = data[:-4] + b"\4" + data[-3:] + b"\0"
    with pytest.raises(
        MessageError, match="the value does not end after the 4 bytes of the tagged field"
    ):
        decode(types.FetchRequest, 12, wrong)


def test_a_structure_is_null_or_not():
    data = bytearray(encode_bytes(types.ConsumerGroupHeartbeatResponse(), 0))
    assert data[-2] == 255
    data[-2] = 2
    with pytest.raises(MessageError, match="invalid null marker 2") as caught:
        decode(types.ConsumerGroupHeartbeatResponse, 0, data)
    assert (caught.value.field, caught.value.position) == ("Assignment", len(data) - 2)


def test_a_tagged_structure_can_be_null():
    """Its null is a varint 0; the null of other structures is a byte -1."""
    value = types.ConsumerGroupMemberMetadataValue
    assert value().classic_member_metadata == value.ClassicMemberMetadata()
    data = encode_bytes(value(classic_member_metadata=None), 0)
    assert data.endswith(b"\1" + b"\0" + b"\1" + b"\0")
    assert decode(value, 0, data).classic_member_metadata is None
    assert encode_bytes(value(), 0).endswith(b"\xff" * 4 + b"\1" + b"\0")


# -- messages that a version cannot encode -------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "version", "field", "reason"),
    (
        (types.DeleteRecordsRequest(timeout_ms=1 << 31), 1, "TimeoutMs", "format requires"),
        (types.DeleteRecordsRequest(topics=None), 2, "Topics", "has no len"),
        (types.HeartbeatRequest(group_id=None), 4, "GroupId", "encode"),
        (types.HeartbeatRequest(group_id="x" * 32768), 4, "GroupId", "a string of 32768 bytes"),
        (types.HeartbeatRequest(group_id="\ud800"), 0, "GroupId", "text is not valid Unicode"),
        (types.HeartbeatRequest(group_instance_id="x"), 0, "GroupInstanceId", "no field for it"),
        (types.DeleteTopicsRequest(topics=[]), 5, None, None),
        (types.TopicRecord(topic_id="short"), 0, "TopicId", "not a topic id"),
    ),
)
def test_values_that_do_not_fit(message, version, field, reason):
    if reason is None:
        encode(message, version)
        return
    with pytest.raises(MessageError, match=reason) as caught:
        encode(message, version)
    assert caught.value.position is None
    assert field in caught.value.field


def test_permitted_losses_are_not_reported():
    assert encode_bytes(types.FetchRequest(rack_id="r"), 4) == encode_bytes(types.FetchRequest(), 4)


def test_versions_that_are_none():
    for version in (-1, 19):
        with pytest.raises(UnsupportedFormatError, match=f"has no version {version}, only"):
            decode(types.FetchRequest, version, b"")
        with pytest.raises(UnsupportedFormatError):
            encode(types.FetchRequest(), version)


# -- classes -------------------------------------------------------------------------------------


def test_defaults_are_not_shared():
    first, second = types.FetchRequest(), types.FetchRequest()
    first.topics.append(1)
    assert second.topics == []
    assert (second.replica_id, second.cluster_id, second.max_bytes) == (-1, None, 2**31 - 1)
    assert types.FetchRequest.FetchTopic().topic_id == "A" * 22


def test_messages_are_values():
    assert types.HeartbeatRequest(group_id="g") == types.HeartbeatRequest(group_id="g")
    assert types.HeartbeatRequest(group_id="g") != types.HeartbeatRequest()
    assert types.HeartbeatRequest() != types.HeartbeatResponse()
    assert repr(types.RequestHeader(client_id="c")).startswith("RequestHeader(request_api_key=0,")
    with pytest.raises(TypeError):
        hash(types.HeartbeatRequest())
    with pytest.raises(TypeError, match="unexpected keyword"):
        types.HeartbeatRequest(nonsense=1)
    with pytest.raises(AttributeError):
        types.HeartbeatRequest().nonsense = 1
    with pytest.raises(AttributeError, match=exactly("Kafka has no message 'Nonsense'")):
        _ = types.Nonsense


# -- records behind their version ----------------------------------------------------------------


def test_a_committed_offset_as_kafka_3_writes_it():
    key = types.OffsetCommitKey(group="g", topic="t", partition=5)
    assert encode_versioned(key, 1) == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\5"
    value = types.OffsetCommitValue(offset=9, metadata="m", commit_timestamp=3)
    data = b"\0\3" + struct.pack(">qih1sq", 9, -1, 1, b"m", 3)
    assert encode_versioned(value, 3) == data
    assert decode_versioned(types.OffsetCommitValue, data) == value


@pytest.mark.parametrize(
    ("data", "message"),
    (
        (b"", ("OffsetCommitKey, version -1 at byte 0: 0 bytes are too short for a version")),
        (b"\0", ("OffsetCommitKey, version -1 at byte 0: 1 bytes are too short for a version")),
    ),
)
def test_no_version(data, message):
    with pytest.raises(MessageError, match=exactly(message)):
        decode_versioned(types.OffsetCommitKey, data)


def test_json_has_kafkas_names():
    key = types.OffsetCommitKey(group="g", topic="t", partition=5)
    assert to_json(key, 1) == {"group": "g", "topic": "t", "partition": 5}
    value = types.GroupMetadataValue(
        members=[types.GroupMetadataValue.MemberMetadata(subscription=b"ab")]
    )
    told = to_json(value, 3)
    assert list(told)[:3] == ["protocolType", "generation", "protocol"]
    assert told["members"][0]["subscription"] == "YWI="


def test_elements_of_all_arrays_are_bounded_together():
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=number)
                    for number in range(2)
                ],
            )
            for name in ("a", "b")
        ]
    )
    data = bytes(encode_bytes(request, 1))
    message, end, elements = decode_bounded(ListOffsetsRequest, 1, data, 0, 6)
    assert (message.topics[1].name, end, elements) == ("b", len(data), 6)
    for most in (5, 3, 1):
        with pytest.raises(TooManyElementsError) as refused:
            decode_bounded(ListOffsetsRequest, 1, data, 0, most)
        assert type(refused.value) is TooManyElementsError
    with pytest.raises(MessageError) as malformed:
        decode_bounded(ListOffsetsRequest, 1, data[:-1], 0, 6)
    assert type(malformed.value) is MessageError
