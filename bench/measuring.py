"""Measure CPU and wall time of calls, with warm-ups, repeats and interleaved contestants."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple


class Sample(NamedTuple):
    """CPU and wall time of a run, in seconds."""

    cpu_s: float
    wall_s: float


Run = Callable[[], Sample]
"""Does its work once, and returns the time without set-up."""


class Stopwatch:
    """Measures the body of a `with` statement. `sample` is the result.

    CPU time is user plus system time of all threads in the process, to include helper threads.
    """

    sample: Sample

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        self.sample = Sample(cpu - self._cpu, wall - self._wall)


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable Python's garbage collection, as `timeit` does.

    `logstore.jit.compiler` has its own copy, because importing it would load modules that are
    measured.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def timed(work: Callable[[], object]) -> Run:
    """Wrap a function without set-up as a run."""

    def run() -> Sample:
        with no_collection(), Stopwatch() as watch:
            work()
        return watch.sample

    return run


def run_interleaved(
    contestants: Mapping[str, Run], *, repeats: int, warmups: int = 1
) -> dict[str, list[Sample]]:
    """Run every contestant `warmups + repeats` times, and return the samples after warm-up.

    Contestants alternate, so that other load on the machine affects them equally.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for number in range(warmups + repeats):
        for name, run in contestants.items():
            sample = run()
            if number >= warmups:
                samples[name].append(sample)
    return samples
