"""Kernels: array functions that run as plain Python or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from logstore.jit import policy
from logstore.jit.twins import (
    KernelOperation,
    Namespaces,
    fingerprint,
    parts_of,
    plain_twin,
    twin_in,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.jit.files import KernelFiles

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(KernelOperation, Generic[P, R]):
    """An array function that Python and other kernels can call.

    Parameters
    ----------
    function : function
        Source of both forms. It takes and returns numbers, arrays and named tuples of these, and
        may call kernels, instructions, and functions that numba supports.
    plain : function, optional
        Different source of the plain form, with the same results. It may call kernels, too.
    inline : bool
        Whether LLVM inlines the kernel into all callers.
    """

    def __init__(
        self, function: Callable[P, R], *, plain: Callable[P, R] | None, inline: bool
    ) -> None:
        update_wrapper(self, function)
        self._function = cast("FunctionType", function)
        self._plain_source = cast("FunctionType", plain or function)
        self._plain: Callable[P, R] | None = None
        self._is_inline = inline
        self._outer: Any = None
        self._inner: Any = None
        self._files: KernelFiles | None = None
        self._entries: dict[tuple[object, ...], Callable[..., R]] = {}
        self.group = policy.group_of(function.__module__)
        self.group.kernels.append(self)
        self._run: Callable[P, R] = self._choose

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel, compiled if its group is compiled."""
        return self._run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<kernel {self._function.__module__}.{self._function.__qualname__}>"

    @property
    def signatures(self) -> list[Any]:
        """Signatures that were compiled or loaded for calls from Python."""
        return [] if self._outer is None else list(self._outer.signatures)

    @property
    def files(self) -> KernelFiles:
        """The files of the kernel's compiled form."""
        if self._files is None:
            from logstore.jit.files import KernelFiles

            self._files = KernelFiles(self._function, fingerprint(self._function))
        return self._files

    @property
    def plain(self) -> Callable[P, R]:
        """The plain form, which calls the plain forms of other kernels."""
        if self._plain is None:
            self._plain = cast("Callable[P, R]", plain_twin(self._plain_source))
        return self._plain

    def twin(self, namespaces: Namespaces) -> Callable[..., Any]:
        """Return the plain form whose globals are, or will be, in `namespaces`."""
        return twin_in(namespaces, self._plain_source) if self._plain is None else self._plain

    def parts(self, seen: set[FunctionType]) -> Iterator[object]:
        """Yield the parts of the kernel's compiled form."""
        yield self._is_inline
        yield from parts_of(self._function, seen)

    def entry_for(self, *args: object) -> Callable[..., R] | None:
        """Return the function compiled for exactly these argument types, or None if not compiled.

        The result is cached, because determining the types of named tuples of arrays takes numba
        longer than running many kernels.
        """
        if self._outer is None:
            return None
        kinds = tuple(map(_kind_of, args))
        entry = self._entries.get(kinds)
        if entry is None:
            entry = self._outer.entry_for(*args)
            if entry is not None:
                self._entries[kinds] = entry
        return entry

    def _choose(self, *args: P.args, **kwargs: P.kwargs) -> R:
        is_compiled = self.group.is_compiled
        if is_compiled or policy.loading_here.get() is self.group:
            if self._outer is None:
                from logstore.jit import compiler

                with compiler.compiling:
                    if self._outer is None:
                        self._outer = compiler.KernelDispatcher(self._function, self.files)
            if is_compiled:
                self._run = self._outer
            return cast("R", self._outer(*args, **kwargs))
        with np.errstate(over="ignore"):  # integers wrap around as in compiled code
            return self.plain(*args, **kwargs)

    @property
    def _numba_type_(self) -> Any:
        """The kernel's numba type, for compiling kernels that call it."""
        if self._inner is None:
            from logstore.jit.compiler import InnerDispatcher

            self._inner = InnerDispatcher(self._function, inline=self._is_inline)
        return self._inner._numba_type_


class Bound(Generic[R]):
    """A kernel bound to its last arguments, for repeated calls with different first arguments.

    At every call, numba determines the type of every array in every named tuple, which takes longer
    than a small kernel. Here this is done once.

    Parameters
    ----------
    function : kernel
        The kernel.
    arguments : any
        Last arguments of the kernel.
    """

    __slots__ = ("_arguments", "_kernel", "_last")

    def __init__(self, function: Callable[..., R], *arguments: object) -> None:
        self._kernel = cast("Kernel[..., R]", function)
        self._arguments = arguments
        # The compiled function of the last call, and the positions and types of its array
        # arguments. They are in a single attribute, so that another thread cannot see a mismatch.
        self._last: tuple[Callable[..., R], list[tuple[int, np.dtype[Any], int, int]]] | None = None

    def __call__(self, *first: NDArray[Any] | int) -> R:
        """Run the kernel. The first arguments must be arrays, integers or booleans."""
        last = self._last
        if last is not None:
            entry, arrays = last
            # The function converts numbers but does not check arrays, and would misread other
            # types.
            for index, dtype, dimensions, flags in arrays:
                array: Any = first[index]
                if array.flags.num != flags or array.ndim != dimensions or array.dtype != dtype:
                    break
            else:
                return entry(*first, *self._arguments)
        return self._run_any(first)

    def _run_any(self, first: tuple[NDArray[Any] | int, ...]) -> R:
        """Run the kernel, and store the array types for which it was compiled."""
        arguments = (*first, *self._arguments)
        entry = self._kernel.entry_for(*arguments)
        result = (self._kernel if entry is None else entry)(*arguments)
        entry = entry or self._kernel.entry_for(*arguments)
        arrays = [
            (index, each.dtype, each.ndim, each.flags.num)
            for index, each in enumerate(first)
            if isinstance(each, np.ndarray)
        ]
        self._last = None if entry is None else (entry, arrays)
        return result


class Direct(Generic[R]):
    """A kernel with a single caller that always passes the same argument types.

    At each call, numba checks the type of each argument, which takes as long as a small kernel.
    Callers that use `entry` avoid this.

    Parameters
    ----------
    function : kernel
        The kernel.

    Attributes
    ----------
    entry : callable or None
        Compiled function to call instead of this object, set by the first compiled call. It would
        misread arguments of other types.
    """

    __slots__ = ("_kernel", "entry")

    def __init__(self, function: Callable[..., R]) -> None:
        self._kernel = cast("Kernel[..., R]", function)
        self.entry: Callable[..., R] | None = None

    def __call__(self, *args: object) -> R:
        """Run the kernel, compiled or not."""
        result = self._kernel(*args)
        self.entry = self._kernel.entry_for(*args)
        return result


def _kind_of(argument: object) -> object:
    """Return a key for the numba type of an argument."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return type(argument), *map(_kind_of, argument)
    return type(argument)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function a kernel, which is compiled once worthwhile and then releases the GIL.

    mypy sees the original signature. Kernels do not validate arguments: the caller must validate
    them and allocate the results. As in C, overflow wraps and bounds are not checked, unless
    `NUMBA_BOUNDSCHECK=1`.
    """
    return cast("Callable[P, R]", Kernel(function, plain=None, inline=False))


def inline_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make a small per-record function a `kernel` that is inlined into its callers."""
    return cast("Callable[P, R]", Kernel(function, plain=None, inline=True))


def kernel_like(
    plain: Callable[P, R], *, inline: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a `kernel`, or `inline_kernel`, whose plain source is `plain`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", Kernel(function, plain=plain, inline=inline))

    return decorate
