"""Judging a chunk: the fate of each record, and from it the form of each batch.

The one place that knows what survives. Source: cleaner-semantics §8, §13.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from logstore.cleaner.kernels.offsets import map_get
from logstore.cleaner.kernels.slots import STATE_LATEST_OFFSET, MapArrays, borrowed_map
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_BASE_TIMESTAMP,
    COL_DISCARD,
    COL_FIRST_RECORD,
    COL_FORM,
    COL_KEPT,
    COL_MAX_TIMESTAMP,
    COL_OUT_BASE_TIMESTAMP,
    COL_OUT_HORIZON,
    COL_OUT_MAX_TIMESTAMP,
    COL_OUT_SIZE,
    COL_PARSED,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_SIZE,
    COL_VERDICT,
    DAMAGED,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
    FORM_DROPPED,
    FORM_EMPTY,
    FORM_REBUILT,
    FORM_VERBATIM,
    VERDICT_RETAIN_EMPTY,
    read_row_record,
    record_timestamp,
)
from logstore.cleaner.kernels.versions import (
    FOUND,
    OFFSET,
    KernelStrategy,
    Order,
    is_beaten,
    record_version,
)
from logstore.jit import Bytes, Int64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import OK, Int, RecordFields
from logstore.record.layout import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

RETAINED = 0
SUPERSEDED = 1
TOMBSTONE_EXPIRED = 2
ABORTED = 3
CONTROL_EXPIRED = 4
NULL_KEY = 5
FATES = 6

# A timestamp delta of one byte may become one of ten, and the length before it grow from one to 5.
_GROWTH_MAX = MAX_VARLONG_BYTES - 1 + MAX_VARINT_BYTES - 1


class PassRules(NamedTuple):
    """By what a pass judges records; offset and horizon to keep count under versions only."""

    strategy: KernelStrategy
    keep_offset: int  # the record that stays whatever it is; -1 if none does
    safe_ms: int  # what came before a horizon up to here has been compared
    now_ms: int  # clock of the pass
    new_horizon_ms: int  # delete horizon of a batch that gets one


class Kept(NamedTuple):
    """What stays of a batch's records."""

    records: Int
    has_tombstone: bool
    first_timestamp: Int
    max_timestamp: Int


@inline_kernel
def record_fate(
    data: Bytes,
    row: Int64s,
    record: RecordFields,
    expired: bool,
    key_map: MapArrays,
    rules: PassRules,
) -> int:
    """Tell what becomes of a record; `expired` if its batch has a horizon that has come."""
    offset = row[COL_BASE_OFFSET] + record.offset_delta
    is_beyond = offset > key_map.state[STATE_LATEST_OFFSET]
    if row[COL_ATTRIBUTES] & CONTROL_BIT or is_beyond or offset == rules.keep_offset:
        return RETAINED
    if record.key_size < 0:
        return NULL_KEY
    expired = expired and record.value_size < 0
    if rules.strategy.number == OFFSET:
        if map_get(key_map, data, record.key_start, record.key_size) > offset:
            return SUPERSEDED
    else:
        timestamp = record_timestamp(row, record)
        status, version = record_version(data, record, timestamp, rules.strategy)
        order = Order(status == FOUND, version, offset)
        beaten, later_loser = is_beaten(key_map, data, record.key_start, record.key_size, order)
        if beaten:
            return SUPERSEDED
        # A winner goes after its losers, and only if none can be to come (§13.6).
        expired = expired and row[COL_BASE_TIMESTAMP] <= rules.safe_ms and not later_loser
    return TOMBSTONE_EXPIRED if expired else RETAINED


@inline_kernel
def judge_records(
    data: Bytes,
    row: Int64s,
    expired: bool,
    key_map: MapArrays,
    rules: PassRules,
    codes: Bytes,
    record_starts: Int64s,
) -> tuple[int, Kept]:
    """Give each record of a batch its fate, and sum up what is kept; `OK` or `DAMAGED`."""
    next_record = row[COL_FIRST_RECORD]
    position = row[COL_SECTION_START]
    records = np.int64(0)
    has_tombstone = False
    first_timestamp = np.int64(0)
    max_timestamp = np.int64(-1)
    for _ in range(row[COL_RECORD_COUNT]):
        status, record = read_row_record(data, row, position)
        if status != OK:
            return DAMAGED, Kept(records, has_tombstone, first_timestamp, max_timestamp)
        record_starts[next_record] = position
        position = record.end
        fate = record_fate(data, row, record, expired, key_map, rules)
        codes[next_record] = fate
        next_record += 1
        if fate == RETAINED:
            timestamp = record_timestamp(row, record)
            if records == 0:
                first_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            has_tombstone |= record.value_size < 0  # a control record without a value counts too
            records += 1
    status = OK if position == row[COL_SECTION_END] else DAMAGED
    return status, Kept(records, has_tombstone, first_timestamp, max_timestamp)


@inline_kernel
def choose_form(row: Int64s, kept: Kept, new_horizon_ms: int) -> None:
    """Write into a batch's row in which form what is kept of it goes on."""
    has_horizon = row[COL_ATTRIBUTES] & DELETE_HORIZON_BIT != 0
    needs_horizon = (
        kept.records > 0
        and not has_horizon
        and (kept.has_tombstone or row[COL_DISCARD] == DISCARD_EXPIRING)
    )
    row[COL_KEPT] = kept.records
    row[COL_OUT_MAX_TIMESTAMP] = row[COL_MAX_TIMESTAMP]
    if kept.records == 0 and row[COL_VERDICT] == VERDICT_RETAIN_EMPTY:
        row[COL_FORM] = FORM_EMPTY
        row[COL_OUT_SIZE] = HEADER_SIZE
    elif kept.records == 0:
        row[COL_FORM] = FORM_DROPPED
        row[COL_OUT_SIZE] = 0
    elif kept.records == row[COL_RECORD_COUNT] and not needs_horizon:
        row[COL_FORM] = FORM_VERBATIM
        row[COL_OUT_SIZE] = row[COL_SIZE]
    else:
        row[COL_FORM] = FORM_REBUILT
        row[COL_OUT_HORIZON] = 1 if needs_horizon or has_horizon else 0
        if not row[COL_ATTRIBUTES] & TIMESTAMP_TYPE_BIT:
            row[COL_OUT_MAX_TIMESTAMP] = kept.max_timestamp
        if needs_horizon:
            row[COL_OUT_BASE_TIMESTAMP] = new_horizon_ms
        elif has_horizon:
            row[COL_OUT_BASE_TIMESTAMP] = row[COL_BASE_TIMESTAMP]
        else:
            row[COL_OUT_BASE_TIMESTAMP] = kept.first_timestamp
        section_size = row[COL_SECTION_END] - row[COL_SECTION_START]
        row[COL_OUT_SIZE] = HEADER_SIZE + section_size + _GROWTH_MAX * kept.records


@kernel
def classify_batches(
    data: Bytes,
    table: Int64s,
    key_map: MapArrays,
    rules: PassRules,
    codes: Bytes,
    record_starts: Int64s,
) -> tuple[int, int]:
    """Decide the fate of every record and the form of every batch of a chunk (§8).

    `VERDICT` and `DISCARD` of each row come in; they need the producers and transactions, which
    kernels do not know.

    Parameters
    ----------
    key_map : MapArrays
        A map of offsets, or under a strategy with versions one of those.
    codes : (n,) uint8, out
        Fate of each record of the batches that are parsed, one batch after another.
    record_starts : (n,) int64, out
        Where each of them begins in `data`.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row whose records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    codes = borrowed(codes)
    record_starts = borrowed(record_starts)
    next_record = 0
    for index in range(len(table)):
        row = table[index]
        has_horizon = row[COL_ATTRIBUTES] & DELETE_HORIZON_BIT != 0
        expired = has_horizon and rules.now_ms >= row[COL_BASE_TIMESTAMP]
        row[COL_FIRST_RECORD] = next_record
        row[COL_PARSED] = 0
        kept = Kept(np.int64(0), False, np.int64(0), np.int64(-1))
        discard = row[COL_DISCARD]
        if not (discard == DISCARD_ABORTED or (discard == DISCARD_EXPIRING and expired)):
            row[COL_PARSED] = row[COL_RECORD_COUNT]
            status, kept = judge_records(data, row, expired, key_map, rules, codes, record_starts)
            if status != OK:
                return DAMAGED, index
            next_record += row[COL_RECORD_COUNT]
        choose_form(row, kept, rules.new_horizon_ms)
    return OK, len(table)
