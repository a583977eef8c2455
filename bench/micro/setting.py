"""Settings of a harness run: sizes, repeats and available peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logstore.bench.measuring import Run, Sample, run_interleaved
from logstore.bench.micro.logs import MIB
from logstore.bench.report.result import Line
from logstore.bench.rivals.kafka import KafkaPeer, PeerError, Unavailable

DEFAULT_BYTES = 256 * MIB
"""Default log size. Its map and files exceed the CPU caches."""


def _silent(text: str) -> None:
    """Discard a message."""


@dataclass
class Setting:
    """Settings of a run.

    Attributes
    ----------
    scratch : Path
        Directory for logs, on the disk to measure.
    total_bytes : int
        Default size of a log.
    repeats, warmups : int
        Number of samples, and of preceding warm-up runs.
    has_peers : bool
        Whether to measure peers too.
    report : callable
        Receives progress messages.
    """

    scratch: Path
    total_bytes: int = DEFAULT_BYTES
    repeats: int = 3
    warmups: int = 2
    has_peers: bool = True
    report: Callable[[str], None] = _silent
    _kafka: KafkaPeer | None = field(default=None, repr=False)
    _why_not: str = ""

    @property
    def short_repeats(self) -> int:
        """Number of samples for short work: at least five, unless `repeats` is 1."""
        return self.repeats if self.repeats == 1 else max(5, self.repeats)

    def share_of(self, count: int) -> int:
        """Scale `count` down, to at least 100, if logs are smaller than the default."""
        return max(100, min(count, count * self.total_bytes // DEFAULT_BYTES))

    def samples(self, run: Run) -> list[Sample]:
        """Measure short work without a peer."""
        runs = {"here": run}
        return run_interleaved(runs, repeats=self.short_repeats, warmups=self.warmups)["here"]

    def kafka(self) -> KafkaPeer | None:
        """Return Kafka's classes, started on the first call, or None if they cannot run."""
        if not self.has_peers:
            self._why_not = "peers were excluded"
        if self._kafka is None and not self._why_not:
            self.report("starting Kafka's classes on a JVM")
            try:
                self._kafka = KafkaPeer()
            except (Unavailable, PeerError) as error:
                self._why_not = f"Kafka's classes did not run: {error}"
        return self._kafka

    @property
    def kafka_name(self) -> str:
        """Name of the peer, or the reason why it did not run."""
        if self._kafka is None:
            return self._why_not
        return f"Kafka {self._kafka.versions['kafka']}"

    @property
    def kafka_versions(self) -> dict[str, str]:
        """Versions of Kafka and its JVM, or empty if it did not run."""
        return {} if self._kafka is None else self._kafka.versions

    def close(self) -> None:
        """Stop the peers."""
        if self._kafka is not None:
            self._kafka.close()


class Job(NamedTuple):
    """A measurement that yields one or several lines.

    Attributes
    ----------
    names : tuple of str
        Names of its lines, in order.
    is_quick : bool
        Whether `make bench` includes it. `make bench-full` includes all jobs.
    run : callable
        Measures the lines and yields them.
    """

    names: tuple[str, ...]
    is_quick: bool
    run: Callable[[Setting], Iterable[Line]]
