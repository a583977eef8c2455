"""Generated workloads as directories for Kafka to judge, written by `workload generate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from logstore.types import DAY_MS
from logstore.workload.presets import PRESETS
from tests.interop.directories import WRITERS, Written
from tests.support.world.generated import make_topic, preset

RECORDS = 3_000


def _write(name: str, path: Path) -> Written:
    """Make a preset's topic of few records; Kafka knows no strategy, but reads the rest."""
    keys = {"count": 400, "hot_keys": 40} if name == "session-store" else {"count": 400}
    spec = preset(name, records=RECORDS, partitions=2, keys=keys)
    make_topic(spec, path)
    config = {
        key: value
        for key, value in spec.topic_configs.items()
        if not key.startswith(("compaction.strategy", "logstore."))
    }
    end_ms = spec.time.start_ms + round(spec.time.days * DAY_MS)
    return Written(path, config, end_ms, spec.topic)


WRITERS.update({f"workload {name}": partial(_write, name) for name in PRESETS})
