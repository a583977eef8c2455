"""Directories of three Kafka nodes, continued by one broker of ours and by a cluster of three.

The nodes get a history of groups and transactions, and end in different ways: one is killed before
the decision of a transaction that wrote to it, one is stopped, and the last one is killed. Our
commands read their directories without a change. Then brokers of ours start on copies of them, the
cluster with the replicas, leader epochs and in-sync replicas that Kafka's last node reported.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from logstore import Broker, Cluster, SystemClock, TopicPartition
from logstore.cli.main import main
from logstore.cluster.memory import ClusterMemory
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState
from logstore.names import CONTROLLER_DIR, GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.runtime import DiskFileSystem
from tests.cli.conftest import tree_hash
from tests.interop.conftest import unavailable
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.interop.conversations import until
from tests.interop.internal_topics import (
    BOTH,
    LONE,
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
from tests.support.interop.caller import Caller
from tests.support.interop.judge import KAFKA_3, Unavailable
from tests.support.interop.real_broker import class_path
from tests.support.interop.real_cluster import CLUSTER_SETTINGS, SIZE, RealCluster

pytestmark = pytest.mark.interop

COMPACTED = {"cleanup.policy": "compact", "compaction.strategy": "offset"}
CONFIGS: Mapping[str, Mapping[str, str]] = {
    GROUP_OFFSETS_TOPIC: COMPACTED,
    TRANSACTION_STATE_TOPIC: COMPACTED,
    SHARED: {"min.insync.replicas": "2"},
    LONE: {"min.insync.replicas": "2"},
}
"""Configurations of all topics."""

CLUSTER = {
    **OUR_SETTINGS,
    **CLUSTER_SETTINGS,
    # A completion that fails while replicas are missing is repeated at this interval.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

COMMANDS = (
    ("check",),
    ("inspect",),
    ("inspect", GROUP_OFFSETS_TOPIC, "--deep"),
    ("inspect", TRANSACTION_STATE_TOPIC, "--deep"),
    ("explain",),
    ("explain", GROUP_OFFSETS_TOPIC),
)


class Nodes(NamedTuple):
    """The directories of three nodes of Kafka, and their last state.

    Attributes
    ----------
    dirs : list of Path
        By broker id.
    killed, stopped, last : int
        Ids of the nodes by their ends. `last` was killed after the others had ended.
    topics : list of ClusterTopic
        As `last` reported them.
    known : Contents
        Groups and transactions at the end. One transaction is prepared.
    """

    dirs: list[Path]
    killed: int
    stopped: int
    last: int
    topics: list[ClusterTopic]
    known: Contents
    began: Mapping[str, Transaction]
    versions: Mapping[str, int]

    def topics_at(self, number: int) -> tuple[str, ...]:
        """Return the topics of which a node has partition 0."""
        return (SHARED,) if number == self.stopped else (SHARED, LONE)


@pytest.fixture(params=("3.9.2", "4.3.1"))
def nodes(request: pytest.FixtureRequest, scratch: Path) -> Nodes:
    """The history on three nodes."""
    versions = BOTH if request.param == "4.3.1" else {"old": OLD}
    try:
        classes = class_path(KAFKA_3) if request.param == "3.9.2" else None
        kafka = RealCluster(scratch / "kafka", CONVERSATION_SETTINGS, classes)
    except Unavailable as error:
        unavailable(error)
    with kafka:
        last = coordinator_of(kafka.addresses()[0], PREPARED)
        killed, stopped = (last + 1) % SIZE, (last + 2) % SIZE
        caller = Caller(kafka.addresses()[last])
        history = History(kafka.addresses()[last])
        history.coordinator("warm", 0)
        history.create_topic(SHARED, [(killed, stopped, last), (last, killed, stopped)], 2)
        # With one replica in sync, markers are refused. Without a leader, they would be dropped:
        # Kafka 4.3 takes such a partition for a deleted one.
        history.create_topic(LONE, [(killed, last)], 2)
        run(history, versions)
        kafka.kill(killed)
        until(lambda: killed not in leaders_of(caller))
        history.forget()
        history.end(PREPARED, commit=True, waits=False)
        known = contents(history, versions)
        assert known.transactions[PREPARED]["state"] == "PrepareCommit"
        kafka.stop(stopped)
        until(lambda: leaders_of(caller) <= {last, NO_LEADER})
        topics = topics_of(caller)
        history.close()
        caller.close()
    dirs = [kafka.data_dir(number) for number in range(SIZE)]
    return Nodes(dirs, killed, stopped, last, topics, known, history.began, versions)


def coordinator_of(bootstrap: str, transactional_id: str) -> int:
    """Return the id of the broker that coordinates a transactional id."""
    caller = Caller(bootstrap)
    found: list[Any] = []

    def is_found() -> bool:
        fields = {"key": transactional_id, "key_type": 1}
        found[:] = [caller.call("FindCoordinator", 1, fields)]
        return found[0].error_code == 0

    until(is_found)
    caller.close()
    return found[0].node_id


def metadata_of(caller: Caller) -> list[Any]:
    fields = {"topics": None, "allow_auto_topic_creation": False}
    return caller.call("Metadata", 10, fields).topics


def leaders_of(caller: Caller) -> set[int]:
    """Return the leaders of all partitions that have one."""
    return {each.leader_id for topic in metadata_of(caller) for each in topic.partitions}


def topics_of(caller: Caller) -> list[ClusterTopic]:
    """Return all topics as a broker reports them."""
    topics = []
    for topic in metadata_of(caller):
        states = tuple(
            PartitionState(
                TopicPartition(topic.name, each.partition_index),
                tuple(each.replica_nodes),
                each.leader_id,
                each.leader_epoch,
                tuple(each.isr_nodes),
                0,
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        )
        factor = len(states[0].replicas)
        topics.append(ClusterTopic(topic.name, topic.topic_id, factor, CONFIGS[topic.name], states))
    return topics


# -- tests ---------------------------------------------------------------------------------------


def test_one_broker_and_a_cluster_continue_the_directories_of_three_nodes(nodes, scratch):
    check_commands(nodes)

    def continue_prepared(history: History) -> None:
        check_continued(history, nodes.known, nodes.began, nodes.versions)

    def continue_open(history: History) -> None:
        end_prepared(history, nodes)
        check_continued(history, nodes.known, nodes.began, nodes.versions)

    alone = {
        nodes.last: continue_prepared,
        nodes.stopped: continue_prepared,
        nodes.killed: continue_open,
    }
    for number, check in alone.items():
        path = scratch / f"alone-{number}"
        shutil.copytree(nodes.dirs[number], path)
        settings = {**OUR_SETTINGS, "node.id": str(number)}
        with (
            Broker(path, broker_config=settings, background=True) as broker,
            broker.listen() as server,
        ):
            history = History(server.bootstrap)
            history.init("first")  # until then, a copied topic is not in use
            check(history)
            history.close()
        check_committed(path, nodes.versions, topics=nodes.topics_at(number))

    three = scratch / "three"
    for number, each in enumerate(nodes.dirs):
        shutil.copytree(each, three / f"broker-{number}")
    memory = ClusterMemory(DiskFileSystem(SystemClock()), str(three / CONTROLLER_DIR))
    memory.write(nodes.topics, None, {})
    with (
        Cluster(SIZE, data_dir=three, broker_config=CLUSTER, background=True) as cluster,
        cluster.listen() as server,
    ):
        history = History(server.bootstrap.partition(",")[0])
        check_continued(history, nodes.known, nodes.began, nodes.versions, commit=False)
        history.close()
    for number in range(SIZE):
        path = three / f"broker-{number}"
        check_committed(path, nodes.versions, commit=False, topics=nodes.topics_at(number))


def check_commands(nodes: Nodes) -> None:
    """Run our commands that read on each directory, which they do not change."""
    for each in nodes.dirs:
        before = tree_hash(each)
        for command in COMMANDS:
            arguments = (*command, "--data-dir", str(each))
            done = CliRunner(env={"LOGSTORE_DATA_DIR": None}).invoke(main, arguments)
            assert done.exit_code == 0, (arguments, done.output)
        assert tree_hash(each) == before


def end_prepared(history: History, nodes: Nodes) -> None:
    """Compare the contents of a broker for which `PREPARED` is open, and commit it."""
    found = contents(history, nodes.versions)
    assert found.offsets == nodes.known.offsets
    prepared = nodes.known.transactions[PREPARED]
    assert found.transactions == {
        **nodes.known.transactions,
        PREPARED: {**prepared, "state": "Ongoing"},
    }
    history.began |= nodes.began
    history.end(PREPARED, commit=True)
