"""Kafka's command line tools on three brokers of Kafka 4.3.1 and on three of ours.

The output and the exit code of each line are equal, except for a closed list of differences.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.interop.command_lines import DIFFERENCES, FILES, LINES
from tests.interop.conftest import unavailable
from tests.support.interop.judge import Unavailable
from tests.support.interop.tools import Tools
from tests.support.interop.two_clusters import KafkaCluster, OurCluster
from tests.support.world.workload_commands import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.cleaner.enable": "false",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.segment.delete.delay.ms": "60000",
    "unclean.leader.election.enable": "false",
    "log.roll.ms": "604800000",
    "log.retention.check.interval.ms": "300000",
}

SETTLING_S = 1.5

MADE_UP = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bid: \d+ rack: \w+", "NODE"),
    (r"(?i)topicid: \S+", "TopicId: ID"),
    (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
    (r"\b\d{2,4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[:,.]\d+", "TIME"),
    (r"\b1[5-9]\d{11}\b", "MS"),
    (r"\b\d+\.\d+\b", "N"),
    (r"(console-consumer|consumer-\w+-\d+|[\w.-]+)-[0-9a-f]{8}-[0-9a-f-]{27}", "MEMBER"),
    (r"console-consumer-\d+", "console-consumer-N"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"(?m)^ClusterId: .*", "ClusterId: ID"),
    (r"\x1b\[[0-9;]*m", ""),
    (r"[ \t]+", " "),
    (r'"log_dirs":\[[^]]*\]', '"log_dirs":[DIRS]'),
    (r"ADDRESS \(\d\)", "ADDRESS (BROKER)"),
    (r"(?m)^(\d) N\.N \d+", r"\1 HOST PORT"),
    (r"(?m)^\d+ (0 -1 \d+ MS)", r"PRODUCER \1"),
)
"""Values that each side generates, and their replacement."""


def normalized(output):
    """Return a result without generated values, stack traces and the order of lines."""
    text = f"{output.out}\n{output.errors}"
    for pattern, name in MADE_UP:
        text = re.sub(pattern, name, text)
    # Kafka lists the in-sync replicas in another order after a reassignment.
    text = re.sub(r"Isr: (\S+)", lambda isr: "Isr: " + "".join(sorted(isr[1])), text)
    # A set of Java's, whose order differs between processes.
    text = re.sub(
        r"(Valid states are: )(.*)", lambda m: m[1] + ", ".join(sorted(m[2].split(", "))), text
    )
    lines = [each.strip() for each in text.splitlines()]
    kept = (each for each in lines if each and not re.match(r"at \S+\(|\.\.\. \d+ more", each))
    return output.code, sorted(kept)


def result_of(line, home, side):
    """Return the result of a command line on one side, its tools and the addresses."""
    tools, addresses = side
    return normalized(tools.run(line.text, ",".join(addresses.values()), home, line.stdin))


def test_command_lines_have_the_same_output(scratch, say):
    home = scratch / "files"
    home.mkdir()
    for name, text in FILES.items():
        (home / name).write_text(text)
    found = {}
    try:
        for_kafka, for_ours = Tools(), Tools()
        kafka = KafkaCluster(scratch / "kafka", SETTINGS)
    except Unavailable as error:
        unavailable(error)
    with (
        for_kafka,
        for_ours,
        kafka,
        OurCluster(scratch / "ours", SETTINGS) as ours,
        ThreadPoolExecutor(2) as threads,
    ):
        sides = ((for_kafka, kafka.addresses()), (for_ours, ours.addresses()))
        for line in LINES:
            results = list(threads.map(partial(result_of, line, home), sides))
            if results[0] != results[1]:
                found[line.text] = results
            if line.settles:
                time.sleep(SETTLING_S)
    say(f"{len(LINES)} command lines, {len(found)} with differences")
    unexpected = {text: results for text, results in found.items() if text not in DIFFERENCES}
    assert not unexpected, "\n\n".join(
        f"{text}\n  Kafka: {kafka}\n  ours:  {ours}" for text, (kafka, ours) in unexpected.items()
    )
    assert set(DIFFERENCES) <= set(found), "some differences no longer exist"


def test_command_lines_of_the_page_succeed(scratch):
    page = (ROOT / "docs" / "TOOLS.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ (kafka-.*)$", page, re.MULTILINE)
    assert len(lines) > 5
    try:
        tools = Tools()
    except Unavailable as error:
        unavailable(error)
    with tools, OurCluster(scratch, SETTINGS) as ours:
        for line in lines:
            text = line.replace("127.0.0.1:9092", "{b}")
            output = tools.run(text, ours.addresses()[0], scratch)
            assert output.code == 0, output
