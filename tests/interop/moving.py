"""Reassignments under the load of four clients: the cluster, its faults and the checks afterwards.

The topics have three replicas on four brokers, and `min.insync.replicas` is 2. Each case moves all
replicas of one broker to the spare one while clients write, and a fault happens during the copy.
Run by hand:

    python -m tests.interop.moving 20 [SEED]                 # runs of all cases
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from logstore import Cluster, TopicPartition
from logstore.cluster.states import PartitionState
from logstore.cluster.wire import ClusterListeners
from logstore.errors import IllegalStateError, LogStoreError
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.record.walk import walk_buffer
from tests.interop.loads import KEYED, KEYS, PAID, PARTITIONS, PLAIN
from tests.support.interop.foreign_clients import GO_MODULES, go_program
from tests.support.interop.judge import PROJECT, fast_scratch
from tests.support.world.builders import batch

BROKERS = 4
TIMEOUT_S = 120
DELETED = TopicPartition(PLAIN, 1)
"""The partition of which records are deleted."""

SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "replica.fetch.max.bytes": "20000",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "100",
}

DELAY_MS = 10
"""Delay of each message between brokers, so that a copy takes some time."""

FILL = 40
"""Batches of 10,000 bytes in each partition before the clients start."""


class Load:
    """A client in its own process."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.lines: list[Any] = []
        self._process = subprocess.Popen(
            command,
            cwd=PROJECT.parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def end(self) -> None:
        """Close the input of the client, and wait until it has sent its records and exited."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)
        assert code == 0, f"{self.name} ended with {code}"
        failed = [line for line in self.lines if line[0] == "failed"]
        assert not failed, (self.name, failed[:3])

    def kill(self) -> None:
        """Kill the process, if it runs."""
        self._process.kill()
        self._process.wait()


def loads(bootstrap: str) -> Iterator[Load]:
    """Yield the running clients."""
    for name in ("confluent", "kafka_python", "transactions"):
        yield Load(name, [sys.executable, "-m", "tests.interop.loads", name, bootstrap])
    yield Load("franz-go", [str(go_program(GO_MODULES["sweep"])), bootstrap, "load", PLAIN])


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what()}"
        time.sleep(0.01)


class Moves:
    """A cluster under load.

    Parameters
    ----------
    home : Path
    seed : int
    chaos_steps : int
        Number of random actions of `chaos`.
    """

    def __init__(self, home: Path, seed: int, chaos_steps: int = 60) -> None:
        self.rng = random.Random(seed)
        self.chaos_steps = chaos_steps
        self.counts: Counter[str] = Counter()
        self._stack = ExitStack()
        with self._stack as stack:
            self.cluster: Cluster = stack.enter_context(
                Cluster(BROKERS, data_dir=home, broker_config=SETTINGS, disk_faults=True)
            )
            self.server: ClusterListeners = stack.enter_context(self.cluster.listen())
            self._create()
            self.loads = []
            for load in loads(self.server.bootstrap):
                stack.callback(load.kill)
                self.loads.append(load)
            self._stack = stack.pop_all()

    def __enter__(self) -> Moves:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _create(self) -> None:
        cluster = self.cluster
        for one in range(BROKERS):
            for other in range(one):
                cluster.slow(one, other, DELAY_MS)
        for name, count in ((PLAIN, PARTITIONS), (KEYED, 1), (PAID, 2)):
            configs = {"segment.bytes": "100000"}
            if name == KEYED:
                configs["cleanup.policy"] = "compact"
            order = [[(each + n) % 3 for each in range(3)] for n in range(count)]
            cluster.create_topic(name, count, configs, assignment=order)
        for number in range(PARTITIONS):
            for each in range(FILL):
                data = batch(0, 0, value=b"fill:%d:" % each + b"x" * 10_000)
                cluster.append_batches(PLAIN, data, partition=number, acks=1)
                if number == 0:
                    key = b"%d" % (each % KEYS)
                    cluster.append(KEYED, key=key, value=b"x" * 10_000, partition=0, acks=1)
        cluster.transaction_coordinator("payments")  # creates the internal topics
        cluster.group_coordinator("g")
        for state in self.states():
            number = state.topic_partition.partition
            replicas = [(each + number) % 3 for each in range(3)]
            cluster.reassign(state.topic_partition, replicas=replicas)
        self.finish()

    # -- moves ---------------------------------------------------------------------------

    def states(self) -> list[PartitionState]:
        """Return the states of all partitions."""
        return self.cluster.controller.states()

    @property
    def spare(self) -> int:
        """The broker without replicas."""
        used = {broker for state in self.states() for broker in state.replicas}
        (spare,) = set(range(BROKERS)) - used
        return spare

    def progress(self, least: int = 20) -> None:
        """Wait until each client has got some more responses."""
        for load in self.loads:
            before = len(load.lines)
            wanted = least if load.name != "transactions" else 2
            until(
                lambda load=load, before=before, wanted=wanted: len(load.lines) >= before + wanted,
                lambda load=load: f"{load.name} continues; {self.states()}",
            )

    def begin(self, source: int | None = None) -> tuple[int, int]:
        """Begin to move all replicas of a broker to the spare one; return both."""
        target = self.spare
        if source is None:
            source = self.rng.choice([each for each in range(BROKERS) if each != target])
        for state in self.states():
            replicas = [target if each == source else each for each in state.replicas]
            self.rng.shuffle(replicas)
            self.cluster.reassign(state.topic_partition, replicas=replicas)
        self.counts["moves"] += len(self.states())
        return source, target

    def await_copy(self, target: int) -> None:
        """Wait until the target has some of the records."""

        def has_some() -> bool:
            with suppress(LogStoreError):
                return self.cluster.brokers[target].log(PLAIN, 0).log_end_offset > 3
            return False

        until(has_some, lambda: "the copy begins")
        moving = self.cluster.reassignments()
        self.counts["partitions that moved during the event"] += len(moving)

    def finish(self) -> None:
        """Wait until nothing moves and all replicas are in sync."""

        def is_settled() -> bool:
            return all(
                not state.is_moving and set(state.isr) == set(state.replicas)
                for state in self.states()
            )

        until(is_settled, lambda: f"the moves end; {self.states()}")
        until(self._has_right_replicas, lambda: f"old replicas are deleted; {self.states()}")

    def _has_right_replicas(self) -> bool:
        for state in self.states():
            for number, broker in self.cluster.brokers.items():
                has_it = broker.manager.registry.has(state.topic_partition)
                if has_it != (number in state.replicas):
                    return False
        return True

    # -- cases ---------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the moves during the copy, then move again."""
        source, target = self.begin()
        self.await_copy(target)
        before = {each.topic_partition: each for each in self.states()}
        for tp in before:
            with suppress(LogStoreError):  # it has just ended
                self.cluster.reassign(tp, replicas=None)
        for state in self.states():
            cancelled = source in state.replicas
            assert cancelled != (target in state.replicas)
            self.counts["cancelled"] += cancelled
            replicas = [target if each == source else each for each in state.replicas]
            self.cluster.reassign(state.topic_partition, replicas=replicas)
        self.finish()

    def target_killed(self) -> None:
        """Kill the target during the copy."""
        _, target = self.begin()
        self.await_copy(target)
        self.cluster.kill(target, power_loss=self.rng.random() < 0.5)
        self.progress()
        self.cluster.restart(target)
        self.finish()

    def target_full(self) -> None:
        """Let the target's disk be full during the copy."""
        source, target = self.begin()
        self.await_copy(target)
        with self.cluster.brokers[target].fail("write", error="ENOSPC"):
            self.progress()
        if self.rng.random() < 0.5:
            for state in self.cluster.reassignments():
                with suppress(LogStoreError):
                    self.cluster.reassign(state.topic_partition, replicas=None)
            self.cluster.restart(target)
            for state in self.states():
                replicas = [target if each == source else each for each in state.replicas]
                self.cluster.reassign(state.topic_partition, replicas=replicas)
        else:
            self.cluster.restart(target)
        self.finish()

    def leader_killed(self) -> None:
        """Kill a leader during the copy. Its own replicas may be the ones that move."""
        leader = self.cluster.leader(PLAIN, 0)
        _, target = self.begin(leader if self.rng.random() < 0.5 else None)
        self.await_copy(target)
        leader = self.cluster.leader(PLAIN, 0)
        self.cluster.kill(leader, power_loss=self.rng.random() < 0.5)
        if self.rng.random() < 0.5:
            self.progress()
        self.cluster.restart(leader)
        self.finish()

    def factor(self) -> None:
        """Change the replication factor to 4, to 2, and to 3."""
        spare = self.spare
        for state in self.states():
            self.cluster.reassign(state.topic_partition, replicas=(*state.replicas, spare))
        self.finish()
        leaves = self.rng.choice([each for each in range(BROKERS) if each != spare])
        drop = {leaves, *self.rng.sample(sorted(set(range(BROKERS)) - {leaves}), 1)}
        for state in self.states():
            left = [each for each in state.replicas if each not in drop]
            self.cluster.reassign(state.topic_partition, replicas=left)
        self.finish()
        self.progress()
        back = self.rng.choice(sorted(drop))
        for state in self.states():
            self.cluster.reassign(state.topic_partition, replicas=(back, *state.replicas))
        self.finish()

    def cleaning(self) -> None:
        """Clean every replica and delete records during the copy."""
        _, target = self.begin()
        self.await_copy(target)
        for number in sorted(self.cluster.brokers):
            broker = self.cluster.brokers[number]
            if broker.manager.registry.has(TopicPartition(KEYED, 0)):
                with suppress(IllegalStateError, LogStoreError):
                    broker.clean(KEYED, 0, force=True, roll=True)
                    self.counts["cleanings"] += 1
        log = self.cluster.leader_log(DELETED)
        before = self.rng.randint(log.log_start_offset, log.high_watermark)
        result = self.cluster.delete_records({DELETED: before}, timeout_ms=30_000)[DELETED]
        self.counts[f"delete-records {result.error}"] += 1
        self.finish()

    def chaos(self) -> None:
        """Move, cancel, kill, restart, cut, clean and delete at random, then come to rest."""
        rng, cluster = self.rng, self.cluster
        for _ in range(self.chaos_steps):
            state = rng.choice(self.states())
            tp = state.topic_partition
            dead = sorted(set(range(BROKERS)) - set(cluster.brokers))
            action = rng.choice(
                ("move", "move", "cancel", "power", "cut", "clean", "delete", "lead")
            )
            with suppress(LogStoreError):
                if action == "move":
                    cluster.reassign(tp, replicas=rng.sample(range(BROKERS), rng.choice((2, 3, 3))))
                elif action == "cancel":
                    cluster.reassign(tp, replicas=None)
                elif action == "power" and dead:
                    cluster.restart(dead[0])
                elif action == "power":
                    # With two replicas in sync, appends wait for both of them.
                    cluster.kill(rng.randrange(BROKERS), power_loss=rng.random() < 0.3)
                elif action == "cut":
                    one, other = rng.sample(range(BROKERS), 2)
                    cluster.disconnect({one}, {other})
                    time.sleep(0.05)
                    cluster.heal()
                elif action == "clean":
                    broker = rng.choice(list(cluster.brokers.values()))
                    broker.clean(KEYED, 0, force=True, roll=True)
                elif action == "delete":
                    log = cluster.leader_log(DELETED)
                    before = rng.randint(log.log_start_offset, log.high_watermark)
                    cluster.delete_records({DELETED: before}, timeout_ms=1)
                else:
                    cluster.move_leader(tp, to=rng.choice(state.replicas))
                self.counts[f"chaos: {action}"] += 1
            time.sleep(rng.choice((0, 0.01, 0.1)))
        for broker in set(range(BROKERS)) - set(cluster.brokers):
            cluster.restart(broker)
        for one in range(BROKERS):  # `heal` removed the delays
            for other in range(one):
                cluster.slow(one, other, DELAY_MS)
        self.finish()
        kept = rng.sample(range(BROKERS), 3)
        for state in self.states():
            cluster.reassign(state.topic_partition, replicas=rng.sample(kept, 3))
        self.finish()

    CASES = (
        "cancel",
        "target_killed",
        "target_full",
        "leader_killed",
        "factor",
        "cleaning",
        "chaos",
    )

    # -- the end -------------------------------------------------------------------------

    def verify(self) -> None:
        """End the load; verify that no record is lost and that the replicas are equal."""
        for load in self.loads:
            load.end()
        self.finish()
        for state in self.states():
            tp = state.topic_partition
            end = self.cluster.leader_log(tp).log_end_offset
            for number in state.replicas:
                log = self.cluster.brokers[number].log(tp)
                until(
                    lambda log=log, end=end: log.high_watermark == end, lambda: "all is committed"
                )
        self._verify_plain()
        self._verify_keyed()
        self._verify_paid()
        self._verify_files()

    def _verify_plain(self) -> None:
        acknowledged: dict[int, dict[int, str]] = defaultdict(dict)
        placeless: dict[int, set[str]] = defaultdict(set)
        for load in self.loads:
            for line in load.lines:
                if line[0] != PLAIN:
                    continue
                _, partition, offset, _, value = line
                if offset is None or offset < 0:  # DUPLICATE_SEQUENCE_NUMBER after a retry
                    placeless[partition].add(value)
                    self.counts[f"{load.name}: no offset"] += 1
                    continue
                assert acknowledged[partition].setdefault(offset, value) == value
        for number in range(PARTITIONS):
            tp = TopicPartition(PLAIN, number)
            leader = self.cluster.brokers[self.cluster.leader(tp)]
            start = leader.log(tp).log_start_offset
            found = {each.offset: each.value.decode() for each in leader.read(tp)}
            lost = {
                offset: value
                for offset, value in acknowledged[number].items()
                if offset >= start and found.get(offset) != value
            }
            assert not lost, f"{tp}: {len(lost)} lost: {sorted(lost.items())[:5]}"
            assert tp == DELETED or placeless[number] <= set(found.values()), tp
            self.counts["acknowledged records"] += len(acknowledged[number])
            numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for offset, value in found.items():
                name, number_of, _ = value.split(":", 2)
                numbers[name].append((int(number_of), offset))
            for name, each in numbers.items():  # all producers are idempotent
                first = each[0][0] if tp == DELETED else 0
                gaps = [pair for pair in pairwise(each) if pair[1][0] != pair[0][0] + 1]
                assert each[0][0] == first, (tp, name, each[:3])
                assert not gaps, (tp, name, gaps, leader.log(tp), self._batches_at(tp, gaps))

    def _batches_at(
        self, tp: TopicPartition, gaps: Sequence[Sequence[tuple[int, int]]]
    ) -> list[tuple[int, ...]]:
        """Return offset, leader epoch, producer, epoch and sequence of the batches at gaps."""
        offsets = {offset for pair in gaps for _, offset in pair}
        headers = [
            each.header
            for data in self._files(self.cluster.leader(tp), tp).values()
            for each in walk_buffer(data)
        ]
        return [
            (
                header.base_offset,
                header.partition_leader_epoch,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
            for header in headers
            if any(header.base_offset <= offset <= header.last_offset for offset in offsets)
        ]

    def _verify_keyed(self) -> None:
        tp = TopicPartition(KEYED, 0)
        last = {}
        for load in self.loads:
            for line in load.lines:
                if line[0] == KEYED:
                    last[line[3].encode()] = line[4].encode()
        assert len(last) == KEYS
        for number in self.cluster.state(tp).replicas:
            assert self.cluster.brokers[number].table(KEYED) == last, number

    def _verify_paid(self) -> None:
        ended = [line for load in self.loads for line in load.lines if load.name == "transactions"]
        committed = [value for kind, values in ended if kind == "committed" for value in values]
        ends = sum(self.cluster.leader_log(TopicPartition(PAID, n)).log_end_offset for n in (0, 1))
        self.counts["transactions"] += len(ended)
        seen = []
        options = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        with closing(Consumer(options)) as consumer:
            consumer.subscribe([PAID])
            at_end: set[int] = set()
            deadline = time.monotonic() + TIMEOUT_S
            while len(at_end) < 2:
                assert time.monotonic() < deadline, (len(seen), len(committed), ends)
                for message in consumer.consume(1000, 0.1):
                    if message.error() is not None:
                        at_end.add(message.partition())
                    else:
                        seen.append(message.value().decode())
        assert sorted(seen) == sorted(committed)

    def _verify_files(self) -> None:
        for state in self.states():
            tp = state.topic_partition
            if tp.topic == KEYED or tp.topic in INTERNAL_COMPACTED_TOPICS:
                continue
            leader = self._files(state.leader, tp)
            for number in state.replicas:
                files = self._files(number, tp)
                if tp == DELETED:  # a copy may begin at the log start
                    start = self.cluster.leader_log(tp).log_start_offset
                    assert _from(files, start) == _from(leader, start), (number, tp)
                else:
                    assert files.keys() == leader.keys(), (number, tp)
                    assert files == leader, (number, tp)
                self.counts["equal replicas"] += 1

    def _files(self, broker: int, tp: TopicPartition) -> dict[str, bytes]:
        log = self.cluster.brokers[broker].log(tp)
        return {path.name: path.read_bytes() for path in sorted(Path(log.directory).glob("*.log"))}


def _from(files: dict[str, bytes], offset: int) -> bytes:
    """Return the batches that have records at or after an offset."""
    batches = walk_buffer(b"".join(files.values()))
    return b"".join(each.data for each in batches if each.header.last_offset >= offset)


def run(home: Path, seed: int, chaos_steps: int = 60) -> Counter[str]:
    """Run all cases in random order under load; return the counts."""
    with Moves(home, seed, chaos_steps) as moves:
        cases = list(Moves.CASES)
        moves.rng.shuffle(cases)
        moves.progress()
        for case in cases:
            getattr(moves, case)()
            moves.progress(5)
        moves.verify()
        return moves.counts


def main(arguments: list[str]) -> None:
    """Run seeds, and print the counts."""
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    for seed in range(first, first + count):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=fast_scratch()) as home:
            counts = run(Path(home), seed)
        sys.stdout.write(f"{seed}: {time.monotonic() - began:.0f} s {dict(counts)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
