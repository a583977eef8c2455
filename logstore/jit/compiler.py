"""Compile kernels with numba, and load cached ones."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from logstore.jit.borrowing import has_array, inner_type, outer_type
from logstore.jit.files import KernelFiles, cache_dir

if TYPE_CHECKING:
    from types import FunctionType


compiling = threading.RLock()
"""Serializes compiling and loading of kernels in this process.

The file lock (`KernelFiles.locked`) only excludes other processes: it belongs to the process, and
closing any descriptor of the file releases it. numba's lock is acquired inside.
"""


def _renew_locks() -> None:
    """Replace the locks in a forked child, where the threads that held them do not exist."""
    global compiling
    compiling = threading.RLock()
    global_compiler_lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class KernelDispatcher(CPUDispatcher):
    """Compiles or loads a kernel for each signature with which Python calls it.

    Only one process at a time compiles a kernel. The others wait and then load it from the cache.

    numba looks up the compiled function in a C table by the type codes of the arguments. Two equal
    rows would make a call ambiguous, and numba would then call `compile` every time. Therefore only
    `compile` inserts rows, one per signature.
    """

    def __init__(self, function: FunctionType, files: KernelFiles) -> None:
        super().__init__(function, targetoptions=_options(no_cfunc_wrapper=True))
        self._files = files
        # Keep signatures alive, because a type that is collected and re-created gets a new code.
        self._inserted: dict[tuple[int, ...], tuple[Any, Any]] = {}
        if cache_dir() is not None:
            self._cache = _KernelCache(function, files)

    def typeof_pyval(self, value: Any) -> Any:
        """Return the type of an argument.

        Holds numba's lock for creating types, because two threads that create equal types
        concurrently would get different codes.
        """
        with global_compiler_lock:
            return super().typeof_pyval(value)

    def entry_for(self, *args: Any) -> Any:
        """Return the function compiled for these argument types, or None if not compiled."""
        found = self._inserted.get(_codes_of(map(self.typeof_pyval, args)))
        return None if found is None else found[1]

    def compile(self, signature: Any) -> Any:
        """Compile for a signature or load it from the cache, unless another thread just did so."""
        codes = _codes_of(signature)
        with compiling:
            if codes not in self._inserted:
                entry = self._compile_or_load(signature)
                # A signal handler in this thread may have called the kernel in the meantime.
                if codes not in self._inserted:
                    self._inserted[codes] = signature, entry
                    self._insert(codes, entry, False)  # type: ignore[attr-defined]  # in C
            return self._inserted[codes][1]

    def add_overload(self, result: Any) -> None:
        """Store the compiled or loaded result. `compile` inserts it into the table."""
        self.overloads[tuple(result.signature.args)] = result

    def _compile_or_load(self, signature: Any) -> Any:
        kinds = tuple(map(outer_type, signature))
        with self._files.locked(), _without_garbage_collection():
            entry = super().compile(kinds)
        compiled: Any = self.overloads[kinds]
        if has_array(compiled.signature.return_type):
            name = self.py_func.__qualname__
            raise TypeError(f"kernel {name} returns an array, but its arrays are borrowed")
        return entry


def _codes_of(signature: Iterable[Any]) -> tuple[int, ...]:
    """Return the codes by which numba's dispatcher distinguishes types."""
    return tuple(each._code for each in signature)


class InnerDispatcher(CPUDispatcher):
    """Compiles a kernel that other kernels call.

    It is not cached, because its callers contain it, and cannot be called from Python.
    """

    def __init__(self, function: FunctionType, *, inline: bool) -> None:
        options = _options(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=inline)
        super().__init__(function, targetoptions=options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile once for all constant arguments, which LLVM folds when inlining."""
        args = [inner_type(types.unliteral(each)) for each in args]
        return super().get_call_template(args, {name: types.unliteral(kws[name]) for name in kws})


def _options(**options: bool) -> dict[str, bool | None]:
    return {"nopython": True, "nogil": True, "boundscheck": None, **options}


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector, which would repeatedly traverse the compiler's objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Locator(_CacheLocator):
    """The cache directory and fingerprint of a kernel."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files

    def get_cache_path(self) -> str:
        return str(cache_dir())

    def get_source_stamp(self) -> str:
        return self._files.fingerprint

    def get_disambiguator(self) -> str:
        return self._files.fingerprint


class _KernelCacheImpl(CompileResultCacheImpl):
    def __init__(self, function: FunctionType, files: KernelFiles) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(files)
        self._filename_base = files.index.removesuffix(".nbi")


class _KernelCache(FunctionCache):
    """numba's function cache, with file names and staleness based on the fingerprint."""

    def __init__(self, function: FunctionType, files: KernelFiles) -> None:
        self._impl_class: Any = lambda function: _KernelCacheImpl(function, files)
        super().__init__(function)
