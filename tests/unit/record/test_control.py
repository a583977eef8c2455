"""Control records: kinds, versions, damage (storage-format §3, scenarios S-009 and S-010)."""

import pytest

from logstore.errors import InvalidRecordError
from logstore.record.batch import RecordBatch
from logstore.record.control import (
    ControlKey,
    ControlType,
    EndTxnMarker,
    decode_control_key,
    decode_end_txn_marker,
    encode_control_key,
    encode_end_txn_value,
    end_txn_marker_of,
)
from logstore.record.header import BatchHeader
from tests.support.world.messages import exactly

# The only record of a marker batch: length, attributes, two deltas, key length, key, value
# length, value, header count. Key and value of a marker have fixed sizes, so they have places.
KEY = slice(61 + 5, 61 + 9)
VALUE = slice(61 + 10, 61 + 16)
G5 = bytes.fromhex(
    "000000000000002b000000420000000302dd1158140030000000000000018bcfe569f40000018bcfe569f4"
    "0000000000000fa00007ffffffff000000012000000008000000010c00000000000900"
)
G6 = bytes.fromhex(
    "000000000000002b000000420000000302292f8e5c0030000000000000018bcfe569f40000018bcfe569f4"
    "0000000000000fa00007ffffffff000000012000000008000000000c00000000000900"
)


@pytest.mark.parametrize(("batch", "kind"), ((G5, ControlType.COMMIT), (G6, ControlType.ABORT)))
def test_golden_markers_decode_and_encode(batch, kind):
    """S-009: vectors G5 and G6."""
    header = BatchHeader.unpack_from(batch)
    assert len(batch) == header.size_bytes == 78
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, -1)
    assert header.is_control
    assert header.is_transactional
    marker = decode_end_txn_marker(batch[KEY], batch[VALUE])
    assert marker == EndTxnMarker(kind, 9)
    assert marker.is_abort == (kind is ControlType.ABORT)
    assert encode_control_key(kind) == batch[KEY]
    assert encode_end_txn_value(marker) == batch[VALUE]


def test_a_type_without_a_name_is_unknown_and_keeps_its_number():
    """S-010."""
    key = decode_control_key(bytes.fromhex("00000009"))
    assert key == ControlKey(0, 9)
    assert key.control_type is ControlType.UNKNOWN
    assert decode_end_txn_marker(bytes.fromhex("00000009"), None) is None
    assert decode_control_key(bytes.fromhex("0000ffff")).control_type is ControlType.UNKNOWN


def test_other_known_kinds_are_not_markers():
    for kind in ControlType:
        if kind is ControlType.UNKNOWN or kind.is_end_txn:
            continue
        key = encode_control_key(kind)
        assert decode_control_key(key).control_type is kind
        assert decode_end_txn_marker(key, b"whatever") is None


def test_newer_versions_are_read_as_version_0():
    """S-010: version 5 key and version 7 value."""
    marker = decode_end_txn_marker(
        bytes.fromhex("00050001") + b"later fields", bytes.fromhex("00070000000c") + b"more"
    )
    assert marker == EndTxnMarker(ControlType.COMMIT, 12)


def test_views_are_accepted():
    assert decode_end_txn_marker(memoryview(G6)[KEY], memoryview(G6)[VALUE]) == EndTxnMarker(
        ControlType.ABORT, 9
    )


@pytest.mark.parametrize(
    ("key", "complaint"),
    (
        (None, "no key"),
        (b"\0\0\0", "3 bytes"),
        (bytes.fromhex("ffff0000"), "negative version -1"),
    ),
)
def test_malformed_keys_are_refused(key, complaint):
    """S-010: key of 3 bytes."""
    with pytest.raises(InvalidRecordError, match=complaint):
        decode_control_key(key)
    with pytest.raises(InvalidRecordError, match=complaint):
        decode_end_txn_marker(key, bytes(6))


@pytest.mark.parametrize(
    ("value", "complaint"),
    (
        (None, "ABORT marker needs a value of at least 6 bytes, found none"),
        (bytes(5), "ABORT marker needs a value of at least 6 bytes, found 5 bytes"),
        (bytes.fromhex("fffe00000000"), "ABORT marker has the negative version -2"),
    ),
)
def test_malformed_marker_values_are_refused(value, complaint):
    with pytest.raises(InvalidRecordError, match=exactly(complaint)):
        decode_end_txn_marker(encode_control_key(ControlType.ABORT), value)


def test_unwritable_kinds_are_a_bug_of_the_caller():
    with pytest.raises(AssertionError):
        encode_control_key(ControlType.UNKNOWN)
    with pytest.raises(AssertionError):
        encode_end_txn_value(EndTxnMarker(ControlType.LEADER_CHANGE, 0))


def test_the_marker_of_a_batch():
    assert end_txn_marker_of(RecordBatch(G5)) == EndTxnMarker(ControlType.COMMIT, 9)
    emptied = BatchHeader.unpack_from(G5)._replace(batch_length=49, record_count=0)
    assert end_txn_marker_of(RecordBatch(emptied.pack())) is None
    data = BatchHeader.unpack_from(G5)._replace(attributes=0)
    assert end_txn_marker_of(RecordBatch(data.pack() + G5[61:])) is None
