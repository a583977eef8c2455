"""Compiled forms of instructions, for this processor. Imports numba.

Each is named as in `logstore.jit.instructions`, and None where the processor has no such thing.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function, raw_memcpy
from numba.core.registry import cpu_target
from numba.core.typing.templates import signature
from numba.extending import intrinsic

_config: Any = numba.config  # its names are made from the environment at run time


def type_of(name: str) -> Any:
    """Return numba's type of an instruction; None if this processor has none."""
    instruction = globals()[name]
    if instruction is None:
        return None
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(instruction)


def _target_has(feature: str) -> bool:
    """Tell whether numba compiles for a processor with `feature`, by default the machine's own."""
    configured = _config.CPU_FEATURES
    if configured is not None:
        return f"+{feature}" in configured.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


def _load_word(context: Any, builder: Any, sig: Any, arguments: Any, bits: int) -> Any:
    """Emit the load of a word of so many bits from a uint8 array at any position."""
    struct = context.make_array(sig.args[0])(context, builder, arguments[0])
    pointer = builder.gep(struct.data, [arguments[1]])
    word = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
    word.align = 1
    return word


@intrinsic
def load_u64(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 8 bytes of a uint8 array at any `position` as a little-endian uint64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _load_word(context, builder, sig, arguments, 64)

    return types.uint64(array, types.intp), generate


@intrinsic
def load_be_i64(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 8 bytes of a uint8 array at any `position` as a big-endian int64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.bswap(_load_word(context, builder, sig, arguments, 64))

    return types.int64(array, types.intp), generate


@intrinsic
def load_be_i32(typing_context: Any, array: Any, position: Any) -> Any:
    """Load 4 bytes of a uint8 array at any `position` as a big-endian int32, in an int64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        word = builder.bswap(_load_word(context, builder, sig, arguments, 32))
        return builder.sext(word, ir.IntType(64))

    return types.int64(array, types.intp), generate


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Count the bits of a uint64 that are set."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Ask for the cache line of a row of a C-contiguous array, and do not wait for it."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        struct = context.make_array(sig.args[0])(context, builder, arguments[0])
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
def copy_u8(
    typing_context: Any, source: Any, start: Any, out: Any, position: Any, size: Any
) -> Any:
    """Copy `size` bytes of a uint8 array into another one, which lies elsewhere."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        given, start, taking, position, size = arguments
        from_data = context.make_array(sig.args[0])(context, builder, given).data
        to_data = context.make_array(sig.args[2])(context, builder, taking).data
        from_pointer, to_pointer = builder.gep(from_data, [start]), builder.gep(to_data, [position])
        raw_memcpy(builder, to_pointer, from_pointer, size, 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp, types.intp), generate


@intrinsic
def _crc32c_instruction(typing_context: Any, crc: Any, word: Any) -> Any:
    """Advance a CRC-32C register by the 8 bytes of `word` (SSE4.2)."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = get_or_insert_function(
            builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _crc32c_byte_instruction(typing_context: Any, crc: Any, byte: Any) -> Any:
    """Advance a CRC-32C register by one byte (SSE4.2)."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        i64, i8 = ir.IntType(64), ir.IntType(8)
        function = get_or_insert_function(
            builder.module, ir.FunctionType(i64, [i64, i8]), "llvm.x86.sse42.crc32.64.8"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint8), generate


HAS_CRC_INSTRUCTION = _target_has("sse4.2")
"""Whether kernels use the processor's CRC-32C instruction; tables do the work elsewhere."""

crc32c_u64 = _crc32c_instruction if HAS_CRC_INSTRUCTION else None
crc32c_u8 = _crc32c_byte_instruction if HAS_CRC_INSTRUCTION else None


@intrinsic
def borrowed(typing_context: Any, array: Any) -> Any:
    """Return `array` without an owner, so that nothing counts references to it."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        struct = context.make_array(array)(context, builder, arguments[0])
        struct.meminfo = context.get_constant_null(types.voidptr)
        struct.parent = context.get_constant_null(types.pyobject)
        return struct._getvalue()

    # Also one that may only be read: what is compiled for the result serves both kinds.
    return signature(types.Array(array.dtype, array.ndim, array.layout), array), generate
