"""A whole cluster from one seed: random client actions and faults, invariants after each step.

`plan` creates the steps of a seed, `Simulation` executes them, and `shrunk` drops the steps that a
failure does not need. Each step has its own numbers and draws none when it is executed, so the
remaining steps keep their meaning.

To repeat a seed, all of it or some of its steps::

    python -m tests.property.cluster_simulation 4711
    python -m tests.property.cluster_simulation 4711 --steps 3,8,21
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

from logstore import Cluster, LogStoreError, TopicPartition, VirtualClock
from logstore.cluster.leadership import Leadership
from logstore.cluster.replicas import Replicas
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.storage.log.log import Log
from logstore.storage.log.reader import Isolation
from tests.support.world.transcripts import Transcript, recording_calls

FEW = 30
TP = TopicPartition("events", 0)
MESSAGES = (
    "on_fetch",
    "on_epoch",
    "on_fetch_response",
    "on_epoch_response",
    "on_markers",
    "on_markers_response",
)
BROKERS = 3
STEPS_MAX = 60
KEYS = 6
PRODUCERS = 3
DELETE_RETENTION_MS = 20_000
VERSION = "version"

WAITS_MS = (1, 20, 500, 6_000, 31_000, 90_000, 3_600_000)


class Step(NamedTuple):
    """One action or fault; `numbers` select its targets and amounts."""

    kind: str
    numbers: tuple[int, ...]


KINDS = {
    "append": 26,
    "append_many": 8,
    "begin": 9,
    "end": 7,
    "wait": 12,
    "cut": 4,
    "heal": 5,
    "slow": 2,
    "kill": 3,
    "lose_power": 3,
    "stop": 2,
    "restart": 8,
    "skew": 2,
    "move": 5,
    "roll": 6,
    "clean": 9,
    "delete": 4,
    "settle": 2,
    "pause": 4,
    "kill_leader": 2,
    "kill_follower": 2,
    "cut_leader": 2,
    "slow_leader": 2,
    "move_on": 3,
}
"""Kinds of steps and their frequencies."""

ALL = 2
"""`acks` of an append: all."""

LONG = 2
"""A long timeout."""

SOME_MS = 1
"""Delay of a slow link: longer than an append of one broker, shorter than a timeout."""

TWO_ELECTIONS = (
    ("append", (0, 1, ALL, 0, LONG)),
    ("kill_follower", ()),
    ("slow_leader", (SOME_MS,)),  # the other one has records before it hears that they count
    ("append", (1, 1, ALL, 0, LONG)),
    ("cut_leader", ()),
    ("move_on", ()),
    ("slow_leader", (SOME_MS,)),
    ("restart", ()),
    *((("pause", ()),) * 5),
    ("kill_leader", ()),
    ("kill_leader", ()),
    ("settle", ()),
)
"""A replica lags, returns below the start of an epoch, and the next leaders end.

Random steps almost never produce this sequence. The first numbers of the steps are given and the
others drawn; steps may be left out, and others come in between.
"""


class Setting(NamedTuple):
    """The topic of a seed."""

    strategy: str
    min_isr: int
    segment_bytes: int
    flush_messages: int

    @property
    def configs(self) -> dict[str, str]:
        """The topic's configuration."""
        configs = {
            "cleanup.policy": "compact,delete",
            "retention.ms": "-1",
            "min.insync.replicas": str(self.min_isr),
            "segment.bytes": str(self.segment_bytes),
            "segment.index.bytes": "1200",  # preallocated indexes cost time
            "flush.messages": str(self.flush_messages),
            "delete.retention.ms": str(DELETE_RETENTION_MS),
            "min.cleanable.dirty.ratio": "0.01",
            "compaction.strategy": self.strategy,
        }
        if self.strategy == "header":
            configs["compaction.strategy.header"] = VERSION
        return configs


def setting_of(seed: int) -> Setting:
    """Return the topic of a seed."""
    rng = random.Random(f"setting {seed}")
    return Setting(
        rng.choice(("offset", "offset", "timestamp", "header")),
        # More than the number of replicas counts as all of them.
        BROKERS + 1 if seed % 10 == 3 else rng.choice((1, 2, 2, 2)),
        rng.choice((300, 900, 100_000)),
        rng.choice((1, 7, 2**62)),
    )


def plan(seed: int) -> list[Step]:
    """Return the steps of a seed."""
    rng = random.Random(f"plan {seed}")
    chain: list[Step] = []
    if rng.random() < 0.5:
        for kind, given in TWO_ELECTIONS:
            if rng.random() < 0.95:
                chain.append(_step(rng, kind, given))
            if rng.random() < 0.1:
                chain += _random_steps(rng, 1)
    steps = _random_steps(rng, rng.randint(15, STEPS_MAX) - len(chain))
    place = rng.randint(0, len(steps))
    return [*steps[:place], *chain, *steps[place:]]


def _random_steps(rng: random.Random, count: int) -> list[Step]:
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=max(0, count))
    return [_step(rng, kind) for kind in kinds]


def _step(rng: random.Random, kind: str, given: tuple[int, ...] = ()) -> Step:
    drawn = tuple(rng.randrange(1 << 16) for _ in range(5 - len(given)))
    return Step(kind, given + drawn)


class Violation(AssertionError):
    """An invariant does not hold."""


def claim(holds: object, text: str, *details: object) -> None:
    """Raise a `Violation` unless a condition holds."""
    if not holds:
        raise Violation(f"{text}: {', '.join(map(repr, details))}" if details else text)


class Known(NamedTuple):
    """A committed record, wherever its replicas are."""

    record: Record
    batch: bytes
    producer_id: int
    is_transactional: bool
    is_control: bool
    committed_ms: int


class World(ABC):
    """A cluster, its faults, and the execution of steps."""

    clock: VirtualClock
    cluster: Cluster[VirtualClock]

    module = "tests.property.cluster_simulation"
    situations: Sequence[str] = ()
    """Situations that many seeds must reach."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tally: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    @staticmethod
    @abstractmethod
    def plan(seed: int) -> list[Step]:
        """Return the steps of a seed."""

    @abstractmethod
    def check(self) -> None:
        """Raise a `Violation` if an invariant does not hold."""

    @abstractmethod
    def finish(self) -> Counter[str]:
        """Let the cluster settle, and check once more."""

    @abstractmethod
    def state(self) -> Iterator[str]:
        """Describe the state after a step."""

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions with data that must survive."""
        return [TP]

    def take(self, step: Step) -> None:
        """Execute one step and check all invariants."""
        self.act(step.kind, step.numbers)
        self.check()

    def act(self, kind: str, numbers: tuple[int, ...]) -> None:
        """Execute one action; the cluster may refuse it."""
        action: Callable[..., None] = getattr(self, f"_{kind}")
        self.tally[kind] += 1
        try:
            action(*numbers)
        except LogStoreError as error:
            self.tally[f"{kind}: {error.kafka_error}"] += 1

    # -- faults --------------------------------------------------------------------------

    def _wait(self, which: int, *_: int) -> None:
        self.clock.advance(ms=WAITS_MS[which % len(WAITS_MS)])

    def _cut(self, broker: int, other: int, *_: int) -> None:
        broker %= BROKERS
        others = {(broker + 1) % BROKERS, (broker + 2) % BROKERS}
        self.cluster.disconnect({broker}, others if other % 2 else {(broker + 1) % BROKERS})

    def _heal(self, *_: int) -> None:
        self.cluster.heal()

    def _slow(self, broker: int, delay: int, *_: int) -> None:
        self.cluster.slow(broker % BROKERS, (broker + 1) % BROKERS, (1, 50, 5_000)[delay % 3])

    def _kill(self, broker: int, *_: int) -> None:
        if broker % BROKERS in self.cluster.brokers:
            self.cluster.kill(broker % BROKERS)

    def _lose_power(self, broker: int, *_: int) -> None:
        broker %= BROKERS
        # Data that was only on the last in-sync replica is lost with it: Kafka relies on replicas
        # for durability.
        in_sync = [set(self.cluster.state(tp).isr) for tp in self.partitions()]
        if broker in self.cluster.brokers and {broker} not in in_sync:
            self.cluster.kill(broker, power_loss=True)
            self.tally["lost power"] += 1

    def _stop(self, broker: int, *_: int) -> None:
        if broker % BROKERS in self.cluster.brokers:
            self.cluster.stop(broker % BROKERS)

    def _restart(self, broker: int, *_: int) -> None:
        ended = [each for each in range(BROKERS) if each not in self.cluster.brokers]
        if ended:
            self.cluster.restart(ended[broker % len(ended)])

    def _skew(self, broker: int, ms: int, *_: int) -> None:
        self.cluster.skew(broker % BROKERS, (-3_600_000, -1, 0, 1_000, 86_400_000)[ms % 5])

    def _settle(self, *_: int) -> None:
        self.cluster.heal()
        self.clock.advance(seconds=1)


class Simulation(World):
    """A cluster, its acknowledgements, and the execution of steps."""

    plan = staticmethod(plan)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.setting = setting_of(seed)
        self.clock = VirtualClock()
        self.cluster = Cluster(brokers=BROKERS, clock=self.clock, seed=seed)
        self.cluster.create_topic(
            TP.topic, replication_factor=BROKERS, configs=self.setting.configs
        )
        self.committed: dict[int, Known] = {}
        self.batches: dict[int, bytes] = {}
        self.committed_end = 0
        self.acknowledged: dict[int, Record] = {}
        self.log_starts = [0] * BROKERS
        self.deleted = 0
        self.number = 0
        self.sequences: Counter[int] = Counter()  # the next one of each producer

    def state(self) -> Iterator[str]:
        """Describe the replicas."""
        yield f"    {self.setting}"
        for broker, log in self._logs().items():
            yield f"    {broker}: {log} hw {log.high_watermark}"
        yield f"    {self.cluster.state(TP)}"

    def finish(self) -> Counter[str]:
        """Let the cluster settle, and check once more."""
        self.cluster.heal()
        for broker in range(BROKERS):
            self.cluster.skew(broker, 0)
            if broker not in self.cluster.brokers:
                self.cluster.restart(broker)
        self.clock.advance(seconds=90)
        self.check()
        state = self.cluster.state(TP)
        claim(set(state.isr) == set(range(BROKERS)), "not all are in sync in the end", state)
        logs = list(self._logs().values())
        claim(len({log.log_end_offset for log in logs}) == 1, "the ends differ", logs)
        end = logs[0].log_end_offset
        claim(all(log.high_watermark == end for log in logs), "a high watermark lags", logs)
        starts = [log.log_start_offset for log in logs]
        low = self.cluster.low_watermark(TP)
        claim(low == min(starts), "the low watermark is not the minimum", low, starts)
        # A transaction whose data was deleted is open only on replicas that had the data.
        start = max(starts)
        if not any(_opened_before(log, start) for log in logs):
            stable = [log.last_stable_offset for log in logs]
            claim(len(set(stable)) == 1, "the last stable offsets differ", stable)
        try:
            self._produce([self._record(0, 1, 0)], 2, 2)
        except LogStoreError as error:
            claim(False, "an append is refused though all are in sync", error)
        return self.tally

    # -- steps ---------------------------------------------------------------------------

    def _append(self, key: int, kind: int, acks: int, time: int, timeout: int) -> None:
        self._produce([self._record(key, kind, time)], acks, timeout)

    def _append_many(self, key: int, kind: int, acks: int, time: int, count: int) -> None:
        numbers = range(2 + count % 4)
        records = [self._record(key + n, kind + n, time + 3 * n, offset=n) for n in numbers]
        self._produce(records, acks, count)

    def _begin(self, slot: int, key: int, kind: int, time: int, timeout: int) -> None:
        """Append in a transaction, one that is open or a new one."""
        batch = [self._record(key, kind, time)]
        self._produce(batch, 1, timeout, producer=1000 + slot % PRODUCERS, is_transactional=True)
        self.tally["in a transaction"] += 1

    def _end(self, slot: int, outcome: int, _: int, __: int, ___: int) -> None:
        slot %= PRODUCERS
        leader = self.cluster.leader(TP)
        if leader < 0:
            return
        log = self.cluster.brokers[leader].log(TP)
        if not log.producer_state.has_open_transaction(1000 + slot):
            return
        log.writer.append_end_txn_marker(1000 + slot, 0, 0, commit=outcome % 2 == 0)
        self.tally["transactions ended"] += 1

    def _record(self, key: int, kind: int, time: int, *, offset: int = 0) -> Record:
        self.number += 1
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self.setting.strategy == "header" and kind % 5:
            headers = ((VERSION, (time % 50).to_bytes(8, "big")),)
        value = None if kind % 4 == 0 else b"%d" % self.number
        timestamp = self.clock.now_ms() - (time % 7) * 1000
        return Record(offset, timestamp, b"%d" % (key % KEYS), value, headers)

    def _produce(
        self,
        records: list[Record],
        acks: int,
        timeout: int,
        *,
        producer: int = -1,
        is_transactional: bool = False,
    ) -> None:
        if acks % 3 == 1 and producer < 0:
            producer = 2000
        sequence = self.sequences[producer] if producer >= 0 else -1
        data = build_batch(
            records,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        wanted = 1 if acks % 4 == 0 else "all"
        info = self.cluster._produce(
            TP,
            lambda broker: broker.log(TP).writer.append_batches(bytes(data)),
            lambda info: info.last_offset,
            wanted,
            (10, 1000, 40_000)[timeout % 3],
        )
        if producer >= 0:
            self.sequences[producer] += len(records)
        if info.is_duplicate:  # of an append that came to no answer, with records of its own
            self.tally["duplicates"] += 1
        elif wanted == "all":
            self.tally["acknowledged by all"] += 1
            for number, record in enumerate(records):
                at = info.first_offset + number
                self.acknowledged[at] = record._replace(offset=at)

    def _move(self, broker: int, *_: int) -> None:
        state = self.cluster.state(TP)
        self.cluster.move_leader(TP, to=state.isr[broker % len(state.isr)])

    def _pause(self, ms: int, *_: int) -> None:
        self.clock.advance(ms=ms % 100)

    def _leader_and_others(self) -> tuple[int, list[int]]:
        """Return the leader and the other running brokers; without a leader none runs."""
        leader = self.cluster.leader(TP)
        return leader, [each for each in self.cluster.brokers if each != leader > -1]

    def _kill_leader(self, *_: int) -> None:
        leader, _others = self._leader_and_others()
        if leader >= 0:
            self.cluster.kill(leader)

    def _kill_follower(self, which: int, *_: int) -> None:
        _leader, others = self._leader_and_others()
        if others:
            self.cluster.kill(others[which % len(others)])

    def _cut_leader(self, *_: int) -> None:
        leader, others = self._leader_and_others()
        if others:
            self.cluster.disconnect({leader}, set(range(BROKERS)) - {leader})

    def _slow_leader(self, delay: int, *_: int) -> None:
        leader, _others = self._leader_and_others()
        if leader >= 0:
            for other in set(range(BROKERS)) - {leader}:
                self.cluster.slow(leader, other, (1, 50, 200)[delay % 3])

    def _move_on(self, which: int, *_: int) -> None:
        """Move the leadership to another in-sync replica."""
        state = self.cluster.state(TP)
        others = [each for each in state.isr if each != state.leader]
        if others:
            self.cluster.move_leader(TP, to=others[which % len(others)])

    def _roll(self, broker: int, *_: int) -> None:
        if (process := self.cluster.brokers.get(broker % BROKERS)) is not None:
            process.roll(TP)

    def _clean(self, broker: int, *_: int) -> None:
        if (process := self.cluster.brokers.get(broker % BROKERS)) is not None:
            report = process.clean(TP.topic, force=True, roll=broker % 2 == 0)
            self.tally["passes"] += len(report.cleaned)

    def _delete(self, fraction: int, timeout: int, *_: int) -> None:
        leader = self.cluster.leader(TP)
        if leader < 0:
            return
        log = self.cluster.brokers[leader].log(TP)
        start, mark = log.log_start_offset, log.high_watermark
        offset = start + (mark - start) * (fraction % 5) // 8
        result = self.cluster.delete_records({TP: offset}, timeout_ms=(10, 60_000)[timeout % 2])[TP]
        self.deleted = max(self.deleted, offset)
        self.tally[f"delete-records: {result.error}"] += 1
        if result.error is None:
            starts = [each.log_start_offset for each in self._logs().values()]
            claim(result.low_watermark <= min(starts), "not all have deleted", result, starts)
            claim(result.low_watermark >= offset, "less was deleted than asked for", result, offset)

    # -- invariants ----------------------------------------------------------------------

    def _logs(self) -> dict[int, Log]:
        return {number: broker.log(TP) for number, broker in self.cluster.brokers.items()}

    def check(self) -> None:
        """Raise a `Violation` if an invariant does not hold."""
        self._take_in_committed()
        logs = self._logs()
        state = self.cluster.state(TP)
        for broker, log in logs.items():
            log._check()
            claim(
                log.log_start_offset >= self.log_starts[broker],
                "a log start fell",
                broker,
                log,
                self.log_starts[broker],
            )
            self.log_starts[broker] = log.log_start_offset
            is_in_sync = broker in state.isr
            if is_in_sync and state.leader >= 0:
                claim(
                    log.log_end_offset >= self.committed_end,
                    "an in-sync replica lacks a committed record",
                    broker,
                    log,
                    self.committed_end,
                )
            self._check_contents(broker, log)
        self._check_acknowledged(state.leader)
        self._check_low_watermark(state.leader, logs)

    def _take_in_committed(self) -> None:
        """Note records that are below the leader's high watermark for the first time."""
        leader = self.cluster.leader(TP)
        if leader < 0:
            return
        log = self.cluster.brokers[leader].log(TP)
        mark = log.high_watermark
        if mark <= self.committed_end:
            return
        start = max(self.committed_end, log.log_start_offset)
        for batch in log.reader.batches(start, mark, isolation=Isolation.LOG_END):
            header = batch.header
            if header.base_offset < self.committed_end:
                continue
            claim(header.last_offset < mark, "the high watermark cuts a batch", log, header)
            data = bytes(batch.data)
            self.batches[header.base_offset] = data
            for record in batch.records():
                self.committed[record.offset] = Known(
                    record,
                    data,
                    header.producer_id,
                    header.is_transactional,
                    header.is_control,
                    self.clock.now_ms(),
                )
        self.committed_end = mark

    def _check_contents(self, broker: int, log: Log) -> None:
        """Compare a replica with the committed records, except those that may have been removed."""
        start = log.log_start_offset
        end = min(self.committed_end, log.log_end_offset)
        known_to_be_committed = min(end, log.high_watermark)
        seen: set[int] = set()
        previous = -1
        if start < log.log_end_offset:
            for batch in log.reader.batches(start, isolation=Isolation.LOG_END):
                header = batch.header
                claim(header.base_offset > previous, "offsets fall", broker, header)
                previous = header.last_offset
                if header.base_offset >= known_to_be_committed:
                    break
                if self.batches.get(header.base_offset) == batch.data:
                    seen.update(record.offset for record in batch.records())
                    continue
                for record in batch.records():
                    known = self.committed.get(record.offset)
                    claim(known is not None, "a record nobody committed", broker, log, record)
                    assert known is not None
                    claim(
                        record == known.record,
                        "another record than was committed",
                        broker,
                        record,
                        known.record,
                    )
                    seen.add(record.offset)
        for offset in range(start, known_to_be_committed):
            if offset not in seen and offset in self.committed:
                self._check_absence(broker, log, offset)

    def _check_absence(self, broker: int, log: Log, offset: int) -> None:
        """Return why a committed record may be missing on a replica."""
        known = self.committed[offset]
        if known.is_control or self._is_aborted(offset, known):
            return
        if known.record.value is None:
            return  # it may have expired, by the clock of the broker that cleaned it
        beaten = any(
            other.record.key == known.record.key
            and not other.is_control
            and not self._is_aborted(at, other)
            and self._order(other) > self._order(known)
            for at, other in self.committed.items()
        )
        claim(beaten, "a record that nothing supersedes is gone", broker, log, known.record)

    def _order(self, known: Known) -> tuple[int, int]:
        record = known.record
        if self.setting.strategy == "timestamp":
            return record.timestamp, record.offset
        if self.setting.strategy == "header":
            versions = [value for name, value in record.headers if name == VERSION]
            return int.from_bytes(versions[-1], "big") if versions else -1, record.offset
        return 0, record.offset

    def _is_aborted(self, offset: int, known: Known) -> bool:
        if not known.is_transactional:
            return False
        for at in sorted(self.committed):
            marker = self.committed[at]
            if at > offset and marker.is_control and marker.producer_id == known.producer_id:
                matches = end_txn_marker_of(RecordBatch(marker.batch))
                return matches is not None and matches.is_abort
        return False

    def _check_acknowledged(self, leader: int) -> None:
        """Everything acknowledged is committed, and the leader reaches beyond it."""
        for offset, record in self.acknowledged.items():
            known = self.committed.get(offset)
            if known is None:
                claim(offset < self.deleted, "an acknowledged record is lost", offset, record)
                continue
            claim(
                (known.record.key, known.record.value) == (record.key, record.value),
                "an acknowledged record is another",
                record,
                known.record,
            )
        if leader >= 0 and self.acknowledged:
            log = self.cluster.brokers[leader].log(TP)
            last = max(self.acknowledged)
            claim(log.log_end_offset > last, "the leader lacks an acknowledged record", log, last)

    def _check_low_watermark(self, leader: int, logs: dict[int, Log]) -> None:
        if leader < 0:
            return
        starts = {broker: log.log_start_offset for broker, log in logs.items()}
        low = self.cluster.low_watermark(TP)
        claim(low <= min(starts.values()), "the low watermark is too high", low, starts)
        role = self.cluster.replicas(leader).role(TP)
        assert isinstance(role, Leadership)
        reported = [
            each.log_start_offset for each in role.followers.values() if each.replica in logs
        ]
        claim(
            low == min([starts[leader], *reported]),
            "the low watermark is another",
            low,
            starts,
            reported,
        )


def _opened_before(log: Log, offset: int) -> bool:
    first = log.producer_state.first_undecided_offset()
    return first is not None and first < offset


class Run(NamedTuple):
    """How often each situation was reached, and everything that happened."""

    tally: Counter[str]
    transcript: Transcript


def run(seed: int, steps: Sequence[Step] | None = None, world: type[World] = Simulation) -> Run:
    """Take the steps of a seed, or some of them."""
    transcript = Transcript()
    with recording_calls(Replicas, MESSAGES, transcript), world(seed) as simulation:
        for step in world.plan(seed) if steps is None else steps:
            simulation.take(step)
            _note_logs(simulation, transcript)
        tally = simulation.finish()
        _note_logs(simulation, transcript)
        _note_records(simulation, transcript)
    return Run(tally, transcript)


def _note_logs(simulation: World, transcript: Transcript) -> None:
    transcript.note(simulation.clock.now_ms(), sorted(simulation.tally.items()))
    for tp in simulation.partitions():
        transcript.note(tp, simulation.cluster.state(tp))
        for number, broker in simulation.cluster.brokers.items():
            log = broker.log(tp)
            transcript.note(number, log, log.high_watermark, log.last_stable_offset)


def _note_records(simulation: World, transcript: Transcript) -> None:
    for tp in simulation.partitions():
        for broker in simulation.cluster.brokers.values():
            log = broker.log(tp)
            for batch in log.reader.batches(log.log_start_offset, isolation=Isolation.LOG_END):
                transcript.note(batch.data)


def transcribe(seed: int, world: type[World] = Simulation) -> Transcript:
    """Return the messages between brokers, the logs after each step, and all records."""
    return run_and_shrink(seed, world).transcript


def failure(
    seed: int, numbers: Sequence[int], world: type[World] = Simulation
) -> BaseException | None:
    """Return how the steps of these numbers fail, None if they do not."""
    steps = world.plan(seed)
    try:
        run(seed, [steps[number] for number in numbers], world)
    except Exception as error:
        return error
    return None


def shrunk(numbers: Sequence[int], fails: Callable[[Sequence[int]], object]) -> list[int]:
    """Return as few of the steps as still fail: runs of them are left out, then single ones."""
    left = list(numbers)
    size = max(1, len(left) // 2)
    while True:
        for first in range(0, len(left), size):
            fewer = left[:first] + left[first + size :]
            if fails(fewer):
                left = fewer
                break
        else:
            if size == 1:
                return left
            size //= 2


def command(seed: int, numbers: Sequence[int], world: type[World] = Simulation) -> str:
    """Return how to repeat some steps of a seed."""
    steps = ",".join(map(str, numbers))
    return f"python -m {world.module} {seed} --steps {steps}"


def run_and_shrink(seed: int, world: type[World] = Simulation) -> Run:
    """Run a seed; a failure names the few steps that reproduce it."""
    try:
        return run(seed, world=world)
    except Exception as error:
        everything = range(len(world.plan(seed)))
        what = _what(error)
        few = shrunk(everything, lambda some: _what(failure(seed, some, world)) == what)
        error.add_note(f"seed {seed}; to repeat it: {command(seed, few, world)}")
        raise


def _what(error: BaseException | None) -> str | None:
    """Return the failed invariant, without the numbers of this run."""
    return error and f"{type(error).__name__} {str(error).partition(':')[0]}"


def steps_of(seed: int, numbers: Sequence[int], world: type[World] = Simulation) -> Iterator[str]:
    """Yield each step as it is executed; raises when one fails."""
    steps = world.plan(seed)
    with world(seed) as simulation:
        for number in numbers:
            yield f"{number}: {steps[number]}"
            try:
                simulation.take(steps[number])
            finally:
                yield from simulation.state()
        simulation.finish()
        yield f"all is well: {dict(simulation.tally)}"


def run_many(seeds: range, world: type[World] = Simulation) -> None:
    """Run seeds and print those that fail and the totals of situations; exit if any is missing."""
    tally: Counter[str] = Counter()
    failed: list[int] = []
    for seed in seeds:
        try:
            tally += run_and_shrink(seed, world).tally
        except Exception as error:
            failed.append(seed)
            print(f"{error}\n{error.__notes__[0]}", flush=True)  # noqa: T201  # for whoever runs it
    print(f"{len(seeds)} seeds: {dict(sorted(tally.items()))}")  # noqa: T201  # see above
    missing = [each for each in world.situations if not tally[each]]
    if failed or missing:
        sys.exit(f"failed seeds: {failed}; situations that were not reached: {missing}")


def main(arguments: Sequence[str], world: type[World] = Simulation) -> None:
    """Print the steps of a seed, or run many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", help="numbers of steps, with commas; all by default")
    parser.add_argument("--until", type=int, help="run all seeds up to this one, exclusive")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.until is not None:
        run_many(range(options.seed, options.until), world)
        return
    numbers = range(len(world.plan(options.seed)))
    if options.steps is not None:
        numbers = [int(number) for number in options.steps.split(",")]
    for line in steps_of(options.seed, numbers, world):
        print(line)  # noqa: T201  # for whoever repeats a seed


if __name__ == "__main__":
    main(sys.argv[1:])
