"""Random histories under compaction by version, against an oracle of the appended records.

The control experiments remove one rule at a time from the algorithm; each must fail, or the
histories would prove nothing about it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from logstore.cleaner.kernels.versions import LATER_LOSER
from logstore.cleaner.passes import build, clean
from logstore.types import INT64_MAX
from tests.support.oracles.version_model import VersionModel

SHORT = range(70, 130)
"""Two of these seeds show the limit that is inherent."""
LONG = int(os.environ.get("LOGSTORE_STRATEGY_HISTORIES", "6000"))
MODES = (
    {"strategy": "header"},
    {"strategy": "timestamp"},
    {"strategy": "header", "switches": True},
    {"strategy": "offset", "switches": True},
    {"strategy": "header", "lateness_ms": 150},
    {"strategy": "timestamp", "lateness_ms": 150, "switches": True},
)


def run_history(seed: int, steps: int = 60) -> VersionModel:
    """Run one history; a failure names its seed."""
    model = VersionModel(seed, **MODES[seed % len(MODES)])
    try:
        model.live(steps)
    except Exception as error:
        error.add_note(f"history of seed {seed}: {MODES[seed % len(MODES)]}")
        raise
    return model


def live_all(seeds: range) -> None:
    """Live histories, and see that all came up that should."""
    models = [run_history(seed) for seed in seeds]
    assert sum(model.removed_tombstones for model in models) > len(models) // 4
    assert sum(model.crashes for model in models) > len(models)
    assert sum(model.switched for model in models) > len(models) // 10
    assert any(model.resurrections for model in models), "the limit that is inherent"


def test_s260_the_highest_order_wins_whatever_the_order_of_arrival() -> None:
    live_all(SHORT)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_s260_many_histories() -> None:
    live_all(range(1000, 1000 + LONG))


# --- controls ---------------------------------------------------------------------------------


def without_seed(patch: pytest.MonkeyPatch) -> None:
    """Only the dirty section is mapped: the plain extension of cleaner §13.4."""
    patch.setattr(build.SeedPass, "steps", lambda self: iter(()))


def without_safe_horizon(patch: pytest.MonkeyPatch) -> None:
    """An expired tombstone is removed before all records in the tail are compared with it."""
    patch.setattr(clean, "_last_modified_ms", lambda log, end_offset: INT64_MAX)


def without_later_loser(patch: pytest.MonkeyPatch) -> None:
    """An expired tombstone is removed before a record that it supersedes is swapped out."""
    steps = build.SeedPass.steps

    def forgetful(self):
        yield from steps(self)
        slots = self._map.slots
        if slots.shape[1] == 3:
            slots[:, 2] &= ~np.uint64(LATER_LOSER)

    patch.setattr(build.SeedPass, "steps", forgetful)


def without_one_before(patch: pytest.MonkeyPatch) -> None:
    """A superseded record that was kept as the log's last one is not compared again."""
    patch.setattr(build.MapBuild, "_put_one_before", lambda self: None)


# Each starts with the first seed that detects the missing rule, and continues in case histories
# change.
CONTROLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], range]] = {
    "seed": (without_seed, range(8, 30)),
    "safe horizon": (without_safe_horizon, range(10, 600)),
    "later loser": (without_later_loser, range(90, 600)),
    "one before": (without_one_before, range(8, 600)),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_one_rule_the_oracle_objects(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_out, seeds = CONTROLS[name]
    take_out(monkeypatch)
    for seed in seeds:
        try:
            run_history(seed)
        except AssertionError:
            return
    pytest.fail(f"{len(seeds)} histories did not miss the rule: {name}")
