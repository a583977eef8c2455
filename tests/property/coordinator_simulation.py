"""Groups and transactions of a cluster from one seed: clients, coordinators that fail, invariants.

Clients use both versions of transactions, and some change it. They run one call after another, and
repeat it while its error is retriable. Two kinds of steps schedule faults that take place during
later calls: `strike` after some time, and `ambush` at one of the next waits for replicas, at the
broker that is waited for, with a second fault at once or a restart soon after.

To repeat a seed, all of it or some of its steps; to run many seeds and count their situations::

    python -m tests.property.coordinator_simulation 4711
    python -m tests.property.coordinator_simulation 4711 --steps 3,8,21
    python -m tests.property.coordinator_simulation 0 --until 10000
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TypeVar

from logstore import Broker, Cluster, LogStoreError, TopicPartition, VirtualClock
from logstore.cluster.leadership import Leadership
from logstore.coordinator.groups.coordinator import GroupCoordinator
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.groups.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.coordinator.transactions.produce import add_to_transaction, append_as_client
from logstore.coordinator.transactions.state import (
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from logstore.errors import RETRIABLE_ERRORS
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.log.drafts import AppendInfo, NewRecord
from logstore.storage.log.log import Log
from logstore.storage.log.reader import Isolation
from tests.property.cluster_simulation import BROKERS, Step, World, claim, main
from tests.property.cluster_simulation import transcribe as transcribe_world
from tests.property.coordinator_model import (
    V0,
    V2,
    Errors,
    Half,
    Member,
    NoCoordinator,
    Process,
    Refused,
    StateHistory,
    Transaction,
    Unknown,
    Watch,
    Write,
)
from tests.support.world.transcripts import Transcript

T = TypeVar("T")

FEW = 27
DATA = tuple(TopicPartition("t", number) for number in range(3))
STATES = tuple(TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(2))
INTERNAL = (*(TopicPartition(GROUP_OFFSETS_TOPIC, number) for number in range(2)), *STATES)
IDS = ("x", "y", "z")
WORN_ID = "z"
"""An id whose first producer is close to its last epoch, in some seeds."""

GROUPS = ("g", "h")
MEMBERS_GROUP = "m"
COMMITTED_TPS = DATA[:2]
TRIES = 25
SESSION_MS = 30_000
EXPIRY_MINUTES = 60
EXPIRY_MS = EXPIRY_MINUTES * 60_000
"""Time after which unused ids and committed offsets expire, and data where retention is on."""

TIMEOUTS_MS = (60_000, 60_000, 8_000)
WAITS_MS = (0, 1, 20, 500, 6_000, 31_000, 61_000, 600_000, 3 * EXPIRY_MS)
DELAYS_MS = (0, 0, 0, 0, 1, 3, 50, 9_000)
RESTARTS_MS = (0, 1, 100, 2_000, 15_000)
HALVED_MS = (0, 100, 40_000, 40_000, 50_000)
"""Times for which only some of the partitions have their marker.

A leader that was cut off from a follower cannot replicate a marker before the ISR shrinks.
"""

HOPS_MAX = 40
WAITS_MAX = 14
"""Waits for replicas before an ambush; a transaction has about as many."""

KINDS = {
    "transact": 16,
    "send": 10,
    "send_offset": 8,
    "end": 12,
    "late": 4,
    "init": 5,
    "commit_offset": 7,
    "fetch": 6,
    "member": 8,
    "ambush": 30,
    "strike": 8,
    "wait": 6,
    "cut": 1,
    "heal": 4,
    "slow": 3,
    "kill": 1,
    "lose_power": 1,
    "stop": 1,
    "restart": 8,
    "move": 3,
    "clean": 4,
    "delete": 3,
    "settle": 3,
}
"""Kinds of steps and their frequencies."""

HALF_MARKED = (
    "restart",
    "restart",
    "settle",
    "halve",
    "transact",
    "wait",
    "transact",
    "transact",
    "settle",
)
"""A coordinator fails between markers, and coordinates a later transaction of the same id.

Random steps almost never produce this sequence. All transactions have the same numbers; steps may
be left out, and others come in between.
"""

STRIKES = (
    *(("kill", "lose_power", "stop", "move", "move_internal") * 2),
    *("restart", "restart", "restart", "cut", "heal", "heal", "slow", "clean", "delete"),
)
"""Faults that take place during other calls."""

AMBUSHES = (
    *(("kill", "lose_power") * 3),
    *("stop", "shift", "shift", "clean", "clean", "delete", "cut_off", "slow"),
)
"""Faults that take place at a wait for replicas."""

FENCED = frozenset(
    (
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED",
    )
)
"""Errors of a producer that another producer, or a timeout, has fenced."""

PHASES = (
    "opening",
    "open",
    "deciding",
    "prepared",
    "between markers",
    "completing",
    "complete",
)
"""Phases of a transaction, as its coordinator knows it. In each a coordinator must fail."""

CORE_SITUATIONS = (
    *KINDS,
    "aborted",
    "committed",
    "end repeated",
    "ended by a failure: open, version 0",
    "ended by a failure: open, version 2",
    "fenced",
    "fenced by another",
    "lost power",
    "moved a coordinator",
    "offset committed",
    "offset fetched",
    "offsets sent",
    "passes",
    "seen whole",
    "synced: None",
    "unknown",
)
"""Situations that a few seeds reach."""

SITUATIONS = (
    *CORE_SITUATIONS,
    *(
        f"{end}: {phase}, version {version:d}"
        for end in ("ended by a failure", "moved")
        for phase in PHASES
        for version in (V0, V2)
    ),
    "added by one request",
    "aborted without a transaction",
    "changed the version",
    "cleaned __consumer_offsets",
    "cleaned __transaction_state",
    "cleaned t",
    "deleted",
    "elections",
    "elections of coordinators",
    "ended by a failure: loading",
    "ended by a failure: pending offsets",
    "epoch bump refused",
    "epochs bumped",
    "expired offset",
    "forgotten id",
    "late batch refused",
    "moved: loading",
    "moved: pending offsets",
    "outcome found",
    "outcome unknown",
    "producer id replaced",
    "retention",
    "retried: CONCURRENT_TRANSACTIONS",
    "retried: COORDINATOR_LOAD_IN_PROGRESS",
    "retried: COORDINATOR_NOT_AVAILABLE",
    "retried: NOT_COORDINATOR",
    "retried: NOT_ENOUGH_REPLICAS",
    "retried: NOT_LEADER_OR_FOLLOWER",
    "returned to a coordinator",
    "seen committed",
    "struck inside a call",
    "timed out",
    "two at once",
    "unstable",
)
"""Situations that ten thousand seeds must reach."""


def plan(seed: int) -> list[Step]:
    """Return the steps of a seed."""
    rng = random.Random(f"coordinators {seed}")
    count = rng.randint(15, 50)
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=count)
    steps = [_step(rng, kind) for kind in kinds]
    if rng.random() < 0.25:
        place = rng.randint(0, count)
        steps[place:place] = _half_marked(rng)
    return steps


def _step(rng: random.Random, kind: str) -> Step:
    return Step(kind, tuple(rng.randrange(1 << 16) for _ in range(5)))


def _half_marked(rng: random.Random) -> Iterator[Step]:
    which, where, group, outcome, timeout = _step(rng, "transact").numbers
    # More than one partition, and an end.
    transact = Step(
        "transact", (which, where * 3 + rng.randint(1, 2), group, outcome * 5 + 1, timeout)
    )
    for kind in HALF_MARKED:
        if kind == "wait":
            yield Step(kind, (rng.choice((5, 6)), *_step(rng, kind).numbers[1:]))
        elif rng.random() < 0.95:
            yield transact if kind == "transact" else _step(rng, kind)
        if rng.random() < 0.1:
            yield _step(rng, rng.choices(list(KINDS), list(KINDS.values()))[0])


class Simulation(World):
    """A cluster with producers, groups and members."""

    module = "tests.property.coordinator_simulation"
    plan = staticmethod(plan)

    situations = SITUATIONS

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock = VirtualClock()
        self.cluster = Cluster(
            brokers=BROKERS,
            clock=self.clock,
            seed=seed,
            background=seed % 2 == 1,
            broker_config={
                "offsets.topic.num.partitions": 2,
                "offsets.retention.minutes": EXPIRY_MINUTES,
                "transaction.state.log.num.partitions": 2,
                "transactional.id.expiration.ms": EXPIRY_MS,
                "log.index.size.max.bytes": 1200,
                "group.initial.rebalance.delay.ms": 0,
                "group.min.session.timeout.ms": 1000,
            },
        )
        rng = random.Random(f"setting {seed}")
        self.is_compacted = rng.random() < 0.4
        self.has_retention = rng.random() < 0.15
        self.cluster.create_topic(
            "t",
            len(DATA),
            replication_factor=BROKERS,
            configs={
                "cleanup.policy": "compact,delete" if self.is_compacted else "delete",
                "delete.retention.ms": "20000",
                "retention.ms": str(EXPIRY_MS) if self.has_retention else "-1",
                "segment.bytes": "400" if self.has_retention else "1000000",
                "min.insync.replicas": "2" if seed % 3 else "1",
                "flush.messages": ("1", "9223372036854775807")[seed // 2 % 2],
                "segment.index.bytes": "1200",
            },
        )
        # Created now, while three brokers can have replicas.
        self.cluster.group_coordinator("g")
        self.cluster.transaction_coordinator("x")
        self.watch = self.cluster.purgatory = Watch(self._on_wait)
        versions = {each: rng.choice((V0, V2)) for each in IDS}
        self.processes = [Process(each, versions[each]) for each in IDS for _ in range(2)]
        self.newest: dict[str, ProducerIdAndEpoch] = {}
        self.owners: dict[ProducerIdAndEpoch, Process] = {}
        self.used_ms: Counter[str] = Counter()
        self.transactions: list[Transaction] = []
        self.writes: dict[tuple[str, TopicPartition], list[Write]] = {}
        self.late_values: set[bytes] = set()
        self.members = [Member(), Member()]
        self.generation = -1
        self.number = 0
        self.depth = 0
        self.ambushes: list[list[int]] = []
        self.halves: list[Half] = []
        self.ends: Counter[TopicPartition] = Counter()
        self.records: dict[TopicPartition, dict[int, tuple[bytes | None, bytes | None, int]]] = {}
        self.histories = {
            tp: StateHistory(self.tally, lambda offset, tp=tp: (tp, offset) in self.watch.failed)
            for tp in STATES
        }
        self.errors = Errors()
        logging.disable(logging.WARNING)
        logging.getLogger("logstore").addHandler(self.errors)
        if rng.random() < 0.3:
            self._wear_out()

    def _wear_out(self) -> None:
        """Store a producer that is close to its last epoch, and let another broker load it."""
        producer = ProducerIdAndEpoch(self.cluster.producer_ids.take(), LAST_EPOCH - 2)
        metadata = TransactionMetadata(
            WORN_ID,
            *producer,
            timeout_ms=TIMEOUTS_MS[0],
            state=TransactionState.EMPTY,
            last_update_ms=self.clock.now_ms(),
            previous_producer_id=producer.producer_id,
        )
        record = NewRecord(encode_key(WORN_ID), encode_value(metadata), self.clock.now_ms())
        leader = self.cluster.transaction_coordinator(WORN_ID)
        tp = self.cluster.brokers[leader].coordinator.partition_for(WORN_ID)
        self.cluster.leader_log(tp).writer.append_records([record])
        self.clock.advance(seconds=1)
        self.cluster.move_leader(tp, to=(leader + 1) % BROKERS)
        self.newest[WORN_ID] = producer

    def __exit__(self, *details: object) -> None:
        logging.getLogger("logstore").removeHandler(self.errors)
        logging.disable(logging.NOTSET)
        super().__exit__(*details)

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions that exist."""
        topics = {topic.name for topic in self.cluster.controller.topics()}
        return [tp for tp in (*DATA, *INTERNAL) if tp.topic in topics]

    def state(self) -> Iterator[str]:
        """Describe producers, leaders and coordinators."""
        for each in self.processes:
            if each.producer is not None:
                yield f"    {each.id}: {each.producer} {vars(each.transaction or each)}"
        for tp in self.partitions():
            logs = self.logs(tp).items()
            ends = {broker: (log.log_end_offset, log.high_watermark) for broker, log in logs}
            yield f"    {tp}: {self.cluster.state(tp)} {ends}"
        for broker, process in self.cluster.brokers.items():
            # Not with `transactions`, which may load a partition.
            stored = process._coordinator and process._coordinator._stored
            yield f"    {broker}: {stored and list(stored.by_id.values())}"

    def logs(self, tp: TopicPartition) -> dict[int, Log]:
        """Return the log of each running broker."""
        return {number: broker.log(tp) for number, broker in self.cluster.brokers.items()}

    # -- calls ---------------------------------------------------------------------------

    def retry(self, call: Callable[[], T]) -> T:
        """Return the result of a call, which is repeated while its error is retriable."""
        for _ in range(TRIES):
            try:
                return call()
            except NoCoordinator:
                self.tally["no coordinator"] += 1
            except LogStoreError as error:
                if error.kafka_error not in RETRIABLE_ERRORS and not self._is_closed(error):
                    raise
                self.tally[f"retried: {error.kafka_error}"] += 1
            self.clock.advance(ms=100)
        self.tally["unknown"] += 1
        raise Unknown

    @staticmethod
    def _is_closed(error: LogStoreError) -> bool:
        return type(error).__name__ == "IllegalStateError"

    def _coordinator(self, transactional_id: str) -> TransactionCoordinator:
        return self._leader(self.cluster.transaction_coordinator(transactional_id)).coordinator

    def _groups(self, group_id: str) -> GroupCoordinator:
        return self._leader(self.cluster.group_coordinator(group_id)).groups

    def _leader(self, broker_id: int) -> Broker:
        broker = self.cluster.brokers.get(broker_id)
        if broker is None:
            raise NoCoordinator
        return broker

    def _call(
        self, process: Process, call: Callable[[], T], sends_to: TopicPartition | None = None
    ) -> T | None:
        """Run a call of a producer; None if its answer is unknown or the producer is fenced."""
        try:
            done = self.retry(call)
        except Unknown:
            process.is_broken = True
            return None
        except LogStoreError as error:
            is_unordered = error.kafka_error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
            if is_unordered and self._has_no_batches(process, sends_to):
                self.tally["last batch deleted"] += 1
                process.is_broken = True
                return None
            claim(error.kafka_error in FENCED, "a producer got an unexpected error", error)
            claim(self._may_be_fenced(process), "a producer was fenced by nobody", error)
            self.tally["fenced"] += 1
            process.forget()
            return None
        is_served = not process.is_fenced or self._ends_as_the_one_before(process)
        claim(is_served, "a fenced producer was served", process.producer)
        if process.is_fenced:
            self.tally["fenced, but answered"] += 1
            process.forget()
            return None
        self.used_ms[process.id] = self.clock.now_ms()
        return done

    def _has_no_batches(self, process: Process, tp: TopicPartition | None) -> bool:
        """Return whether the batches of a producer in a partition have been deleted.

        A replica that was copied since may only know the producer's marker. As in Kafka, the next
        sequence then does not follow.
        """
        last = process.offsets.get(tp) if tp is not None else None
        if tp is None or last is None:
            return False
        return any(log.log_start_offset > last for log in self.logs(tp).values())

    def _ends_as_the_one_before(self, process: Process) -> bool:
        """Return whether a fenced producer may take the end of its successor for its own.

        In Kafka too, EndTxn of version 2 is a repetition if the epoch is the one before.
        """
        newest = self.newest[process.id]
        producer = process.producer
        assert producer is not None
        is_before = producer == (newest.producer_id, newest.producer_epoch - 1)
        is_before |= producer.producer_epoch == LAST_EPOCH and newest.producer_epoch == 0
        return process.version is V2 and is_before and process.is_ending

    def _may_be_fenced(self, process: Process) -> bool:
        transaction = process.transaction
        if process.may_be_fenced or (transaction is not None and not transaction.has_begun):
            return True
        now_ms = self.clock.now_ms()
        if now_ms >= self.used_ms[process.id] + EXPIRY_MS:
            self.tally["forgotten id"] += 1
            return True
        if transaction is None:
            return False
        has_expired = now_ms > transaction.start_ms + process.timeout_ms
        self.tally["timed out"] += has_expired
        return has_expired

    def _process(self, number: int) -> Process:
        return self.processes[number % len(IDS) * 2 + (number // len(IDS) % 5 == 0)]

    # -- producers -----------------------------------------------------------------------

    def _init(self, which: int, timeout: int, expects: int, again: int, _: int) -> None:
        self._initialize(self._process(which), timeout, expects, again)

    def _initialize(self, process: Process, timeout: int, expects: int, again: int) -> None:
        expected = process.producer if expects % 3 == 0 else None
        timeout_ms = TIMEOUTS_MS[timeout % len(TIMEOUTS_MS)]
        for each in self.processes:
            if each.id == process.id:
                each.may_be_fenced = True
        process.transaction = None

        def call() -> ProducerIdAndEpoch:
            return self._coordinator(process.id).init_producer_id(process.id, timeout_ms, expected)

        for _ in range(1 + (again % 4 == 0)):  # the first answer was lost
            try:
                producer = self.retry(call)
            except Unknown:
                process.forget()
                return
            except LogStoreError as error:
                claim(expected is not None, "a new producer is refused", error)
                claim(error.kafka_error == "PRODUCER_FENCED", "init failed", error)
                self.tally["epoch bump refused"] += 1
                process.forget()
                return
            self._own(process, producer, is_repeated=expected is not None)
        self.tally["epochs bumped"] += expected is not None
        process.forget()
        for each in self.processes:
            if each.id == process.id and each is not process and each.producer is not None:
                each.is_fenced = True
                self.tally["fenced by another"] += 1
        process.producer = producer
        process.timeout_ms = timeout_ms
        process.is_fenced = process.may_be_fenced = process.is_broken = False

    def _own(
        self, process: Process, producer: ProducerIdAndEpoch, *, is_repeated: bool = False
    ) -> None:
        """Check that a producer is new, and no other process has it."""
        newest = self.newest.get(process.id)
        is_repeated = is_repeated and producer == newest
        claim(
            newest is None
            or producer > newest
            or (is_repeated and self.owners[producer] is process),
            "a producer epoch went back",
            newest,
            producer,
        )
        owner = self.owners.setdefault(producer, process)
        claim(owner is process, "two producers share an epoch", producer)
        is_replaced = newest is not None and newest.producer_epoch >= LAST_EPOCH
        self.tally["producer id replaced"] += is_replaced and producer.producer_epoch == 0
        self.newest[process.id] = producer
        self.used_ms[process.id] = self.clock.now_ms()

    def _begin(self, process: Process, timeout: int) -> Transaction | None:
        """Return the open or a new transaction of a process, or None if it cannot send."""
        if process.transaction is None and (process.is_broken or process.producer is None):
            self._initialize(process, timeout, 1, 1)
        if process.producer is None or process.is_broken:
            return None
        if process.transaction is None:
            if timeout % 7 == 0 and not self._change_version(process, timeout):
                return None
            process.transaction = Transaction(self.clock.now_ms())
            self.transactions.append(process.transaction)
        process.ended = process.ended_as = None
        return process.transaction

    def _change_version(self, process: Process, timeout: int) -> bool:
        """Change the version between transactions; return whether the producer can continue.

        Java's producer takes another epoch with version 2, so that no batch becomes part of a
        transaction of version 0 that is decided, but has no marker yet.
        """
        self.tally["changed the version"] += 1
        process.version = V2 if process.version is V0 else V0
        if process.version is V2:
            self._initialize(process, timeout, 0, 1)
        return process.producer is not None

    def _add(self, process: Process, tp: TopicPartition) -> bool:
        """Add a partition to a transaction, unless its first batch does."""
        if process.version is V2:
            return True
        producer = process.producer
        assert producer is not None

        def call() -> bool:
            self._coordinator(process.id).add_partitions(process.id, producer, [tp])
            return True

        return self._note_begun(process, self._call(process, call))

    @staticmethod
    def _note_begun(process: Process, is_done: object) -> bool:
        if is_done and process.transaction is not None:
            process.transaction.has_begun = True
        return bool(is_done)

    def _batch(self, producer: ProducerIdAndEpoch, sequence: int) -> tuple[bytes, bytes]:
        """Return a new value and a batch with it; its key is unique."""
        self.number += 1
        value = b"%d" % self.number
        batch = build_batch(
            [Record(0, self.clock.now_ms(), value, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return value, bytes(batch)

    def _append(self, process: Process, tp: TopicPartition, batch: bytes) -> AppendInfo:
        if process.version is V0:
            info = self.cluster.append_batches(tp, batch, transactional_id=process.id)
        else:
            info = self.cluster._produce(
                tp,
                lambda broker: append_as_client(
                    broker.manager, broker.coordinator, tp, batch, process.id, adds=True
                ),
                lambda info: info.last_offset,
                "all",
                30_000,
            )
        assert info is not None
        return info

    def _send(self, which: int, where: int, timeout: int, *_: int) -> None:
        process, tp = self._process(which), DATA[where % len(DATA)]
        transaction = self._begin(process, timeout)
        producer = process.producer
        if transaction is None or producer is None or not self._add(process, tp):
            return
        value, batch = self._batch(producer, process.sequences[tp])
        process.sequences[tp] += 1
        transaction.values.add(value)
        info = self._call(process, lambda: self._append(process, tp, batch), tp)
        if self._note_begun(process, info is not None):
            assert info is not None
            process.offsets[tp] = info.last_offset
            transaction.sent.append((tp, info.first_offset, value))
            self.tally["sent"] += 1

    def _send_offset(self, which: int, group: int, where: int, timeout: int, *_: int) -> None:
        process, group_id = self._process(which), GROUPS[group % len(GROUPS)]
        tp = COMMITTED_TPS[where % len(COMMITTED_TPS)]
        transaction = self._begin(process, timeout)
        producer = process.producer
        if transaction is None or producer is None:
            return
        try:
            partition = self.retry(lambda: self._groups(group_id).partition_for(group_id))
        except Unknown:
            return
        if not self._add(process, partition):
            return
        self.number += 1
        value = self.number
        offsets = {tp: OffsetAndMetadata(value, "")}
        adds = process.version is V2

        def call() -> bool:
            broker = self._leader(self.cluster.group_coordinator(group_id))
            broker.groups.check_transactional(ConsumerGroupMetadata(group_id), offsets)
            owner = broker.coordinator.of(process.id, producer.producer_id)
            with owner.verified(partition, producer, process.id, adds=adds):
                wait = broker.groups.append_transactional(group_id, offsets, producer)
            wait()
            return True

        writes = self.writes.setdefault((group_id, tp), [])
        is_sent = self._note_begun(process, self._call(process, call))
        writes.append(Write(value, transaction, is_sent, self.clock.now_ms()))
        self.tally["offsets sent"] += is_sent

    def _late(self, which: int, where: int, older: int, *_: int) -> None:
        """Send a batch of a former producer, which must be refused."""
        process, tp = self._process(which), DATA[where % len(DATA)]
        if not process.former:
            return
        producer, sequences = process.former[-1 - older % min(2, len(process.former))]
        if producer == self.newest[process.id]:
            return  # it was not replaced
        value, batch = self._batch(producer, sequences[tp])
        self.late_values.add(value)
        try:
            self.retry(lambda: self._append(process, tp, batch))
        except Unknown:
            return
        except LogStoreError as error:
            claim(error.kafka_error in FENCED, "a late batch got an unexpected error", error)
            self.tally["late batch refused"] += 1
        else:
            claim(False, "a late batch was accepted", process.id, producer)

    def _end(self, which: int, outcome: int, again: int, *_: int) -> None:
        process = self._process(which)
        if process.producer is None:
            return
        transaction = process.transaction
        if transaction is None:
            self._end_again(process, outcome)
            return
        commit = transaction.asked
        if commit is None:
            commit = outcome % 4 > 0 and not process.is_broken
        transaction.asked = commit
        if commit:
            transaction.outcome = None
        producer = process.producer
        following = None
        for _ in range(1 + (again % 3 == 0)):  # the first answer was lost
            following = self._end_once(process, producer, commit=commit)
            if following is None:
                self.tally["outcome unknown"] += process.is_broken and commit
                return
        assert following is not None
        transaction.outcome = commit
        process.transaction = None
        # A batch may be missing; only another epoch begins with sequence 0 again.
        process.is_broken &= process.version is V0
        process.ended, process.ended_as = commit, producer
        self._continue(process, following)
        self.tally["committed" if commit else "aborted"] += 1

    def _end_again(self, process: Process, outcome: int) -> None:
        """Repeat the end of a transaction, or abort without a transaction."""
        producer = process.producer
        assert producer is not None
        if process.is_broken:
            return
        if process.version is V2 and outcome % 4 == 0:
            # Kafka takes the epoch for outdated while markers of the last transaction are missing.
            process.may_be_fenced = True
            following = self._end_once(process, producer, commit=False)
            if following is not None:
                process.may_be_fenced = False
                self._continue(process, following)
                process.ended = process.ended_as = None
                self.tally["aborted without a transaction"] += 1
        elif process.ended is not None and process.ended_as is not None:
            following = self._end_once(process, process.ended_as, commit=process.ended)
            if following is not None:
                claim(following == producer, "a repeated end got another producer", following)
                self.tally["end repeated"] += 1

    def _continue(self, process: Process, following: ProducerIdAndEpoch) -> None:
        """Continue with the producer that the end of a transaction has returned."""
        if process.version is V0:
            claim(following == process.producer, "the epoch moved", process.producer, following)
        else:
            self._own(process, following)
            process.become(following)

    def _end_once(
        self, process: Process, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> ProducerIdAndEpoch | None:
        process.is_ending = True
        try:
            return self._call(
                process,
                lambda: self._coordinator(process.id).end_transaction(
                    process.id, producer, commit=commit, version=process.version
                ),
            )
        finally:
            process.is_ending = False

    def _transact(self, which: int, where: int, group: int, outcome: int, timeout: int) -> None:
        process = self._process(which)
        partitions = 1 + where % 3
        if partitions > 1 and timeout % 3:
            self._add_together(process, where, partitions, timeout)
        for number in range(partitions):
            self._send(which, where + number, timeout)
        if group % 2:
            self._send_offset(which, group // 2, where, timeout)
        if outcome % 5:
            self._end(which, outcome, group)

    def _add_together(self, process: Process, where: int, count: int, timeout: int) -> None:
        """Add the partitions of one request, whose batches follow."""
        transaction = self._begin(process, timeout)
        producer = process.producer
        if transaction is None or producer is None or process.version is V0:
            return
        batches = []
        for number in range(count):
            tp = DATA[(where + number) % len(DATA)]
            batches.append((tp, self._batch(producer, process.sequences[tp])[1]))
        broker = self.cluster.brokers.get(self.cluster.leader(batches[0][0]))
        if broker is not None:
            add_to_transaction(broker.manager, broker.coordinator, process.id, batches)
            self.tally["added by one request"] += 1

    # -- groups --------------------------------------------------------------------------

    def _commit_offset(self, group: int, where: int, *_: int) -> None:
        group_id = GROUPS[group % len(GROUPS)]
        tp = COMMITTED_TPS[where % len(COMMITTED_TPS)]
        self.number += 1
        value = self.number
        writes = self.writes.setdefault((group_id, tp), [])

        def call() -> None:
            offsets = {tp: OffsetAndMetadata(value, "")}
            error = self._groups(group_id).commit(group_id, offsets)[tp]
            if error is not None:
                raise Refused(error)

        try:
            self.retry(call)
        except Unknown:
            writes.append(Write(value, None, False, self.clock.now_ms()))
        else:
            writes.append(Write(value, None, True, self.clock.now_ms()))
            self.tally["offset committed"] += 1

    def _fetch(self, group: int, where: int, *_: int) -> None:
        group_id = GROUPS[group % len(GROUPS)]
        tp = COMMITTED_TPS[where % len(COMMITTED_TPS)]
        try:
            self._check_offset(group_id, tp)
        except Unknown:
            return

    def _check_offset(self, group_id: str, tp: TopicPartition) -> bool:
        """Compare a committed offset with the model; return False if it is not stable."""
        found = self.retry(
            lambda: self._groups(group_id).fetch(group_id, [tp], require_stable=True)
        )[tp]
        if found.error == "UNSTABLE_OFFSET_COMMIT":
            self.tally["unstable"] += 1
            return False
        claim(found.error is None, "a fetch of an offset failed", found)
        value = None if found.committed is None else found.committed.offset
        writes = self.writes.setdefault((group_id, tp), [])
        possible: list[int | None] = [None]
        for write in writes:
            outcome = True if write.transaction is None else write.transaction.outcome
            if outcome is True and write.is_acknowledged:
                possible = [write.value]
                if write.time_ms + EXPIRY_MS <= self.clock.now_ms():
                    possible.append(None)
                    self.tally["expired offset"] += value is None
            elif outcome is not False:
                possible.append(write.value)
        claim(
            value in possible,
            "a committed offset is another than was acknowledged",
            group_id,
            tp,
            value,
            possible,
        )
        self.tally["offset fetched"] += 1
        # The answer is replicated, so earlier writes have taken effect or never will.
        if value is not None:
            seen = next(write for write in writes if write.value == value)
            if seen.transaction is not None:
                seen.transaction.outcome = True
                self.tally["seen committed"] += 1
            writes[:] = [seen._replace(transaction=None, is_acknowledged=True)]
        else:
            writes.clear()
        return True

    def _member(self, which: int, action: int, *_: int) -> None:
        """Let a member of a group take its next steps, or leave."""
        for number in range(4):
            with suppress(NoCoordinator):
                self._advance_member(which, action + number)

    def _advance_member(self, which: int, action: int) -> None:
        member = self.members[which % len(self.members)]
        group_id = MEMBERS_GROUP
        groups = self._groups(group_id)
        if action % 8 == 0 and member.member_id:
            groups.leave(group_id, [LeavingMember(member.member_id)])
            self.tally["member left"] += 1
            self.members[which % len(self.members)] = Member()
        elif member.synced is not None and member.synced.error is None:
            error = groups.heartbeat(group_id, member.generation, member.member_id)
            if error is None:
                member.contact_ms = self.clock.now_ms()
            self.tally[f"heartbeat: {error}"] += 1
            tp = COMMITTED_TPS[0]
            offsets = {tp: OffsetAndMetadata(self.number, "")}
            committed = groups.commit(group_id, offsets, member.generation, member.member_id)[tp]
            self.tally[f"member commits: {committed}"] += 1
            if error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
                self.members[which % len(self.members)] = Member()
            elif error == "REBALANCE_IN_PROGRESS":
                self._join(member)
        elif member.joined is not None and member.joined.error is None:
            self._sync(member)
        else:
            self._join(member)

    def _join(self, member: Member) -> None:
        member.joined = member.synced = None

        def on_joined(result: JoinResult) -> None:
            self.tally[f"joined: {result.error}"] += 1
            if result.error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
                member.member_id = ""
            else:
                member.member_id = result.member_id
            member.joined = result
            member.generation = result.generation_id

        request = JoinRequest(
            MEMBERS_GROUP, "consumer", (("range", b""),), SESSION_MS, 60_000, member.member_id
        )
        self._groups(MEMBERS_GROUP).join(request, on_joined)
        self.clock.advance(ms=1)

    def _sync(self, member: Member) -> None:
        joined = member.joined
        assert joined is not None

        def on_synced(result: SyncResult) -> None:
            self.tally[f"synced: {result.error}"] += 1
            member.synced = result
            if result.error is not None:
                member.joined = None
                if result.error == "UNKNOWN_MEMBER_ID":
                    member.member_id = ""
                return
            claim(
                result.assignment == member.member_id.encode(),
                "a member got the assignment of another",
                member.member_id,
                result,
            )
            now_ms = self.clock.now_ms()
            is_kept = any(
                each is not member and each.is_member(now_ms, SESSION_MS) for each in self.members
            )
            # A group that has lost all members may be deleted, and begins again.
            is_next = joined.generation_id >= self.generation or not is_kept
            claim(is_next, "a generation went back", joined)
            self.generation = joined.generation_id
            member.contact_ms = now_ms

        assignments = {each.member_id: each.member_id.encode() for each in joined.members}
        request = SyncRequest(
            MEMBERS_GROUP,
            joined.generation_id,
            member.member_id,
            None,
            "consumer",
            "range",
            assignments if joined.leader == joined.member_id else {},
        )
        self._groups(MEMBERS_GROUP).sync(request, on_synced)
        self.clock.advance(ms=1)

    # -- faults --------------------------------------------------------------------------

    def _strike(self, which: int, hops: int, delay: int, number: int, more: int) -> None:
        """Schedule a fault: after some due tasks, and perhaps some time."""
        kind = STRIKES[which % len(STRIKES)]
        left = hops % HOPS_MAX
        schedule = self.cluster.runtime.scheduler.schedule

        def hop() -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                schedule("strike", hop)
                return
            if self.depth:  # inside of another
                return
            self.depth += 1
            self.tally["struck inside a call"] += len(self.cluster.purgatory) > 0
            try:
                self.act(kind, (number, more, which, hops, delay))
            finally:
                self.depth -= 1

        schedule("strike", hop, delay_ms=DELAYS_MS[delay % len(DELAYS_MS)])

    def _ambush(self, *numbers: int) -> None:
        """Prepare a fault at one of the next waits for replicas."""
        self.ambushes.append([numbers[0] % WAITS_MAX, *numbers[1:]])

    def _halve(self, which: int, delay: int, fault: int, *_: int) -> None:
        """Let one of the next coordinators fail between markers."""
        self.halves.append(Half(which, delay, fault))

    def _decided(self, tp: TopicPartition) -> TransactionMetadata | None:
        """Return the last state in a partition, if it is replicated and a decision."""
        log = self.cluster.brokers[self.cluster.leader(tp)].log(tp)
        end = log.log_end_offset
        if log.high_watermark < end:
            return None
        for _, (key, value, _) in self._read(log, end - 1, end):
            transactional_id = decode_key(key)
            if transactional_id is not None and value is not None:
                metadata = decode_value(transactional_id, value)
                return metadata if metadata.state.is_prepared else None
        return None

    def _spring_half(self, tp: TopicPartition) -> None:
        """Cut a coordinator off from a leader of its decided transaction, or let it return."""
        coordinator = self.cluster.leader(tp)
        metadata = self._decided(tp) if coordinator in self.cluster.brokers else None
        if metadata is None:
            return
        half = self.halves[0]
        if half.returns is not None:
            decided, earlier = half.returns
            is_next = metadata.transactional_id == decided.transactional_id and metadata != decided
            if is_next and coordinator != earlier:
                self.halves.pop(0)
                if earlier in self.cluster.state(tp).isr:
                    self.cluster.move_leader(tp, to=earlier)
                    self.tally["returned to a coordinator"] += 1
            return
        leaders = {self.cluster.leader(each) for each in metadata.partitions}
        others = sorted(leaders - {coordinator, -1})
        if len(leaders) > 1 and others:
            self.halves.pop(0)
            self.cluster.disconnect({coordinator}, {others[half.which % len(others)]})
            delay_ms = HALVED_MS[half.delay % len(HALVED_MS)]
            half = half._replace(returns=(metadata, coordinator))
            self._later(lambda: self._end_half(half, tp, coordinator), delay_ms)

    def _end_half(self, half: Half, tp: TopicPartition, coordinator: int) -> None:
        """Let a coordinator fail that lacks a marker; it returns if it only was replaced."""
        self.depth += 1
        try:
            if half.fault % 3 == 0:
                self.act(AMBUSHES[half.fault // 3 % 6], (coordinator, *[half.which] * 4))
            elif self.cluster.leader(tp) == coordinator:
                self._move_one([tp], 0, half.which)
                self.halves.insert(0, half)
            self.cluster.heal()
        finally:
            self.depth -= 1

    def _on_wait(self, where_to: TopicPartition | int, is_over: bool) -> None:
        if self.depth:
            return
        if is_over and self.halves and where_to in STATES:
            self._spring_half(where_to)
        for ambush in list(self.ambushes):
            _, where, which, whom, more = ambush
            if is_over != (where % 3 == 2):
                continue
            ambush[0] -= 1
            if ambush[0] >= 0:
                continue
            self.ambushes.remove(ambush)
            if where % 3 == 1:  # while some replicas have it
                self._later(lambda a=ambush: self._spring(where_to, *a[2:]), 0, where // 3 % 6)
            else:
                self._spring(where_to, which, whom, more)

    def _later(self, action: Callable[[], object], delay_ms: int, hops: int = 0) -> None:
        """Call a function after a delay and some due tasks, but not inside another fault."""

        def run() -> None:
            nonlocal hops
            hops -= 1
            if hops >= 0:
                self.cluster.runtime.scheduler.schedule("strike", run)
            elif self.depth:
                self.cluster.runtime.scheduler.schedule("strike", run, delay_ms=1)
            else:
                action()

        self.cluster.runtime.scheduler.schedule("strike", run, delay_ms=delay_ms)

    def _spring(self, where: TopicPartition | int, which: int, whom: int, more: int) -> None:
        """Let a fault happen now, and perhaps a second one or a restart soon after."""
        kind = AMBUSHES[which % len(AMBUSHES)]
        numbers = (more, whom, which, whom, more)
        self.depth += 1
        try:
            victim = self._victim(where, whom)
            self.act(kind, (victim, *numbers[1:]))
            self.tally[f"ambushed: {kind}"] += 1
            if more % 4 == 0:
                self.tally["two at once"] += 1
                self.act(kind, ((victim + 1 + more // 4 % 2) % BROKERS, *numbers[1:]))
            elif more % 4 == 1:
                # The next leader, while it loads.
                self.tally["two at once"] += 1
                self.act(AMBUSHES[more // 4 % 7], (self._victim(where, whom), *numbers[1:]))
        finally:
            self.depth -= 1
        delay_ms = RESTARTS_MS[more // 8 % len(RESTARTS_MS)]
        if more % 16 != 15:
            self._later(lambda: self._repair(kind, numbers), delay_ms)

    def _repair(self, kind: str, numbers: tuple[int, ...]) -> None:
        self.depth += 1
        try:
            self.act("heal" if kind in ("cut_off", "slow") else "restart", numbers)
        finally:
            self.depth -= 1

    def _victim(self, where: TopicPartition | int, whom: int) -> int:
        """Return the broker that is waited for, a coordinator, or any broker."""
        if whom % 4 == 0:
            return whom // 4 % BROKERS
        if whom % 4 == 1:
            where = INTERNAL[whom // 4 % len(INTERNAL)]
        return where if isinstance(where, int) else max(0, self.cluster.leader(where))

    def _cut_off(self, broker: int, *_: int) -> None:
        self.cluster.disconnect({broker}, set(range(BROKERS)) - {broker})

    def _shift(self, broker: int, to: int, *_: int) -> None:
        """Move the partitions that a broker coordinates to others."""
        for number, tp in enumerate(self.partitions()):
            if tp in INTERNAL and self.cluster.leader(tp) == broker:
                self._move_one([tp], 0, to + number)

    def _kill(self, broker: int, *more: int) -> None:
        with self._noting(broker % BROKERS):
            super()._kill(broker, *more)

    def _lose_power(self, broker: int, *more: int) -> None:
        with self._noting(broker % BROKERS):
            super()._lose_power(broker, *more)

    def _stop(self, broker: int, *more: int) -> None:
        with self._noting(broker % BROKERS):
            super()._stop(broker, *more)

    def _lacks_markers(self, metadata: TransactionMetadata) -> int:
        """Return in how many partitions a transaction is still open."""
        logs = [
            self.cluster.leader_log(tp)
            for tp in metadata.partitions
            if self.cluster.leader(tp) in self.cluster.brokers
        ]
        return sum(each.producer_state.has_open_transaction(metadata.producer_id) for each in logs)

    @contextmanager
    def _noting(self, broker: int) -> Iterator[None]:
        """Count the situations of a broker if it ends."""
        situations = [each for tp in INTERNAL for each in self._situations(broker, tp)]
        yield
        if broker not in self.cluster.brokers:
            self.tally += Counter(f"ended by a failure: {each}" for each in situations)

    def _situations(self, broker: int, tp: TopicPartition) -> Iterator[str]:
        """Yield the situations of a broker in a partition that it leads."""
        process = self.cluster.brokers.get(broker)
        if process is None or self.cluster.leader(tp) != broker:
            return
        log = process.log(tp)
        if tp not in STATES:
            if log.producer_state.open_producers():
                yield "pending offsets"
            return
        loaded = self._loaded(broker, tp)
        if loaded is None:
            if log.log_end_offset:
                yield "loading"
            return
        is_replicated = log.high_watermark >= log.log_end_offset
        for metadata in loaded:
            state, is_newest = metadata.state, metadata.last_update_ms == self.clock.now_ms()
            phase = "open" if is_replicated else "opening"
            if state.is_prepared:
                phase = "prepared" if is_replicated else "deciding"
                if self._lacks_markers(metadata) not in (0, len(metadata.partitions)):
                    phase = "between markers"
            elif state.is_idle:
                phase = "complete" if is_replicated or not is_newest else "completing"
            yield f"{phase}, version {metadata.client_version}"

    def _loaded(self, broker: int, tp: TopicPartition) -> list[TransactionMetadata] | None:
        """Return the states that the leader of a partition has loaded, None without them."""
        process = self.cluster.brokers.get(broker)
        coordinator = process and process._coordinator
        stored = coordinator and coordinator._stored
        if not coordinator or not stored:
            return None
        role = self.cluster.replicas(broker).role(tp)
        assert isinstance(role, Leadership)
        if stored.epochs.get(tp.partition) != role.state.leader_epoch:
            return None
        known = stored.by_id.values()
        return [
            each
            for each in known
            if coordinator._log.partition_of(each.transactional_id) == tp.partition
        ]

    def _wait(self, which: int, *_: int) -> None:
        self.clock.advance(ms=WAITS_MS[which % len(WAITS_MS)])

    def _slow(self, broker: int, delay: int, *_: int) -> None:
        delay_ms = (1, 2, 50, 3_000)[delay % 4]
        self.cluster.slow(broker % BROKERS, (broker + 1) % BROKERS, delay_ms)

    def _move(self, which: int, to: int, *_: int) -> None:
        self._move_one(self.partitions(), which, to)

    def _move_internal(self, which: int, to: int, *_: int) -> None:
        self._move_one([tp for tp in self.partitions() if tp in INTERNAL], which, to)

    def _move_one(self, partitions: Sequence[TopicPartition], which: int, to: int) -> None:
        if partitions:
            tp = partitions[which % len(partitions)]
            state = self.cluster.state(tp)
            others = [each for each in state.isr if each != state.leader]
            if others:
                situations = list(self._situations(state.leader, tp))
                self.cluster.move_leader(tp, to=others[to % len(others)])
                self.tally["moved"] += 1
                self.tally += Counter(f"moved: {each}" for each in situations)
                self.tally["moved a coordinator"] += tp in INTERNAL

    def _clean(self, broker: int, which: int, *_: int) -> None:
        names = [GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC] + ["t"] * self.is_compacted
        name = names[which % len(names)]
        for tp in self.partitions():
            self._take_in_committed(tp)
        for number, process in self.cluster.brokers.items():
            if which % 4 == 0 or number == broker % BROKERS:
                report = process.clean(name, force=True, roll=True)
                self.tally["passes"] += len(report.cleaned)
                removed = sum(each.messages_read - each.messages_written for each in report.cleaned)
                self.tally[f"cleaned {name}"] += removed > 0

    def _delete(self, which: int, fraction: int, timeout: int, *_: int) -> None:
        tp = DATA[which % len(DATA)]
        if (leader := self.cluster.leader(tp)) >= 0:
            log = self.cluster.brokers[leader].log(tp)
            start, mark = log.log_start_offset, log.high_watermark
            offset = start + (mark - start) * (fraction % 4) // 8
            result = self.cluster.delete_records({tp: offset}, timeout_ms=10 + timeout % 1000)
            self.tally["deleted"] += result[tp].error is None and offset > start

    # -- invariants ----------------------------------------------------------------------

    def check(self) -> None:
        """Raise a `Violation` if an invariant does not hold."""
        claim(not self.errors.records, "an error was logged", *self.errors.records)
        for tp in self.partitions():
            self._take_in_committed(tp)
            in_sync = self.cluster.state(tp).isr
            for broker, log in self.logs(tp).items():
                if broker in in_sync and self.cluster.leader(tp) >= 0:
                    claim(
                        log.log_end_offset >= self.ends[tp],
                        "a replica in sync lacks committed records",
                        broker,
                        log,
                        self.ends[tp],
                    )

        self._check_complete()

    def _check_complete(self) -> None:
        """Check that every partition has the marker of a transaction that is complete."""
        open_producers = {
            producer_id: tp
            for tp in self.partitions()
            if self.cluster.leader(tp) in self.cluster.brokers
            for producer_id in self.cluster.leader_log(tp).producer_state.open_producers()
        }
        for tp in STATES:
            for metadata in self._loaded(self.cluster.leader(tp), tp) or ():
                is_whole = not metadata.state.is_idle or metadata.producer_id not in open_producers
                claim(is_whole, "a complete transaction lacks a marker", metadata, open_producers)

    def _take_in_committed(self, tp: TopicPartition) -> None:
        leader = self.cluster.leader(tp)
        if leader < 0:
            return
        log = self.cluster.brokers[leader].log(tp)
        mark, end = log.high_watermark, self.ends[tp]
        if mark > end:
            read = dict(self._read(log, end, mark))
            self.records.setdefault(tp, {}).update(read)
            self.ends[tp] = mark
            if (history := self.histories.get(tp)) is not None:
                for offset, (key, value, _) in read.items():
                    history.take(offset, key, value)

    @staticmethod
    def _read(
        log: Log, start: int, end: int
    ) -> Iterator[tuple[int, tuple[bytes | None, bytes | None, int]]]:
        start = max(start, log.log_start_offset)
        if start >= end:
            return
        for batch in log.reader.batches(start, end, isolation=Isolation.LOG_END):
            header = batch.header
            for record in batch.records():
                if start <= record.offset < end:
                    yield record.offset, (record.key, record.value, header.producer_id)

    def finish(self) -> Counter[str]:
        """Let the cluster settle, end all transactions, and compare everything with the model."""
        self.ambushes.clear()
        self.halves.clear()
        self._recover()
        self.clock.advance(seconds=90)
        self._recover()  # from faults that struck in the meantime
        for _ in range(2):
            self.clock.advance(seconds=30)
            for broker in self.cluster.brokers.values():
                broker.coordinator.abort_timed_out()
        self.clock.advance(seconds=1)
        self.check()
        for tp in self.partitions():
            self._check_replicas(tp)
        self._check_transactions()
        for group_id, tp in list(self.writes):
            is_stable = self._check_offset(group_id, tp)
            claim(is_stable, "offsets of a transaction remain pending", group_id, tp)
        self._check_service(self.processes[self.seed % len(self.processes)])
        self._take_in_values()
        self.check()
        for tp in self.partitions():
            elections = self.cluster.state(tp).leader_epoch
            self.tally["elections of coordinators" if tp in INTERNAL else "elections"] += elections
        starts = [log.log_start_offset for tp in DATA for log in self.logs(tp).values()]
        self.tally["retention"] += self.has_retention and max(starts) > 0
        return self.tally

    def _recover(self) -> None:
        self.cluster.heal()
        for broker in range(BROKERS):
            if broker not in self.cluster.brokers:
                self.cluster.restart(broker)

    def _check_replicas(self, tp: TopicPartition) -> None:
        logs = list(self.logs(tp).values())
        state = self.cluster.state(tp)
        claim(set(state.isr) == set(range(BROKERS)), "not all are in sync in the end", state)
        end = logs[0].log_end_offset
        for log in logs:
            log._check()
            claim(log.log_end_offset == end, "the ends differ", *logs)
            claim(log.high_watermark == end, "a high watermark lags", *logs)
            claim(log.last_stable_offset == end, "a transaction remains open", tp, log)
            self._check_records(log, end)
        newest = [self._newest(log) for log in logs]
        for one, other in pairwise(newest):
            claim(one == other, "the contents of replicas differ", tp, one, other)

    def _check_records(self, log: Log, end: int) -> None:
        """Check that a replica has the records that were committed.

        As in Kafka, a replica may keep a record that was never committed, below the first batch of
        the next leader epoch that the cleaner has left to its leader; but not if it is the newest
        of its key.
        """
        known = self.records.setdefault(log.topic_partition, {})
        is_cleaned = log.topic_partition in INTERNAL or self.is_compacted
        read = dict(self._read(log, 0, end))
        newest = {key: offset for offset, (key, _, _) in read.items()}
        for offset, record in read.items():
            if is_cleaned:
                known.setdefault(offset, record)  # cleaned before the end of its step
            if known.get(offset) != record:
                is_superseded = is_cleaned and newest[record[0]] > offset
                claim(is_superseded, "a replica has another record", log, record)
                self.tally["superseded, never committed"] += 1

    @staticmethod
    def _newest(log: Log) -> dict[bytes | None, tuple[int, bytes]]:
        newest: dict[bytes | None, tuple[int, bytes]] = {}
        if log.topic_partition in DATA:
            return newest
        start = log.log_start_offset
        for _, record in log.reader.records(start, isolation=Isolation.READ_COMMITTED):
            newest.pop(record.key, None)
            if record.value is not None:
                newest[record.key] = record.offset, record.value
        return newest

    def _take_in_values(self) -> dict[TopicPartition, dict[bytes, int]]:
        """Return the committed values of each partition, which are the same on all replicas."""
        values: dict[TopicPartition, dict[bytes, int]] = {}
        for tp in DATA:
            logs = list(self.logs(tp).values())
            start = max(log.log_start_offset for log in logs)
            reads = [
                [
                    (record.value, record.offset)
                    for _, record in log.reader.records(start, isolation=Isolation.READ_COMMITTED)
                ]
                for log in logs
            ]
            for read in reads:
                claim(read == reads[0], "read_committed differs between replicas", tp, *reads)
            counts = Counter(value for value, _ in reads[0])
            twice = [value for value, count in counts.items() if count > 1]
            claim(not twice, "a value was committed twice", tp, twice)
            late = self.late_values & set(counts)
            claim(not late, "a late record is visible", tp, late)
            values[tp] = {value: offset for value, offset in reads[0] if value is not None}
        return values

    def _check_transactions(self) -> None:
        values = self._take_in_values()
        starts = {tp: max(log.log_start_offset for log in self.logs(tp).values()) for tp in DATA}
        visible = {value for of_tp in values.values() for value in of_tp}
        for transaction in self.transactions:
            left = [each for each in transaction.sent if each[1] >= starts[each[0]]]
            found = [value in visible for _, _, value in left]
            if transaction.outcome is None and left:
                claim(len(set(found)) == 1, "a transaction is in parts", left, found)
                transaction.outcome = found[0]
                self.tally["outcome found"] += 1
            if transaction.outcome is True:
                claim(all(found), "a committed record is lost", left, found)
                self.tally["seen whole"] += len(left) > 1
            elif transaction.outcome is False:
                extra = transaction.values & visible
                claim(not extra, "an aborted record is visible", extra, vars(transaction))

    def _check_service(self, process: Process) -> None:
        """Check that each id can commit again."""
        state = self.retry(lambda: self._coordinator(process.id).describe(process.id))
        claim(state is None or state.state.is_idle, "a transaction is not complete", state)
        self._initialize(process, 0, 1, 1)
        claim(process.producer is not None, "no producer can be initialized", process.id)
        which = self.processes.index(process) // 2 + (0 if self.processes.index(process) % 2 else 3)
        claim(self._process(which) is process, "the number of a process")
        self._send(which, 0, 1)
        self._send(which, 1, 1)
        self._send_offset(which, 0, 0, 1)
        transaction = process.transaction
        claim(transaction is not None and len(transaction.sent) == 2, "a send fails", process.id)
        self._end(which, 1, 1)
        claim(process.ended is True, "a commit fails", process.id)


def transcribe(seed: int) -> Transcript:
    """Return the messages between brokers, the states after each step, and all records."""
    return transcribe_world(seed, Simulation)


if __name__ == "__main__":
    main(sys.argv[1:], Simulation)
