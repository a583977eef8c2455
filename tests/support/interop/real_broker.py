"""A whole Kafka broker in its own process: one node, KRaft, on loopback.

While the judge (`judge`) drives Kafka's classes one by one, this is a complete broker: it has group
and transaction coordinators, a cleaner, retention, and periodic checkpoints.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.interop.judge import BUILDS, KAFKA_4, Release, build, jars_of

GROUP_FEATURES = {"group.version": 1, "share.version": 0, "streams.version": 0}
"""Kafka 4.3's groups of both protocols, without share groups and streams groups."""

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60

OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
"""Options of a JVM that starts quickly and stays small."""

# Everything that a broker does now and then, it does here several times a second.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "900000",
    "log.roll.ms": "400",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "100",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.initial.task.delay.ms": "200",
}


class RealBroker:
    """A broker over a data directory; a new directory is formatted.

    Parameters
    ----------
    class_path : str
        Kafka and its dependencies.
    home : Path
        Gets `data`, the log directory, next to settings and the broker's output.
    settings : mapping, optional
        Laid over those that this module gives.
    options : sequence of str
        Of its JVM.
    features : mapping of str to int, optional
        Levels of features with which a new directory is formatted.
    """

    def __init__(
        self,
        class_path: str,
        home: Path,
        settings: Mapping[str, str] | None = None,
        *,
        options: Sequence[str] = OPTIONS,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self._options = options
        self._features = features or {}
        self._class_path = class_path
        self.home = home
        self.data_dir = home / "data"
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    @classmethod
    def of(
        cls,
        release: Release,
        home: Path,
        settings: Mapping[str, str] | None = None,
        *,
        options: Sequence[str] = OPTIONS,
    ) -> Self:
        """Return a broker of a release, built if need be.

        Raises
        ------
        Unavailable
        """
        return cls(class_path(release), home, settings, options=options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return once it serves."""
        self.launch()
        self.await_serving()

    def launch(self) -> None:
        """Start its process on free ports."""
        self.home.mkdir(parents=True, exist_ok=True)
        client, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{client}"
        settings = {
            **SETTINGS,
            **self._listening(client, controller),
            "log.dirs": str(self.data_dir),
            **self._settings,
        }
        path = self.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data_dir / "meta.properties").exists():
            self._format(path)
        with (self.home / "output").open("ab") as output:
            self._process = subprocess.Popen(
                java(self._class_path, "kafka.Kafka", str(path), options=self._options),
                stdout=output,
                stderr=output,
                cwd=self.home,
            )

    def _listening(self, client: int, controller: int) -> dict[str, str]:
        """Return the settings of its listeners and of its controller."""
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        }

    def _format(self, path: Path) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(path)]
        for name, level in self._features.items():
            arguments += ["--feature", f"{name}={level}"]
        done = subprocess.run(
            java(self._class_path, "kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def await_serving(self) -> None:
        """Wait until it accepts connections."""
        port = int(self.bootstrap.rpartition(":")[2])
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            code = self._running().poll()
            assert code is None, f"the broker ended with {code}: {self.tail()}"
            with socket.socket() as client:
                client.settimeout(1)
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"the broker does not serve: {self.tail()}")

    def tail(self) -> str:
        """Return the end of its output."""
        return (self.home / "output").read_text(errors="replace")[-2000:]

    def traffic(self, seed: int, rounds: int, *, kill_after: int | None = None) -> None:
        """Let clients run some rounds on it; see `JavaClients`.

        With `kill_after` the broker and the clients are killed after so many rounds, during the
        next one.
        """
        with JavaClients(self._class_path, self.home, self.bootstrap, seed, rounds) as clients:
            for done in clients.rounds():
                if done == kill_after:
                    self.kill()
                    return
            clients.ensure_content(self.tail())

    def stop(self) -> None:
        """Stop it cleanly."""
        process = self._running()
        process.terminate()
        process.wait(timeout=STOP_TIMEOUT_S)
        self._process = None
        assert (self.data_dir / ".kafka_cleanshutdown").exists(), self.tail()

    def kill(self) -> None:
        """End it as a crash of the process does, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=STOP_TIMEOUT_S)
            self._process = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process


class JavaClients:
    """Kafka's Java clients in their own process, running on any broker; see `Traffic.java`.

    Parameters
    ----------
    class_path : str
        Of the release whose clients they are.
    home : Path
        Gets their output.
    bootstrap : str
    seed, rounds : int
    """

    def __init__(self, class_path: str, home: Path, bootstrap: str, seed: int, rounds: int) -> None:
        self._errors = home / "clients"
        arguments = (bootstrap, str(seed), str(rounds))
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                java(class_path, "broker.Traffic", *arguments),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_S)
        self._process.stdout.close()

    def rounds(self) -> Iterator[int]:
        """Yield the number of each round, from 1 on, when it is over."""
        for number, _ in enumerate(self._process.stdout, 1):
            yield number

    def ensure_content(self, broker_said: str = "") -> None:
        """Check that they ended without an error."""
        code = self._process.wait(timeout=STOP_TIMEOUT_S)
        reply = self._errors.read_text(errors="replace")[-2000:]
        assert code == 0, reply + broker_said


def class_path(release: Release) -> str:
    """Return the class path of a release, built if need be; raises `Unavailable`."""
    command = build(release)
    return command[command.index("-cp") + 1]


def kafka_4_3() -> str:
    """Return the class path of Kafka 4.3.1 with its tools; raises `Unavailable`."""
    build(KAFKA_4)
    return jars_of(BUILDS / "dump-tool")


def java(
    class_path: str, main: str, *arguments: str, options: Sequence[str] = OPTIONS
) -> list[str]:
    """Return the command that runs one of Kafka's programs, or one of the judge's."""
    return ["java", *options, "-cp", class_path, main, *arguments]


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
