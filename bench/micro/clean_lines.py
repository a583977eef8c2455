"""Cleaning lines: five logs with goals, then a line for each axis."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from logstore.bench.measuring import Run, Sample, run_interleaved
from logstore.bench.micro.cleaning import (
    clean_with_kafka,
    clean_with_logstore,
    compare,
    compare_unpacked,
    copy_log,
)
from logstore.bench.micro.figures import speeds
from logstore.bench.micro.logs import GIB, KIB, MIB, LogShape, make_log
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.bench.rivals.kafka import KafkaPeer

FIVE_LOGS = {
    "clean/100B-12": ("100 B values, batches of ~100 records", LogShape(100, 0.12, 100)),
    "clean/100B-12-one": ("100 B values, one-record batches", LogShape(100, 0.12, 1)),
    "clean/1KiB-15": ("1 KiB values, 15 % survive", LogShape(KIB, 0.15, 16)),
    "clean/1KiB-2": ("1 KiB values, 2 % survive", LogShape(KIB, 0.02, 16)),
    "clean/10KiB-18": ("10 KiB values, 18 % survive", LogShape(10 * KIB, 0.18, 2)),
}
"""The logs for which cleaning has goals."""


WARM_UP = (LogShape(100, 0.12, 100), LogShape(KIB, 0.15, 16))
WARM_UP_S = 8.0
"""CPU seconds of warm-up, so that the JVM compiles Kafka's cleaner."""


def warm_kafka(setting: Setting) -> KafkaPeer | None:
    """Return Kafka's classes, warmed up on the first call, or None if they cannot run."""
    kafka = setting.kafka()
    if kafka is None or kafka.is_warm:
        return kafka
    setting.report(f"warming up Kafka's cleaner for {WARM_UP_S:.0f} s of CPU time")
    home = setting.scratch / "warm-up"
    spent = 0.0
    size = min(setting.total_bytes, 64 * MIB)
    shapes = [replace(shape, total_bytes=size) for shape in WARM_UP]
    for number, shape in enumerate(shapes):
        make_log(shape, home / f"log-{number}")
    least = min(1.0, setting.total_bytes / (64 * MIB)) * WARM_UP_S
    while spent < least:
        for number, shape in enumerate(shapes):
            copy = copy_log(home / f"log-{number}", home / "copy")
            spent += clean_with_kafka(kafka, copy, shape)[0].cpu_s
    shutil.rmtree(home)
    kafka.is_warm = True
    return kafka


def clean_line(
    name: str, title: str, shape: LogShape, setting: Setting, *, part: int = 1, total_bytes: int = 0
) -> Iterator[Line]:
    """Measure how this engine and Kafka clean a log, and compare the results.

    Parameters
    ----------
    part : int
        Divisor of the log size, for logs that are slow to generate.
    total_bytes : int
        Size of the log. [default: from the setting]

    Raises
    ------
    Difference
        The cleaned logs differ in bytes, or in records if batches are compressed.
    """
    shape = replace(shape, total_bytes=total_bytes or setting.total_bytes // part)
    home = setting.scratch / name.replace("/", "-")
    shutil.rmtree(home, ignore_errors=True)
    setting.report(f"{name}: generating a log of {shape.total_bytes / MIB:.0f} MiB")
    reports: list[dict] = []
    compared: list[int] = []
    of_thread: list[float] = []
    has_peer = shape.strategy == "offset"
    judge = compare if shape.codec == "none" else compare_unpacked

    def here() -> Sample:
        cleaned = clean_with_logstore(copy_log(home / "log", home / "here"))
        reports.append(cleaned.report)
        return cleaned.sample

    def there() -> Sample:
        sample, answers = clean_with_kafka(kafka, copy_log(home / "log", home / "there"), shape)
        of_thread.append(sum(each["thread_ns"] for each in answers) / 1e9 / sample.cpu_s)
        compared.append(judge(home / "here", home / "there"))
        return sample

    try:
        log_bytes = make_log(shape, home / "log")
        kafka = warm_kafka(setting) if has_peer else None
        contestants: dict[str, Run] = {"here": here}
        if kafka is not None:
            contestants["there"] = there
        setting.report(f"{name}: cleaning")
        samples = run_interleaved(contestants, repeats=setting.repeats, warmups=setting.warmups)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    passes = reports[-1]["cleaned"]
    read = sum(each["messages_read"] for each in passes)
    yield Line(
        name=name,
        title=title,
        unit="MB/s",
        higher_is_better=True,
        here=speeds(log_bytes, samples["here"]),
        peer=speeds(log_bytes, samples["there"]) if "there" in samples else None,
        peer_name=setting.kafka_name if has_peer else "Kafka 3.9 has only the strategy offset",
        facts={
            "log_bytes": log_bytes,
            "records": read,
            "survivors": round(sum(each["messages_written"] for each in passes) / read, 4),
            "passes": len(passes),
            "mapping_ms": sum(each["index_ms"] for each in passes),
            "rewriting_ms": sum(each["clean_ms"] for each in passes),
            "identical_bytes": compared[-1] if compared else None,
            "kafka_thread_share": round(median(of_thread), 3) if of_thread else None,
        },
    )


SIZES = {"64MiB": 64 * MIB, "256MiB": 256 * MIB, "1GiB": GIB, "4GiB": 4 * GIB, "8GiB": 8 * GIB}
VALUES = {"100B": 100, "1KiB": KIB, "10KiB": 10 * KIB}
CODECS = ("gzip", "snappy", "lz4", "zstd")
BATCH_BYTES = 16 * KIB
MEMORY_FILES = Path("/dev/shm")
"""Linux's in-memory file system. Without it, these lines use the disk."""


def shape_of(value_bytes: int, survivors: float, **others: Any) -> LogShape:
    """Return the shape of a log in batches of 16 KiB."""
    batch_records = max(1, BATCH_BYTES // (value_bytes + 20))
    return LogShape(value_bytes, survivors, batch_records, **others)


def jobs() -> Iterator[Job]:
    """Yield the jobs: the five logs, other kinds of logs, then each axis."""
    for name, (title, shape) in FIVE_LOGS.items():
        yield Job((name,), True, partial(clean_line, name, title, shape))
    yield from _kinds()
    yield from _in_memory()
    yield from _axes()
    yield from _tails_and_sizes()


def _kinds() -> Iterator[Job]:
    """Yield other kinds of logs. Logs that are slow to generate have a quarter of the size."""
    for value, size in list(VALUES.items())[:2]:
        for codec in CODECS:
            name, title = f"codec/{codec}-{value}", f"{value} values, {codec}, 12 % survive"
            shape = shape_of(size, 0.12, codec=codec)
            yield Job((name,), value == "100B", partial(clean_line, name, title, shape, part=4))
        name = f"mixed/{value}"
        title = f"{value} values, headers, tombstones, transactions, keys of 4 to 64 bytes"
        shape = shape_of(size, 0.12, mixed=True)
        yield Job((name,), value == "100B", partial(clean_line, name, title, shape))
        for strategy in ("timestamp", "header"):
            name, title = f"strategy/{strategy}-{value}", f"{value} values, strategy {strategy}"
            shape = shape_of(size, 0.12, strategy=strategy)
            yield Job((name,), False, partial(clean_line, name, title, shape, part=4))


def _in_memory() -> Iterator[Job]:
    """Yield logs on an in-memory file system, where disk time does not hide the kernels' time."""
    for value, survivors, batch in (
        *(
            ("100B", 10, "16KiB"),
            ("100B", 90, "16KiB"),
            ("1KiB", 10, "16KiB"),
            ("1KiB", 90, "16KiB"),
        ),
        *(("100B", 10, "one"), ("100B", 90, "one")),
    ):
        shape = shape_of(VALUES[value], survivors / 100)
        if batch == "one":
            shape = replace(shape, batch_records=1)
        name = f"tmpfs/{value}-{survivors}-{batch}"
        title = f"{value} values, {survivors} % survive, {batch} batches, files in memory"
        yield Job((name,), False, partial(_line_in_memory, name, title, shape))


def _line_in_memory(name: str, title: str, shape: LogShape, setting: Setting) -> Iterator[Line]:
    place = MEMORY_FILES if MEMORY_FILES.is_dir() else setting.scratch
    warm_kafka(setting)  # before the setting is copied, so that copies share the peer
    with tempfile.TemporaryDirectory(prefix="logstore-bench-", dir=place) as scratch:
        yield from clean_line(name, title, shape, replace(setting, scratch=Path(scratch)))


def _axes() -> Iterator[Job]:
    for value, size in VALUES.items():
        for survivors in (2, 10, 50, 90):
            for batch in ("one", "16KiB"):
                name = f"axes/{value}-{survivors}-{batch}"
                title = f"{value} values, {survivors} % survive, {batch} batches"
                shape = shape_of(size, survivors / 100)
                if batch == "one":
                    title = f"{value} values, {survivors} % survive, one-record batches"
                    shape = replace(shape, batch_records=1)
                yield Job((name,), False, partial(clean_line, name, title, shape))


def _tails_and_sizes() -> Iterator[Job]:
    for value, size in list(VALUES.items())[:2]:
        name = f"tail/{value}"
        title = f"{value} values, clean section ten times as large as the dirty one"
        shape = shape_of(size, 0.12, clean_tail=10)
        yield Job((name,), False, partial(clean_line, name, title, shape))
    for label, total in SIZES.items():
        name, title = f"size/{label}", f"1 KiB values, 15 % survive, {label}"
        shape = shape_of(KIB, 0.15)
        yield Job((name,), False, partial(clean_line, name, title, shape, total_bytes=total))
