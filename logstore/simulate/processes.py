"""Worker processes for simulations."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed  # noqa: TID251
from multiprocessing import get_context  # noqa: TID251
from typing import Any, Self, TypeVar

from logstore.runtime import SystemClock
from logstore.runtime.environment import usable_cores

Job = TypeVar("Job")
Result = TypeVar("Result")

START_NS = 2_000_000_000
"""Time to start a process, which imports the engine."""


class Workers:
    """Processes that run jobs. They are started for the first batch of jobs that is large enough.

    Parameters
    ----------
    count : int, optional
        Number of processes. With 1, jobs run in this process. [default: one per core if the jobs
        take longer than starting the processes]
    shared : object
        Second argument of every job, pickled once per process.
    """

    def __init__(self, count: int | None = None, shared: object = None) -> None:
        self._count = usable_cores() if count is None else count
        self._is_chosen = count is not None
        self._shared = shared
        self._clock = SystemClock()
        self._job_ns: int | None = None  # a minimum, because the first jobs compile kernels
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(
        self, function: Callable[[Job, Any], Result], jobs: Sequence[Job]
    ) -> Iterator[tuple[int, Result]]:
        """Run jobs. Yield the number and result of each job when it completes.

        Parameters
        ----------
        function : callable
            A module-level function. Jobs and results must be picklable.

        Raises
        ------
        Exception
            The error of a job. Jobs that have not started are cancelled.
        """
        done = 0
        while done < len(jobs) and not self._is_worth_starting(len(jobs) - done):
            begin_ns = self._clock.monotonic_ns()
            yield done, function(jobs[done], self._shared)
            taken_ns = self._clock.monotonic_ns() - begin_ns
            self._job_ns = taken_ns if self._job_ns is None else min(self._job_ns, taken_ns)
            done += 1
        if done == len(jobs):
            return
        if self._pool is None:
            # Spawn the processes. Forked processes would inherit this process's open files, but not
            # its threads.
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=get_context("spawn"),
                initializer=_begin_process,
                initargs=(self._shared,),
            )
        futures = {
            self._pool.submit(_run_job, function, jobs[number]): number
            for number in range(done, len(jobs))
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def _is_worth_starting(self, count: int) -> bool:
        """Return whether processes would finish this many jobs sooner than this process would."""
        if self._pool is not None or self._count <= 1 or count <= 1:
            return self._pool is not None and count > 1
        if self._is_chosen:
            return True
        return (count - count / self._count) * (self._job_ns or 0) > START_NS


_shared: object = None


def _begin_process(shared: object) -> None:
    """Store the shared argument, and let interrupts end this process silently."""
    global _shared
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent process reports it


def _run_job(function: Callable[[Job, Any], Result], job: Job) -> Result:
    return function(job, _shared)
