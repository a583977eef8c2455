"""Measuring core: CPU and wall time of a call, warmed, several times, contestants in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple


class Sample(NamedTuple):
    """Seconds of one run: of CPU, and by the clock on the wall."""

    cpu_s: float
    wall_s: float


Run = Callable[[], Sample]
"""Does its work once, its set-up outside the time that it returns."""


class Stopwatch:
    """Times what stands inside `with`; `sample` has the seconds afterwards.

    CPU is that of the whole process, all threads and the kernel's share of system calls: work that
    is handed to a helper thread counts.
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
    """Keep Python's collector of cycles from running, as `timeit` does.

    Compiling does so too (`logstore.jit.compiler`), with lines of its own: nothing that is measured
    here may be loaded before.
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
    """Return a run of a function that needs no set-up."""

    def run() -> Sample:
        with no_collection(), Stopwatch() as watch:
            work()
        return watch.sample

    return run


def in_turn(
    contestants: Mapping[str, Run], *, repeats: int, warmups: int = 1
) -> dict[str, list[Sample]]:
    """Run every contestant `warmups + repeats` times and return the samples after the warm-ups.

    They take turns, so that whatever else the machine does meanwhile meets all of them alike.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for turn in range(warmups + repeats):
        for name, run in contestants.items():
            sample = run()
            if turn >= warmups:
                samples[name].append(sample)
    return samples
