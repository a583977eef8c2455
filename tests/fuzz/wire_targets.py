"""Fuzz target over frames: a request of whatever bytes, from its header to the answer.

A broker in memory of its own is asked through a connection whose socket is this module. It gives
an answer that the API's response can be decoded from, ends the connection, or goes on waiting, as
for other members of a group; any other exception is a finding.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from logstore import Broker, VirtualClock
from logstore.messages import decode
from logstore.messages.apis import API_VERSIONS
from logstore.wire.connection import Connection
from logstore.wire.frames import UnsupportedRequestError, parse_request_head
from logstore.wire.limits import Limits
from logstore.wire.pool import RequestPool
from logstore.wire.service import ServedBroker, Service
from logstore.wire.session import Session
from logstore.wire.settings import ListenerSettings
from tests.fuzz.contract import OK, Target, check
from tests.support.world.hostile import sound_frames

T = TypeVar("T")

CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "num.partitions": 1,
}
LIMITS = Limits(partitions=20)
ROUNDS = 20
"""Rounds of the loop after which an unanswered request is assumed to wait for others."""

FIRST_EVERY = 5
"""The valid frames that inputs start from; mutations of the header reach the others."""


class _Loops:
    """A loop whose blocking work is done at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def wake(self, action: Callable[[], object]) -> None:
        self.loop.call_soon(action)

    async def blocking(self, call: Callable[[], T]) -> T:
        return call()

    to_its_end = blocking


class _Socket:
    """A transport that keeps the bytes written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


def frame(data: bytes) -> str:
    """One frame, without its length."""
    with Broker(clock=VirtualClock(), broker_config=CONFIG, seed=0) as broker:
        broker.create_topic("t")
        broker.append("t", key=b"k", value=b"v")
        return asyncio.run(_asked(broker, data))


async def _asked(broker: Broker, data: bytes) -> str:
    loop = asyncio.get_running_loop()
    parts = ServedBroker(
        broker.runtime, broker.manager, broker.groups, broker.coordinator, works_in_memory=True
    )
    pool = RequestPool(LIMITS.queued_bytes, LIMITS.frame_bytes, ())
    service = Service(parts, ListenerSettings(), LIMITS, pool, _Loops(loop))
    session = Session(service, "127.0.0.1", ("127.0.0.1", 9092))
    connection = Connection(
        lambda *_: session, lambda *_: None, lambda _: None, pool, loop.create_task
    )
    socket = _Socket()
    connection.connection_made(socket)
    task = loop.create_task(connection._answer(memoryview(data)))
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
        if task.done():
            break
    connection.abort()
    if not task.done():
        task.cancel()
        check(not socket.written, "what waits has not answered")
        return "waits"
    try:
        task.result()
    except UnsupportedRequestError as error:
        check(bool(str(error)), "an error has a message")
        return "not_served"
    if not socket.written:
        check(session.api == "Produce", f"{session.api} is not answered")
        return OK
    _check_answer(data, socket.written)
    return OK


def _check_answer(data: bytes, written: bytes) -> None:
    head = parse_request_head(data)
    check(int.from_bytes(written[:4]) == len(written) - 4, "the length of the answer")
    check(written[4:8] == data[4:8], "an answer bears its request's correlation id")
    is_foreign = head.api.key == API_VERSIONS and head.version not in range(5)
    version = 0 if is_foreign else head.version
    start = 8 + bool(head.api.response_header_version(version))
    decode(head.api.response, version, written, start)


@cache
def frames() -> list[bytes]:
    """Sound frames of all APIs, the versions taking turns."""
    return list(sound_frames(random.Random(0), 1))[::FIRST_EVERY]


TARGETS = {"frame": Target(frame, "message", frames, 5)}
