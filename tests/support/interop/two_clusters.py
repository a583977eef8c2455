"""Three brokers of Kafka 4.3.1, three of ours, and clients that find leaders and coordinators."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from logstore import Cluster
from logstore.errors import KAFKA_CODES
from logstore.messages.apis import apis_by_name
from logstore.record.batch import RecordBatch
from logstore.types import AppendOrigin, TopicPartition
from tests.support.interop.answers import Side, errors_in, response_data
from tests.support.interop.caller import Caller, ClosedByPeer
from tests.support.interop.real_cluster import SIZE, RealCluster

PARTITIONS = 3
"""Partitions of each topic, the internal ones included; broker n prefers to lead partition n."""

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"

PATIENCE_S = 90
"""Longest wait for a response or a state."""

PAUSE_S = 0.03
CONNECTION_LOST = -2
"""Counted as the error of a request without a response."""

TRANSIENT = frozenset(
    KAFKA_CODES[name]
    for name in (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "CONCURRENT_TRANSACTIONS",
        "UNSTABLE_OFFSET_COMMIT",
    )
)
"""Errors after which a client finds the broker again and repeats its request."""

PLACES = {"throttleTimeMs", "baseOffset", "logAppendTimeMs", "logStartOffset", "nodeEndpoints"}
"""Fields that depend on the place in the log: repeated markers move offsets, and a request that was
in flight may have been performed by the former leader."""

ABORT = b"\0\0\0\0"
"""Key of an ABORT marker."""

Fields = Mapping[str, Any]


class Difference(AssertionError):
    """The two clusters differ."""


# -- clusters --------------------------------------------------------------------------------------


class Nodes(Protocol):
    """Three brokers that can be killed and restarted."""

    name: str

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the running brokers by id."""

    def kill(self, number: int) -> None:
        """Kill a broker."""

    def begin_restart(self, number: int) -> None:
        """Start a killed broker on its files."""

    def await_restarted(self, number: int) -> None:
        """Wait until a starting broker serves."""

    def write_state(self, number: int, batch: bytes) -> None:
        """Append a batch to a partition of `__transaction_state`, unnoticed by its coordinator."""


class OurCluster:
    """Three brokers of ours in this process, on real time."""

    name = "here"

    def __init__(
        self, home: Path, settings: Mapping[str, str], *, racks: Sequence[str] = ()
    ) -> None:
        self.cluster = Cluster(
            SIZE, data_dir=home, broker_config=settings, background=True, racks=racks or None
        )
        self._listeners = self.cluster.listen(auto_create=False)

    def __enter__(self) -> OurCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the running brokers by id."""
        return {number: self._listeners[number].bootstrap for number in self._listeners}

    def kill(self, number: int) -> None:
        """Kill a broker."""
        self.cluster.kill(number)

    def freeze(self, number: int) -> None:
        """Let a broker hear nothing from the others."""
        self.cluster.disconnect({number}, set(range(SIZE)) - {number})

    def thaw(self, _: int) -> None:
        """End `freeze`."""
        self.cluster.heal()

    def begin_restart(self, number: int) -> None:
        """Start a killed broker on its files."""
        self.cluster.restart(number)

    def await_restarted(self, number: int) -> None:
        """Return at once: the broker has started."""

    def write_state(self, number: int, batch: bytes) -> None:
        """Append a batch to a partition of `__transaction_state`, unnoticed by its coordinator."""
        log = self.cluster.leader_log(TopicPartition(TRANSACTIONS, number))
        info = log.writer.append_batches(batch, AppendOrigin.COORDINATOR)
        while log.high_watermark <= info.last_offset:
            time.sleep(PAUSE_S)


class KafkaCluster(RealCluster):
    """Three brokers of Kafka 4.3.1."""

    name = "Kafka"

    def write_state(self, number: int, batch: bytes) -> None:
        """Append a batch to a partition of `__transaction_state`, unnoticed by its coordinator.

        Kafka accepts records of internal topics from clients with the id of its own tools.
        """
        caller = Caller(self.addresses()[number], "__admin_client")
        answer = caller.call("Produce", 9, produce_fields(TRANSACTIONS, number, batch))
        assert answer.responses[0].partition_responses[0].error_code == 0
        caller.close()


class Route(NamedTuple):
    """The broker that gets a request: a coordinator, a leader, or any.

    Attributes
    ----------
    kind : str
        `group`, `transaction`, `leader` or `any`.
    key : object
        Group id, transactional id, or topic and partition.
    """

    kind: str
    key: Any = None


ANY = Route("any")


@dataclass(frozen=True, eq=False)
class Call:
    """A request to both clusters.

    Attributes
    ----------
    build : callable
        Returns the fields for a cluster.
    is_done : callable, optional
        Takes a response; the request is repeated until it returns True.
    may_repeat : bool
        Whether the request may be sent twice, because its response was lost, with the same outcome.
    is_urgent : bool
        Whether the request must follow the previous one at once, before the transaction times out.
    store : callable, optional
        An operation to perform instead of the request.
    """

    api: str
    version: int
    build: Callable[[Side], Fields]
    route: Route
    is_done: Callable[[Any], bool] | None = None
    may_repeat: bool = True
    is_urgent: bool = False
    store: Callable[[Client], Any] | None = None


class Client(Side):
    """A client of one cluster, with its own connections and names of ids.

    Parameters
    ----------
    nodes : Nodes
    versions : mapping of str to (int, int)
        Versions that both clusters serve.
    answers : Counter of (str, int, int)
        Counts API, version and error of each response.
    seed : int
    """

    def __init__(
        self,
        nodes: Nodes,
        versions: Mapping[str, tuple[int, int]],
        answers: Counter[tuple[str, int, int]],
        seed: int,
    ) -> None:
        super().__init__(nodes.name, "")
        self.nodes = nodes
        self._versions = versions
        self._answers = answers
        self._rng = random.Random(seed)
        self._open: dict[tuple[int, str], Caller] = {}
        self._found: dict[Route, int] = {}
        self._in_flight: tuple[Call, tuple[int, str]] | None = None

    def close(self) -> None:
        """Close all connections."""
        for caller in self._open.values():
            caller.close()
        self._open.clear()

    def send(self, call: Call) -> None:
        """Send a request, without waiting for its response; it may get lost."""
        try:
            where = self._connect(call)
            self._open[where].send(call.api, call.version, call.build(self))
        except (OSError, ClosedByPeer, _NotFound):
            self._found.pop(call.route, None)
            return
        self._in_flight = call, where

    def send_early(self, call: Call) -> None:
        """Send a request that is not in flight already."""
        if self._in_flight is None and call.store is None:
            self.send(call)

    def attempt(self, call: Call) -> Any:
        """Return the response to a request in flight, or send it; None if it must be repeated."""
        if call.store is not None:
            return call.store(self)
        self.send_early(call)
        if self._in_flight is None:
            return None
        sent, where = self._in_flight
        assert sent is call
        self._in_flight = None
        data = self._receive(call.api, call.version, where)
        if data is None or set(errors_in(data)) & TRANSIENT:
            self._found.pop(call.route, None)
            return None
        if call.is_done is not None and not call.is_done(data):
            return None
        return data

    def ask(self, call: Call) -> Any:
        """Repeat a request until it is done; return the response."""
        deadline = time.monotonic() + PATIENCE_S
        while (data := self.attempt(call)) is None:
            if time.monotonic() > deadline:
                raise Difference(f"{self.name} does not answer {describe(call, self)}")
            time.sleep(PAUSE_S)
        return data

    def _receive(self, api: str, version: int, where: tuple[int, str]) -> Any:
        try:
            answer = self._open[where].receive()
        except (OSError, ClosedByPeer):
            self._answers[api, version, CONNECTION_LOST] += 1
            self._open.pop(where).close()
            return None
        data = response_data(self, api, version, answer)
        for code in set(errors_in(data)) or {0}:
            self._answers[api, version, code] += 1
        return _without_places(data)

    def _connect(self, call: Call) -> tuple[int, str]:
        return self._connection(self._locate(call.route))

    def _connection(self, number: int) -> tuple[int, str]:
        address = self.nodes.addresses().get(number)
        if address is None:
            raise _NotFound
        key = number, address
        if key not in self._open:
            self._open[key] = Caller(address)
        return key

    def _locate(self, route: Route) -> int:
        if route.kind == "any":
            return self._rng.choice(sorted(self.nodes.addresses()))
        if route not in self._found:
            asked = self._rng.choice(sorted(self.nodes.addresses()))
            if route.kind == "leader":
                self._found[route] = self._leader(route.key, asked)
            else:
                self._found[route] = self._coordinator(route, asked)
        return self._found[route]

    def _leader(self, where: tuple[str, int], asked: int) -> int:
        topic, number = where
        leader = self.partitions(asked, [topic]).get((topic, number), ((), -1))[1]
        if leader < 0:
            raise _NotFound
        return leader

    def partitions(
        self, asked: int, topics: Sequence[str]
    ) -> dict[tuple[str, int], tuple[tuple[int, ...], int]]:
        """Return the in-sync replicas and the leader of each partition, as a broker reports."""
        version = self.version("Metadata", least=4, most=9)
        fields = {
            "topics": [{"name": topic} for topic in topics],
            "allow_auto_topic_creation": False,
        }
        connection = self._connection(asked)
        self._open[connection].send("Metadata", version, fields)
        data = self._receive("Metadata", version, connection)
        if data is None:
            raise _NotFound
        return {
            (topic["name"], each["partitionIndex"]): (
                tuple(sorted(each["isrNodes"])),
                each["leaderId"],
            )
            for topic in data["topics"]
            for each in topic["partitions"]
        }

    def _coordinator(self, route: Route, asked: int) -> int:
        kind = int(route.kind == "transaction")
        version = self.version("FindCoordinator", least=kind)
        if version >= 4:
            fields: dict[str, Any] = {"key_type": kind, "coordinator_keys": [route.key]}
        else:
            fields = {"key": route.key} | ({"key_type": kind} if version else {})
        connection = self._connection(asked)
        self._open[connection].send("FindCoordinator", version, fields)
        data = self._receive("FindCoordinator", version, connection)
        if data is None or any(errors_in(data)):
            raise _NotFound
        return (data["coordinators"][0] if version >= 4 else data)["nodeId"]

    def version(self, api: str, least: int = 0, most: int = 99) -> int:
        """Draw a version that both clusters serve."""
        return draw_version(self._rng, self._versions, api, least, most)


class _NotFound(Exception):
    """No broker reports the leader or coordinator at present."""


def draw_version(
    rng: random.Random,
    versions: Mapping[str, tuple[int, int]],
    api: str,
    least: int = 0,
    most: int = 99,
) -> int:
    """Draw a version of an API within bounds."""
    low, high = versions[api]
    low, high = max(low, least), min(high, most)
    return rng.choice((low, high, rng.randint(low, high)))


def _without_places(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_places(each) for key, each in data.items() if key not in PLACES}
    if isinstance(data, list):
        return [_without_places(each) for each in data]
    return data


def describe(call: Call, side: Side) -> str:
    """Return a call on one line, with the contents of its batch."""
    fields = call.build(side)
    if call.api != "Produce":
        return f"{call.api} {call.version} {fields!s:.300}"
    (topic,) = fields["topic_data"]
    (data,) = topic["partition_data"]
    batch = RecordBatch(data["records"])
    header = batch.header
    return (
        f"Produce {call.version} {topic['name']}-{data['index']} {fields['transactional_id']}"
        f" producer {header.producer_id} epoch {header.producer_epoch}"
        f" sequence {header.base_sequence} {[record.value for record in batch.records()]}"
    )


# -- reading and administration --------------------------------------------------------------------


def read_log(client: Client, topic: str, number: int) -> tuple[list[bytes], list[bytes]]:
    """Return the committed values and all values of a partition that has no open transaction."""
    batches: list[Any] = []
    aborted: set[tuple[int, str]] = set()
    offset = end = 0
    while not batches or offset < end:
        partition = _fetch(client, topic, number, offset)
        end = partition["highWatermark"]
        if end == 0:
            break
        batches += partition["records"]
        aborted |= {
            (each["firstOffset"], each["producerId"])
            for each in partition["abortedTransactions"] or ()
        }
        offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1
    return _values(batches, sorted(aborted))


def _fetch(client: Client, topic: str, number: int, offset: int) -> Any:
    """Return a partition's response once no transaction is open."""
    version = client.version("Fetch", least=4, most=12)
    request = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
    fields: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 26,
        "isolation_level": 1,
        "topics": [{"topic": topic, "partitions": [request]}],
    }
    if version >= 7:
        fields |= {"session_id": 0, "session_epoch": -1}

    def is_stable(data: Any) -> bool:
        partition = data["responses"][0]["partitions"][0]
        return partition["lastStableOffset"] == partition["highWatermark"]

    route = Route("leader", (topic, number))
    data = client.ask(Call("Fetch", version, lambda _: fields, route, is_stable))
    return data["responses"][0]["partitions"][0]


def _values(
    batches: Sequence[Any], aborted: list[tuple[int, str]]
) -> tuple[list[bytes], list[bytes]]:
    """Split batches as a consumer does, by the list of aborted transactions."""
    committed: list[bytes] = []
    everything: list[bytes] = []
    undone: set[str] = set()
    for batch in batches:
        last = batch["base_offset"] + batch["last_offset_delta"]
        while aborted and aborted[0][0] <= last:
            undone.add(aborted.pop(0)[1])
        is_transactional, is_control = batch["attributes"] & 16, batch["attributes"] & 32
        if is_control:
            if batch["records"][0][2] == ABORT:
                undone.discard(batch["producerId"])
            continue
        values = [record[3] for record in batch["records"]]
        everything += values
        if not (is_transactional and batch["producerId"] in undone):
            committed += values
    return committed, everything


def producers_of(client: Client, topic: str, number: int) -> dict[int, Fields]:
    """Return a partition's active producers on its leader, by producer id."""
    fields = {"topics": [{"name": topic, "partition_indexes": [number]}]}
    route = Route("leader", (topic, number))
    data = client.ask(Call("DescribeProducers", 0, lambda _: fields, route))
    return {
        client.value_of(each["producerId"]): {
            "epoch": each["producerEpoch"],
            "last sequence": each["lastSequence"],
            "is open": each["currentTxnStartOffset"] >= 0,
        }
        for each in data["topics"][0]["partitions"][0]["activeProducers"]
    }


def create_topic(
    clients: Sequence[Client], name: str, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic of three replicas, whose partition n broker n prefers to lead."""
    assignments = [
        {
            "partition_index": number,
            "broker_ids": [(number + each) % SIZE for each in range(SIZE)],
        }
        for number in range(PARTITIONS)
    ]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    fields = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
    for client in clients:
        version = client.version("CreateTopics", least=2)
        data = client.ask(Call("CreateTopics", version, lambda _: fields, ANY))
        assert not any(errors_in(data)), data


def settle(clients: Sequence[Client], topics: Sequence[str]) -> None:
    """Wait until all replicas are in sync, and let the preferred leaders lead."""
    for client in clients:
        fields = {"election_type": 0, "topic_partitions": None, "timeout_ms": 30_000}
        version = client.version("ElectLeaders", least=1)
        election = Call("ElectLeaders", version, lambda _, fields=fields: fields, ANY)

        def is_settled(client: Client = client, election: Call = election) -> bool:
            if not holds_for_all(client, topics, lambda _, __, isr: len(isr) == SIZE):
                return False
            if holds_for_all(client, topics, lambda partition, leader, _: leader == partition[1]):
                return True
            client.ask(election)
            return False

        until(is_settled, f"{client.name} settles")


def await_alive(client: Client, topics: Sequence[str]) -> None:
    """Wait until all partitions are led by running brokers."""
    alive = set(client.nodes.addresses())

    def are_alive() -> bool:
        return holds_for_all(client, topics, lambda _, leader, __: leader in alive)

    until(are_alive, f"{client.name} has leaders")


def holds_for_all(
    client: Client,
    topics: Sequence[str],
    holds: Callable[[tuple[str, int], int, tuple[int, ...]], bool],
) -> bool:
    """Return whether a condition holds for all partitions of some topics, at each running broker.

    Parameters
    ----------
    holds : callable
        Takes topic and number of a partition, its leader and its in-sync replicas.
    """
    for asked in client.nodes.addresses():
        try:
            known = client.partitions(asked, topics)
        except (_NotFound, OSError):
            return False
        if len(known) < len(topics) * PARTITIONS or not all(
            holds(partition, leader, isr) for partition, (isr, leader) in known.items()
        ):
            return False
    return True


def until(condition: Callable[[], bool], expected: str) -> None:
    """Wait for a condition.

    Raises
    ------
    Difference
        It does not hold in time.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Difference(f"not within {PATIENCE_S} s: {expected}")
        time.sleep(PAUSE_S)


def await_registered(client: Client) -> None:
    """Wait until all brokers know each other."""
    for address in client.nodes.addresses().values():
        caller = Caller(address)

        def are_known(caller: Caller = caller) -> bool:
            return len(caller.call("Metadata", 4, {"topics": []}).brokers) == SIZE

        until(are_known, f"{client.name} has {SIZE} brokers")
        caller.close()


def shared_versions(clusters: Sequence[Nodes]) -> dict[str, tuple[int, int]]:
    """Return the versions of each API that all clusters serve, both bounds inclusive."""
    served = [_versions_of(nodes) for nodes in clusters]
    return {
        api.name: (
            max(each[api.key][0] for each in served),
            min(each[api.key][1] for each in served),
        )
        for api in apis_by_name().values()
        if all(api.key in each for each in served)
    }


def _versions_of(nodes: Nodes) -> dict[int, tuple[int, int]]:
    side = Side(nodes.name, nodes.addresses()[0])
    result = side.versions()
    side.close()
    return result


def produce_fields(
    topic: str, partition: int, data: bytes, transactional_id: str | None = None
) -> dict[str, Any]:
    """Return the fields of a Produce request of one batch."""
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
    }
