"""Compilation of kernels by numba, and loading of kernels compiled before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import CPUDispatcher

from logstore.jit.files import KernelFiles, cache_dir
from logstore.jit.lent import has_array, lent, passed_on

if TYPE_CHECKING:
    from types import FunctionType


class KernelDispatcher(CPUDispatcher):
    """Compiles or loads a kernel for each signature that Python calls it with.

    One process at a time compiles a kernel; the others wait, then load it from the cache.
    """

    def __init__(self, function: FunctionType, files: KernelFiles) -> None:
        super().__init__(function, targetoptions=_options(no_cfunc_wrapper=True))
        self._files = files
        if cache_dir() is not None:
            self._cache = _KernelCache(function, files)

    def entry_for(self, *args: Any) -> Any:
        """Return the compiled function for arguments of these types; None if there is none."""
        found: Any = self.overloads.get(tuple(lent(self.typeof_pyval(each)) for each in args))
        return None if found is None else found.entry_point

    def compile(self, signature: Any) -> Any:
        """Compile for a signature, or load it from the cache."""
        with self._files.being_made(), _no_garbage():
            kinds = tuple(map(lent, signature))
            entry = super().compile(kinds)
        compiled: Any = self.overloads[kinds]
        if has_array(compiled.signature.return_type):
            name = self.py_func.__qualname__
            raise TypeError(f"kernel {name} returns an array, which was only lent")
        # numba looks for it by the types that these arguments have in Python.
        find_by: Any = self._insert  # type: ignore[attr-defined]  # of its base, which is C
        find_by([each._code for each in signature], entry, False)
        return entry


class InnerDispatcher(CPUDispatcher):
    """Compiles a kernel for other kernels.

    It is not cached, since its callers contain it, and has no entry for Python.
    """

    def __init__(self, function: FunctionType, *, inline: bool) -> None:
        options = _options(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=inline)
        super().__init__(function, targetoptions=options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile once for all constants that it is called with: LLVM folds them as it inlines."""
        args = [passed_on(types.unliteral(each)) for each in args]
        return super().get_call_template(args, {name: types.unliteral(kws[name]) for name in kws})


def _options(**options: bool) -> dict[str, bool | None]:
    return {"nopython": True, "nogil": True, "boundscheck": None, **options}


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause the garbage collector, which would walk the compiler's lasting objects repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Locator(_CacheLocator):
    """Tells numba the folder of a kernel's files, and its fingerprint."""

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
    """numba's cache of one function, with file names and staleness by the kernel's fingerprint."""

    def __init__(self, function: FunctionType, files: KernelFiles) -> None:
        self._impl_class: Any = lambda function: _KernelCacheImpl(function, files)
        super().__init__(function)
