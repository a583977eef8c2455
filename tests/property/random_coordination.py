"""Random calls of the coordinators of groups and transactions, whose results are stored.

Unlike the members of other histories, callers do not follow the protocol: ids, generations, epochs
and instances are often those of others or of nobody. Time goes by in steps of up to a week.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from logstore import LogStoreError, OffsetAndMetadata, TopicPartition
from logstore.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata
from logstore.coordinator.groups.requests import (
    ConsumerHeartbeat,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from logstore.coordinator.transactions.produce import append_as_client
from logstore.coordinator.transactions.state import ProducerIdAndEpoch, TransactionVersion
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.support.world.groups import GroupBench
from tests.support.world.transcripts import Transcript

FEW = 40
STEPS = 80
GROUPS = (*"gggggghhh", "")
IDS = (*"xxxxxyy", "")
TPS = (*tuple(TopicPartition("t", number) for number in (0, 1, 7)), TopicPartition("u", 0))
DAY_MS = 86_400_000
WAITS_MS = (0, 0, 0, 0, 0, 0, 1, 1, 1, 500, 500, 500, 3_000, 3_000, 11_000, 31_000, 70_000)
LONG_WAITS_MS = (DAY_MS, 7 * DAY_MS + 1)
CONFIG = {
    "group.max.size": 3,
    "group.consumer.max.size": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.state.log.num.partitions": 1,
    "transaction.max.timeout.ms": 100_000,
    "offset.metadata.max.bytes": 5,
}


def transcribe(seed: int) -> Transcript:
    """Return random calls of one broker's coordinators, and their results."""
    return _Calls(seed).run()


class _Calls:
    """The coordinators of a broker, and what callers know."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.bench = GroupBench(seed=seed, **CONFIG)
        self.bench.broker.create_topic("t", 2)
        self.bench.broker.create_topic("u")
        self.members = ["", "m"]
        self.generations = [-1]
        self.producers = {name: [ProducerIdAndEpoch(0, 0)] for name in IDS}
        self.number = 0

    @property
    def groups(self) -> Any:
        return self.bench.groups

    @property
    def coordinator(self) -> Any:
        return self.bench.broker.coordinator

    def attempt(self, call: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        """Note a call and its result, or its error."""
        self.transcript.note(self.bench.clock.now_ms(), call.__name__, arguments, options)
        try:
            result = call(*arguments, **options)
        except LogStoreError as error:
            self.transcript.note(type(error).__name__, error.kafka_error, str(error))
            return None
        self.transcript.note(result)
        return result

    def answered(self, name: str) -> Callable[[Any], None]:
        """Return a callback that notes a result."""
        self.number += 1
        number = self.number

        def on_done(result: Any) -> None:
            self.transcript.note(self.bench.clock.now_ms(), name, number, result)
            if result.error in (None, "MEMBER_ID_REQUIRED") and hasattr(result, "member_id"):
                self.members.append(result.member_id)
                self.generations.append(getattr(result, "generation_id", None) or 1)

        return on_done

    def run(self) -> Transcript:
        steps = [self.join, self.join, self.sync, self.sync, self.beat, self.leave]
        steps += [self.heartbeat] * 4 + [self.commit] * 4 + [self.administer] * 5
        steps += [self.transact] * 8
        for name in "xy":
            self.producers[name] += [self.coordinator.init_producer_id(name, 60_000)]
        for _ in range(STEPS):
            self.rng.choice(steps)()
            waits_ms = WAITS_MS if self.rng.random() < 0.97 else LONG_WAITS_MS
            self.bench.clock.advance(ms=self.rng.choice(waits_ms))
            self.describe()
            if self.rng.random() < 0.05:
                self.rng.choice((self.bench.reopen, self.bench.restart))()
        for topic in ("__consumer_offsets", "__transaction_state", "t"):
            log = self.bench.broker.log(topic, 0)
            for batch in log.reader.batches(log.log_start_offset):
                self.transcript.note(topic, batch.data)
        self.bench.kill()
        return self.transcript

    def describe(self) -> None:
        note, groups = self.transcript.note, self.groups
        note(groups.list_groups())
        for group in ("g", "h"):
            note(groups.describe(group), groups.describe_consumer_group(group))
            note(groups.fetch(group), groups.fetch(group, TPS[:2], require_stable=True))
        note(self.coordinator.transactions)

    # -- groups --------------------------------------------------------------------------------

    def member(self) -> str:
        rng = self.rng
        return rng.choice(self.members[-3:] if rng.random() < 0.8 else self.members)

    def generation(self) -> int:
        rng = self.rng
        return self.generations[-1] if rng.random() < 0.6 else rng.choice((-1, 0, 1, 2, 3))

    def instance(self) -> str | None:
        return self.rng.choice((*[None] * 5, "i"))

    def join(self) -> None:
        rng = self.rng
        data = encode_subscription(Subscription(rng.choice((("t",), ("t", "u"), ()))))
        names = rng.choice((*[("range",)] * 4, ("range", "sticky"), ("sticky",), ()))
        request = JoinRequest(
            rng.choice(GROUPS),
            rng.choice((*["consumer"] * 9, "connect", "")),
            tuple((name, data) for name in names),
            rng.choice((*[10_000, 30_000] * 5, 999, 2_000_000)),
            rng.choice((5_000, 60_000)),
            member_id=self.member(),
            group_instance_id=self.instance(),
            client_id="c",
            client_host="/h",
            requires_member_id=rng.random() < 0.3,
            can_skip_assignment=rng.random() < 0.5,
        )
        self.transcript.note("join", request)
        self.groups.join(request, self.answered("joined"))

    def sync(self) -> None:
        rng = self.rng
        request = SyncRequest(
            rng.choice(GROUPS),
            self.generation(),
            self.member(),
            self.instance(),
            rng.choice((None, "consumer", "connect")),
            rng.choice((None, "range", "sticky")),
            {each: each.encode() for each in self.members if rng.random() < 0.7},
        )
        self.transcript.note("sync", request)
        self.groups.sync(request, self.answered("synced"))

    def beat(self) -> None:
        group = self.rng.choice(GROUPS)
        self.attempt(
            self.groups.heartbeat, group, self.generation(), self.member(), self.instance()
        )

    def leave(self) -> None:
        leaving = [LeavingMember(self.member(), self.instance()) for _ in range(2)]
        self.attempt(self.groups.leave, self.rng.choice(GROUPS), leaving)

    def heartbeat(self) -> None:
        rng = self.rng
        joins = rng.random() < 0.5
        request = ConsumerHeartbeat(
            rng.choice(GROUPS),
            rng.choice(("a", "b", self.member())),
            0 if joins else rng.choice((1, 2, 3, 4, 5, -1, -2)),
            self.instance(),
            rng.choice((None, "r")),
            60_000 if joins else -1,
            rng.choice((("t",), ("t", "u"))) if joins else None,
            rng.choice((None, "u.*")) if joins else None,
            rng.choice((None, "uniform", "range", "no")) if joins else None,
            {} if joins else rng.choice((None, {})),
        )
        self.transcript.note("heartbeat", request)
        self.groups.consumer_heartbeat(request, self.answered("heartbeat"), {"t", "u"}.__contains__)

    def commit(self) -> None:
        rng = self.rng
        self.attempt(
            self.groups.commit,
            rng.choice(GROUPS),
            self.offsets(),
            self.generation(),
            self.member(),
            self.instance(),
            version=rng.choice((None, 8, 9, 10)),
        )

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        rng = self.rng
        return {
            tp: OffsetAndMetadata(rng.randrange(9), rng.choice(("", "m", "5 ok!", "6 is 1")), epoch)
            for tp in rng.sample(TPS, 2)
            for epoch in [rng.choice((-1, 3))]
        }

    def administer(self) -> None:
        rng, groups, attempt = self.rng, self.groups, self.attempt
        match rng.randrange(9):
            case 0:
                attempt(groups.delete, rng.sample(("g", "h", "", "no"), 2))
            case 1:
                attempt(groups.delete_offsets, rng.choice(GROUPS), rng.sample(TPS, 2))
            case 2:
                states = rng.choice(((), ("Empty", "stable"), ("no",)))
                attempt(groups.list_groups, states, rng.choice(((), ("Consumer",), ("no",))))
            case 3:
                attempt(groups.remove_expired)
            case 4:
                member = rng.choice((None, self.member()))
                attempt(groups.check_fetch, rng.choice(GROUPS), member, self.generation())
            case 5:
                self.bench.broker.delete_topic("u")
                self.bench.broker.create_topic("u", rng.randint(1, 2))
            case 6:
                count = len(self.bench.broker.topic("t").partitions)
                if count < 5:
                    self.bench.broker.create_partitions("t", count + 1)
            case 7:
                attempt(self.coordinator.remove_expired)
            case _:
                attempt(self.coordinator.abort_timed_out)

    # -- transactions --------------------------------------------------------------------------

    def producer(self, name: str) -> ProducerIdAndEpoch:
        known = self.producers[name if self.rng.random() < 0.9 else self.rng.choice(IDS)]
        producer = self.rng.choice(known[-1:] * 4 + known[-2:])
        changed = producer._replace(producer_epoch=producer.producer_epoch + 1)
        return producer if self.rng.random() < 0.85 else changed

    def transact(self) -> None:
        rng, attempt, name = self.rng, self.attempt, self.rng.choice(IDS)
        version = rng.choice(tuple(TransactionVersion))
        producer = self.producer(name)
        match rng.randrange(10):
            case 0 | 1 | 2:
                expected = rng.choice((None, None, producer))
                timeout_ms = rng.choice((60_000, 60_000, 0, 100_000, 100_001))
                found = attempt(self.coordinator.init_producer_id, name, timeout_ms, expected)
                self.producers[name] += [found] * (found is not None)
            case 3 | 4:
                tps = rng.sample(TPS[:2], rng.randint(1, 2))
                attempt(self.coordinator.add_partitions, name, producer, tps, version)
                attempt(self.coordinator.open_partitions, name, producer)
                self.produce(name, producer)
            case 5 | 6 | 7:
                commit = rng.random() < 0.5
                end = self.coordinator.end_transaction
                found = attempt(end, name, producer, commit=commit, version=version)
                self.producers[name] += [found] * (found is not None)
            case 8:
                group = ConsumerGroupMetadata(
                    rng.choice(("g", "h")), self.generation(), self.member(), self.instance()
                )
                attempt(self.groups.check_transactional, group, self.offsets())
            case _:
                attempt(self.coordinator.owns, name, producer)
                attempt(self.coordinator.describe, name)

    def produce(self, name: str, producer: ProducerIdAndEpoch) -> None:
        batch = build_batch(
            [Record(0, self.bench.clock.now_ms(), b"k", b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=self.rng.choice((0, 1)),
            is_transactional=True,
        )
        adds = self.rng.random() < 0.5
        manager, coordinator = self.bench.broker.manager, self.coordinator

        def produce(name: str, producer: ProducerIdAndEpoch, adds: bool) -> object:
            info = append_as_client(manager, coordinator, TPS[0], bytes(batch), name, adds=adds)
            return info.first_offset, info.is_duplicate

        self.attempt(produce, name, producer, adds=adds)
