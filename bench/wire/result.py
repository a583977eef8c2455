"""The result of comparing brokers: a JSON file, and Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logstore.bench.report.result import Run, read_fields
from logstore.bench.wire.conformance import CHECKS, YES

FIGURES: Mapping[str, tuple[str, str]] = {
    "start_ms": ("process start to first answer", "ms"),
    "inside_ms": ("start within a running process", "ms"),
    "produce": ("produce", "messages/s"),
    "consume": ("consume", "messages/s"),
    "produce_cpu_us": ("broker CPU time, produce", "µs/message"),
    "consume_cpu_us": ("broker CPU time, consume", "µs/message"),
    "idle_mib": ("memory after start", "MiB"),
    "peak_mib": ("peak memory", "MiB"),
    "kept_percent": ("messages that can be read back", "%"),
}
"""Title and unit of each figure. Figures are medians of the samples."""


@dataclass(frozen=True)
class Side:
    """The result of one broker.

    Attributes
    ----------
    name, title : str
    samples : dict
        Samples by key of `FIGURES`. Empty if a figure is not available.
    truths : dict
        Outcomes by key of `CHECKS`: `yes`, or the deviation.
    """

    name: str
    title: str
    samples: Mapping[str, Sequence[float]]
    truths: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Result(Run):
    """A run: the amount of data, the brokers, and why others could not run."""

    messages: int
    message_bytes: int
    rounds: int
    sides: Sequence[Side]
    missing: Mapping[str, str]

    @property
    def is_busy(self) -> bool:
        """Whether the machine had other load at the start."""
        return self.load[0] > 0.5 * self.machine["cores"]


def read_result(path: Path) -> Result:
    """Read a file written by `Result.write`. Raises the errors of `read_fields`."""
    stored = read_fields(path)
    sides = [Side(**side) for side in stored.pop("sides")]
    return Result(**stored, sides=sides)


def lines(result: Result) -> Iterator[str]:
    """Yield the lines of the tables."""
    client = result.versions["confluent-kafka"]
    yield (
        f"Measured {result.made_at[:10]} on {result.machine['processor']}, "
        f"{result.machine['cores']} cores, {result.machine['memory_gib']} GiB: "
        f"confluent-kafka {client}, in a separate process, writes {result.messages:,} messages of "
        f"{result.message_bytes} bytes to one partition and reads them. Medians of "
        f"{result.rounds} alternating rounds."
    )
    if result.is_busy:
        load = " to ".join(f"{each:.0f}" for each in result.load)
        yield f"The machine was busy (load {load}), so the times are longer than on an idle one."
    yield ""
    yield f"| | {' | '.join(side.title for side in result.sides)} |"
    yield f"|---|{'--:|' * len(result.sides)}"
    for name, (title, unit) in FIGURES.items():
        cells = [_cell(side.samples.get(name, ())) for side in result.sides]
        yield f"| {title}, {unit} | {' | '.join(cells)} |"
    yield ""
    yield f"| | {' | '.join(side.title for side in result.sides)} |"
    yield f"|---|{'---|' * len(result.sides)}"
    for name, title in CHECKS.items():
        cells = ["✓" if side.truths[name] == YES else side.truths[name] for side in result.sides]
        yield f"| {title} | {' | '.join(cells)} |"
    for title, reason in result.missing.items():
        yield f"\nWithout {title}: {reason}"


def _cell(samples: Sequence[float]) -> str:
    if not samples:
        return "–"
    median = statistics.median(samples)
    if median >= 1000:
        return f"{float(f'{median:.3g}'):,.0f}"
    return f"{median:.2g}" if median < 10 else f"{median:.0f}"
