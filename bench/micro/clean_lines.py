"""Lines about cleaning: the five logs of the goals, then every axis by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from logstore.bench.measuring import Run, Sample, in_turn
from logstore.bench.micro.cleaning import clean_here, clean_there, compare, copy_of
from logstore.bench.micro.figures import speeds
from logstore.bench.micro.logs import KIB, MIB, LogShape, make_log
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
"""The logs that the goals of cleaning speak of."""


WARM_UP = (LogShape(100, 0.12, 100), LogShape(KIB, 0.15, 16))
WARM_UP_S = 8.0
"""CPU seconds that Kafka's cleaner works before any line counts, so that it is all compiled."""


def warmed_kafka(setting: Setting) -> KafkaPeer | None:
    """Return Kafka's classes, warmed when they were first asked for; None where they cannot run."""
    kafka = setting.kafka()
    if kafka is None or kafka.is_warm:
        return kafka
    setting.say(f"warming Kafka's cleaner for {WARM_UP_S:.0f} s of CPU")
    home = setting.scratch / "warm-up"
    spent = 0.0
    size = min(setting.total_bytes, 64 * MIB)
    shapes = [replace(shape, total_bytes=size) for shape in WARM_UP]
    for number, shape in enumerate(shapes):
        make_log(shape, home / f"log-{number}")
    least = min(1.0, setting.total_bytes / (64 * MIB)) * WARM_UP_S
    while spent < least:
        for number, shape in enumerate(shapes):
            copy = copy_of(home / f"log-{number}", home / "copy")
            spent += clean_there(kafka, copy, shape)[0].cpu_s
    shutil.rmtree(home)
    kafka.is_warm = True
    return kafka


def clean_line(name: str, title: str, shape: LogShape, setting: Setting) -> Iterator[Line]:
    """Measure the cleaning of one log here and by Kafka, and compare what they left.

    Raises
    ------
    Difference
        The two do not leave the same bytes.
    """
    shape = replace(shape, total_bytes=setting.total_bytes)
    home = setting.scratch / name.replace("/", "-")
    shutil.rmtree(home, ignore_errors=True)
    setting.say(f"{name}: making a log of {shape.total_bytes >> 20} MiB")
    try:
        log_bytes = make_log(shape, home / "log")
        kafka = warmed_kafka(setting) if shape.strategy == "offset" else None
        reports: list[dict] = []

        def here() -> Sample:
            cleaned = clean_here(copy_of(home / "log", home / "here"))
            reports.append(cleaned.report)
            return cleaned.sample

        def there() -> Sample:
            sample, _ = clean_there(kafka, copy_of(home / "log", home / "there"), shape)
            compared.append(compare(home / "here", home / "there"))
            return sample

        compared: list[int] = []
        contestants: dict[str, Run] = {"here": here}
        if kafka is not None:
            contestants["there"] = there
        setting.say(f"{name}: cleaning")
        samples = in_turn(contestants, repeats=setting.repeats, warmups=setting.warmups)
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
        peer_name=setting.kafka_name if shape.strategy == "offset" else "Kafka has one strategy",
        facts={
            "log_bytes": log_bytes,
            "records": read,
            "survivors": round(sum(each["messages_written"] for each in passes) / read, 4),
            "passes": len(passes),
            "identical_bytes": compared[-1] if compared else None,
        },
    )


def jobs() -> Iterator[Job]:
    """Yield the cleaning lines, the five logs first."""
    for name, (title, shape) in FIVE_LOGS.items():
        yield Job((name,), True, partial(clean_line, name, title, shape))
