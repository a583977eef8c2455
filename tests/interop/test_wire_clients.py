"""Third-party clients on the listener, and Kafka's check of the directory afterwards."""

from __future__ import annotations

import pytest

from logstore import Broker
from logstore.inspect.check import INFO, CheckCounts, Checker
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.security.authorizer import Authorizer
from tests.interop.conftest import unavailable
from tests.interop.conversations import our_broker
from tests.support.interop import foreign_suite
from tests.support.interop.judge import RELEASES, Unavailable
from tests.support.interop.real_broker import JavaClients, RealBroker, class_path

pytestmark = pytest.mark.interop

FIXTURE_SETTINGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of the broker that kafka-python's fixtures start."""

KNOWN_TO_FAIL = {
    "test_kafka_version_infer": "it expects 4.0, but the APIs are those of 4.2",
}
"""Tests of kafka-python's suite that cannot pass, and why."""


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_javas_clients_work_on_it_and_kafka_takes_the_directory_over(release, scratch, say):
    """Producers of every codec, transactions, groups, deletions; then Kafka itself continues."""
    try:
        kafka = RealBroker.of(release, scratch / "kafka")
    except Unavailable as error:
        unavailable(error)
    # A directory formatted by Kafka, so that Kafka accepts it again.
    with kafka:
        kafka.traffic(seed=5, rounds=2)
        kafka.stop()
        with (
            our_broker(kafka.data_dir) as bootstrap,
            JavaClients(class_path(release), scratch, bootstrap, seed=6, rounds=8) as clients,
        ):
            assert len(list(clients.rounds())) == 8
            clients.ensure_content()
        findings = list(
            Checker(ReadOnlyFileSystem(DiskFileSystem()), CheckCounts()).path(str(kafka.data_dir))
        )
        assert [each for each in findings if each.severity != INFO] == []
        with Broker(kafka.data_dir, read_only=True) as ours:
            kept = {each.offset: each.value for each in ours.read("plain", 0)}
        assert kept
        kafka.start()
        kafka.traffic(seed=7, rounds=2)
        kafka.stop()
        with Broker(kafka.data_dir, read_only=True) as ours:
            after = {each.offset: each.value for each in ours.read("plain", 0)}
    still = {offset: value for offset, value in after.items() if offset in kept}
    assert still.items() <= kept.items()
    assert max(after) > max(kept)
    say(f"Java {release.profile}: 8 rounds of clients, then Kafka served the directory")


@pytest.mark.timeout(900)
def test_kafka_pythons_own_integration_tests_pass(scratch, say):
    # As the broker of its fixtures: topics are created automatically, ACLs can be written.
    authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    with (
        Broker(scratch / "data", broker_config=FIXTURE_SETTINGS) as broker,
        broker.listen(authorizer=authorizer) as listener,
    ):
        try:
            outcomes = foreign_suite.run(listener.bootstrap, scratch / "report.xml")
        except Unavailable as error:
            unavailable(error)
        # A consumer of 3.0.12 forgets a subscription made while its first metadata request is in
        # flight (`ClusterMetadata.update_metadata`), and then receives nothing: 3 of 75 consumers.
        for name in failures(outcomes) - set(KNOWN_TO_FAIL):
            say(f"kafka-python: {name} failed, and is run again")
            test = name.partition("[")[0]
            outcomes |= foreign_suite.run(listener.bootstrap, scratch / f"{test}.xml", test)
    failed = failures(outcomes)
    passed = [name for name, state in outcomes.items() if state == "passed"]
    log = (scratch / "report.log").read_text(errors="replace")[-4000:]
    assert failed == set(KNOWN_TO_FAIL), log
    assert len(passed) > 40, log
    skipped = {name: state for name, state in outcomes.items() if state.startswith("skipped")}
    say(f"kafka-python {foreign_suite.VERSION}: {len(passed)} passed, skipped by itself: {skipped}")


def failures(outcomes):
    return {name.partition("::")[2] for name, state in outcomes.items() if state == "failed"}
