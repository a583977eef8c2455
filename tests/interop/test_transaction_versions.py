"""Transactions of both versions: clients in trouble, Kafka's tools, and brokers that take over."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logstore import Broker, TopicPartition
from logstore.coordinator.transactions.state import LAST_EPOCH, TransactionVersion
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.interop.conftest import unavailable
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.interop.conversations import our_broker, until, warm_up
from tests.support.interop.answers import Side
from tests.support.interop.caller import Caller
from tests.support.interop.foreign_clients import CLIENTS
from tests.support.interop.judge import (
    BUILDS,
    KAFKA_4,
    RELEASES,
    Unavailable,
    build,
    fast_scratch,
    jars_of,
)
from tests.support.interop.real_broker import RealBroker, java
from tests.support.interop.sweep import EXPECTED, LEFT, SETTINGS, SweepResult, sweep

pytestmark = pytest.mark.interop

NEW = {"java-4.4", "franz-go"}
"""Clients that use version 2; the others keep their epoch."""

TRANSACTIONS = 3
"""Transactions of each program: a commit, an abort, a commit."""


# -- clients ---------------------------------------------------------------------------------------


def lose_responses(broker, listener):
    """Replace the first two responses to EndTxn, so that clients repeat a request that was done."""
    listener.fail("EndTxn", error="COORDINATOR_LOAD_IN_PROGRESS", after=True, times=2)


def wear_out(broker, listener):
    """Leave a client two epochs of producer id 0: its own, and one more."""
    coordinator = broker.coordinator
    while coordinator.init_producer_id("booking-1", 60_000).producer_epoch < LAST_EPOCH - 2:
        pass


STATES = {"undisturbed": lambda *_: None, "lost": lose_responses, "worn": wear_out}

IN_TROUBLE = {"confluent-kafka", "java-3.9", "java-4.4", "franz-go"}
"""Clients that repeat an EndTxn after a retriable error; the others give up."""

CASES = [
    (client.name, state)
    for state in STATES
    for client in CLIENTS
    if state == "undisturbed" or client.name in IN_TROUBLE
]


@pytest.fixture(scope="module")
def swept():
    """Return a function that returns a client's result in a state."""
    home = Path(tempfile.mkdtemp(prefix="interop-", dir=fast_scratch()))

    def one(client, state) -> SweepResult | Unavailable:
        try:
            return sweep(client, "recommended", home / f"{client.name}-{state}", STATES[state])
        except Unavailable as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        started = {
            (client.name, state): pool.submit(one, client, state)
            for client in CLIENTS
            for state in STATES
            if (client.name, state) in CASES
        }
    results = {key: future.result() for key, future in started.items()}

    def of(client: str, state: str) -> SweepResult:
        result = results[client, state]
        if isinstance(result, Unavailable):
            unavailable(result)
        return result

    yield of
    shutil.rmtree(home)


@pytest.mark.parametrize(("client", "state"), CASES)
def test_a_client_commits_and_aborts_in_its_version(client, state, swept, say):
    result = swept(client, state)
    seen = result.reports.get("transaction")
    assert seen == {"seen": EXPECTED["transaction"]}, result.said
    assert result.left["transaction"] == LEFT["transaction"]
    say(f"{client}, {state}: EndTxn {sorted(result.end_versions)}, then {result.producer}")
    assert (result.end_versions == {5}) == (client in NEW)
    if client not in NEW:
        return
    assert result.producer.producer_epoch == (1 if state == "worn" else TRANSACTIONS)
    if state == "worn":
        assert result.producer.producer_id > 0, "after the last epoch of 0"


# -- kafka-transactions ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka_transactions():
    """Return a function that runs Kafka 4.3.1's kafka-transactions."""
    try:
        build(KAFKA_4)
    except Unavailable as error:
        unavailable(error)
    class_path = jars_of(BUILDS / "dump-tool")

    def run(bootstrap: str, *arguments: str) -> str:
        command = java(class_path, "org.apache.kafka.tools.TransactionsCommand")
        done = subprocess.run(
            [*command, "--bootstrap-server", bootstrap, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def hanging(producer_id: int, epoch: int, sequence: int = 0) -> bytes:
    return build_batch(
        [Record(0, 1_760_000_000_000, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(broker_config=SETTINGS) as broker:
        broker.create_topic("t", 2)
        yield broker


def test_kafka_transactions_aborts_a_hanging_transaction(broker, kafka_transactions):
    """By its first offset, and by the epochs of producer and coordinator."""
    with broker.listen() as listener:
        where = ("--topic", "t", "--partition", "0")
        log = broker.log("t")
        log.writer.append_batches(hanging(77, 3))
        assert log.last_stable_offset == 0
        kafka_transactions(listener.bootstrap, "abort", *where, "--start-offset", "0")
        assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
        log.writer.append_batches(hanging(78, 5))
        epochs = ("--producer-id", "78", "--producer-epoch", "5", "--coordinator-epoch", "0")
        kafka_transactions(listener.bootstrap, "abort", *where, *epochs)
        assert (log.last_stable_offset, log.log_end_offset) == (4, 4)
        assert list(broker.read("t", 0, isolation="read_committed")) == []


def test_kafka_transactions_shows_and_ends_transactions(broker, kafka_transactions):
    coordinator = broker.coordinator
    producer = coordinator.init_producer_id("x", 60_000)
    coordinator.add_partitions("x", producer, [TopicPartition("t", 1)], TransactionVersion.V2)
    broker.append_batches("t", hanging(*producer), partition=1)
    with broker.listen() as listener:
        listed = kafka_transactions(listener.bootstrap, "list")
        assert re.search(r"x\s+0\s+0\s+Ongoing", listed)
        described = kafka_transactions(listener.bootstrap, "describe", "--transactional-id", "x")
        assert "t-1" in described
        where = ("--topic", "t", "--partition", "1")
        shown = kafka_transactions(listener.bootstrap, "describe-producers", *where)
        assert re.search(r"(?m)^0\s+0\s", shown)
        terminate = ("forceTerminateTransaction", "--transactionalId", "x")
        kafka_transactions(listener.bootstrap, *terminate)
    assert coordinator.transactions()["x"].state.kafka_name in ("Empty", "CompleteAbort")
    assert broker.log("t", 1).last_stable_offset == 2


# -- Kafka's brokers -------------------------------------------------------------------------------


def transact(bootstrap: str, transactional_id: str, version: int, *, ends: bool) -> tuple[int, int]:
    """Write a batch in a transaction of a version of EndTxn; return the producer."""
    caller = Caller(bootstrap)
    init = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    until(lambda: caller.call("InitProducerId", 4, init).error_code == 0)
    found = caller.call("InitProducerId", 4, init)
    producer = found.producer_id, found.producer_epoch
    identity = {"producer_id": producer[0], "producer_epoch": producer[1]}
    if version < 5:
        partitions = {"name": "t", "partitions": [0]}
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [partitions],
        }
        caller.call("AddPartitionsToTxn", 3, fields)
    produced = caller.call(
        "Produce",
        12 if version >= 5 else 9,
        {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {"name": "t", "partition_data": [{"index": 0, "records": hanging(*producer)}]}
            ],
        },
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    if ends:
        fields = {**identity, "transactional_id": transactional_id, "committed": True}
        assert caller.call("EndTxn", version, fields).error_code == 0
    caller.close()
    return producer


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_kafka_continues_transactions_of_both_versions(release, scratch, say):
    """A broker takes over `__transaction_state`: complete and open transactions of both versions.

    It fences the open ones; read_committed readers then see the committed records.
    """
    try:
        kafka = RealBroker.of(release, scratch / "kafka", CONVERSATION_SETTINGS)
    except Unavailable as error:
        unavailable(error)
    with kafka:  # whose topics are in its metadata, so that it accepts the directory again
        warm_up(Side("", kafka.bootstrap))
        create = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        caller = Caller(kafka.bootstrap)
        created = caller.call("CreateTopics", 5, {"topics": [create], "timeout_ms": 10_000})
        assert created.topics[0].error_code == 0
        caller.close()
        kafka.stop()
        with our_broker(kafka.data_dir) as bootstrap:
            known = {}
            for version in (3, 5):
                for ends in (True, False):
                    name = f"{'complete' if ends else 'open'}-{version}"
                    known[name] = transact(bootstrap, name, version, ends=ends)
        kafka.start()
        newest = {}
        for name, (producer_id, epoch) in known.items():
            number, newest_epoch = transact(kafka.bootstrap, name, 3, ends=True)
            newest[name] = newest_epoch - epoch
            assert number == producer_id
        kafka.stop()
    # `transact` takes two epochs; an end with version 5 and a fence take one each.
    assert newest == {"complete-3": 2, "open-3": 3, "complete-5": 3, "open-5": 3}
    with Broker(kafka.data_dir) as ours:
        log = ours.log("t")
        assert log.last_stable_offset == log.log_end_offset
        committed = list(ours.read("t", 0, isolation="read_committed"))
        states = ours.coordinator.transactions()
    assert len(committed) == 2 + 4
    assert {states[name].state.kafka_name for name in known} == {"CompleteCommit"}
    say(f"Kafka {release.profile} continues transactions of both versions: {newest}")
