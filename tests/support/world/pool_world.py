"""A broker with cleaners in virtual time, with a check after every step, and its open files."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Mapping

from logstore import Broker, VirtualClock
from logstore.broker.setup import MEMORY_DIR
from logstore.runtime import DeterministicScheduler, MemoryFileSystem
from logstore.runtime.memfs import MemoryFile
from logstore.runtime.scheduler import ScheduledTask
from logstore.storage.log import Log
from logstore.storage.segment import LogSegment

SUFFIXES = (".cleaned", ".swap", ".deleted")


class CountedFile(MemoryFile):
    """A handle that is counted as long as it is referenced, as a descriptor is."""

    def __init__(self, handle: MemoryFile, path: str) -> None:
        super().__init__(handle._contents, handle._clock, writable=handle._writable)
        self.path = path

    def __repr__(self) -> str:
        return f"<handle on the former {self.path}>"

    @property
    def is_open(self) -> bool:
        return self._contents is not None


class CountingFileSystem(MemoryFileSystem):
    """Memory that knows which handles are open."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._handles: weakref.WeakSet[CountedFile] = weakref.WeakSet()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> CountedFile:
        handle = CountedFile(super().open(path, write=write, create=create), path)
        self._handles.add(handle)
        return handle

    def open_handles(self) -> set[CountedFile]:
        return {handle for handle in self._handles if handle.is_open}

    def suffixed(self) -> list[str]:
        """Return the paths of files being written, swapped or removed."""
        return [path for path in list(self._files) if path.endswith(SUFFIXES)]


class SteppedScheduler(DeterministicScheduler):
    """Calls `after_step` after each run of a task, and raises every failure."""

    def __init__(self, clock: VirtualClock, seed: int, after_step: Callable[[str], None]) -> None:
        super().__init__(clock, seed)
        self._after_step = after_step
        self.steps = 0

    def _run(self, task: ScheduledTask) -> None:
        super()._run(task)
        self.steps += 1
        if task.last_error is not None:
            raise AssertionError(f"task {task.name} failed") from task.last_error
        self._after_step(task.name)


def start_broker(
    fs: CountingFileSystem,
    clock: VirtualClock,
    seed: int,
    properties: Mapping[str, object],
    after_step: Callable[[str], None],
) -> Broker:
    """Open a broker whose pool takes its steps in the order of a seed."""
    broker = Broker(clock=clock, fs=fs, seed=seed, broker_config=properties)
    scheduler = SteppedScheduler(clock, seed, after_step)
    # No task is scheduled yet. A broker has no parameter for the scheduler: a caller with another
    # one composes the runtime.
    object.__setattr__(broker.runtime, "scheduler", scheduler)
    broker._start()
    return broker


def files_of(segment: LogSegment) -> set[object]:
    """Return the handles that a segment holds."""
    indexes = (segment.offset_index, segment.time_index, segment.txn_index)
    return {segment._file, *(index._file for index in indexes)} - {None}


def files_of_log(log: Log) -> set[object]:
    """Return the handles of a log's segments."""
    return {file for segment in log.segments for file in files_of(segment)}


def folder(topic_partition: object) -> str:
    return f"{MEMORY_DIR}/{topic_partition}"


def weighted(rng: random.Random, weights: Mapping[str, int]) -> str:
    """Draw a name."""
    return rng.choices(list(weights), list(weights.values()))[0]
