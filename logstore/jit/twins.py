"""One source, twice: operations that run as Python and compiled, and what tells them apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import update_wrapper
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np


class Twofold(ABC):
    """An operation that compiled code has in another form than Python has."""

    __slots__ = ()

    @property
    @abstractmethod
    def plain(self) -> Callable[..., Any]:
        """The operation as plain Python, all the way down."""

    @abstractmethod
    def parts(self, seen: set[FunctionType]) -> Iterator[object]:
        """Yield what its compiled form is made of, without the functions that were `seen`."""


_plain_worlds: dict[int, dict[str, Any]] = {}
"""The globals of modules of kernels as their plain twins see them, by identity."""


def plain_twin(function: FunctionType) -> FunctionType:
    """Return a function that runs the same code, and calls the plain twins of what that names."""
    world = _plain_worlds.get(id(function.__globals__))
    if world is None:
        world = _plain_worlds[id(function.__globals__)] = {}
        for name, value in function.__globals__.items():
            world[name] = value.plain if isinstance(value, Twofold) else value
    twin = FunctionType(function.__code__, world, function.__name__, function.__defaults__)
    update_wrapper(twin, function)
    return twin


def fingerprint(function: FunctionType) -> str:
    """Return what tells a kernel from any other one: its code, and all that it is made of.

    Compiled code holds what a kernel calls, in whatever file that stands, and the values of the
    constants that it names. numba itself looks at the kernel's own file alone.
    """
    digest = sha256()
    for part in parts_of(function, set()):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


def parts_of(function: FunctionType, seen: set[FunctionType]) -> Iterator[object]:
    """Yield the parts of a function's compiled form: its code and the values of what that names."""
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
    if isinstance(value, Twofold):
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
