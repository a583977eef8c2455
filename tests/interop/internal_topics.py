"""A history of groups and transactions on any brokers, and checks of brokers that take over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore import Broker
from logstore.messages import to_json
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.interop.conversations import until
from tests.support.interop.answers import errors_in
from tests.support.interop.caller import Caller
from tests.support.interop.real_broker import SETTINGS

SHARED, LONE = "shared", "lone"
"""Topics: one on all brokers, and one whose broker is down when its transaction is committed."""

OLD, NEW = 3, 5
"""Versions of EndTxn in transactions of version 1 and 2."""

NONE = 0
MEMBERLESS = {"generation_id_or_member_epoch": -1, "member_id": ""}
TIMEOUT_MS = 60_000
PREPARED = "prepared"
BOTH = {"old": OLD, "new": NEW}

OUR_SETTINGS = {**SETTINGS, **CONVERSATION_SETTINGS}


class Transaction(NamedTuple):
    """A transaction's producer and the version of its requests."""

    producer: Mapping[str, int]
    version: int


class History:
    """Requests to the coordinators and leaders behind an address."""

    def __init__(self, bootstrap: str) -> None:
        self._any = Caller(bootstrap)
        self._callers: dict[str, Caller] = {}
        self.began: dict[str, Transaction] = {}

    def close(self) -> None:
        self.forget()
        self._any.close()

    def forget(self) -> None:
        """Close all connections but the first, because a broker has ended."""
        for each in self._callers.values():
            each.close()
        self._callers.clear()

    def _at(self, host: str, port: int) -> Caller:
        address = f"{host}:{port}"
        if address not in self._callers:
            self._callers[address] = Caller(address)
        return self._callers[address]

    def coordinator(self, key: str, key_type: int) -> Caller:
        found: list[Any] = []

        def is_found() -> bool:
            fields = {"key": key, "key_type": key_type}
            found[:] = [self._any.call("FindCoordinator", 1, fields)]
            return found[0].error_code == NONE

        until(is_found)
        return self._at(found[0].host, found[0].port)

    def leader(self, topic: str, partition: int) -> Caller:
        found: list[Any] = []

        def is_found() -> bool:
            fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            answer = self._any.call("Metadata", 5, fields)
            brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
            found[:] = [
                brokers[each.leader_id]
                for each in answer.topics[0].partitions
                if each.partition_index == partition and each.leader_id in brokers
            ]
            return bool(found)

        until(is_found)
        return self._at(*found[0])

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics with the given numbers of partitions, and one replica of each."""
        self._create(
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in topics.items()
        )

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]], min_isr: int) -> None:
        """Create a topic with the given replicas of each partition."""
        assignments = [
            {"partition_index": number, "broker_ids": each} for number, each in enumerate(replicas)
        ]
        self._create(
            [
                {
                    "name": name,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": assignments,
                    "configs": [{"name": "min.insync.replicas", "value": str(min_isr)}],
                }
            ]
        )

    def _create(self, topics: Iterable[Mapping[str, Any]]) -> None:
        request = {"topics": list(topics), "timeout_ms": TIMEOUT_MS}
        answer = self._any.call("CreateTopics", 5, request)
        assert {each.error_code for each in answer.topics} == {NONE}

    # -- groups ----------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        fields = {"group_id": group, **MEMBERLESS, "topics": _committed(offsets)}
        until(lambda: accepts(self.coordinator(group, 0), "OffsetCommit", 7, fields))

    def offsets(self, group: str) -> dict[int, tuple[int, int, str]]:
        """Return the committed offsets of `SHARED` with epoch and metadata."""
        answers: list[Any] = []

        def is_loaded() -> bool:
            fields = {"group_id": group, "topics": None}
            answers[:] = [self.coordinator(group, 0).call("OffsetFetch", 5, fields)]
            return answers[0].error_code == NONE

        until(is_loaded)
        return {
            each.partition_index: (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
            )
            for topic in answers[0].topics
            for each in topic.partitions
        }

    # -- transactions ----------------------------------------------------------------------------

    def init(self, name: str) -> dict[str, int]:
        """Return the producer id and epoch of a transactional id."""
        init = {"transactional_id": name, "transaction_timeout_ms": 600_000}
        made: list[Any] = []

        def is_made() -> bool:
            made[:] = [self.coordinator(name, 1).call("InitProducerId", 4, init)]
            return made[0].error_code == NONE

        until(is_made)
        return {"producer_id": made[0].producer_id, "producer_epoch": made[0].producer_epoch}

    def begin(
        self,
        name: str,
        version: int,
        topic: str = SHARED,
        group: str | None = None,
        offsets: Mapping[int, tuple[int, str]] | None = None,
    ) -> None:
        """Write a record, and offsets of a group, in a new transaction."""
        coordinator, producer = self.coordinator(name, 1), self.init(name)
        self.began[name] = Transaction(producer, version)
        if version < NEW:
            added = {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": producer["producer_id"],
                "v3_and_below_producer_epoch": producer["producer_epoch"],
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            }
            until(lambda: accepts(coordinator, "AddPartitionsToTxn", 3, added))
        data = build_batch(
            [Record(0, 1_760_000_000_000, b"k", name.encode())],
            base_sequence=0,
            is_transactional=True,
            **producer,
        )
        partition = {"index": 0, "records": data}
        request = {
            "transactional_id": name,
            "acks": -1,
            "timeout_ms": TIMEOUT_MS,
            "topic_data": [{"name": topic, "partition_data": [partition]}],
        }
        produce = 12 if version >= NEW else 9
        until(lambda: accepts(self.leader(topic, 0), "Produce", produce, request))
        if group is None:
            return
        if version < NEW:
            fields = {"transactional_id": name, "group_id": group, **producer}
            until(lambda: accepts(coordinator, "AddOffsetsToTxn", 3, fields))
        fields = {
            "transactional_id": name,
            "group_id": group,
            **producer,
            **MEMBERLESS,
            "topics": _committed(offsets or {}),
        }
        commit = 5 if version >= NEW else 3
        until(lambda: accepts(self.coordinator(group, 0), "TxnOffsetCommit", commit, fields))

    def end(self, name: str, *, commit: bool, waits: bool = True) -> None:
        producer, version = self.began[name]
        fields = {"transactional_id": name, **producer, "committed": commit}
        until(lambda: accepts(self.coordinator(name, 1), "EndTxn", version, fields))
        if waits:
            wanted = "CompleteCommit" if commit else "CompleteAbort"
            until(lambda: self.describe(name)["state"] == wanted)

    def describe(self, name: str) -> dict[str, Any]:
        """Return the description of a transaction without its start time."""
        states: list[Any] = []

        def is_loaded() -> bool:
            fields = {"transactional_ids": [name]}
            answer = self.coordinator(name, 1).call("DescribeTransactions", 0, fields)
            states[:] = answer.transaction_states
            return states[0].error_code == NONE

        until(is_loaded)
        (state,) = states
        return {
            "state": state.transaction_state,
            "timeout": state.transaction_timeout_ms,
            "producer": (state.producer_id, state.producer_epoch),
            "partitions": {topic.topic: sorted(topic.partitions) for topic in state.topics},
        }


def _committed(offsets: Mapping[int, tuple[int, str]]) -> list[dict[str, Any]]:
    partitions = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        for number, (offset, metadata) in offsets.items()
    ]
    return [{"name": SHARED, "partitions": partitions}]


def accepts(caller: Caller, name: str, version: int, fields: Mapping[str, Any]) -> bool:
    """Send a request; return whether its response has no error."""
    answer = caller.call(name, version, fields)
    return set(errors_in(to_json(answer, version))) == {NONE}


class Contents(NamedTuple):
    """Committed offsets by group, and descriptions of transactions by id."""

    offsets: dict[str, dict[int, tuple[int, int, str]]]
    transactions: dict[str, dict[str, Any]]


def run(history: History, versions: Mapping[str, int]) -> Contents:
    """Commit offsets; commit, abort and begin transactions of each version."""
    history.commit("plain", {0: (5, "note"), 1: (7, "")})
    history.commit("plain", {0: (6, "later")})
    for name, version in versions.items():
        group = f"group-{name}"
        history.begin(f"committed-{name}", version, group=group, offsets={0: (10, "c")})
        history.end(f"committed-{name}", commit=True)
        history.begin(f"aborted-{name}", version, group=group, offsets={1: (11, "a")})
        history.end(f"aborted-{name}", commit=False)
        history.begin(f"open-{name}", version, group=group, offsets={1: (12, "o")})
    history.begin(PREPARED, OLD, topic=LONE)
    return contents(history, versions)


def contents(history: History, versions: Mapping[str, int]) -> Contents:
    kinds = ("committed", "aborted", "open")
    names = [PREPARED, *(f"{kind}-{name}" for kind in kinds for name in versions)]
    groups = ["plain", *(f"group-{name}" for name in versions)]
    return Contents(
        {group: history.offsets(group) for group in groups},
        {name: history.describe(name) for name in names},
    )


def check_continued(
    history: History,
    known: Contents,
    began: Mapping[str, Transaction],
    versions: Mapping[str, int],
    *,
    commit: bool = True,
) -> None:
    """Compare the contents of a broker that took over; it completes and ends transactions."""
    until(lambda: history.describe(PREPARED)["state"] == "CompleteCommit")
    found = contents(history, versions)
    assert found.offsets == known.offsets
    without = lambda all_: {name: each for name, each in all_.items() if name != PREPARED}  # noqa: E731
    assert without(found.transactions) == without(known.transactions)
    history.began |= began
    for name in versions:
        history.began[f"open-{name}"] = began[f"open-{name}"]._replace(version=versions[name])
        history.end(f"open-{name}", commit=commit)
        committed = {0: (10, -1, "c"), 1: (12, -1, "o")} if commit else {0: (10, -1, "c")}
        assert history.offsets(f"group-{name}") == committed


def check_committed(
    path: Path, names: Iterable[str], *, commit: bool = True, topics: Sequence[str] = (SHARED, LONE)
) -> None:
    """Compare the committed records of a directory, which has no open transaction."""
    kinds = ("committed", "open") if commit else ("committed",)
    shared = {f"{kind}-{name}".encode() for kind in kinds for name in names}
    expected = {SHARED: shared, LONE: {PREPARED.encode()}}
    with Broker(path, read_only=True) as broker:
        for topic in topics:
            log = broker.log(topic, 0)
            assert log.last_stable_offset == log.log_end_offset
            read = broker.read(topic, 0, isolation="read_committed")
            assert {each.value for each in read} == expected[topic]
