"""Crashes of one change of a log: every state that a disk may be left in, at every operation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

from logstore.runtime import Runtime
from logstore.storage.log import Log
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Names,
    SimulatedCrash,
)
from tests.support.world.builders import World, memory_world

SEEDS = 2
"""Scattered contents and subsets of names, each, that are tried at every point."""


def crashes_of(
    prepare: Callable[[World], object], change: Callable[[Log], object], **config: object
) -> Iterator[tuple[str, World]]:
    """Crash in each operation of a change, and after the last; yield what may be left.

    Parameters
    ----------
    prepare : callable
        Makes the files of a log, all durable, and closes it.
    change : callable
        What is done to that log once it was opened again.

    Yields
    ------
    str, World
        `done` or the operation of the crash with its mode, and the directory.
    """
    origin = memory_world()
    prepare(origin)
    number, done = 1, False
    seen = set()
    while not done:
        fs = FaultyFileSystem(origin.clock, origin.fs)
        log = origin.log(runtime=Runtime(origin.clock, fs, random.Random(0)), **config)
        fs.crash_at(fs.operation_count + number)
        try:
            change(log)
            done = True
        except SimulatedCrash:
            pass
        for mode in modes(fs):
            image = fs.crash(mode)
            state = (
                done,
                tuple((path, each and each.read(0, each.size)) for path, each in image.walk()),
            )
            if state in seen:
                continue
            seen.add(state)
            what = "done" if done else f"crash at {fs.operations[-1]}, {mode}"
            runtime = Runtime(origin.clock, image, random.Random(0))
            yield what, World(runtime, origin.directory, origin.clock)
        number += 1


def modes(fs: FaultyFileSystem) -> Iterator[CrashMode]:
    """Yield what may become of the changes that wait for their sync."""
    contents = [(Contents.DROPPED, 0), (Contents.KEPT, 0)]
    contents += [(Contents.SCATTERED, seed) for seed in range(SEEDS if fs.pending_units else 0)]
    names = [(Names.UNDONE, 0, 0), (Names.KEPT, 0, 0)]
    names += [(Names.PREFIX, kept, 0) for kept in range(1, fs.pending_names)]
    names += [(Names.SUBSET, 0, seed) for seed in range(SEEDS if fs.pending_names > 1 else 0)]
    for (content, seed), (name, kept, other) in product(contents, names):
        yield CrashMode(content, name, names_kept=kept, seed=1000 * seed + other)
