"""Named tuples that cost little to make.

A class of this `NamedTuple` is what `typing.NamedTuple` makes of it, and a type checker sees that
one. Python's own compiles each annotation, should somebody ask what it means, and builds a class
anew for every method and base that it adds: half of the time of seventy named tuples, which a
command that looks at a log has.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Maker(type):
        """Make a tuple of what a class names, instead of a class."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = [body.pop(field) for field in fields if field in body]
            plain = namedtuple(name, fields, defaults=defaults)
            return type(name, (tuple, *bases[1:]), {**vars(plain), **body})

    class NamedTuple(metaclass=_Maker):
        """A tuple whose fields are the annotations of its class."""
