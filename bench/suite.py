"""All lines of the harness in their order, and how those that are wanted are run."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Sequence

from logstore import jit
from logstore.bench.micro import (
    clean_lines,
    coding,
    doors,
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
    """Return every job, in the order of the table."""
    parts = (
        *(clean_lines, in_memory, resources, doors, coding, key_map, starting, idle),
        *(simulations, limits),
    )
    return [job for part in parts for job in part.jobs()]


def chosen(only: Sequence[str], *, full: bool) -> list[Job]:
    """Return the jobs with a line that a pattern of `only` names; without one, the set's.

    Raises
    ------
    LookupError
        A pattern names no line; the message lists all.
    """
    jobs = all_jobs()
    if not only:
        return [job for job in jobs if full or job.is_quick]
    names = [name for job in jobs for name in job.names]
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            raise LookupError(f"no line {pattern!r}; there are: {', '.join(names)}")
    return [job for job in jobs if any(fnmatch.filter(job.names, each) for each in only)]


def measure(jobs: Sequence[Job], setting: Setting) -> Iterator[Line]:
    """Run jobs one after another."""
    # Logs made here are not closed; warnings about that are of no use.
    logger = logging.getLogger("logstore")
    before, logger.level = logger.level, logging.ERROR
    try:
        for job in jobs:
            yield from job.run(setting)
    finally:
        logger.setLevel(before)


def run(jobs: Sequence[Job], setting: Setting, *, kind: str) -> Result:
    """Run jobs and return their result; peers are left running."""
    jit.compile_always()  # what is measured is what runs when there is much to do
    watch = RunTimer()
    lines = []
    for line in measure(jobs, setting):
        setting.say(short(line))
        lines.append(line)
    facts = watch.facts()
    facts["versions"] |= setting.kafka_versions
    return Result(kind=kind, lines=lines, **facts)
