"""The presets, whole. To accept a change, delete `presets.json`, run the test, and review it."""

import json
from pathlib import Path

import pytest

from logstore.workload.presets import PRESETS

STORED = Path(__file__).with_name("presets.json")


def test_the_presets_are_these():
    text = json.dumps({name: dict(each) for name, each in PRESETS.items()}, indent=1)
    if not STORED.exists():
        STORED.write_text(f"{text}\n", encoding="utf-8")
        pytest.fail(f"{STORED} was missing: review the new file")
    assert text.splitlines() == STORED.read_text(encoding="utf-8").splitlines()
