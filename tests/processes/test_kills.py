"""Killed processes: the log has all acknowledged changes and no others."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.processes.ledger import Ledger
from tests.processes.lives import Nursery, working
from tests.processes.worker import Life

MINUTES = float(os.environ.get("LOGSTORE_KILL_MINUTES", "10"))
SEED = os.environ.get("LOGSTORE_KILL_SEED")

KILLS_A_DIRECTORY = 12
"""Then a fresh one: old records would be compared again and again."""


FIVE_THREADS = {"threads": 5, "background": True}
"""Threads that append, produce, commit and delete records, with housekeeping and cleaners."""


def a_life(rng: random.Random, number: int, directories: tuple[str, ...]) -> Life:
    return Life(
        number=number,
        seed=rng.randrange(1 << 30),
        directories=directories,
        threads=rng.choice((1, 1, 8)),
        background=rng.random() < 0.4,
    )


def kill_again_and_again(
    nursery: Nursery, folder: Path, rng: random.Random, kills: int
) -> Counter[str]:
    """Kill workers on one directory, reopening it after most of them."""
    directories = tuple(str(folder / name) for name in ("one", "two"))
    ledger = Ledger(directories)
    background = False
    for number in range(kills):
        life = a_life(rng, number, directories)
        background |= life.background
        with working(nursery, ledger, life) as worker:
            # Some are killed while they recover the directory.
            worker.listen_for(rng.choice((0.02, 0.1, 0.3, 0.6)) * rng.random())
            if rng.random() < 0.8:
                while not worker.is_open or worker.told < rng.randrange(2, 200):
                    worker.listen(60)
        ledger.tally["killed while opening"] += not worker.is_open
        ledger.verify_as_left()
        if rng.random() < 0.7 or number == kills - 1:
            ledger.verify(background=background)
            background = False
    return ledger.tally


@pytest.mark.timeout(120)
def test_a_few_kills(nursery, tmp_path):
    tally = kill_again_and_again(nursery, tmp_path, random.Random(1), 5)
    assert tally["kills"] == 5
    assert tally["records"] > 20
    assert tally["compared"]


def kill_and_check(nursery: Nursery, folder: Path, rng: random.Random, kills: int) -> Counter[str]:
    """Kill workers of five threads on one directory, and verify the files as each left them."""
    directories = (str(folder / "one"),)
    ledger = Ledger(directories)
    for number in range(kills):
        life = Life(number, rng.randrange(1 << 30), directories, **FIVE_THREADS)
        with working(nursery, ledger, life) as worker:
            enough = rng.randrange(2, 300)
            while not worker.is_open or worker.told < enough:
                worker.listen(60)
        ledger.verify_as_left()
    ledger.verify(background=True)
    return ledger.tally


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_check_reports_no_error_after_a_few_kills(nursery, tmp_path):
    tally = kill_and_check(nursery, tmp_path, random.Random(2), 4)
    assert tally["checks"] == tally["kills"] == 4
    assert tally["records"] > 20


@pytest.mark.long
@pytest.mark.timeout(0)
def test_check_reports_no_error_after_minutes_of_kills(nursery, tmp_path, capsys):
    """`LOGSTORE_KILL_MINUTES` of wall time, from `LOGSTORE_KILL_SEED` on."""
    kill_for_minutes(partial(kill_and_check, nursery), tmp_path, capsys)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_kills_for_minutes(nursery, tmp_path, capsys):
    """`LOGSTORE_KILL_MINUTES` of wall time, from `LOGSTORE_KILL_SEED` on."""
    kill_for_minutes(partial(kill_again_and_again, nursery), tmp_path, capsys)


def kill_for_minutes(
    kill: Callable[[Path, random.Random, int], Counter[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kill on one directory after another, and print how much was done."""
    seed = random.SystemRandom().getrandbits(32) if SEED is None else int(SEED)
    end = time.monotonic() + 60 * MINUTES
    tally: Counter[str] = Counter()
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        try:
            tally += kill(folder, random.Random(seed), KILLS_A_DIRECTORY)
        except BaseException as error:
            error.add_note(f"LOGSTORE_KILL_SEED={seed}; {dict(tally)}")
            raise
        shutil.rmtree(folder)
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(sorted(tally.items()))}; ")
