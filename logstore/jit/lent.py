"""Array arguments of kernels that Python calls: lent for the call, so that nothing counts them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.pythonapi import NativeValue
from numba.extending import lower_cast, models, register_model, unbox


class LentArray(types.Array):
    """An array argument that the caller keeps alive.

    numba makes an object that counts references to each array argument, which takes as long as to
    encode some records. Here a kernel has none, so it must not return an array.
    """

    def __init__(self, array: types.Array) -> None:
        super().__init__(
            array.dtype,
            array.ndim,
            array.layout,
            readonly=not array.mutable,
            name=f"lent {array}",
            aligned=array.aligned,
        )


register_model(LentArray)(models.ArrayModel)


@unbox(LentArray)
def _take(kind: Any, array: Any, c: Any) -> Any:
    """Emit the look at a NumPy array: the dispatcher saw that it is one, and of which kind."""
    struct = c.context.make_array(kind)(c.context, c.builder)
    place = c.builder.bitcast(struct._getpointer(), c.pyapi.voidptr)
    function = c.pyapi._get_function(
        ir.FunctionType(ir.IntType(32), [c.pyapi.pyobj, c.pyapi.voidptr]), "numba_adapt_ndarray"
    )
    c.builder.call(function, [array, place])
    return NativeValue(struct._getvalue())


@lower_cast(LentArray, types.Array)
def _pass_on(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    """Emit nothing: both are laid out alike."""
    return value


def lent(kind: Any) -> Any:
    """Return the type of an argument as that of a kernel that Python calls."""
    return LentArray(kind) if isinstance(kind, types.Array) else kind


def passed_on(kind: Any) -> Any:
    """Return the type of an argument as that of a kernel that another one calls."""
    return kind.copy() if isinstance(kind, LentArray) else kind


def has_array(kind: Any) -> bool:
    """Tell whether a type is that of an array, or of a tuple with one."""
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    return isinstance(kind, types.Array) or any(map(has_array, parts))
