"""Partition directories after crashes, manual changes and old brokers, one function each.

Each returns the files of a directory and the settings to open it with. `CRAFTED` names all of them,
most by their scenario's number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from logstore.names import file_name
from logstore.runtime import Runtime
from logstore.storage.log import Log
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    World,
    abort,
    batch,
    commit,
    data_batch,
    fill,
    log_name,
    memory_world,
)

REPLICA = AppendOrigin.REPLICATION

SMALL: dict[str, object] = {"segment_bytes": 300, "index_interval_bytes": 0}
"""Four records a segment, and an index entry for each but the first."""

FAR = 2**31
"""The first offset, relative to a base, that its segment cannot hold."""

Files = dict[str, bytes]


@dataclass(frozen=True)
class Crafted:
    """The files of a directory, its checkpoints, and the topic's config."""

    files: Files
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    config: Mapping[str, object] = field(default_factory=dict)

    def open(self, world: World, runtime: Runtime | None = None, **other: object) -> Log:
        """Open the directory, which has been written before."""
        options: dict[str, object] = {
            "clean": self.clean,
            "recovery_point": self.recovery_point,
            "log_start_offset": self.log_start_offset,
        }
        return world.log(runtime=runtime, **(options | other), **self.config)

    def put(self, world: World) -> None:
        """Replace the world's directory by these files."""
        world.put(self.files)


CRAFTED: dict[str, Callable[[], Crafted]] = {}


def _named(name: str) -> Callable[[Callable[[], Crafted]], Callable[[], Crafted]]:
    def register(craft: Callable[[], Crafted]) -> Callable[[], Crafted]:
        CRAFTED[name] = craft
        return craft

    return register


def closed(count: int, **config: object) -> Files:
    """Return the files of a log with so many records, closed cleanly."""
    world = memory_world()
    log = world.log(**config)
    fill(log, count)
    log.close()
    return world.files()


def bases_of(files: Files) -> list[int]:
    """Return the base offsets of the segments among these files."""
    return [int(name[:20]) for name in files if name.endswith(".log")]


def without(files: Files, *suffixes: str) -> Files:
    """Return the files except those with these suffixes."""
    return {name: data for name, data in files.items() if not name.endswith(suffixes)}


def suffixed(files: Files, suffix: str) -> Files:
    """Return the files under names that end so."""
    return {name + suffix: data for name, data in files.items()}


def segment_files(base_offset: int, *batches: bytes) -> Files:
    """Return a segment as a trimmed one that was never indexed."""
    return {
        log_name(base_offset): b"".join(batches),
        file_name(base_offset, ".index"): b"",
        file_name(base_offset, ".timeindex"): b"",
    }


# -- indexes ---------------------------------------------------------------------------------


@_named("S-129")
def index_orphans() -> Crafted:
    orphans = ((0, ".index"), (5, ".index"), (5, ".timeindex"))
    return Crafted({file_name(base, kind): bytes(24) for base, kind in orphans})


@_named("S-130")
def indexes_lost() -> Crafted:
    return Crafted(without(closed(200, **SMALL), ".index", ".timeindex"), config=SMALL)


@_named("S-131")
def time_indexes_lost() -> Crafted:
    return Crafted(without(closed(20, **SMALL), ".timeindex"), clean=True, config=SMALL)


@_named("S-132")
def one_index_lost() -> Crafted:
    files = closed(20, **SMALL)
    return Crafted(
        without(files, file_name(bases_of(files)[1], ".index")), clean=True, config=SMALL
    )


@_named("S-133")
def indexes_of_noise() -> Crafted:
    rng = random.Random(1)
    files = closed(30, **SMALL)
    noise = {name: rng.randbytes(96) for name in files if name.endswith("index")}
    return Crafted(files | noise, config=SMALL)


@_named("S-134")
def verified_from_the_tenth() -> Crafted:
    return Crafted(closed(100, **SMALL), recovery_point=10, config=SMALL)


@_named("S-135")
def cut_below_the_log_start() -> Crafted:
    world = memory_world()
    log = world.log()
    for offset in range(5):
        fill(log, 1, offset)
        log.writer.roll()
    log.close()
    files = world.files()
    return Crafted(files | {log_name(1): files[log_name(1)] + b"garbage"}, log_start_offset=4)


# -- leftovers -------------------------------------------------------------------------------


@_named("S-136")
def leftovers_of_a_cleaning() -> Crafted:
    deleted = {file_name(90, kind): b"x" for kind in (".log", ".index", ".txnindex", ".snapshot")}
    cleaned = segment_files(0, batch(1), batch(4))
    files = closed(20, **SMALL)
    files |= suffixed(cleaned, ".cleaned") | suffixed(deleted, ".deleted")
    return Crafted(files, clean=True, config=SMALL)


@_named("a swap to be finished")
def swap_to_be_finished() -> Crafted:
    swap = suffixed(segment_files(0, batch(1), batch(6)), ".swap")
    return Crafted(closed(20, **SMALL) | swap, clean=True, config=SMALL)


# -- offsets beyond the capacity of a segment --------------------------------------------------


def overflowed(*, aborted: bool = False, tail: bytes = b"") -> Files:
    """Return a segment whose offsets need three, and the following one."""
    batches = [batch(0, 1), batch(5), batch(FAR + 5, FAR + 6), batch(FAR + 9), batch(3 * FAR)]
    if aborted:
        batches[1] = data_batch(5, 6, 7)
        batches[3] = abort(FAR + 9, 7)
    files = segment_files(0, *batches, tail)
    if aborted:
        numbers = ((0, 2), (7, 8), (5, 8), (FAR + 9, 8), (FAR + 10, 8))
        entry = b"".join(number.to_bytes(size, "big") for number, size in numbers)
        files[file_name(0, ".txnindex")] = entry
    return files | segment_files(4 * FAR, batch(4 * FAR), batch(4 * FAR + 1))


SPLIT_BASES = [0, FAR + 5, 3 * FAR, 4 * FAR]
SPLIT_OFFSETS = [0, 1, 5, FAR + 5, FAR + 6, FAR + 9, 3 * FAR, 4 * FAR, 4 * FAR + 1]


def overflowed_from_the_start(base: int = 0) -> Files:
    """Return a segment whose batches are all too far above its base."""
    return segment_files(base, *(batch(base + FAR + step) for step in (5, 6, 9)))


def phases_of_split(files: Files, base: int = 0) -> list[Files]:
    """Return the states after crashes of a load that splits the segment of this base, in order."""
    world = memory_world()
    world.put(files)
    world.log(index_interval_bytes=0).close()
    others = tuple(f"{other:020d}" for other in bases_of(files) if other != base)
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    split = {n: data for n, data in world.files(*kinds).items() if not n.startswith(others)}
    old = {name: data for name, data in files.items() if name.startswith(f"{base:020d}")}
    rest = {name: data for name, data in files.items() if name not in old}
    bases = bases_of(split)

    def state(new_base: int, suffix: str) -> Files:
        own = {n: data for n, data in split.items() if n.startswith(f"{new_base:020d}")}
        return suffixed(own, suffix)

    phases = []
    for swapped in range(len(bases) + 1):  # the highest first
        new: Files = {}
        for place, each in enumerate(bases):
            new |= state(each, ".cleaned" if place < len(bases) - swapped else ".swap")
        phases.append(rest | old | new)
    for final in range(len(bases) + 1):  # the lowest first
        new = {}
        for place, each in enumerate(bases):
            new |= state(each, "" if place < final else ".swap")
        phases.append(rest | suffixed(old, ".deleted") | new)
    return phases


@_named("S-137")
def split_with_cleaned_files_only() -> Crafted:
    return Crafted(phases_of_split(overflowed())[0])


@_named("S-138, phase 4")
def split_swapped() -> Crafted:
    return Crafted(phases_of_split(overflowed())[4])


@_named("S-138, phase 5")
def split_with_one_final() -> Crafted:
    return Crafted(phases_of_split(overflowed())[5])


@_named("S-139")
def overflow() -> Crafted:
    return Crafted(overflowed(aborted=True))


@_named("S-139, closed cleanly")
def overflow_closed() -> Crafted:
    return Crafted(overflowed(aborted=True), clean=True)


@_named("S-139, torn and followed")
def overflow_torn() -> Crafted:
    return Crafted(overflowed(aborted=True, tail=batch(3 * FAR + 1)[:-1]))


@_named("S-140")
def overflow_from_the_start() -> Crafted:
    return Crafted(overflowed_from_the_start())


@_named("an overflow into the next segment")
def overflow_into_the_next() -> Crafted:
    files = segment_files(0, batch(0), batch(FAR + 5), batch(FAR + 6))
    return Crafted(files | segment_files(FAR + 5, batch(FAR + 5), batch(FAR + 7)), clean=True)


@_named("S-141")
def wide_gaps() -> Crafted:
    world = memory_world()
    log = world.log()
    for offset in (0, FAR + 1, FAR + 2, 2 * FAR + 2):
        log.writer.append_batches(batch(offset), REPLICA)
    log.close()
    return Crafted(world.files())


# -- derived from batches ----------------------------------------------------------------------


@_named("S-142")
def coordinator_epoch_going_back() -> Crafted:
    world = memory_world()
    now = {"timestamp": world.clock.now_ms()}
    log = world.log()
    first = data_batch(0, 1, 7, epoch=2, **now) + commit(2, 7, epoch=2, coordinator_epoch=9, **now)
    second = data_batch(3, 3, 7, epoch=2, sequence=2, **now)
    log.writer.append_batches(
        first + second + commit(4, 7, epoch=2, coordinator_epoch=4, **now), REPLICA
    )
    log.close()
    return Crafted(without(world.files(), ".snapshot"))


@_named("S-143")
def epochs_lost() -> Crafted:
    world = memory_world()
    log = world.log(**SMALL)
    for offset in range(12):
        log.writer.append_batches(batch(offset, leader_epoch=offset // 3 * 2), REPLICA)
    log.close()
    return Crafted(world.files() | {"leader-epoch-checkpoint": b"0\n0\n"}, config=SMALL)


@_named("epochs damaged")
def epochs_damaged() -> Crafted:
    return Crafted(epochs_lost().files | {"leader-epoch-checkpoint": b"0\n1\n5 x\n"}, config=SMALL)


@_named("snapshots damaged")
def snapshots_damaged() -> Crafted:
    files = coordinator_epoch_going_back().files
    return Crafted(files | {file_name(5, ".snapshot"): b"junk"}, clean=True)


@_named("S-144")
def untouched_active_segment() -> Crafted:
    world = memory_world()
    log = world.log()
    fill(log, 2)
    log.writer.roll()
    return Crafted(world.files())


# -- others ----------------------------------------------------------------------------------


@_named("S-146")
def data_lost() -> Crafted:
    return Crafted(closed(3), recovery_point=1000)


@_named("S-147")
def log_start_inside() -> Crafted:
    return Crafted(closed(20, **SMALL), clean=True, log_start_offset=7, config=SMALL)


@_named("a log start that was never reached")
def log_start_beyond_the_end() -> Crafted:
    return Crafted(closed(20, **SMALL), clean=True, log_start_offset=1_000_000, config=SMALL)


@_named("S-148")
def damage_in_a_clean_log() -> Crafted:
    files = closed(3)
    data = bytearray(files[log_name(0)])
    data[70] ^= 1
    return Crafted(files | {log_name(0): bytes(data)}, clean=True)


@_named("a torn end of a clean log")
def torn_end() -> Crafted:
    files = closed(20, **SMALL)
    torn = log_name(bases_of(files)[-1])
    return Crafted(files | {torn: files[torn][:-5]}, clean=True, config=SMALL)


@_named("a damaged length in a clean log")
def damaged_length() -> Crafted:
    files = closed(20)
    data = files[log_name(0)]
    at = data.index((15).to_bytes(8))  # the base offset of a batch
    return Crafted(
        files | {log_name(0): data[: at + 8] + (1 << 20).to_bytes(4) + data[at + 12 :]}, clean=True
    )


@_named("a damaged batch in the middle")
def damage_in_the_middle() -> Crafted:
    files = closed(20, **SMALL)
    victim = log_name(bases_of(files)[1])
    data = bytearray(files[victim])
    data[100] ^= 1
    return Crafted(files | {victim: bytes(data)}, config=SMALL)


@_named("overlapping segments")
def overlapping() -> Crafted:
    low, high = range(8), range(5, 9)
    files = segment_files(0, *map(batch, low)) | segment_files(5, *map(batch, high))
    return Crafted(files)


@_named("a segment that reaches beyond the active one")
def reaching_beyond_the_end() -> Crafted:
    low, high = range(8), range(5, 7)
    files = segment_files(0, *map(batch, low)) | segment_files(5, *map(batch, high))
    return Crafted(files)


@_named("foreign files")
def foreign_files() -> Crafted:
    return Crafted(closed(20, **SMALL) | FOREIGN, clean=False, config=SMALL)


FOREIGN: Files = dict.fromkeys(
    (
        "README",
        "x.log",
        "00001.log",
        "00001.index",
        "00002.snapshot",
        "00003.log.deleted",
        "99999999999999999999.log",
        "00000000000000000003.log.bak",
        "00000000000000000003.log~",
        "notes.deleted",
        "notes.cleaned",
        "y.log.swap",
        "leader-epoch-checkpoint.tmp",
        "leader-epoch-checkpoint.deleted",
        "partition.metadata",
        "partition.metadata.tmp",
        ".DS_Store",
    ),
    b"?",
)
