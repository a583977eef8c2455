"""Random messages of any kind and version, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from logstore.messages import Message, schema
from logstore.messages.compiler import classes
from logstore.messages.schema import Field, Schema
from logstore.types import encode_topic_id

NUMBERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TEXTS = ("", "a", "topic-1", "Gruppe Ä", "日本語", "🦜", "x" * 126, "y" * 127, "z" * 300)


Limits = Callable[[Field], tuple[int, int]]


def all_numbers(each: Field) -> tuple[int, int]:
    """Return the smallest and the largest number of a field's type."""
    return NUMBERS[each.element]


def random_message(
    rng: Random,
    name: str,
    version: int,
    *,
    elements_max: int = 3,
    limits: Limits = all_numbers,
    absent: float = 0.15,
    maker: type[Maker] | None = None,
) -> Message:
    """Return a message with values in the fields that a version has, and defaults in the others.

    Parameters
    ----------
    limits : callable
        The smallest and the largest number of a field.
    absent : float
        How often a field is left at its default, so that a tagged one is not written.
    maker : type, optional
        Draws the values.
    """
    made = (maker or Maker)(rng, schema(name), version, elements_max, limits, absent)
    return made.struct(name)


class Maker(NamedTuple):
    """Draws the values of one message."""

    rng: Random
    schema: Schema
    version: int
    elements_max: int
    limits: Limits
    absent: float

    def struct(self, struct: str) -> Message:
        made = classes(self.schema.name)[struct]()
        for each in self.schema.structs[struct]:
            if self.version in each.versions and self.rng.random() >= self.absent:
                setattr(made, each.attribute, self._value(each))
        return made

    def _value(self, each: Field) -> Any:
        if self.version in each.null and self.rng.random() < 0.25:
            return None
        if each.is_array:
            return [self._element(each) for _ in range(self.rng.randint(0, self.elements_max))]
        return self._element(each)

    def _element(self, each: Field) -> Any:
        rng = self.rng
        match each.element:
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice((0.0, 1.5, -2.25, 1e300, rng.random()))
            case "uuid":
                return encode_topic_id(rng.randbytes(16))
            case "string":
                return rng.choice(TEXTS)
            case "bytes" | "records":
                return rng.randbytes(rng.choice((0, 1, 20, 126, 127, 700)))
            case kind if kind in NUMBERS:
                low, high = self.limits(each)
                edges = {low, -1 if low < 0 else 1, 0, 1, high}
                return rng.choice((*sorted(edges), rng.randint(low, high)))
            case _:
                return self.struct(each.element)
