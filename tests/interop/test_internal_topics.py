"""Files of `__consumer_offsets` and `__transaction_state`, continued by Kafka and by this engine.

A history of groups and transactions runs on three brokers of ours and on one of Kafka's. Then each
side opens the other's partitions: committed offsets and transactions are the same, open
transactions can be ended, and prepared ones are completed. Kafka's tools read both topics.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logstore import Broker, Cluster, TopicPartition
from logstore.messages import to_json
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.checkpoint.offsets import CHECKPOINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from tests.interop.conftest import unavailable
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.interop.conversations import until
from tests.support.interop.answers import errors_in
from tests.support.interop.caller import Caller
from tests.support.interop.judge import (
    BUILDS,
    KAFKA_3,
    KAFKA_4,
    Unavailable,
    build,
    fast_scratch,
    jars_of,
)
from tests.support.interop.real_broker import SETTINGS, RealBroker, class_path, java

pytestmark = pytest.mark.interop

SHARED, LONE = "shared", "lone"
"""Topics: one on all brokers, and one whose broker is down when its transaction is committed."""

INTERNAL = (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
PARTITIONS = {GROUP_OFFSETS_TOPIC: 2, TRANSACTION_STATE_TOPIC: 2, SHARED: 2, LONE: 1}
OLD, NEW = 3, 5
"""Versions of EndTxn in transactions of version 1 and 2."""

OFFSET_KEY = "1"
"""Type of the keys of committed offsets."""

NONE = 0
MEMBERLESS = {"generation_id_or_member_epoch": -1, "member_id": ""}
CONSUMER = "org.apache.kafka.tools.consumer"
TIMEOUT_MS = 60_000
PREPARED = "prepared"
METADATA = "partition.metadata"
BOTH = {"old": OLD, "new": NEW}

OUR_SETTINGS = {**SETTINGS, **CONVERSATION_SETTINGS}

OFFSETS_FORMATTER, GROUP_FORMATTER = "OffsetsMessageFormatter", "GroupMetadataMessageFormatter"
FORMATTERS = (
    (GROUP_OFFSETS_TOPIC, OFFSETS_FORMATTER),
    (GROUP_OFFSETS_TOPIC, GROUP_FORMATTER),
    (TRANSACTION_STATE_TOPIC, "TransactionLogMessageFormatter"),
)
"""Formatters of kafka-console-consumer, with the topic of each."""

DUMPED = re.compile(r" key: (\{.*?\}\}) payload: (.*)")

GENERATED = frozenset(
    {
        "commitTimestamp",
        "producerId",
        "previousProducerId",
        "nextProducerId",
        "transactionLastUpdateTimestampMs",
        "transactionStartTimestampMs",
    }
)
"""Fields with ids and times that each side generates."""


Decoded = tuple[Any, Any]
"""A record's key and value, as a tool of Kafka prints them."""


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
        for each in (self._any, *self._callers.values()):
            each.close()

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
        fields = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in topics.items()
        ]
        request = {"topics": fields, "timeout_ms": TIMEOUT_MS}
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

    def begin(
        self,
        name: str,
        version: int,
        topic: str = SHARED,
        group: str | None = None,
        offsets: Mapping[int, tuple[int, str]] | None = None,
    ) -> None:
        """Write a record, and offsets of a group, in a new transaction."""
        coordinator = self.coordinator(name, 1)
        init = {"transactional_id": name, "transaction_timeout_ms": 600_000}
        made: list[Any] = []

        def is_made() -> bool:
            made[:] = [coordinator.call("InitProducerId", 4, init)]
            return made[0].error_code == NONE

        until(is_made)
        producer = {
            "producer_id": made[0].producer_id,
            "producer_epoch": made[0].producer_epoch,
        }
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
    history: History, known: Contents, began: Mapping[str, Transaction], versions: Mapping[str, int]
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
        history.end(f"open-{name}", commit=True)
        assert history.offsets(f"group-{name}") == {0: (10, -1, "c"), 1: (12, -1, "o")}


# -- files ---------------------------------------------------------------------------------------


def give(source: Callable[[TopicPartition], Path], target: Path) -> None:
    """Replace the partitions of a data directory, but not their topic ids."""
    for topic, count in PARTITIONS.items():
        for number in range(count):
            folder = target / f"{topic}-{number}"
            for each in folder.iterdir():
                if each.name != METADATA:
                    each.unlink()
            for each in source(TopicPartition(topic, number)).iterdir():
                if each.name != METADATA:
                    shutil.copy2(each, folder / each.name)
    # The next start verifies every batch.
    for name in (*CHECKPOINTS, CLEAN_SHUTDOWN):
        (target / name).unlink(missing_ok=True)


def cut_last_markers(path: Path) -> None:
    """Remove the end of `PREPARED`: its marker, and the record that says it is written."""
    with Broker(path, broker_config=OUR_SETTINGS) as broker:
        state = broker.coordinator.partition_for(PREPARED)
        for tp in (state, TopicPartition(LONE, 0)):
            broker.manager.truncate_to(tp, broker.log(tp).log_end_offset - 1)


def logs_of(path: Path) -> dict[str, bytes]:
    """Return the `.log` files of both internal topics."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for topic in INTERNAL
        for each in path.glob(f"{topic}-*/*.log")
    }


# -- tools ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tools() -> str:
    """The class path of Kafka 4.3.1 with its tools."""
    try:
        build(KAFKA_4)
    except Unavailable as error:
        unavailable(error)
    return jars_of(BUILDS / "dump-tool")


class Tools(NamedTuple):
    """The records that kafka-dump-log and kafka-console-consumer print, by topic and formatter."""

    dumped: Mapping[str, list[Decoded]]
    consumed: Mapping[str, list[Decoded]]


def run_tools(class_path: str, bootstrap: str, path: Path, scratch: Path) -> Tools:
    """Dump the files of a running broker, and consume until all records of them have come."""
    decoded = dumped(class_path, path)
    counts = {topic: sum(map(is_of_history, records)) for topic, records in decoded.items()}
    outputs: dict[str, Path] = {}
    running = []
    try:
        for topic, formatter in FORMATTERS:
            command = java(
                class_path,
                f"{CONSUMER}.ConsoleConsumer",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
                *("--formatter", f"{CONSUMER}.{formatter}"),
            )
            outputs[formatter] = scratch / f"{formatter}-{bootstrap.rpartition(':')[2]}"
            with outputs[formatter].open("w") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL))
        for topic, formatter in FORMATTERS:
            is_group = formatter == GROUP_FORMATTER
            wanted = 1 if is_group else counts[topic]
            until(
                lambda is_group=is_group, wanted=wanted, path=outputs[formatter]: (
                    wanted
                    <= sum(is_group or is_of_history(each) for each in _parse(path.read_text()))
                )
            )
    finally:
        for each in running:
            each.kill()
            each.wait()
    consumed = {formatter: list(_parse(path.read_text())) for formatter, path in outputs.items()}
    return Tools(decoded, consumed)


def _parse(text: str) -> Iterator[Decoded]:
    """Yield the records of a formatter, which prints one JSON object after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            record, at = decoder.raw_decode(text, at)
        except ValueError:  # the end is being written
            return
        yield record["key"], record["value"]


def dumped(tools: str, path: Path) -> dict[str, list[Decoded]]:
    """Return the records that kafka-dump-log decodes, by topic."""
    result = {}
    for topic, flag in zip(
        INTERNAL, ("--offsets-decoder", "--transaction-log-decoder"), strict=True
    ):
        files = sorted(str(each) for each in path.glob(f"{topic}-*/*.log"))
        command = java(tools, "org.apache.kafka.tools.DumpLogSegments", flag, "--files")
        done = subprocess.run(
            [*command, ",".join(files)], capture_output=True, text=True, timeout=120, check=True
        )
        result[topic] = [
            (json.loads(key), None if value == "<DELETE>" else json.loads(value))
            for key, value in DUMPED.findall(done.stdout)
        ]
    return result


def by_key(records: list[Decoded]) -> dict[str, list[Any]]:
    """Return the values of each key, in order, without ids and times that a side generates."""
    result: dict[str, list[Any]] = {}
    for key, value in records:
        result.setdefault(json.dumps(key), []).append(_neutral(value))
    return result


def _neutral(value: Any) -> Any:
    """Replace ids and times; sort partitions, whose order in Kafka is that of a hash table."""
    if isinstance(value, dict):
        return {
            key: "generated" if key in GENERATED and each not in (-1, "-1") else _neutral(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return sorted((_neutral(each) for each in value), key=json.dumps)
    return value


def _without_topic_ids(values: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Remove the difference of offsets that Kafka 4.3 writes: version 4 adds the topic's id."""
    result: dict[str, list[Any]] = {}
    for key, each in values.items():
        result[key] = []
        for value in each:
            assert str(value["version"]) in ("3", "4")
            data = {name: data for name, data in value["data"].items() if name != "topicId"}
            result[key].append(data)
    return result


# -- tests ---------------------------------------------------------------------------------------


class Kafka(NamedTuple):
    """A broker of Kafka, and the versions of transactions that it knows."""

    broker: RealBroker
    versions: Mapping[str, int]


class Ours(NamedTuple):
    """Three brokers of ours: their directories, contents, and the outputs of Kafka's tools."""

    path: Path
    known: Contents
    began: Mapping[str, Transaction]
    tools: Tools

    def partition(self, tp: TopicPartition) -> Path:
        """Return a replica: of each partition another broker's, if it was not killed."""
        broker = 1 if tp.topic == LONE else 2 * (tp.partition % 2)
        return self.path / f"broker-{broker}" / str(tp)


def new_cluster(path: Path) -> Cluster:
    """Return a cluster of ours whose internal topics are on all three brokers."""
    config = {
        **OUR_SETTINGS,
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    return Cluster(data_dir=path, broker_config=config)


@pytest.fixture(scope="module")
def ours(tools: str) -> Iterator[Ours]:
    """The history on a cluster, whose broker 1 is killed before `PREPARED` is committed."""
    home = Path(tempfile.mkdtemp(prefix="interop-", dir=fast_scratch()))
    path = home / "ours"
    with new_cluster(path) as cluster, cluster.listen() as server:
        cluster.create_topic(SHARED, 2, replication_factor=3)
        cluster.create_topic(LONE, 1, assignment=[[1]])
        history = History(server.bootstrap.partition(",")[0])
        run(history, BOTH)
        printed = run_tools(tools, server.bootstrap, path / "broker-0", home)
        until(lambda: logs_of(path / "broker-0") == logs_of(path / "broker-1"))
        cluster.kill(1)
        history.end(PREPARED, commit=True, waits=False)
        known = contents(history, BOTH)
        assert known.transactions[PREPARED]["state"] == "PrepareCommit"
        until(lambda: logs_of(path / "broker-0") == logs_of(path / "broker-2"))
        history.close()
    yield Ours(path, known, history.began, printed)
    shutil.rmtree(home)


@pytest.fixture(params=("3.9.2", "4.3.1"))
def kafka(request: pytest.FixtureRequest, scratch: Path, tools: str) -> Iterator[Kafka]:
    """A running broker of Kafka with all topics, and the transactions it knows."""
    try:
        classes = class_path(KAFKA_3) if request.param == "3.9.2" else tools
    except Unavailable as error:
        unavailable(error)
    with RealBroker(classes, scratch / "kafka", CONVERSATION_SETTINGS) as broker:
        history = History(broker.bootstrap)
        for key_type in (0, 1):
            history.coordinator("warm", key_type)
        history.create_topics({SHARED: PARTITIONS[SHARED], LONE: PARTITIONS[LONE]})
        history.close()
        yield Kafka(broker, BOTH if request.param == "4.3.1" else {"old": OLD})


def check_committed(path: Path, names: set[str]) -> None:
    """Compare the committed records of a directory, which has no open transaction."""
    expected = {f"{kind}-{name}".encode() for kind in ("committed", "open") for name in names}
    with Broker(path, broker_config=OUR_SETTINGS, read_only=True) as broker:
        for topic, values in ((SHARED, expected), (LONE, {PREPARED.encode()})):
            log = broker.log(topic, 0)
            assert log.last_stable_offset == log.log_end_offset
            read = broker.read(topic, 0, isolation="read_committed")
            assert {each.value for each in read} == values


def check_tools(ours: Tools, theirs: Tools) -> None:
    """Compare what Kafka's tools print for both sides.

    Kafka 4.3 writes offsets in version 4, and the metadata of a group also when it is created.
    """
    for mine, other in zip(ours, theirs, strict=True):
        for name in mine.keys() - {GROUP_FORMATTER}:
            one, two = (by_key(list(filter(is_of_history, side[name]))) for side in (mine, other))
            if name in (GROUP_OFFSETS_TOPIC, OFFSETS_FORMATTER):
                one, two = _without_topic_ids(one), _without_topic_ids(two)
            assert one == two != {}
    groups = [
        {tuple(value["data"]) for _, value in side.consumed[GROUP_FORMATTER] if value is not None}
        for side in (ours, theirs)
    ]
    assert groups[0] == groups[1] != set()


def is_of_history(record: Decoded) -> bool:
    """Return whether a record is of the history, and not of a tool, or after it."""
    key, value = record
    if "transactionalId" in key["data"]:
        is_end = (
            key["data"]["transactionalId"] == PREPARED and value["data"]["transactionStatus"] > 1
        )
        return not is_end
    return str(key["type"]) == OFFSET_KEY and not key["data"]["group"].startswith("console")


def test_each_side_continues_the_partitions_of_the_other(kafka, ours, tools, scratch, say):
    broker, versions = kafka
    theirs = scratch / "theirs"
    history = History(broker.bootstrap)
    known = run(history, versions)
    began = dict(history.began)
    history.end(PREPARED, commit=True)
    if NEW in versions.values():
        check_tools(ours.tools, run_tools(tools, broker.bootstrap, broker.data_dir, scratch))
    history.close()
    broker.stop()
    shutil.copytree(broker.data_dir, theirs)
    cut_last_markers(theirs)

    # Kafka continues the partitions of the cluster.
    give(ours.partition, broker.data_dir)
    broker.start()
    history = History(broker.bootstrap)
    # 3.9 ends every transaction with the requests of version 1.
    check_continued(
        history, ours.known, ours.began, {"old": OLD, **versions, "new": versions.get("new", OLD)}
    )
    history.close()
    broker.stop()
    check_committed(broker.data_dir, {"old", "new"})

    # One broker of ours, then three, continue the partitions of Kafka.
    one = scratch / "one"
    shutil.copytree(theirs, one)
    with (
        Broker(one, broker_config=OUR_SETTINGS, background=True) as ours_alone,
        ours_alone.listen() as server,
    ):
        history = History(server.bootstrap)
        check_continued(history, known, began, versions)
        history.close()
    check_committed(one, set(versions))
    three = scratch / "three"
    with new_cluster(three) as cluster:
        cluster.group_coordinator("warm")
        cluster.transaction_coordinator("warm")
        cluster.create_topic(SHARED, 2, replication_factor=3)
        cluster.create_topic(LONE, 1, replication_factor=3)
    for number in range(3):
        give(lambda tp: theirs / str(tp), three / f"broker-{number}")
    with new_cluster(three) as cluster, cluster.listen() as server:
        history = History(server.bootstrap.partition(",")[0])
        check_continued(history, known, began, versions)
        history.close()
    for number in range(3):
        check_committed(three / f"broker-{number}", set(versions))
