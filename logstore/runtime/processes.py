"""Work in other processes, for what keeps a core busy and shares nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each job as it is done.

    Parameters
    ----------
    function : callable
        Of a module; it, the jobs and the results can be pickled.
    workers : int
        Processes at work at a time; with one, or one job, there is no other process.

    Raises
    ------
    Exception
        Whatever a job raises; jobs that have not begun are given up then.
    """
    if min(workers, len(jobs)) <= 1:
        for number, job in enumerate(jobs):
            yield number, function(job)
        return
    # Not forked: threads and open files of this process are not theirs.
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=get_context("spawn"), initializer=_end_at_interrupts
    )
    try:
        futures = {pool.submit(function, job): number for number, job in enumerate(jobs)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _end_at_interrupts() -> None:
    """Let this process end at the user's interrupt, in silence: the one that waits for it tells."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
