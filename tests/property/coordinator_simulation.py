"""Groups and transactions of a cluster from one seed: clients, coordinators that fail, invariants.

Clients run one call after another, and repeat it while its error is retriable. A step `strike`
schedules a fault, which takes place while a later call waits for replicas.

To repeat a seed, all of it or some of its steps::

    python -m tests.property.coordinator_simulation 4711
    python -m tests.property.coordinator_simulation 4711 --steps 3,8,21
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from logstore import Cluster, LogStoreError, TopicPartition, VirtualClock
from logstore.coordinator.groups.coordinator import GroupCoordinator
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.groups.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import RETRIABLE_ERRORS
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.log.log import Log
from logstore.storage.log.reader import Isolation
from tests.property.cluster_simulation import BROKERS, Step, World, claim, main

T = TypeVar("T")

DATA = tuple(TopicPartition("t", number) for number in range(3))
INTERNAL = tuple(
    TopicPartition(name, number)
    for name in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
    for number in range(2)
)
IDS = ("x", "y", "z")
GROUPS = ("g", "h")
MEMBERS_GROUP = "m"
COMMITTED_TPS = DATA[:2]
TRIES = 25
TIMEOUTS_MS = (60_000, 60_000, 8_000)
WAITS_MS = (0, 1, 20, 500, 6_000, 31_000, 61_000, 600_000)
DELAYS_MS = (0, 0, 0, 0, 1, 3, 50, 9_000)
HOPS_MAX = 40

KINDS = {
    "transact": 14,
    "send": 12,
    "send_offset": 8,
    "end": 12,
    "init": 5,
    "commit_offset": 8,
    "fetch": 6,
    "member": 10,
    "strike": 30,
    "wait": 5,
    "cut": 2,
    "heal": 4,
    "slow": 3,
    "kill": 2,
    "lose_power": 2,
    "stop": 2,
    "restart": 8,
    "move": 5,
    "clean": 3,
    "delete": 2,
    "settle": 3,
}
"""Kinds of steps and their frequencies."""

STRIKES = (
    *(("kill", "lose_power", "stop", "move", "move_internal") * 2),
    *("restart", "restart", "restart", "cut", "heal", "heal", "slow", "clean", "delete"),
)
"""Faults that take place during other calls."""

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


class Unknown(Exception):
    """A call got no final answer; it may have taken effect."""


class Write(NamedTuple):
    """An attempt to commit an offset."""

    value: int
    transaction: Transaction | None
    is_acknowledged: bool


class Transaction:
    """A transaction as its producer knows it.

    Attributes
    ----------
    outcome : bool or None
        Whether it is committed; None if that is unknown.
    """

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.has_begun = False
        self.outcome: bool | None = False
        self.is_open = True
        self.sent: list[tuple[TopicPartition, int, bytes]] = []
        self.values: set[bytes] = set()


class Process:
    """A client process that uses a transactional id."""

    def __init__(self, transactional_id: str) -> None:
        self.id = transactional_id
        self.producer: ProducerIdAndEpoch | None = None
        self.timeout_ms = 0
        self.is_fenced = self.may_be_fenced = self.is_broken = False
        self.sequences: Counter[TopicPartition] = Counter()
        self.transaction: Transaction | None = None
        self.ended: bool | None = None

    def forget(self) -> None:
        """Give up the producer and its transaction."""
        if self.transaction is not None:
            self.transaction.is_open = False
        self.producer = self.transaction = self.ended = None


class Member:
    """A member of a group, with the last answer that it got."""

    def __init__(self) -> None:
        self.member_id = ""
        self.joined: JoinResult | None = None
        self.synced: SyncResult | None = None
        self.generation = -1


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, and the error that it is about."""
        error = record.exc_info[1] if record.exc_info else None
        self.records.append(f"{record.getMessage()} {error!r}" if error else record.getMessage())


def plan(seed: int) -> list[Step]:
    """Return the steps of a seed."""
    rng = random.Random(f"coordinators {seed}")
    count = rng.randint(10, 45)
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=count)
    return [Step(kind, tuple(rng.randrange(1 << 16) for _ in range(5))) for kind in kinds]


class Simulation(World):
    """A cluster with producers, groups and members."""

    module = "tests.property.coordinator_simulation"
    plan = staticmethod(plan)

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
                "transaction.state.log.num.partitions": 2,
                "log.index.size.max.bytes": 1200,
                "group.initial.rebalance.delay.ms": 0,
                "group.min.session.timeout.ms": 1000,
            },
        )
        self.cluster.create_topic(
            "t",
            len(DATA),
            replication_factor=BROKERS,
            configs={
                "retention.ms": "-1",
                "min.insync.replicas": "2" if seed % 3 else "1",
                "flush.messages": ("1", "9223372036854775807")[seed // 2 % 2],
                "segment.index.bytes": "1200",
            },
        )
        # Created now, while three brokers can have replicas.
        self.cluster.group_coordinator("g")
        self.cluster.transaction_coordinator("x")
        self.processes = [Process(each) for each in IDS for _ in range(2)]
        self.newest: dict[str, ProducerIdAndEpoch] = {}
        self.owners: dict[ProducerIdAndEpoch, Process] = {}
        self.transactions: list[Transaction] = []
        self.writes: dict[tuple[str, TopicPartition], list[Write]] = {}
        self.members = [Member(), Member()]
        self.generation = -1
        self.number = 0
        self.depth = 0
        self.ends: Counter[TopicPartition] = Counter()
        self.records: dict[TopicPartition, dict[int, tuple[object, ...]]] = {}
        self.errors = Errors()
        logging.disable(logging.WARNING)
        logging.getLogger("logstore").addHandler(self.errors)

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
            yield f"    {broker}: {list(process.coordinator.transactions().values())}"

    def logs(self, tp: TopicPartition) -> dict[int, Log]:
        """Return the log of each running broker."""
        return {number: broker.log(tp) for number, broker in self.cluster.brokers.items()}

    # -- calls ---------------------------------------------------------------------------

    def retry(self, call: Callable[[], T]) -> T:
        """Return the result of a call, which is repeated while its error is retriable."""
        for _ in range(TRIES):
            try:
                return call()
            except KeyError:
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
        return self.cluster.brokers[
            self.cluster.transaction_coordinator(transactional_id)
        ].coordinator

    def _groups(self, group_id: str) -> GroupCoordinator:
        return self.cluster.brokers[self.cluster.group_coordinator(group_id)].groups

    def _call(self, process: Process, call: Callable[[], T]) -> T | None:
        """Run a call of a producer; None if its answer is unknown or the producer is fenced."""
        try:
            done = self.retry(call)
        except Unknown:
            process.is_broken = True
            return None
        except LogStoreError as error:
            claim(error.kafka_error in FENCED, "a producer got an unexpected error", error)
            claim(self._may_be_fenced(process), "a producer was fenced by nobody", error)
            self.tally["fenced"] += 1
            process.forget()
            return None
        claim(not process.is_fenced, "a fenced producer was served", process.producer)
        return done

    def _may_be_fenced(self, process: Process) -> bool:
        transaction = process.transaction
        if process.may_be_fenced or (transaction is not None and not transaction.has_begun):
            return True
        if transaction is None:
            return False
        has_expired = self.clock.now_ms() > transaction.start_ms + process.timeout_ms
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
        if process.transaction is not None:
            process.transaction.is_open = False
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
            newest = self.newest.get(process.id)
            is_repeated = expected is not None and producer == newest
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
            self.newest[process.id] = producer
        if expected is not None:
            self.tally["epochs bumped"] += 1
        process.forget()
        for each in self.processes:
            if each.id == process.id and each is not process and each.producer is not None:
                each.is_fenced = True
                self.tally["fenced by another"] += 1
        process.producer = producer
        process.timeout_ms = timeout_ms
        process.is_fenced = process.may_be_fenced = process.is_broken = False
        process.sequences.clear()

    def _begin(self, process: Process, timeout: int) -> Transaction | None:
        """Return the open transaction of a process, or a new one; None if it cannot send."""
        if process.transaction is None and (process.is_broken or process.producer is None):
            self._initialize(process, timeout, 1, 1)
        if process.producer is None or process.is_broken:
            return None
        if process.transaction is None:
            process.transaction = Transaction(self.clock.now_ms())
            self.transactions.append(process.transaction)
        process.ended = None
        return process.transaction

    def _add(self, process: Process, tp: TopicPartition) -> bool:
        producer, transaction = process.producer, process.transaction
        assert producer is not None
        assert transaction is not None

        def call() -> bool:
            self._coordinator(process.id).add_partitions(process.id, producer, [tp])
            return True

        is_added = bool(self._call(process, call))
        transaction.has_begun |= is_added
        return is_added

    def _send(self, which: int, where: int, timeout: int, *_: int) -> None:
        process, tp = self._process(which), DATA[where % len(DATA)]
        transaction = self._begin(process, timeout)
        producer = process.producer
        if transaction is None or producer is None or not self._add(process, tp):
            return
        self.number += 1
        value = b"%d" % self.number
        batch = bytes(
            build_batch(
                [Record(0, self.clock.now_ms(), None, value)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=process.sequences[tp],
                is_transactional=True,
            )
        )
        process.sequences[tp] += 1
        transaction.values.add(value)

        def call() -> int:
            info = self.cluster.append_batches(tp, batch, transactional_id=process.id)
            assert info is not None
            return info.first_offset + 1

        if (offset := self._call(process, call)) is not None:
            transaction.sent.append((tp, offset - 1, value))
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

        def call() -> bool:
            broker = self.cluster.brokers[self.cluster.group_coordinator(group_id)]
            owner = broker.coordinator.of(process.id, producer.producer_id)
            with owner.verified(partition, producer, process.id):
                wait = broker.groups.append_transactional(
                    group_id, {tp: OffsetAndMetadata(value, "")}, producer
                )
            wait()
            return True

        writes = self.writes.setdefault((group_id, tp), [])
        is_sent = bool(self._call(process, call))
        writes.append(Write(value, transaction, is_sent))
        self.tally["offsets sent"] += is_sent

    def _end(self, which: int, outcome: int, again: int, *_: int) -> None:
        process = self._process(which)
        producer, transaction = process.producer, process.transaction
        if producer is None:
            return
        if transaction is None:
            if process.ended is not None and not process.is_broken:
                commit = process.ended
                self.tally["end repeated"] += self._end_once(process, producer, commit=commit)
            return
        # As with Kafka's producer, a commit without an answer can only be repeated.
        is_unknown = transaction.outcome is None
        commit = is_unknown or (outcome % 4 > 0 and not process.is_broken)
        was_broken = process.is_broken
        if commit:
            transaction.outcome = None
        for _ in range(1 + (again % 3 == 0)):
            if not self._end_once(process, producer, commit=commit):
                break
            transaction.outcome = commit
            transaction.is_open = False
            process.transaction = None
            process.ended = commit
            self.tally["committed" if commit else "aborted"] += 1
        else:
            process.is_broken = was_broken

    def _end_once(self, process: Process, producer: ProducerIdAndEpoch, *, commit: bool) -> bool:
        def call() -> bool:
            self._coordinator(process.id).end_transaction(process.id, producer, commit=commit)
            return True

        while process.producer is not None:
            if self._call(process, call):
                return True
            if not process.is_broken:
                break
            transaction = process.transaction
            if transaction is None or transaction.outcome is not None:
                break
            self.tally["outcome unknown"] += 1
            break
        return False

    def _transact(self, which: int, where: int, group: int, outcome: int, timeout: int) -> None:
        for number in range(1 + where % 3):
            self._send(which, where + number, timeout)
        if group % 2:
            self._send_offset(which, group // 2, where, timeout)
        if outcome % 5:
            self._end(which, outcome, group)

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
            writes.append(Write(value, None, is_acknowledged=False))
        else:
            writes.append(Write(value, None, is_acknowledged=True))
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
            writes[:] = [Write(value, None, is_acknowledged=True)]
        else:
            writes.clear()
        return True

    def _member(self, which: int, action: int, *_: int) -> None:
        """Let a member of a group take its next steps, or leave."""
        for number in range(4):
            self._advance_member(which, action + number)

    def _advance_member(self, which: int, action: int) -> None:
        member = self.members[which % len(self.members)]
        group_id = MEMBERS_GROUP
        try:
            groups = self._groups(group_id)
        except KeyError:
            return
        if action % 8 == 0 and member.member_id:
            groups.leave(group_id, [LeavingMember(member.member_id)])
            self.tally["member left"] += 1
            self.members[which % len(self.members)] = Member()
        elif member.synced is not None and member.synced.error is None:
            error = groups.heartbeat(group_id, member.generation, member.member_id)
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
            MEMBERS_GROUP, "consumer", (("range", b""),), 30_000, 60_000, member.member_id
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
            claim(joined.generation_id >= self.generation, "a generation went back", joined)
            self.generation = joined.generation_id

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
                self.cluster.move_leader(tp, to=others[to % len(others)])
                self.tally["moved"] += 1
                self.tally["moved a coordinator"] += tp in INTERNAL

    def _clean(self, broker: int, which: int, *_: int) -> None:
        name = (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)[which % 2]
        process = self.cluster.brokers.get(broker % BROKERS)
        if process is not None and name in {tp.topic for tp in self.partitions()}:
            report = process.clean(name, force=True, roll=True)
            self.tally["passes"] += len(report.cleaned)

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
                        "one in sync lacks what was committed",
                        broker,
                        log,
                        self.ends[tp],
                    )

    def _take_in_committed(self, tp: TopicPartition) -> None:
        leader = self.cluster.leader(tp)
        if leader < 0:
            return
        mark, end = self.cluster.brokers[leader].log(tp).high_watermark, self.ends[tp]
        if mark > end:
            known = self.records.setdefault(tp, {})
            in_sync = self.cluster.state(tp).isr
            for broker, log in self.logs(tp).items():  # the leader's may be cleaned already
                for offset, record in self._read(log, end, mark) if broker in in_sync else ():
                    same = known.setdefault(offset, record) == record
                    claim(same, "replicas in sync have different records", tp, broker, record)
            self.ends[tp] = mark

    @staticmethod
    def _read(log: Log, start: int, end: int) -> Iterator[tuple[int, tuple[object, ...]]]:
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
            claim(is_stable, "offsets of a transaction stay pending", group_id, tp)
        for process in self.processes:
            self._check_service(process)
        self._take_in_values()
        self.check()
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
            known = self.records.get(tp, {})
            for offset, record in self._read(log, 0, end):
                claim(known.get(offset) == record, "a replica has another record", log, record)
        newest = [self._newest(log) for log in logs]
        for one, other in pairwise(newest):
            claim(one == other, "the contents of replicas differ", tp, one, other)

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
        self._send(which, 0, 0)
        self._send(which, 1, 0)
        transaction = process.transaction
        claim(transaction is not None and len(transaction.sent) == 2, "a send fails", process.id)
        self._end(which, 1, 1)
        claim(process.ended is True, "a commit fails", process.id)


class Refused(LogStoreError):
    """An error code of a result."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.kafka_error = error


if __name__ == "__main__":
    main(sys.argv[1:], Simulation)
