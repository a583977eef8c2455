"""Simulation lines: a month of updates, and a year of an idle broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from logstore.bench.measuring import Stopwatch, no_collection
from logstore.bench.micro.figures import costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.simulate.engine import run
from logstore.simulate.scenario import from_mapping

UPDATES = 10_000_000
PARTITIONS = 100
SECONDS = 1.0


def _updates(setting: Setting) -> Mapping[str, Any]:
    """Return 30 days of updates, with retention and cleaner checks every 5 minutes."""
    every_ms = {
        f"log.{name}.ms": "300000" for name in ("retention.check.interval", "cleaner.backoff")
    }
    topic = {
        "name": "updates",
        "records": setting.share_of(UPDATES),
        "keys": {"count": setting.share_of(UPDATES // 10)},
        "values": {"bytes": 100},
        "configs": {
            "cleanup.policy": "compact,delete",
            "retention.ms": "20d",
            "segment.bytes": "64MiB",
            "min.cleanable.dirty.ratio": "0.1",
        },
    }
    return {"days": 30, "broker": every_ms, "topics": [topic]}


def _idle(_: Setting) -> Mapping[str, Any]:
    configs = {"cleanup.policy": "compact"}
    topic = {"name": "idle", "records": 0, "partitions": PARTITIONS, "configs": configs}
    return {"days": 365, "topics": [topic]}


_SCENARIOS = {"updates": _updates, "idle": _idle}


def _line(setting: Setting, *, name: str, title: str) -> Iterator[Line]:
    warm = _SCENARIOS[name](Setting(setting.scratch, total_bytes=1))
    run(from_mapping({**warm, "days": 1}), samples=10)
    scenario = from_mapping(_SCENARIOS[name](setting))
    with no_collection(), Stopwatch() as watch:
        outcome = run(scenario)
    yield Line(
        name=f"simulate/{name}",
        title=title,
        unit="s",
        higher_is_better=False,
        here=costs(1, [watch.sample], SECONDS),
        facts={"passes": len(outcome.passes), "rows": len(outcome.partitions)},
    )


def jobs() -> Iterator[Job]:
    """Yield the jobs. Each is a single run, too slow for the quick set."""
    for name, title in (
        ("updates", f"simulate 30 days with {UPDATES // 1_000_000} million updates"),
        ("idle", f"simulate 365 days with {PARTITIONS} idle partitions"),
    ):
        yield Job((f"simulate/{name}",), False, partial(_line, name=name, title=title))
