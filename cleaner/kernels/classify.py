"""Classify a chunk: the fate of each record, and the resulting form of each batch.

This module contains all rules for removing records. Source: docs/spec/cleaner.md §8, §13.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from logstore.cleaner.kernels.hashing import Keys, borrowed_keys, hash_keys
from logstore.cleaner.kernels.offsets import get_offset
from logstore.cleaner.kernels.slots import (
    STATE_KEYLESS,
    STATE_LATEST_OFFSET,
    STATE_TOMBSTONES,
    STATE_UNORDERED,
    STATE_WINNERS_BASE,
    MapArrays,
    borrowed_map,
)
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_BASE_TIMESTAMP,
    COL_DISCARD,
    COL_FIRST_KEPT,
    COL_FORM,
    COL_KEPT,
    COL_LAST_OFFSET,
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
    DISCARD_NONE,
    DISCARD_NONE_MAPPED,
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
    borrowed_strategy,
    is_superseded,
    record_version,
)
from logstore.cleaner.kernels.winners import count_winners, has_bit, is_winner
from logstore.jit import Bytes, Int64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import OK, Int, RecordFields, read_varint
from logstore.record.layout import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

RETAINED = 0
SUPERSEDED = 1
TOMBSTONE_EXPIRED = 2
ABORTED = 3
CONTROL_EXPIRED = 4
NULL_KEY = 5
FATES = 6

TALLY_READ = FATES
TALLY_WRITTEN = FATES + 1
TALLY_BOUND = FATES + 2  # upper bound of the bytes to assemble for the last chunk
TALLIES = FATES + 3

GROUP_RECORDS = 256
"""Maximum number of records that are hashed and looked up together."""

# A timestamp delta can grow from one byte to ten, and the length before it from one to five.
_GROWTH_MAX = MAX_VARLONG_BYTES - 1 + MAX_VARINT_BYTES - 1


class PassRules(NamedTuple):
    """The rules of a pass. `keep_offset` and `safe_ms` are only used with versions."""

    strategy: KernelStrategy
    keep_offset: int  # the record that is always retained, or -1
    safe_ms: int  # horizon up to which all earlier appends are compared
    now_ms: int  # time of the pass
    new_horizon_ms: int  # delete horizon for batches that need one
    by_winners: bool  # whether winner bits may replace lookups


@inline_kernel
def borrowed_rules(rules: PassRules) -> PassRules:
    """Return the same rules over `borrowed` arrays."""
    return PassRules(
        borrowed_strategy(rules.strategy),
        rules.keep_offset,
        rules.safe_ms,
        rules.now_ms,
        rules.new_horizon_ms,
        rules.by_winners,
    )


class ClassifyOutput(NamedTuple):
    """Output arrays and scratch space of `classify_batches`."""

    codes: Bytes  # (n,): fates of looked-up records, batch by batch
    kept_starts: Int64s  # (n,): start of each retained record, batch by batch
    keys: Keys  # room for GROUP_RECORDS, or the records of the largest batch
    tally: Int64s  # (TALLIES,): totals by fate, records read and written, and TALLY_BOUND


class Kept(NamedTuple):
    """The retained part of a batch."""

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
    low: np.uint64,
    high: np.uint64,
    rules: PassRules,
) -> int:
    """Decide the fate of a record. `expired` is whether its batch's delete horizon has passed.

    (low, high) is the hash of the key, if the record has a key.
    """
    offset = row[COL_BASE_OFFSET] + record.offset_delta
    is_beyond = offset > key_map.state[STATE_LATEST_OFFSET]
    if row[COL_ATTRIBUTES] & CONTROL_BIT or is_beyond or offset == rules.keep_offset:
        return RETAINED
    if record.key_size < 0:
        return NULL_KEY
    expired = expired and record.value_size < 0
    if rules.strategy.number == OFFSET:
        if get_offset(key_map, low, high) > offset:
            return SUPERSEDED
    else:
        timestamp = record_timestamp(row, record)
        status, version = record_version(data, record, timestamp, rules.strategy)
        order = Order(status == FOUND, version, offset)
        beaten, later_loser = is_superseded(key_map, low, high, order)
        if beaten:
            return SUPERSEDED
        # A winner may only be removed after the records it supersedes (docs/spec/cleaner.md §13.6).
        expired = expired and row[COL_BASE_TIMESTAMP] <= rules.safe_ms and not later_loser
    return TOMBSTONE_EXPIRED if expired else RETAINED


@inline_kernel
def winners_decide(
    first_offset: Int, last_offset: Int, attributes: Int, key_map: MapArrays, rules: PassRules
) -> bool:
    """Return whether the winner bits of a batch agree with `record_fate` for every record.

    For a batch that is not discarded, they agree if all its records were put into the map, offsets
    are unique, and the fates depend only on the lookup:

    - the batch is within the mapped range, from the first bit to the map's latest offset;
    - it was mapped: it is not a control batch, and no transaction could cause its removal;
    - no mapped record lacks a key, which would be a different fate;
    - offsets are strictly increasing in all batches;
    - it has no delete horizon, which would let tombstones expire;
    - the record that is always retained is in a different batch.
    """
    state = key_map.state
    return (
        rules.by_winners
        and state[STATE_KEYLESS] == 0
        and state[STATE_UNORDERED] == 0
        and has_bit(key_map, np.int64(first_offset))
        and has_bit(key_map, np.int64(last_offset))
        and last_offset <= state[STATE_LATEST_OFFSET]
        and attributes & (CONTROL_BIT | TRANSACTIONAL_BIT | DELETE_HORIZON_BIT) == 0
        and not first_offset <= rules.keep_offset <= last_offset
    )


@inline_kernel
def is_decided_by_winners(row: Int64s, key_map: MapArrays, rules: PassRules) -> bool:
    """Return whether `winners_decide` is true for a row's batch that is not discarded.

    A transactional batch qualifies if it was not discarded when the map was built, because its
    records were then put into the map.
    """
    attributes = row[COL_ATTRIBUTES]
    if row[COL_DISCARD] == DISCARD_NONE_MAPPED:
        attributes &= ~TRANSACTIONAL_BIT
    elif row[COL_DISCARD] != DISCARD_NONE:
        return False
    return winners_decide(row[COL_BASE_OFFSET], row[COL_LAST_OFFSET], attributes, key_map, rules)


@inline_kernel
def is_unread(row: Int64s, now_ms: int) -> bool:
    """Return whether all records of a batch are removed without being parsed."""
    discard = row[COL_DISCARD]
    expired = is_expired(row, now_ms)
    return discard == DISCARD_ABORTED or (discard == DISCARD_EXPIRING and expired)


@inline_kernel
def is_expired(row: Int64s, now_ms: int) -> bool:
    """Return whether the delete horizon of a batch has passed."""
    has_horizon = row[COL_ATTRIBUTES] & DELETE_HORIZON_BIT != 0
    return has_horizon and now_ms >= row[COL_BASE_TIMESTAMP]  # type: ignore[no-any-return]


@kernel
def hash_group(
    data: Bytes,
    table: Int64s,
    first_row: int,
    key_map: MapArrays,
    rules: PassRules,
    keys: Keys,
) -> int:
    """Hash the keys of the batches to look up, from a row on, and prefetch their slots.

    Each record has an entry in `keys`, even without a key. In a damaged batch, records after the
    damage are omitted. Returns the row after the last batch. Hashes at least one batch, and more as
    long as there is room.
    """
    count = 0
    end_row = len(table)
    for index in range(first_row, len(table)):
        row = table[index]
        if is_unread(row, rules.now_ms) or is_decided_by_winners(row, key_map, rules):
            continue
        if index > first_row and count + row[COL_RECORD_COUNT] > len(keys.starts):
            end_row = index
            break
        position = row[COL_SECTION_START]
        for place in range(count, count + row[COL_RECORD_COUNT]):
            status, record = read_row_record(data, row, position)
            if status != OK:
                for rest in range(place, count + row[COL_RECORD_COUNT]):
                    keys.starts[rest] = keys.sizes[rest] = 0
                break
            position = record.end
            keys.starts[place] = record.key_start
            keys.sizes[place] = max(record.key_size, 0)
        count += row[COL_RECORD_COUNT]
    hash_keys(data, keys, count, key_map)
    return end_row


@inline_kernel
def with_record(kept: Kept, row: Int64s, record: RecordFields) -> Kept:
    """Return the retained part of a batch with one more record."""
    timestamp = record_timestamp(row, record)
    return Kept(
        kept.records + 1,
        kept.has_tombstone or record.value_size < 0,  # including a control record without a value
        timestamp if kept.records == 0 else kept.first_timestamp,
        max(kept.max_timestamp, timestamp),
    )


@inline_kernel
def classify_records(
    data: Bytes,
    row: Int64s,
    key_map: MapArrays,
    rules: PassRules,
    judging: ClassifyOutput,
    first_hash: int,
    first_code: int,
    first_kept: Int,
) -> tuple[int, Kept]:
    """Decide each record's fate by looking up its key, and sum up the retained records.

    Returns (status, Kept), where status is `OK` or `DAMAGED`. `first_hash`, `first_code` and
    `first_kept` are the positions of the batch's first hash, code and record start.
    """
    position = row[COL_SECTION_START]
    kept = Kept(np.int64(0), False, np.int64(0), np.int64(-1))
    expired = is_expired(row, rules.now_ms)
    for number in range(row[COL_RECORD_COUNT]):
        status, record = read_row_record(data, row, position)
        if status != OK:
            return DAMAGED, kept
        low, high = judging.keys.lows[first_hash + number], judging.keys.highs[first_hash + number]
        fate = record_fate(data, row, record, expired, key_map, low, high, rules)
        judging.codes[first_code + number] = fate
        judging.tally[fate] += 1
        if fate == RETAINED:
            judging.kept_starts[first_kept + kept.records] = position
            kept = with_record(kept, row, record)
        position = record.end
    return OK if position == row[COL_SECTION_END] else DAMAGED, kept


@inline_kernel
def pick_winners(
    data: Bytes, row: Int64s, key_map: MapArrays, judging: ClassifyOutput, first_kept: Int
) -> tuple[int, Kept]:
    """Sum up the retained records of a batch that `is_decided_by_winners`, like `classify_records`.

    A batch is not read if all its records are removed, or all are retained and none is a tombstone.
    If its offsets have no gaps, only its retained records are parsed.
    """
    count = row[COL_RECORD_COUNT]
    first_bit = row[COL_BASE_OFFSET] - key_map.state[STATE_WINNERS_BASE]
    bits = row[COL_LAST_OFFSET] - row[COL_BASE_OFFSET] + 1
    winners = count_winners(key_map.winners, first_bit, first_bit + bits)
    judging.tally[SUPERSEDED] += count - winners
    judging.tally[RETAINED] += winners
    kept = Kept(winners, False, np.int64(0), np.int64(-1))
    if winners == 0 or (winners == count and key_map.state[STATE_TOMBSTONES] == 0):
        return OK, kept
    kept = Kept(np.int64(0), False, np.int64(0), np.int64(-1))
    is_dense = bits == count
    position = row[COL_SECTION_START]
    for number in range(count):
        if is_dense and not is_winner(key_map.winners, first_bit + number):
            size, start = read_varint(data, position, row[COL_SECTION_END], MAX_VARINT_BYTES)
            if start < 0 or size < 1 or size > row[COL_SECTION_END] - start:
                return DAMAGED, kept
            position = start + size
            continue
        status, record = read_row_record(data, row, position)
        if status != OK:
            return DAMAGED, kept
        if is_winner(key_map.winners, first_bit + record.offset_delta):
            judging.kept_starts[first_kept + kept.records] = position
            kept = with_record(kept, row, record)
        position = record.end
    is_whole = position == row[COL_SECTION_END] and kept.records == winners
    return OK if is_whole else DAMAGED, kept


@inline_kernel
def choose_form(row: Int64s, kept: Kept, new_horizon_ms: int) -> None:
    """Write the form of a batch's retained part into the batch's row."""
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
    data: Bytes, table: Int64s, key_map: MapArrays, rules: PassRules, judging: ClassifyOutput
) -> tuple[int, int]:
    """Decide the fate of each record and the form of each batch in a chunk.

    `VERDICT` and `DISCARD` of each row must already be set, because kernels have no access to
    producers and transactions. Source: docs/spec/cleaner.md §8.

    Parameters
    ----------
    key_map : MapArrays
        A map of offsets or, under a version strategy, a map of versions.
    judging : ClassifyOutput
        Receives the fates in `codes` for batches whose `COL_PARSED` is not 0, unless the rules use
        winner bits.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row whose records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    judging = ClassifyOutput(
        borrowed(judging.codes),
        borrowed(judging.kept_starts),
        borrowed_keys(judging.keys),
        borrowed(judging.tally),
    )
    rules = borrowed_rules(rules)
    tally = judging.tally
    hashed_until = 0
    next_hash = 0
    next_code = 0
    next_kept = np.int64(0)
    bound = np.int64(0)
    for index in range(len(table)):
        row = table[index]
        count = row[COL_RECORD_COUNT]
        row[COL_FIRST_KEPT] = next_kept
        row[COL_PARSED] = 0
        kept = Kept(np.int64(0), False, np.int64(0), np.int64(-1))
        status = OK
        if is_unread(row, rules.now_ms):
            tally[ABORTED if row[COL_DISCARD] == DISCARD_ABORTED else CONTROL_EXPIRED] += count
            # A batch whose header is retained is parsed even if all records are discarded.
            if row[COL_VERDICT] == VERDICT_RETAIN_EMPTY:
                tally[TALLY_READ] += count
        else:
            row[COL_PARSED] = count
            tally[TALLY_READ] += count
            if is_decided_by_winners(row, key_map, rules):
                status, kept = pick_winners(data, row, key_map, judging, next_kept)
            else:
                if index >= hashed_until:
                    hashed_until = hash_group(data, table, index, key_map, rules, judging.keys)
                    next_hash = 0
                status, kept = classify_records(
                    data, row, key_map, rules, judging, next_hash, next_code, next_kept
                )
                next_hash += count
                next_code += count
        if status != OK:
            return DAMAGED, index
        tally[TALLY_WRITTEN] += kept.records
        next_kept += kept.records
        choose_form(row, kept, rules.new_horizon_ms)
        bound += row[COL_OUT_SIZE]
    tally[TALLY_BOUND] = bound
    return OK, len(table)
