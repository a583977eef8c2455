"""Mutators that know the layouts, all driven by one `random.Random`.

`mutate(rng, data, shape, seeds)` changes bytes of a shape: anywhere, at the fields of a layout,
in varints; it cuts, doubles and splices, and often corrects CRCs and lengths, so that the code
after those checks is reached too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import google_crc32c

SIZE_MAX = 1 << 16

INTERESTING = (0, 1, -1, 2, 5, 7, 13, 14, 16, 17, 48, 49, 50, 61, 64, 65, 100, 127, 128, 255, 256)
EDGES = tuple(
    sign * (2**bits + step) for bits in (7, 15, 16, 31, 32, 63) for step in (-1, 0, 1)
    for sign in (1, -1)
)  # fmt: skip

# Field positions and sizes, as storage-format §1, §7 and §9.2 give them.
BATCH_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (22, 1), (23, 4), (27, 8),
                (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))  # fmt: skip
ENTRY_FIELDS = {
    8: ((0, 4), (4, 4)),
    12: ((0, 8), (8, 4)),
    34: ((0, 2), (2, 8), (10, 8), (18, 8), (26, 8)),
    46: ((0, 8), (8, 2), (10, 4), (14, 8), (22, 4), (26, 8), (34, 4), (38, 8)),
}

VARINTS = (
    b"\x00", b"\x01", b"\x02", b"\x03", b"\x7e", b"\x7f", b"\x80\x01", b"\xff\x01", b"\x80\x00",
    b"\x80\x80\x80\x80\x00", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 10, b"\xff" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x00",
)  # fmt: skip

TOKENS = (
    b"0", b"-1", b"+1", b"01", b"2147483647", b"2147483648", b"-9223372036854775808",
    b"9223372036854775808", b"9" * 30, b"1e400", b"Infinity", b"NaN", b"-0", b"1_0", b"\n", b"\n\n",
    b"\r\n", b"\r", b"\x0b", b"\x0c", b" ", b"\t", b"  ", b"\x00", b"\xff", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\\u", b"\\ud800", b"\\uD83D\\uDE00", b"\\", b'"', b"{",
    b"}",
    b"[", b"]",
    b"[" * 300, b'{"a":' * 300, b":", b",", b"=", b"#", b"!", b"null", b"true", b"..",
    b"/", b"../../x", b"a" * 260, b'"version"', b'"topics"', b'"partitions"', b'"configs"',
    b"\xd9\xa1", b"topic_id", b"version: 0", b"AAAAAAAAAAAAAAAAAAAAAA",
)  # fmt: skip


def crc32c(data: bytes | bytearray) -> int:
    return google_crc32c.value(bytes(data))


# --- repairs ------------------------------------------------------------------------------------


def repair_batches(data: bytes, *, lengths: random.Random | None = None) -> bytes:
    """Give every whole batch the CRC of its bytes.

    With `lengths`, a last batch that is torn, or one whose length is absurd, is now and then
    given the length of the bytes that are there.
    """
    raw = bytearray(data)
    at = 0
    while len(raw) - at >= 61:
        (length,) = struct.unpack_from(">i", raw, at + 8)
        end = at + 12 + length
        if length < 49 or end > len(raw):
            if lengths is None or lengths.random() < 0.3:
                break
            end = len(raw)
            struct.pack_into(">i", raw, at + 8, end - at - 12)
        struct.pack_into(">I", raw, at + 17, crc32c(raw[at + 21 : end]))
        at = end
    return bytes(raw)


def repair_snapshot(data: bytes) -> bytes:
    """Give a snapshot the CRC, and usually the version, of a sound one."""
    if len(data) < 10:
        return data
    return b"\0\1" + struct.pack(">I", crc32c(data[6:])) + data[6:]


# --- changes of any bytes -----------------------------------------------------------------------


def _place(rng: random.Random, raw: bytearray) -> int:
    return rng.randrange(len(raw)) if raw else 0


def flip_bit(rng: random.Random, raw: bytearray) -> None:
    if raw:
        raw[_place(rng, raw)] ^= 1 << rng.randrange(8)


def set_byte(rng: random.Random, raw: bytearray) -> None:
    if raw:
        value = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        raw[_place(rng, raw)] = value


def cut(rng: random.Random, raw: bytearray) -> None:
    del raw[rng.randint(0, len(raw)) :]


def remove(rng: random.Random, raw: bytearray) -> None:
    start = _place(rng, raw)
    del raw[start : start + rng.choice((1, 1, 2, 4, 8, 61))]


def insert(rng: random.Random, raw: bytearray) -> None:
    size = rng.choice((1, 1, 2, 4, 17, 18))
    piece = rng.choice((bytes(size), rng.randbytes(size)))
    at = rng.randint(0, len(raw))
    raw[at:at] = piece


def double(rng: random.Random, raw: bytearray) -> None:
    start = _place(rng, raw)
    end = min(len(raw), start + rng.choice((1, 4, 8, 12, 34, 46, 70, 200, len(raw))))
    at = rng.choice((end, rng.randint(0, len(raw))))
    raw[at:at] = raw[start:end]


def swap(rng: random.Random, raw: bytearray) -> None:
    size = rng.choice((1, 4, 8, 16, 61))
    a, b = _place(rng, raw), _place(rng, raw)
    if abs(a - b) >= size and max(a, b) + size <= len(raw):
        raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]


ANYWHERE: tuple[Callable[[random.Random, bytearray], None], ...] = (
    flip_bit,
    flip_bit,
    set_byte,
    set_byte,
    cut,
    remove,
    insert,
    double,
    swap,
)


def set_number(rng: random.Random, raw: bytearray, at: int, size: int) -> None:
    """Overwrite a big-endian field by an edge value, a neighbouring value, or adjacent bytes."""
    if at + size > len(raw):
        return
    old = int.from_bytes(raw[at : at + size], "big", signed=True)
    value = rng.choice(
        (
            rng.choice(INTERESTING),
            rng.choice(EDGES),
            old + rng.choice((-2, -1, 1, 2, 100)),
            -old,
            len(raw),
            len(raw) - at,
            len(raw) - 12,
            rng.getrandbits(8 * size),
        )
    )
    raw[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def put_varint(rng: random.Random, raw: bytearray, start: int, end: int) -> None:
    """Overwrite, or replace, a byte of [start, end) by a varint of an odd kind."""
    if start < end:
        at = rng.randrange(start, end)
        piece = rng.choice(VARINTS)
        width = rng.choice((0, 1, 1, len(piece)))
        raw[at : at + width] = piece


# --- shapes -------------------------------------------------------------------------------------


def _starts(raw: bytearray) -> list[int]:
    """Where batches begin, as far as the lengths lead."""
    starts, at = [], 0
    while len(raw) - at >= 17:
        starts.append(at)
        (length,) = struct.unpack_from(">i", raw, at + 8)
        if length < 14:
            break
        at += 12 + length
    return starts or [0]


def _batches(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        starts = _starts(raw)
        start = rng.choice(starts)
        following = next((at for at in starts if at > start), len(raw))
        roll = rng.random()
        if roll < 0.4:
            at, size = rng.choice(BATCH_FIELDS)
            set_number(rng, raw, start + at, size)
        elif roll < 0.6:
            put_varint(rng, raw, start + 61, following)
            if rng.random() < 0.7 and 0 < len(raw) - start - 12 <= 2**31 - 1:
                end = len(raw) if start == starts[-1] else following + len(raw) - len(data)
                if end - start - 12 > 0:
                    struct.pack_into(">i", raw, start + 8, end - start - 12)
        elif roll < 0.75:
            raw = _rearranged(rng, raw, start, following, seeds)
        else:
            rng.choice(ANYWHERE)(rng, raw)
    mutated = bytes(raw[:SIZE_MAX])
    roll = rng.random()
    if roll < 0.35:
        return mutated
    return repair_batches(mutated, lengths=rng if roll < 0.7 else None)


def _rearranged(
    rng: random.Random, raw: bytearray, start: int, end: int, seeds: Sequence[bytes]
) -> bytearray:
    """Splice in another input, or double, drop or move a whole batch."""
    piece = raw[start:end]
    match rng.randrange(5):
        case 0:
            return raw[:start] + piece + raw[start:]
        case 1:
            return raw[:start] + raw[end:]
        case 2:
            return raw[:start] + raw[end:] + piece
        case 3:
            return raw[:end] + rng.choice(seeds) + raw[end:]
        case _:
            # The header of one batch before the records of another.
            other = rng.choice(seeds)
            return raw[: start + 61] + other[61:] + raw[end:]


def _sections(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        roll = rng.random()
        if roll < 0.2:
            at, size = rng.choice(((0, 4), (4, 8), (12, 8), (20, 1)))
            set_number(rng, raw, at, size)
        elif roll < 0.6:
            put_varint(rng, raw, 21, len(raw))
        elif roll < 0.7:
            raw += rng.choice(seeds)[21:]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    return bytes(raw[:SIZE_MAX])


def _entries(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """An index file behind its kind, one byte."""
    raw = bytearray(data or b"\0")
    size = (8, 12, 34)[raw[0] % 3]
    for _ in range(rng.choice((1, 1, 2, 4))):
        count = (len(raw) - 1) // size
        if count > 0 and rng.random() < 0.6:
            at, width = rng.choice(ENTRY_FIELDS[size])
            set_number(rng, raw, 1 + rng.randrange(count) * size + at, width)
        elif rng.random() < 0.2:
            raw += rng.choice(seeds)[1:]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    return bytes(raw[:SIZE_MAX])


def _snapshots(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        count = (len(raw) - 10) // 46
        roll = rng.random()
        if roll < 0.1:
            set_number(rng, raw, *rng.choice(((0, 2), (2, 4), (6, 4))))
        elif count > 0 and roll < 0.6:
            at, size = rng.choice(ENTRY_FIELDS[46])
            set_number(rng, raw, 10 + rng.randrange(count) * 46 + at, size)
        elif roll < 0.75:
            raw += rng.choice(seeds)[10:]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    if len(raw) >= 10 and rng.random() < 0.7:
        struct.pack_into(">i", raw, 6, (len(raw) - 10) // 46)
    mutated = bytes(raw[:SIZE_MAX])
    return repair_snapshot(mutated) if rng.random() < 0.8 else mutated


def _text(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        roll = rng.random()
        if roll < 0.5:
            at = rng.randint(0, len(raw))
            width = rng.choice((0, 0, 1, 2, 5))
            raw[at : at + width] = rng.choice(TOKENS)
        elif roll < 0.6:
            other = rng.choice(seeds)
            at = rng.randint(0, len(other))
            raw = raw[: rng.randint(0, len(raw))] + other[at:]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    return bytes(raw[:SIZE_MAX])


def _streams(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        roll = rng.random()
        if roll < 0.3:
            at = min(rng.randrange(40), max(0, len(raw) - 4))
            set_number(rng, raw, at, rng.choice((1, 2, 4)))
        elif roll < 0.4:
            raw += rng.choice(seeds)[1:]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    return bytes(raw[:SIZE_MAX])


def _messages(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A message behind its first line: numbers, lengths and varints anywhere."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = raw.find(b"\n") + 1
        roll = rng.random()
        if roll < 0.35:
            set_number(rng, raw, rng.randint(start, len(raw)), rng.choice((1, 2, 4, 8)))
        elif roll < 0.6:
            put_varint(rng, raw, start, len(raw))
        elif roll < 0.65:
            other = rng.choice(seeds)
            raw[:start] = other[: other.find(b"\n") + 1]
        else:
            rng.choice(ANYWHERE)(rng, raw)
    return bytes(raw[:SIZE_MAX])


def _schemas(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A schema behind its kind and size, before a payload; now and then another one's payload."""
    size = int.from_bytes(data[1:3])
    head, text, payload = data[:1], data[3 : 3 + size], bytearray(data[3 + size :])
    roll = rng.random()
    if roll < 0.4:
        others = [each[3 : 3 + int.from_bytes(each[1:3])] for each in seeds if each[:1] == head]
        text = _text(rng, text, others or [text])[: SIZE_MAX - 1]
    elif roll < 0.5:
        payload += rng.choice(seeds)[3:]
    for _ in range(rng.choice((0, 1, 1, 2))):
        if rng.random() < 0.5:
            put_varint(rng, payload, 0, len(payload))
        else:
            rng.choice(ANYWHERE)(rng, payload)
    return head + len(text).to_bytes(2) + text + payload[:SIZE_MAX]


SHAPES: dict[str, Callable[[random.Random, bytes, Sequence[bytes]], bytes]] = {
    "batches": _batches,
    "section": _sections,
    "stream": _streams,
    "entries": _entries,
    "snapshot": _snapshots,
    "text": _text,
    "message": _messages,
    "schema": _schemas,
}


def mutate(rng: random.Random, data: bytes, shape: str, seeds: Sequence[bytes]) -> bytes:
    """Return a changed copy of `data`; the same generator state gives the same bytes."""
    return SHAPES[shape](rng, data, seeds)
