"""The long profile of the fuzz targets; called by `make fuzz` and `make boundscheck`.

`python -m tests.fuzz.run --executions 1000000` spreads executions over the targets by weight;
`--seconds 60` runs as long in all. `--engine atheris` lets coverage guide the mutations (one
process a target), `--engine seeded` needs nothing installed and repeats itself with `--seed`;
the default uses atheris if it can be imported. Failures are minimized and saved in
`tests/fuzz/crashes`. The last input is in `tests/fuzz/crashes/<target>.last`, in case the process
itself dies or hangs.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import logging
import mmap
import os
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

# Inputs are small, and would run kernels as Python: those under test are the compiled ones.
os.environ.setdefault("LOGSTORE_KERNELS", "compiled")

ROOT = Path(__file__).resolve().parents[2]

HANG_SECONDS = 60
MEMORY_BYTES = 1 << 30
"""Memory that a run may use in addition to its use after all kernels were compiled."""

LAST_SIZE = (1 << 16) + 8


class LastInput:
    """The input that is being run, in a mapped file that outlives the process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb+") as file:
            file.truncate(LAST_SIZE)
            self._map = mmap.mmap(file.fileno(), LAST_SIZE)

    def put(self, data: bytes) -> None:
        data = data[: LAST_SIZE - 8]
        self._map[: 8 + len(data)] = len(data).to_bytes(8, "big") + data


def limit_memory() -> None:
    """Let allocations beyond the bound fail, which a target then reports."""
    status = Path("/proc/self/statm")
    if status.exists():
        pages = int(status.read_text().split()[0])
        bound = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def shares(names: list[str], executions: int) -> dict[str, int]:
    from tests.fuzz.campaign import TARGETS

    total = sum(TARGETS[name].weight for name in names)
    return {name: -(-executions * TARGETS[name].weight // total) for name in names}


def run_seeded(names: list[str], options: argparse.Namespace) -> dict[str, dict]:
    """Run every target in this process with the seeded mutator."""
    from tests.fuzz import campaign

    campaign.warm_up()
    limit_memory()
    report = {}
    for name, count in shares(names, options.executions or 10**9).items():
        seconds = options.seconds / len(names) if options.seconds else None
        findings = campaign.Findings(name)
        last = LastInput(campaign.CRASHES / f"{name}.last")
        started = time.monotonic()
        executed = 0
        kept = campaign.corpus_of(name).values()
        for data in kept:
            findings.execute(data)
        for data in campaign.mutants(name, options.seed):
            if executed >= count:
                break
            if executed % 256 == 0:
                faulthandler.dump_traceback_later(HANG_SECONDS + seconds_of(name), exit=True)
                if seconds is not None and time.monotonic() - started > seconds:
                    break
            last.put(data)
            findings.execute(data)
            executed += 1
        faulthandler.cancel_dump_traceback_later()
        findings.minimise()
        report[name] = finish(findings, executed + len(kept), time.monotonic() - started)
    return report


def seconds_of(name: str) -> int:
    """256 executions of the slowest targets take a few seconds; far more when uncompiled."""
    del name
    return 600 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60


def finish(findings, executed: int, seconds: float) -> dict:
    saved = findings.save()
    entry = {
        "executions": executed,
        "seconds": round(seconds, 1),
        "outcomes": dict(findings.outcomes),
        "failures": [list(signature) for signature in findings.failures],
        "saved": [path.name for path in saved],
    }
    show(findings.name, entry)
    return entry


def show(name: str, entry: dict) -> None:
    counts = ", ".join(f"{key} {value}" for key, value in sorted(entry["outcomes"].items()))
    print(f"{name:20} {entry['executions']:>9} in {entry['seconds']:>7} s: {counts}", flush=True)
    for (kind, place), file in zip(entry["failures"], entry["saved"], strict=True):
        print(f"  FAILED {kind} at {place}: crashes/{name}/{file}", flush=True)


# --- atheris ------------------------------------------------------------------------------------


def run_atheris(names: list[str], options: argparse.Namespace) -> dict[str, dict]:
    """Run each target in a process of its own, since a fuzzing engine never returns."""
    report = {}
    for name, count in shares(names, options.executions or 10**9).items():
        command = [sys.executable, "-m", "tests.fuzz.run", "--child", name]
        command += ["--executions", str(count), "--seed", str(options.seed)]
        if options.seconds:
            command += ["--seconds", str(options.seconds / len(names))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            entry = {"executions": 0, "seconds": 0.0, "outcomes": {}, "saved": [f"{name}.last"]}
            entry["failures"] = [[f"exit code {done.returncode}", "the process died or hung"]]
        else:
            entry = json.loads(lines[-1])
        show(name, entry)
        report[name] = entry
    return report


def compiled_modules() -> list[str]:
    """Return the modules that numba compiles; counters in their bytecode would be compiled along.

    Nothing of `logstore` is imported for it: that is done with the counters.
    """
    modules = []
    for package, folder in (("logstore", "logstore"), ("logstore.cleaner", "cleaner")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = path.relative_to(ROOT / folder).with_suffix("").parts
            if "kernels" in names or names[0] == "jit":
                modules.append(".".join((package, *names)).removesuffix(".__init__"))
    return modules


def child(name: str, options: argparse.Namespace) -> None:
    """Run one target under atheris; print the report as JSON and leave."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional

    with atheris.instrument_imports(include=["logstore"], exclude=compiled_modules()):
        from tests.fuzz import campaign

    import random

    from tests.fuzz.mutate import mutate

    campaign.warm_up()
    limit_memory()
    findings = campaign.Findings(name)
    last = LastInput(campaign.CRASHES / f"{name}.last")
    starts = campaign.starts_of(name)
    shape = findings.target.shape
    executed = 0
    started = time.monotonic()

    def report() -> None:
        findings.minimise()
        saved = findings.save()
        entry = {
            "executions": executed,
            "seconds": round(time.monotonic() - started, 1),
            "outcomes": dict(findings.outcomes),
            "failures": [list(signature) for signature in findings.failures],
            "saved": [path.name for path in saved],
        }
        print(json.dumps(entry), flush=True)
        os._exit(0)

    def test_one_input(data: bytes) -> None:
        nonlocal executed
        if executed >= options.executions or (
            options.seconds and executed % 64 == 0 and time.monotonic() - started > options.seconds
        ):
            report()
        last.put(data)
        findings.execute(data)
        executed += 1

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.25:
            return atheris.Mutate(data, max_size)
        # Mutations accumulate damage, so restart from a seed now and then.
        start = rng.choice(starts) if rng.random() < 0.3 else data
        return mutate(rng, start, shape, starts)[:max_size]

    work = campaign.CRASHES / f"{name}.work"
    work.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(starts):
        (work / f"start-{number}").write_bytes(data)
    arguments = [sys.argv[0], str(work), f"-seed={options.seed + 1}", "-verbosity=0"]
    arguments += [f"-max_len={1 << 12}", f"-timeout={HANG_SECONDS}", "-rss_limit_mb=0"]
    atheris.Setup(arguments, test_one_input, custom_mutator=mutator)
    atheris.Fuzz()


# --- the command --------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="by default all")
    parser.add_argument("--executions", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("auto", "atheris", "seeded"), default="auto")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.executions and not options.seconds:
        options.executions = 1_000_000
    logging.disable(logging.ERROR)
    warnings.simplefilter("error")
    faulthandler.enable()
    if options.child:
        child(options.child, options)
        return 0
    from tests.fuzz.campaign import TARGETS

    names = options.targets or list(TARGETS)
    engine = options.engine
    if engine == "auto":
        engine = "atheris" if importlib.util.find_spec("atheris") else "seeded"
        if engine == "seeded":
            print("atheris cannot be imported; mutating without coverage (see make fuzz)")
    bounds = " with array bounds checked" if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else ""
    print(f"{engine} engine, seed {options.seed}{bounds}", flush=True)
    report = (run_atheris if engine == "atheris" else run_seeded)(names, options)
    total = sum(entry["executions"] for entry in report.values())
    failed = sum(len(entry["failures"]) for entry in report.values())
    outcomes: Counter[str] = Counter()
    for entry in report.values():
        outcomes.update(entry["outcomes"])
    print(f"{total} executions: {dict(outcomes.most_common())}")
    print(f"{failed} failures" if failed else "no failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
