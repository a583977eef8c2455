"""The bundle of clock, files, randomness, locks and background work that everyone is handed."""

from __future__ import annotations

import os
import random
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast

from logstore.runtime.clock import Clock, SystemClock, VirtualClock
from logstore.runtime.deterministic import DeterministicScheduler
from logstore.runtime.fs import DiskFileSystem, FileSystem
from logstore.runtime.scheduler import Scheduler
from logstore.runtime.threads import ThreadScheduler

Random = random.Random
"""A source of randomness; the name under which the rest of the engine knows it."""

VERIFY = os.environ.get("LOGSTORE_VERIFY") == "1"
"""Whether every change of a log is followed by its `_check()`; on in all tests."""


class Lock(AbstractContextManager[bool], Protocol):
    """A re-entrant lock."""

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; without `blocking`, return False if another thread holds it."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """The world as the engine sees it.

    Attributes
    ----------
    clock : Clock
        Wall and monotonic time.
    fs : FileSystem
        Files; paths are plain `/`-separated strings.
    rng : random.Random
        Source of the roll jitter, directory names and the key of the cleaner's hash. File
        contents never depend on the last; seed it to make the first two repeatable.
    scheduler : Scheduler
        Background work; by default a `DeterministicScheduler` of the clock, not started: it
        runs nothing until its owner starts it. Give a `ThreadScheduler` for threads.
    """

    clock: Clock = field(default_factory=SystemClock)
    fs: FileSystem = field(default_factory=DiskFileSystem)
    rng: Random = field(default_factory=random.SystemRandom)
    scheduler: Scheduler = None  # type: ignore[assignment]  # __post_init__ knows the clock

    def __post_init__(self) -> None:
        if cast("Scheduler | None", self.scheduler) is None:
            object.__setattr__(self, "scheduler", DeterministicScheduler(self.clock))

    def lock(self) -> Lock:
        """Return a new re-entrant lock, to be used as a context manager."""
        return threading.RLock()


def random_source(seed: int | None = None) -> random.Random:
    """Return a source of randomness: the machine's, or a repeatable one for a seed."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def background_scheduler(clock: Clock) -> Scheduler:
    """Return a scheduler on a clock, started, for work that was asked for by whoever has it.

    A broker without background work has none that runs; what was asked for happens all the same.
    """
    scheduler: Scheduler = (
        DeterministicScheduler(clock)
        if isinstance(clock, VirtualClock)
        else ThreadScheduler(clock, threads=1)
    )
    scheduler.start()
    return scheduler


def is_repeatable(rng: random.Random) -> bool:
    """Tell whether a source of randomness has a state, and is not the machine's."""
    return not isinstance(rng, random.SystemRandom)
