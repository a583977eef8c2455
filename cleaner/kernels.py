"""Compiled loops of the cleaner: scan batches, classify records, assemble output.

A chunk of a segment lies in `data`; decompressed sections are appended behind it, so that every
records section is an extent of the same array. One row of `table` stands for one batch of the
chunk; the `COL_*` constants name its columns. Positions are bytes from the start of `data`,
ends exclusive. Source: cleaner-semantics §5, §6, §8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleaner.map_kernels import STATE_LATEST_OFFSET, map_get
from cleaner.version_kernels import FOUND, OFFSET, is_beaten, record_version
from logstore.jit import borrowed, kernel
from logstore.record.kernels import (
    check_headers,
    copy_bytes,
    crc32c,
    read_varint,
    varint_size,
    write_varint,
)
from logstore.types import INT64_MAX

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

# -- the batch table -------------------------------------------------------------------------

COL_POSITION = 0
COL_SIZE = 1
COL_BASE_OFFSET = 2
COL_LAST_OFFSET = 3
COL_ATTRIBUTES = 4
COL_BASE_TIMESTAMP = 5
COL_MAX_TIMESTAMP = 6
COL_PRODUCER_ID = 7
COL_RECORD_COUNT = 8
COL_SECTION_START = 9
COL_SECTION_END = 10
COL_VERDICT = 11  # in: one of VERDICT_*
COL_DISCARD = 12  # in: DISCARD_* of all the batch's records
COL_FORM = 13  # out: one of FORM_*
COL_KEPT = 14  # out: records kept
COL_OUT_BASE_TIMESTAMP = 15  # out: baseTimestamp of a rebuilt batch
COL_OUT_MAX_TIMESTAMP = 16  # out: maxTimestamp of the batch as written
COL_OUT_SIZE = 17  # out: upper bound after classify, exact after assemble
COL_FIRST_RECORD = 18  # out: index of the batch's first record in the record arrays
COL_OUT_HORIZON = 19  # out: 1 if a rebuilt batch carries a delete horizon
COL_PARSED = 20  # out: records that have a code; 0 when all were discarded unread
COL_PRODUCER_EPOCH = 21
COL_CONTROL = 22  # one of CONTROL_*, once the control batches were read
TABLE_COLUMNS = 23

CONTROL_NONE = -1  # a data batch
CONTROL_ABORT = 0
CONTROL_COMMIT = 1
CONTROL_OTHER = 2
CONTROL_EMPTY = 3  # compaction removed its record

VERDICT_DELETE_EMPTY = 0
VERDICT_RETAIN_EMPTY = 1

DISCARD_NONE = 0
DISCARD_ABORTED = 1
DISCARD_EXPIRING = 2  # a control batch whose records go once a horizon has passed

FORM_DROPPED = 0
FORM_VERBATIM = 1
FORM_REBUILT = 2
FORM_EMPTY = 3

# -- fates of records ------------------------------------------------------------------------

RETAINED = 0
SUPERSEDED = 1
TOMBSTONE_EXPIRED = 2
ABORTED = 3
CONTROL_EXPIRED = 4
NULL_KEY = 5
FATES = 6

# -- rules of a pass -------------------------------------------------------------------------

RULE_STRATEGY = 0  # one of `version_kernels`
RULE_KEEP_OFFSET = 1  # the record that stays whatever it is; -1 if none does
RULE_SAFE_MS = 2  # what came before a horizon up to here has been compared
RULES = 3

# -- statuses --------------------------------------------------------------------------------

OK = 0
DAMAGED = 1
MAP_FULL = 2
COMPRESSED = 3

_CODEC_MASK = 0x07
_APPEND_TIME = 0x08
CONTROL_BIT = 0x20
_HORIZON = 0x40
_HEADER_SIZE = 61


@kernel
def read_i32(data: Bytes, position: int) -> Any:
    """Read a big-endian signed 32-bit integer."""
    word = np.uint32(0)
    for index in range(4):
        word = (word << np.uint32(8)) | np.uint32(data[position + index])
    return np.int64(np.int32(word))


@kernel
def read_i64(data: Bytes, position: int) -> Any:
    """Read a big-endian signed 64-bit integer."""
    word = np.uint64(0)
    for index in range(8):
        word = (word << np.uint64(8)) | np.uint64(data[position + index])
    return np.int64(word)


@kernel
def write_be(out: Bytes, position: int, value: Any, size: int) -> int:
    """Write the low `size` bytes of `value`, big-endian; return the position after them."""
    word = np.uint64(value)
    for index in range(size):
        shift = np.uint64(8 * (size - 1 - index))
        out[position + index] = np.uint8((word >> shift) & np.uint64(0xFF))
    return position + size


@kernel
def scan_batches(data: Bytes, start: int, end: int, check_crc: bool, table: Int64s) -> Any:
    """Walk the whole batches of `data[start:end]` into `table`, verifying each.

    Parameters
    ----------
    check_crc : bool
        Whether to compare the stored CRC-32C; lengths, magic, record count and that the
        offsets do not run backwards (or past 2^63) are always checked.
    table : (rows, TABLE_COLUMNS) int64, out

    Returns
    -------
    (status, rows, position)
        Rows filled, and the position after the last whole batch. `DAMAGED` if the batch at
        that position is; `OK` if the chunk ends there, perhaps inside a batch, or the table
        is full. O(bytes) with CRCs, else O(batches).
    """
    rows = 0
    position = start
    while rows < len(table) and end - position >= 17:
        length = read_i32(data, position + 8)
        if length < 14:
            return DAMAGED, rows, position
        size = length + 12
        if data[position + 16] != 2 or size < _HEADER_SIZE:
            return DAMAGED, rows, position
        if size > end - position:
            break
        base_offset = read_i64(data, position)
        last_offset_delta = read_i32(data, position + 23)
        if base_offset < 0 or last_offset_delta < 0 or base_offset > INT64_MAX - last_offset_delta:
            return DAMAGED, rows, position
        if read_i32(data, position + 57) < 0:
            return DAMAGED, rows, position
        if check_crc:
            stored = np.int64(np.uint32(read_i32(data, position + 17)))
            if crc32c(data, position + 21, position + size) != stored:
                return DAMAGED, rows, position
        row = table[rows]
        row[COL_POSITION] = position
        row[COL_SIZE] = size
        row[COL_BASE_OFFSET] = base_offset
        row[COL_LAST_OFFSET] = base_offset + last_offset_delta
        row[COL_ATTRIBUTES] = np.int64(data[position + 22])
        row[COL_BASE_TIMESTAMP] = read_i64(data, position + 27)
        row[COL_MAX_TIMESTAMP] = read_i64(data, position + 35)
        row[COL_PRODUCER_ID] = read_i64(data, position + 43)
        row[COL_RECORD_COUNT] = read_i32(data, position + 57)
        row[COL_SECTION_START] = position + _HEADER_SIZE
        row[COL_SECTION_END] = position + size
        row[COL_VERDICT] = VERDICT_DELETE_EMPTY
        row[COL_DISCARD] = DISCARD_NONE
        epoch = read_i32(data, position + 49)  # its low half
        row[COL_PRODUCER_EPOCH] = np.int64(np.int16(epoch & 0xFFFF))
        row[COL_CONTROL] = CONTROL_NONE
        rows += 1
        position += size
    return OK, rows, position


# -- records ---------------------------------------------------------------------------------


@kernel
def record_fields(data: Bytes, position: int, end: int) -> Any:
    """Take the start of a record apart.

    Returns (status, record end, timestamp delta, offset delta, position of the key length, key
    start, key size, value size); the status is OK or DAMAGED, and key, value and headers fill
    the record.
    """
    data = borrowed(data)
    bad = (DAMAGED, np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0),
           np.int64(0))  # fmt: skip
    size, position = read_varint(data, position, end, 5)
    if position < 0 or size < 1 or size > end - position:
        return bad
    record_end = position + size
    timestamp_delta, position = read_varint(data, position + 1, record_end, 10)
    if position < 0:
        return bad
    offset_delta, position = read_varint(data, position, record_end, 5)
    if position < 0 or offset_delta < 0:
        return bad
    tail = position
    key_size, position = read_varint(data, position, record_end, 5)
    if position < 0 or key_size > record_end - position:
        return bad
    key_start = position
    if key_size > 0:
        position += key_size
    value_size, position = read_varint(data, position, record_end, 5)
    if position < 0 or value_size > record_end - position:
        return bad
    headers = position + max(value_size, np.int64(0))
    if headers + 1 != record_end or data[headers] != 0:
        status, position = check_headers(data, headers, record_end)
        if status != OK or position != record_end:
            return bad
    return (OK, record_end, timestamp_delta, offset_delta, tail, key_start, key_size, value_size)


@kernel
def read_control_types(data: Bytes, table: Int64s, rows: int) -> Any:
    """Tell what each control batch says, in its row; data batches are passed over.

    Returns
    -------
    (status, row)
        `OK` with `rows`, or `DAMAGED` with the row of a batch whose key cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    for index in range(rows):
        row = table[index]
        if not row[COL_ATTRIBUTES] & CONTROL_BIT:
            continue
        if row[COL_RECORD_COUNT] == 0:
            row[COL_CONTROL] = CONTROL_EMPTY
            continue
        fields = record_fields(data, row[COL_SECTION_START], row[COL_SECTION_END])
        key_start = fields[5]
        if fields[0] != OK or fields[6] < 4 or data[key_start] >= 0x80:
            return DAMAGED, index
        kind = np.int64(data[key_start + 2]) << 8 | np.int64(data[key_start + 3])
        row[COL_CONTROL] = kind if 0 <= kind <= CONTROL_COMMIT else CONTROL_OTHER
    return OK, rows


# -- classify --------------------------------------------------------------------------------


@kernel
def classify_batches(
    data: Bytes,
    table: Int64s,
    rows: int,
    slots: UInt64s,
    state: Int64s,
    k0: np.uint64,
    k1: np.uint64,
    rules: Int64s,
    header: Bytes,
    now_ms: int,
    new_horizon_ms: int,
    codes: Bytes,
    record_starts: Int64s,
) -> Any:
    """Decide the fate of every record and the form of every batch of a chunk (§8).

    The one place that knows what survives. `VERDICT` and `DISCARD` of each row come in; they
    need the producers and transactions, which kernels do not know.

    Parameters
    ----------
    slots, state : arrays
        A map of offsets, or under a strategy with versions one of those.
    rules : (RULES,) int64
        The `RULE_*`; all but the first count under a strategy with versions only.
    header : (n,) uint8
        Name of the header that has the version.
    now_ms, new_horizon_ms : int
        Clock of the pass, and the delete horizon that a batch gets if it needs one.
    codes : (n,) uint8, out
        Fate of each record of the batches that are parsed, one batch after another.
    record_starts : (n,) int64, out
        Where each of them begins in `data`.

    Returns
    -------
    (status, row)
        `OK` with `rows`, or `DAMAGED` with the row whose records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    slots = borrowed(slots)
    state = borrowed(state)
    header = borrowed(header)
    latest_offset = state[STATE_LATEST_OFFSET]
    strategy = rules[RULE_STRATEGY]
    keep_offset = rules[RULE_KEEP_OFFSET]
    next_record = 0
    for index in range(rows):
        row = table[index]
        attributes = row[COL_ATTRIBUTES]
        count = row[COL_RECORD_COUNT]
        discard = row[COL_DISCARD]
        is_control = attributes & CONTROL_BIT != 0
        has_horizon = attributes & _HORIZON != 0
        base_timestamp = row[COL_BASE_TIMESTAMP]
        row[COL_FIRST_RECORD] = next_record
        expired = has_horizon and now_ms >= base_timestamp
        kept = 0
        kept_tombstone = False
        first_timestamp = np.int64(0)
        max_timestamp = np.int64(-1)
        if discard == DISCARD_ABORTED or (discard == DISCARD_EXPIRING and expired):
            row[COL_PARSED] = 0
        else:
            row[COL_PARSED] = count
            position = row[COL_SECTION_START]
            end = row[COL_SECTION_END]
            append_time = attributes & _APPEND_TIME != 0
            for _ in range(count):
                fields = record_fields(data, position, end)
                if fields[0] != OK:
                    return DAMAGED, index
                record_starts[next_record] = position
                position = fields[1]
                offset = row[COL_BASE_OFFSET] + fields[3]
                if offset > row[COL_LAST_OFFSET]:
                    return DAMAGED, index
                key_size = fields[6]
                tombstone = fields[7] < 0
                fate = RETAINED
                if not is_control and offset <= latest_offset and offset != keep_offset:
                    if key_size < 0:
                        fate = NULL_KEY
                    elif strategy != OFFSET:
                        timestamp = base_timestamp + fields[2]
                        if append_time:
                            timestamp = row[COL_MAX_TIMESTAMP]
                        status, version = record_version(
                            data, fields[4], fields[1], timestamp, header, strategy
                        )
                        beaten, later_loser = is_beaten(
                            slots, state, data, fields[5], key_size, offset,
                            status == FOUND, version, k0, k1,
                        )  # fmt: skip
                        # A winner goes after its losers, and only if none can be to come (§13.6).
                        safe = base_timestamp <= rules[RULE_SAFE_MS] and not later_loser
                        if beaten:
                            fate = SUPERSEDED
                        elif tombstone and expired and safe:
                            fate = TOMBSTONE_EXPIRED
                    elif map_get(slots, state, data, fields[5], key_size, k0, k1) > offset:
                        fate = SUPERSEDED
                    elif tombstone and expired:
                        fate = TOMBSTONE_EXPIRED
                codes[next_record] = fate
                next_record += 1
                if fate == RETAINED:
                    timestamp = base_timestamp + fields[2]
                    if append_time:
                        timestamp = row[COL_MAX_TIMESTAMP]
                    if kept == 0:
                        first_timestamp = timestamp
                    max_timestamp = max(max_timestamp, timestamp)
                    kept_tombstone |= tombstone  # a control record without a value counts too
                    kept += 1
            if position != end:
                return DAMAGED, index
            if append_time:
                max_timestamp = row[COL_MAX_TIMESTAMP]
        row[COL_KEPT] = kept
        needs_horizon = (
            kept > 0 and not has_horizon and (kept_tombstone or discard == DISCARD_EXPIRING)
        )
        row[COL_OUT_MAX_TIMESTAMP] = row[COL_MAX_TIMESTAMP]
        if kept == 0:
            if row[COL_VERDICT] == VERDICT_RETAIN_EMPTY:
                row[COL_FORM] = FORM_EMPTY
                row[COL_OUT_SIZE] = _HEADER_SIZE
            else:
                row[COL_FORM] = FORM_DROPPED
                row[COL_OUT_SIZE] = 0
        elif kept == count and not needs_horizon:
            row[COL_FORM] = FORM_VERBATIM
            row[COL_OUT_SIZE] = row[COL_SIZE]
        else:
            row[COL_FORM] = FORM_REBUILT
            row[COL_OUT_HORIZON] = 1 if needs_horizon or has_horizon else 0
            row[COL_OUT_MAX_TIMESTAMP] = max_timestamp
            if needs_horizon:
                row[COL_OUT_BASE_TIMESTAMP] = new_horizon_ms
            elif has_horizon:
                row[COL_OUT_BASE_TIMESTAMP] = base_timestamp
            else:
                row[COL_OUT_BASE_TIMESTAMP] = first_timestamp
            section_size = row[COL_SECTION_END] - row[COL_SECTION_START]
            # A timestamp delta may grow by 9 bytes, and the length before it by 4.
            row[COL_OUT_SIZE] = _HEADER_SIZE + section_size + 13 * kept
    return OK, rows


# -- assemble --------------------------------------------------------------------------------


@kernel
def write_kept_records(
    data: Bytes, row: Int64s, codes: Bytes, record_starts: Int64s, out: Bytes, position: int
) -> int:
    """Write the kept records of one batch, timestamps relative to its new base.

    Offset deltas, keys, values and headers stay as they are. Returns the position after them.
    """
    data = borrowed(data)
    out = borrowed(out)
    append_time = row[COL_ATTRIBUTES] & _APPEND_TIME != 0
    shift = row[COL_BASE_TIMESTAMP] - row[COL_OUT_BASE_TIMESTAMP]
    first = row[COL_FIRST_RECORD]
    for record in range(first, first + row[COL_RECORD_COUNT]):
        if codes[record] != RETAINED:
            continue
        fields = record_fields(data, record_starts[record], row[COL_SECTION_END])
        timestamp_delta = fields[2] + shift
        if append_time:
            timestamp_delta = row[COL_MAX_TIMESTAMP] - row[COL_OUT_BASE_TIMESTAMP]
        tail = fields[4]
        record_end = fields[1]
        body = 1 + varint_size(timestamp_delta) + varint_size(fields[3]) + (record_end - tail)
        position = write_varint(out, position, body)
        out[position] = np.uint8(0)
        position = write_varint(out, position + 1, timestamp_delta)
        position = write_varint(out, position, fields[3])
        position = copy_bytes(data, tail, record_end, out, position)
    return position


@kernel
def write_header(data: Bytes, row: Int64s, out: Bytes, start: int, end: int) -> int:
    """Write the header of a rebuilt or emptied batch whose records end at `end`, CRC included.

    Returns `end`.
    """
    copy_bytes(data, row[COL_POSITION], row[COL_POSITION] + _HEADER_SIZE, out, start)
    empty = row[COL_FORM] == FORM_EMPTY
    attributes = row[COL_ATTRIBUTES] & 0x3F
    if empty:
        attributes &= ~_CODEC_MASK
    elif row[COL_OUT_HORIZON]:
        attributes |= _HORIZON
    write_be(out, start + 8, end - start - 12, 4)
    write_be(out, start + 21, attributes, 2)
    write_be(out, start + 27, np.int64(-1) if empty else row[COL_OUT_BASE_TIMESTAMP], 8)
    write_be(out, start + 35, row[COL_OUT_MAX_TIMESTAMP], 8)
    write_be(out, start + 57, np.int64(0) if empty else row[COL_KEPT], 4)
    write_be(out, start + 17, crc32c(out, start + 21, end), 4)
    return end


@kernel
def assemble_batches(
    data: Bytes,
    table: Int64s,
    first_row: int,
    rows: int,
    codes: Bytes,
    record_starts: Int64s,
    out: Bytes,
    position: int,
) -> Any:
    """Write the surviving batches of the rows [first, rows) to `out` from `position` on.

    `out` holds at least the sum of `COL_OUT_SIZE`, which becomes exact.

    Returns
    -------
    (status, row, position)
        `OK` with `rows`; `COMPRESSED` with the row of a rebuilt batch that needs its codec:
        the caller writes that one and goes on behind it.
    """
    data = borrowed(data)
    table = borrowed(table)
    codes = borrowed(codes)
    record_starts = borrowed(record_starts)
    out = borrowed(out)
    for index in range(first_row, rows):
        row = table[index]
        form = row[COL_FORM]
        start = position
        if form == FORM_DROPPED:
            continue
        if form == FORM_VERBATIM:
            position = copy_bytes(
                data, row[COL_POSITION], row[COL_POSITION] + row[COL_SIZE], out, position
            )
        elif form == FORM_EMPTY:
            position = write_header(data, row, out, start, start + _HEADER_SIZE)
        else:
            if row[COL_ATTRIBUTES] & _CODEC_MASK:
                return COMPRESSED, index, position
            end = write_kept_records(data, row, codes, record_starts, out, start + _HEADER_SIZE)
            position = write_header(data, row, out, start, end)
        row[COL_OUT_SIZE] = position - start
    return OK, rows, position
