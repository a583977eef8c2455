"""Read-only commands next to a writing process report no false damage and do not fail."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore.cli.main import main
from tests.processes.ledger import Ledger
from tests.processes.lives import Nursery, Worker, working
from tests.processes.worker import PARTITIONS, Life

MINUTES = float(os.environ.get("LOGSTORE_BESIDE_MINUTES", "10"))
SEED = os.environ.get("LOGSTORE_BESIDE_SEED")


DELETED = re.compile(r"v\d+-0 was removed: another process has deleted it")
"""Output of a command over all topics if a topic is deleted while it runs."""

MOVED = re.compile(
    r"error: (partition \S+ was moved from \S+ to \S+, which is not one of"
    r"|(kept|events|mixed)-\d was removed: another process has deleted it or moved it"
    r"|\S+: no such file or directory)"
)
"""Output of a command about a partition directory that the writer moves while it runs."""

GONE = re.compile(r"^error   \w+: (\S+): found moved or removed during the check", re.MULTILINE)
"""Output of `check` if its partition directory is moved while it is verified."""

COMMANDS = (
    "inspect",
    "inspect {topic}",
    "inspect {topic} --deep --format json",
    "inspect {topic} --partition {partition} --batches --format jsonl",
    "inspect {topic} --partition {partition} --records --format jsonl",
    "inspect {topic} --partition {partition} --fate --format jsonl",
    "inspect {home}/{topic}-{partition} --deep",
    "read {topic} --format jsonl",
    "read {topic} --partition {partition} --isolation read_committed --format jsonl",
    "read kept --latest-per-key --format jsonl",
    "offsets {topic}",
    "offsets {topic} --time max-timestamp",
    "offsets {topic} --time earliest",
    "explain",
    "retain --dry-run",
    "clean kept --dry-run --force --format json",
    "check",
    "check {home}/{topic}-{partition}",
    "topic list",
    "topic describe {topic}",
)


def call(directories: tuple[str, ...], line: str) -> tuple[int, str, str]:
    arguments = line.split()
    for directory in directories:
        arguments += ["--data-dir", directory]
    result = CliRunner(env={"LOGSTORE_DATA_DIR": None}).invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def run_next_to_writer(
    worker: Worker,
    ledger: Ledger,
    rng: random.Random,
    is_over: Callable[[int], bool],
) -> tuple[Counter[str], list[str]]:
    tally: Counter[str] = Counter()
    failures: list[str] = []
    while not is_over(tally["commands"]):
        worker.listen(0)
        assert worker.code is None
        tp = rng.choice(PARTITIONS)
        line = COMMANDS[tally["commands"] % len(COMMANDS)]
        home = next(d for d in ledger.directories if Path(d, str(tp)).exists())
        line = line.format(topic=tp.topic, partition=tp.partition, home=home)
        code, out, err = call(worker.life.directories, line)
        tally["commands"] += 1
        if home in line and MOVED.search(err):
            tally["moved away"] += 1
            continue
        assert f"process {worker.pid} is writing to" in err
        is_gone = GONE.findall(out) == [f"{home}/{tp}"] and out.endswith(": 1 error\n")
        if line == f"check {home}/{tp}" and is_gone:
            tally["moved away"] += 1
            continue
        if (
            "CORRUPT" in out + err
            or "warning" in out + err
            or "truncated_tail" in out
            or (code and not DELETED.search(err))
        ):
            failures.append(f"{line}: {code}\n{err}\n{out[:4000] if 'check' in line else ''}")
    return tally, failures


def run(
    nursery: Nursery, folder: Path, seed: int, is_over: Callable[[int], bool]
) -> tuple[Counter[str], list[str]]:
    """Run commands next to a writer with housekeeping and cleaners, in two data directories."""
    directories = tuple(str(folder / name) for name in ("one", "two"))
    ledger = Ledger(directories)
    life = Life(number=1, seed=seed, directories=directories, background=True)
    with working(nursery, ledger, life) as worker:
        while worker.told < 100:
            worker.listen(10)
        tally, failures = run_next_to_writer(worker, ledger, random.Random(seed), is_over)
    ledger.verify(background=True)
    return tally + ledger.tally, failures


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_round_of_commands_next_to_a_writer(nursery, tmp_path):
    tally, failures = run(nursery, tmp_path, 1, lambda done: done == len(COMMANDS))
    assert not failures, "\n".join(failures)
    assert tally["records"] > 100


@pytest.mark.long
@pytest.mark.timeout(0)
def test_commands_next_to_a_writer_for_minutes(nursery, tmp_path, capsys):
    """`LOGSTORE_BESIDE_MINUTES` of wall time, from `LOGSTORE_BESIDE_SEED` on."""
    seed = random.SystemRandom().getrandbits(32) if SEED is None else int(SEED)
    end = time.monotonic() + 60 * MINUTES
    tally, failures = run(nursery, tmp_path, seed, lambda _: time.monotonic() > end)
    with capsys.disabled():
        sys.stdout.write(f"\nseed {seed}: {dict(sorted(tally.items()))}; ")
    assert not failures, f"{len(failures)} of {tally['commands']}:\n" + "\n".join(failures)
