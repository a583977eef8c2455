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
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.storage.checkpoint.offsets import CHECKPOINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from tests.interop.conftest import unavailable
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.interop.conversations import until
from tests.interop.internal_topics import (
    BOTH,
    LONE,
    NEW,
    OLD,
    OUR_SETTINGS,
    PREPARED,
    SHARED,
    Contents,
    History,
    Transaction,
    check_committed,
    check_continued,
    contents,
    run,
)
from tests.support.interop.judge import (
    BUILDS,
    KAFKA_3,
    KAFKA_4,
    Unavailable,
    build,
    fast_scratch,
    jars_of,
)
from tests.support.interop.real_broker import RealBroker, class_path, java

pytestmark = pytest.mark.interop

INTERNAL = (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
PARTITIONS = {GROUP_OFFSETS_TOPIC: 2, TRANSACTION_STATE_TOPIC: 2, SHARED: 2, LONE: 1}
OFFSET_KEY = "1"
"""Type of the keys of committed offsets."""

CONSUMER = "org.apache.kafka.tools.consumer"
METADATA = "partition.metadata"
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
