"""The runtime: clock, files, randomness, locks and background work."""

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
"""A random source, which the engine imports by this name."""

VERIFY = os.environ.get("LOGSTORE_VERIFY") == "1"
"""Whether each change of a log is followed by its `_check()`. This is enabled in all tests."""


class Lock(AbstractContextManager[bool], Protocol):
    """A re-entrant lock."""

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock. If not `blocking`, return False if another thread holds the lock."""

    def release(self) -> None:
        """Release the lock."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The outside world of the engine.

    Attributes
    ----------
    clock : Clock
        Wall-clock and monotonic time.
    fs : FileSystem
        Files; paths are plain `/`-separated strings.
    rng : random.Random
        Random source for the roll jitter, directory names and the cleaner's hash key. A seed makes
        the jitter and the names repeatable. File contents do not depend on the hash key.
    scheduler : Scheduler
        Background work. [default: a `DeterministicScheduler` on the clock, which the owner of the
        runtime starts]
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
    """Return a random source. With a seed, it is repeatable."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def background_scheduler(clock: Clock) -> Scheduler:
    """Return a started scheduler for work on request.

    The scheduler of a broker without background work is not started, but requests may still need
    one.
    """
    scheduler: Scheduler = (
        DeterministicScheduler(clock)
        if isinstance(clock, VirtualClock)
        else ThreadScheduler(clock, threads=1)
    )
    scheduler.start()
    return scheduler


def is_repeatable(rng: random.Random) -> bool:
    """Return whether a random source is repeatable, that is, not the system's."""
    return not isinstance(rng, random.SystemRandom)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
