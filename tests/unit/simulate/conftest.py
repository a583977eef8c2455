"""A data directory whose second half is known, as the start of a simulation."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from logstore.simulate import Scenario, parse, run

HALVES = """
days = {days}
seed = 5
[[topics]]
name = "users"
records = 16_000
partitions = 2
keys = {keys}
deletes.share = 0.05
values = {{ sizes = "lognormal", bytes = 120, sigma = 0.5, max_bytes = 2_000 }}
batches = {{ min_records = 5, max_records = 40 }}
[topics.time]
days = 20
arrival = "poisson"
profile = [1, 1, 1, 1, 1, 1, 2, 3, 4, 4, 4, 4, 3, 4, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1]
profile_days = 1
[topics.configs]
"cleanup.policy" = "compact"
"segment.bytes" = 100_000
"segment.ms" = "1d"
"min.cleanable.dirty.ratio" = 0.3
"""


UNIFORM = '{ count = 3_000, distribution = "uniform" }'
ZIPF = "{ count = 10_000, exponent = 0.9 }"


def halves(days: int, keys: str) -> Scenario:
    """Return so many days of a workload that takes twenty."""
    return parse(HALVES.format(days=days, keys=keys))


@pytest.fixture(scope="package")
def half(tmp_path_factory) -> Path:
    """The first ten days of twenty, uniform over 3,000 keys."""
    path = tmp_path_factory.mktemp("half") / "data"
    run(halves(10, UNIFORM), data_dir=path, samples=5)
    return path


def tree_of(path: Path) -> dict[str, tuple[int, str]]:
    """Return modification time and hash of everything in a folder."""
    return {
        str(each.relative_to(path)): (
            each.stat().st_mtime_ns,
            hashlib.sha256(each.read_bytes()).hexdigest() if each.is_file() else "",
        )
        for each in sorted([path, *path.rglob("*")])
    }
