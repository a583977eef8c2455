"""Test reliability for some minutes: `make soak MINUTES=n`.

Each part runs in a process of its own, one after another, for its share of the minutes. A part
fails if its process fails, or if it counts no operations. The end is a table and a verdict; the
result is stored with `--store` in `tests/soak/results`, from which `make docs` writes the tables of
docs/RELIABILITY.md. Output of all parts is in `build/soak`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/soak/results"
OUTPUT = ROOT / "build/soak"


class Part(NamedTuple):
    """A part: a description, its share of the time, its command, the counts that must not be 0.

    The command has the placeholders `{minutes}`, `{seconds}` and `{seed}`; so have the values of
    its environment.
    """

    about: str
    share: float
    command: str
    environment: dict[str, str]
    counts: tuple[str, ...]


def _long(test: str, minutes: str, seed: str = "") -> tuple[str, dict[str, str]]:
    environment = {minutes: "{minutes}"} | ({seed: "{seed}"} if seed else {})
    return f"-m pytest -q -p no:cacheprovider -m long tests/processes/{test}", environment


def _endless(part: str) -> tuple[str, dict[str, str]]:
    return f"-m tests.soak.endless {part} --minutes {{minutes}} --seed {{seed}}", {}


_KILLS = ("LOGSTORE_KILL_MINUTES", "LOGSTORE_KILL_SEED")
_DISKS = ("LOGSTORE_DISK_MINUTES", "LOGSTORE_DISK_SEED")

PARTS = {
    "kills": Part(
        "writers are killed (SIGKILL) at random times; their directories are opened again",
        3,
        *_long("test_kills.py::test_kills_for_minutes", *_KILLS),
        ("kills", "records", "compared"),
    ),
    "checked kills": Part(
        "the same with five threads, cleaners and retention; `check` reads the remaining files",
        2,
        *_long("test_kills.py::test_check_reports_no_error_after_minutes_of_kills", *_KILLS),
        ("kills", "records", "checks"),
    ),
    "served": Part(
        "`serve` is killed under an idempotent, a transactional and a Python client",
        2,
        *_endless("served"),
        ("kills", "acknowledged", "aborted", "read"),
    ),
    "cluster served": Part(
        "the same with `--brokers 3`, all killed at once",
        2,
        *_endless("cluster-served"),
        ("kills", "acknowledged", "aborted", "read"),
    ),
    "clusters": Part(
        "random clusters in virtual time: kills, power loss, cut links, skewed clocks, moves",
        3,
        *_endless("clusters"),
        ("clusters", "lost power", "skew", "move", "passes"),
    ),
    "coordinators": Part(
        "the same with groups and transactions",
        2,
        *_endless("coordinators"),
        ("clusters",),
    ),
    "power": Part(
        "random histories of a log that loses power, compared with a list of records",
        2,
        *_endless("power"),
        ("histories", "lost something in a crash"),
    ),
    "full disks": Part(
        "writers on disks that become full",
        1,
        *_long("test_disks.py::test_full_disks_for_minutes", *_DISKS),
        ("disks full", "compared"),
    ),
    "failing disks": Part(
        "writers on disks with failing operations",
        1,
        *_long("test_disks.py::test_failing_disks_for_minutes", *_DISKS),
        ("disks failed", "compared"),
    ),
    "threads": Part(
        "eight threads with housekeeping and cleaners",
        2,
        *_long(
            "test_threads.py::test_eight_threads_for_minutes",
            "LOGSTORE_THREAD_MINUTES",
            "LOGSTORE_THREAD_SEED",
        ),
        ("records", "compared"),
    ),
    "readers": Part(
        "read commands next to a writer",
        1,
        *_long(
            "test_readers_next_to_a_writer.py::test_commands_next_to_a_writer_for_minutes",
            "LOGSTORE_BESIDE_MINUTES",
            "LOGSTORE_BESIDE_SEED",
        ),
        ("commands", "records"),
    ),
    "fuzz": Part(
        "mutated requests, logs, indexes, snapshots and directories",
        3,
        "-m tests.fuzz.run --engine seeded --seconds {seconds} --seed {seed}",
        {},
        ("executions",),
    ),
    "flat": Part(
        "memory and descriptors of a process that opens, fills, cleans and serves a broker",
        1,
        *_endless("flat"),
        ("brokers", "records", "cleaned"),
    ),
}


def counts_of(output: str) -> dict[str, int]:
    """Return the counts that a part printed: its last dictionary, and executions of the fuzzer."""
    counts: dict[str, int] = {}
    for text in re.findall(r"\{'[^{}]*\}", output):
        try:
            counts = {str(name): int(number) for name, number in ast.literal_eval(text).items()}
        except (AttributeError, SyntaxError, ValueError, TypeError):
            continue  # printed by something else
    if executed := re.findall(r"^(\d+) executions: ", output, re.MULTILINE):
        counts = {"executions": int(executed[-1])}
    return counts


def run_part(name: str, minutes: float, seed: int) -> dict[str, Any]:
    """Run a part, and return its row."""
    part = PARTS[name]
    values = {"minutes": f"{minutes:.3f}", "seconds": f"{60 * minutes:.0f}", "seed": str(seed)}
    command = [sys.executable, *(word.format(**values) for word in part.command.split())]
    extra = {"PYTHONHASHSEED": "0"}  # the order of sets is part of a repetition
    extra |= {key: value.format(**values) for key, value in part.environment.items()}
    start = time.monotonic()
    path = OUTPUT / f"{name.replace(' ', '-')}.txt"
    with path.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **extra, "LOGSTORE_KERNELS": "auto"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    counts = counts_of(path.read_text(encoding="utf-8", errors="replace"))
    zero = [each for each in part.counts if not counts.get(each)]
    problem = f"exit code {done.returncode}" if done.returncode else ""
    if not problem and zero:
        problem = f"no {', '.join(zero)}"
    again = " ".join([*(f"{key}={value}" for key, value in extra.items()), "python", *command[1:]])
    return {
        "part": name,
        "seed": seed,
        "minutes": round((time.monotonic() - start) / 60, 1),
        "counts": {key: counts.get(key, 0) for key in part.counts},
        "problem": problem,
        "again": again,
        "output": path.relative_to(ROOT).as_posix(),
    }


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of text."""
    counts = ", ".join(f"{number:,} {name}" for name, number in row["counts"].items())
    state = f"FAILED ({row['problem']})" if row["problem"] else "passed"
    return f"{row['part']:15} {state:8} {row['minutes']:6.1f} min  seed {row['seed']}: {counts}"


def machine() -> str:
    """Return the kind of this machine."""
    model = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = model[0] if model else platform.machine()
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> int:
    """Run the parts, and print the table and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="by default all")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, help="by default a random one")
    parser.add_argument("--store", action="store_true", help="keep the result in the repository")
    options = parser.parse_args()
    names = options.parts or list(PARTS)
    if unknown := set(names) - set(PARTS):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(PARTS)}")
    seed = random.SystemRandom().getrandbits(28) if options.seed is None else options.seed
    OUTPUT.mkdir(parents=True, exist_ok=True)
    shares = sum(PARTS[name].share for name in names)
    rows = []
    for name in names:
        print(f"{name}: {PARTS[name].about} ...", flush=True)
        rows.append(run_part(name, options.minutes * PARTS[name].share / shares, seed))
        print(line(rows[-1]), flush=True)
    print("\n" + "\n".join(map(line, rows)))
    failed = [row for row in rows if row["problem"]]
    for row in failed:
        print(f"\nto repeat {row['part']}: {row['again']}\noutput: {row['output']}")
    print(
        f"\nverdict: {len(failed)} of {len(rows)} parts failed" if failed else "\nverdict: passed"
    )
    git = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    result = {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit.stdout.strip(),
        "machine": machine(),
        "minutes": round(sum(row["minutes"] for row in rows), 1),
        "rows": [{key: row[key] for key in row if key != "output"} for row in rows],
    }
    folders = [OUTPUT, RESULTS] if options.store else [OUTPUT]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{result['date'].replace(' ', '-').replace(':', '')}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
