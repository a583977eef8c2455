"""Compiled forms of instructions as numba intrinsics.

Each form has the name of its instruction in `logstore.jit.instructions`, and is None if the
processor does not support it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import (
    alloca_once,
    alloca_once_value,
    get_or_insert_function,
    global_constant,
    raw_memcpy,
)
from numba.core.registry import cpu_target
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from logstore.jit.arrays import COPY_BLOCK

_I64 = ir.IntType(64)

_config: Any = numba.config  # its attributes are set from the environment at run time


def type_of(name: str) -> Any:
    """Return the numba type of an instruction, or None if the processor does not support it."""
    instruction = globals()[name]
    if instruction is None:
        return None
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(instruction)


def _target_has(feature: str) -> bool:
    """Return whether numba's target processor, by default this one, has a feature."""
    configured = _config.CPU_FEATURES
    if configured is not None:
        return f"+{feature}" in configured.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


def _load_word(context: Any, builder: Any, sig: Any, arguments: Any, bits: int) -> Any:
    """Emit a load of `bits` bits from a uint8 array at any position."""
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
    """Count the set bits of a uint64."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Prefetch the cache line of a row in a C-contiguous array."""

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
        # Write access, high locality, data cache.
        builder.call(function, [pointer, i32(1), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def copy_u8(
    typing_context: Any, source: Any, start: Any, out: Any, position: Any, size: Any
) -> Any:
    """Copy `size` bytes of a uint8 array to a different array that does not overlap it."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        given, start, taking, position, size = arguments
        from_data = context.make_array(sig.args[0])(context, builder, given).data
        to_data = context.make_array(sig.args[2])(context, builder, taking).data
        from_pointer, to_pointer = builder.gep(from_data, [start]), builder.gep(to_data, [position])
        raw_memcpy(builder, to_pointer, from_pointer, size, 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp, types.intp), generate


@intrinsic
def store_u64(typing_context: Any, out: Any, position: Any, word: Any) -> Any:
    """Store a uint64 as 8 little-endian bytes at any `position` of a uint8 array."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        struct = context.make_array(sig.args[0])(context, builder, arguments[0])
        pointer = builder.gep(struct.data, [arguments[1]])
        builder.store(arguments[2], builder.bitcast(pointer, _I64.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(out, types.intp, types.uint64), generate


def _store_be(bits: int) -> Any:
    """Return the intrinsic that stores the low bits of an int64, big-endian."""

    @intrinsic
    def store(typing_context: Any, out: Any, position: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            base = context.make_array(sig.args[0])(context, builder, arguments[0]).data
            word = builder.bswap(builder.trunc(arguments[2], ir.IntType(bits)))
            pointer = builder.bitcast(builder.gep(base, [arguments[1]]), word.type.as_pointer())
            builder.store(word, pointer).align = 1
            return context.get_dummy_value()

        return types.void(out, types.intp, types.int64), generate

    return store


store_be_i64 = _store_be(64)
store_be_i32 = _store_be(32)


@intrinsic
def copy_block(typing_context: Any, source: Any, start: Any, out: Any, position: Any) -> Any:
    """Copy `COPY_BLOCK` bytes of a uint8 array to a different array."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        given, start, taking, position = arguments
        block = ir.VectorType(ir.IntType(8), COPY_BLOCK).as_pointer()
        from_data = context.make_array(sig.args[0])(context, builder, given).data
        to_data = context.make_array(sig.args[2])(context, builder, taking).data
        word = builder.load(builder.bitcast(builder.gep(from_data, [start]), block))
        word.align = 1
        builder.store(word, builder.bitcast(builder.gep(to_data, [position]), block)).align = 1
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp), generate


@intrinsic
def _crc32c_instruction(typing_context: Any, crc: Any, word: Any) -> Any:
    """Advance a CRC-32C register by the 8 bytes of `word` (SSE4.2)."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _crc32c_step(builder, *arguments)

    return types.uint64(types.uint64, types.uint64), generate


def _crc32c_step(builder: Any, crc: Any, word: Any) -> Any:
    function = get_or_insert_function(
        builder.module, ir.FunctionType(_I64, [_I64, _I64]), "llvm.x86.sse42.crc32.64.64"
    )
    return builder.call(function, [crc, word])


HAS_CRC_INSTRUCTION = _target_has("crc32")
"""Whether the processor has a CRC-32C instruction. If not, kernels use tables."""

crc32c_u64 = _crc32c_instruction if HAS_CRC_INSTRUCTION else None


_CRC32C = 0x11EDC6F41
"""The polynomial, highest power first."""

_Eight = ir.VectorType(_I64, 8)
_MASKS = ir.Constant(ir.ArrayType(ir.IntType(8), 512), [0] * 256 + [255] * 256)


def _power(exponent: int) -> int:
    """Return a power of x modulo the polynomial, bit-reversed as in registers."""
    result = 1
    for _ in range(exponent):
        result <<= 1
        if result >> 32:
            result ^= _CRC32C
    return int(f"{result:032b}"[::-1], 2) << 1


def _distance(bits: int) -> list[int]:
    """Return the factors that shift each half of 16 bytes by a number of bits.

    Source: Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009.
    """
    return [_power(bits + 32), _power(bits - 32)]


@intrinsic
def _crc32c_of_blocks(typing_context: Any, data: Any, start: Any, end: Any, crc: Any) -> Any:
    """Return the CRC-32C register after one or more bytes (VPCLMULQDQ, AVX-512).

    The bytes are read in blocks of four times 64 bytes. The first block is padded in front, with a
    matching initial register. Each 64 bytes are multiplied by the factors that shift them to the
    next block, and added to it.
    """

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        base = context.make_array(sig.args[0])(context, builder, arguments[0]).data
        _, start, end, crc = arguments
        product = get_or_insert_function(
            builder.module,
            ir.FunctionType(_Eight, [_Eight, _Eight, ir.IntType(8)]),
            "llvm.x86.pclmulqdq.512",
        )

        def load(at: Any, block: int = 0) -> Any:
            pointer = builder.gep(base, [builder.add(at, _I64(64 * block))])
            word = builder.load(builder.bitcast(pointer, _Eight.as_pointer()))
            word.align = 1
            return word

        def load_filled(at: Any, lacking: Any) -> Any:
            """Load a block with zeros for the bytes before the start, which are not accessed."""
            i1, i8, i32 = ir.IntType(1), ir.IntType(8), ir.IntType(32)
            bytes_of = ir.VectorType(i8, 64)
            function = get_or_insert_function(
                builder.module,
                ir.FunctionType(
                    bytes_of, [bytes_of.as_pointer(), i32, ir.VectorType(i1, 64), bytes_of]
                ),
                "llvm.masked.load.v64i8.p0",
            )
            pointer = builder.bitcast(builder.gep(base, [at]), bytes_of.as_pointer())
            none, all_ = _I64(0), _I64(64)
            lacking = builder.select(builder.icmp_signed("<", lacking, none), none, lacking)
            taken = builder.shl(_I64(-1), builder.and_(lacking, _I64(63)))
            taken = builder.select(builder.icmp_signed("<", lacking, all_), taken, none)
            taken = builder.bitcast(taken, ir.VectorType(i1, 64))
            block = builder.call(function, [pointer, i32(1), taken, bytes_of([0] * 64)])
            return builder.bitcast(block, _Eight)

        def moved(register: Any, factors: list[int]) -> Any:
            factor = ir.Constant(_Eight, factors)
            lows = builder.call(product, [register, factor, ir.IntType(8)(0x00)])
            return builder.xor(lows, builder.call(product, [register, factor, ir.IntType(8)(0x11)]))

        def later(block: Any, blocks: int) -> Any:
            return moved(block, _distance(512 * blocks) * 4)

        # Always load four blocks, padded or not. A branch on their number would be mispredicted.
        size = builder.sub(end, start)
        behind = builder.add(
            start, builder.add(builder.and_(builder.sub(size, _I64(1)), _I64(255)), _I64(1))
        )
        head = builder.sub(behind, _I64(256))
        registers = [alloca_once(builder, _Eight) for _ in range(4)]
        is_inside = builder.icmp_signed(">=", head, _I64(0))
        with builder.if_else(is_inside) as (if_inside, if_outside):
            with if_inside:
                window = builder.sub(_I64(256), builder.sub(start, head))
                masks = builder.bitcast(
                    global_constant(builder, "crc_masks", _MASKS), ir.IntType(8).as_pointer()
                )
                for number, each in enumerate(registers):
                    pointer = builder.gep(masks, [builder.add(window, _I64(64 * number))])
                    mask = builder.load(builder.bitcast(pointer, _Eight.as_pointer()))
                    mask.align = 1
                    builder.store(builder.and_(load(head, number), mask), each)
            with if_outside:
                for number, each in enumerate(registers):
                    at = builder.add(head, _I64(64 * number))
                    builder.store(load_filled(at, builder.sub(start, at)), each)
        first = builder.insert_element(_Eight([0] * 8), crc, ir.IntType(32)(0))
        builder.store(builder.xor(builder.load(registers[0]), first), registers[0])
        at = alloca_once_value(builder, builder.add(head, _I64(256)))
        with _repeated(builder, at, end):
            for number, each in enumerate(registers):
                added = builder.xor(later(builder.load(each), 4), load(builder.load(at), number))
                builder.store(added, each)
            builder.store(builder.add(builder.load(at), _I64(256)), at)
        whole = builder.load(registers[3])
        for number in range(3):
            whole = builder.xor(whole, later(builder.load(registers[number]), 3 - number))
        # Fold four times 16 bytes into 16, and complete with the CRC-32C instruction.
        sums = moved(whole, [*_distance(384), *_distance(256), *_distance(128), 0, 0])
        halves = []
        for half in (0, 1):
            total = builder.extract_element(whole, ir.IntType(32)(6 + half))
            for lane in (half, 2 + half, 4 + half):
                other = builder.extract_element(sums, ir.IntType(32)(lane))
                total = builder.xor(total, other)
            halves.append(total)
        return _crc32c_step(builder, _crc32c_step(builder, _I64(0), halves[0]), halves[1])

    return types.uint64(data, types.intp, types.intp, types.uint64), generate


@contextmanager
def _repeated(builder: Any, at: Any, end: Any) -> Iterator[None]:
    """Emit the `with` body as a loop that runs while `at` is less than `end`."""
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    builder.cbranch(builder.icmp_signed("<", builder.load(at), end), body, after)
    builder.position_at_end(body)
    yield
    builder.branch(test)
    builder.position_at_end(after)


CAN_MULTIPLY_BLOCKS = HAS_CRC_INSTRUCTION and all(
    map(_target_has, ("vpclmulqdq", "avx512f", "avx512bw"))
)
"""Whether kernels compute CRC-32C over 64 bytes at a time."""

crc32c_register = _crc32c_of_blocks if CAN_MULTIPLY_BLOCKS else None


@intrinsic
def borrowed(typing_context: Any, array: Any) -> Any:
    """Return `array` without an owner, so that references are not counted."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        struct = context.make_array(array)(context, builder, arguments[0])
        struct.meminfo = context.get_constant_null(types.voidptr)
        struct.parent = context.get_constant_null(types.pyobject)
        return struct._getvalue()

    # Always writable, so that kernels are compiled for only one type.
    return signature(types.Array(array.dtype, array.ndim, array.layout), array), generate
