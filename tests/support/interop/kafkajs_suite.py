"""Tests of KafkaJS, from a checkout, against a cluster of three brokers.

    python -m tests.support.interop.kafkajs_suite ../kafkajs
    python -m tests.support.interop.kafkajs_suite ../kafkajs src/consumer

The checkout must be installed (`npm install --ignore-scripts`). The tests run on a copy whose
addresses are those of three listeners of the cluster: plain text, TLS, and TLS with SASL. Further
arguments are passed to jest. Exits with 0 if all tests pass except `FAILING`; otherwise prints the
others and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from logstore import Authorizer, Cluster
from logstore.security.sasl import Credentials
from logstore.security.scram import ScramCredential
from logstore.security.tls import generate_tls
from tests.support.interop.foreign_suite import print_outcomes
from tests.support.interop.judge import BUILDS, Unavailable

HOST = "127.0.0.1"
BROKERS = 3
VERSION = "2.4"
"""The newest release whose features the tests distinguish."""

OLDER = "expects a response that Kafka 4.3.1 does not send either"
PENDING = (
    "joins with rebalance timeout 0, so that the coordinator may remove the member before it sends"
    " SyncGroup; Kafka 4.3.1 does, but not in every run"
)
FAILING = {
    "Broker > ListOffsets v0 request": OLDER,
    "Broker > OffsetCommit request": PENDING,
    "Broker > OffsetCommit request with metadata": PENDING,
    "Broker > OffsetFetch request": PENDING,
    "Broker > Heartbeat request": PENDING,
    "Consumer recovers from offset out of range": PENDING,
    "Broker > TxnOffsetCommit ignores invalid transaction fields": OLDER,
    "Broker > describeConfigs request": OLDER,
    "Broker > describeConfigs request without config names returns all config entries": OLDER,
    "Broker > alterPartitionReassignments request": "expects a move that may have ended",
    "Protocol > Requests > Produce > v2 request with gzip": "bytes of Node.js's zlib",
}
"""Tests that are run and may fail, and why."""

SETTINGS = {
    "num.partitions": "2",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
}
USERS = {"test": "testtest", "bob": "bobbob", "alice": "alicealice"}
SCRAM_USER = "testscram"
SCRAM = {"SCRAM-SHA-256": "testtestscram=256", "SCRAM-SHA-512": "testtestscram=512"}
"""The user whose password differs between mechanisms."""

ADD_PARTITIONS = """#!/bin/sh
exec node -e '
const { Kafka } = require("./index.js")
const admin = new Kafka({ brokers: ["BROKER"], logLevel: 0 }).admin()
const topicPartitions = [{ topic: process.env.TOPIC, count: Number(process.env.PARTITIONS) }]
admin.connect().then(() => admin.createPartitions({ topicPartitions })).then(admin.disconnect)'
"""
"""Replacement of a script that runs Kafka's tool in a container."""

PORTS = (("9092", "9095", "9098"), ("9093", "9096", "9099"), ("9094", "9097", "9100"))
"""Ports in the checkout, for each listener."""

PLACES = (
    "testHelpers/index.js",
    "src/admin/__tests__/createAcls.spec.js",
    *(
        f"src/broker/__tests__/{name}.spec.js"
        for name in ("connect", "findGroupCoordinator", "metadata")
    ),
)
"""Files with addresses."""


def _credentials() -> Credentials:
    credentials = Credentials(USERS)
    for mechanism, password in SCRAM.items():
        credential = ScramCredential.of_password(mechanism, password, os.urandom(16))
        credentials.set_scram(mechanism, SCRAM_USER, credential)
    return credentials


def _copied(checkout: Path, ports: Sequence[Sequence[int]], ca_pem: bytes) -> Path:
    """Return a copy of the checkout with the addresses of the listeners."""
    if not (checkout / "node_modules").is_dir():
        raise Unavailable(f"{checkout} is not a checkout of KafkaJS that is installed")
    folder = BUILDS / "kafkajs"
    shutil.rmtree(folder, ignore_errors=True)
    left_out = shutil.ignore_patterns("node_modules", ".git", "website")
    shutil.copytree(checkout, folder, ignore=left_out)
    (folder / "node_modules").symlink_to(checkout / "node_modules")
    for name in PLACES:
        path = folder / name
        text = path.read_text(encoding="utf-8").replace("'localhost'", f"'{HOST}'")
        for known, served in zip(PORTS, ports, strict=True):
            for old, new in zip(known, served, strict=True):
                text = text.replace(f":{old}`", f":{new}`").replace(f"port: {old}", f"port: {new}")
        path.write_text(text, encoding="utf-8")
    (folder / "testHelpers" / "certs" / "cert-signed").write_bytes(ca_pem)
    script = ADD_PARTITIONS.replace("BROKER", f"{HOST}:{ports[0][0]}")
    (folder / "scripts" / "addPartitions.sh").write_text(script)
    return folder


def run(checkout: Path, arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Run the tests; return the name and outcome of each: passed, failed or pending.

    Raises
    ------
    Unavailable
        There is no Node.js, or the checkout is not installed.
    """
    if shutil.which("npx") is None:
        raise Unavailable("not on the PATH: npx")
    everybody = Authorizer(allow_everyone_if_no_acl_found=True)  # its tests create ACLs
    tls = generate_tls(HOST)
    with Cluster(BROKERS, broker_config=SETTINGS, background=True) as cluster:
        listeners = (
            cluster.listen(authorizer=everybody),
            cluster.listen(authorizer=everybody, tls=tls.context),
            cluster.listen(authorizer=everybody, tls=tls.context, sasl=_credentials()),
        )
        ports = [[each[broker].port for broker in range(BROKERS)] for each in listeners]
        folder = _copied(checkout, ports, tls.ca_pem)
        report, log = BUILDS / "kafkajs-report.json", BUILDS / "kafkajs.log"
        options = ("--ci", "--maxWorkers=2", "--no-watchman", "--forceExit", "--json")
        with log.open("wb") as output:
            subprocess.run(
                ["npx", "jest", *options, f"--outputFile={report}", *arguments],
                cwd=folder,
                env=os.environ | {"KAFKA_VERSION": VERSION, "NODE_ENV": "test"},
                stdout=output,
                stderr=output,
                check=False,
            )
    suites = json.loads(report.read_text(encoding="utf-8"))["testResults"]
    return [
        (each["fullName"], each["status"]) for suite in suites for each in suite["assertionResults"]
    ]


def main() -> int:
    """Run the tests, and print the outcome of each that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of KafkaJS, installed")
    given, arguments = parser.parse_known_args()
    BUILDS.mkdir(exist_ok=True)
    try:
        outcomes = run(given.checkout.resolve(), arguments)
    except Unavailable as error:
        print(error)
        return 1
    print_outcomes(sorted(outcomes), FAILING)
    return int(any(state == "failed" for test, state in outcomes if test not in FAILING))


if __name__ == "__main__":
    sys.exit(main())
