"""Plants small faults in the lines changed since a commit, and lists those that no test notices.

`make mutants BASE=commit` calls it. The tests run once with the line coverage of each (the
kernels as plain Python); then each fault is planted in a copy of the tree and the tests that run
its line are run, in a fork of a process that has collected them (`tests.mutants.forked`). The
checkout is never touched. A fault that survives is answered by a test, or by a line in reasons.txt
where the code does the same with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from coverage import CoverageData

from tests.mutants.faults import Fault, faults_of

REASONS = "tests/mutants/reasons.txt"
SOURCES = ("logstore", "cleaner", "bench")
TESTS = ("tests/unit", "tests/property", "tests/cli", "tests/crash", "tests/processes")
TESTS_MAX = 150
"""Tests run for one fault, those that run the fewest lines first; further ones are counted."""

# Without the compiler NumPy warns of the overflows that kernels count on.
PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-W", "ignore::RuntimeWarning"),
)

START_SECONDS = 60
"""Time limit of a run without tests; a fault's run has five times its tests' time in addition."""


class Planted(NamedTuple):
    """A fault of a file."""

    path: str
    fault: Fault

    @property
    def key(self) -> tuple[str, str, str]:
        """Its name in reasons.txt."""
        return self.path, self.fault.text, str(self.fault)


class Outcome(NamedTuple):
    """What became of one fault: `found`, `survived`, `untested` or `hung` (which is found too)."""

    planted: Planted
    verdict: str
    tests: int
    left_out: int


# -- what to plant ---------------------------------------------------------------------------


def changed_lines(root: Path, base: str, sources: Sequence[str]) -> dict[str, set[int]]:
    """Return the lines of Python files that were added or changed since a commit."""
    command = ["git", "diff", "-U0", "--no-color", "--no-ext-diff", base, "--", *sources]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    lines: dict[str, set[int]] = {}
    path = ""
    for line in told.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif (hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)) and path.endswith(".py"):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(start, start + count))
    return lines


def planted_in(root: Path, lines: Mapping[str, set[int]]) -> Iterator[Planted]:
    """Yield all faults of some lines."""
    for path, numbers in sorted(lines.items()):
        for fault in faults_of((root / path).read_text(encoding="utf-8"), numbers):
            yield Planted(path, fault)


def reasons(path: Path) -> dict[tuple[str, str, str], str]:
    """Return why faults need not be found: `path | line | fault | reason`, a line each."""
    found = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                place, text, fault, reason = (part.strip() for part in line.split(" ¦ "))
                found[place, text, fault] = reason
    return found


# -- which tests -----------------------------------------------------------------------------


class Coverage:
    """Which tests run which lines, and how much each of them runs."""

    def __init__(self, path: Path, root: Path, failing: Set[str]) -> None:
        data = CoverageData(str(path))
        data.read()
        self._tests: dict[str, dict[int, set[str]]] = {}
        self._breadth: Counter[str] = Counter()
        for name in data.measured_files():
            by_line = {
                line: {_node_id(each) for each in contexts if each} - failing
                for line, contexts in data.contexts_by_lineno(name).items()
            }
            own = self._tests[str(Path(name).relative_to(root))] = by_line
            for tests in own.values():
                self._breadth.update(tests)

    def tests_of(self, path: str, line: int) -> list[str]:
        """Return the tests that run a line, those that run least first.

        A line that runs on import alone belongs to all tests of its file.
        """
        by_line = self._tests.get(path, {})
        tests = by_line.get(line)
        if tests is not None and not tests:
            tests = set().union(*by_line.values())
        return sorted(tests or (), key=lambda test: (self._breadth[test], test))


def _node_id(context: str) -> str:
    return context.partition("|")[0]


def measure(copy: Path, tests: Sequence[str], sources: Sequence[str], jobs: int) -> Coverage:
    """Run the tests once in a copy of the tree, with the lines that each runs."""
    command = [*PYTEST, "-rfE", *tests, *(f"--cov={source}" for source in sources)]
    command += ["--cov-context=test", "--cov-report=", "-n", str(jobs)]
    done = subprocess.run(
        command, cwd=copy, env=environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    # A test that fails by itself would find every fault.
    failing = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE))
    if failing:
        print(f"{len(failing)} tests fail without any fault, and are left out", flush=True)
    elif done.returncode != 0:
        raise SystemExit(f"the tests cannot be run:\n{done.stdout}")
    return Coverage(copy / ".coverage", copy, failing)


def environment() -> dict[str, str]:
    """Return the environment of a test run: kernels as Python, whose lines can be seen."""
    given = {"NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "dev"}
    return os.environ | given


# -- planting --------------------------------------------------------------------------------


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git knows or would take, as it is now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    for name in names.split("\0"):
        if name and ((root / name).is_file() or (root / name).is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)


class Worker:
    """A copy of the tree, and a process that has collected its tests."""

    def __init__(self, copy: Path, tests: Sequence[str]) -> None:
        self._copy = copy
        requests, to_process = os.pipe()
        from_process, answers = os.pipe()
        descriptors = {"MUTANTS_REQUESTS": str(requests), "MUTANTS_ANSWERS": str(answers)}
        plugins = os.pathsep.join([str(copy), str(Path(__file__).parents[2])])
        self._process = subprocess.Popen(
            [*PYTEST, "-p", "tests.mutants.forked", *tests],
            cwd=copy,
            env=environment() | descriptors | {"PYTHONPATH": plugins},
            pass_fds=(requests, answers),
            stdout=subprocess.DEVNULL,
        )
        os.close(requests)
        os.close(answers)
        self._requests = os.fdopen(to_process, "w")
        self._answers = os.fdopen(from_process)
        if not self._answers.readline():
            raise SystemExit("the tests cannot be collected")

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._answers.close()
        self._process.wait()

    def try_out(self, planted: Planted, tests: Sequence[str], seconds: float) -> str:
        """Run tests with a fault planted; return the verdict."""
        path = self._copy / planted.path
        source = path.read_text(encoding="utf-8")
        changed = planted.fault.plant(source)
        path.write_text(changed, encoding="utf-8")  # for the processes that tests start
        request = {"path": str(path), "source": changed, "line": planted.fault.line}
        try:
            print(
                json.dumps({**request, "tests": tests, "seconds": seconds}),
                file=self._requests,
                flush=True,
            )
            verdict = self._answers.readline().strip()
            if not verdict:
                raise SystemExit("the process that runs the tests has ended")
            return self._in_a_process(tests, seconds) if verdict == "elsewhere" else verdict
        finally:
            path.write_text(source, encoding="utf-8")

    def _in_a_process(self, tests: Sequence[str], seconds: float) -> str:
        try:
            done = subprocess.run(
                [*PYTEST, "-x", *tests],
                cwd=self._copy,
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hung"
        return "found" if done.returncode else "survived"


def run(
    root: Path,
    faults: Sequence[Planted],
    tests: Sequence[str],
    sources: Sequence[str],
    jobs: int,
) -> Iterator[Outcome]:
    """Yield what became of each fault, as it becomes known."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copies = [Path(place, str(number)) for number in range(jobs)]
        for copy in copies:
            copy_tree(root, copy)
        began = time.monotonic()
        coverage = measure(copies[0], tests, sources, jobs)
        allowed = START_SECONDS + 5 * (time.monotonic() - began) / 10
        workers = [Worker(copy, tests) for copy in copies]
        free: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            free.put(worker)

        def judge(planted: Planted) -> Outcome:
            own = coverage.tests_of(planted.path, planted.fault.line)
            chosen = own[:TESTS_MAX]
            if not chosen:
                return Outcome(planted, "untested", 0, 0)
            worker = free.get()
            try:
                verdict = worker.try_out(planted, chosen, allowed)
            finally:
                free.put(worker)
            return Outcome(planted, verdict, len(chosen), len(own) - len(chosen))

        try:
            with ThreadPoolExecutor(jobs) as pool:
                yield from pool.map(judge, faults)
        finally:
            for worker in workers:
                worker.close()


# -- the command -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, run, and list what survives; 1 if anything does without a reason."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="origin/main", help="commit to compare with")
    parser.add_argument("--root", type=Path, default=Path.cwd())
    parser.add_argument(
        "--sources", nargs="+", default=SOURCES, help="files or folders to plant in"
    )
    parser.add_argument("--tests", nargs="+", default=TESTS, help="tests to run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--faults", type=int, help="so many at most, chosen by chance")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    faults = list(planted_in(given.root, changed_lines(given.root, given.base, given.sources)))
    print(f"{len(faults)} faults in the lines changed since {given.base}", flush=True)
    if given.faults is not None and given.faults < len(faults):
        faults = sorted(random.Random(given.seed).sample(faults, given.faults))
        print(f"{len(faults)} of them are tried (seed {given.seed})", flush=True)
    if not faults:
        return 0
    answered = reasons(given.root / REASONS)
    verdicts: Counter[str] = Counter()
    folders = sorted({source.partition("/")[0] for source in given.sources})
    for outcome in run(given.root, faults, given.tests, folders, given.jobs):
        planted, fault = outcome.planted, outcome.planted.fault
        verdict, place = outcome.verdict, f"{planted.path}:{fault.line}:{fault.column}"
        if verdict in ("survived", "untested") and (reason := answered.get(planted.key)):
            verdict = "answered"
            print(f"answered  {place}: {fault}: {reason}", flush=True)
        elif verdict in ("survived", "untested"):
            left_out = f", {outcome.left_out} more not run" if outcome.left_out else ""
            print(
                f"{verdict:9} {place}: {fault}"
                f" ({outcome.tests} tests{left_out})\n          {fault.text}",
                flush=True,
            )
        verdicts[verdict] += 1
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return 1 if verdicts["survived"] or verdicts["untested"] else 0


if __name__ == "__main__":
    sys.exit(main())
