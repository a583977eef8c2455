"""Second part of the demo: clean a directory written by Apache Kafka and compare results.

See `data/README.md` for the origin of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.broker import Broker
from logstore.names import SEGMENT_SUFFIXES
from logstore.runtime import FixedWallClock

if TYPE_CHECKING:
    from logstore.cleaner.stats import CleanerStats

DATA = Path(__file__).with_name("data") / "kafka-3.9"


class KafkaCase(NamedTuple):
    """A cleaning pass by Kafka.

    Attributes
    ----------
    version, topic : str
        Kafka version, and the single topic, which has one partition.
    config : mapping
        Topic config.
    cleaning_time_ms : int
        Kafka's clock during cleaning, which determines delete horizons.
    counters : mapping
        `CleanerStats` of Kafka's pass.
    mtimes_ms : mapping
        Modification time of each file before the cleaning pass.
    digests : mapping
        SHA-256 of every remaining segment file, by name.
    """

    version: str
    topic: str
    config: dict[str, str]
    cleaning_time_ms: int
    counters: dict[str, Any]
    mtimes_ms: dict[str, int]
    digests: dict[str, str]

    @classmethod
    def load(cls) -> KafkaCase:
        """Load the case from the package."""
        manifest = json.loads((DATA / "manifest.json").read_bytes())
        lines = (DATA / "after.sha256").read_text("ascii").splitlines()
        return cls(
            manifest["kafka_version"],
            manifest["topic"],
            manifest["config"],
            manifest["cleaning_time_ms"],
            manifest["stats"],
            manifest["before"]["mtime_ms"],
            {name: digest for digest, name in (line.split("  ") for line in lines)},
        )

    @property
    def cleaned(self) -> tuple[int, int]:
        """Number of cleaned segments, and of their files, excluding the active segment."""
        stems = [Path(name).stem for name in self.digests]
        active = max(stems)
        return len(set(stems)) - 1, sum(stem != active for stem in stems)

    def place(self, directory: Path) -> None:
        """Copy the directory as it was before cleaning, with its modification times."""
        source = DATA / "before"
        for path in sorted(file for file in source.rglob("*") if file.is_file()):
            target = directory / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)  # without the mode, which may be read-only
        for name, mtime_ms in self.mtimes_ms.items():
            mtime_ns = mtime_ms * 1_000_000
            os.utime(directory / f"{self.topic}-0" / name, ns=(mtime_ns, mtime_ns))

    def clean(self, directory: Path) -> CleanerStats:
        """Clean the directory once, at the time of Kafka's pass, and close it."""
        with Broker(directory, clock=FixedWallClock(self.cleaning_time_ms)) as broker:
            broker.create_topic(self.topic, 1, self.config)
            (stats,) = broker.clean(self.topic, force=True).cleaned
        return stats

    def problem(self, directory: Path, stats: CleanerStats) -> str | None:
        """Return the first difference from Kafka's cleaner output, or None if equal."""
        found = digests(directory)
        for name in sorted({*self.digests, *found}):
            if name not in found:
                return f"{name}: missing, but Kafka's cleaner kept it"
            if name not in self.digests:
                return f"{name}: not in the output of Kafka's cleaner"
            if found[name] != self.digests[name]:
                return f"{name}: differs from the output of Kafka's cleaner"
        for kafkas, ours in (
            ("messagesRead", stats.messages_read),
            ("messagesWritten", stats.messages_written),
            ("bytesRead", stats.bytes_read),
            ("bytesWritten", stats.bytes_written),
        ):
            if self.counters[kafkas] != ours:
                return f"{kafkas}: {ours}, but Kafka counted {self.counters[kafkas]}"
        return None


def digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every segment file, by path relative to `directory`."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.suffix in SEGMENT_SUFFIXES
    }
