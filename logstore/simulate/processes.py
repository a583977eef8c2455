"""Worker processes for simulations, which share nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed  # noqa: TID251
from multiprocessing import get_context  # noqa: TID251
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Result]]:
    """Run jobs in processes, and yield the number and the result of each job when it ends.

    Parameters
    ----------
    function : callable
        A function of a module. The jobs and the results can be pickled.
    workers : int
        Number of processes. With one worker or one job, this process runs the jobs.

    Raises
    ------
    Exception
        The error of a job; jobs that have not begun are cancelled.
    """
    if min(workers, len(jobs)) <= 1:
        for number, job in enumerate(jobs):
            yield number, function(job)
        return
    # Spawned: forked processes would share the open files of this process, but not its threads.
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
    """Let an interrupt end this process silently; the parent process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
