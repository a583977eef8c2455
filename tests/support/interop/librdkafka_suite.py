"""Tests of librdkafka, from a checkout, against a listener, with the consumer group protocol.

    python -m tests.support.interop.librdkafka_suite ../librdkafka
    python -m tests.support.interop.librdkafka_suite ../librdkafka --protocol classic 0022 0102
    python -m tests.support.interop.librdkafka_suite ../librdkafka --kafka 0022  # on Kafka 4.3.1
    python -m tests.support.interop.librdkafka_suite ../librdkafka --brokers 3

The checkout must be built (`./configure && make && make -C tests build`). Each test runs in a
process of its own, so that one that hangs or aborts does not hide the others. Exits with 0 if all
pass except `LEFT_OUT`; otherwise prints the others and exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from logstore import Authorizer, Broker, Cluster
from tests.support.interop.foreign_suite import print_outcomes
from tests.support.interop.judge import BUILDS, Unavailable, fast_scratch
from tests.support.interop.kafka_serve import suite_broker

TEST_TIMEOUT_S = 600
BROKER_VERSION = "4.3.1"
"""The release whose features the tests may expect."""

GROUPS = ("0014", "0018", "0019", "0022", "0026", "0029", "0030", "0033", "0045", "0049", "0050")
GROUPS += ("0051", "0056", "0061", "0069", "0099", "0102", "0106", "0112", "0113", "0116", "0118")
GROUPS += ("0122", "0137", "0140")
"""Tests of consumers in groups, which `TEST_CONSUMER_GROUP_PROTOCOL` changes."""

LEFT_OUT = {
    "0113": "its cases of the classic protocol ask for assignors, and run for a quarter of an hour",
}
"""Tests that are not run, and why."""

SETTINGS = {
    "num.partitions": "4",  # of the topics that the tests create by producing to them
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "100",
}


@contextlib.contextmanager
def _served(*, is_kafka: bool, brokers: int) -> Iterator[str]:
    """Serve the suite; yield the address."""
    if is_kafka:
        home = tempfile.TemporaryDirectory(dir=fast_scratch())
        with home as path, suite_broker(Path(path), SETTINGS) as kafka:
            yield kafka.bootstrap
        return
    everybody = Authorizer(allow_everyone_if_no_acl_found=True)  # its tests create ACLs
    if brokers > 1:
        settings = SETTINGS | {"default.replication.factor": "3"}  # as `logstore serve` sets it
        with Cluster(brokers, broker_config=settings, background=True) as cluster:
            yield cluster.listen(authorizer=everybody).bootstrap
        return
    broker = Broker(broker_config=SETTINGS, background=True)
    with broker, broker.listen(authorizer=everybody) as listener:
        yield listener.bootstrap


def run(
    checkout: Path,
    protocol: str,
    tests: Iterable[str],
    *,
    is_kafka: bool = False,
    brokers: int = 1,
) -> dict[str, str]:
    """Run tests; return the outcome of each: passed, skipped, failed or timed out.

    Parameters
    ----------
    is_kafka : bool
        Whether to run them on Kafka 4.3.1 instead.
    brokers : int
        Number of our brokers.

    Raises
    ------
    Unavailable
        The checkout is not built.
    """
    folder = checkout / "tests"
    if not (folder / "test-runner").is_file():
        raise Unavailable(f"{folder} has no test-runner: build the checkout first")
    logs = BUILDS / f"librdkafka-{protocol}{'-kafka' if is_kafka else f'-{brokers}'}"
    logs.mkdir(parents=True, exist_ok=True)
    with _served(is_kafka=is_kafka, brokers=brokers) as bootstrap:
        (folder / "test.conf").write_text(
            f"bootstrap.servers={bootstrap}\ntest.topic.random=true\ntest.timeout.multiplier=3\n"
        )
        environment = os.environ | {
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            "BROKERS": bootstrap,  # for `kafka-topics.sh` in $KAFKA_PATH, which some tests run
            "LD_LIBRARY_PATH": f"{checkout / 'src'}:{checkout / 'src-cpp'}",
        }
        return {test: _run(folder, test, environment, logs / f"{test}.log") for test in tests}


def _run(folder: Path, test: str, environment: dict[str, str], log: Path) -> str:
    command = ["./test-runner", "-p1"]
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment | {"TESTS": test},
                stdout=output,
                stderr=output,
                timeout=TEST_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
    text = log.read_text(errors="replace")
    if done.returncode:
        return "failed"
    return "passed" if re.search(rf"{test}_\S+\s*\|.*PASSED", text) else "skipped"


def main() -> int:
    """Run the tests, and print the outcome of each that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of librdkafka, built")
    parser.add_argument("tests", nargs="*", help="numbers of tests [default: tests of groups]")
    parser.add_argument("--protocol", choices=("consumer", "classic"), default="consumer")
    parser.add_argument("--kafka", action="store_true", help="run them on Kafka 4.3.1")
    parser.add_argument("--brokers", type=int, default=1, help="number of our brokers")
    given = parser.parse_intermixed_args()
    wanted = given.tests or [test for test in GROUPS if test not in LEFT_OUT]
    try:
        outcomes = run(
            given.checkout.resolve(),
            given.protocol,
            wanted,
            is_kafka=given.kafka,
            brokers=given.brokers,
        )
    except Unavailable as error:
        print(error)
        return 1
    for test, reason in LEFT_OUT.items():
        if not given.tests:
            print(f"left out  {test}: {reason}")
    print_outcomes(outcomes.items())
    return int(not {"failed", "timed out"}.isdisjoint(outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
