"""Operations of kernels that Python cannot express.

`logstore.jit.machine` contains the compiled forms, this module the plain twins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from logstore.jit.arrays import COPY_BLOCK, Bytes, UInt64s
from logstore.jit.kernel import Kernel
from logstore.jit.twins import KernelOperation, Namespaces

A = TypeVar("A")


class Instruction(KernelOperation):
    """An operation of kernels that Python cannot express.

    Parameters
    ----------
    name : str
        Name of the compiled form in `logstore.jit.machine`.
    plain : callable
        Plain twin: a function or a kernel.
    fallback : kernel, optional
        Compiled instead if the processor lacks the instruction.
    """

    __slots__ = ("_fallback", "_plain", "name")

    def __init__(
        self, name: str, plain: Callable[..., Any], fallback: Callable[..., Any] | None = None
    ) -> None:
        self.name = name
        self._plain = plain
        self._fallback = cast("Kernel[..., Any] | None", fallback)

    @property
    def plain(self) -> Callable[..., Any]:
        """The plain twin."""
        return self._plain.plain if isinstance(self._plain, Kernel) else self._plain

    def twin(self, namespaces: Namespaces) -> Callable[..., Any]:
        """Return the plain form whose globals are, or will be, in `namespaces`."""
        return self._plain.twin(namespaces) if isinstance(self._plain, Kernel) else self._plain

    def parts(self, seen: set[FunctionType]) -> Iterator[object]:
        """Yield the parts of the instruction's compiled form."""
        yield self.name
        yield _machine_digest()
        if self._fallback is not None:
            yield from self._fallback.parts(seen)

    def __call__(self, *args: Any) -> Any:
        """Run the plain twin."""
        return self.plain(*args)

    def __repr__(self) -> str:
        return f"<instruction {self.name}>"

    @property
    def _numba_type_(self) -> Any:
        """The instruction's numba type, for compiling kernels that use it."""
        from logstore.jit.machine import type_of

        found = type_of(self.name)
        return found if self._fallback is None or found is not None else self._fallback._numba_type_


@cache
def _machine_digest() -> str:
    return sha256(Path(__file__).with_name("machine.py").read_bytes()).hexdigest()


def _load_u64(array: Bytes | bytes, position: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes(array[position : position + 8]), "little"))


def _load_be_i64(array: Bytes, position: int) -> np.int64:
    return np.int64(int.from_bytes(array[position : position + 8].tobytes(), "big", signed=True))


def _load_be_i32(array: Bytes, position: int) -> np.int64:
    return np.int64(int.from_bytes(array[position : position + 4].tobytes(), "big", signed=True))


def _popcount(word: np.uint64) -> int:
    return int(word).bit_count()


def _prefetch(array: Any, row: int) -> None:
    pass


def _store_u64(out: Bytes, position: int, word: np.uint64) -> None:
    _put(out, position, int(word).to_bytes(8, "little"))


def _store_be_i64(out: Bytes, position: int, value: np.int64) -> None:
    _put(out, position, int(value).to_bytes(8, "big", signed=True))


def _store_be_i32(out: Bytes, position: int, value: np.int64) -> None:
    _put(out, position, (int(value) & 0xFFFFFFFF).to_bytes(4, "big"))


def _put(out: Bytes, position: int, data: bytes) -> None:
    out[position : position + len(data)] = np.frombuffer(data, np.uint8)


def _copy_u8(source: Bytes, start: int, out: Bytes, position: int, size: int) -> None:
    out[position : position + size] = source[start : start + size]


def _copy_block(source: Bytes, start: int, out: Bytes, position: int) -> None:
    out[position : position + COPY_BLOCK] = source[start : start + COPY_BLOCK]


load_u64 = cast("Callable[[Bytes | bytes, int], np.uint64]", Instruction("load_u64", _load_u64))
"""For kernels: load 8 bytes of an array at any position as a little-endian uint64.

`position + 8 <= len(array)` must hold. This is not checked.
"""

load_be_i64 = cast("Callable[[Bytes, int], np.int64]", Instruction("load_be_i64", _load_be_i64))
"""For kernels: load 8 bytes at any position as a big-endian int64. See `load_u64`."""

load_be_i32 = cast("Callable[[Bytes, int], np.int64]", Instruction("load_be_i32", _load_be_i32))
"""For kernels: load 4 bytes at any position as a big-endian int32, in an int64. See `load_u64`."""

popcount = cast("Callable[[np.uint64], int]", Instruction("popcount", _popcount))
"""For kernels: count the set bits of a word."""

prefetch = cast("Callable[[UInt64s, int | np.int64], None]", Instruction("prefetch", _prefetch))
"""For kernels: prefetch the cache line at the start of a row, in bounds or not."""

copy_u8 = cast("Callable[[Bytes, int, Bytes, int, int], None]", Instruction("copy_u8", _copy_u8))
"""For kernels: copy `size` bytes from `start` in one array to `position` in another.

The bytes must be within both arrays, which must not overlap. This is not checked. A slice
assignment would check, but takes two seconds longer to compile.
"""

copy_block = cast(
    "Callable[[Bytes, int, Bytes, int], None]", Instruction("copy_block", _copy_block)
)
"""For kernels: copy `COPY_BLOCK` bytes inline. See `copy_u8`."""

store_u64 = cast("Callable[[Bytes, int, np.uint64], None]", Instruction("store_u64", _store_u64))
"""For kernels: store 8 bytes at any position, little-endian. See `load_u64`."""

store_be_i64 = cast(
    "Callable[[Bytes, int, int | np.int64], None]", Instruction("store_be_i64", _store_be_i64)
)
"""For kernels: store 8 bytes at any position, big-endian. See `load_u64`."""

store_be_i32 = cast(
    "Callable[[Bytes, int, int | np.int64], None]", Instruction("store_be_i32", _store_be_i32)
)
"""For kernels: store the low 4 bytes at any position, big-endian. See `load_u64`."""

borrowed = cast("Callable[[A], A]", Instruction("borrowed", lambda array: array))
"""For kernels: an array argument without reference counting, typed as writable.

Without borrowing, a kernel that passes arrays to other kernels for each record spends half its time
on atomic counters. Those kernels are then also compiled for only one array type. The caller must
keep the array alive, and a kernel must not return a borrowed array.
"""
