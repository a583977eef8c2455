"""Keys and values of control records, mainly transaction markers.

Key     0  version i16 (0)   2  type i16
Value   0  version i16 (0)   2  coordinatorEpoch i32        (types ABORT and COMMIT only)

All numbers are big-endian. Higher versions start with the fields of version 0 and are read as
version 0, ignoring the remaining bytes. Source: docs/spec/storage-format.md §3.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from logstore.types import NO_PARTITION_LEADER_EPOCH, NO_SEQUENCE

if TYPE_CHECKING:
    # Imported here, because batches import the codecs.
    from logstore.record.batch import RecordBatch

CURRENT_VERSION = 0

_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
CONTROL_SECTION_MAX = 1 << 20
"""Maximum decompressed size of a control batch, which contains one small record."""

CONTROL_KEY_SIZE = _KEY.size
END_TXN_VALUE_SIZE = _END_TXN_VALUE.size
assert (CONTROL_KEY_SIZE, END_TXN_VALUE_SIZE) == (4, 6)


class ControlType(enum.IntEnum):
    """Type of a control record. The numbers are stored on disk and must not change.

    `UNKNOWN` stands for any undefined number and is never written.
    """

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @property
    def is_end_txn(self) -> bool:
        """Whether a record of this type ends its producer's transaction."""
        return self in (ControlType.ABORT, ControlType.COMMIT)


class ControlKey(NamedTuple):
    """The key of a control record. `type_id` is the stored number, which may be undefined."""

    version: int
    type_id: int

    @property
    def control_type(self) -> ControlType:
        """The type, or `UNKNOWN` for an undefined number."""
        try:
            return ControlType(self.type_id)
        except ValueError:
            return ControlType.UNKNOWN


class EndTxnMarker(NamedTuple):
    """A transaction marker: `ABORT` or `COMMIT`, and the coordinator epoch."""

    control_type: ControlType
    coordinator_epoch: int

    @property
    def is_abort(self) -> bool:
        """Whether the transaction was aborted."""
        return self.control_type is ControlType.ABORT


def decode_control_key(key: bytes | memoryview | None) -> ControlKey:
    """Decode the key of a control record.

    Parameters
    ----------
    key : bytes or memoryview or None
        Key of the record.

    Raises
    ------
    InvalidRecordError
        The key is null, shorter than 4 bytes, or has a negative version.
    """
    if key is None or len(key) < CONTROL_KEY_SIZE:
        found = "no key" if key is None else f"a key of {len(key)} bytes"
        raise InvalidRecordError(
            f"a control record needs a key of at least {CONTROL_KEY_SIZE} bytes, found {found}"
        )
    version, type_id = _KEY.unpack_from(key)
    if version < CURRENT_VERSION:
        raise InvalidRecordError(f"control record key has the negative version {version}")
    return ControlKey(version, type_id)


def decode_end_txn_marker(
    key: bytes | memoryview | None, value: bytes | memoryview | None
) -> EndTxnMarker | None:
    """Decode a control record as a transaction marker.

    Parameters
    ----------
    key, value : bytes or memoryview or None
        Key and value of the only record in the control batch.

    Returns
    -------
    EndTxnMarker or None
        The marker, or None for other types of control records, whose value is not decoded.

    Raises
    ------
    InvalidRecordError
        The key is malformed, or the value of a marker is null, shorter than 6 bytes, or has a
        negative version.
    """
    control_type = decode_control_key(key).control_type
    if not control_type.is_end_txn:
        return None
    if value is None or len(value) < END_TXN_VALUE_SIZE:
        found = "none" if value is None else f"{len(value)} bytes"
        raise InvalidRecordError(
            f"{control_type.name} marker needs a value of at least {END_TXN_VALUE_SIZE} bytes,"
            f" found {found}"
        )
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < CURRENT_VERSION:
        raise InvalidRecordError(f"{control_type.name} marker has the negative version {version}")
    return EndTxnMarker(control_type, coordinator_epoch)


def encode_control_key(control_type: ControlType) -> bytes:
    """Encode the 4 bytes of a control record key."""
    assert control_type is not ControlType.UNKNOWN, "an unknown control type cannot be written"
    return _KEY.pack(CURRENT_VERSION, control_type)


def encode_end_txn_value(marker: EndTxnMarker) -> bytes:
    """Encode the 6 bytes of a transaction marker value."""
    assert marker.control_type.is_end_txn, f"{marker.control_type.name} does not end a transaction"
    return _END_TXN_VALUE.pack(CURRENT_VERSION, marker.coordinator_epoch)


def end_txn_marker_of(batch: RecordBatch) -> EndTxnMarker | None:
    """Return the transaction marker in a batch.

    Returns
    -------
    EndTxnMarker or None
        The marker. None for data batches, other control batches, and batches whose marker was
        removed by compaction.

    Raises
    ------
    InvalidRecordError
        The record, its key or its value is malformed.
    """
    if not batch.header.is_control or batch.header.record_count == 0:
        return None
    record = batch.records(CONTROL_SECTION_MAX)[0]
    return decode_end_txn_marker(record.key, record.value)


def build_end_txn_batch(
    producer_id: int, producer_epoch: int, marker: EndTxnMarker, now_ms: int
) -> RecordBatch:
    """Build the control batch that ends a transaction, as a coordinator writes it.

    Parameters
    ----------
    now_ms : int
        Timestamp of the record, in Unix milliseconds.
    """
    from logstore.record.batch import RecordBatch, check_producer_epoch
    from logstore.record.records import encode_record

    check_producer_epoch(producer_id, producer_epoch)
    key, value = encode_control_key(marker.control_type), encode_end_txn_value(marker)
    return RecordBatch.pack(
        encode_record(0, 0, key, value),
        0,
        NO_PARTITION_LEADER_EPOCH,
        TRANSACTIONAL_BIT | CONTROL_BIT,
        0,
        now_ms,
        now_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
