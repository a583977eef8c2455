"""How a run of the harness is to be made, and the peers that it has at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logstore.bench.micro.logs import MIB
from logstore.bench.report.result import Line
from logstore.bench.rivals.kafka import KafkaPeer, PeerError, Unavailable

DEFAULT_BYTES = 256 * MIB
"""Of a log: large enough for the map and the files to leave the caches."""


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass
class Setting:
    """How a run is to be made.

    Attributes
    ----------
    scratch : Path
        Where logs are made: on the disk that is to be measured.
    total_bytes : int
        Of each log, where the line does not say.
    repeats, warmups : int
        Samples, and runs before them that do not count.
    has_peers : bool
        Whether others than this engine are measured.
    say : callable
        Told what is being done.
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
        """Samples of what takes little time: at least five, if there are several at all."""
        return self.repeats if self.repeats == 1 else max(5, self.repeats)

    def share_of(self, count: int) -> int:
        """Return how many of `count` things to do where logs are smaller than by default."""
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
        """The peer's name, or why there is none."""
        if self._kafka is None:
            return self._why_not
        return f"Kafka {self._kafka.versions['kafka']}"

    @property
    def kafka_versions(self) -> dict[str, str]:
        """Versions of Kafka and of its JVM, if it ran."""
        return {} if self._kafka is None else self._kafka.versions

    def close(self) -> None:
        """Let peers end."""
        if self._kafka is not None:
            self._kafka.close()


class Job(NamedTuple):
    """Something that measures lines.

    Attributes
    ----------
    names : tuple of str
        Of the lines that it yields, in order.
    is_quick : bool
        Whether it belongs to `make bench` too, not only to `make bench-full`.
    run : callable
        Measures and yields them.
    """

    names: tuple[str, ...]
    is_quick: bool
    run: Callable[[Setting], Iterable[Line]]
