"""Clients and cleaners on a few partitions, scheduled in an order drawn from a seed.

Clients are tasks of the same scheduler as the cleaners' steps. All invariants are checked after
each step.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from logstore import Broker, TopicPartition, VirtualClock
from logstore.broker.setup import MEMORY_DIR
from logstore.cleaner.manager import LogCleanerManager
from logstore.cleaner.stats import CleanerStats
from logstore.errors import (
    KafkaStorageError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from logstore.inspect.check.directory import Checker
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.runtime import ReadOnlyFileSystem
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS
from logstore.storage.log import Log, NewRecord
from logstore.types import INT64_MAX
from tests.property.pool_model import (
    COMMITTED,
    OPEN,
    ModelReader,
    PartitionModel,
    Transaction,
    follow,
)
from tests.support.world.pool_world import (
    CountingFileSystem,
    SteppedScheduler,
    files_of_log,
    folder,
    start_broker,
    weighted,
)

TOPICS = {"a": (2, "compact"), "b": (1, "compact,delete")}
PARTITIONS = [TopicPartition(name, n) for name, (count, _) in TOPICS.items() for n in range(count)]

BROKER = {
    "log.cleaner.threads": 2,
    "log.cleaner.backoff.ms": 2,
    "log.cleaner.io.buffer.size": 250,  # a few batches a chunk, and a step
    "log.index.size.max.bytes": 4000,
    "log.retention.check.interval.ms": 11,
    "log.initial.task.delay.ms": 7,
}

WEIGHTS = {
    "append": 60,
    "transact": 16,
    "roll": 14,
    "begin_to_read": 6,
    "read_on": 14,
    "truncate": 6,
    "truncate_fully": 1,
    "delete_records": 8,
    "delete_topic": 3,
    "create_topic": 6,
    "alter_topic": 9,
    "alter_broker": 4,
    "clean": 3,
    "retain": 2,
    "pause": 3,
    "resume": 4,
    "ask": 2,
}

INTRUSIONS = {
    "append": 2,
    "transact": 2,
    "roll": 1,
    "begin_to_read": 2,
    "truncate": 4,
    "truncate_fully": 1,
    "delete_records": 4,
    "delete_topic": 2,
    "alter_topic": 2,
    "alter_broker": 2,
    "clean": 1,
    "retain": 1,
    "pause": 3,
}
"""Actions that may be taken between two steps of a pass."""

MANAGED = {"delete_topic", "create_topic", "alter_topic", "alter_broker"}
"""Done under the log manager's lock, so one at a time.

The lock is re-entrant and all clients run in one thread, so it would not exclude them.
"""

GONE = (KafkaStorageError, UnknownTopicOrPartitionError)
"""Errors of a client whose topic is deleted while it waits."""

HOUR_MS = 3_600_000


class PoolStory:
    """One run of a seed.

    Parameters
    ----------
    seed : int
        Of the story, and of the order of its steps.
    turns : int
        Number of actions of each client, before and again after a restart.
    """

    def __init__(self, seed: int, *, turns: int = 16, clients: int = 3) -> None:
        self.seed = seed
        self.turns = turns
        self.clients = clients
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.fs = CountingFileSystem(self.clock)
        self.models: dict[TopicPartition, PartitionModel] = {}
        self.tally: Counter[str] = Counter()
        self.readers: list[ModelReader] = []
        self.paused: list[TopicPartition] = []
        self.passing: set[TopicPartition] = set()
        self.managing = False
        self.next_producer_id = 0
        self.values = 0
        self.left: list[int] = []
        self.read_contents: object = None
        self.read_checkpoints: dict[TopicPartition, int] = {}
        self.broker: Broker

    def run(self) -> Counter[str]:
        """Run the story to its end."""
        self.open()
        for name, (count, policy) in TOPICS.items():
            self.create(name, count, policy)
        self.act()
        if self.rng.random() < 0.5:
            self.tally["restarts"] += 1
            self.quiet()
            self.broker.close()
            self.open()
            for tp, model in self.models.items():
                model.reopen(self.broker.manager.log(tp))
            self.act()
        self.quiet()
        self.drain()
        self.end()
        return self.tally

    # -- the stage -----------------------------------------------------------------------

    def open(self) -> None:
        self.broker = start_broker(self.fs, self.clock, self.seed, BROKER, self.check)
        self.scheduler: SteppedScheduler = self.broker.runtime.scheduler
        self.watch_passes(self.broker.cleaner)
        self.broker.pool.pass_ended.subscribe(lambda stats: self.tally.update(passes=1))

    def watch_passes(self, manager: LogCleanerManager) -> None:
        """See that no partition has two passes at once."""
        run_pass = manager.run_pass

        def watched(log, *arguments, **options):
            tp = log.topic_partition
            steps = run_pass(log, *arguments, **options)
            is_first = True
            try:
                while True:
                    is_aborted = str(manager.states.of(tp)) == "aborted"
                    step = next(steps)
                    assert not is_aborted, f"the pass over {tp} goes on though it was aborted"
                    if is_first:
                        assert tp not in self.passing, f"two passes over {tp}"
                        self.passing.add(tp)
                        is_first = False
                        self.scheduler.schedule("intruder", self.intrude)
                    yield step
            except StopIteration as done:
                self.tally["aborted passes"] += not isinstance(done.value, CleanerStats)
                return done.value
            finally:
                steps.close()
                if not is_first:
                    self.passing.discard(tp)

        manager.run_pass = watched

    def create(self, name: str, count: int, policy: str) -> None:
        configs = {
            "cleanup.policy": policy,
            "min.cleanable.dirty.ratio": self.rng.choice(("0", "0.3")),
            "file.delete.delay.ms": self.rng.choice((0, 0, 20)),
            "delete.retention.ms": self.rng.choice((0, 20, HOUR_MS)),
            "segment.bytes": self.rng.choice((400, 1000)),
        }
        self.broker.create_topic(name, count, configs)
        for number in range(count):
            self.models[TopicPartition(name, number)] = PartitionModel()

    def act(self) -> None:
        """Let all clients act, with the cleaners in between."""
        self.left = [self.turns] * self.clients
        for number in range(self.clients):
            self.scheduler.schedule(f"client-{number}", lambda n=number: self.turn(n))
        while any(self.left):
            self.clock.advance(ms=5)

    def turn(self, number: int) -> None:
        self.take(WEIGHTS)
        self.left[number] -= 1
        if self.left[number]:
            delay_ms = self.rng.choice((0, 0, 0, 0, 1, 2, 6))
            self.scheduler.schedule(
                f"client-{number}", lambda: self.turn(number), delay_ms=delay_ms
            )

    def intrude(self) -> None:
        """Act between the steps of a pass that has just begun."""
        if self.passing and any(self.left):
            if self.rng.random() < 0.6:
                self.scheduler.schedule("intruder", self.intrude)
            else:
                self.take(INTRUSIONS)

    def take(self, weights: Mapping[str, int]) -> None:
        name = weighted(self.rng, weights)
        if name not in MANAGED or not self.managing:
            self.do(name)

    def do(self, name: str) -> None:
        self.tally[name] += 1
        if name in MANAGED:
            self.managing = True
        try:
            action: Callable[[], None] = getattr(self, name)
            action()
        finally:
            if name in MANAGED:
                self.managing = False

    def some_partition(self) -> TopicPartition | None:
        """Draw a partition, rather one that is being cleaned."""
        if (cleaned := sorted(self.passing & self.models.keys())) and self.rng.random() < 0.6:
            return self.rng.choice(cleaned)
        return self.rng.choice(list(self.models)) if self.models else None

    def some_log(self) -> tuple[TopicPartition, PartitionModel, Log] | None:
        """Return a partition of a topic that is there, and not half deleted."""
        tp = self.some_partition()
        if tp is None or self.models[tp].is_deleted:
            return None
        if self.broker.manager.catalog.is_being_deleted(tp.topic):
            return None
        return tp, self.models[tp], self.log_of(tp)

    def log_of(self, tp: TopicPartition) -> Log:
        """Return a log that notifies its model of truncations."""
        log = self.broker.manager.log(tp)
        if "abandon" not in vars(log):
            follow(log, self.models[tp])
        return log

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    # -- appending -----------------------------------------------------------------------

    def some_records(self) -> list[tuple[bytes, bytes | None]]:
        records = []
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self.values += 1
            value = None if self.rng.random() < 0.15 else b"v%d" % self.values
            records.append((b"k%d" % self.rng.randrange(6), value))
        return records

    def append(self) -> None:
        for _ in range(3):
            if (result := self.some_log()) is None:
                return
            _, model, log = result
            records = self.some_records()
            info = log.writer.append_records([NewRecord(*record) for record in records])
            model.append(info.first_offset, records, self.now)

    def transact(self) -> None:
        """Begin a transaction, continue an open one, or end it."""
        if (result := self.some_log()) is None:
            return
        _, model, log = result
        going_on = model.open_transactions()
        if not going_on or (len(going_on) < 2 and self.rng.random() < 0.3):
            model.transactions.append(self.some_producer(model, log.log_start_offset))
            self.append_transactional(model, log, model.transactions[-1])
            return
        transaction = self.rng.choice(going_on)
        if transaction.is_cut or self.rng.random() < 0.6:
            self.end_transaction(model, log, transaction)
        else:
            self.append_transactional(model, log, transaction)

    def some_producer(self, model: PartitionModel, start: int) -> Transaction:
        """Return the next transaction of a producer that had one, or the first of a new one."""
        last = {each.producer_id: each for each in model.transactions}
        # Without data above the log start, the log may know only its marker.
        known = {id(each.transaction) for each in model.records.values() if each.offset >= start}
        ended = [
            each
            for each in last.values()
            if each.state != OPEN and not each.is_cut and id(each) in known
        ]
        if ended and self.rng.random() < 0.5:
            before = self.rng.choice(ended)
            return Transaction(before.producer_id, sequence=before.sequence)
        self.next_producer_id += 1
        return Transaction(self.next_producer_id)

    def append_transactional(
        self, model: PartitionModel, log: Log, transaction: Transaction
    ) -> None:
        records = self.some_records()
        data = build_batch(
            [Record(i, self.now, key, value) for i, (key, value) in enumerate(records)],
            producer_id=transaction.producer_id,
            producer_epoch=0,
            base_sequence=transaction.sequence,
            is_transactional=True,
        )
        info = log.writer.append_batches(data)
        transaction.sequence += len(records)
        model.append(info.first_offset, records, self.now, transaction)

    def end_transaction(self, model: PartitionModel, log: Log, transaction: Transaction) -> None:
        commit = self.rng.random() < 0.6
        if transaction.decided_before:
            commit = transaction.decided_before == COMMITTED
        info = log.writer.append_end_txn_marker(transaction.producer_id, 0, 0, commit=commit)
        model.end_transaction(info.first_offset, transaction, commit=commit)

    def roll(self) -> None:
        if (result := self.some_log()) is not None:
            result[2].writer.roll()

    # -- reading -------------------------------------------------------------------------

    def begin_to_read(self) -> None:
        if (result := self.some_log()) is not None and len(self.readers) < 3:
            _, model, log = result
            self.readers.append(ModelReader(model, log, self.rng.random() < 0.5))
            self.read_on()

    def read_on(self) -> None:
        if not self.readers:
            return
        reader = self.rng.choice(self.readers)
        try:
            if reader.read(self.rng.choice((1, 3, 10, 1000))):
                return
            self.tally["readers that came to the end undisturbed"] += not reader.is_disturbed
        except (OffsetOutOfRangeError, KafkaStorageError, UnknownTopicOrPartitionError):
            self.check_disturbance(reader)
            if not reader.is_disturbed:
                raise
        self.readers.remove(reader)
        reader.close()

    def check_disturbance(self, reader: ModelReader) -> None:
        """Notify a model at once of a log start that this step moved."""
        if not reader.model.is_deleted and not reader.log.lifetime.is_over:
            tp = reader.log.topic_partition
            reader.model.check(reader.log, self.broker.cleaner.checkpoints.of(tp), self.now)

    # -- cutting and deleting ------------------------------------------------------------

    def truncate(self) -> None:
        """Truncate, perhaps inside a batch; a pass over the removed part is stopped first."""
        if (result := self.some_log()) is None:
            return
        tp, model, log = result
        offset = self.rng.randrange(max(0, model.start), model.end + 1)
        self.tally["truncations of closed segments"] += offset < log.active_segment.base_offset
        try:
            self.broker.manager.truncate_to(tp, offset)
        except GONE:
            assert model.is_deleted

    def truncate_fully(self) -> None:
        if (result := self.some_log()) is None:
            return
        tp, model, _ = result
        offset = max(0, model.end + self.rng.choice((-3, 0, 2)))
        try:
            self.broker.manager.truncate_fully_and_start_at(tp, offset)
        except GONE:
            assert model.is_deleted

    def delete_records(self) -> None:
        result = self.some_log()
        if result is None or not result[2].config.delete:
            return
        tp, model, log = result
        offset = self.rng.randrange(model.start, log.high_watermark + 1)
        model.allowed_start = max(model.allowed_start, offset)
        self.broker.delete_records({tp: offset})

    def delete_topic(self) -> None:
        names = [topic.name for topic in self.broker.topics()]
        if len(names) < len(TOPICS):
            return
        cleaned = [tp.topic for tp in sorted(self.passing) if tp.topic in names]
        name = self.rng.choice(cleaned or names)
        for tp in self.models:
            if tp.topic == name:
                self.log_of(tp)
        self.broker.delete_topic(name)
        self.models = {tp: model for tp, model in self.models.items() if not model.is_deleted}
        assert not [tp for tp in self.models if tp.topic == name]

    def create_topic(self) -> None:
        names = {topic.name for topic in self.broker.topics()}
        for name, (count, policy) in TOPICS.items():
            if name not in names:
                self.create(name, count, policy)

    # -- settings ------------------------------------------------------------------------

    def alter_topic(self) -> None:
        names = [topic.name for topic in self.broker.topics()]
        if not names:
            return
        choices: dict[str, tuple[object, ...]] = {
            "cleanup.policy": ("compact", "compact", "compact,delete", "compact,delete", "delete"),
            "min.cleanable.dirty.ratio": (0, 0.3, 1, None),
            "min.compaction.lag.ms": (0, 4, None),
            "max.compaction.lag.ms": (10, None),
            "delete.retention.ms": (0, 20, HOUR_MS, None),
            "retention.ms": (HOUR_MS, None, 15),
            "segment.bytes": (400, 1000),
            "file.delete.delay.ms": (0, 20),
        }
        keys = self.rng.sample(sorted(choices), 2)
        drawn = {key: self.rng.choice(choices[key]) for key in keys}
        configs = {key: value for key, value in drawn.items() if value is not None}
        unset = drawn.keys() - configs.keys()
        self.broker.alter_configs(self.rng.choice(names), configs, unset=unset)

    def alter_broker(self) -> None:
        choices: dict[str, tuple[object, ...]] = {
            "log.cleaner.threads": (2, 3, 4),
            "log.cleaner.backoff.ms": (1, 2, 5),
            "log.cleaner.io.max.bytes.per.second": (None, 100_000, 1e9),
            "logstore.cleaner.max.read.bytes.per.second": (None, 100_000),
            # Three keys, or all of them if there are fewer.
            "log.cleaner.io.buffer.load.factor": (None, 0.0000016, 0.0000016),
            "log.cleaner.io.buffer.size": (150, 250, 1000),
        }
        keys = self.rng.sample(sorted(choices), 2)
        self.broker.alter_broker_configs({key: self.rng.choice(choices[key]) for key in keys})

    # -- cleaning by command, and pauses -------------------------------------------------

    def clean(self) -> None:
        if self.managing:  # the topic may be half deleted
            return
        for topic in self.broker.topics():
            self.broker.clean(topic.name, force=self.rng.random() < 0.5)

    def retain(self) -> None:
        if not self.managing:
            with suppress(*GONE):  # deleted while it waited
                self.broker.retain()

    def pause(self) -> None:
        tp = self.some_partition()
        if tp is not None and len(self.paused) < 2:
            self.broker.cleaner.pause(tp)
            self.paused.append(tp)

    def resume(self) -> None:
        if self.paused:
            self.broker.cleaner.resume(self.paused.pop())

    def ask(self) -> None:
        if not self.managing:
            self.broker.explain()
            assert self.broker.metrics().dead_thread_count == 0

    # -- invariants after each step ------------------------------------------------------

    def check(self, task: str = "") -> None:
        """Check everything; an error names the step."""
        manager = self.broker.manager
        try:
            clean = self.checkpoints()
            for tp, model in self.models.items():
                log = manager.registry._logs.get(tp)
                if log is not None and not model.is_deleted:
                    model.check(log, clean.get(tp), self.now)
            self.check_states()
        except Exception as error:
            error.add_note(f"after {task}, {self.scheduler.steps} steps")
            raise

    def checkpoints(self) -> dict[TopicPartition, int]:
        """Return the cleaner checkpoint, reading it only if it was replaced."""
        contents = self.fs._files.get(f"{MEMORY_DIR}/{CLEANER_OFFSETS}")
        if contents is not self.read_contents:
            self.read_contents = contents
            directory = self.broker.manager.directories[0]
            self.read_checkpoints = directory.checkpoint(CLEANER_OFFSETS).read()
        return self.read_checkpoints

    def check_states(self) -> None:
        """Check that partitions in cleaning have a state, and that partial files belong to one."""
        states = self.broker.cleaner.states
        for tp in self.passing:
            assert str(states.of(tp)) in ("in progress", "aborted"), f"{tp}: {states.of(tp)}"
        for path in self.fs.suffixed():
            assert not path.endswith(".swap"), f"{path} between two steps"
            if path.endswith(".cleaned"):
                owner = path.rpartition("/")[0]
                assert owner in {folder(tp) for tp in self.passing}, f"{path} has no owner"

    # -- the end -------------------------------------------------------------------------

    def quiet(self) -> None:
        """Let all clients finish their work."""
        for reader in self.readers:
            reader.close()
        self.readers.clear()
        while self.paused:
            self.resume()

    def drain(self) -> None:
        """Make everything due; then all is cleaned, and cleaned whole."""
        broker = self.broker
        broker.alter_broker_configs(
            {
                "log.cleaner.io.max.bytes.per.second": None,
                "logstore.cleaner.max.read.bytes.per.second": None,
                "log.cleaner.backoff.ms": 1,
            }
        )
        for topic in broker.topics():
            broker.alter_configs(
                topic.name,
                {
                    "cleanup.policy": "compact",
                    "min.cleanable.dirty.ratio": 0,
                    "min.compaction.lag.ms": 0,
                    "max.compaction.lag.ms": INT64_MAX,
                    "file.delete.delay.ms": 0,
                },
            )
        for tp, model in self.models.items():
            log = broker.manager.log(tp)
            for transaction in model.open_transactions():
                self.end_transaction(model, log, transaction)
            log.writer.roll()
        for _ in range(50):
            self.clock.advance(ms=20)
            if not (dirty := [tp for tp in self.models if self.is_dirty(tp)]):
                break
        assert not dirty, f"{dirty} are not cleaned"
        for tp, model in self.models.items():
            log = broker.manager.log(tp)
            model.seen = None
            clean = log.active_segment.base_offset if log.size_bytes else None
            model.check(log, clean, self.now)
        assert not broker.cleaner.states._states, "somebody still has a partition"
        assert not self.passing
        metrics = broker.metrics()
        assert metrics.dead_thread_count == 0
        assert not broker.cleaner.uncleanable()
        assert self.fs.suffixed() == []
        logs = broker.manager.registry.open_logs()
        self.check_handles({file for log in logs for file in files_of_log(log)})

    def is_dirty(self, tp: TopicPartition) -> bool:
        """Return whether a closed segment has dirty data or a cleaning pass is in progress."""
        log = self.broker.manager.log(tp)
        clean = max(self.broker.cleaner.checkpoints.of(tp) or 0, log.log_start_offset)
        dirty = log.segments.between(clean, log.active_segment.base_offset)
        is_taken = self.broker.cleaner.states.of(tp) is not None
        return is_taken or any(segment.size_bytes for segment in dirty)

    def check_handles(self, expected: set[object]) -> None:
        """Check that only files in use are open."""
        if self.fs.open_handles() != expected:
            gc.collect()
        assert self.fs.open_handles() == expected

    def end(self) -> None:
        """Close the broker and check the files."""
        self.broker.close()
        self.check_handles(set())
        assert not self.scheduler._queue
        faults = [
            row
            for row in Checker(ReadOnlyFileSystem(self.fs)).data_dirs([MEMORY_DIR])
            # A truncation inside a batch leaves a hole, like a lost segment.
            if row.severity != "info" and row.check not in ("offset_gap", "lost_segment")
        ]
        assert faults == []
        self.tally["steps"] += self.scheduler.steps
