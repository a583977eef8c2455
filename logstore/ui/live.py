"""Live events of the broker, for the event stream and the history.

While clients are connected, a timer in the event loop polls four times a second. It reads a flag
set by the engine's signals, the progress of passes, and the clock. An append or a cleaned chunk
therefore costs at most setting a flag, regardless of the number of clients. Slow clients receive
the latest state and miss intermediate states. The timer uses real time, because the broker's clock
may be manual.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.analysis.broker_state import cleaner_view, open_logs, subscribe_to_changes
from logstore.errors import LogStoreError
from logstore.ui.history import History
from logstore.ui.versions import LogVersion, version_of

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.stats import CleanerStats
    from logstore.runtime import Unsubscribe
    from logstore.runtime.loops import LoopThread
    from logstore.types import TopicPartition

TICK_S = 0.25
SAMPLE_S = 5.0
"""Interval between two points of a curve."""

KEEPALIVE_S = 15.0
"""Interval of comments that keep idle connections open."""

READERS_MAX = 64
CLEANED_MAX = 64
"""Maximum number of completed passes queued per client. Older ones are dropped."""

Visible = Callable[[str], bool]
"""Returns whether a client may describe a topic."""


class Reader:
    """A client of the event stream. Only used in the event loop."""

    def __init__(self, sees: Visible) -> None:
        self._sees = sees
        self._partitions: dict[TopicPartition, None] = {}
        self._cleaned: deque[dict[str, Any]] = deque(maxlen=CLEANED_MAX)
        self._states: dict[str, dict[str, Any]] = {}
        self._woken = asyncio.Event()
        self._is_ended = False

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Queue an event about changed partitions."""
        self._partitions.update((tp, None) for tp in partitions if self._sees(tp.topic))
        if self._partitions:
            self._woken.set()

    def add_cleaned(self, stats: dict[str, Any]) -> None:
        """Queue an event about a completed pass."""
        if self._sees(stats["topic"]):
            self._cleaned.append(stats)
            self._woken.set()

    def set_cleaning(self, under_way: list[dict[str, Any]]) -> None:
        """Set the progress of running passes."""
        seen = [each for each in under_way if self._sees(each["topic"])]
        self.set_state("cleaning", {"under_way": seen})

    def set_measuring(self, under_way: list[dict[str, Any]]) -> None:
        """Set the progress of dry runs for verdicts."""
        seen = [each for each in under_way if self._sees(each["topic"])]
        self.set_state("measuring", {"under_way": seen})

    def set_state(self, event: str, state: dict[str, Any]) -> None:
        """Set a state to send, replacing any unsent one."""
        self._states[event] = state
        self._woken.set()

    def end(self) -> None:
        """End the stream."""
        self._is_ended = True
        self._woken.set()

    async def texts(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the stream ends."""
        yield b"retry: 1000\n\n"
        while not self._is_ended:
            try:
                await asyncio.wait_for(self._woken.wait(), KEEPALIVE_S)
            except TimeoutError:
                yield b": nothing new\n\n"
                continue
            self._woken.clear()
            if text := "".join(self._take_events()):
                yield text.encode()

    def _take_events(self) -> Iterable[str]:
        states, self._states = self._states, {}
        partitions, self._partitions = list(self._partitions), {}
        for event, state in states.items():
            yield _event(event, state)
        while self._cleaned:
            yield _event("cleaned", self._cleaned.popleft())
        if partitions:
            yield _event("partitions", {"partitions": [tp._asdict() for tp in partitions]})


def _event(name: str, value: object) -> str:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"


class Live:
    """Polls a broker and sends events to clients.

    Parameters
    ----------
    broker : Broker
    loops : LoopThread
        The page's event loop and threads.
    clock_json : callable
        Returns the state of the clock.

    Attributes
    ----------
    history : History
    """

    def __init__(
        self, broker: Broker, loops: LoopThread, clock_json: Callable[[], dict[str, Any]]
    ) -> None:
        self._broker = broker
        self._loops = loops
        self._clock_json = clock_json
        self.history = History(broker)
        self._readers: set[Reader] = set()
        self._has_changed = True
        self._known: dict[TopicPartition, LogVersion] | None = None
        self._measured: deque[TopicPartition] = deque()
        self._ended: deque[tuple[CleanerStats, int]] = deque(maxlen=self.history.cleanings_max)
        self._under_way: list[dict[str, Any]] = []
        self._dry_runs: dict[TopicPartition, PassProgress] = {}
        self._measuring: list[dict[str, Any]] = []
        self._sent_clock: dict[str, Any] = {}
        self._sampled_s = 0.0
        self._ticking: asyncio.Task[None] | None = None
        self._subscriptions: tuple[Unsubscribe, ...] = ()
        if not broker.read_only:
            self._subscriptions = self._follow()

    def _follow(self) -> tuple[Unsubscribe, ...]:
        return (
            self._broker.cleaner.pass_ended.subscribe(self._note_end),
            *subscribe_to_changes(self._broker, self._note_change),
        )

    def _note_end(self, stats: CleanerStats) -> None:
        # Record the time now, because a virtual clock may advance by days before the next poll.
        self._ended.append((stats, self._broker.clock.now_ms()))

    def _note_change(self, *_: object) -> None:
        self._has_changed = True

    def note_measured(self, topic_partition: TopicPartition) -> None:
        """Queue an event about a partition measured in the background."""
        self._measured.append(topic_partition)

    @contextmanager
    def dry_run(self, topic_partition: TopicPartition) -> Iterator[ProgressListener]:
        """Send the progress of a dry run. Yields the listener to pass to it."""
        try:
            yield self._dry_runs.__setitem__
        finally:
            self._dry_runs.pop(topic_partition, None)

    # -- event loop ----------------------------------------------------------------------

    def start(self) -> None:
        """Start polling."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick_on())

    def close(self) -> None:
        """Stop polling and end all event streams."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        if self._ticking is not None:
            self._ticking.cancel()
        for reader in list(self._readers):
            reader.end()

    def connect(self, sees: Visible) -> Reader | None:
        """Add a client, which first receives the current state. None if there are too many."""
        if len(self._readers) >= READERS_MAX:
            return None
        reader = Reader(sees)
        if not self._readers:
            self._known = None  # changes since the last client disconnected are not sent
        self._readers.add(reader)
        reader.set_state("clock", self._clock_json())
        reader.set_cleaning(self._passes())
        return reader

    def disconnect(self, reader: Reader) -> None:
        """Remove a client."""
        self._readers.discard(reader)

    async def _tick_on(self) -> None:
        while True:
            await self.poll_once()
            await asyncio.sleep(TICK_S)

    async def poll_once(self) -> None:
        """Poll once and send events."""
        while self._ended:
            cleaning = self.history.note_pass(*self._ended.popleft())
            for reader in self._readers:
                reader.add_cleaned(cleaning)
        now_s = asyncio.get_running_loop().time()
        if not self._broker.read_only and now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            await self._query(self.history.sample)
        if self._readers:
            self._send_states()
            await self._send_partitions()
        else:
            self._measured.clear()

    def _send_states(self) -> None:
        clock = self._clock_json()
        if clock["kind"] == "system":
            clock = {}  # real time, only sent once
        if clock != self._sent_clock:
            self._sent_clock = clock
            for reader in self._readers:
                reader.set_state("clock", clock)
        under_way = self._passes()
        if under_way != self._under_way:
            self._under_way = under_way
            for reader in self._readers:
                reader.set_cleaning(under_way)
        measuring = _steps_json(self._dry_runs.copy())
        if measuring != self._measuring:
            self._measuring = measuring
            for reader in self._readers:
                reader.set_measuring(measuring)

    def _passes(self) -> list[dict[str, Any]]:
        return [] if self._broker.read_only else passes_under_way(self._broker)

    async def _send_partitions(self) -> None:
        changed = dict.fromkeys(self._measured)
        self._measured.clear()
        if self._has_changed or self._known is None:
            self._has_changed = False  # reset before reading, so that no change is missed
            versions = await self._query(partial(_versions, self._broker))
            if versions is not None:
                known, self._known = self._known, versions
                if known is not None:
                    changed |= dict.fromkeys(
                        tp
                        for tp in versions.keys() | known.keys()
                        if versions.get(tp) != known.get(tp)
                    )
        if changed:
            for reader in self._readers:
                reader.add_partitions(sorted(changed))

    async def _query(self, question: Callable[[], Any]) -> Any:  # noqa: ANN401  # the question's result
        """Query the broker in a worker thread. Return None on an error."""
        try:
            return await self._loops.blocking(question)
        except (LogStoreError, OSError):  # closing, or a disk failure reported elsewhere
            return None


def passes_under_way(broker: Broker) -> list[dict[str, Any]]:
    """Return the progress of running passes, without locking."""
    return _steps_json(broker.cleaner.under_way.copy())


def _steps_json(steps: dict[TopicPartition, PassProgress]) -> list[dict[str, Any]]:
    return [{**tp._asdict(), **step._asdict()} for tp, step in sorted(steps.items())]


def _versions(broker: Broker) -> dict[TopicPartition, LogVersion]:
    """Return the version of each partition, to detect changes that the page shows."""
    logs = open_logs(broker)
    versions: dict[TopicPartition, LogVersion] = {}
    for tp in broker.partitions():
        log = logs.get(tp)
        version = () if log is None else version_of(log)
        versions[tp] = (*version, *cleaner_view(broker, tp))
    return versions
