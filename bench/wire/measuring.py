"""Measure a broker over the wire: start-up time, speed, CPU time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logstore.bench.rivals.brokers import Contestant, Serving
from logstore.bench.rivals.kafka import PeerError
from logstore.bench.rivals.processes import cpu_s, wait_for_apis


class Shape(NamedTuple):
    """The amount of data to send.

    Attributes
    ----------
    messages, message_bytes : int
        Number and size of messages per round, including the warm-up round.
    rounds : int
        Number of measured rounds.
    """

    messages: int = 500_000
    message_bytes: int = 100
    rounds: int = 3


class Runner:
    """Measures a contestant.

    Attributes
    ----------
    serving : Serving
        The running broker, after `start`.
    apis : set of int
        Keys of the APIs that it serves.
    """

    def __init__(self, contestant: Contestant, scratch: Path, shape: Shape) -> None:
        self.contestant = contestant
        self._scratch = scratch
        self._shape = shape
        self._samples: dict[str, list[float]] = defaultdict(list)
        self._idle_mib = 0.0
        self.serving: Serving
        self.apis: set[int] = set()

    def start(self) -> None:
        """Start the broker once per round, and leave the last one running.

        Raises
        ------
        Unavailable
        """
        for number in range(1, self._shape.rounds + 1):
            home = Path(tempfile.mkdtemp(dir=self._scratch))
            began = time.perf_counter()
            self.serving = self.contestant.start(home)
            self.apis = wait_for_apis(self.serving.bootstrap)
            took_ms = (time.perf_counter() - began) * 1000
            inside = self.contestant.inside
            inside_ms = self.serving.inside_ms if inside is None else inside()
            self._samples["start_ms"].append(took_ms)
            self._samples["inside_ms"] += [] if inside_ms is None else [inside_ms]
            if number < self._shape.rounds:
                self.serving.stop()
        self._idle_mib = _status_mib(self.serving.pid, "VmRSS")

    def round(self, number: int) -> None:
        """Write a topic and read it. Round 0 is the warm-up."""
        for task in ("produce", "consume"):
            before_s = cpu_s(self.serving.pid)
            answer = self._client(task, f"speed-{number}")
            spent_s = cpu_s(self.serving.pid) - before_s
            if number:
                self._samples[task].append(answer["count"] / answer["seconds"])
                self._samples[f"{task}_cpu_us"].append(spent_s / answer["count"] * 1e6)
        if number:
            self._samples["kept_percent"].append(answer["count"] / self._shape.messages * 100)

    def _client(self, task: str, topic: str) -> dict[str, float]:
        arguments: Sequence[object] = (
            self.serving.bootstrap,
            topic,
            self._shape.messages,
            self._shape.message_bytes,
        )
        done = subprocess.run(
            [sys.executable, "-m", "logstore.bench.wire.client", task, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerError(f"{self.contestant.name}, {task}: {done.stderr[-2000:]}")
        answer: dict[str, float] = json.loads(done.stdout)
        return answer

    def samples(self) -> dict[str, list[float]]:
        """Return all samples so far, by key of `result.FIGURES`."""
        peak_mib = _status_mib(self.serving.pid, "VmHWM")
        return {**self._samples, "idle_mib": [self._idle_mib], "peak_mib": [peak_mib]}


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise PeerError(f"no {name} of process {pid}")
