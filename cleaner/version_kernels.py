"""Compiled loops of the map with versions (KIP-280): which record of a key has the highest order.

`slots` is (home slots + SLACK_SLOTS, 3) uint64. Word 0 of a slot: 64 bits of the key's hash. Word
1: the version. Word 2: from below the offset relative to `state[STATE_BASE]` plus 1 in 40 bits, 0
there marks a free slot; PRESENT; LATER_LOSER; 22 more bits of the hash. Otherwise as in
`map_kernels`. The order of a record is (has a version, version, offset).
Source: cleaner-semantics §13.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cleaner.map_kernels import (
    MAX_OFFSET_SPAN,
    OFFSET_BITS,
    STATE_BASE,
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    STATE_MIN_VERSION,
    Bytes,
    Int64s,
    UInt64s,
    find_slot,
    open_slot,
    siphash128,
)
from logstore.jit import borrowed, kernel
from logstore.record.kernels import read_varint

PRESENT = 1 << OFFSET_BITS
"""The record that the entry stands for has a version."""

LATER_LOSER = 1 << (OFFSET_BITS + 1)
"""A record of a higher offset lost to it, and may stand in a group that is swapped later."""

_TAG_SHIFT = OFFSET_BITS + 2
_TAG_MASK = 2**64 - 2**_TAG_SHIFT
_LAST = 2

# -- strategies, and where a record's version stands -----------------------------------------

OFFSET = 0
TIMESTAMP = 1
HEADER_LONG = 2  # 8 bytes, signed, big-endian
HEADER_VARLONG = 3  # zigzag, 7 bits a byte

MISSING = 0
FOUND = 1
MALFORMED = 2


@kernel
def header_version(
    data: Bytes, position: int, end: int, name: Bytes, strategy: int
) -> tuple[int, np.int64]:
    """Return what the last header of a name says as a version.

    Parameters
    ----------
    position, end : int
        The record's headers, which were checked.
    name : (n,) uint8
    strategy : int
        HEADER_LONG or HEADER_VARLONG.

    Returns
    -------
    (status, version)
        FOUND; MISSING without such a header or with a null value; MALFORMED if the value has
        another form. Only the last one counts, whatever those before it say (§13.2).
    """
    status, version = MISSING, np.int64(0)
    count, position = read_varint(data, position, end, 5)
    for _ in range(count):
        key_size, position = read_varint(data, position, end, 5)
        if position < 0 or key_size < 0 or key_size > end - position:
            return MALFORMED, np.int64(0)
        matches = key_size == len(name)
        if matches:
            for index in range(key_size):
                if data[position + index] != name[index]:
                    matches = False
                    break
        value_size, start = read_varint(data, position + key_size, end, 5)
        if start < 0 or value_size > end - start:
            return MALFORMED, np.int64(0)
        position = start + max(value_size, np.int64(0))
        if not matches:
            continue
        status, version = MALFORMED, np.int64(0)
        if value_size < 0:
            status = MISSING
        elif strategy == HEADER_VARLONG:
            value, after = read_varint(data, start, position, 10)
            if after == position:
                status, version = FOUND, value
        elif value_size == 8:
            word = np.uint64(0)
            for index in range(8):
                word = (word << np.uint64(8)) | np.uint64(data[start + index])
            status, version = FOUND, np.int64(word)
    return status, version


@kernel
def record_version(
    data: Bytes, tail: int, end: int, timestamp: np.int64, name: Bytes, strategy: int
) -> tuple[int, np.int64]:
    """Return a record's (status, version) under a strategy that has versions.

    `tail` is the position of its key's length, `end` where the record ends.
    """
    if strategy == TIMESTAMP:
        return FOUND, timestamp
    size, position = read_varint(data, tail, end, 5)
    position += max(size, np.int64(0))
    size, position = read_varint(data, position, end, 5)
    return header_version(data, position + max(size, np.int64(0)), end, name, strategy)


# -- the map ---------------------------------------------------------------------------------


@kernel
def is_above(
    present: Any, version: Any, offset: Any, other_present: Any, other_version: Any, other: Any
) -> Any:
    """Tell whether a record's order is above another's."""
    if present != other_present:
        return present
    if present and version != other_version:
        return version > other_version
    return offset > other


@kernel
def _entry(slots: UInt64s, state: Int64s, slot: Any) -> Any:
    """Return (present, version, offset) of a used slot."""
    word = slots[slot, 2]
    relative = np.int64(word & np.uint64(MAX_OFFSET_SPAN + 1)) - 1
    offset = np.int64(relative + state[STATE_BASE])
    return word & np.uint64(PRESENT) != np.uint64(0), np.int64(slots[slot, 1]), offset


@kernel
def _write_entry(
    slots: UInt64s,
    slot: Any,
    tag: np.uint64,
    relative: int,
    present: Any,
    version: Any,
    later_loser: Any,
) -> None:
    """Put a record into the slot of its key's hash; `relative` is its offset less the base."""
    word = tag | np.uint64(relative + 1)
    if present:
        word |= np.uint64(PRESENT)
    if later_loser:
        word |= np.uint64(LATER_LOSER)
    slots[slot, 1] = np.uint64(version)
    slots[slot, 2] = word


@kernel
def version_put(
    slots: UInt64s,
    state: Int64s,
    data: Bytes,
    start: int,
    size: int,
    offset: int,
    present: bool,
    version: np.int64,
    insert: bool,
    k0: np.uint64,
    k1: np.uint64,
) -> bool:
    """Let a record compete for its key: first all that are inserted, in offset order.

    Of two records the one of lower order loses; if it has the higher offset, the winner's entry is
    marked LATER_LOSER. The mark goes when a record above all of them wins, which only one that is
    inserted can be: those of the clean section lie below what has lost already (§13.3, §13.5).

    Parameters
    ----------
    insert : bool
        Whether an unknown key gets an entry, and the latest offset moves, also if it lost.

    Returns
    -------
    bool
        False, and nothing changed, when the offset does not fit or no slot is free.
    """
    slots = borrowed(slots)
    state = borrowed(state)
    relative = offset - state[STATE_BASE]
    if relative < 0 or relative > MAX_OFFSET_SPAN:
        return False
    low, high = siphash128(data, start, size, k0, k1)
    tag = (high >> np.uint64(_TAG_SHIFT)) << np.uint64(_TAG_SHIFT)
    slot, found = find_slot(slots, low, tag, _LAST, _TAG_MASK)
    if found:
        other_present, other_version, other = _entry(slots, state, slot)
        if is_above(present, version, np.int64(offset), other_present, other_version, other):
            is_marked = slots[slot, 2] & np.uint64(LATER_LOSER) != np.uint64(0)
            later_loser = other > offset or (is_marked and not insert)
            _write_entry(slots, slot, tag, relative, present, version, later_loser)
        elif offset > other:
            slots[slot, 2] |= np.uint64(LATER_LOSER)
    elif insert:
        if not open_slot(slots, slot, _LAST):
            return False
        slots[slot, 0] = low
        _write_entry(slots, slot, tag, relative, present, version, False)
        state[STATE_ENTRIES] += 1
    if insert:
        state[STATE_LATEST_OFFSET] = offset
        state[STATE_MIN_VERSION] = min(state[STATE_MIN_VERSION], version)
    return True


@kernel
def version_get(
    slots: UInt64s, state: Int64s, data: Bytes, start: int, size: int, k0: np.uint64, k1: np.uint64
) -> Any:
    """Return (offset, present, version, later loser) of a key's winner; offset -1 if unknown."""
    slots = borrowed(slots)
    low, high = siphash128(data, start, size, k0, k1)
    tag = (high >> np.uint64(_TAG_SHIFT)) << np.uint64(_TAG_SHIFT)
    slot, found = find_slot(slots, low, tag, _LAST, _TAG_MASK)
    if not found:
        return np.int64(-1), False, np.int64(0), False
    present, version, offset = _entry(slots, state, slot)
    return offset, present, version, slots[slot, 2] & np.uint64(LATER_LOSER) != np.uint64(0)


@kernel
def is_beaten(
    slots: UInt64s,
    state: Int64s,
    data: Bytes,
    start: int,
    size: int,
    offset: np.int64,
    present: bool,
    version: np.int64,
    k0: np.uint64,
    k1: np.uint64,
) -> Any:
    """Return whether a record is below its key's entry, and whether that has a later loser."""
    winner, other_present, other_version, later_loser = version_get(
        slots, state, data, start, size, k0, k1
    )
    if winner < 0:
        return False, False
    beaten = is_above(other_present, other_version, winner, present, version, offset)
    return beaten, later_loser
