"""Keep the new inputs of a coverage-guided run: `python -m tests.fuzz.distil`.

Takes the inputs that atheris left in `crashes/<target>.work` and adds to `corpus/<target>` the
few small ones that, one after another, reach lines of the engine which nothing kept reaches yet.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterable

from tests.fuzz.campaign import CORPUS, CRASHES, HERE, TARGETS, Findings, starts_of

ROOT = str(HERE.parents[1])
ENGINE = (f"{ROOT}/logstore/", f"{ROOT}/cleaner/")
SIZE_MAX = 600
KEPT_MAX = 12

Line = tuple[str, int, int]


def lines_of(findings: Findings, data: bytes) -> set[Line]:
    """Run a target on an input; return the steps from line to line that it takes."""
    steps: set[Line] = set()
    previous = 0

    def local(frame, event, _):
        nonlocal previous
        if event == "line":
            steps.add((frame.f_code.co_filename, previous, frame.f_lineno))
            previous = frame.f_lineno
        return local

    def trace(frame, _event, _):
        return local if frame.f_code.co_filename.startswith(ENGINE) else None

    sys.settrace(trace)
    try:
        findings.execute(data)
    finally:
        sys.settrace(None)
    return steps


def distil(name: str, candidates: Iterable[bytes]) -> int:
    """Add the inputs that reach further to the corpus of a target; return how many."""
    findings = Findings(name)
    reached: set[Line] = set()
    for data in starts_of(name):
        reached |= lines_of(findings, data)
    added = 0
    for data in sorted(set(candidates), key=lambda data: (len(data), data)):
        if len(data) > SIZE_MAX or added == KEPT_MAX:
            break
        steps = lines_of(findings, data)
        if steps - reached:
            reached |= steps
            path = CORPUS / name / f"reach-{hashlib.sha256(data).hexdigest()[:12]}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            added += 1
    return added


def main() -> None:
    logging.disable(logging.ERROR)
    for name in TARGETS:
        work = CRASHES / f"{name}.work"
        found = [path.read_bytes() for path in work.glob("*")] if work.is_dir() else []
        print(f"{name}: {distil(name, found)} of {len(found)} kept")


if __name__ == "__main__":
    main()
