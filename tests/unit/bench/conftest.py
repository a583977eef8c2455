"""The harness without what it does for exact figures."""

import pytest


@pytest.fixture(autouse=True)
def no_garbage_day(monkeypatch):
    """Collect no garbage before each step: here it is that of a whole suite."""
    monkeypatch.setattr("logstore.bench.measuring.gc.collect", lambda: 0)
