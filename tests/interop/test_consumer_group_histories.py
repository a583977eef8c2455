"""Random histories of consumer groups with both protocols, compared with a running Kafka 4.3.1.

20 histories for each run and 500 in the long profile; `consumer_groups` describes them.
"""

import os

import pytest

from tests.interop.conftest import unavailable
from tests.interop.consumer_groups import (
    COVERED,
    NAMES,
    OurBroker,
    OurCluster,
    kafka_broker,
    run_histories,
)
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

SEEDS = range(20)
CLUSTER_SEEDS = {"memory": range(2000, 2010), "disk": range(2010, 2020)}
LONG_SEEDS = range(1000, 1000 + int(os.environ.get("LOGSTORE_HISTORIES", "500")))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        broker = kafka_broker(tmp_path_factory.mktemp("kafka"))
    except Unavailable as error:
        unavailable(error)
    with broker:
        yield broker


def compare(kafka, brokers, seeds, say):
    with brokers as ours:
        tally, closed = run_histories(kafka.bootstrap, ours, seeds)
    say(f"{tally}\nparted as the closed list has it: {dict(closed.used)}")
    return tally


def test_groups_are_answered_as_kafka_answers_them(kafka, scratch, say):
    tally = compare(kafka, OurBroker(scratch / "ours"), SEEDS, say)
    assert tally.histories == tally.eventful == len(SEEDS)


@pytest.mark.parametrize("storage", CLUSTER_SEEDS)
def test_a_killed_coordinator_changes_nothing(kafka, scratch, storage, say):
    """The coordinator of a cluster is killed in the middle of reconciliations."""
    seeds = CLUSTER_SEEDS[storage]
    cluster = OurCluster(scratch / "ours" if storage == "disk" else None)
    tally = compare(kafka, cluster, seeds, say)
    assert tally.events["coordinator killed"] >= len(seeds) == tally.histories


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_five_hundred_histories_of_groups(kafka, scratch, say):
    """Every version and every error of the protocol is covered."""
    tally = compare(kafka, OurBroker(scratch / "ours"), LONG_SEEDS, say)
    assert tally.histories == tally.eventful == len(LONG_SEEDS)
    assert {NAMES[code] for code in tally.errors} >= set(COVERED)
    for api, last in (("ConsumerGroupHeartbeat", 1), ("ConsumerGroupDescribe", 1)):
        assert {version for name, version in tally.versions if name == api} == {*range(last + 1)}
    for api in ("OffsetCommit", "OffsetFetch"):
        assert {9, 10} <= {version for name, version in tally.versions if name == api}
