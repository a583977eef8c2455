"""Crashes and failures at every operation of a scenario.

`enumerate_crashes` counts the operations of a scenario, then crashes at each and builds every state
that the file system may be left in: contents dropped, kept, torn, zeroed or scattered; renames
undone, kept or partial. Each state is verified by `check`, opened for writing, judged
(`judge.check_broker`), opened again after a second crash, crashed during its recovery, and used
further. `enumerate_failures` makes each operation fail instead.
"""

from __future__ import annotations

import copy
import errno
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from logstore.broker import Broker
from logstore.errors import LogStoreError
from logstore.names import LEADER_EPOCHS
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from tests.crash.journal import DATA_DIR, OTHER_DIR, Journal, found_in, offsets, open_broker
from tests.crash.judge import check_broker, errors_in
from tests.crash.session import Session, SessionEnd
from tests.support.world.crashes import Profile, modes

KEPT = CrashMode(Contents.KEPT, Names.KEPT)
DROPPED = CrashMode(Contents.DROPPED, Names.UNDONE)


NO_EPOCHS = b"0\n0\n"
"""An epoch file without entries."""


class Scenario(Protocol):
    """Drives a session from an empty disk."""

    __name__: str

    def __call__(self, session: Session) -> None: ...


BOUNDED = Profile(stride=3, points=6, cuts=2)
FULL = Profile(cuts=100, seeds=6, all_deep=True, recoveries=True)
OF_RECOVERIES = Profile(cuts=1)

CORNERS = {
    (contents, names)
    for contents in (Contents.DROPPED, Contents.KEPT)
    for names in (Names.UNDONE, Names.KEPT)
}


@dataclass
class Tally:
    """Number of states and failures that were tried."""

    points: int = 0
    states: int = 0
    distinct: int = 0
    recovery_points: int = 0
    recovery_states: int = 0
    failures: int = 0
    seen: set[tuple[object, ...]] = field(default_factory=set, repr=False)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.points + other.points,
            self.states + other.states,
            self.distinct + other.distinct,
            self.recovery_points + other.recovery_points,
            self.recovery_states + other.recovery_states,
            self.failures + other.failures,
        )


class WatchedFileSystem(FaultyFileSystem):
    """A file system that calls back at each possible crash point."""

    def __init__(self, clock: VirtualClock, look: Callable[[FaultyFileSystem], None]) -> None:
        super().__init__(clock)
        self._look = look

    def _end(self) -> None:
        self._look(self)


def run(scenario: Scenario, *, crash_at: int | None = None) -> tuple[FaultyFileSystem, Journal]:
    """Run a scenario, to its end or to the crash; return the disk and the journal of then."""
    journal = Journal()
    fs = FaultyFileSystem(journal.clock)
    if crash_at is None:
        scenario(Session(fs, journal))
        return fs, journal
    fs.crash_at(crash_at)
    try:
        scenario(Session(fs, journal))
    except SimulatedCrash:
        return fs, journal
    raise AssertionError(f"operation {crash_at} did not come, or its crash was swallowed")


def enumerate_crashes(scenario: Scenario, profile: Profile = BOUNDED) -> Tally:
    """Crash at each operation in each mode, and judge the remaining state.

    One run visits all points: the state after a crash is built while the run is paused there.

    Raises
    ------
    AssertionError
        Names operation and mode; `reproduce` builds that state again.
    """
    whole, reference = run(scenario)
    operations = whole.operation_count + 1 - reference.first_operation
    stride = max(profile.stride, stride_for(operations, profile.points))
    points = range(reference.first_operation, whole.operation_count + 1, stride)
    tally = Tally()
    journal = Journal()
    failures: list[AssertionError] = []

    def look(fs: FaultyFileSystem) -> None:
        # Collect failures, since the paused engine might handle an exception raised here.
        if fs.operation_count not in points or failures:
            return
        tally.points += 1
        for mode in modes(fs, profile):
            tally.states += 1
            image = fs.crash(mode)
            key = (fingerprint(image), journal.state)
            if key in tally.seen:
                continue
            tally.seen.add(key)
            tally.distinct += 1
            try:
                judge(image, mode, journal, reference, profile, tally)
            except Exception as error:
                what = f"{scenario.__name__}, crash at {fs.operations[-1]}, {mode}: {error!r}"
                failures.append(AssertionError(what))
                failures[0].__cause__ = error
                return

    scenario(Session(WatchedFileSystem(journal.clock, look), journal))
    if failures:
        raise failures[0]
    assert tally.points == len(points)
    return tally


def stride_for(count: int, points: int) -> int:
    """Return the step that tries about `points` of a number of items; 1 if `points` is 0."""
    return max(1, -(-count // points)) if points else 1


def reproduce(
    scenario: Scenario, number: int, mode: CrashMode
) -> tuple[MemoryFileSystem, Journal, Journal]:
    """Return the image of one crash, its journal and the whole run's, for debugging."""
    _, reference = run(scenario)
    fs, journal = run(scenario, crash_at=number)
    return fs.crash(mode), journal, reference


def judge(
    image: MemoryFileSystem,
    mode: CrashMode,
    journal: Journal,
    reference: Journal,
    profile: Profile,
    tally: Tally,
) -> None:
    """Open a state for writing, check it, and see that recovery is complete."""
    at_corner = (mode.contents, mode.names) in CORNERS
    errors = errors_in(image, journal)
    journal = copy.deepcopy(journal)
    fs = FaultyFileSystem(journal.clock, image)
    broker = open_broker(fs, journal.clock)
    check_broker(broker, journal, reference)
    assert not errors, f"check: {errors}"
    result = found_in(broker)
    if profile.recoveries and at_corner:
        check_crashes_of_recovery(image, result, journal, reference, tally)
    if profile.all_deep or at_corner:
        check_second_recovery(fs, result, journal, reference)
        check_further_use(broker, fs, journal, reference)


def check_second_recovery(
    fs: FaultyFileSystem, result: dict, journal: Journal, reference: Journal
) -> None:
    """Assert that recovered data stays, and that a second recovery changes nothing."""
    was_clean = any(op.path.endswith(CLEAN_SHUTDOWN) for op in fs.operations)
    for mode in (KEPT, DROPPED):
        image = fs.crash(mode)
        # After a clean stop nothing has been recovered yet: the next start recovers first.
        for must_be_same in (False, True) if mode is KEPT and was_clean else (mode is KEPT,):
            again = FaultyFileSystem(journal.clock, image)
            broker = open_broker(again, journal.clock)
            check_broker(broker, journal, reference)
            assert_same(found_in(broker), result, "a second recovery changed the contents")
            before, image = image, again.crash(KEPT)
            if must_be_same:
                now, then = files(image), files(before)
                unsettled = unsettled_epochs(result, now, then)
                now, then = without(now, unsettled), without(then, unsettled)
                assert_same(now, then, "a second recovery changed files")


def unsettled_epochs(result: dict, now: dict, then: dict) -> set[str]:
    """Return the epoch files that a second start may change, as Kafka's does.

    A start drops epochs that begin at or beyond the log end before it moves the oldest to the log
    start. So it forgets the epoch of an empty log, or one written for a log start that was lost,
    and the next start learns it from the batches.
    """
    paths = {
        f"{directory}/{tp}/{LEADER_EPOCHS}": log
        for directory in (DATA_DIR, OTHER_DIR)
        for tp, log in result.items()
    }
    return {
        path
        for path, log in paths.items()
        if log.log_start_offset == log.log_end_offset
        or NO_EPOCHS in (now.get(path, (0, b""))[1], then.get(path, (0, b""))[1])
    }


def without(there: dict, paths: set[str]) -> dict:
    return {path: contents for path, contents in there.items() if path not in paths}


def check_crashes_of_recovery(
    image: MemoryFileSystem, result: dict, journal: Journal, reference: Journal, tally: Tally
) -> None:
    """Crash at each operation of a recovery; the next recovery must have the same result."""
    number = 1
    while True:
        fs = FaultyFileSystem(journal.clock, image)
        fs.crash_at(number)
        try:
            open_broker(fs, journal.clock)
        except SimulatedCrash:
            tally.recovery_points += 1
        else:
            return
        for mode in modes(fs, OF_RECOVERIES):
            left = fs.crash(mode)
            tally.recovery_states += 1
            key = (fingerprint(left), journal.state, "recovery")
            if key in tally.seen:
                continue
            tally.seen.add(key)
            what = f"a recovery that crashed at {fs.operations[-1]}, {mode},"
            try:
                errors = errors_in(left, journal)
                broker = open_broker(FaultyFileSystem(journal.clock, left), journal.clock)
                check_broker(broker, journal, reference)
                assert not errors, f"check: {errors}"
            except Exception as error:
                raise AssertionError(f"{what} left: {error!r}") from error
            assert_same(found_in(broker), result, f"{what} came to another end")
        number += 1


def check_further_use(
    broker: Broker, fs: FaultyFileSystem, journal: Journal, reference: Journal
) -> None:
    """Append, flush and crash once more: records that recovery dropped do not reappear.

    A topic that does not exist can be created and is empty; after the delay, deleted files are
    removed.
    """
    names = journal.tried_topics.keys() | journal.deleted
    session = Session(fs, journal)
    session.use(broker)
    # The new records replace the lost ones.
    journal.settle(broker)
    for name in sorted(names - {topic.name for topic in broker.topics()}):
        session.create_topic(name)
        log = broker.log(name)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0), f"{name} is not new"
    for topic in broker.topics():
        session.append((b"later", b"x" * 20), topic=topic.name)
        session.append((b"later still", b"y"), topic=topic.name)
        session.flush(topic.name)
    session.delete_expired_files()
    left = [path for path in files(fs.crash(KEPT)) if path.endswith((".deleted", "-delete"))]
    assert not left, f"not removed: {left}"
    for mode in (DROPPED, KEPT):
        again = FaultyFileSystem(journal.clock, fs.crash(mode))
        check_broker(open_broker(again, journal.clock), journal, reference)


def assert_same(result: dict, expected: dict, what: str) -> None:
    for tp in expected.keys() | result.keys():
        assert result.get(tp) == expected.get(tp), (
            f"{what}: {result.get(tp)}, was {expected.get(tp)}"
        )


# --- failures -----------------------------------------------------------------------------------


def enumerate_failures(scenario: Scenario, *, points: int = 0, go_on: bool = False) -> Tally:
    """Make each operation fail once with EIO, ENOSPC and, for writes, a short write.

    Each failure must surface as a storage error that names a file unless the scenario succeeds;
    acknowledged records must be in the log afterwards.

    Parameters
    ----------
    points : int
        Try about so many failures, spread over all operations and ways to fail; 0 is all.
    go_on : bool
        Try the rest of the scenario after the failure.
    """
    whole, reference = run(scenario)
    tally = Tally()
    ways = [
        (operation, code, written)
        for operation in whole.operations[reference.first_operation - 1 :]
        for code, written in failures_of(operation.kind, operation.size)
    ]
    for operation, code, written in ways[:: stride_for(len(ways), points)]:
        tally.points += 1
        try:
            check_failure(scenario, operation.number, code, written, reference, go_on=go_on)
        except Exception as error:
            raise AssertionError(
                f"{scenario.__name__}, {operation} fails with {errno.errorcode[code]}"
                f" after {written} bytes: {error!r}"
            ) from error
        tally.failures += 1
    return tally


def failures_of(kind: Kind, size: int) -> Iterator[tuple[int, int]]:
    yield errno.EIO, 0
    if kind in {Kind.CREATE, Kind.WRITE, Kind.MAKE_DIR, Kind.TRUNCATE, Kind.RENAME}:
        yield errno.ENOSPC, 0
    if kind is Kind.WRITE:
        for written in sorted({1, size // 2, size - 1} - {0}):
            yield errno.ENOSPC, written


def check_failure(
    scenario: Scenario,
    number: int,
    code: int,
    written: int,
    reference: Journal,
    *,
    go_on: bool,
) -> None:
    journal = Journal()
    fs = FaultyFileSystem(journal.clock)
    fault = fs.fail("change", error=code, nth=number, written=written)
    session = Session(fs, journal, go_on=go_on, failing=number)
    surfaced: Exception | None = None
    try:
        scenario(session)
    except SessionEnd:
        pass
    except (LogStoreError, OSError) as error:
        surfaced = error
    assert surfaced is None or surfaced in journal.failures, f"no storage error: {surfaced!r}"
    assert fault.hits == 1
    failed = fs.operations[number - 1]
    for error in journal.failures[:1]:
        assert failed.path in str(error), f"does not name {failed.path}: {error!r}"
    fs.faults.clear()
    if journal.failures and session.open_broker is not None:
        check_readable(session.open_broker, journal)
    for mode in (KEPT, DROPPED):
        left = FaultyFileSystem(journal.clock, fs.crash(mode))
        check_broker(open_broker(left, journal.clock), journal, reference)


def check_readable(broker: Broker, journal: Journal) -> None:
    """Assert that a broker whose disk failed once shows only acknowledged records."""
    for tp, partition in journal.partitions.items():
        for log in broker.manager.registry.open_logs():
            if log.topic_partition == tp and not log.is_offline and not partition.is_cleaning:
                there = offsets(log)
                assert there == partition.present, f"{there} is not {partition.present}"


# --- files --------------------------------------------------------------------------------------


def files(image: MemoryFileSystem) -> dict[str, tuple[int, bytes] | None]:
    """Return length and written bytes of every file; None for directories."""
    return {
        path: None if contents is None else (contents.size, contents.read(0, contents.written))
        for path, contents in image.walk()
    }


def fingerprint(image: MemoryFileSystem) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path, contents in sorted(files(image).items()):
        digest.update(path.encode() + b"\0")
        if contents is not None:
            size, data = contents
            # All files of zeros are equal, whatever their writes.
            stripped = data.rstrip(b"\0")
            digest.update(f"{size} {len(stripped)} ".encode() + stripped)
    return digest.digest()
