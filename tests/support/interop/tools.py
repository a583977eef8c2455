"""Kafka's command line tools of 4.3.1, run one after the other in one Java process."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.interop.judge import PROJECT
from tests.support.interop.real_broker import OPTIONS, kafka_4_3

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""The classes that Kafka's scripts start."""


class Output(NamedTuple):
    """The result of a command line; code -1 means that it did not end in time."""

    code: int
    out: str
    errors: str


class Tools:
    """The Java process.

    Raises
    ------
    Unavailable
    """

    def __init__(self) -> None:
        program = str(PROJECT / "tools" / "Tools.java")
        self._process = subprocess.Popen(
            ["java", *OPTIONS, "-cp", kafka_4_3(), program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def run(self, line: str, bootstrap: str, home: Path, stdin: str = "") -> Output:
        """Run a command line.

        Parameters
        ----------
        line : str
            `{b}` is the bootstrap address, `{home}` a directory with files.
        home : Path
        """
        tool, *arguments = shlex.split(line)
        asked = {
            "tool": TOOLS[tool],
            "arguments": [
                each.replace("{b}", bootstrap).replace("{home}", str(home)) for each in arguments
            ],
            "input": stdin,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Output(answer["code"], answer["out"], answer["errors"])
