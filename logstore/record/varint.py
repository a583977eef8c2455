"""Zigzag varints in plain Python: used for small batches, and as the oracle of the kernels.

A varint has 32 bits in at most 5 bytes, a varlong 64 bits in at most 10 bytes. Each byte has seven
bits, least significant group first. Longer encodings are errors, but non-minimal encodings are
accepted. Source: docs/spec/storage-format.md §2.
"""

from __future__ import annotations

from logstore.errors import InvalidRecordError

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

_ONE_BYTE = tuple(bytes([zigzag]) for zigzag in range(128))


def wrap_int64(value: int) -> int:
    """Wrap an integer to 64 signed bits, as Java and the kernels do."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def encode_varint(value: int) -> bytes:
    """Return the zigzag encoding of `value`, which is the same for varint and varlong.

    The caller must ensure that `value` fits into 64 signed bits, or 32 for a varint.
    """
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def decode_varint(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Decode a 32-bit varint at `position`. `end` is exclusive.

    Returns
    -------
    (int, int)
        The value, and the position after it.

    Raises
    ------
    InvalidRecordError
        The encoding is longer than 5 bytes or runs past `end`.
    """
    zigzag, position = _decode(data, position, end, MAX_VARINT_BYTES)
    # Drop bits above the 32nd, as a 32-bit shift does.
    value = (zigzag & 0xFFFFFFFF) >> 1 ^ -(zigzag & 1)
    return value, position


def decode_varlong(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Decode a 64-bit varint at `position`; see `decode_varint`."""
    zigzag, position = _decode(data, position, end, MAX_VARLONG_BYTES)
    value = (zigzag & 0xFFFFFFFFFFFFFFFF) >> 1 ^ -(zigzag & 1)
    return value, position


def _decode(data: bytes | memoryview, position: int, end: int, max_bytes: int) -> tuple[int, int]:
    zigzag = shift = 0
    limit = position + max_bytes
    while True:
        if position >= end:
            raise InvalidRecordError(f"varint runs past the end of its record at byte {position}")
        if position >= limit:
            raise InvalidRecordError(f"varint of more than {max_bytes} bytes at byte {position}")
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return zigzag, position
        shift += 7
