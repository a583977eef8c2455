"""All message classes: `from logstore.messages.types import FetchRequest`.

Classes are created on first use. `make messages` generates the stubs in `types.pyi`.
"""

from __future__ import annotations

from logstore.messages.compiler import Message, classes


def __getattr__(name: str) -> type[Message]:
    try:
        return classes(name)[name]
    except KeyError:
        raise AttributeError(f"Kafka has no message {name!r}") from None
