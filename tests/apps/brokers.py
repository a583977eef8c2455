"""Our brokers, as processes: `logstore serve` with one broker or three, and a cluster by hand."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from tests.apps.processes import STOP_TIMEOUT_S, TIMEOUT_S, Program, write_properties

CLUSTER_SIZE = 3

# Segments are small and the cleaner is busy, so that every internal topic and every changelog is
# cleaned many times while an application uses it.
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": "32768",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.segment.bytes": "32768",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "1000",
}

CLUSTER_SETTINGS = {**SETTINGS, "default.replication.factor": "3", "min.insync.replicas": "2"}

ENVIRONMENT = {"LOGSTORE_VERIFY": "0", "LOGSTORE_KERNELS": "auto"}
"""What users have; the tests' own settings make the listener slow."""


def free_ports(count: int) -> int:
    """Return the first of some consecutive free ports.

    They are below those that the system gives to clients: a client that knocks at the port of a
    broker which is down could otherwise be given this port, and would connect to itself.
    """
    first = 20_000 + os.getpid() % 500 * 20
    for base in range(first, 32_000, count):
        if all(_is_free(base + number) for number in range(count)):
            return base
    raise OSError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Served(Program):
    """`logstore serve` with one or more brokers; all of them end together.

    Attributes
    ----------
    bootstrap : str
        The same over all starts.
    size : int
        Number of brokers.
    """

    def __init__(self, home: Path, size: int) -> None:
        port = free_ports(size)
        self._data_dir = home / "data"
        self.size = size
        self.bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(size))
        home.mkdir(parents=True, exist_ok=True)
        configs = SETTINGS if size == 1 else CLUSTER_SETTINGS
        settings = write_properties(home / "server.properties", configs)
        command = [
            *(sys.executable, "-m", "logstore", "serve", "--listen", f"127.0.0.1:{port}"),
            *("--brokers", str(size), "--no-auto-create"),
            *("--data-dir", str(self._data_dir), "--config-file", str(settings)),
        ]
        super().__init__(command, home / "serve.out", ENVIRONMENT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start the brokers, and return once they serve."""
        super().start()
        self.wait_for("127.0.0.1:")

    def check(self) -> None:
        """Stop the brokers in good order, and let `logstore check` verify every log."""
        super().stop()
        self.stops -= 1
        check_logs(self._data_dir)

    def endings(self) -> Iterator[str]:
        """Kill the brokers and start them again; yield after each step, for work to go on."""
        self.kill()
        self.start()
        yield "killed"

    def restarts(self) -> Iterator[str]:
        """Stop the brokers in good order and start them again; yield as `endings` does."""
        self.stop()
        self.start()
        yield "stopped"


class OneByOne:
    """A cluster of three in a process of its own, whose brokers end one by one.

    Attributes
    ----------
    bootstrap : str
    stops, kills : int
        Of single brokers.
    """

    size = CLUSTER_SIZE

    def __init__(self, home: Path) -> None:
        self._home = home
        self.bootstrap = ""
        self.stops = self.kills = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        arguments = (str(self._home / "data"), str(free_ports(self.size)))
        with (self._home / "cluster.out").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.apps.cluster", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **ENVIRONMENT},
            )
        self.bootstrap = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_S)

    def ensure_running(self) -> None:
        """Raise AssertionError if the process of the cluster ended."""
        assert self._process.poll() is None, self.describe()

    def describe(self) -> str:
        """Return the end of the cluster's log output."""
        path = self._home / "cluster.out"
        return f"{path}:\n{path.read_text(errors='replace')[-3000:]}"

    def check(self) -> None:
        """Stop the cluster in good order, and let `logstore check` verify every log."""
        self._process.stdin.close()
        assert self._process.wait(timeout=STOP_TIMEOUT_S) == 0, self.describe()
        check_logs(self._home / "data")

    def endings(self) -> Iterator[str]:
        """Kill one broker after the other; yield while one is down, and when all are in sync."""
        for broker in range(self.size):
            self.kills += 1
            self._tell(f"kill {broker}")
            yield f"{broker} killed"
            self._tell(f"restart {broker}")
            yield f"{broker} in sync"

    def restarts(self) -> Iterator[str]:
        """Stop one broker after the other in good order; yield as `endings` does."""
        for broker in range(self.size):
            self.stops += 1
            self._tell(f"stop {broker}")
            yield f"{broker} stopped"
            self._tell(f"restart {broker}")
            yield f"{broker} in sync"

    def kill_coordinator(self, state: str, group: str) -> tuple[list[str], str]:
        """Kill a coordinator in a state (`traps.STATES`); return the broker and details."""
        details, *brokers = self._ask(f"trap {state} {group}").split()
        assert brokers, self.describe()
        self.kills += len(brokers) + details.endswith("after-kill")
        return brokers, details

    def restart(self, brokers: Sequence[str]) -> None:
        """Start all brokers that are down, and wait until they are in sync."""
        self._tell(" ".join(["restart", *brokers]))

    def transaction_states(self) -> set[str]:
        """Return the states of all transactions."""
        return set(self._ask("transactions").split())

    def _tell(self, command: str) -> None:
        assert self._ask(command) == "done", self.describe()

    def _ask(self, command: str) -> str:
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        assert ready, f"no answer: {self.describe()}"
        return self._process.stdout.readline().strip()


def check_logs(data_dir: Path) -> None:
    """Verify each log of a broker, or of a cluster and its coordinators, with `logstore check`."""
    folders = [*sorted(data_dir.glob("broker-*")), *data_dir.glob("coordinator")]
    for folder in folders or [data_dir]:
        done = subprocess.run(
            [sys.executable, "-m", "logstore", "check", "--data-dir", str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, **ENVIRONMENT},
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def one_broker(home: Path) -> Served:
    """`logstore serve`."""
    return Served(home, 1)


def three_brokers(home: Path) -> Served:
    """`logstore serve --brokers 3`."""
    return Served(home, CLUSTER_SIZE)


LAYOUTS = {"one broker": one_broker, "three brokers": three_brokers, "one by one": OneByOne}
