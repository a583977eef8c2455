"""Runs of many seeds against Kafka: sums, and a report for each seed that failed."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tests.support.interop.judge import KAFKA_3, Judge, fast_scratch
from tests.support.interop.sums import Sums

T = TypeVar("T", bound=Sums)


def run_seeds(
    seeds: Iterable[int],
    judge: Judge,
    scratch: Path,
    run: Callable[[int, Judge, Path], T],
    total: T,
) -> list[str]:
    """Run seeds and add their sums to `total`; return a report for each seed that failed."""
    failed = []
    for seed in seeds:
        folder = scratch / str(seed)
        folder.mkdir(parents=True)
        try:
            total.add(run(seed, judge, folder))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            shutil.rmtree(folder)
    return failed


def main(run: Callable[[int, Judge, Path], T], total: T) -> None:
    """Run the seeds of the command line, from the first to before the second, with Kafka 3."""
    seeds = range(*map(int, sys.argv[1:3]))
    with Judge.start(KAFKA_3) as judge:
        scratch = Path(tempfile.mkdtemp(dir=fast_scratch()))
        failed = run_seeds(seeds, judge, scratch, run, total)
    if failed:
        failed.append(f"their directories are in {scratch}")
    else:
        scratch.rmdir()
    sys.stdout.write("\n\n".join([*failed, f"{total}", ""]))
    sys.exit(1 if failed else 0)
