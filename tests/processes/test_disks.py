"""Full or failing disks: acknowledged data is intact when the directory is opened again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.ledger import Ledger
from tests.processes.lives import Nursery, working
from tests.processes.worker import DISK_FULL, Life

MINUTES = float(os.environ.get("LOGSTORE_DISK_MINUTES", "5"))
SEED = os.environ.get("LOGSTORE_DISK_SEED")
ROUNDS_A_DIRECTORY = 10
ROOM_KIB = (40, 100, 200, 400)


class SmallDisk:
    """A separate file system of a given size."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._mount("-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs")

    def _mount(self, *arguments: str) -> None:
        command = ["mount", *arguments, str(self.place)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def leave_room(self, kib: int) -> None:
        """Fill the disk up to this many free bytes."""
        used = shutil.disk_usage(self.place).used // 1024
        self._mount("-o", f"remount,size={used + kib}k")

    def grow(self) -> None:
        self._mount("-o", "remount,size=64m")

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    try:
        disk = SmallDisk(place)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        report = str(getattr(error, "stderr", error))
        if os.geteuid() == 0 and "denied" not in report and "permitted" not in report:
            raise
        pytest.skip(f"no disk of a chosen size can be mounted here: {report.strip()}")
    yield disk
    disk.unmount()


def work_until_it_ends(nursery: Nursery, ledger: Ledger, life: Life) -> None:
    with working(nursery, ledger, life) as worker:
        code = worker.listen_to_the_end()
    assert code in (0, DISK_FULL)
    ledger.tally["disks failed" if code == DISK_FULL else "ended well"] += 1
    ledger.verify()


def fill_up(nursery: Nursery, disk: SmallDisk, rng: random.Random, rounds: int) -> Counter[str]:
    """Fill the disk, give it room, compare, and go on."""
    folder = disk.place / f"data-{rng.randrange(1 << 30)}"
    ledger = Ledger([str(folder)])
    for number in range(rounds):
        disk.leave_room(rng.choice(ROOM_KIB))
        threads, only_appends = rng.choice((1, 8)), rng.random() < 0.5
        life = Life(
            number,
            rng.randrange(1 << 30),
            (str(folder),),
            threads=threads,
            only_appends=only_appends,
        )
        with working(nursery, ledger, life) as worker:
            assert worker.listen_to_the_end() == DISK_FULL
        ledger.tally["disks full"] += 1
        disk.grow()
        ledger.verify()
    shutil.rmtree(folder)
    return ledger.tally


def live(
    nursery: Nursery,
    folder: Path,
    rng: random.Random,
    rounds: int,
    settings: Callable[[], dict[str, int]],
) -> Counter[str]:
    """Live some lives, with settings drawn for each; compare after each on a disk that works."""
    ledger = Ledger([str(folder)])
    for number in range(rounds):
        life = Life(number, rng.randrange(1 << 30), (str(folder),), **settings())
        work_until_it_ends(nursery, ledger, life)
    shutil.rmtree(folder)
    return ledger.tally


def fail(nursery: Nursery, folder: Path, rng: random.Random, rounds: int) -> Counter[str]:
    """Fail the disk at an operation and let the process end."""

    def settings() -> dict[str, int]:
        threads = rng.choice((1, 1, 8))
        failing = rng.choice((5, 50, 300)) * rng.randrange(1, 4)
        return {"threads": threads, "steps": 40, "failing": failing}

    return live(nursery, folder, rng, rounds, settings)


def limit(nursery: Nursery, folder: Path, rng: random.Random, rounds: int) -> Counter[str]:
    """Limit the size of files: writes become short, then fail."""

    def settings() -> dict[str, int]:
        return {"steps": 200, "file_bytes_max": rng.choice((3_000, 5_000, 7_900))}

    return live(nursery, folder, rng, rounds, settings)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_full_disk(nursery, small_disk):
    tally = fill_up(nursery, small_disk, random.Random(1), 2)
    assert tally["disks full"] == 2
    assert tally["compared"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_failing_disk(nursery, tmp_path):
    tally = fail(nursery, tmp_path / "data", random.Random(1), 4)
    assert tally["disks failed"]
    assert tally["compared"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_files_that_may_not_grow(nursery, tmp_path):
    tally = limit(nursery, tmp_path / "data", random.Random(1), 2)
    assert tally["disks failed"] == 2
    assert tally["compared"]


def for_minutes(capsys, story) -> None:
    """Run a story with one seed after another for `LOGSTORE_DISK_MINUTES`."""
    seed = random.SystemRandom().getrandbits(32) if SEED is None else int(SEED)
    end = time.monotonic() + 60 * MINUTES
    tally: Counter[str] = Counter()
    while time.monotonic() < end:
        try:
            tally += story(random.Random(seed))
        except BaseException as error:
            error.add_note(f"LOGSTORE_DISK_SEED={seed}; {dict(tally)}")
            raise
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(sorted(tally.items()))}; ")


@pytest.mark.long
@pytest.mark.timeout(0)
def test_full_disks_for_minutes(nursery, small_disk, capsys):
    for_minutes(capsys, lambda rng: fill_up(nursery, small_disk, rng, ROUNDS_A_DIRECTORY))


@pytest.mark.long
@pytest.mark.timeout(0)
def test_failing_disks_for_minutes(nursery, tmp_path, capsys):
    for_minutes(capsys, lambda rng: fail(nursery, tmp_path / "data", rng, ROUNDS_A_DIRECTORY))


@pytest.mark.long
@pytest.mark.timeout(0)
def test_files_that_may_not_grow_for_minutes(nursery, tmp_path, capsys):
    for_minutes(capsys, lambda rng: limit(nursery, tmp_path / "data", rng, ROUNDS_A_DIRECTORY))
