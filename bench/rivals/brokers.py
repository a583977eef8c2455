"""Brokers compared over the wire: this one, Kafka, kfake and librdkafka's mock.

Each runs in a separate process on loopback. `Unavailable` names missing requirements.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from logstore import Broker
from logstore.bench.rivals.kafka import PeerError, Unavailable, ensure_checkout

STOP_TIMEOUT_S = 60

SETTINGS: Mapping[str, str] = {
    # As in the tests: frequent cleaner checks, and groups that do not wait for members.
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Configs for brokers that accept Kafka's keys."""

_KAFKA_ALONE: Mapping[str, str] = {
    # Kafka's defaults instead of the test broker's settings.
    "auto.create.topics.enable": "true",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.roll.ms": "604800000",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.retention.check.interval.ms": "300000",
    "log.segment.delete.delay.ms": "60000",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.flush.start.offset.checkpoint.interval.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.initial.task.delay.ms": "200",
}

_MOCK = """
import sys, time
from confluent_kafka import Producer
began = time.perf_counter()
inside = Producer({"test.mock.num.brokers": 1, "log_level": 0})
(broker,) = inside.list_topics(timeout=60).brokers.values()
took_ms = (time.perf_counter() - began) * 1000
print(f"{broker.host}:{broker.port}", took_ms, sep="\\n", flush=True)
sys.stdin.read()
"""
"""A program that runs librdkafka's mock cluster, which is part of a client."""


class Serving(NamedTuple):
    """A running broker.

    Attributes
    ----------
    bootstrap : str
    pid : int
        Process id.
    inside_ms : float or None
        Start-up time within the process, if known.
    stop : callable
    """

    bootstrap: str
    pid: int
    inside_ms: float | None
    stop: Callable[[], None]


class Contestant(NamedTuple):
    """A broker that can be started repeatedly.

    Attributes
    ----------
    name : str
        Name in the result file.
    title : str
        Name in tables.
    start : callable
        Starts the broker with an empty directory, or raises `Unavailable`.
    inside : callable, optional
        Starts the broker in this process and returns the time in ms. Other brokers print that time
        if they can.
    """

    name: str
    title: str
    start: Callable[[Path], Serving]
    inside: Callable[[], float] | None = None


def contestants() -> list[Contestant]:
    """Return all brokers, this one first.

    Raises
    ------
    Unavailable
        The code that starts the other brokers is only in a checkout.
    """
    ensure_checkout()
    from tests.support.interop.foreign_clients import GO_MODULES, locked_version
    from tests.support.interop.judge import KAFKA_3, kafka_version

    kfake = locked_version(GO_MODULES["kfake"] / "go.mod", r"pkg/kfake v(\S+)")
    return [
        Contestant("logstore-memory", "kafka-logstore, in memory", _start_in_memory, _inside_ms),
        Contestant("logstore-disk", "kafka-logstore, on disk", _start_on_disk),
        Contestant("kafka", f"Kafka {kafka_version(KAFKA_3)}", _start_kafka),
        Contestant("kfake", f"kfake {kfake.rpartition('-')[2]} (franz-go)", _start_kfake),
        Contestant("mock", f"librdkafka {_librdkafka()}'s mock", _start_mock),
    ]


def _librdkafka() -> str:
    # The version of confluent-kafka without the last number.
    return version("confluent-kafka").rpartition(".")[0]


# -- this broker -------------------------------------------------------------------------------


def _start_in_memory(home: Path) -> Serving:
    return _start_logstore(home, "--memory")


def _start_on_disk(home: Path) -> Serving:
    return _start_logstore(home, "--data-dir", str(home / "data"))


def _start_logstore(home: Path, *where: str) -> Serving:
    config = home / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    command = [sys.executable, "-m", "logstore", "serve", "--listen", "127.0.0.1:0", *where]
    return _spawn([*command, "--config-file", str(config)], prints_time=False)


def _inside_ms() -> float:
    began = time.perf_counter()
    with Broker() as broker, broker.listen():
        return (time.perf_counter() - began) * 1000


# -- other brokers -----------------------------------------------------------------------------


def _start_kafka(home: Path) -> Serving:
    from tests.support.interop.judge import KAFKA_3
    from tests.support.interop.judge import Unavailable as Missing
    from tests.support.interop.real_broker import RealBroker

    try:
        broker = RealBroker.of(KAFKA_3, home, {**_KAFKA_ALONE, **SETTINGS}, options=("-Xmx1g",))
    except Missing as error:
        raise Unavailable(str(error)) from error
    broker.start()
    return Serving(broker.bootstrap, broker.pid, None, broker.kill)


def _start_kfake(home: Path) -> Serving:
    from tests.support.interop.foreign_clients import GO_MODULES, go_program
    from tests.support.interop.judge import Unavailable as Missing

    try:
        program = go_program(GO_MODULES["kfake"])
    except Missing as error:
        raise Unavailable(str(error)) from error
    pairs = [f"{key}={value}" for key, value in SETTINGS.items() if key.startswith("log.")]
    return _spawn([str(program), *pairs])


def _start_mock(home: Path) -> Serving:
    return _spawn([sys.executable, "-c", _MOCK])


def _spawn(command: list[str], *, prints_time: bool = True) -> Serving:
    """Start a program that prints its address, and possibly its start-up time in ms."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop() -> None:
        process.terminate()
        process.stdin.close()
        process.wait(timeout=STOP_TIMEOUT_S)
        process.stdout.close()

    bootstrap = process.stdout.readline().strip()
    if not bootstrap:
        status = process.wait(timeout=STOP_TIMEOUT_S)
        raise PeerError(f"{command[0]} exited with status {status}")
    inside_ms = float(process.stdout.readline()) if prints_time else None
    return Serving(bootstrap, process.pid, inside_ms, stop)
