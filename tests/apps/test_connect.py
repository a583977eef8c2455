"""Kafka Connect, distributed: a file goes to a topic exactly once, and from there to another file.

The worker keeps its state in three compacted topics. It is stopped and killed, and so are the
brokers; each time lines are appended meanwhile. The topic must have each line once and in order.
The file of the sink may have lines twice after a kill (a sink delivers at least once), but must not
lack one.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.apps.brokers import LAYOUTS, free_ports
from tests.apps.processes import TIMEOUT_S, JavaProgram, wait_for
from tests.apps.traffic import Reader, committed_of, order

pytestmark = [pytest.mark.apps, pytest.mark.timeout(900)]

INTERNAL = {"config": "worker-configs", "offset": "worker-offsets", "status": "worker-status"}
LINES = 400
"""Lines that each step appends."""

SETTINGS = {
    "group.id": "worker",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    **{f"{kind}.storage.topic": topic for kind, topic in INTERNAL.items()},
    **{f"{kind}.storage.replication.factor": "-1" for kind in INTERNAL},
    **{f"{kind}.storage.segment.bytes": "4096" for kind in INTERNAL},
    "offset.storage.partitions": "2",
    "status.storage.partitions": "2",
    "exactly.once.source.support": "enabled",
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "reconnect.backoff.max.ms": "500",
}


class Worker(JavaProgram):
    """A worker of Connect, and its REST interface."""

    def __init__(self, class_path: str, home: Path, bootstrap: str) -> None:
        self._url = f"http://127.0.0.1:{free_ports(1)}"
        settings = {**SETTINGS, "bootstrap.servers": bootstrap, "listeners": self._url}
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(class_path, main, home, "worker", settings)

    def start(self) -> None:
        """Start the worker, and return once it answers."""
        super().start()
        wait_for(self._answers, "the worker's REST interface")

    def _answers(self) -> bool:
        self.ensure_running()
        return isinstance(self.ask("GET", "/connectors"), list)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer, or None while the worker cannot give one."""
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409, 500, 503):  # it starts, or rebalances
                return None
            raise AssertionError(error.read()) from error
        except OSError:
            return None

    def run_connector(self, name: str, config: dict[str, str]) -> None:
        """Create a connector, and wait until its task runs."""
        wait_for(lambda: self.ask("PUT", f"/connectors/{name}/config", config), f"{name} accepted")
        self.await_running(name)

    def await_running(self, name: str) -> None:
        """Wait until a connector's task runs."""

        def runs() -> bool:
            self.ensure_running()
            status = self.ask("GET", f"/connectors/{name}/status")
            tasks = [] if status is None else status["tasks"]
            assert not any(task["state"] == "FAILED" for task in tasks), tasks
            return [task["state"] for task in tasks] == ["RUNNING"]

        wait_for(runs, f"{name} running")


@pytest.mark.parametrize("layout", ("one broker", "three brokers"))
def test_each_line_is_in_the_topic_once_and_reaches_the_sink(
    layout, apps, classes, figures, tmp_path
):
    row = figures("Connect", layout)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines: list[str] = []

    def append() -> None:
        new = [f"{number} {order(number).item}" for number in range(len(lines), len(lines) + LINES)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in new)
        lines.extend(new)

    def sunk() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    with (
        LAYOUTS[layout](tmp_path / "brokers") as brokers,
        Worker(classes, tmp_path, brokers.bootstrap) as worker,
    ):

        def await_sink() -> None:
            def is_complete() -> bool:
                brokers.ensure_running()
                worker.ensure_running()
                return set(sunk()) == set(lines)

            wait_for(is_complete, f"{len(lines)} lines in the sink")

        append()
        worker.start()
        worker.run_connector(
            "source",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(source),
                "topic": "lines",
                "topic.creation.default.partitions": "1",
                "topic.creation.default.replication.factor": "-1",
            },
        )
        worker.run_connector(
            "sink",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(sink),
                "topics": "lines",
                "consumer.override.isolation.level": "read_committed",
                "consumer.override.auto.offset.reset": "earliest",
                "consumer.override.session.timeout.ms": "6000",
            },
        )
        await_sink()
        worker.stop()
        append()
        worker.start()
        await_sink()
        assert sunk() == lines, "a worker that is stopped in good order commits first"
        append()
        worker.kill()
        append()
        worker.start()
        await_sink()
        append()
        for _ in brokers.endings():
            append()
            await_sink()
        for _ in brokers.restarts():
            append()
            await_sink()
        worker.await_running("source")
        position = source.stat().st_size
        wait_for(lambda: _position(worker) == position, "the offset of the source")
        worker.stop()

        with Reader(brokers.bootstrap, ["lines"]) as reader:
            reader.finish()
            found = [message.value().decode() for message in reader.messages]
            end = reader.messages[-1].offset() + 1
        row.records_in, row.records_out = len(lines), len(sunk())
        row.restarts, row.kills = worker.stops - 1, worker.kills
        row.broker_restarts, row.broker_kills = brokers.stops, brokers.kills
        row.compare("topic", dict(enumerate(lines)), dict(enumerate(found)))
        row.compare("sink", dict.fromkeys(lines, True), dict.fromkeys(sunk(), True))
        committed = committed_of(brokers.bootstrap, "connect-sink")
        assert committed["lines", 0] >= end
        assert _policies(brokers.bootstrap) == dict.fromkeys(INTERNAL.values(), "compact")
        brokers.check()
        twice = sum(count - 1 for count in Counter(sunk()).values())
        row.result = f"equal; {twice} lines twice in the sink"


def _position(worker: Worker) -> int:
    answer = worker.ask("GET", "/connectors/source/offsets")
    return -1 if not answer else answer["offsets"][0]["offset"]["position"]


def _policies(bootstrap: str) -> dict[str, str]:
    """Return `cleanup.policy` of the worker's own topics."""
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in INTERNAL.values()]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # lives until it has its answers
    answers = admin.describe_configs(asked)
    return {
        each.name: done.result(TIMEOUT_S)["cleanup.policy"].value for each, done in answers.items()
    }
