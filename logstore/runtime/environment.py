"""The bundle of clock, files, randomness and locks that every engine object is handed."""

from __future__ import annotations

import os
import random
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from logstore.runtime.clock import Clock, SystemClock
from logstore.runtime.fs import DiskFileSystem, FileSystem

Random = random.Random
"""A source of randomness; the name under which the rest of the engine knows it."""

VERIFY = os.environ.get("LOGSTORE_VERIFY") == "1"
"""Whether every change of a log is followed by its `_check()`; on in all tests."""


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
    """

    clock: Clock = field(default_factory=SystemClock)
    fs: FileSystem = field(default_factory=DiskFileSystem)
    rng: Random = field(default_factory=random.SystemRandom)

    def lock(self) -> AbstractContextManager[bool]:
        """Return a new re-entrant lock, to be used as a context manager."""
        return threading.RLock()


def random_source(seed: int | None = None) -> random.Random:
    """Return a source of randomness: the machine's, or a repeatable one for a seed."""
    return random.SystemRandom() if seed is None else random.Random(seed)
