"""The result of a benchmark: lines with all samples, stored as JSON.

The file format has version 1. All plots and comparisons use it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from logstore.bench.report.goals import GOALS, Goal

SCHEMA_VERSION = 1

MISSED, REACHED, STRETCH, UNJUDGED = "missed", "reached", "stretch", "unjudged"
"""Verdicts on a line. It is unjudged if it has no goal, or if the peer is missing."""


@dataclass(frozen=True)
class Figures:
    """Samples of a contestant in the unit of the line.

    Attributes
    ----------
    judged : list of float
        Figures by CPU time, or by wall time if the line uses wall time.
    wall : list of float
        Figures by wall time, possibly empty.
    """

    judged: list[float]
    wall: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the judged samples."""
        return statistics.median(self.judged)

    @property
    def spread(self) -> float:
        """Difference between maximum and minimum, relative to the median."""
        return (max(self.judged) - min(self.judged)) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Line:
    """A line of the result: a measurement of this engine and possibly a peer.

    Attributes
    ----------
    name : str
        `group/name`, as in the goals.
    title : str
        Description for readers.
    unit : str
        Unit of the figures, such as `MB/s` or `ns/record`.
    higher_is_better : bool
        True for speeds, False for costs.
    here : Figures
        Figures of this engine.
    peer : Figures, optional
        Figures of the peer in the same run.
    peer_name : str
        Name of the peer, or the reason why there is none.
    facts : dict
        Other facts, such as sizes, fractions, and the number of identical bytes.
    """

    name: str
    title: str
    unit: str
    higher_is_better: bool
    here: Figures
    peer: Figures | None = None
    peer_name: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Part of the name before the slash."""
        return self.name.partition("/")[0]

    @property
    def ratio(self) -> float | None:
        """Ratio of the medians of this engine and the peer. Above 1 is better than the peer."""
        if self.peer is None or not self.here.median or not self.peer.median:
            return None
        ratio = self.here.median / self.peer.median
        return ratio if self.higher_is_better else 1 / ratio

    @property
    def wall_ratio(self) -> float | None:
        """The same ratio for wall time."""
        if self.peer is None or not self.peer.wall or not self.here.wall:
            return None
        ratio = statistics.median(self.here.wall) / statistics.median(self.peer.wall)
        return ratio if self.higher_is_better else 1 / ratio

    @property
    def goal(self) -> Goal | None:
        """Goal of the line, if any."""
        return GOALS.get(self.name)

    @property
    def verdict(self) -> str:
        """MISSED, REACHED, STRETCH or UNJUDGED."""
        if self.goal is None:
            return UNJUDGED
        value = self.ratio if self.goal.is_ratio else self.here.median
        if value is None:
            return UNJUDGED
        # Round, so that the samples and the five digits in the file give the same verdict.
        value = float(f"{value:.4g}")
        higher = self.goal.is_ratio or self.higher_is_better
        if _reaches(value, self.goal.stretch, higher_is_better=higher):
            return STRETCH
        return REACHED if _reaches(value, self.goal.least, higher_is_better=higher) else MISSED

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON, with samples and derived values."""
        goal = self.goal
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "here": _figures_json(self.here),
            "peer": None if self.peer is None else _figures_json(self.peer),
            "peer_name": self.peer_name,
            "ratio": _rounded(self.ratio),
            "wall_ratio": _rounded(self.wall_ratio),
            "goal": None if goal is None else asdict(goal),
            "verdict": self.verdict,
            "facts": self.facts,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Line:
        """Build a line from JSON. Derived values are computed again."""
        return cls(
            name=stored["name"],
            title=stored["title"],
            unit=stored["unit"],
            higher_is_better=stored["higher_is_better"],
            here=_figures(stored["here"]),
            peer=None if stored["peer"] is None else _figures(stored["peer"]),
            peer_name=stored["peer_name"],
            facts=stored["facts"],
        )


def _reaches(value: float, goal: float | None, *, higher_is_better: bool) -> bool:
    if goal is None:
        return False
    return value >= goal if higher_is_better else value <= goal


def _figures_json(figures: Figures) -> dict[str, Any]:
    return {
        "median": _rounded(figures.median),
        "spread": _rounded(figures.spread),
        "judged": [_rounded(each) for each in figures.judged],
        "wall": [_rounded(each) for each in figures.wall],
    }


def _figures(stored: dict[str, Any]) -> Figures:
    return Figures(stored["judged"], stored["wall"])


def _rounded(value: float | None) -> float | None:
    """Round to five digits. More would be noise."""
    return None if value is None else float(f"{value:.5g}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Time, machine and versions of a benchmark run, and its file format.

    Attributes
    ----------
    machine, versions : dict
        The machine, and package versions.
    load : list of float
        Load averages before and after the run, which show a busy machine.
    """

    made_at: str
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, str]
    load: list[float]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of the file."""
        return {"schema": SCHEMA_VERSION, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


def read_fields(path: Path) -> dict[str, Any]:
    """Read the fields of a file written by `Run.write`, without its version.

    Raises
    ------
    ValueError
        The file has another version or is not valid JSON.
    """
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (schema := stored.pop("schema", None)) != SCHEMA_VERSION:
        raise ValueError(f"the result has schema {schema}, expected {SCHEMA_VERSION}")
    return stored


@dataclass(frozen=True, kw_only=True)
class Result(Run):
    """A run of the harness.

    Attributes
    ----------
    kind : str
        Set of lines: `quick`, `full`, or `part` for selected lines.
    """

    kind: str
    lines: Sequence[Line]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of the file."""
        return {
            "schema": SCHEMA_VERSION,
            "made_at": self.made_at,
            "kind": self.kind,
            "seconds": self.seconds,
            "machine": self.machine,
            "versions": self.versions,
            "load": self.load,
            "lines": [line.as_json() for line in self.lines],
        }


def read_result(path: Path) -> Result:
    """Read a file written by `Result.write`. Raises the errors of `read_fields`."""
    stored = read_fields(path)
    lines = [Line.from_json(line) for line in stored.pop("lines")]
    return Result(**stored, lines=lines)
