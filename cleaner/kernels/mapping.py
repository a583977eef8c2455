"""Fill a map with the records of a chunk (docs/spec/cleaner.md §5, §13.5).

Keys are processed in blocks: all keys of a block are hashed and their slots prefetched before any
key is put, so that the memory latencies of a block overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from logstore.cleaner.kernels.hashing import LANES, Keys, borrowed_keys, hash_keys
from logstore.cleaner.kernels.offsets import put_offset
from logstore.cleaner.kernels.slots import (
    STATE_ENTRIES,
    STATE_KEYLESS,
    STATE_LATEST_OFFSET,
    STATE_LIMIT,
    STATE_MALFORMED,
    STATE_MESSAGES,
    STATE_MIN_VERSION,
    STATE_TOMBSTONES,
    STATE_UNORDERED,
    STATE_UNVERSIONED,
    MapArrays,
    borrowed_map,
)
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_DISCARD,
    COL_LAST_OFFSET,
    COL_MAX_TIMESTAMP,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    DAMAGED,
    DISCARD_NONE,
    MAP_FULL,
    read_row_record,
    record_timestamp,
)
from logstore.cleaner.kernels.versions import (
    FOUND,
    MALFORMED,
    OFFSET,
    TIMESTAMP,
    KernelStrategy,
    Order,
    borrowed_strategy,
    put_order,
    record_version,
)
from logstore.cleaner.kernels.winners import note_winners
from logstore.jit import Bytes, Int64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import OK
from logstore.record.layout import CONTROL_BIT

BLOCK_KEYS = LANES
"""Number of keys per block. Their cache lines remain in the L1 cache until they are put."""


class Build(NamedTuple):
    """The range of a log to map, and how to map it."""

    strategy: KernelStrategy
    start_offset: int
    end_offset: int  # exclusive
    insert: bool  # whether unknown keys get an entry and records are counted


class KeyBlock(NamedTuple):
    """Arrays for a block of keys, with `BLOCK_KEYS` elements each."""

    keys: Keys
    offsets: Int64s
    rows: Int64s  # row of the chunk's table
    messages: Int64s  # number of messages in the chunk before the record
    versions: Int64s  # only for version strategies, as is `found`
    found: Int64s  # FOUND, MISSING or MALFORMED
    displaced: Int64s  # previously mapped offset; only without versions

    @classmethod
    def empty(cls) -> KeyBlock:
        """Return room for a block."""
        return cls(Keys.room_for(BLOCK_KEYS), *np.empty((6, BLOCK_KEYS), np.int64))


@inline_kernel
def borrowed_block(block: KeyBlock) -> KeyBlock:
    """Return the same arrays `borrowed`."""
    return KeyBlock(
        borrowed_keys(block.keys),
        borrowed(block.offsets),
        borrowed(block.rows),
        borrowed(block.messages),
        borrowed(block.versions),
        borrowed(block.found),
        borrowed(block.displaced),
    )


@inline_kernel
def put_offsets(key_map: MapArrays, build: Build, block: KeyBlock, count: int) -> int:
    """Put the first `count` keys of a block under strategy `offset`. Return how many fit."""
    state = key_map.state
    fitting = count
    for number in range(count):
        place = np.uint64(number)
        low, high, offset = block.keys.lows[place], block.keys.highs[place], block.offsets[place]
        fits, displaced = False, np.int64(-1)
        if not build.insert or state[STATE_ENTRIES] < state[STATE_LIMIT]:
            fits, displaced = put_offset(key_map, low, high, offset)
        if not fits:
            fitting = number
            break
        block.displaced[place] = displaced
    note_winners(key_map, block.offsets, block.displaced, fitting)
    return fitting


@inline_kernel
def put_orders(key_map: MapArrays, build: Build, block: KeyBlock, count: int) -> int:
    """Put the first `count` keys of a block by their versions. Return how many fit."""
    state = key_map.state
    for index in range(count):
        fits = not build.insert or state[STATE_ENTRIES] < state[STATE_LIMIT]
        if fits:
            low, high = block.keys.lows[index], block.keys.highs[index]
            found = block.found[index]
            order = Order(found == FOUND, block.versions[index], block.offsets[index])
            fits = put_order(key_map, low, high, order, build.insert)
        if not fits:
            return index
        if build.insert and block.found[index] != FOUND:
            state[STATE_UNVERSIONED] += 1
            if block.found[index] == MALFORMED:
                state[STATE_MALFORMED] += 1
    return count


@kernel
def put_block(
    data: Bytes,
    table: Int64s,
    key_map: MapArrays,
    build: Build,
    block: KeyBlock,
    count: int,
    messages: np.int64,
) -> int:
    """Put the first `count` keys of a block. Return `OK`, or `MAP_FULL` with the state at that key.

    `messages` is the number of messages before the chunk.
    """
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    block = borrowed_block(block)
    state = key_map.state
    insert = build.insert
    hash_keys(data, block.keys, count, key_map)
    if build.strategy.number == OFFSET:
        fitting = put_offsets(key_map, build, block, count)
    else:
        fitting = put_orders(key_map, build, block, count)
    if insert and fitting > 0:
        state[STATE_LATEST_OFFSET] = block.offsets[fitting - 1]
    if fitting == count:
        return OK
    # The map now covers offsets up to the preceding record or batch.
    row = block.rows[fitting]
    if insert and row > 0 and table[row - 1, COL_LAST_OFFSET] >= build.start_offset:
        latest = max(state[STATE_LATEST_OFFSET], table[row - 1, COL_LAST_OFFSET])
        state[STATE_LATEST_OFFSET] = latest
    state[STATE_MESSAGES] = messages + block.messages[fitting]
    return MAP_FULL


@kernel
def map_batches(
    data: Bytes, table: Int64s, key_map: MapArrays, build: Build, block: KeyBlock
) -> tuple[int, int]:
    """Put the records of a chunk into the map, in offset order (docs/spec/cleaner.md §5, §13.5).

    Control batches and discarded batches map no keys but are counted and advance the latest offset.
    A control batch counts as one message, as in Kafka, even if compaction has left only its header.
    Without `insert` (in the seed pass), only entries of known keys are raised, and records that are
    too old by timestamp are skipped.

    Returns
    -------
    (status, row)
        `OK` with the number of rows; `MAP_FULL` if a record with a key met a full map, so that the
        build ends there, between two puts; or `DAMAGED` if the row's records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    block = borrowed_block(block)
    state = key_map.state
    strategy = borrowed_strategy(build.strategy)
    insert = build.insert
    before = state[STATE_MESSAGES]
    messages = np.int64(0)
    count = 0
    for index in range(len(table)):
        row = table[index]
        is_too_old = (
            not insert
            and strategy.number == TIMESTAMP
            and row[COL_MAX_TIMESTAMP] <= state[STATE_MIN_VERSION]
        )
        if row[COL_ATTRIBUTES] & CONTROL_BIT:
            messages += 1
            continue
        if row[COL_DISCARD] != DISCARD_NONE or is_too_old:
            messages += row[COL_RECORD_COUNT]
            continue
        position = row[COL_SECTION_START]
        previous = np.int64(-1)
        is_damaged = False
        for _ in range(row[COL_RECORD_COUNT]):
            status, record = read_row_record(data, row, position)
            if status != OK:
                is_damaged = True
                break
            position = record.end
            offset = row[COL_BASE_OFFSET] + record.offset_delta
            if offset <= previous:
                state[STATE_UNORDERED] = 1
            previous = offset
            if build.start_offset <= offset < build.end_offset:
                if record.key_size < 0:
                    state[STATE_KEYLESS] += 1
                else:
                    place = np.uint64(count)
                    block.keys.starts[place] = record.key_start
                    block.keys.sizes[place] = record.key_size
                    block.offsets[place] = offset
                    block.rows[place] = index
                    block.messages[place] = messages
                    if strategy.number != OFFSET:
                        timestamp = record_timestamp(row, record)
                        found, version = record_version(data, record, timestamp, strategy)
                        block.found[place] = found
                        block.versions[place] = version
                    state[STATE_TOMBSTONES] += record.value_size < 0
                    count += 1
                    if count == BLOCK_KEYS:
                        if put_block(data, table, key_map, build, block, count, before) != OK:
                            return MAP_FULL, index
                        count = 0
            messages += 1
        if is_damaged or position != row[COL_SECTION_END]:
            if put_block(data, table, key_map, build, block, count, before) != OK:
                return MAP_FULL, index
            return DAMAGED, index
    if put_block(data, table, key_map, build, block, count, before) != OK:
        return MAP_FULL, len(table) - 1
    state[STATE_MESSAGES] = before + messages
    if insert and len(table) and table[len(table) - 1, COL_LAST_OFFSET] >= build.start_offset:
        state[STATE_LATEST_OFFSET] = table[len(table) - 1, COL_LAST_OFFSET]
    return OK, len(table)
