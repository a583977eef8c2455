"""CRC-32C in kernels, with processor instructions or tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from logstore.jit.arrays import Bytes
from logstore.jit.instructions import Instruction, load_u64
from logstore.jit.kernel import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CRC32C_POLYNOMIAL = np.uint32(0x82F63B78)


def _crc_tables() -> NDArray[np.uint32]:
    """Return the (8, 256) tables for slicing-by-8."""
    tables = np.zeros((8, 256), np.uint32)
    registers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = registers & np.uint32(1) == 1
        registers = (registers >> np.uint32(1)) ^ np.where(odd, _CRC32C_POLYNOMIAL, np.uint32(0))
    tables[0] = registers
    for row in range(1, 8):
        previous = tables[row - 1]
        tables[row] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


CRC_TABLES = _crc_tables()


def _crc_shift_tables(size: int) -> NDArray[np.uint32]:
    """Return (4, 256) tables that advance each register byte over `size` zero bytes.

    `size` is a power of 2. The step is linear in the register bits, so squaring the step over one
    byte gives the step over two. Source: Mark Adler's description of the method.
    """
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = (bits >> np.uint32(8)) ^ CRC_TABLES[0, bits & np.uint32(0xFF)]
    for _ in range(size.bit_length() - 1):
        step = _moved(step, step)
    registers = np.arange(256, dtype=np.uint32)
    return np.array([_moved(step, registers << np.uint32(8 * byte)) for byte in range(4)])


def _moved(step: NDArray[np.uint32], registers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply a step, given by the image of each bit, to registers."""
    result = np.zeros_like(registers)
    for bit in range(32):
        is_set = (registers >> np.uint32(bit)) & np.uint32(1)
        result ^= is_set * step[bit]
    return result


CRC_LONG = 1024
CRC_SHORT = 128
CRC_SHIFTS = np.array([_crc_shift_tables(CRC_LONG), _crc_shift_tables(CRC_SHORT)])
"""(2, 4, 256): steps over `CRC_LONG` and `CRC_SHORT` bytes."""


@kernel
def crc32c_u64_by_tables(crc: np.uint64, word: np.uint64) -> np.uint64:
    """Advance a CRC-32C register by 8 bytes without a processor instruction."""
    mixed = crc ^ word
    result = np.uint32(0)
    for byte in range(8):
        shift = np.uint64(8 * byte)
        result ^= CRC_TABLES[7 - byte, np.int64((mixed >> shift) & np.uint64(0xFF))]
    return np.uint64(result)


@kernel
def crc32c_u8_by_tables(crc: np.uint64, byte: np.uint8) -> np.uint64:
    """Advance a CRC-32C register by one of up to seven bytes after the last word."""
    slot = np.int64((crc ^ np.uint64(byte)) & np.uint64(0xFF))
    return (crc >> np.uint64(8)) ^ np.uint64(CRC_TABLES[0, slot])


crc32c_u64 = cast(
    "Callable[[np.uint64, np.uint64], np.uint64]",
    Instruction("crc32c_u64", crc32c_u64_by_tables, crc32c_u64_by_tables),
)
"""For kernels: advance a CRC-32C register by the 8 bytes of a little-endian word."""


@kernel
def _shifted_crc(table: int, crc: np.uint64) -> np.uint64:
    """Advance a CRC-32C register by the zero bytes of a shift table."""
    result = np.uint32(0)
    for byte in range(4):
        slot = np.int64((crc >> np.uint64(8 * byte)) & np.uint64(0xFF))
        result ^= CRC_SHIFTS[table, byte, slot]
    return np.uint64(result)


@kernel
def _crc_of_three(
    data: Bytes, position: int, end: int, crc: np.uint64, size: int, table: int
) -> tuple[int, np.uint64]:
    """Advance a register over groups of three adjacent ranges of `size` bytes, as far as possible.

    The CRC instruction has a latency of three cycles and a throughput of one, so three ranges are
    computed at a time. Returns (position, register) after them.
    """
    while end - position >= 3 * size:
        second = np.uint64(0)
        third = np.uint64(0)
        for at in range(position, position + size, 8):
            crc = crc32c_u64(crc, load_u64(data, at))
            second = crc32c_u64(second, load_u64(data, at + size))
            third = crc32c_u64(third, load_u64(data, at + 2 * size))
        second ^= _shifted_crc(table, crc)
        crc = third ^ _shifted_crc(table, second)
        position += 3 * size
    return position, crc


CRC_BLOCK = 256


def _crc_beginnings() -> NDArray[np.uint64]:
    """Return the registers that become the initial register after 0 to 255 zero bytes."""
    # Reverse a step over a zero byte by its high byte, which identifies the table entry.
    entry_of = {int(entry) >> 24: number for number, entry in enumerate(CRC_TABLES[0])}
    registers = [0xFFFFFFFF]
    for _ in range(CRC_BLOCK - 1):
        entry = entry_of[registers[-1] >> 24]
        moved = (registers[-1] ^ int(CRC_TABLES[0, entry])) << 8
        registers.append(moved & 0xFFFFFFFF | entry)
    return np.array(registers, np.uint64)


CRC_BEGINNINGS = _crc_beginnings()
"""(256,): initial registers by the number of zero bytes that pad the front of the first block.

Padding makes each range a whole number of blocks. Mispredicted branches for a remainder would take
as long as a short batch.
"""


@kernel
def crc32c_by_words(data: Bytes, start: int, end: int, beginning: np.uint64) -> np.uint64:
    """Return the register after some bytes without carry-less multiplication."""
    crc = np.uint64(0xFFFFFFFF)
    position, crc = _crc_of_three(data, start, end, crc, CRC_LONG, 0)
    position, crc = _crc_of_three(data, position, end, crc, CRC_SHORT, 1)
    while position + 8 <= end:
        crc = crc32c_u64(crc, load_u64(data, position))
        position += 8
    while position < end:
        crc = crc32c_u8_by_tables(crc, data[position])
        position += 1
    return crc


crc32c_register = cast(
    "Callable[[Bytes, int, int, np.uint64], np.uint64]",
    Instruction("crc32c_register", crc32c_by_words, crc32c_by_words),
)
"""For kernels: return the CRC-32C register after `data[start:end]`, which has at least one byte.

`beginning` is the entry of `CRC_BEGINNINGS` for the bytes missing from `end - start` to whole
blocks. The range must be within the array. This is not checked.
"""
