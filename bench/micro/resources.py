"""Resource lines: memory of a cleaning pass by log size, and use of several cores."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from logstore.bench.measuring import Sample, run_interleaved
from logstore.bench.micro.clean_lines import SIZES
from logstore.bench.micro.cleaning import MAP_BYTES, clean_with_logstore, copy_log
from logstore.bench.micro.figures import MS, speeds, wall_only
from logstore.bench.micro.logs import KIB, MIB, LogShape, make_log
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.micro.starting import WORKER, worker
from logstore.bench.report.result import Figures, Line
from logstore.cleaner.passes.offset_map import WINNERS_MAX, OffsetMap

COLD_THREADS = (2, 4)
WARM_UP = LogShape(KIB, 0.15, 16, total_bytes=MIB)


def _memory(setting: Setting, *, label: str, total_bytes: int) -> Iterator[Line]:
    home = setting.scratch / "memory"
    shape = LogShape(KIB, 0.15, 16, total_bytes=min(total_bytes, 32 * setting.total_bytes))
    make_log(WARM_UP, home / "warm")
    make_log(shape, home / "log")
    grown, over = [], []
    for _ in range(setting.repeats):
        warm, copy = copy_log(home / "warm", home / "a"), copy_log(home / "log", home / "b")
        answer = worker("memory", str(warm), str(copy), str(MAP_BYTES))
        key_map = OffsetMap(MAP_BYTES, max_entries=shape.records)
        bits = min(shape.records // 8, WINNERS_MAX // 8)
        grown.append(answer["grown_bytes"] / MIB)
        over.append((answer["grown_bytes"] - key_map.slots.nbytes - bits) / MIB)
    shutil.rmtree(home)
    yield Line(
        name=f"memory/{label}",
        title=f"memory for cleaning {label}, without the map and one bit per dirty offset",
        unit="MiB",
        higher_is_better=False,
        here=Figures([max(0.0, each) for each in over]),
        facts={"grown_mib": [round(each, 1) for each in grown], "records": shape.records},
    )


def _threads(setting: Setting) -> Iterator[Line]:
    """Clean two partitions with one thread, with two threads, and with two processes."""
    home = setting.scratch / "threads"
    whole = LogShape(100, 0.12, 100, total_bytes=setting.total_bytes // 2, partitions=2)
    half = LogShape(100, 0.12, 100, total_bytes=setting.total_bytes // 2)
    make_log(WARM_UP, home / "warm")
    make_log(half, home / "half")
    log_bytes = make_log(whole, home / "log")

    def by_threads(threads: int) -> Sample:
        return clean_with_logstore(copy_log(home / "log", home / "copy"), threads=threads).sample

    contestants = {
        "one": partial(by_threads, 1),
        "two": partial(by_threads, 2),
        "processes": partial(_clean_in_two_processes, home),
    }
    samples = run_interleaved(contestants, repeats=setting.repeats, warmups=setting.warmups)
    shutil.rmtree(home)
    figures = {name: wall_only(speeds(log_bytes, each)) for name, each in samples.items()}
    yield Line(
        name="threads/2",
        title="two partitions, two threads vs. one, wall time",
        unit="MB/s",
        higher_is_better=True,
        here=figures["two"],
        peer=figures["one"],
        peer_name="one thread",
        facts={"log_bytes": log_bytes},
    )
    yield Line(
        name="threads/processes",
        title="two partitions, two processes vs. one thread: the machine's limit, wall time",
        unit="MB/s",
        higher_is_better=True,
        here=figures["processes"],
        peer=figures["one"],
        peer_name="one thread",
        facts={"log_bytes": log_bytes},
    )


def _cold(setting: Setting) -> Iterator[Line]:
    """Measure the first cleaning pass of a new process, with one, two and four threads.

    The compiled kernels are cached. All threads load them at the same time, and call some of them
    for each of many compressed batches. Other lines are measured after a warm-up in one thread.
    """
    home = setting.scratch / "cold"
    size = setting.total_bytes // 32
    shape = LogShape(100, 0.12, 100, total_bytes=size, partitions=8, codec="lz4", mixed=True)
    log_bytes = make_log(shape, home / "log")

    def by_threads(threads: int) -> Sample:
        copy = copy_log(home / "log", home / "copy")
        answer = worker(
            "cold", str(copy), str(threads), environment={"LOGSTORE_KERNELS": "compiled"}
        )
        return Sample(answer["cpu_s"], answer["wall_s"])

    contestants = {threads: partial(by_threads, threads) for threads in (1, *COLD_THREADS)}
    warmups = max(1, setting.warmups)  # fill the caches of kernels and byte code
    samples = run_interleaved(contestants, repeats=setting.repeats, warmups=warmups)
    shutil.rmtree(home)
    figures = {name: wall_only(speeds(log_bytes, each)) for name, each in samples.items()}
    for threads in COLD_THREADS:
        yield Line(
            name=f"threads/cold-{threads}",
            title=f"first cleaning in a new process, eight partitions, {threads} threads vs. one,"
            " kernels precompiled, wall time",
            unit="MB/s",
            higher_is_better=True,
            here=figures[threads],
            peer=figures[1],
            peer_name="one thread",
            facts={
                "log_bytes": log_bytes,
                "cpu_ms": [round(each.cpu_s * MS, 1) for each in samples[threads]],
                "cpu_ms_one": [round(each.cpu_s * MS, 1) for each in samples[1]],
            },
        )


def _clean_in_two_processes(home: Path) -> Sample:
    """Clean two logs in two concurrent processes, which is the limit for two cores."""
    running = [
        subprocess.Popen(
            [
                *(*WORKER, "clean"),
                str(copy_log(home / "warm", home / f"warm-{number}")),
                str(copy_log(home / "half", home / f"half-{number}")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for each in running:
        assert each.stdout.readline() == "ready\n"
    for each in running:
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = [json.loads(each.communicate()[0]) for each in running]
    return Sample(sum(each["cpu_s"] for each in answers), max(each["wall_s"] for each in answers))


def jobs() -> Iterator[Job]:
    """Yield the jobs about threads, then memory by the size of the log."""
    yield Job(("threads/2", "threads/processes"), True, _threads)
    yield Job(tuple(f"threads/cold-{threads}" for threads in COLD_THREADS), True, _cold)
    for label in SIZES:
        measure = partial(_memory, label=label, total_bytes=SIZES[label])
        yield Job((f"memory/{label}",), label == "256MiB", measure)
