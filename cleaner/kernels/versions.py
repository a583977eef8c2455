"""The map with versions (KIP-280): for each key, the record with the highest order.

The map has three words per slot. Word 1 contains the version. Word 2 contains the offset, PRESENT,
LATER_LOSER and 22 bits of the hash. The order of a record is (has a version, version, offset).
Source: docs/spec/cleaner.md §13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logstore.cleaner.kernels.slots import (
    MAX_OFFSET_SPAN,
    OFFSET_BITS,
    STATE_BASE,
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    STATE_MIN_VERSION,
    MapArrays,
    absolute_offset,
    borrowed_map,
    find_slot,
    open_slot,
    siphash128,
)
from logstore.cleaner.kernels.winners import note_loser, note_winner
from logstore.jit import Bytes, UInt64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import read_i64, read_varint
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

if TYPE_CHECKING:
    from logstore.record.kernels import RecordFields

PRESENT = 1 << OFFSET_BITS
"""The record of the entry has a version."""

LATER_LOSER = 1 << (OFFSET_BITS + 1)
"""The entry supersedes a later offset, possibly in a group that is swapped later."""

_TAG_SHIFT = OFFSET_BITS + 2
_TAG_MASK = 2**64 - 2**_TAG_SHIFT
SLOT_WORDS = 3
_LAST = SLOT_WORDS - 1

# -- strategies and versions ------------------------------------------------------------------

OFFSET = 0
TIMESTAMP = 1
HEADER_LONG = 2  # 8 bytes, signed, big-endian
HEADER_VARLONG = 3  # zigzag, 7 bits per byte

MISSING = 0
FOUND = 1
MALFORMED = 2

_LONG_BYTES = 8


class KernelStrategy(NamedTuple):
    """A compaction strategy, for kernels."""

    number: int  # OFFSET, TIMESTAMP or one of HEADER_*
    header: Bytes  # name of the header with the version

    @property
    def has_versions(self) -> bool:
        """Whether the strategy compares more than offsets."""
        return self.number != OFFSET


@inline_kernel
def borrowed_strategy(strategy: KernelStrategy) -> KernelStrategy:
    """Return a strategy with a `borrowed` array."""
    return KernelStrategy(strategy.number, borrowed(strategy.header))


class Order(NamedTuple):
    """The rank of a record among the records with the same key."""

    present: bool  # whether it has a version
    version: np.int64
    offset: np.int64


@kernel
def header_version(
    data: Bytes, position: int, end: int, strategy: KernelStrategy
) -> tuple[int, np.int64]:
    """Return the version in the last header with the strategy's name.

    Parameters
    ----------
    position, end : int
        Range of the record's headers, which must already be checked.
    strategy : KernelStrategy
        The strategy, which must use a header.

    Returns
    -------
    (status, version)
        FOUND; MISSING if the header is absent or its value is null; or MALFORMED if the value has a
        different format. Earlier headers with the same name are ignored (docs/spec/cleaner.md
        §13.2).
    """
    name = strategy.header
    status, version = MISSING, np.int64(0)
    count, position = read_varint(data, position, end, MAX_VARINT_BYTES)
    for _ in range(count):
        key_size, position = read_varint(data, position, end, MAX_VARINT_BYTES)
        if position < 0 or key_size < 0 or key_size > end - position:
            return MALFORMED, np.int64(0)
        matches = key_size == len(name)
        if matches:
            for index in range(key_size):
                if data[position + index] != name[index]:
                    matches = False
                    break
        value_size, start = read_varint(data, position + key_size, end, MAX_VARINT_BYTES)
        if start < 0 or value_size > end - start:
            return MALFORMED, np.int64(0)
        position = start + max(value_size, np.int64(0))
        if not matches:
            continue
        status, version = MALFORMED, np.int64(0)
        if value_size < 0:
            status = MISSING
        elif strategy.number == HEADER_VARLONG:
            value, after = read_varint(data, start, position, MAX_VARLONG_BYTES)
            if after == position:
                status, version = FOUND, value
        elif value_size == _LONG_BYTES:
            status, version = FOUND, read_i64(data, start)
    return status, version


@kernel
def record_version(
    data: Bytes, record: RecordFields, timestamp: np.int64, strategy: KernelStrategy
) -> tuple[int, np.int64]:
    """Return a record's (status, version) under a version strategy."""
    if strategy.number == TIMESTAMP:
        return FOUND, timestamp
    return header_version(data, record.headers_start, record.end, strategy)


# -- the map ---------------------------------------------------------------------------------


@inline_kernel
def is_above(order: Order, other: Order) -> Any:
    """Return whether a record's order is above another's."""
    if order.present != other.present:
        return order.present
    if order.present and order.version != other.version:
        return order.version > other.version
    return order.offset > other.offset


@inline_kernel
def _entry(key_map: MapArrays, slot: np.uint64) -> Order:
    """Return the order stored in a used slot."""
    present = key_map.slots[slot, _LAST] & np.uint64(PRESENT) != np.uint64(0)
    version = np.int64(key_map.slots[slot, 1])
    return Order(present, version, absolute_offset(key_map, slot, _LAST))


@inline_kernel
def _write_entry(
    slots: UInt64s,
    slot: np.uint64,
    tag: np.uint64,
    relative: int,
    order: Order,
    later_loser: bool | np.bool[bool],
) -> None:
    """Store a record in its key's slot. `relative` is the offset minus the map's base."""
    word = tag | np.uint64(relative + 1)
    if order.present:
        word |= np.uint64(PRESENT)
    if later_loser:
        word |= np.uint64(LATER_LOSER)
    slots[slot, 1] = np.uint64(order.version)
    slots[slot, _LAST] = word


@inline_kernel
def put_order(
    key_map: MapArrays, low: np.uint64, high: np.uint64, order: Order, insert: bool
) -> bool:
    """Enter a record under its key's hash. Inserted records must come first, in offset order.

    The record with the lower order is superseded. If it has the higher offset, the entry is marked
    LATER_LOSER. The mark is cleared when an inserted record supersedes all records of the key,
    because records of the clean section have lower offsets than the superseded record
    (docs/spec/cleaner.md §13.3, §13.5).

    Parameters
    ----------
    insert : bool
        Whether an unknown key gets an entry and the smallest version is updated.

    Returns
    -------
    bool
        False, without any change, if the offset does not fit or no slot is free.
    """
    slots = key_map.slots
    state = key_map.state
    relative = order.offset - state[STATE_BASE]
    if relative < 0 or relative > MAX_OFFSET_SPAN:
        return False
    tag = (high >> np.uint64(_TAG_SHIFT)) << np.uint64(_TAG_SHIFT)
    slot, found = find_slot(slots, low, tag, _LAST, _TAG_MASK)
    if found:
        other = _entry(key_map, slot)
        if is_above(order, other):
            is_marked = slots[slot, _LAST] & np.uint64(LATER_LOSER) != np.uint64(0)
            later_loser = other.offset > order.offset or (is_marked and not insert)
            _write_entry(slots, slot, tag, relative, order, later_loser)
            note_loser(key_map, other.offset)
            note_winner(key_map, order.offset)
        elif order.offset > other.offset:
            slots[slot, _LAST] |= np.uint64(LATER_LOSER)
    elif insert:
        if not open_slot(slots, slot, _LAST):
            return False
        slots[slot, 0] = low
        _write_entry(slots, slot, tag, relative, order, False)
        state[STATE_ENTRIES] += 1
        note_winner(key_map, order.offset)
    if insert:
        state[STATE_MIN_VERSION] = min(state[STATE_MIN_VERSION], order.version)
    return True


@inline_kernel
def get_order(key_map: MapArrays, low: np.uint64, high: np.uint64) -> tuple[Order, bool]:
    """Return the order and LATER_LOSER mark of a hash. The offset is -1 if it has none."""
    tag = (high >> np.uint64(_TAG_SHIFT)) << np.uint64(_TAG_SHIFT)
    slot, found = find_slot(key_map.slots, low, tag, _LAST, _TAG_MASK)
    if not found:
        return Order(False, np.int64(0), np.int64(-1)), False
    is_marked = key_map.slots[slot, _LAST] & np.uint64(LATER_LOSER) != np.uint64(0)
    return _entry(key_map, slot), is_marked


@inline_kernel
def is_superseded(
    key_map: MapArrays, low: np.uint64, high: np.uint64, order: Order
) -> tuple[bool, bool]:
    """Return whether a record ranks below its key's entry, and whether the entry is LATER_LOSER."""
    winner, later_loser = get_order(key_map, low, high)
    if winner.offset < 0:
        return False, False
    return is_above(winner, order), later_loser


@kernel
def version_put(
    key_map: MapArrays, data: Bytes, start: int, size: int, order: Order, insert: bool
) -> bool:
    """Enter a record under its key; see `put_order`.

    With `insert`, the latest offset is updated even if the record is superseded.
    """
    key_map = borrowed_map(key_map)
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    if not put_order(key_map, low, high, order, insert):
        return False
    if insert:
        key_map.state[STATE_LATEST_OFFSET] = order.offset
    return True


@kernel
def version_get(key_map: MapArrays, data: Bytes, start: int, size: int) -> tuple[Order, bool]:
    """Return the order and LATER_LOSER mark of a key. The offset is -1 if it has none."""
    key_map = borrowed_map(key_map)
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    return get_order(key_map, low, high)
