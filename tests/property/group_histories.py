"""Random histories of a consumer group: members join, read, commit, fall silent and crash.

Each member acts as a client does, step by step, on its last known state; some sleep through their
session and continue as if nothing had happened. The model knows the committed offset of each
partition.
"""

from __future__ import annotations

import random

from logstore.coordinator.groups.consumer_protocol import (
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.types import TopicPartition
from tests.support.world.groups import Client, GroupBench
from tests.support.world.transcripts import Transcript

FEW = 80
PARTITIONS = tuple(TopicPartition("t", number) for number in range(5))
REJOIN = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID")


class Model:
    """The invariants of all responses to members."""

    def __init__(self):
        self.committed: dict[TopicPartition, int] = {}

    def commit(self, offsets):
        """Offsets never go back: a new owner starts where the previous one ended."""
        for tp, offset in offsets.items():
            assert offset >= self.committed.get(tp, 0), (tp, offset)
            self.committed[tp] = offset


class Worker(Client):
    """A member with its own state."""

    def __init__(self, history, instance=None):
        self.history = history
        rng = history.rng
        super().__init__(
            history.bench,
            topics=("t",),
            instance=instance,
            session_ms=rng.choice((6000, 10_000, 30_000)),
            rebalance_ms=rng.choice((6000, 20_000, 60_000)),
            requires_member_id=rng.random() < 0.5,
            can_skip_assignment=rng.random() < 0.5,
        )
        self.phase = "outside"
        self.positions: dict[TopicPartition, int] = {}

    def _on_joined(self, result):
        self.history.note("joined", result)
        super()._on_joined(result)

    def _on_synced(self, result):
        self.history.note("synced", result)
        super()._on_synced(result)

    def step(self):
        """Take the next step, if it does not have to wait."""
        getattr(self, f"when_{self.phase}")()

    def when_outside(self):
        self.phase = "joining"
        self.join()

    def when_joining(self):
        if self.joined is None:
            return
        if self.joined.error is None:
            self.phase = "syncing"
            self.sync(self.assign() if self.is_leader and not self.joined.skip_assignment else {})
        else:
            self.start_anew(self.joined.error)

    def assign(self):
        """Distribute the partitions over the members that subscribe to the topic."""
        shares = {member.member_id: [] for member in self.joined.members}
        assert all(decode_subscription(each.metadata).topics for each in self.joined.members)
        ids = list(shares)
        start = self.history.rng.randrange(len(ids)) if ids else 0
        for number, tp in enumerate(PARTITIONS):
            if ids:
                shares[ids[(start + number) % len(ids)]].append(tp)
        return {
            member_id: encode_assignment(Assignment(tuple(share)))
            for member_id, share in shares.items()
        }

    def when_syncing(self):
        if self.synced is None:
            return
        if self.synced.error is not None:
            self.start_anew(self.synced.error)
            return
        partitions = decode_assignment(self.synced.assignment).partitions
        committed = self.bench.groups.committed(self.group)
        self.positions = {tp: committed[tp].offset if tp in committed else 0 for tp in partitions}
        self.phase = "reading"

    def when_reading(self):
        if self.history.rng.random() < 0.6:
            self.read_and_commit()
        if self.phase == "reading" and (error := self.beat()) is not None:
            self.start_anew(error)

    def read_and_commit(self):
        for tp in self.positions:
            self.positions[tp] += self.history.rng.randrange(3)
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in self.positions.items()}
        errors = self.commit(offsets)
        self.history.note("commit", errors)
        good = {tp: self.positions[tp] for tp, error in errors.items() if error is None}
        self.history.model.commit(good)
        bad = {error for error in errors.values() if error is not None}
        if bad:
            self.start_anew(bad.pop())

    def start_anew(self, error):
        self.history.note("error", error)
        self.phase = "outside"
        self.positions = {}
        if error in REJOIN:
            self.member_id, self.generation = "", -1
        else:
            assert error in ("REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED", "NOT_COORDINATOR"), (
                error
            )


class History:
    """One group, a few workers and a clock, as a seed has it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        delay_ms = self.rng.choice((0, 0, 3000))
        self.bench = GroupBench(seed=seed, **{"group.initial.rebalance.delay.ms": delay_ms})
        self.bench.broker.create_topic("t", len(PARTITIONS))
        self.model = Model()
        self.transcript = Transcript()
        self.workers: list[Worker] = []
        self.asleep: list[Worker] = []

    def live(self, steps=60):
        """Live a random life; return the bytes that it leaves in the groups' log."""
        for _ in range(steps):
            self.rng.choice(ACTIONS)(self)
            for worker in self.workers:
                if self.rng.random() < 0.8:
                    worker.step()
            self.check_owners()
            self.note(self.bench.groups.describe("g"), self.bench.groups.committed("g"))
        return self.come_to_rest()

    def note(self, *values):
        self.transcript.note(self.bench.clock.now_ms(), *values)

    def add(self):
        if len(self.workers) < 5:
            used = {each.instance for each in self.workers}
            free = [name for name in "ab" if name not in used]
            instance = self.rng.choice(free) if free and self.rng.random() < 0.3 else None
            self.workers.append(Worker(self, instance))

    def replace(self):
        """Start a second process of a static member: the first is fenced and ends."""
        static = [each for each in self.workers if each.instance is not None]
        if static:
            old = self.rng.choice(static)
            self.workers.remove(old)
            self.asleep.append(old)
            self.workers.append(Worker(self, old.instance))

    def leave(self):
        if self.workers:
            worker = self.workers.pop(self.rng.randrange(len(self.workers)))
            if worker.member_id:
                worker.leave()

    def crash(self):
        if self.workers:
            self.asleep.append(self.workers.pop(self.rng.randrange(len(self.workers))))

    def wake(self):
        """Wake a silent member if no other has its instance id."""
        names = {each.instance for each in self.workers} - {None}
        sleepers = [each for each in self.asleep if each.instance not in names]
        if sleepers and len(self.workers) < 5:
            worker = self.rng.choice(sleepers)
            self.asleep.remove(worker)
            if worker.phase == "reading":
                worker.read_and_commit()
            self.workers.append(worker)

    def late(self):
        """Let a replaced or silent member commit its position."""
        reading = [each for each in self.asleep if each.phase == "reading"]
        if reading:
            self.rng.choice(reading).read_and_commit()

    def wait(self):
        self.bench.clock.advance(ms=self.rng.choice((1, 500, 2000, 5000, 9000)))

    def restart(self):
        self.rng.choice((GroupBench.restart, GroupBench.reopen))(self.bench)
        for worker in (*self.workers, *self.asleep):
            if (worker.phase == "joining" and worker.joined is None) or (
                worker.phase == "syncing" and worker.synced is None
            ):
                worker.phase = "outside"  # the connection broke: it asks again

    def check_owners(self):
        """No partition has two readers in the current generation."""
        group, _ = self.bench.groups._groups.find("g")
        for_sure = [
            tp
            for worker in (*self.workers, *self.asleep)
            if worker.phase == "reading"
            and group is not None
            and worker.generation == group.generation_id
            and group.check_member(worker.member_id, worker.instance) is None
            for tp in worker.positions
        ]
        assert len(set(for_sure)) == len(for_sure), for_sure

    def check_offsets(self):
        committed = self.bench.groups.committed("g")
        assert {tp: each.offset for tp, each in committed.items()} == self.model.committed

    def has_strangers(self):
        """Return whether the group counts members that have left or have not joined yet."""
        known = {worker.member_id for worker in self.workers if worker.phase == "reading"}
        members = {each.member_id for each in self.bench.groups.describe("g").members}
        return members != known or len(known) != len(self.workers)

    def come_to_rest(self):
        """All partitions are assigned to the remaining members, none of them twice.

        Returns the bytes of the groups' log.
        """
        self.check_offsets()
        quiet = 0
        for _ in range(150):
            for worker in self.workers:
                worker.step()
            self.bench.clock.advance(ms=1000)
            is_stable = self.bench.state() == "Stable" and not self.has_strangers()
            quiet = quiet + 1 if is_stable or not self.workers else 0
            if quiet == 3 and self.workers:
                break
        described = self.bench.groups.describe("g")
        if not self.workers:
            assert described.state in ("Empty", "Dead")
        else:
            assert described.state == "Stable", described
            assert {each.member_id for each in described.members} == {
                worker.member_id for worker in self.workers
            }
            assert all(worker.phase == "reading" for worker in self.workers)
            shares = [tp for worker in self.workers for tp in worker.positions]
            assert sorted(shares) == sorted(PARTITIONS)
        self.check_offsets()
        self.bench.reopen()
        self.check_offsets()
        log = self.bench.broker.log("__consumer_offsets")
        data = b"".join(batch.data for batch in log.reader.batches(0))
        self.bench.kill()
        self.note(data)
        return data


def transcribe(seed):
    """Return the transcript of a history."""
    history = History(seed)
    history.live()
    return history.transcript


ACTIONS = (
    *(History.wait,) * 8,
    *(History.add,) * 4,
    *(History.crash,) * 2,
    *(History.wake,) * 2,
    History.leave,
    History.replace,
    History.late,
    History.restart,
    History.check_offsets,
)
