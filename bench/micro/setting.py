"""Setting of a run of the harness: sizes, repeats, and the peers at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logstore.bench.micro.logs import MIB
from logstore.bench.report.result import Line
from logstore.bench.rivals.kafka import KafkaPeer, PeerError, Unavailable

DEFAULT_BYTES = 256 * MIB
"""Default size of a log: too large for its map and files to stay in the caches."""


def _silent(text: str) -> None:
    """Discard a message."""


@dataclass
class Setting:
    """Setting of a run.

    Attributes
    ----------
    scratch : Path
        Folder for logs, on the disk to be measured.
    total_bytes : int
        Default size of a log.
    repeats, warmups : int
        Number of samples, and of the runs before them that do not count.
    has_peers : bool
        Whether peers are measured too.
    say : callable
        Receives messages about progress.
    """

    scratch: Path
    total_bytes: int = DEFAULT_BYTES
    repeats: int = 3
    warmups: int = 2
    has_peers: bool = True
    say: Callable[[str], None] = _silent
    _kafka: KafkaPeer | None = field(default=None, repr=False)
    _why_not: str = ""

    @property
    def short_repeats(self) -> int:
        """Number of samples of short work: at least five, unless `repeats` is 1."""
        return self.repeats if self.repeats == 1 else max(5, self.repeats)

    def share_of(self, count: int) -> int:
        """Return `count` reduced as the logs are below their default size; at least 100."""
        return max(100, min(count, count * self.total_bytes // DEFAULT_BYTES))

    def kafka(self) -> KafkaPeer | None:
        """Return Kafka's classes, started when first asked for; None where they cannot run."""
        if not self.has_peers:
            self._why_not = "peers were left out"
        if self._kafka is None and not self._why_not:
            self.say("starting Kafka's classes on a JVM")
            try:
                self._kafka = KafkaPeer()
            except (Unavailable, PeerError) as error:
                self._why_not = f"Kafka's classes did not run: {error}"
        return self._kafka

    @property
    def kafka_name(self) -> str:
        """The peer's name, or the reason for its absence."""
        if self._kafka is None:
            return self._why_not
        return f"Kafka {self._kafka.versions['kafka']}"

    @property
    def kafka_versions(self) -> dict[str, str]:
        """Versions of Kafka and of its JVM, if it ran."""
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
        Whether it belongs to `make bench` too, not only to `make bench-full`.
    run : callable
        Measures the lines and yields them.
    """

    names: tuple[str, ...]
    is_quick: bool
    run: Callable[[Setting], Iterable[Line]]
