"""Fuzz targets for the offline verifier: any bytes in any file give findings, never an exception.

Each finding must be of a known check, lie in a file that is there, at a position inside it. Where
no error is found in a `.log`, recovery must keep all of it and a reader must read all of it.
"""

from __future__ import annotations

import json

from logstore.config.overrides import ReadLimits
from logstore.inspect.check import CHECKS, ERROR, INFO, WARNING, Checker, CheckFinding
from logstore.runtime import ReadOnlyFileSystem
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from tests.fuzz import oracle, seeds
from tests.fuzz.contract import LIMIT, OK, Target
from tests.fuzz.log_targets import LOG, SOUND, SOUND_BASE, index_name, readable, recoverable
from tests.support.world.builders import World, memory_world

OPEN, CLOSED = False, True
EPOCHS = b"0\n1\n0 0\n"
SMALL_FILES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "logstore-topics.json",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
)
INDEXES = (".index", ".timeindex", ".txnindex")


def directory_of(files: dict[str, bytes], *, closed: bool) -> World:
    """Make a data directory of one partition; names are relative to it."""
    world = memory_world()
    if closed:
        files = {**files, CLEAN_SHUTDOWN: b"{}"}
    for name, data in files.items():
        file = world.fs.open(f"/data/{name}", create=True)
        file.truncate(0)
        file.append([data])
        file.close()
    return world


def verify(world: World, path: str = "/data") -> list[CheckFinding]:
    """Verify a directory; judge every finding for itself."""
    checker = Checker(ReadOnlyFileSystem(world.fs), limits=ReadLimits(LIMIT))
    found = list(checker.path(path))
    for each in found:
        assert each.check in CHECKS, each
        assert each.severity in (ERROR, WARNING, INFO), each
        json.dumps(each)
        if each.position is not None:
            assert 0 <= each.position <= world.fs.stat(each.path).size, each
    assert found == list(Checker(world.fs, limits=ReadLimits(LIMIT)).path(path))
    return found


def outcome_of(found: list[CheckFinding]) -> str:
    """Name the gravest thing found."""
    severities = {each.severity for each in found}
    return next((each for each in (ERROR, WARNING, INFO) if each in severities), OK)


def check_log(data: bytes) -> str:
    """A `.log` alone, after a clean stop and after another."""
    found = {}
    for closed in (CLOSED, OPEN):
        files = {LOG: data, index_name(0): b"", f"{0:020d}.timeindex": b""}
        world = directory_of(
            {
                **{f"t-0/{name}": each for name, each in files.items()},
                "t-0/leader-epoch-checkpoint": EPOCHS,
            },
            closed=closed,
        )
        found[closed] = verify(world)
    if any(each.severity == ERROR for each in found[CLOSED]):
        return ERROR
    kept = recoverable(data)
    assert not kept.refused, "nothing was found in what recovery refuses"
    assert kept.size == len(data), f"nothing was found, but recovery cuts at {kept.size}"
    batches = oracle.walk(data, is_file=True).batches
    assert not readable(batches).damaged, "nothing was found, but a reader meets damage"
    return outcome_of(found[CLOSED])


def check_log_among_others(data: bytes) -> str:
    """A `.log` with valid indexes, snapshot and following segment: these stay valid."""
    files = {f"t-0/{name}": each for name, each in SOUND.items()}
    world = directory_of({**files, f"t-0/{LOG}": data}, closed=CLOSED)
    found = verify(world)
    for name in SOUND:
        if name.startswith(f"{SOUND_BASE:020d}.") and not name.endswith(".snapshot"):
            wrong = [each for each in found if each.path.endswith(name)]
            assert all(each.severity != ERROR for each in wrong), wrong
    return outcome_of(found)


def check_index(data: bytes) -> str:
    """An index next to a valid log: all findings are in the index."""
    kind = INDEXES[(data[0] if data else 0) % 3]
    name = f"t-0/{0:020d}{kind}"
    files = {f"t-0/{each}": content for each, content in SOUND.items()}
    world = directory_of({**files, name: data[1:]}, closed=CLOSED)
    found = verify(world)
    assert {each.path for each in found} <= {f"/data/{name}"}
    assert verify(world, f"/data/{name}") == found
    return outcome_of(found)


def check_snapshot(data: bytes) -> str:
    """A producer snapshot next to a valid log."""
    name = f"t-0/{SOUND_BASE:020d}.snapshot"
    files = {f"t-0/{each}": content for each, content in SOUND.items()}
    world = directory_of({**files, name: data}, closed=CLOSED)
    found = verify(world)
    assert {each.path for each in found} <= {f"/data/{name}"}
    return outcome_of(found)


def check_small_file(data: bytes) -> str:
    """Any small file of a data directory or of a partition."""
    name = SMALL_FILES[(data[0] if data else 0) % len(SMALL_FILES)]
    files = {f"t-0/{each}": content for each, content in SOUND.items()}
    world = directory_of({**files, name: data[1:]}, closed=CLOSED)
    found = verify(world)
    verify(world, f"/data/{name}")
    return outcome_of(found)


def small_files() -> list[bytes]:
    """Every kind of small file behind the byte that chooses it."""
    contents = (
        *((number, data) for number in range(4) for data in seeds.offset_checkpoints()),
        *((4, data) for data in seeds.topics_files()),
        *((5, data) for data in seeds.epoch_checkpoints()),
        *((6, data) for data in seeds.metadata_files()),
    )
    return [bytes([number]) + data for number, data in contents]


TARGETS = {
    "check_log": Target(check_log, "batches", seeds.logs, 2),
    "check_log_among_others": Target(check_log_among_others, "batches", seeds.logs, 2),
    "check_index": Target(check_index, "entries", seeds.indexes, 2),
    "check_snapshot": Target(check_snapshot, "snapshot", seeds.snapshots, 1),
    "check_small_file": Target(check_small_file, "text", small_files, 2),
}
