"""Messages of magic 0 and 1, built from their table alone (storage-format; KIP-31, KIP-32)."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable

GZIP = 1
LOG_APPEND_TIME = 0x08


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return one entry of a log."""
    checked = struct.pack(">bb", magic, attributes)
    checked += struct.pack(">q", timestamp) if magic else b""
    for field in (key, value):
        checked += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    crc = struct.pack(">I", zlib.crc32(checked))
    return struct.pack(">qi", offset, 4 + len(checked)) + crc + checked


def compressed_set(
    inner: Iterable[tuple[int, bytes | None, bytes | None]],
    *,
    magic: int = 1,
    timestamp: int = -1,
    appended: bool = False,
) -> bytes:
    """Return a set of messages, compressed by gzip; offsets inside are relative in magic 1."""
    rows = list(inner)
    first = rows[0][0] if magic else 0
    stamped = {} if magic == 0 else {"timestamp": timestamp}
    data = b"".join(
        message(offset - first, key, value, magic=magic, **stamped) for offset, key, value in rows
    )
    attributes = GZIP | (LOG_APPEND_TIME if appended else 0)
    packed = gzip.compress(data, mtime=0)
    return message(rows[-1][0], None, packed, magic=magic, attributes=attributes, **stamped)
