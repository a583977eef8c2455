"""The result of brokers side by side: its JSON file, and its tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logstore.bench.report.result import Run, read_fields
from logstore.bench.wire.truths import TRUTHS, YES

FIGURES: Mapping[str, tuple[str, str]] = {
    "start_ms": ("start of the process to the first answer", "ms"),
    "inside_ms": ("start in a running process", "ms"),
    "produce": ("produce", "messages/s"),
    "consume": ("consume", "messages/s"),
    "produce_cpu_us": ("broker's CPU time, produce", "µs/message"),
    "consume_cpu_us": ("broker's CPU time, consume", "µs/message"),
    "idle_mib": ("memory after the start", "MiB"),
    "peak_mib": ("memory at most", "MiB"),
    "kept_percent": ("messages that can be read back", "%"),
}
"""What is measured, by name: for people, and the unit. Figures are medians of the samples."""


@dataclass(frozen=True)
class Side:
    """What one broker came to.

    Attributes
    ----------
    name, title : str
    samples : dict
        By the names of `FIGURES`; empty where a figure cannot be had.
    truths : dict
        By the names of `TRUTHS`: `yes`, or what was seen instead.
    """

    name: str
    title: str
    samples: Mapping[str, Sequence[float]]
    truths: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Result(Run):
    """A run: how much was sent, the brokers, and which of them could not run and why."""

    messages: int
    message_bytes: int
    rounds: int
    sides: Sequence[Side]
    missing: Mapping[str, str]

    @property
    def is_busy(self) -> bool:
        """Whether others worked on the machine when it began."""
        return self.load[0] > 0.5 * self.machine["cores"]


def read_result(path: Path) -> Result:
    """Read a file that `Result.write` wrote; the errors of `read_fields`."""
    stored = read_fields(path)
    sides = [Side(**side) for side in stored.pop("sides")]
    return Result(**stored, sides=sides)


def lines(result: Result) -> Iterator[str]:
    """Yield the tables."""
    client = result.versions["confluent-kafka"]
    yield (
        f"Measured {result.made_at[:10]} on {result.machine['processor']}, "
        f"{result.machine['cores']} cores, {result.machine['memory_gib']} GiB: "
        f"{result.messages:,} messages of {result.message_bytes} bytes into one partition and out "
        f"of it again by confluent-kafka {client} in a process of its own, "
        f"medians of {result.rounds} rounds in turn."
    )
    if result.is_busy:
        load = " to ".join(f"{each:.0f}" for each in result.load)
        yield f"The machine did other work meanwhile (load {load}): the times are longer for it."
    yield ""
    yield f"| | {' | '.join(side.title for side in result.sides)} |"
    yield f"|---|{'--:|' * len(result.sides)}"
    for name, (title, unit) in FIGURES.items():
        cells = [_cell(side.samples.get(name, ())) for side in result.sides]
        yield f"| {title}, {unit} | {' | '.join(cells)} |"
    yield ""
    yield f"| | {' | '.join(side.title for side in result.sides)} |"
    yield f"|---|{'---|' * len(result.sides)}"
    for name, title in TRUTHS.items():
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
