"""Random messages of any kind and version, from a seed."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from logstore.messages import Message, schema
from logstore.messages.compiler import classes
from logstore.messages.schema import Field, Schema

NUMBERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TEXTS = ("", "a", "topic-1", "Gruppe Ä", "日本語", "🦜", "x" * 126, "y" * 127, "z" * 300)


def random_message(rng: Random, name: str, version: int, *, elements_max: int = 3) -> Message:
    """Return a message with values in the fields that a version has, and defaults in the others.

    Some fields are left at their defaults, so that tagged ones are absent.
    """
    found = schema(name)
    return _struct(rng, found, name, version, elements_max)


def _struct(rng: Random, found: Schema, struct: str, version: int, most: int) -> Message:
    made = classes(found.name)[struct]()
    for each in found.structs[struct]:
        if version in each.versions and rng.random() > 0.15:
            setattr(made, each.attribute, _value(rng, found, each, version, most))
    return made


def _value(rng: Random, found: Schema, each: Field, version: int, most: int) -> Any:
    if version in each.null and rng.random() < 0.25:
        return None
    if each.is_array:
        return [_element(rng, found, each, version, most) for _ in range(rng.randint(0, most))]
    return _element(rng, found, each, version, most)


def _element(rng: Random, found: Schema, each: Field, version: int, most: int) -> Any:
    match each.element:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, 1.5, -2.25, 1e300, rng.random()))
        case "uuid":
            data = rng.randbytes(16)
            return base64.urlsafe_b64encode(data).decode().rstrip("=")
        case "string":
            return rng.choice(TEXTS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 20, 126, 127, 700)))
        case kind if kind in NUMBERS:
            low, high = NUMBERS[kind]
            return rng.choice((low, -1 if low else 1, 0, 1, high, rng.randint(low, high)))
        case _:
            return _struct(rng, found, each.element, version, most)
