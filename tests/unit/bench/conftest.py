"""The harness without its measures for exact figures."""

import pytest


@pytest.fixture(autouse=True)
def no_garbage_day(monkeypatch):
    """Collect no garbage before each step: here the garbage is from a whole suite."""
    monkeypatch.setattr("logstore.bench.measuring.gc.collect", lambda: 0)
