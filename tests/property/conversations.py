"""Conversations of clients with the listener, whose answers are stored (`transcripts`).

`tests.interop.conversations` compares the same requests with a running Kafka broker.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logstore.messages import to_json
from tests.interop.conversations import Conversation, Tally, our_broker, warm_up
from tests.support.interop.answers import TEXTS, Closed, Side, response_data
from tests.support.interop.caller import ClosedByPeer
from tests.support.world.transcripts import Transcript

FEW = 24
ROUNDS = 40
GENERATED = re.compile(r"[\w-]{22,}|\d{12,}")
"""Ids and times in messages for people."""


class Alone(Conversation):
    """A conversation with one broker, whose answers are noted."""

    def __init__(self, seed: int, side: Side, transactions: int) -> None:
        super().__init__(seed, side, side, Closed("kafka4"), Tally(), transactions)
        self.sides = (side,)
        self.transcript = Transcript()

    def _receive(self, side: Side, api: str, version: int, connection: str) -> Any:
        try:
            answer = side.caller(connection).receive()
        except ClosedByPeer:
            side.forget(connection)
            return "closed"
        for text in _texts(to_json(answer, version)):
            self.transcript.note(GENERATED.sub("...", text))
        return response_data(side, api, version, answer)

    def _compare(self, api: str, version: int, *found: Any) -> None:
        answer, _build = found
        self.steps.append(f"{api} {version}")
        self.transcript.note(self.steps[-1], answer)


def _texts(data: Any) -> Iterator[str]:
    """Yield the messages in an answer."""
    if isinstance(data, dict):
        yield from (data[key] for key in data.keys() & TEXTS if data[key])
    for each in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _texts(each)


def transcribe(seed: int) -> Transcript:
    """Return the requests of a seed and their answers."""
    with tempfile.TemporaryDirectory() as home, our_broker(Path(home)) as bootstrap:
        warm_up(Side("here", bootstrap))
        conversation = Alone(seed, Side("here", bootstrap), 14 if seed % 2 else 60)
        conversation.run(ROUNDS)
    return conversation.transcript
