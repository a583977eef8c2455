"""Brokers that the same client can work on: this one, Kafka, kfake and librdkafka's mock.

Each runs in a process of its own, on loopback. What one needs that this machine lacks is told by
`Unavailable`.
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
    # A cleaner that looks often, and groups that do not wait for members: what tests set as well.
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Configuration of all that know Kafka's keys."""

_KAFKA_ALONE: Mapping[str, str] = {
    # The tests' broker does now and then what a broker does; here it has Kafka's own defaults.
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
"""Program of librdkafka's mock cluster: it lives in a client, and ends with it."""


class Serving(NamedTuple):
    """A broker that serves.

    Attributes
    ----------
    bootstrap : str
    pid : int
        Of its process.
    inside_ms : float or None
        What the start took within a running process, where it can be had so.
    stop : callable
    """

    bootstrap: str
    pid: int
    inside_ms: float | None
    stop: Callable[[], None]


class Contestant(NamedTuple):
    """A broker that can be started, any number of times.

    Attributes
    ----------
    name : str
        As in the result's file.
    title : str
        For people.
    start : callable
        Given an empty folder; raises `Unavailable`.
    inside : callable, optional
        Starts it in this process and returns after how many ms it serves. The others tell it
        themselves, if they can.
    """

    name: str
    title: str
    start: Callable[[Path], Serving]
    inside: Callable[[], float] | None = None


def contestants() -> list[Contestant]:
    """Return all, this one first.

    Raises
    ------
    Unavailable
        There is no checkout, which has what starts the others.
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
    # Its own version is that of the client, but for the last digit.
    return version("confluent-kafka").rpartition(".")[0]


# -- this one ----------------------------------------------------------------------------------


def _start_in_memory(home: Path) -> Serving:
    return _start_logstore(home, "--memory")


def _start_on_disk(home: Path) -> Serving:
    return _start_logstore(home, "--data-dir", str(home / "data"))


def _start_logstore(home: Path, *where: str) -> Serving:
    config = home / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    command = [sys.executable, "-m", "logstore", "serve", "--listen", "127.0.0.1:0", *where]
    return _spawned([*command, "--config-file", str(config)], tells_time=False)


def _inside_ms() -> float:
    began = time.perf_counter()
    with Broker() as broker, broker.listen():
        return (time.perf_counter() - began) * 1000


# -- the others --------------------------------------------------------------------------------


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
    return _spawned([str(program), *pairs])


def _start_mock(home: Path) -> Serving:
    return _spawned([sys.executable, "-c", _MOCK])


def _spawned(command: list[str], *, tells_time: bool = True) -> Serving:
    """Start a program that prints its address, and what its start took inside, if it does."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop() -> None:
        process.terminate()
        process.stdin.close()
        process.wait(timeout=STOP_TIMEOUT_S)
        process.stdout.close()

    bootstrap = process.stdout.readline().strip()
    if not bootstrap:
        raise PeerError(f"{command[0]} ended with {process.wait(timeout=STOP_TIMEOUT_S)}")
    inside_ms = float(process.stdout.readline()) if tells_time else None
    return Serving(bootstrap, process.pid, inside_ms, stop)
