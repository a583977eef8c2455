"""Plain twins and fingerprints of operations with a plain and a compiled form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import update_wrapper
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

Namespaces = dict[int, dict[str, Any]]
"""Module globals with plain twins in place of kernels, by the id of the original globals."""


class KernelOperation(ABC):
    """An operation with a compiled form and a plain Python form."""

    __slots__ = ()

    @property
    @abstractmethod
    def plain(self) -> Callable[..., Any]:
        """The plain Python form, which calls other plain forms."""

    @abstractmethod
    def twin(self, namespaces: Namespaces) -> Callable[..., Any]:
        """Return the plain form whose globals are, or will be, in `namespaces`."""

    @abstractmethod
    def parts(self, seen: set[FunctionType]) -> Iterator[object]:
        """Yield the parts of the compiled form, except the functions in `seen`."""


_plain_namespaces: Namespaces = {}


FORMAT = 2
"""Version of cache files. Increase it when kernel types or compiler options change."""


def plain_twin(function: FunctionType) -> FunctionType:
    """Return a copy of a function that calls plain twins instead of kernels.

    Its globals are published once they are complete, because of other threads and interrupts.
    """
    namespaces = _plain_namespaces.copy()
    twin = twin_in(namespaces, function)
    _plain_namespaces.update(namespaces)
    return twin


def twin_in(namespaces: Namespaces, function: FunctionType) -> FunctionType:
    """Return the plain twin of a function, adding missing globals to `namespaces`."""
    namespace = namespaces.get(id(function.__globals__))
    if namespace is None:
        namespace = namespaces[id(function.__globals__)] = {}
        for name, value in function.__globals__.copy().items():
            namespace[name] = (
                value.twin(namespaces) if isinstance(value, KernelOperation) else value
            )
    twin = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
    update_wrapper(twin, function)
    return twin


def fingerprint(function: FunctionType) -> str:
    """Return a hash of a kernel's code and everything else in its compiled form.

    Compiled code contains the kernels that it calls, from any file, and the values of named
    constants. numba only checks the kernel's own file.
    """
    digest = sha256(f"format {FORMAT}".encode())
    for part in parts_of(function, set()):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


def parts_of(function: FunctionType, seen: set[FunctionType]) -> Iterator[object]:
    """Yield the parts of a function's compiled form: code and global values."""
    yield f"{function.__module__}.{function.__qualname__}"
    if function in seen:
        return
    seen.add(function)
    yield function.__defaults__
    for code in _codes(function.__code__):
        yield code.co_code, code.co_names, code.co_varnames
        yield [value for value in code.co_consts if not isinstance(value, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield from _parts_of_value(name, function.__globals__[name], seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _parts_of_value(name: str, value: object, seen: set[FunctionType]) -> Iterator[object]:
    if isinstance(value, KernelOperation):
        yield from value.parts(seen)
    elif isinstance(value, np.ndarray):
        yield value.dtype, value.shape, value.tobytes()
    elif isinstance(value, type):
        yield value.__qualname__, getattr(value, "_fields", ())
    elif isinstance(value, ModuleType):
        yield value.__name__, getattr(value, "__version__", "")
    else:
        assert isinstance(value, int | float | str | bytes | tuple | np.generic), (name, value)
        yield value
