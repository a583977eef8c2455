"""Kafka's cleaner and offset map, on a JVM that runs during the whole benchmark.

`Peer.java` in this directory is compiled against classes built by `tests/interop`, so the peer
needs a checkout, a JDK and Maven. If one is missing, `Unavailable` names it and results have no
peer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from logstore.bench.measuring import Sample
from logstore.types import TopicPartition

SOURCE = Path(__file__).with_name("Peer.java")
ROOT = SOURCE.resolve().parents[2]

HEAP = "3g"
"""Larger than the largest map plus both buffers, so that garbage collection is negligible."""


class Unavailable(Exception):
    """Kafka's classes cannot run here. The message names the missing requirement."""


class PeerError(Exception):
    """Kafka's classes threw an exception."""


def ensure_checkout() -> None:
    """Make the `tests` of the checkout importable, which build and start the peers.

    Raises
    ------
    Unavailable
    """
    if not (ROOT / "tests" / "interop" / "pom.xml").is_file():
        raise Unavailable("Kafka's classes are built from a checkout's tests/interop")
    if str(ROOT) not in sys.path:  # tests are not installed
        sys.path.append(str(ROOT))


def judge_command() -> list[str]:
    """Build the judge of `tests/interop` if necessary, and return its command.

    Raises
    ------
    Unavailable
    """
    ensure_checkout()
    from tests.support.interop import KAFKA_3, build
    from tests.support.interop import Unavailable as JudgeUnavailable

    try:
        return build(KAFKA_3)
    except JudgeUnavailable as error:
        raise Unavailable(str(error)) from error


def class_path() -> str:
    """Return the class path of Kafka 3.9 and of the judge, which opens its logs.

    Raises
    ------
    Unavailable
    """
    command = judge_command()
    return command[command.index("-cp") + 1]


class KafkaPeer:
    """A running `Peer` process.

    Attributes
    ----------
    versions : dict of str to str
        Versions of Kafka and Java, and the name of the JVM.
    is_warm : bool
        Whether it has been warmed up, so that the JVM has compiled it.
    """

    def __init__(self) -> None:
        classes = class_path()
        self._scratch = tempfile.mkdtemp(prefix="logstore-bench-peer-")
        compiled = subprocess.run(
            ["javac", "-cp", classes, "-d", self._scratch, str(SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode:
            shutil.rmtree(self._scratch)
            raise PeerError(compiled.stderr)
        self._process = subprocess.Popen(
            [
                "java",
                "-XX:+UseSerialGC",
                "-XX:-UseDynamicNumberOfCompilerThreads",  # keeps the CPU time of compiler threads
                f"-Xms{HEAP}",
                f"-Xmx{HEAP}",
                "-cp",
                f"{self._scratch}:{classes}",
                "Peer",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()
        self.is_warm = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(timeout=60)
        self._process.stdout.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def clean(
        self,
        data_dir: Path,
        topic_partition: TopicPartition,
        config: Mapping[str, str],
        now_ms: int,
        map_bytes: int,
    ) -> tuple[Sample, dict[str, Any]]:
        """Clean a partition below its active segment with Kafka. Return time and statistics."""
        answer = self._call(
            command="clean",
            data_dir=str(data_dir),
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            config=dict(config),
            now=now_ms,
            map_bytes=map_bytes,
        )
        return Sample(answer["cpu_ns"] / 1e9, answer["wall_ns"] / 1e9), answer

    def map(self, puts: Path, absent: Path, map_bytes: int) -> dict[str, Any]:
        """Put keys into Kafka's map and look them up. Return the time of each part in ns."""
        return self._call(command="map", puts=str(puts), absent=str(absent), map_bytes=map_bytes)

    def filter(self, logs: Sequence[Path], now_ms: int, map_bytes: int) -> dict[str, Any]:
        """Map and filter segments in memory with Kafka. Return the time of each part in ns."""
        paths = [str(path) for path in logs]
        return self._call(command="filter", paths=paths, now=now_ms, map_bytes=map_bytes)

    def _call(self, **request: Any) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"Kafka's process ended with status {self._process.wait(timeout=60)}")
        answer: dict[str, Any] = json.loads(line)
        return answer
