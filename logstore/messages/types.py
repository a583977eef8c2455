"""The classes of all messages, by their names: `from logstore.messages.types import FetchRequest`.

Each is made when it is first asked for. `types.pyi` beside tells type checkers what is in them;
`make messages` writes it.
"""

from __future__ import annotations

from logstore.messages.compiler import Message, classes


def __getattr__(name: str) -> type[Message]:
    try:
        return classes(name)[name]
    except KeyError:
        raise AttributeError(f"Kafka has no message {name!r}") from None
