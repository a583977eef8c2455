"""Random runs of a seed: every result, answer, error and record is the stored one."""

from importlib import import_module

import pytest

from tests.support.world import transcripts

PARTS = {
    "conversations": 4,
    "random_brokers": 5,
    "random_calls": 4,
    "random_clients": 4,
    "random_configs": 1,
    "random_coordination": 4,
    "random_directories": 6,
    "random_followers": 2,
    "random_records": 2,
    "random_requests": 4,
    "random_rules": 1,
    "random_sessions": 1,
    "random_simulations": 2,
}
"""Number of tests into which the seeds of a module of this folder are divided.

Every second test of a module is `long`.
"""


@pytest.mark.parametrize(
    ("name", "part"),
    [
        pytest.param(name, part, marks=pytest.mark.long if part % 2 else ())
        for name, parts in PARTS.items()
        for part in range(parts)
    ],
)
def test_a_run_is_the_stored_one(name, part):
    module = import_module(f"tests.property.{name}")
    for seed in range(part, module.FEW, PARTS[name]):
        transcripts.check(name, seed, module.transcribe(seed))
