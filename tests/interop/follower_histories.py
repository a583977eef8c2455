"""Random histories of reassignments, reads from followers and fetch sessions on two clusters.

Three brokers of Kafka 4.3.1 in racks and three of ours get the same requests, and each response
must be equal, also the metadata at each broker after each change. A round runs many histories
through four phases: all brokers run; one is frozen, so that the high watermark does not rise; one
is dead, so that moves to it wait; all brokers run again. Run by hand:

    python -m tests.interop.follower_histories 10 30 [SEED]          # rounds, histories of each
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from logstore.errors import KAFKA_CODES
from logstore.messages.schema import ZERO_UUID
from tests.interop.conversations import SETTINGS as QUIET
from tests.support.interop.answers import FIRST_MS, Side, differences, errors_in, response_data
from tests.support.interop.caller import Caller, ClosedByPeer
from tests.support.interop.judge import fast_scratch
from tests.support.interop.real_cluster import SIZE
from tests.support.interop.two_clusters import Difference, KafkaCluster, OurCluster, produce_fields
from tests.support.world.builders import batch

PARTITIONS = 2
PATIENCE_S = 40
SESSION_MS = 12_000
"""Time after which Kafka's controller takes a frozen or killed broker for dead."""

FROZEN_S = 6
"""Time after which no further history begins to use a frozen broker."""

SLOW_S = 9
"""Time after which histories with a frozen broker are not compared: its session may have ended."""

RACKS = ("a", "b", "b")

SETTINGS = {
    **QUIET,
    "broker.session.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "50",
    "max.incremental.fetch.session.cache.slots": "5000",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.enable": "false",
}

FEATURES = {"eligible.leader.replicas.version": 0}
"""As here: the last in-sync replica remains one when it stops (KIP-966 empties the list)."""

NAMES = {code: name for name, code in KAFKA_CODES.items()}

Tp = tuple[str, int]


class Allowed(NamedTuple):
    """A known difference.

    Attributes
    ----------
    is_meant : callable
        Takes the history, the path of the field, Kafka's value and ours.
    """

    reason: str
    apis: frozenset[str]
    is_meant: Callable[[History, str, Any, Any], bool]


ALLOWED: list[Allowed] = []
"""Known differences in responses; no others are allowed."""

MIXED = (
    "a move that replaces another one, and adds or removes no replica: Kafka keeps those that the"
    " first one added or removed"
)
"""The history ends: Kafka's move may never do so."""


class Cluster(Side):
    """One of the two clusters: connections to each broker, and the sessions there."""

    def __init__(self, nodes: KafkaCluster | OurCluster) -> None:
        super().__init__(nodes.name, "")
        self.nodes = nodes
        self._open: dict[int, tuple[str, Caller]] = {}
        self.ids: dict[str, str] = {}
        self.sessions: dict[tuple[object, int], int] = {}

    def close(self) -> None:
        """Close all connections."""
        for _, caller in self._open.values():
            caller.close()
        self._open.clear()

    def disconnect(self, broker: int) -> None:
        """Close the connection to a broker."""
        known = self._open.pop(broker, None)
        if known is not None:
            known[1].close()

    def call(self, broker: int, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        """Return a broker's response as plain data with names for ids."""
        address = self.nodes.addresses()[broker]
        known = self._open.get(broker)
        if known is None or known[0] != address:
            self.disconnect(broker)
            self._open[broker] = address, Caller(address)
        try:
            answer = self._open[broker][1].call(api, version, fields)
        except (OSError, ClosedByPeer):
            del self._open[broker]
            raise
        return answer, response_data(self, api, version, answer)

    def metadata(self, broker: int, topics: Sequence[str]) -> dict[Tp, tuple[Any, ...]]:
        """Return the partitions as a broker reports them."""
        fields = {"topics": [{"name": name, "topic_id": ZERO_UUID} for name in topics]}
        answer, _ = self.call(broker, "Metadata", 12, fields | {"allow_auto_topic_creation": False})
        found = {}
        for topic in answer.topics:
            if topic.error_code:
                continue
            self.ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                found[topic.name, each.partition_index] = (
                    NAMES[each.error_code],
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(sorted(each.isr_nodes)),
                    tuple(sorted(each.offline_replicas)),
                )
        return found

    def moves(self, broker: int, topics: Sequence[str]) -> dict[Tp, tuple[Any, ...]]:
        """Return the moves of some topics."""
        asked = [{"name": name, "partition_indexes": list(range(PARTITIONS))} for name in topics]
        answer, _ = self.call(
            broker, "ListPartitionReassignments", 0, {"topics": asked, "timeout_ms": 10_000}
        )
        return {
            (topic.name, each.partition_index): (
                tuple(each.replicas),
                tuple(sorted(each.adding_replicas)),
                tuple(sorted(each.removing_replicas)),
            )
            for topic in answer.topics
            for each in topic.partitions
        }


class History:
    """The requests about one topic.

    Attributes
    ----------
    starts, ends : list of int
        Log start and log end of each partition.
    states : dict
        Metadata of the partitions after the last change.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.topic = f"h{seed}"
        self.starts = [0] * PARTITIONS
        self.ends = [0] * PARTITIONS
        self.states: dict[Tp, tuple[Any, ...]] = {}
        self.moves: dict[Tp, tuple[Any, ...]] = {}
        self.epochs: dict[int, int] = {}
        self.versions: dict[int, int] = {}
        self.steps: list[str] = []
        self.is_over = False
        self.has_parted = False

    def state(self, number: int) -> tuple[Any, ...]:
        """Return the state of a partition."""
        return self.states[self.topic, number]


class Round:
    """Histories that go through the phases together.

    Parameters
    ----------
    clusters : (Cluster, Cluster)
        Kafka's and ours.
    tally : Tally
    """

    def __init__(
        self,
        clusters: tuple[Cluster, Cluster],
        tally: Tally,
        number: int,
        histories: int,
        seed: int,
    ) -> None:
        self.clusters = clusters
        self.tally = tally
        self.rng = random.Random(f"{seed} {number}")
        self.histories = [
            History(seed * 100_000 + number * 1000 + each) for each in range(histories)
        ]
        self.alive = set(range(SIZE))
        self.frozen: int | None = None

    @property
    def going(self) -> list[History]:
        """The histories without a difference so far."""
        return [each for each in self.histories if not each.is_over]

    def run(self) -> None:
        """Run all phases."""
        for history in self.histories:
            self._create(history)
        self._each(9)
        self._freeze()
        dead = self.rng.randrange(SIZE)
        self._kill(dead)
        self._each(7)
        self._restart(dead)
        self._each(5)
        for history in self.histories:
            fields = {"topics": [{"name": history.topic, "topic_id": ZERO_UUID}]}
            for each in self.clusters:
                each.call(0, "DeleteTopics", 6, fields | {"timeout_ms": 30_000})
        self.tally.histories += len(self.histories)
        self.tally.complete += len(self.going)
        self.tally.parted += sum(each.has_parted for each in self.histories)

    def _each(self, steps: int) -> None:
        for history in self.going:
            for _ in range(steps):
                if not history.is_over:
                    self._guard(history, self._step)

    def _guard(self, history: History, step: Callable[[History], None]) -> None:
        try:
            step(history)
        except Difference as error:
            history.is_over = True
            lines = [f"{history.topic}: {error}", *(f"    {each}" for each in history.steps[-9:])]
            self.tally.differences.append("\n".join(lines))

    # -- phases --------------------------------------------------------------------------

    def _create(self, history: History) -> None:
        rng = history.rng
        assignments = [
            {
                "partition_index": number,
                "broker_ids": rng.sample(range(SIZE), rng.choice((1, 2, 2, 3))),
            }
            for number in range(1)
        ]
        factor = len(assignments[0]["broker_ids"])
        assignments += [
            {"partition_index": number, "broker_ids": rng.sample(range(SIZE), factor)}
            for number in range(1, PARTITIONS)
        ]
        topic = {
            "name": history.topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        for each in self.clusters:
            answer, _ = each.call(0, "CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000})
            assert answer.topics[0].error_code == 0, answer
        history.steps.append(f"create {assignments}")
        self._guard(history, self._settle)

    def _freeze(self) -> None:
        """Freeze a broker for some steps of each history that has three replicas."""
        frozen = self.rng.randrange(SIZE)
        began = time.monotonic()
        self.frozen = frozen
        for each in self.clusters:
            each.nodes.freeze(frozen)
        try:
            chosen = [
                (history, number)
                for history in self.going
                for number in range(PARTITIONS)
                if frozen in history.state(number)[4]
                and history.state(number)[1] not in (frozen, -1)
                and not history.moves
            ]
            for history, number in chosen:
                if time.monotonic() - began > FROZEN_S:
                    break
                if history.is_over:
                    continue
                known = len(self.tally.differences)
                self._guard(history, lambda each, number=number: self._with_frozen(each, number))
                if time.monotonic() - began > SLOW_S:
                    del self.tally.differences[known:]
                    history.is_over = True
                    self.tally.slow += 1
        finally:
            self.frozen = None
            for each in self.clusters:
                each.nodes.thaw(frozen)
        for history in self.going:
            self._guard(history, self._settle)

    def _kill(self, dead: int) -> None:
        for each in self.clusters:
            each.disconnect(dead)
            each.nodes.kill(dead)
        self.alive.discard(dead)
        self.tally.events["kill"] += 1
        for history in self.going:
            history.steps.append(f"kill {dead}")
            history.epochs.pop(dead, None)
            self._guard(history, self._settle)

    def _restart(self, dead: int) -> None:
        for each in self.clusters:
            each.nodes.begin_restart(dead)
        for each in self.clusters:
            each.nodes.await_restarted(dead)
        self.alive.add(dead)
        for history in self.going:
            history.steps.append(f"restart {dead}")
            self._guard(history, self._settle)

    # -- rest ----------------------------------------------------------------------------

    def _settle(self, history: History) -> None:
        """Wait until both clusters are at rest and report the same state at each broker."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            views = [self._view(each, history) for each in self.clusters]
            known = views[0]
            if views[0] == views[1] and self._is_at_rest(history, known):
                break
            if time.monotonic() > deadline:
                raise Difference(
                    f"the states differ or do not come to rest:\n  Kafka {views[0]}"
                    f"\n  here  {views[1]}"
                )
            time.sleep(0.01)
        states, moves = known[min(self.alive)]
        history.states, history.moves = dict(states), dict(moves)
        for each in self.clusters:
            while not self._serves(each, history):
                if time.monotonic() > deadline:
                    raise Difference(f"{each.name} does not serve {history.states}")
                time.sleep(0.01)
        self.tally.events["states compared"] += 1
        for state in history.states.values():
            self.tally.events["a partition without a leader"] += state[1] < 0
        self.tally.events["a move that waits"] += len(history.moves)

    def _view(self, cluster: Cluster, history: History) -> dict[int, Any]:
        return {
            broker: (
                cluster.metadata(broker, [history.topic]),
                cluster.moves(broker, [history.topic]),
            )
            for broker in sorted(self.alive)
        }

    def _is_at_rest(self, history: History, known: Mapping[int, Any]) -> bool:
        if len({repr(each) for each in known.values()}) > 1:
            return False
        states, moves = next(iter(known.values()))
        if len(states) != PARTITIONS:
            return False
        for tp, (_, leader, _, replicas, isr, offline) in states.items():
            alive = self.alive & set(replicas)
            if set(offline) != set(replicas) - self.alive:
                return False
            if leader >= 0 and (leader not in alive or set(isr) != alive):
                return False
            if leader < 0 and alive & set(isr):
                return False
            if tp in moves and leader >= 0 and set(replicas) - set(moves[tp][2]) <= self.alive:
                return False
        return True

    def _serves(self, cluster: Cluster, history: History) -> bool:
        """Return whether each replica has all records and knows it, and the leader knows it too.

        A new leader does not know the log end of a follower until the follower's first fetch, and
        prefers no follower until then.
        """
        for number in range(PARTITIONS):
            _, leader, epoch, replicas, _, _ = history.state(number)
            start, end = history.starts[number], history.ends[number]
            if leader < 0:
                continue
            for broker in sorted(self.alive):
                code, found = self._probe(cluster, broker, history.topic, number, epoch, end)
                if broker not in replicas:
                    if NAMES[code] != "NOT_LEADER_OR_FOLLOWER":
                        return False
                elif code or (found.high_watermark, found.log_start_offset) != (end, start):
                    return False
            followers = (self.alive & set(replicas)) - {leader}
            for rack in {RACKS[each] for each in followers} - {RACKS[leader]}:
                probe = self._probe(cluster, leader, history.topic, number, epoch, end, rack)
                if probe[1].preferred_read_replica < 0:
                    return False
        return True

    @staticmethod
    def _probe(
        cluster: Cluster,
        broker: int,
        topic: str,
        number: int,
        epoch: int,
        offset: int,
        rack: str = "",
    ) -> tuple[int, Any]:
        partition = {
            "partition": number,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1,
        }
        fields = {
            **_FETCH,
            "session_epoch": -1,
            "rack_id": rack,
            "topics": [{"topic": topic, "partitions": [partition]}],
        }
        answer, _ = cluster.call(broker, "Fetch", 12, fields)
        found = answer.responses[0].partitions[0]
        return found.error_code, found

    # -- steps ---------------------------------------------------------------------------

    def _compare(
        self,
        history: History,
        broker: int,
        api: str,
        version: int,
        fields: Callable[[Cluster], Mapping[str, Any]],
    ) -> Any:
        """Send a request to the same broker of both clusters; return Kafka's response."""
        answers = []
        for each in self.clusters:
            answer, data = each.call(broker, api, version, fields(each))
            if api == "Fetch":
                self._note_session(each, history, broker, answer, data)
            data.pop("throttleTimeMs", None)
            if api == "Fetch":
                _normalize_racks(data)
            self._name_endpoints(each, data)
            answers.append(data)
        kafka, ours = answers
        history.steps.append(
            f"{api} {version} at {broker} {fields(self.clusters[1])!s:.600} ->"
            f" {[*errors_in(kafka)]}"
        )
        for code in errors_in(kafka):
            self.tally.answers[api, version, NAMES[code]] += 1
        found = [
            each for each in differences(kafka, ours) if not self._is_allowed(history, api, *each)
        ]
        if found:
            lines = [f"  {path}: Kafka {one!r}, here {other!r}" for path, one, other in found[:20]]
            raise Difference("\n".join([f"{api} {version} at {broker}", *lines]))
        return kafka

    def _name_endpoints(self, cluster: Cluster, data: Any) -> None:
        """Check the ports of brokers: a restarted Kafka has another one."""
        addresses = cluster.nodes.addresses()
        for each in data.get("nodeEndpoints", ()):
            port = int(addresses[each["nodeId"]].rpartition(":")[2])
            each["port"] = cluster.value_of(each["port"]) == port

    def _is_allowed(self, history: History, api: str, path: str, kafka: Any, ours: Any) -> bool:
        for each in ALLOWED:
            if api in each.apis and each.is_meant(history, path, kafka, ours):
                self.tally.used[each.reason] += 1
                return True
        return False

    def _note_session(
        self, cluster: Cluster, history: History, broker: int, answer: Any, data: Any
    ) -> None:
        if not answer.error_code:
            cluster.sessions[history.topic, broker] = answer.session_id
        data["sessionId"] = bool(answer.session_id)

    def _step(self, history: History) -> None:
        rng = history.rng
        number = rng.randrange(PARTITIONS)
        if history.moves and rng.random() < 0.3:
            self._reassign(history, rng.choice(list(history.moves))[1])
            return
        chance = rng.random()
        if chance < 0.16:
            self._append(history, number)
        elif chance < 0.21:
            self._delete_records(history, number)
        elif chance < 0.36:
            self._reassign(history, number)
        elif chance < 0.40:
            self._elect(history, number)
        elif chance < 0.46:
            self._ask_epochs(history, number)
        elif chance < 0.54:
            self._ask_offsets(history, number)
        elif chance < 0.58:
            self._list(history)
        else:
            self._fetch(history)

    def _broker(self, history: History) -> int:
        return history.rng.choice(sorted(self.alive - {self.frozen}))

    def _append(self, history: History, number: int, acks: int = -1) -> None:
        rng = history.rng
        leader = history.state(number)[1]
        count = rng.randint(1, 4)
        broker = leader
        if leader < 0 or (acks < 0 and rng.random() < 0.1):
            broker = self._broker(history)
        data = batch(0, count - 1, timestamp=FIRST_MS + history.ends[number])
        version = rng.randint(3, 13)

        def fields(cluster: Cluster) -> Mapping[str, Any]:
            sent = produce_fields(history.topic, number, data) | {"acks": acks}
            if version >= 13:
                sent["topic_data"][0]["topic_id"] = cluster.ids[history.topic]
            return sent

        done = self._compare(history, broker, "Produce", version, fields)
        (code,) = errors_in(done)
        if code == 0:
            history.ends[number] += count
            if acks < 0:
                self._settle(history)

    def _delete_records(self, history: History, number: int, timeout_ms: int = 30_000) -> None:
        leader = history.state(number)[1]
        if leader < 0 or any(tp[1] == number for tp in history.moves):
            return  # a dead replica that is being added would not matter, but a live one would
        start, end = history.starts[number], history.ends[number]
        offset = history.rng.choice((-1, end, end + 1, history.rng.randint(start, end)))
        partition = {"partition_index": number, "offset": offset}
        topics = [{"name": history.topic, "partitions": [partition]}]
        fields = {"topics": topics, "timeout_ms": timeout_ms}
        version = history.rng.randint(0, 2)
        done = self._compare(history, leader, "DeleteRecords", version, lambda _: fields)
        if not any(errors_in(done)):
            history.starts[number] = max(start, end if offset < 0 else offset)
            self._settle(history)

    def _reassign(self, history: History, number: int) -> None:
        rng = history.rng
        version = rng.randint(0, 1)
        replicas: list[int] | None = rng.sample(range(SIZE), rng.choice((1, 2, 2, 3)))
        chance = rng.random()
        if chance < 0.1 or (history.moves and chance < 0.5):
            replicas = None
        elif chance < 0.3:
            replicas = rng.choice(([], [0, 0], [0, 7], [-1], [1, 1, 2]))
        index = PARTITIONS + 3 if rng.random() < 0.03 else number
        name = "none" if rng.random() < 0.03 else history.topic
        partition = {"partition_index": index, "replicas": replicas}
        fields: dict[str, Any] = {
            "timeout_ms": 30_000,
            "topics": [{"name": name, "partitions": [partition]}],
        }
        if version:
            fields["allow_replication_factor_change"] = rng.random() < 0.7
        broker = self._broker(history)
        api = "AlterPartitionReassignments"
        done = self._compare(history, broker, api, version, lambda _: fields)
        kind = "cancel" if replicas is None else "move"
        is_done = not any(errors_in(done)) and replicas is not None and index == number
        if is_done and _mixes_moves(history.moves.get((name, number)), replicas):
            self.tally.used[MIXED] += 1
            history.is_over = history.has_parted = True
            return
        self.tally.events[f"{kind}: {'refused' if any(errors_in(done)) else 'accepted'}"] += 1
        self._settle(history)

    def _elect(self, history: History, number: int) -> None:
        partitions = [{"topic": history.topic, "partitions": [number]}]
        fields = {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 30_000}
        self._compare(history, self._broker(history), "ElectLeaders", 2, lambda _: fields)
        if self.frozen is None:
            self._settle(history)

    def _epoch(self, history: History, number: int) -> int:
        current = history.state(number)[2]
        return history.rng.choice((-1, -1, current, current, current + 1, max(0, current - 1)))

    def _ask_epochs(self, history: History, number: int) -> None:
        version = history.rng.randint(2, 4)
        partition = {
            "partition": number,
            "leader_epoch": history.rng.randint(0, history.state(number)[2] + 1),
            "current_leader_epoch": self._epoch(history, number),
        }
        fields: dict[str, Any] = {"topics": [{"topic": history.topic, "partitions": [partition]}]}
        if version >= 3:
            fields["replica_id"] = -1
        broker = self._broker(history)
        self._compare(history, broker, "OffsetForLeaderEpoch", version, lambda _: fields)

    def _ask_offsets(self, history: History, number: int) -> None:
        version = history.rng.randint(2, 11)
        partition: dict[str, Any] = {
            "partition_index": number,
            "timestamp": history.rng.choice((-1, -1, -2, FIRST_MS + history.starts[number])),
        }
        if version >= 4:
            partition["current_leader_epoch"] = self._epoch(history, number)
        fields: dict[str, Any] = {
            "replica_id": -1,
            "isolation_level": history.rng.randint(0, 1),
            "topics": [{"name": history.topic, "partitions": [partition]}],
        }
        if version >= 10:
            fields["timeout_ms"] = 10_000
        broker = self._broker(history)
        self._compare(history, broker, "ListOffsets", version, lambda _: fields)

    def _list(self, history: History) -> None:
        numbers = history.rng.sample(range(PARTITIONS + 1), 2)
        topics = [{"name": history.topic, "partition_indexes": numbers}]
        fields = {"topics": topics, "timeout_ms": 10_000}
        broker = self._broker(history)
        self._compare(history, broker, "ListPartitionReassignments", 0, lambda _: fields)

    def _fetch(
        self, history: History, number: int | None = None, broker: int | None = None
    ) -> None:
        rng = history.rng
        if broker is None:
            broker = self._broker(history)
        epoch = history.epochs.get(broker, 0)
        chance = rng.random()
        if chance < 0.05:
            epoch += 1
        elif chance < 0.25:
            epoch = rng.choice((0, -1))
        if epoch in (0, -1):
            history.versions[broker] = rng.randint(7, 18)
        version = history.versions.setdefault(broker, 12)
        share = 0.9 if epoch in (0, -1) else 0.4
        asked = [
            (
                each,
                self._offset(history, each),
                self._epoch(history, each),
                rng.choice((1, 1 << 20)),
            )
            for each in range(PARTITIONS)
            if rng.random() < share or each == number
        ]
        last_epochs = {
            each: rng.randint(0, history.state(each)[2] + 1)
            for each, *_ in asked
            if rng.random() < 0.15
        }
        options: dict[str, Any] = {
            **_FETCH,
            "isolation_level": rng.randint(0, 1),
            "session_epoch": epoch,
        }
        rack = rng.choice(("", "a", "b", "c"))
        if version >= 11:
            options["rack_id"] = rack

        def fields(cluster: Cluster) -> Mapping[str, Any]:
            topic: dict[str, Any] = {"topic": history.topic}
            if version >= 13:
                topic = {"topic_id": cluster.ids[history.topic]}
            partitions = []
            for each, offset, current, limit in asked:
                partition = {
                    "partition": each,
                    "fetch_offset": offset,
                    "partition_max_bytes": limit,
                }
                if version >= 9:
                    partition["current_leader_epoch"] = current
                if version >= 12 and each in last_epochs:
                    partition["last_fetched_epoch"] = last_epochs[each]
                partitions.append(partition)
            return {
                **options,
                "session_id": cluster.sessions.get((history.topic, broker), 0) if epoch > 0 else 0,
                "topics": [{**topic, "partitions": partitions}] if partitions else [],
            }

        kafka = self._compare(history, broker, "Fetch", version, fields)
        if not kafka["errorCode"]:
            history.epochs[broker] = max(epoch, 0) + 1 if kafka["sessionId"] else 0
        self._count_fetch(history, broker, kafka)

    def _offset(self, history: History, number: int) -> int:
        start, end = history.starts[number], history.ends[number]
        near = (start, start - 1, end, end, end - 1, end + 1, history.rng.randint(start, end))
        return max(0, history.rng.choice(near))

    def _count_fetch(self, history: History, broker: int, kafka: Any) -> None:
        events = self.tally.events
        events["fetches"] += 1
        events["fetches in a session"] += bool(kafka["sessionId"])
        for topic in kafka["responses"]:
            for each in topic["partitions"]:
                leader = history.state(each["partitionIndex"])[1]
                place = "leader" if broker == leader else "follower"
                if broker not in history.state(each["partitionIndex"])[3]:
                    place = "broker without a replica"
                if each["errorCode"]:
                    events[f"{place}: {NAMES[each['errorCode']]}"] += 1
                elif each.get("preferredReadReplica", -1) != -1:
                    events["sent to a follower"] += 1
                else:
                    events[f"read from a {place}"] += 1

    def _with_frozen(self, history: History, number: int) -> None:
        """Append above the high watermark, and read at the leader and at a running follower."""
        rng = history.rng
        _, leader, epoch, replicas, _, _ = history.state(number)
        for each in self.clusters:
            code, _ = self._probe(each, leader, history.topic, number, epoch, history.ends[number])
            if code:
                return
        committed = history.ends[number]
        history.steps.append(f"freeze {self.frozen}")
        self._append(history, number, acks=1)
        others = [each for each in replicas if each not in (leader, self.frozen)]
        if rng.random() < 0.3 and committed > history.starts[number]:
            self._delete_frozen(history, number, committed)
        for each in self.clusters:
            for broker in others:
                self._await_end(each, broker, history, number)
        self.tally.events["appends above the high watermark"] += 1
        for _ in range(4):
            self._fetch(history, number, rng.choice((leader, *others)))
        if others and replicas[0] in others and rng.random() < 0.7:
            self._elect_frozen(history, number, replicas[0])
        self._ask_offsets(history, number)

    def _delete_frozen(self, history: History, number: int, committed: int) -> None:
        offset = history.rng.randint(history.starts[number] + 1, committed)
        leader = history.state(number)[1]
        partition = {"partition_index": number, "offset": offset}
        topics = [{"name": history.topic, "partitions": [partition]}]
        fields = {"topics": topics, "timeout_ms": 100}
        self._compare(history, leader, "DeleteRecords", 2, lambda _: fields)
        history.starts[number] = offset
        self.tally.events["log starts that differ"] += 1

    def _await_end(self, cluster: Cluster, broker: int, history: History, number: int) -> None:
        """Wait until a follower has all records and the leader's log start."""
        epoch, end = history.state(number)[2], history.ends[number]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # Without the last record, the follower answers OFFSET_OUT_OF_RANGE.
            code, found = self._probe(cluster, broker, history.topic, number, epoch, end)
            if not code and found.log_start_offset == history.starts[number]:
                return
            if time.monotonic() > deadline:
                raise Difference(f"{cluster.name}: broker {broker} does not follow")
            time.sleep(0.02)

    def _elect_frozen(self, history: History, number: int, leader: int) -> None:
        """Make a follower the leader whose high watermark cannot reach the start of its epoch."""
        self._elect(history, number)
        topic = history.topic
        epoch = history.state(number)[2] + 1
        for each in self.clusters:
            deadline = time.monotonic() + PATIENCE_S
            while self._probe(each, leader, topic, number, epoch, history.starts[number])[0]:
                if time.monotonic() > deadline:
                    raise Difference(f"{each.name}: broker {leader} does not lead")
                time.sleep(0.02)
        state = history.state(number)
        history.states[topic, number] = (*state[:1], leader, epoch, *state[3:])
        self.tally.events["elections with a frozen follower"] += 1
        partition = {"partition_index": number, "current_leader_epoch": epoch, "timestamp": -1}
        for version in (4, 5, 9):
            fields = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [partition]}],
            }
            self._compare(history, leader, "ListOffsets", version, lambda _, f=fields: f)


def _mixes_moves(move: tuple[Any, ...] | None, replicas: Sequence[int]) -> bool:
    """Return whether Kafka mixes a move with the one that it replaces; see `MIXED`."""
    if move is None:
        return False
    before, added, removed = map(set, move)
    target = set(replicas)
    return bool((target >= before and removed) or (target <= before and added - target))


def _normalize_racks(data: Any) -> None:
    """Name the rack instead of the broker: in a tie Kafka's choice depends on its clock."""
    for topic in data["responses"]:
        for each in topic["partitions"]:
            preferred = each.get("preferredReadReplica", -1)
            if preferred >= 0:
                each["preferredReadReplica"] = RACKS[preferred]


_FETCH: dict[str, Any] = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 22,
    "isolation_level": 0,
    "session_id": 0,
}


class Tally:
    """Numbers of histories, situations, responses and differences."""

    def __init__(self) -> None:
        self.histories = 0
        self.complete = 0
        self.parted = 0
        self.slow = 0
        self.events: Counter[str] = Counter()
        self.answers: Counter[tuple[str, int, str]] = Counter()
        self.used: Counter[str] = Counter()
        self.differences: list[str] = []

    def __str__(self) -> str:
        return (
            f"{self.complete} of {self.histories} histories end without a difference,"
            f" {self.parted} at one of the closed list, {self.slow} were too slow,"
            f" {self.answers.total()} results compared; {dict(sorted(self.events.items()))};"
            f" closed list: {dict(self.used)}"
        )

    def coverage(self) -> Iterator[str]:
        """Yield a line for each API: its versions and errors."""
        for api in sorted({key[0] for key in self.answers}):
            errors: Counter[str] = Counter()
            versions: Counter[int] = Counter()
            for (name, version, error), count in self.answers.items():
                if name == api:
                    errors[error] += count
                    versions[version] += count
            yield f"{api}: versions {sorted(versions)}, {dict(errors.most_common())}"


def run_rounds(
    home: Path,
    rounds: int,
    histories: int,
    seed: int = 1,
    say: Callable[[str], object] = lambda _: None,
) -> Tally:
    """Start both clusters, run rounds of histories on them, and return the tally.

    Raises
    ------
    Unavailable
    """
    tally = Tally()
    with ExitStack() as stack:
        kafka = stack.enter_context(
            KafkaCluster(home / "kafka", SETTINGS, racks=RACKS, features=FEATURES)
        )
        ours = stack.enter_context(OurCluster(home / "ours", SETTINGS, racks=RACKS))
        clusters = Cluster(kafka), Cluster(ours)
        for each in clusters:
            stack.callback(each.close)
        known = 0
        for number in range(rounds):
            began = time.monotonic()
            Round(clusters, tally, number, histories, seed).run()
            say(f"round {number}, {time.monotonic() - began:.0f} s: {tally}")
            for difference in tally.differences[known:]:
                say(difference)
            known = len(tally.differences)
    return tally


def main(arguments: list[str]) -> None:
    """Run rounds; print the coverage and the differences."""
    rounds, histories, *rest = map(int, arguments)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(dir=fast_scratch()) as home:
        tally = run_rounds(Path(home), rounds, histories, *rest, say=say)
    for line in (*tally.coverage(), str(tally)):
        say(line)


if __name__ == "__main__":
    main(sys.argv[1:])
