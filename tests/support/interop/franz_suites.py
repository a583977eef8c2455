"""Tests of franz-go, from a checkout, against `logstore serve`.

    python -m tests.support.interop.franz_suites kgo ../franz-go
    python -m tests.support.interop.franz_suites kafka-tests ../franz-go -run 848
    python -m tests.support.interop.franz_suites kgo ../franz-go --kafka  # on Kafka 4.3.1

`kgo` runs the client's integration tests against one broker; their variants named `848` use the
consumer group protocol. `kafka-tests` runs kfake's ports of Kafka's client tests; each starts a
broker through a package that replaces kfake's; on Kafka, this is one broker of any number.
Further arguments are passed to `go test`.
Exits with 0 if all tests pass except `LEFT_OUT`; otherwise prints the others and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.interop.foreign_suite import GO_OUTCOMES, print_outcomes
from tests.support.interop.judge import BUILDS, Unavailable

STAND_IN = Path(__file__).parents[2] / "interop" / "kfake"
TESTS_TIMEOUT = "40m"

KGO_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "5",
}
"""Settings of the broker, as kfake's: quick heartbeats."""

KGO_ENVIRONMENT = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000", "KGO_TEST_UNSAFE": "1"}
"""A broker has one replica; the default of 500,000 records takes an hour on two cores."""

LEFT_OUT = {
    "Test848FencedEpochRecovery": "replaces a response inside kfake",
    "Test848SessionTimeout": "replaces responses inside kfake",
}
"""Tests of kfake that are not run, and why."""


def run_kgo(checkout: Path, arguments: list[str], module: str) -> dict[str, str]:
    """Run the tests of the client on a module's broker; return the outcome of each test."""
    with _Served(BUILDS / "kgo", KGO_SETTINGS, module) as bootstrap:
        environment = {**KGO_ENVIRONMENT, "KGO_SEEDS": bootstrap}
        return _go_test(_checked(checkout, "pkg/kgo"), arguments, environment)


def run_kafka_tests(checkout: Path, arguments: list[str], module: str) -> dict[str, str]:
    """Run kfake's ports of Kafka's tests on a module's brokers; return the outcome of each test."""
    folder = BUILDS / "kafka-tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_checked(checkout, "pkg/kfake/kafka_tests"), folder / "kafka_tests")
    shutil.copytree(STAND_IN, folder / "kfake")
    shutil.move(folder / "kfake" / "tests.mod", folder / "go.mod")
    tidy = ["go", "mod", "tidy"]
    done = subprocess.run(tidy, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"Go's modules cannot be fetched: {done.stderr.strip()[-300:]}")
    command = folder / "serve"
    root = Path(__file__).parents[3]
    command.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -m {module} "$@"\n')
    command.chmod(0o755)
    skipped = ["-skip", "|".join(f"^{name}$" for name in LEFT_OUT)]
    environment = {"LOGSTORE": str(command)}
    return _go_test(folder / "kafka_tests", [*skipped, *arguments], environment)


class _Served:
    """A broker in its own process, with its address."""

    def __init__(self, home: Path, settings: Mapping[str, str], module: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        path = home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [
            *(sys.executable, "-m", module, "--config-file", str(path)),
            *("serve", "--memory", "--listen", "127.0.0.1:0"),
        ]
        self._output = home / "broker.log"

    def __enter__(self) -> str:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=output, text=True
            )
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def _checked(checkout: Path, part: str) -> Path:
    if shutil.which("go") is None:
        raise Unavailable("not on the PATH: go")
    folder = checkout / part
    if not folder.is_dir():
        raise Unavailable(f"{checkout} is not a checkout of franz-go with {part}")
    return folder


def _go_test(folder: Path, arguments: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the outcome of each test: passed, failed or skipped."""
    command = ["go", "test", "-json", "-count=1", f"-timeout={TESTS_TIMEOUT}", "-v", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    log = BUILDS / f"{folder.name}.log"
    outcomes, lines = {}, []
    for line in done.stdout.splitlines():
        event = json.loads(line)
        lines.append(event.get("Output", ""))
        if "Test" in event and event["Action"] in GO_OUTCOMES:
            outcomes[event["Test"]] = GO_OUTCOMES[event["Action"]]
    log.write_text("".join(lines) + done.stderr)
    if not outcomes:
        raise Unavailable(f"go test ran nothing: {done.stderr.strip()[-500:] or lines[-5:]}")
    return outcomes


def main() -> int:
    """Run a suite, and print the tests that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=("kgo", "kafka-tests"))
    parser.add_argument("checkout", type=Path, help="folder of franz-go")
    parser.add_argument("--kafka", action="store_true", help="run it on Kafka 4.3.1")
    given, arguments = parser.parse_known_args()
    BUILDS.mkdir(exist_ok=True)
    run = {"kgo": run_kgo, "kafka-tests": run_kafka_tests}[given.suite]
    try:
        module = "tests.support.interop.kafka_serve" if given.kafka else "logstore"
        outcomes = run(given.checkout.resolve(), arguments, module)
    except Unavailable as error:
        print(error)
        return 1
    print_outcomes(sorted(outcomes.items()))
    return int("failed" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
