"""All lines of the harness in order, and how to select and run them."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Sequence

from logstore import jit
from logstore.bench.micro import (
    broker_calls,
    clean_lines,
    coding,
    default_calls,
    growth,
    idle,
    in_memory,
    key_map,
    limits,
    resources,
    simulations,
    starting,
)
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.machine import RunTimer
from logstore.bench.report.result import Line, Result
from logstore.bench.report.terminal import short


def all_jobs() -> list[Job]:
    """Return every job in table order."""
    parts = (
        *(clean_lines, in_memory, resources, default_calls, broker_calls, coding, key_map),
        *(starting, idle, growth, simulations, limits),
    )
    return [job for part in parts for job in part.jobs()]


def select_jobs(only: Sequence[str], *, full: bool) -> list[Job]:
    """Return the jobs with lines that match a pattern, or a whole set without patterns.

    Raises
    ------
    LookupError
        A pattern matches no line. The message lists all lines.
    """
    jobs = all_jobs()
    if not only:
        return [job for job in jobs if full or job.is_quick]
    names = [name for job in jobs for name in job.names]
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            raise LookupError(f"no line matches {pattern!r}; the lines are: {', '.join(names)}")
    return [job for job in jobs if any(fnmatch.filter(job.names, each) for each in only)]


def measure(jobs: Sequence[Job], setting: Setting) -> Iterator[Line]:
    """Run jobs one after another."""
    # Suppress the warnings about benchmark logs that are not closed.
    logger = logging.getLogger("logstore")
    before, logger.level = logger.level, logging.ERROR
    try:
        for job in jobs:
            yield from job.run(setting)
    finally:
        logger.setLevel(before)


def run(jobs: Sequence[Job], setting: Setting, *, kind: str) -> Result:
    """Run jobs and return their result. Peers keep running."""
    jit.compile_always()  # measure compiled code, which large work uses
    watch = RunTimer()
    lines = []
    for line in measure(jobs, setting):
        setting.report(short(line))
        lines.append(line)
    facts = watch.facts()
    facts["versions"] |= setting.kafka_versions
    return Result(kind=kind, lines=lines, **facts)
