"""Random scenarios of `logstore simulate`, whose outputs and series are stored."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tests.property.random_directories import FORMATS, Outcomes, standing_still
from tests.support.world.transcripts import Transcript, drawn

FEW = 48
CONFIGS: dict[str, tuple[object, ...]] = {
    "cleanup.policy": ("compact", "compact", "compact,delete", "delete"),
    "segment.bytes": ("6KiB", "10KiB"),
    "segment.ms": ("3h", "1d"),
    "delete.retention.ms": ("0", "6h"),
    "min.cleanable.dirty.ratio": ("0", "0.3", "0.9"),
    "max.compaction.lag.ms": ("5h", "20h"),
    "min.compaction.lag.ms": ("1h",),
    "retention.ms": ("8h", "1d"),
    "retention.bytes": ("12KiB",),
}
WORKLOAD: dict[str, tuple[object, ...]] = {
    "keys.count": (5, 40),
    "keys.distribution": ("uniform", "zipf"),
    "values.sizes": ("fixed", "uniform", "lognormal"),
    "values.bytes": (20, 90),
    "deletes.share": (0.1, 0.4),
    "time.arrival": ("poisson", "even"),
    "time.late_share": (0.3,),
    "time.burst_share": (0.5,),
    "producers": ({"count": 2}, {"transactional": 1, "abort_share": 0.4}, {"idempotent": True}),
    "partitions": (1, 2),
    "replicas": (1, 3),
}
BROKER: dict[str, tuple[object, ...]] = {
    "log.cleaner.threads": (1, 2),
    "log.cleaner.backoff.ms": (15_000, 3_600_000),
    "log.retention.check.interval.ms": (300_000, 7_200_000),
    "log.cleaner.io.max.bytes.per.second": (50,),
}
ACTIONS: tuple[dict[str, object], ...] = (
    {"do": "alter", "topic": "a", "configs": {"retention.ms": "2h"}},
    {"do": "alter", "configs": {"log.cleaner.backoff.ms": "60000"}},
    {"do": "roll", "topic": "a"},
    {"do": "clean", "topic": "a", "partition": 0},
    {"do": "clean", "topic": "a"},
    {"do": "delete-records", "topic": "a", "before": 30},
    {"do": "delete-topic", "topic": "b"},
    {"do": "create-topic", "topic": "b"},
    {"do": "add-partitions", "topic": "a", "partitions": 3},
    {"do": "corrupt", "topic": "a"},
    {"do": "corrupt", "topic": "a", "partition": 0, "offset": 5},
    {"do": "retry", "topic": "a"},
    {"do": "stop-cleaner", "lasts": "5h"},
    {"do": "stop-broker", "lasts": "2h"},
    {"do": "kill", "lasts": "1h"},
    {"do": "crash", "lasts": "1h"},
    {"do": "crash"},
    {"do": "start-broker"},
    {"do": "fill-disk", "lasts": "3h"},
    {"do": "fail-disk", "operation": "write", "error": "EIO", "lasts": "2h"},
    {"do": "fail-disk", "operation": "write", "delay": "2s", "topic": "a"},
    {"do": "fail-disk", "operation": "fsync", "directory": 0, "error": "ENOSPC"},
    {"do": "fail-disk", "operation": "rename", "error": "EIO", "lasts": "1h"},
    {"do": "mend-disk", "operation": "write"},
    {"do": "jump-clock", "by": "-2h"},
    {"do": "jump-clock", "by": "3h", "lasts": "1h"},
)
CONSUMERS: tuple[dict[str, object], ...] = (
    {"topic": "a", "lag": "2h"},
    {"name": "slow", "topic": "a", "lag": "9h", "away_from": "10h", "away": "8h"},
)
MESSAGES: tuple[dict[str, object], ...] = (
    {"at": "1h", "key": "x", "value": "1"},
    {"at": "90m", "key": "x", "delete": True},
    {"at": "5h", "key": "y", "value": "2", "late": "3h"},
    {"at": "6h", "key": "x", "value": "3", "early": "1h"},
    {"at": "8h", "key": "y", "value": "4", "partition": 0},
)
GOALS = ("oldest <= 20h", "bytes <= 9KiB", "written < 3 and tombstone <= 1h", "live >= 1")
KEYS = ("min.cleanable.dirty.ratio=0.1..0.9/2", "segment.bytes=6KiB,12KiB", "no=1..2", "x")


def transcribe(seed: int) -> Transcript:
    """Return the outcomes of a few runs of a random scenario."""
    rng = Random(seed)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="random-simulation-") as home:
        os.chdir(home)
        try:
            with standing_still():
                outcomes = Outcomes()
                Path("scenario.toml").write_text(_scenario(rng), encoding="utf-8")
                for _ in range(2):
                    outcomes.call(*_arguments(rng))
                    outcomes.note_written()
                return outcomes.transcript
        finally:
            os.chdir(here)


def _arguments(rng: Random) -> list[str]:
    arguments: list[Any] = ["simulate", "scenario.toml", "--jobs", 1]
    arguments += ["--print"] if rng.random() < 0.15 else ["--out", "out"]
    arguments += ["--samples", rng.choice((2, 5)), "--format", rng.choice(FORMATS)]
    match rng.randrange(8):
        case 0:
            arguments += ["--seeds", 2]
        case 1:
            arguments += ["--sweep", rng.choice(("min.cleanable.dirty.ratio=0.1,0.9", *KEYS[1:]))]
        case 2:
            arguments += ["--goal", rng.choice(GOALS), "--search", rng.choice(KEYS[:3])]
            arguments += ["--seeds", 1]
            arguments += rng.choice(([], ["--minimize", "written"], ["--minimize", "no"]))
        case 3:
            arguments += ["--replicas", 3, "--seed", rng.randrange(9)]
        case 4:
            for key, value in drawn(rng, CONFIGS, 0.2).items():
                arguments += ["--config", f"{key}={value}"]
        case 5:
            arguments += ["--keep-logs"]
        case _:
            pass
    return [str(each) for each in arguments]


def _scenario(rng: Random) -> str:
    days = rng.choice((0.4, 1, 1.7))
    lines = [f"days = {days}", f"seed = {rng.randrange(9)}"]
    if rng.random() < 0.3:
        lines.append("directories = 2")
    for name in ("a", "b")[: rng.choice((1, 2))]:
        lines += ["[[topics]]", f'name = "{name}"']
        if name == "a" or rng.random() < 0.5:
            lines.append(f"records = {rng.choice((40, 90))}")
            batches = {"min_records": 1, "max_records": rng.choice((2, 9))}
            workload = {"batches": batches, "keys.count": 40} | drawn(rng, WORKLOAD, 0.25)
            lines += [f"{key} = {_toml(value)}" for key, value in workload.items()]
        else:
            chosen = rng.sample(MESSAGES, 3)
            chosen.sort(key=MESSAGES.index)
            lines.append(f"messages = [{', '.join(map(_toml, chosen))}]")
        lines.append(f"configs = {_toml(drawn(rng, CONFIGS, 0.35))}")
    for consumer in rng.sample(CONSUMERS[:2], rng.choice((0, 1, 2))):
        lines += ["[[consumers]]", *(f"{key} = {_toml(each)}" for key, each in consumer.items())]
    actions = rng.sample(ACTIONS, rng.choice((0, 0, 1, 2, 4)))
    for action in actions:
        lines += ["[[actions]]", f'at = "{rng.randrange(1, 30)}h"']
        lines += [f"{key} = {_toml(each)}" for key, each in action.items()]
    if rng.random() < 0.4:
        lines += ["[broker]"]
        lines += [f'"{key}" = {_toml(value)}' for key, value in drawn(rng, BROKER, 0.5).items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(each)}' for key, each in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
