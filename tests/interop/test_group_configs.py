"""Configurations of groups: kafka-configs, and the same changes on a running Kafka 4.3.1."""

import re
import subprocess
import time

import pytest

from logstore import Broker, Cluster
from logstore.messages import to_json
from tests.interop.conftest import unavailable
from tests.support.interop.caller import Caller
from tests.support.interop.judge import Unavailable
from tests.support.interop.real_broker import GROUP_FEATURES, RealBroker, java, kafka_4_3

pytestmark = pytest.mark.interop

GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)

CHANGES = (
    ("g", SESSION, SET, "50000"),
    ("g", SESSION, SET, " 51000 "),
    ("g", SESSION, SET, "44999"),
    ("g", SESSION, SET, "60001"),
    ("g", SESSION, SET, "-1"),
    ("g", SESSION, SET, "x"),
    ("g", SESSION, SET, ""),
    ("g", SESSION, SET, None),
    ("g", SESSION, APPEND, "50000"),
    ("g", HEARTBEAT, SET, "4999"),
    ("g", HEARTBEAT, SET, "15001"),
    ("g", HEARTBEAT, SET, "6000"),
    ("g", ASSIGNMENT, SET, "-1"),
    ("g", ASSIGNMENT, SET, "15001"),
    ("g", ASSIGNMENT, SET, "0"),
    ("g", "no.such.key", SET, "1"),
    ("g", "no.such.key", DELETE, None),
    ("g", SESSION, DELETE, None),
    ("", SESSION, SET, "50000"),
    ("zweité", SESSION, SET, "50000"),
)


@pytest.fixture(scope="module")
def class_path():
    try:
        return kafka_4_3()
    except Unavailable as error:
        unavailable(error)


def changed(caller, group, key, operation, value):
    """Change a configuration of a group; return the error."""
    config = {"name": key, "config_operation": operation, "value": value}
    resource = {"resource_type": GROUP, "resource_name": group, "configs": [config]}
    (altered,) = caller.call("IncrementalAlterConfigs", 1, {"resources": [resource]}).responses
    return altered.error_code


def described(caller, group):
    """Return the error of DescribeConfigs and the values that the group sets."""
    asked = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
    request = {"resources": [asked], "include_synonyms": True}
    (result,) = to_json(caller.call("DescribeConfigs", 4, request), 4)["results"]
    rows = {each["name"]: each for each in result["configs"] if each["name"] in KEYS}
    return result["errorCode"], rows


KEYS = {SESSION, HEARTBEAT, ASSIGNMENT}


@pytest.mark.parametrize("brokers", (1, 2))
def test_changes_are_answered_as_kafka_answers_them(class_path, tmp_path, brokers):
    opened = Broker() if brokers == 1 else Cluster(brokers)
    theirs = RealBroker(class_path, tmp_path / "kafka", features=GROUP_FEATURES)
    with theirs, opened as ours, ours.listen() as listening:
        listeners = [listening] if brokers == 1 else list(listening.values())
        kafka = Caller(theirs.bootstrap)
        callers = [Caller(each.bootstrap) for each in listeners]
        for number, change in enumerate(CHANGES):
            expected = changed(kafka, *change)
            ours_of = callers[number % brokers]
            assert changed(ours_of, *change) == expected, change
            wanted = described(ours_of, change[0])
            deadline = time.monotonic() + 10  # Kafka's broker learns of a change after its answer
            while described(kafka, change[0]) != wanted and time.monotonic() < deadline:
                time.sleep(0.05)
            assert wanted == described(kafka, change[0]), change
        for caller in (kafka, *callers):
            caller.close()


def test_kafka_configs_configures_a_group(class_path):
    def run(*arguments):
        command = java(class_path, "kafka.admin.ConfigCommand")
        done = subprocess.run(
            [*command, "--bootstrap-server", listener.bootstrap, "--group", "g", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(re.findall(r"(?m)^  (\S+)=(\d+) sensitive=false", done.stdout))

    with Broker() as broker, broker.listen() as listener:
        run("--alter", "--add-config", f"{SESSION}=50000,{HEARTBEAT}=6000")
        assert run("--describe") == {SESSION: "50000", HEARTBEAT: "6000"}
        run("--alter", "--delete-config", SESSION)
        assert run("--describe") == {HEARTBEAT: "6000"}
        described = run("--describe", "--all")
        assert described == {SESSION: "45000", HEARTBEAT: "6000", ASSIGNMENT: "1000"}
