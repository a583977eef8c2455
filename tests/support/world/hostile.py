"""Requests of every API and version with a value in each of their fields."""

from __future__ import annotations

import random
from collections.abc import Iterator

from logstore.errors import MessageError
from logstore.messages import Message
from logstore.messages.apis import apis_by_name
from logstore.messages.compiler import classes
from logstore.wire.registry import handlers
from logstore.wire.versions import SERVED
from tests.support.world.wire import Client


def filled(message: Message, name: str, rng: random.Random, depth: int = 0) -> Message:
    """Fill each array of a request with one or two elements, and names that exist."""
    for field in message.schema.structs[message.struct_name]:
        if field.is_array and depth < 4:
            count = rng.randrange(3)
            if field.is_struct:
                kinds = classes(name)
                made = [filled(kinds[field.element](), name, rng, depth + 1) for _ in range(count)]
            else:
                made = ["t"] * count if field.element == "string" else [0] * count
                if field.element == "bytes":
                    made = [b"x"] * count
            setattr(message, field.attribute, made)
        elif field.element == "string" and rng.random() < 0.7:
            setattr(message, field.attribute, rng.choice(("t", "", "g", "no such")))
    return message


def sound_frames(rng: random.Random, each: int) -> Iterator[bytes]:
    """Yield frames, without their lengths, of every API and version that is served."""
    client = Client.__new__(Client)
    client.client_id, client.correlation_id = "me", 0
    for name in sorted(handlers()):
        first, last, _ = SERVED[name]
        for version in range(first, last + 1):
            for _ in range(each):
                request = filled(apis_by_name()[name].request(), f"{name}Request", rng)
                try:
                    yield client.frame(request, version)[4:]
                except MessageError:  # a value that this version cannot encode
                    continue
