"""Eight threads with housekeeping and cleaners: no record is lost or reappears."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.processes.ledger import Ledger
from tests.processes.lives import working
from tests.processes.worker import Life

MINUTES = float(os.environ.get("LOGSTORE_THREAD_MINUTES", "10"))
SEED = int(os.environ.get("LOGSTORE_THREAD_SEED", "0"))
STEPS_A_LIFE = 400


def live_once(nursery, ledger: Ledger, number: int, steps: int) -> None:
    folders = tuple(ledger.directories)
    life = Life(number, SEED + number, folders, threads=8, steps=steps, background=True)
    with working(nursery, ledger, life) as worker:
        assert worker.listen_to_the_end() == 0
    ledger.verify(background=True)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_eight_threads(nursery, tmp_path):
    ledger = Ledger([str(tmp_path / "one"), str(tmp_path / "two")])
    live_once(nursery, ledger, 0, 12)
    assert ledger.tally["records"] > 100


@pytest.mark.long
@pytest.mark.timeout(0)
def test_eight_threads_for_minutes(nursery, tmp_path, capsys):
    """`LOGSTORE_THREAD_MINUTES` of wall time, from `LOGSTORE_THREAD_SEED` on.

    The broker is reopened now and then.
    """
    ledger = Ledger([str(tmp_path / "one"), str(tmp_path / "two")])
    end = time.monotonic() + 60 * MINUTES
    number = 0
    while time.monotonic() < end:
        live_once(nursery, ledger, number, STEPS_A_LIFE)
        number += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(sorted(ledger.tally.items()))}; ")
