"""A broker with a journal of every step, which scenarios drive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logstore.broker import Broker
from logstore.errors import KafkaStorageError, LogStoreError
from logstore.storage.log import Log, NewRecord
from logstore.testing import FaultyFileSystem, Kind
from logstore.types import TopicPartition
from tests.crash.journal import (
    Cleaning,
    Journal,
    Partition,
    Rec,
    Reduction,
    checkpoint_of,
    offsets,
    open_broker,
)
from tests.crash.judge import check_broker
from tests.support.world.builders import bases_of


class SessionEnd(Exception):
    """No further step can be tried on this disk."""


class Session:
    """A broker with a journal of every step.

    With `go_on`, a step that fails with a storage error is noted and the scenario continues. After
    a failed sync the files must not be opened again before the machine restarts, since they show
    data that is lost; a scenario that stops its broker ends there (`SessionEnd`).

    Parameters
    ----------
    failing : int
        Number of the operation that is to fail, 0 for none.
    """

    def __init__(
        self, fs: FaultyFileSystem, journal: Journal, *, go_on: bool = False, failing: int = 0
    ) -> None:
        self.fs = fs
        self.journal = journal
        self.go_on = go_on
        self._failing = failing
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            if self.journal.failures and self.is_in_doubt:
                raise SessionEnd
            self._broker = open_broker(self.fs, self.journal.clock)
            if self.journal.failures and self.journal.is_reducing:
                # The step may be half done: the present contents must last.
                check_broker(self._broker, self.journal, self.journal)
                self.journal.settle(self._broker)
        return self._broker

    @property
    def is_in_doubt(self) -> bool:
        """Whether files or names show changes that a crash would undo although they must be
        durable."""
        lost_names = self.fs.operations[self._failing - 1].kind is Kind.SYNC_DIR
        return self.fs.lost_contents or (lost_names and self.journal.is_reducing)

    def use(self, broker: Broker) -> None:
        """Go on with a broker that is open."""
        self._broker = broker

    @property
    def open_broker(self) -> Broker | None:
        """The open broker, if any."""
        return self._broker

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (LogStoreError, OSError) as error:
            if not self.journal.failures and not isinstance(error, KafkaStorageError | OSError):
                raise
            self.journal.failures.append(error)
            if not self.go_on:
                raise

    def begin(self) -> None:
        """End the preparation: everything from here on is crashed and failed."""
        self.journal.first_operation = self.fs.operation_count + 1

    # -- topics --------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}

        def step() -> None:
            if name not in self.journal.topics:  # else its deletion failed
                self.journal.tried_topics[name] = (partitions, texts)
            self.broker.create_topic(name, partitions, texts)
            self.journal.topics[name] = (partitions, texts)

        self._try(step)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; afterwards another one may have its name."""

        def step() -> None:
            broker = self.broker
            self.journal.deleting.add(name)
            broker.delete_topic(name)
            self.journal.forget_topic(name)

        self._try(step)

    # -- additions -----------------------------------------------------------------------

    def append(self, *records: tuple[bytes | None, bytes | None], topic: str = "t") -> None:
        """Append one batch to partition 0; the clock moves by 10 ms a record."""

        def step() -> None:
            log = self.broker.log(topic)
            partition = self.journal.partition(log.topic_partition)
            batch = []
            for key, value in records:
                self.journal.clock.advance(ms=10)
                batch.append(Rec(key, value, self.journal.clock.now_ms()))
            expected = log.log_end_offset
            partition.fill_hole(expected)
            partition.tried.setdefault(expected, []).append(tuple(batch))
            info = log.writer.append_records([NewRecord(*record) for record in batch])
            assert info.first_offset == expected
            for offset, record in enumerate(batch, expected):
                partition.acknowledged[offset] = record
                partition.present.append(offset)
            self._note_flushed(log)

        self._try(step)

    def flush(self, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            log.flush()
            self._note_flushed(log)
            assert self.journal.partition(log.topic_partition).flushed == log.log_end_offset

        self._try(step)

    def roll(self, topic: str = "t") -> None:
        def step() -> None:
            self.broker.roll(topic)
            self._note_flushed(self.broker.log(topic))

        self._try(step)

    def checkpoint(self) -> None:
        """Write the periodic checkpoints."""

        def step() -> None:
            self.broker.manager.checkpoint_recovery_points()
            self.broker.manager.checkpoint_log_starts()
            self.broker.manager.checkpoint_high_watermarks()

        self._try(step)

    def move(self, log_dir: str, topic: str = "t") -> None:
        """Move partition 0 to another data directory."""

        def step() -> None:
            manager, tp = self.broker.manager, TopicPartition(topic, 0)
            self.journal.homes[tp] = {manager.registry.directory_of(tp).path, log_dir}
            manager.registry.move_partition(tp, log_dir)
            self.journal.homes[tp] = {log_dir}
            self._note_flushed(manager.log(tp))
            if not self.journal.failures:  # else it may have been there already
                assert self.journal.partition(tp).flushed == manager.log(tp).log_end_offset

        self._try(step)

    # -- removals ------------------------------------------------------------------------

    def clean(self, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            partition = self.journal.partition(log.topic_partition)
            if not partition.is_cleaning:  # else a cleaning pass that failed is tried again
                checkpoint = checkpoint_of(self.broker, log)
                cleaning = Cleaning(list(partition.present), bases_of(log), checkpoint)
                partition.cleanings.append(cleaning)
            cleaning = partition.cleanings[-1]
            partition.is_cleaning = True
            report = self.broker.clean(topic, force=True)
            assert report.cleaned, report
            cleaning.after = offsets(log)
            cleaning.bases_after = bases_of(log)
            cleaning.checkpoint_after = checkpoint_of(self.broker, log)
            partition.present = list(cleaning.after)
            partition.is_cleaning = False

        self._try(step)

    @contextmanager
    def _reducing(self, log: Log, reduction: Reduction) -> Iterator[Partition]:
        """Note a removal of records in progress and, when it is done, the rest."""
        partition = self.journal.partition(log.topic_partition)
        partition.reductions.append(reduction)
        yield partition
        partition.start = log.log_start_offset
        partition.present = [o for o in partition.present if o >= partition.start]
        partition.reductions.clear()
        self._note_flushed(log)

    def retain(self, topic: str = "t", *, removes: int) -> None:
        """Run retention, which must delete so many segments."""

        def step() -> None:
            log = self.broker.log(topic)
            (decision,) = self.broker.retain(topic, dry_run=True).decisions
            with self._reducing(log, Reduction(bases_of(log), start=decision.log_start_offset)):
                self.broker.retain(topic)
            if not self.journal.failures:
                assert len(decision.removed) == removes, decision

        self._try(step)

    def delete_records(self, before_offset: int, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            target = log.high_watermark if before_offset == -1 else before_offset
            with self._reducing(log, Reduction(bases_of(log), start=target)) as partition:
                self.broker.manager.delete_records(log.topic_partition, before_offset)
            assert partition.start == target

        self._try(step)

    def truncate(self, offset: int, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            with self._reducing(log, Reduction(bases_of(log), end=offset)) as partition:
                has_cut = self.broker.manager.truncate_to(log.topic_partition, offset)
                assert has_cut or self.journal.failures
                partition.cut(offset)

        self._try(step)

    def truncate_fully(self, offset: int, topic: str = "t") -> None:
        def step() -> None:
            log = self.broker.log(topic)
            reduction = Reduction(bases_of(log), restart=offset)
            with self._reducing(log, reduction) as partition:
                self.broker.manager.truncate_fully_and_start_at(log.topic_partition, offset)
                partition.cut(0)
                partition.flushed = offset

        self._try(step)

    def delete_expired_files(self, minutes: int = 2) -> None:
        """Advance the clock and remove the files whose delay has elapsed."""

        def step() -> None:
            self.journal.clock.advance(minutes=minutes)
            self.broker.manager.delete_expired_files()

        self._try(step)

    # -- stopping ------------------------------------------------------------------------

    def close(self) -> None:
        def step() -> None:
            logs = [log for log in self.broker.manager.registry.open_logs() if not log.is_offline]
            ends = {log.topic_partition: log.log_end_offset for log in logs}
            broker, self._broker = self.broker, None
            broker.close()
            for tp, end_offset in ends.items():
                partition = self.journal.partition(tp)
                partition.flushed = max(partition.flushed, end_offset)

        self._try(step)

    def _note_flushed(self, log: Log) -> None:
        partition = self.journal.partition(log.topic_partition)
        partition.flushed = max(partition.flushed, log.recovery_point)
