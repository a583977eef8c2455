"""Cost of an open page to the cleaner: `python -m tests.support.browser.cost [MIB] [ROUNDS]`.

The same log is cleaned without a page and with Chromium showing it, in turn, each time from a fresh
copy. The cleaner's thread is measured by its CPU time, which other programs disturb least; wall
time and the page's CPU time in the same process are printed too.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from logstore import Broker
from logstore.bench.micro.logs import MIB, TOPIC, LogShape, make_log
from tests.support.browser.chromium import Visitor, chromium
from tests.support.browser.page import go
from tests.support.interop.judge import fast_scratch

PLACES = ("#/cleaner", f"#/t/{TOPIC}/0/history")


def main(total_mib: int = 1024, rounds: int = 5) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="page-cost-", dir=fast_scratch()))
    shape = LogShape(1024, 0.5, 16, total_bytes=total_mib * MIB)
    times: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    try:
        make_log(shape, scratch / "log")
        with chromium() as browser:
            _one(scratch, browser, is_watched=True)  # kernels, caches
            for _ in range(rounds):
                for is_watched in times:
                    times[is_watched].append(_one(scratch, browser, is_watched=is_watched))
                    thread_s, page_s, wall_s = times[is_watched][-1]
                    print(
                        f"{'watched' if is_watched else 'alone':8} cleaner {thread_s:6.2f} s CPU,"
                        f" page {page_s:5.2f} s CPU, {wall_s:6.2f} s"
                    )
    finally:
        shutil.rmtree(scratch)
    for number, name in ((0, "CPU of the cleaner's thread"), (2, "wall time")):
        alone, watched = (sorted(each[number] for each in times[is_it]) for is_it in times)
        print(
            f"{name}: alone {median(alone):.2f} s (least {alone[0]:.2f}),"
            f" watched {median(watched):.2f} s (least {watched[0]:.2f}):"
            f" {watched[0] / alone[0] - 1:+.1%} of the least,"
            f" {median(watched) / median(alone) - 1:+.1%} of the medians"
        )


def _one(scratch: Path, browser: object, *, is_watched: bool) -> tuple[float, float, float]:
    """Clean a copy; return CPU seconds of the cleaner and of the page, and seconds of wall time."""
    copy = scratch / "copy"
    shutil.copytree(scratch / "log", copy)
    try:
        with Broker(copy) as broker, Visitor(browser) as visitor:  # type: ignore[arg-type]
            if is_watched:
                ui = broker.ui()
                for place in PLACES:
                    go(visitor.visit(ui.url), place)
            before = time.thread_time(), time.process_time(), time.perf_counter()
            report = broker.clean(TOPIC, force=True, threads=1)
            after = time.thread_time(), time.process_time(), time.perf_counter()
            assert report.cleaned
    finally:
        shutil.rmtree(copy)
    thread_s, process_s, wall_s = (b - a for a, b in zip(before, after, strict=True))
    return thread_s, process_s - thread_s, wall_s


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
