"""Crashes of one change of a log: the states that each of its operations may leave on disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logstore.runtime import Runtime
from logstore.storage.log import Log
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from tests.support.world.builders import World, memory_world


@dataclass(frozen=True)
class Profile:
    """The effort at each crash point.

    Attributes
    ----------
    stride : int
        Try at most every n-th point.
    points : int
        Try about this many points, evenly spread; 0 is unlimited.
    cuts : int
        Number of bytes after which unsynced data are torn.
    seeds : int
        Number of scattered contents, and of subsets of names.
    all_deep : bool
        Check a second recovery and further use in all states, not only in the corners: contents
        dropped or kept, names undone or kept.
    recoveries : bool
        At the corners, crash at each operation of the recovery, too.
    """

    stride: int = 1
    points: int = 0
    cuts: int = 4
    seeds: int = 1
    all_deep: bool = False
    recoveries: bool = False


OF_CHANGES = Profile(cuts=0, seeds=2)


def crashes_of(
    prepare: Callable[[World], object], change: Callable[[Log], object], **config: object
) -> Iterator[tuple[str, World]]:
    """Crash in each operation of a change and after the last; yield the possible states.

    Parameters
    ----------
    prepare : callable
        Makes the files of a log, all durable, and closes it.
    change : callable
        Change of that log after it was opened again.

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
        for mode in modes(fs, OF_CHANGES):
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


def modes(fs: FaultyFileSystem, profile: Profile) -> Iterator[CrashMode]:
    """Yield the modes that can leave different states of `fs`."""
    units, names = fs.pending_units, fs.pending_names
    contents = [(Contents.DROPPED, 0, 0)]
    if units:
        contents += [(Contents.KEPT, 0, 0), (Contents.ZEROED, 0, 0)]
        contents += [(Contents.TORN, cut, 0) for cut in cuts(fs, profile)]
        contents += [(Contents.SCATTERED, 0, seed) for seed in range(profile.seeds)]
    directories = [(Names.UNDONE, 0, 0)]
    if names:
        directories += [(Names.KEPT, 0, 0)]
        directories += [(Names.PREFIX, kept, 0) for kept in range(1, names)]
        if names > 1:
            directories += [(Names.SUBSET, 0, seed) for seed in range(profile.seeds)]
    for how, cut, seed in contents:
        for what, kept, other_seed in directories:
            yield CrashMode(how, what, cut=cut, names_kept=kept, seed=seed * 1000 + other_seed)


def cuts(fs: FaultyFileSystem, profile: Profile) -> list[int]:
    """Return the units at which to tear: all of them if they are few."""
    units = fs.pending_units
    if units <= profile.cuts:
        return list(range(1, units))
    last = max(1, fs.operations[-1].size if fs.operations[-1].kind is Kind.WRITE else 1)
    # Most of them in the last write, which the crash interrupts.
    start = max(0, units - last)
    chosen = {start, start + 1, units - 1}
    step = max(1, (units - start) // max(1, profile.cuts // 2))
    chosen |= set(range(start, units, step))
    chosen |= set(range(1, start, max(1, start // max(1, profile.cuts // 2))))
    return sorted(cut for cut in chosen if 0 < cut < units)
