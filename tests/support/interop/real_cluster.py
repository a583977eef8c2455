"""Three Kafka brokers and a controller, each in its own process on loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.interop.real_broker import (
    CLUSTER_ID,
    RealBroker,
    free_ports,
    kafka_4_3,
)

SIZE = 3
CONTROLLER = 100

OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
"""Options of a node's JVM."""

SESSION_TIMEOUT_MS = 4000
"""Time after which the controller fences a killed broker and elects other leaders."""

CLUSTER_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": str(SIZE),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(SIZE),
    "transaction.state.log.replication.factor": str(SIZE),
    "transaction.state.log.min.isr": "2",
}


class _Node(RealBroker):
    """A controller or a broker of the cluster."""

    def __init__(
        self,
        class_path: str,
        home: Path,
        number: int,
        controller: int,
        settings: Mapping[str, str],
        features: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(class_path, home, settings, options=OPTIONS, features=features)
        self._number = number
        self._controller = controller

    def _listening(self, client: int, controller: int) -> dict[str, str]:
        is_controller = self._number == CONTROLLER
        listener = f"PLAINTEXT://127.0.0.1:{client}"
        if is_controller:
            listener = f"CONTROLLER://127.0.0.1:{self._controller}"
        return {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(self._number),
            "listeners": listener,
            "advertised.listeners": listener,
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._controller}",
            **CLUSTER_SETTINGS,
        }

    def _format(self, path: Path) -> None:
        """Format a directory; a broker needs only its identity, which needs no JVM."""
        if self._number == CONTROLLER:
            super()._format(path)
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        identity = {"version": 1, "cluster.id": CLUSTER_ID, "node.id": self._number}
        text = "".join(f"{key}={value}\n" for key, value in identity.items())
        (self.data_dir / "meta.properties").write_text(text)


class RealCluster:
    """Three brokers of Kafka with one controller (KRaft).

    Parameters
    ----------
    home : Path
        Gets a directory for each node.
    settings : mapping
        Settings of all nodes.
    class_path : str, optional
        Of the release. [default: 4.3.1]
    racks : sequence of str
        Rack of each broker.
    features : mapping of str to int, optional
        Levels of features with which the cluster is formatted.

    Attributes
    ----------
    kills : int
    """

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str],
        class_path: str | None = None,
        *,
        racks: Sequence[str] = (),
        features: Mapping[str, int] | None = None,
    ) -> None:
        class_path = class_path or kafka_4_3()
        (port,) = free_ports(1)
        self._controller = _Node(
            class_path, home / "controller", CONTROLLER, port, settings, features
        )
        self._nodes = [
            _Node(
                class_path,
                home / f"broker-{number}",
                number,
                port,
                {**settings, "broker.rack": racks[number]} if racks else settings,
            )
            for number in range(SIZE)
        ]
        self._alive: set[int] = set()
        self.kills = 0

    def __enter__(self) -> Self:
        try:
            self._controller.launch()
            for node in self._nodes:
                node.launch()
            for number in range(SIZE):
                self.await_restarted(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all nodes."""
        for node in (*self._nodes, self._controller):
            node.kill()

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the running brokers by id."""
        return {number: self._nodes[number].bootstrap for number in sorted(self._alive)}

    def kill(self, number: int) -> None:
        """Kill a broker's process (SIGKILL)."""
        self._alive.discard(number)
        self._nodes[number].kill()
        self.kills += 1

    def freeze(self, number: int) -> None:
        """Let a broker do nothing, though it seems to run for the controller."""
        os.kill(self._nodes[number].pid, signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen broker continue."""
        os.kill(self._nodes[number].pid, signal.SIGCONT)

    def stop(self, number: int) -> None:
        """Stop a broker cleanly."""
        self._alive.discard(number)
        self._nodes[number].stop()

    def data_dir(self, number: int) -> Path:
        """Return the data directory of a broker."""
        return self._nodes[number].data_dir

    def begin_restart(self, number: int) -> None:
        """Start a killed broker on its files, without waiting for it."""
        self._nodes[number].launch()

    def await_restarted(self, number: int) -> None:
        """Wait until a starting broker serves and knows all running brokers."""
        node = self._nodes[number]
        node.await_serving()
        self._alive.add(number)
