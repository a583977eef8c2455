"""Borrowed arrays: kernel arguments without reference counting."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.pythonapi import NativeValue
from numba.extending import lower_cast, models, register_model, unbox


class BorrowedArray(types.Array):
    """The numba type of an array argument that the caller keeps alive.

    For each array argument, numba creates a reference-counted object, which takes as long as
    encoding several records. Borrowed arrays avoid this, so a kernel must not return one.
    """

    def __init__(self, array: types.Array) -> None:
        super().__init__(
            array.dtype,
            array.ndim,
            array.layout,
            readonly=not array.mutable,
            name=f"borrowed {array}",
            aligned=array.aligned,
        )


register_model(BorrowedArray)(models.ArrayModel)


@unbox(BorrowedArray)
def _take(kind: Any, array: Any, c: Any) -> Any:
    """Emit the unboxing of a NumPy array. The dispatcher has checked its type."""
    struct = c.context.make_array(kind)(c.context, c.builder)
    place = c.builder.bitcast(struct._getpointer(), c.pyapi.voidptr)
    function = c.pyapi._get_function(
        ir.FunctionType(ir.IntType(32), [c.pyapi.pyobj, c.pyapi.voidptr]), "numba_adapt_ndarray"
    )
    c.builder.call(function, [array, place])
    return NativeValue(struct._getvalue())


@lower_cast(BorrowedArray, types.Array)
def _unbox_unchanged(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    """Emit nothing, because both types have the same layout."""
    return value


def outer_type(kind: Any) -> Any:
    """Return the type of an argument in a call from Python, where arrays are borrowed."""
    return BorrowedArray(kind) if isinstance(kind, types.Array) else kind


def inner_type(kind: Any) -> Any:
    """Return the type of an argument in a call from another kernel."""
    return kind.copy() if isinstance(kind, BorrowedArray) else kind


def has_array(kind: Any) -> bool:
    """Return whether a type is an array, or a tuple that contains an array."""
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    return isinstance(kind, types.Array) or any(map(has_array, parts))
