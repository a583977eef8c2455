"""Layout of a record batch of magic 2, and constants derived from it.

Offset  Size  Field                  Type  Under the CRC
     0     8  baseOffset             i64   no
     8     4  batchLength            i32   no; bytes after this field
    12     4  partitionLeaderEpoch   i32   no
    16     1  magic                  i8    no; 2
    17     4  crc                    u32   no; CRC-32C of bytes 21 to the end
    21     2  attributes             i16   yes
    23     4  lastOffsetDelta        i32   yes
    27     8  baseTimestamp          i64   yes; the delete horizon with attribute bit 6
    35     8  maxTimestamp           i64   yes
    43     8  producerId             i64   yes
    51     2  producerEpoch          i16   yes
    53     4  baseSequence           i32   yes
    57     4  recordCount            i32   yes
    61     -  records                      yes; compressed if a codec is set

All numbers are big-endian. Source: docs/spec/storage-format.md §1 and §17.1.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_UP_TO_CRC = struct.Struct(">qiibI")
HEADER_UNDER_CRC = struct.Struct(">hiqqqhii")

BASE_OFFSET_POSITION = 0
BATCH_LENGTH_POSITION = BASE_OFFSET_POSITION + 8
LOG_OVERHEAD = BATCH_LENGTH_POSITION + 4
PARTITION_LEADER_EPOCH_POSITION = LOG_OVERHEAD
MAGIC_POSITION = PARTITION_LEADER_EPOCH_POSITION + 4
CRC_POSITION = MAGIC_POSITION + 1
ATTRIBUTES_POSITION = CRC_POSITION + 4
LAST_OFFSET_DELTA_POSITION = ATTRIBUTES_POSITION + 2
BASE_TIMESTAMP_POSITION = LAST_OFFSET_DELTA_POSITION + 4
MAX_TIMESTAMP_POSITION = BASE_TIMESTAMP_POSITION + 8
PRODUCER_ID_POSITION = MAX_TIMESTAMP_POSITION + 8
PRODUCER_EPOCH_POSITION = PRODUCER_ID_POSITION + 8
BASE_SEQUENCE_POSITION = PRODUCER_EPOCH_POSITION + 2
RECORD_COUNT_POSITION = BASE_SEQUENCE_POSITION + 4
HEADER_SIZE = RECORD_COUNT_POSITION + 4
assert HEADER_SIZE == HEADER.size == 61

MAGIC = 2
HEADER_SIZE_UP_TO_MAGIC = MAGIC_POSITION + 1
assert HEADER_SIZE_UP_TO_MAGIC == 17

HEADER_LENGTH = HEADER_SIZE - LOG_OVERHEAD
"""batchLength of a header without records, the minimum for magic 2."""

MIN_BATCH_LENGTH = 14
"""Minimum batchLength that `walk` accepts: the smallest entry of any format."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

MIN_RECORD_SIZE = 7
"""Size of a record without key, value and headers: one byte for each of its seven fields."""

MAX_RECORD_OVERHEAD = 21
"""Maximum size of a record without key, value and headers (storage-format §2)."""
