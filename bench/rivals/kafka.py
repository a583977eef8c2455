"""Kafka's own cleaner and offset map, on a JVM that lives through a whole benchmark.

`Peer.java` beside this file is compiled against the classes that judge this engine in
`tests/interop`; so the peer needs a checkout, a JDK and Maven. Without them `Unavailable` says
what is missing, and results have no peer instead of another one.
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
"""More than the largest map and both buffers; a collector with little to do is not measured."""


class Unavailable(Exception):
    """Kafka's classes cannot run here; the message says what is missing."""


class PeerError(Exception):
    """Kafka's classes threw something."""


def ensure_checkout() -> None:
    """Let what builds and starts others be imported from a checkout's `tests`.

    Raises
    ------
    Unavailable
    """
    if not (ROOT / "tests" / "interop" / "pom.xml").is_file():
        raise Unavailable("Kafka's classes are built from a checkout's tests/interop")
    if str(ROOT) not in sys.path:  # tests are no part of an installation
        sys.path.append(str(ROOT))


def judge_command() -> list[str]:
    """Build the judge of `tests/interop`, if need be; return the command that starts it.

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
    """Return the class path of Kafka 3.9 and of what opens its logs.

    Raises
    ------
    Unavailable
    """
    command = judge_command()
    return command[command.index("-cp") + 1]


class KafkaPeer:
    """A running `Peer`.

    Attributes
    ----------
    versions : dict of str to str
        Of Kafka, of Java and the name of its machine.
    is_warm : bool
        Whether somebody had it clean until all of it was compiled.
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
                "-XX:-UseDynamicNumberOfCompilerThreads",  # none ends and takes its time with it
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
        """Clean a partition below its active segment with Kafka; return time and statistics."""
        answer = self._ask(
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
        """Put keys into Kafka's map and look them up; return ns of each part."""
        return self._ask(command="map", puts=str(puts), absent=str(absent), map_bytes=map_bytes)

    def filter(self, logs: Sequence[Path], now_ms: int, map_bytes: int) -> dict[str, Any]:
        """Have Kafka's classes map segments and filter them in memory; return ns of each part."""
        paths = [str(path) for path in logs]
        return self._ask(command="filter", paths=paths, now=now_ms, map_bytes=map_bytes)

    def _ask(self, **request: Any) -> dict[str, Any]:
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
