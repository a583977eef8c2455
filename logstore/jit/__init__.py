"""Kernels: functions over arrays that run as the Python they are, until compiling them pays.

Modules and packages named `kernels` decorate their functions with `kernel`. One source serves
twice: as plain Python, exact and slow, for small work; and compiled by numba, which takes a tenth
of a second a function and is then kept on disk. `pays` decides, by what those who call kernels say
of the work ahead. Only this package knows numba, and imports it when something is compiled or
loaded: small work never waits for it.

What no Python can say is an `Instruction`: its compiled form is in `logstore.jit.machine`, its
plain twin here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from logstore.jit.files import KernelFiles

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")

logger = logging.getLogger(__name__)

COMPILE_SECONDS = 0.1
"""Cost of compiling a kernel, about, with its share of those that it calls."""

LOAD_SECONDS = 0.5
"""Cost of importing numba and loading compiled kernels, about."""

AUTO, COMPILED, PYTHON = "auto", "compiled", "python"


def _mode() -> str:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return PYTHON
    mode = os.environ.get("LOGSTORE_KERNELS", AUTO)
    return mode if mode in (COMPILED, PYTHON) else AUTO


MODE = _mode()
"""`auto`; or `compiled` or `python`, whatever the work is.

Of the variables `LOGSTORE_KERNELS` and `NUMBA_DISABLE_JIT`, read once.
"""


class _Group:
    """The kernels of one room, which are compiled together or not at all."""

    __slots__ = ("is_hot", "kernels", "name", "spent_seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Kernel[Any, Any]] = []
        self.spent_seconds = 0.0
        self.is_hot = MODE == COMPILED

    @property
    def compile_seconds(self) -> float:
        """Cost of compiling all of them, about."""
        return len(self.kernels) * COMPILE_SECONDS


_groups: dict[str, _Group] = {}


class Kernel(Generic[P, R]):
    """A function over arrays, to be called from Python or from other kernels.

    Parameters
    ----------
    function : function
        What runs, both ways. It takes and gives numbers, arrays and named tuples of those; what it
        calls by name are other kernels, instructions, and what numba knows.
    plain : callable, optional
        What runs instead as plain Python: a library's way to the same result.
    inline : bool
        Whether LLVM puts it into those that call it, wherever that is.
    """

    def __init__(
        self, function: Callable[P, R], *, plain: Callable[P, R] | None, inline: bool
    ) -> None:
        update_wrapper(self, function)
        self._function = cast("FunctionType", function)
        self._given_plain = plain
        self._plain: Callable[P, R] | None = plain
        self._is_inline = inline
        self._outer: Any = None
        self._inner: Any = None
        self._files: KernelFiles | None = None
        room = function.__module__.partition(".kernels")[0]
        self.group = _groups.setdefault(room, _Group(room))
        self.group.kernels.append(self)
        self._run: Callable[P, R] = self._choose

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it, compiled if its group is hot."""
        return self._run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<kernel {self._function.__module__}.{self._function.__qualname__}>"

    @property
    def signatures(self) -> list[Any]:
        """Types of arguments for which it was compiled, or loaded, to be called from Python."""
        return [] if self._outer is None else list(self._outer.signatures)

    @property
    def files(self) -> KernelFiles:
        """Where its compiled form is kept."""
        if self._files is None:
            from logstore.jit.files import KernelFiles

            self._files = KernelFiles(self._function, fingerprint(self))
        return self._files

    @property
    def plain(self) -> Callable[P, R]:
        """The same as plain Python, all the way down."""
        if self._plain is None:
            self._plain = cast("Callable[P, R]", _plain_twin(self._function))
        return self._plain

    def entry_for(self, *args: object) -> Callable[..., R] | None:
        """Return what was compiled for arguments of these kinds, and takes no others; or None."""
        if self._outer is None:
            return None
        return cast("Callable[..., R]", self._outer.entry_for(*args))

    def _choose(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if MODE != PYTHON and self.group.is_hot:
            from logstore.jit.machine import KernelDispatcher

            self._outer = KernelDispatcher(self._function, self.files)
            self._run = self._outer
            return self._run(*args, **kwargs)
        with np.errstate(over="ignore"):  # integers wrap, as compiled ones do
            return self.plain(*args, **kwargs)

    @property
    def _numba_type_(self) -> Any:
        """Type of it in a kernel that calls it and is being compiled."""
        if self._inner is None:
            from logstore.jit.machine import InnerDispatcher

            self._inner = InnerDispatcher(self._function, inline=self._is_inline)
        return self._inner._numba_type_


class Bound(Generic[R]):
    """A kernel and the last of its arguments, to be called over and over with the first of them.

    numba looks at every array in every named tuple of every call, which takes longer than a small
    kernel runs; here that is done once.

    Parameters
    ----------
    function : kernel
        What runs.
    arguments : any
        The last of its arguments, always these.
    """

    __slots__ = ("_arguments", "_entry", "_kernel", "_kinds")

    def __init__(self, function: Callable[..., R], *arguments: object) -> None:
        self._kernel = cast("Kernel[..., R]", function)
        self._arguments = arguments
        self._kinds: list[object] = []
        self._entry: Callable[..., R] | None = None

    def __call__(self, *arrays: NDArray[Any]) -> R:
        """Run the kernel with arrays as its first arguments."""
        entry = self._entry
        # A form compiled for other kinds of arrays would take these for those.
        if entry is not None and [_kind_of(each) for each in arrays] == self._kinds:
            return entry(*arrays, *self._arguments)
        result = self._kernel(*arrays, *self._arguments)
        self._entry = self._kernel.entry_for(*arrays, *self._arguments)
        self._kinds = [_kind_of(each) for each in arrays]
        return result


def _kind_of(array: NDArray[Any]) -> tuple[object, int, int]:
    return array.dtype, array.ndim, array.flags.num


class Instruction:
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

    __slots__ = ("_plain", "fallback", "name")

    def __init__(
        self, name: str, plain: Callable[..., Any], fallback: Callable[..., Any] | None = None
    ) -> None:
        self.name = name
        self._plain = plain
        self.fallback = fallback

    @property
    def plain(self) -> Callable[..., Any]:
        """The plain twin."""
        return self._plain.plain if isinstance(self._plain, Kernel) else self._plain

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
        return cast("Any", self.fallback)._numba_type_ if found is None else found


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function a kernel: compiled when that pays, then running without the GIL.

    The signature stays visible to mypy. Kernels validate nothing: callers check, allocate and
    name the result. Overflow wraps and bounds are unchecked, as in C, unless
    `NUMBA_BOUNDSCHECK=1`.
    """
    return cast("Callable[P, R]", Kernel(function, plain=None, inline=False))


def inline_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make a small `kernel`, compiled into those that call it, once a record, at each call."""
    return cast("Callable[P, R]", Kernel(function, plain=None, inline=True))


def kernel_like(plain: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a `kernel` whose plain twin is another function, a library's for instance."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", Kernel(function, plain=plain, inline=False))

    return decorate


def pays(function: Callable[..., Any], seconds: float) -> bool:
    """Tell of work that is ahead, and learn whether it is done by compiled code.

    Parameters
    ----------
    function : kernel
        One that Python calls in that work. It stands for all kernels of its room.
    seconds : float
        About how long the work takes in Python.

    Notes
    -----
    A room's kernels are compiled, or loaded, once the work that Python did instead would have
    taken as long: so no work takes more than twice as long as it might have.
    """
    entry = cast("Kernel[Any, Any]", function)
    group = entry.group
    if group.is_hot or MODE == PYTHON:
        return group.is_hot
    group.spent_seconds += seconds
    if group.spent_seconds > LOAD_SECONDS:  # looked up only when it may matter
        if entry.files.exist():
            group.is_hot = True
        elif group.spent_seconds > group.compile_seconds:
            group.is_hot = True
            logger.info(
                "compiling the kernels of %s, about %.0f s, once on this machine;"
                " `logstore warmup` does it ahead",
                group.name,
                group.compile_seconds,
            )
    return group.is_hot


def compile_always() -> None:
    """Let all kernels be compiled, or loaded, when they are called, whatever the work is."""
    global MODE
    if MODE != PYTHON:
        MODE = COMPILED
        for group in _groups.values():
            group.is_hot = True


# --- the same source twice ---------------------------------------------------------------------

_plain_worlds: dict[int, dict[str, Any]] = {}
"""The globals of modules of kernels as their plain twins see them, by identity."""


def _plain_twin(function: FunctionType) -> FunctionType:
    world = _plain_worlds.get(id(function.__globals__))
    if world is None:
        world = _plain_worlds[id(function.__globals__)] = {}
        for name, value in function.__globals__.items():
            is_twofold = isinstance(value, Kernel | Instruction)
            world[name] = value.plain if is_twofold else value
    twin = FunctionType(function.__code__, world, function.__name__, function.__defaults__)
    update_wrapper(twin, function)
    return twin


def fingerprint(kernel: Kernel[Any, Any]) -> str:
    """Return what tells a kernel from any other one: its code, and all that it is made of.

    Compiled code holds what a kernel calls, in whatever file that stands, and the values of the
    constants that it names. numba itself looks at the kernel's own file alone.
    """
    from hashlib import sha256

    digest = sha256()
    for part in _parts(kernel._function, set()):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


def _parts(function: FunctionType, seen: set[FunctionType]) -> Iterator[object]:
    name = f"{function.__module__}.{function.__qualname__}"
    yield name
    if function in seen:
        return
    seen.add(function)
    yield function.__defaults__
    for code in _codes(function.__code__):
        yield code.co_code, code.co_names, code.co_varnames
        yield [each for each in code.co_consts if not isinstance(each, CodeType)]
        for each in code.co_names:
            if each in function.__globals__:
                yield from _parts_of_value(each, function.__globals__[each], seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _parts_of_value(name: str, value: object, seen: set[FunctionType]) -> Iterator[object]:
    if isinstance(value, Kernel):
        yield value._is_inline
        yield from _parts(value._function, seen)
    elif isinstance(value, Instruction):
        yield value.name, _machine_digest()
        if value.fallback is not None:
            yield from _parts_of_value(name, value.fallback, seen)
    elif isinstance(value, np.ndarray):
        yield value.dtype, value.shape, value.tobytes()
    elif isinstance(value, type):
        yield value.__qualname__, getattr(value, "_fields", ())
    elif isinstance(value, ModuleType):
        yield value.__name__, getattr(value, "__version__", "")
    else:
        assert isinstance(value, int | float | str | bytes | tuple | np.generic), (name, value)
        yield value


@cache
def _machine_digest() -> str:
    from hashlib import sha256

    return sha256(Path(__file__).with_name("machine.py").read_bytes()).hexdigest()


# --- instructions ------------------------------------------------------------------------------


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


def _crc_tables() -> NDArray[np.uint32]:
    """Return the (8, 256) tables of the slicing-by-8 method."""
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


_CRC32C_POLYNOMIAL = np.uint32(0x82F63B78)

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
def crc32c_u64_by_tables(crc: np.uint64, word: np.uint64) -> np.uint64:
    """Advance a CRC-32C register by 8 bytes where the processor has no instruction for it."""
    mixed = crc ^ word
    result = np.uint32(0)
    for byte in range(8):
        shift = np.uint64(8 * byte)
        result ^= CRC_TABLES[7 - byte, np.int64((mixed >> shift) & np.uint64(0xFF))]
    return np.uint64(result)


@kernel
def crc32c_u8_by_tables(crc: np.uint64, byte: np.uint8) -> np.uint64:
    """Advance a CRC-32C register by a byte where the processor has no instruction for it."""
    slot = np.int64((crc ^ np.uint64(byte)) & np.uint64(0xFF))
    return (crc >> np.uint64(8)) ^ np.uint64(CRC_TABLES[0, slot])


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

crc32c_u64 = cast(
    "Callable[[np.uint64, np.uint64], np.uint64]",
    Instruction("crc32c_u64", crc32c_u64_by_tables, crc32c_u64_by_tables),
)
"""For kernels: advance a CRC-32C register by the 8 bytes of a little-endian word."""

crc32c_u8 = cast(
    "Callable[[np.uint64, np.uint8], np.uint64]",
    Instruction("crc32c_u8", crc32c_u8_by_tables, crc32c_u8_by_tables),
)
"""For kernels: advance a CRC-32C register by a byte."""
