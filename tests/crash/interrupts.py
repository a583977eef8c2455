"""Interrupts at every operation of a scenario: Ctrl-C, or a timeout, in the middle of a step.

The broker remains open. Each disk operation is interrupted once before and once after it, and
optionally again while the log recovers. The broker is then judged like a reopened one. The rest of
the scenario must succeed on it, and a broker that is opened afterwards must have the same contents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logstore.broker import Broker
from logstore.runtime import VirtualClock
from logstore.testing import FaultyFileSystem, Kind
from tests.crash.harness import DROPPED, KEPT, Scenario, stride_for
from tests.crash.journal import Journal, Partition, checkpoint_of, found_in, open_broker, stored
from tests.crash.judge import check_broker, check_contents, check_topics
from tests.crash.session import Session


class Interrupt(BaseException):
    """An interrupt, as `KeyboardInterrupt` is one."""


class TestTimeout(TimeoutError):
    """A timeout error of a signal handler: an `OSError` that the disk did not cause."""

    __test__ = False


@dataclass(frozen=True)
class Blow:
    """One interrupt.

    Attributes
    ----------
    number : int
        The operation that is interrupted, counted in steps that change a log; 0 for none.
    before : bool
        Whether the interrupt comes before the operation, which is then not done.
    again : int
        Number of operations until a second interrupt; 0 for none.
    kind : type
        The exception raised.
    """

    number: int = 0
    before: bool = True
    again: int = 0
    kind: type[BaseException] = Interrupt


class InterruptedFileSystem(FaultyFileSystem):
    """A file system that interrupts the program at one of its operations.

    Attributes
    ----------
    is_armed : bool
        Whether operations are counted now.
    count : int
        Changing operations counted so far.
    hits : int
        Interrupts raised so far.
    """

    def __init__(self, clock: VirtualClock, blow: Blow) -> None:
        super().__init__(clock)
        self._blow = blow
        self._numbers = {blow.number, blow.number + blow.again} - {0}
        self.is_armed = False
        self.count = 0
        self.hits = 0

    def _strike(self) -> None:
        if self.is_armed and self.count in self._numbers:
            self._numbers.discard(self.count)
            self.hits += 1
            raise self._blow.kind(f"at {self.operations[-1]}")

    def _begin(self, kind: Kind, path: str, target: str | None = None, size: int = 0) -> None:
        super()._begin(kind, path, target, size)
        if kind.is_change:
            self.count += self.is_armed
            if self._blow.before:
                self._strike()

    def _end(self) -> None:
        if not self._blow.before:
            self._strike()


class InterruptedSession(Session):
    """A session that judges its broker after an interrupt, and continues with it.

    Only steps that change logs are interrupted: not the opening and closing of a broker, nor
    changes of topics.
    """

    fs: InterruptedFileSystem

    def __init__(
        self, fs: InterruptedFileSystem, journal: Journal, reference: Journal | None
    ) -> None:
        super().__init__(fs, journal)
        self._reference = reference
        self._is_begun = False

    def begin(self) -> None:
        super().begin()
        self._is_begun = True

    def _try(self, step: Callable[[], None]) -> None:
        broker = self.broker
        self.fs.is_armed = self._is_begun and step.__qualname__.split(".")[1] in CHANGES
        try:
            step()
        except (Interrupt, TestTimeout) as error:
            self.fs.is_armed = False
            self.journal.failures.append(error)
            assert self._reference is not None
            note_done(broker, self.journal)
            if isinstance(error, Exception):
                note_failed_pass(broker, self.journal)
            judge(broker, self.journal, self._reference)
            # The judged contents must last.
            broker.manager.checkpoint_log_starts()
            broker.manager.checkpoint_recovery_points()
            self.journal.settle(broker)
            note_kept(broker, self.journal)
        finally:
            self.fs.is_armed = False


CHANGES = {
    *("append", "flush", "roll", "checkpoint", "clean", "retain", "delete_records"),
    *("truncate", "truncate_fully", "delete_expired_files"),
}
"""The interrupted steps of a session."""


def note_done(broker: Broker, journal: Journal) -> None:
    """Note a truncation that was complete when it was interrupted, with the hole that it left."""
    for tp, partition in journal.partitions.items():
        end = broker.manager.log(tp).log_end_offset
        if any(reduction.end == end for reduction in partition.reductions):
            partition.cut(end)


def note_failed_pass(broker: Broker, journal: Journal) -> None:
    """Note the checkpoint of a first pass that failed: its first dirty offset, as in Kafka."""
    for tp, partition in journal.partitions.items():
        if partition.is_cleaning and partition.cleanings[-1].checkpoint_before is None:
            log = broker.manager.log(tp)
            if checkpoint_of(broker, log) == log.log_start_offset:
                partition.cleanings[-1].checkpoint_before = log.log_start_offset


def note_kept(broker: Broker, journal: Journal) -> None:
    """Note the batch of an append that was complete when it was interrupted as acknowledged."""
    for tp, partition in journal.partitions.items():
        for offset, record in stored(broker.manager.log(tp)).items():
            if offset not in partition.acknowledged:
                partition.acknowledged[offset] = record
                partition.present.append(offset)


def judge(broker: Broker, journal: Journal, reference: Journal) -> None:
    """Judge an open broker: deleted files may still wait for their delay."""
    check_topics(broker, journal)
    for tp in broker.partitions():
        log = broker.manager.log(tp)
        log.check_open()  # recovers the log if its recovery was interrupted as well
        log._check()
        partition = journal.partitions.get(tp, Partition())
        complete = reference.partitions.get(tp, Partition())
        check_contents(log, partition, complete, checkpoint_of(broker, log))


def count_of(scenario: Scenario) -> tuple[int, Journal]:
    """Run a scenario without an interrupt; return the number of points, and the journal."""
    journal = Journal()
    fs = InterruptedFileSystem(journal.clock, Blow())
    scenario(InterruptedSession(fs, journal, None))
    return fs.count, journal


def enumerate_interrupts(
    scenario: Scenario, *, points: int = 0, again: int = 0, kind: type[BaseException] = Interrupt
) -> int:
    """Interrupt a scenario at about so many operations, 0 for all; return their number."""
    count, reference = count_of(scenario)
    blows = [
        Blow(number, before, again, kind)
        for number in range(1, count + 1)
        for before in (True, False)
    ]
    chosen = blows[:: stride_for(len(blows), points)]
    for blow in chosen:
        try:
            check_interrupt(scenario, blow, reference)
        except Exception as error:
            raise AssertionError(f"{scenario.__name__}, {blow}: {error!r}") from error
    return len(chosen)


def check_interrupt(scenario: Scenario, blow: Blow, reference: Journal) -> None:
    """Run a scenario with one interrupt; judge its broker and brokers opened afterwards."""
    journal = Journal()
    fs = InterruptedFileSystem(journal.clock, blow)
    session = InterruptedSession(fs, journal, reference)
    scenario(session)
    assert fs.hits or not blow.number, "not interrupted"
    for topic in session.broker.topics():
        session.append((b"after", b"x"), topic=topic.name)
    judge(session.broker, journal, reference)
    result = found_in(session.broker)
    for mode in (KEPT, DROPPED):
        left = FaultyFileSystem(journal.clock, fs.crash(mode))
        check_broker(open_broker(left, journal.clock), journal, reference)
    session.close()
    again = open_broker(FaultyFileSystem(journal.clock, fs.crash(DROPPED)), journal.clock)
    check_broker(again, journal, reference)
    assert found_in(again) == result
