"""CRC-32C (Castagnoli) for plain Python. Kernels have their own implementation."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC-32C of `data`, continuing from `crc`.

    O(n) at memory speed, plus about 0.1 µs per call. Any type other than `bytes` is copied first.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    return int(google_crc32c.extend(crc, data))
