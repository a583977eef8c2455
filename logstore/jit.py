"""The one place that knows numba: the `kernel` decorator and a few machine instructions.

Modules and packages named `kernels` import it, and are themselves imported only when a kernel is
about to run, so that small work never pays numba's start-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function, raw_memcpy
from numba.extending import intrinsic
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")

_config: Any = numba.config  # its names are made from the environment at run time

_CRC32C_POLYNOMIAL = 0x82F63B78


def _target_has(feature: str) -> bool:
    """Tell whether numba compiles for a processor with `feature`, by default the machine's own."""
    if _config.DISABLE_JIT:
        return False
    configured = _config.CPU_FEATURES
    if configured is not None:
        return f"+{feature}" in configured.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


HAS_CRC_INSTRUCTION = _target_has("sse4.2")
"""Whether kernels use the processor's CRC-32C instruction; tables do the work elsewhere."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` on first call: cached on disk, running without the GIL.

    The signature stays visible to mypy. Kernels validate nothing: callers check, allocate and
    name the result. Overflow wraps and bounds are unchecked, as in C, unless
    `NUMBA_BOUNDSCHECK=1`.
    """
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True)(function))


def inline_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a small `kernel` into those that call it, once a record, at each call."""
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True, forceinline=True)(function))


def _load_word(context: Any, builder: Any, signature: Any, arguments: Any, bits: int) -> Any:
    """Emit the load of a word of so many bits from a uint8 array at any position."""
    struct = context.make_array(signature.args[0])(context, builder, arguments[0])
    pointer = builder.gep(struct.data, [arguments[1]])
    word = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
    word.align = 1
    return word


@intrinsic
def _load_u64(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 8 bytes of a uint8 array at any `position` as a little-endian uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load_word(context, builder, signature, arguments, 64)

    return types.uint64(array, types.intp), generate


@intrinsic
def _load_be_i64(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 8 bytes of a uint8 array at any `position` as a big-endian int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(_load_word(context, builder, signature, arguments, 64))

    return types.int64(array, types.intp), generate


@intrinsic
def _load_be_i32(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 4 bytes of a uint8 array at any `position` as a big-endian int32, in an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.bswap(_load_word(context, builder, signature, arguments, 32))
        return builder.sext(word, ir.IntType(64))

    return types.int64(array, types.intp), generate


@intrinsic
def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Ask for the cache line of a row of a C-contiguous array, and do not wait for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(struct.strides, 0)
        i8_pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.bitcast(struct.data, i8_pointer)
        pointer = builder.gep(start, [builder.mul(arguments[1], stride)])
        function = get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [i8_pointer, i32, i32, i32]),
            "llvm.prefetch.p0",
        )
        # To be written to, into the nearest cache, of data.
        builder.call(function, [pointer, i32(1), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def _copy_u8(
    typing_context: Any, source: Any, start: Any, out: Any, position: Any, size: Any
) -> Any:
    """Copy `size` bytes of a uint8 array into another one, which lies elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, start, taking, position, size = arguments
        from_data = context.make_array(signature.args[0])(context, builder, given).data
        to_data = context.make_array(signature.args[2])(context, builder, taking).data
        from_pointer, to_pointer = builder.gep(from_data, [start]), builder.gep(to_data, [position])
        raw_memcpy(builder, to_pointer, from_pointer, size, 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp, types.intp), generate


@intrinsic
def _crc32c_instruction(typing_context: Any, crc: Any, word: Any) -> Any:
    """Advance a CRC-32C register by the 8 bytes of `word` (SSE4.2)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = get_or_insert_function(
            builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _crc32c_byte_instruction(typing_context: Any, crc: Any, byte: Any) -> Any:
    """Advance a CRC-32C register by one byte (SSE4.2)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64, i8 = ir.IntType(64), ir.IntType(8)
        function = get_or_insert_function(
            builder.module, ir.FunctionType(i64, [i64, i8]), "llvm.x86.sse42.crc32.64.8"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint8), generate


@intrinsic
def _borrowed(typing_context: Any, array: Any) -> Any:
    """Return `array` without an owner, so that nothing counts references to it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(array)(context, builder, arguments[0])
        struct.meminfo = context.get_constant_null(types.voidptr)
        struct.parent = context.get_constant_null(types.pyobject)
        return struct._getvalue()

    return array(array), generate


def _load_u64_in_python(array: Bytes, position: int) -> np.uint64:
    """Do the same where `NUMBA_DISABLE_JIT=1` runs kernels as plain Python."""
    return np.uint64(int.from_bytes(array[position : position + 8].tobytes(), "little"))


def _load_be_i64_in_python(array: Bytes, position: int) -> np.int64:
    """Do the same where kernels run as plain Python."""
    return np.int64(int.from_bytes(array[position : position + 8].tobytes(), "big", signed=True))


def _load_be_i32_in_python(array: Bytes, position: int) -> np.int64:
    """Do the same where kernels run as plain Python."""
    return np.int64(int.from_bytes(array[position : position + 4].tobytes(), "big", signed=True))


def _prefetch_in_python(array: Any, row: int) -> None:
    """Do nothing where kernels run as plain Python."""


def _copy_u8_in_python(source: Bytes, start: int, out: Bytes, position: int, size: int) -> None:
    """Do the same where kernels run as plain Python."""
    out[position : position + size] = source[start : start + size]


def _crc_tables() -> NDArray[np.uint32]:
    """Return the (8, 256) tables of the slicing-by-8 method."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for row in range(1, 8):
        previous = tables[row - 1]
        tables[row] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


CRC_TABLES = _crc_tables()


def _crc_shift_tables(size: int) -> NDArray[np.uint32]:
    """Return (4, 256) tables: what each byte of a register becomes behind `size` zero bytes.

    `size` is a power of 2. Source: Mark Adler's description of the method; a register moves as the
    sum of its bits does, so that the step over one byte, squared, is the step over two.
    """
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = (bits >> np.uint32(8)) ^ CRC_TABLES[0, bits & np.uint32(0xFF)]
    for _ in range(size.bit_length() - 1):
        step = _moved(step, step)
    registers = np.arange(256, dtype=np.uint32)
    return np.array([_moved(step, registers << np.uint32(8 * byte)) for byte in range(4)])


def _moved(step: NDArray[np.uint32], registers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return where a step, given by what becomes of each bit, moves registers."""
    result = np.zeros_like(registers)
    for bit in range(32):
        is_set = (registers >> np.uint32(bit)) & np.uint32(1)
        result ^= is_set * step[bit]
    return result


CRC_LONG = 1024
CRC_SHORT = 128
CRC_SHIFTS = np.array([_crc_shift_tables(CRC_LONG), _crc_shift_tables(CRC_SHORT)])
"""(2, 4, 256): for registers that `CRC_LONG` or `CRC_SHORT` bytes follow."""


@kernel
def _crc32c_u64_by_tables(crc: np.uint64, word: np.uint64) -> np.uint64:
    """Advance a CRC-32C register by 8 bytes where the processor has no instruction for it."""
    mixed = crc ^ word
    result = np.uint32(0)
    for byte in range(8):
        shift = np.uint64(8 * byte)
        result ^= CRC_TABLES[7 - byte, np.int64((mixed >> shift) & np.uint64(0xFF))]
    return np.uint64(result)


@kernel
def _crc32c_byte_by_tables(crc: np.uint64, byte: np.uint8) -> np.uint64:
    """Advance a CRC-32C register by a byte where the processor has no instruction for it."""
    slot = np.int64((crc ^ np.uint64(byte)) & np.uint64(0xFF))
    return (crc >> np.uint64(8)) ^ np.uint64(CRC_TABLES[0, slot])


load_u64 = cast(
    "Callable[[Bytes, int], np.uint64]",
    _load_u64_in_python if _config.DISABLE_JIT else _load_u64,
)
"""For kernels: load 8 bytes of a uint8 array at any position as a little-endian uint64.

The caller guarantees `position + 8 <= len(array)`; nothing checks it.
"""

load_be_i64 = cast(
    "Callable[[Bytes, int], np.int64]",
    _load_be_i64_in_python if _config.DISABLE_JIT else _load_be_i64,
)
"""For kernels: load 8 bytes at any position as a big-endian int64; see `load_u64`."""

load_be_i32 = cast(
    "Callable[[Bytes, int], np.int64]",
    _load_be_i32_in_python if _config.DISABLE_JIT else _load_be_i32,
)
"""For kernels: load 4 bytes at any position as a big-endian int32, in an int64; see `load_u64`."""

prefetch = cast(
    "Callable[[UInt64s, int], None]",
    _prefetch_in_python if _config.DISABLE_JIT else _prefetch,
)
"""For kernels: ask for the cache line where a row of an array begins, any row; returns at once."""

copy_u8 = cast(
    "Callable[[Bytes, int, Bytes, int, int], None]",
    _copy_u8_in_python if _config.DISABLE_JIT else _copy_u8,
)
"""For kernels: copy `size` bytes of an array from `start` on into another one, to `position`.

The caller guarantees that both hold them and do not overlap; nothing checks it. An assignment of
slices checks, but takes two seconds more to compile, since its error message is compiled along.
"""

borrowed = cast("Callable[[A], A]", (lambda array: array) if _config.DISABLE_JIT else _borrowed)
"""For kernels: an argument's array without its reference count.

A kernel that hands arrays on to other kernels, a record at a time, spends half its time on atomic
counting unless it borrows them first. The kernel's caller keeps the array alive; a borrowed one is
never returned.
"""

crc32c_u64 = cast(
    "Callable[[np.uint64, np.uint64], np.uint64]",
    _crc32c_instruction if HAS_CRC_INSTRUCTION else _crc32c_u64_by_tables,
)
"""For kernels: advance a CRC-32C register by the 8 bytes of a little-endian word."""

crc32c_u8 = cast(
    "Callable[[np.uint64, np.uint8], np.uint64]",
    _crc32c_byte_instruction if HAS_CRC_INSTRUCTION else _crc32c_byte_by_tables,
)
"""For kernels: advance a CRC-32C register by a byte."""
