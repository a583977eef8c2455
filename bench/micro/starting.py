"""Start-up lines: commands as processes, the first broker, the first cleaning pass."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from logstore.bench.measuring import Run, Sample, run_interleaved
from logstore.bench.micro.figures import MEGA, MS, costs, speeds, wall_only
from logstore.bench.micro.logs import KIB, MIB, TOPIC, LogShape, make_log
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.bench.rivals.kafka import Unavailable, class_path
from logstore.bench.rivals.processes import cpu_s, wait_for_apis

PROGRAM = (sys.executable, "-m", "logstore")
WORKER = (sys.executable, "-m", "logstore.bench.micro.worker")

INSPECTED_BATCHES = 64 * KIB
DUMPED_BYTES = 4 * MIB


def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Return a run of a process from start to exit. Output is discarded."""

    def run() -> Sample:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        wall_s = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Sample(spent_s, wall_s)

    return run


@contextmanager
def as_installed(setting: Setting) -> Iterator[dict[str, str]]:
    """Yield an environment that caches byte code, as for an installed package.

    If byte code cannot be written, as in many containers, each start compiles all modules, which
    doubles its time.
    """
    with TemporaryDirectory(dir=setting.scratch) as prefix:
        yield {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": prefix}


def worker(*arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a task of `worker` in a separate process, and return its JSON output."""
    done = subprocess.run(
        [*WORKER, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _command(setting: Setting, *, name: str) -> Iterator[Line]:
    home = setting.scratch / "start"
    batches = setting.share_of(INSPECTED_BATCHES)
    shape = LogShape(20, 0.5, 1, total_bytes=batches * LogShape(20, 0.5, 1).record_bytes)
    make_log(shape, home)
    arguments = {
        "help": ("--help",),
        "topic": ("topic", "list", "--data-dir", str(home)),
        "inspect": ("inspect", TOPIC, "--data-dir", str(home)),
    }[name]
    with as_installed(setting) as environment:
        run = process((*PROGRAM, *arguments), environment)
        warmups = max(1, setting.warmups)  # fills the byte code cache
        samples = run_interleaved({"here": run}, repeats=setting.short_repeats, warmups=warmups)[
            "here"
        ]
    shutil.rmtree(home)
    yield Line(
        name=f"start/{name}",
        title=f"logstore {arguments[0]}, process start to exit, wall time",
        unit="ms",
        higher_is_better=False,
        here=wall_only(costs(1, samples, MS)),
        facts={
            "cpu_ms": [round(each.cpu_s * MS, 1) for each in samples],
            **({"batches": shape.records} if name == "inspect" else {}),
        },
    )


def _first_records(setting: Setting) -> Iterator[Line]:
    with as_installed(setting) as environment:
        worker("first_records", environment=environment)  # fills the byte code cache
        answers = [
            worker("first_records", environment=environment) for _ in range(setting.short_repeats)
        ]
    samples = [Sample(each["cpu_s"], each["wall_s"]) for each in answers]
    yield Line(
        name="start/broker",
        title="import logstore, open a broker in memory, append and read ten records, wall time",
        unit="ms",
        higher_is_better=False,
        here=wall_only(costs(1, samples, MS)),
    )


def _serve(setting: Setting) -> Iterator[Line]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    samples = []
    with as_installed(setting) as environment:
        for _ in range(setting.short_repeats + 1):  # the first one fills the byte code cache
            began = time.perf_counter()
            with subprocess.Popen(
                (*PROGRAM, "serve", "--memory", "--listen", address),
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
            ) as served:
                wait_for_apis(address)
                wall_s = time.perf_counter() - began
                samples.append(Sample(cpu_s(served.pid), wall_s))
                served.terminate()
    del samples[0]
    yield Line(
        name="start/serve",
        title="logstore serve, process start to the first answer, wall time",
        unit="ms",
        higher_is_better=False,
        here=wall_only(costs(1, samples, MS)),
        facts={"cpu_ms": [round(each.cpu_s * MS) for each in samples]},
    )


def _first_cleaning(setting: Setting) -> Iterator[Line]:
    samples = []
    for _ in range(max(1, setting.repeats - 1)):
        cache = setting.scratch / "cache"
        answer = worker("first_cleaning", environment={"NUMBA_CACHE_DIR": str(cache)})
        samples.append(Sample(answer["cpu_s"], answer["wall_s"]))
        shutil.rmtree(cache, ignore_errors=True)
    yield Line(
        name="start/first-cleaning",
        title="first cleaning of 1,000 records in memory, without compiled kernels",
        unit="s",
        higher_is_better=False,
        here=costs(1, samples, 1),
    )


def _dump(setting: Setting) -> Iterator[Line]:
    home = setting.scratch / "dump"
    size = min(DUMPED_BYTES, setting.total_bytes)
    shape = LogShape(100, 0.5, 100, total_bytes=4 * size)  # only the first segment is dumped
    make_log(shape, home)
    path = min((home / f"{TOPIC}-0").glob("*.log"))
    why_not = "peers were excluded"
    contestants = {"here": process((*PROGRAM, "dump", str(path), "--print-data-log"))}
    if setting.has_peers:
        try:
            classes = class_path()
        except Unavailable as error:
            why_not = f"Kafka's classes did not run: {error}"
        else:
            tool = ("java", "-cp", classes, "kafka.tools.DumpLogSegments")
            contestants["there"] = process((*tool, "--print-data-log", "--files", str(path)))
    samples = run_interleaved(contestants, repeats=setting.repeats, warmups=setting.warmups)
    dumped = path.stat().st_size
    shutil.rmtree(home)
    yield Line(
        name="start/dump",
        title="dump --print-data-log vs. kafka-dump-log, both as processes",
        unit="MB/s",
        higher_is_better=True,
        here=speeds(dumped, samples["here"], MEGA),
        peer=speeds(dumped, samples["there"], MEGA) if "there" in samples else None,
        peer_name="kafka-dump-log" if "there" in samples else why_not,
        facts={"bytes": dumped},
    )


def jobs() -> Iterator[Job]:
    """Yield the commands, the first broker, the first cleaning pass, and a dump."""
    for name in ("help", "topic", "inspect"):
        yield Job((f"start/{name}",), True, partial(_command, name=name))
    yield Job(("start/serve",), True, _serve)
    yield Job(("start/broker",), True, _first_records)
    yield Job(("start/first-cleaning",), True, _first_cleaning)
    yield Job(("start/dump",), True, _dump)
