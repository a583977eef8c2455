"""Instructions: operations of kernels that no Python can say.

The compiled form of each is in `logstore.jit.machine`, its plain twin here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from logstore.jit.arrays import Bytes, UInt64s
from logstore.jit.kernel import Kernel
from logstore.jit.twins import Twofold

A = TypeVar("A")


class Instruction(Twofold):
    """An operation of kernels that cannot be said in Python.

    Parameters
    ----------
    name : str
        Of its compiled form in `logstore.jit.machine`.
    plain : callable
        Its plain twin.
    fallback : kernel, optional
        Compiled in its place where that is None: the processor has no such instruction.
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

    def parts(self, seen: set[FunctionType]) -> Iterator[object]:
        """Yield what its compiled form is made of."""
        yield self.name
        yield _machine_digest()
        if self._fallback is not None:
            yield from self._fallback.parts(seen)

    def __call__(self, *args: Any) -> Any:
        """Do the same as plain Python."""
        return self.plain(*args)

    def __repr__(self) -> str:
        return f"<instruction {self.name}>"

    @property
    def _numba_type_(self) -> Any:
        """Type of it in a kernel that is being compiled."""
        from logstore.jit.machine import type_of

        found = type_of(self.name)
        return found if self._fallback is None or found is not None else self._fallback._numba_type_


@cache
def _machine_digest() -> str:
    return sha256(Path(__file__).with_name("machine.py").read_bytes()).hexdigest()


def _load_u64(array: Bytes, position: int) -> np.uint64:
    return np.uint64(int.from_bytes(array[position : position + 8].tobytes(), "little"))


def _load_be_i64(array: Bytes, position: int) -> np.int64:
    return np.int64(int.from_bytes(array[position : position + 8].tobytes(), "big", signed=True))


def _load_be_i32(array: Bytes, position: int) -> np.int64:
    return np.int64(int.from_bytes(array[position : position + 4].tobytes(), "big", signed=True))


def _popcount(word: np.uint64) -> int:
    return int(word).bit_count()


def _prefetch(array: Any, row: int) -> None:
    pass


def _copy_u8(source: Bytes, start: int, out: Bytes, position: int, size: int) -> None:
    out[position : position + size] = source[start : start + size]


load_u64 = cast("Callable[[Bytes, int], np.uint64]", Instruction("load_u64", _load_u64))
"""For kernels: load 8 bytes of a uint8 array at any position as a little-endian uint64.

The caller guarantees `position + 8 <= len(array)`; nothing checks it.
"""

load_be_i64 = cast("Callable[[Bytes, int], np.int64]", Instruction("load_be_i64", _load_be_i64))
"""For kernels: load 8 bytes at any position as a big-endian int64; see `load_u64`."""

load_be_i32 = cast("Callable[[Bytes, int], np.int64]", Instruction("load_be_i32", _load_be_i32))
"""For kernels: load 4 bytes at any position as a big-endian int32, in an int64; see `load_u64`."""

popcount = cast("Callable[[np.uint64], int]", Instruction("popcount", _popcount))
"""For kernels: count the bits of a word that are set."""

prefetch = cast("Callable[[UInt64s, int | np.int64], None]", Instruction("prefetch", _prefetch))
"""For kernels: ask for the cache line where a row of an array begins, any row; returns at once."""

copy_u8 = cast("Callable[[Bytes, int, Bytes, int, int], None]", Instruction("copy_u8", _copy_u8))
"""For kernels: copy `size` bytes of an array from `start` on into another one, to `position`.

The caller guarantees that both hold them and do not overlap; nothing checks it. An assignment of
slices checks, but takes two seconds more to compile, since its error message is compiled along.
"""

borrowed = cast("Callable[[A], A]", Instruction("borrowed", lambda array: array))
"""For kernels: an argument's array without its reference count, and for reading as for writing.

A kernel that hands arrays on to other kernels, a record at a time, spends half its time on atomic
counting unless it borrows them first; and the others are compiled once, whatever it was given. The
kernel's caller keeps the array alive; a borrowed one is never returned.
"""
