"""How costs grow with the number of partitions, segments, keys and producers, in steps of ten.

Each line is the time of one call at one size. `python -m logstore.bench --only 'growth/*'` measures
all of them; the largest log has 100 million records.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from logstore.bench.measuring import Run, Sample, Stopwatch, run_interleaved
from logstore.bench.micro.cleaning import MAP_BYTES, clean_with_logstore, copy_log
from logstore.bench.micro.figures import MS, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.micro.starting import PROGRAM, as_installed, process
from logstore.bench.report.result import Line
from logstore.broker import Broker
from logstore.runtime import VirtualClock
from logstore.ui.server import Ui

TOPIC = "growth"
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
CHUNK = 100_000
SEGMENT_RECORDS = 5

SMALL_MAP_BYTES = 2 << 20
"""A map for about 78,000 keys: a log with more keys needs several passes."""

Runs = dict[str, Run]


def _partitions(setting: Setting, count: int, home: Path) -> Iterator[tuple[str, list[Sample]]]:
    with Broker(home) as broker:
        _fill_partitions(broker, count)
    runs: Runs = {"open": partial(_open, home)}
    with as_installed(setting) as environment:
        for command in ("explain", "inspect"):
            arguments = (*PROGRAM, command, "--data-dir", str(home), "--format", "json")
            runs[command] = process(arguments, environment)
        yield from _samples(setting, runs)
    with Broker(home, read_only=True) as broker, Ui(broker) as ui:
        host, port = ui.address
        address = f"http://{host}:{port}/api/partitions"
        asked = Request(address, headers={"Authorization": f"Bearer {ui.token}"})

        def page() -> Sample:
            with Stopwatch() as watch, urlopen(asked) as answer:
                answer.read()
            return watch.sample

        yield from _samples(setting, {"page": page})
    with Broker(clock=VirtualClock(), background=True) as broker:
        _fill_partitions(broker, count)
        broker.clock.advance(days=10)  # complete all work for the records

        def minute() -> Sample:
            with Stopwatch() as watch:
                broker.clock.advance(minutes=1)
            return watch.sample

        yield from _samples(setting, {"minute": minute})


def _fill_partitions(broker: Broker, count: int) -> None:
    broker.create_topic(TOPIC, count, configs=COMPACTED)
    for partition in range(count):
        broker.append(TOPIC, key=b"key", value=b"value", partition=partition)


def _segments(setting: Setting, count: int, home: Path) -> Iterator[tuple[str, list[Sample]]]:
    with Broker(home) as broker:
        broker.create_topic(TOPIC, configs=COMPACTED)
        for segment in range(count):
            first = segment * SEGMENT_RECORDS
            records = [(b"%d" % key, b"value") for key in range(first, first + SEGMENT_RECORDS)]
            broker.append_many(TOPIC, records)
            broker.roll(TOPIC, 0)
    yield from _samples(
        setting,
        {
            "open": partial(_open, home),
            "read": partial(_read, home),
            "clean": partial(_clean, home),
        },
    )


def _keys(
    setting: Setting, count: int, home: Path, *, map_bytes: int
) -> Iterator[tuple[str, list[Sample]]]:
    with Broker(home) as broker:
        broker.create_topic(TOPIC, configs=COMPACTED)
        for first in range(0, count, CHUNK):
            keys = range(first, min(first + CHUNK, count))
            broker.append_many(TOPIC, [(b"%d" % key, b"value") for key in keys])
        broker.roll(TOPIC, 0)
    yield from _samples(setting, {"clean": partial(_clean, home, map_bytes)})


def _producers(setting: Setting, count: int, home: Path) -> Iterator[tuple[str, list[Sample]]]:
    with Broker(home) as broker:
        broker.create_topic(TOPIC, configs=COMPACTED)
        for number in range(count):
            with broker.producer() as producer:
                producer.send(TOPIC, b"value", b"%d" % number)
        broker.roll(TOPIC, 0)
    yield from _samples(setting, {"open": partial(_open, home), "clean": partial(_clean, home)})


def _open(home: Path) -> Sample:
    with Stopwatch() as watch:
        broker = Broker(home, read_only=True)
        for topic_partition in broker.partitions():
            broker.log(*topic_partition)
    broker.close()
    return watch.sample


def _read(home: Path) -> Sample:
    with Broker(home, read_only=True) as broker:
        broker.log(TOPIC, 0)
        with Stopwatch() as watch:
            for _ in broker.read(TOPIC):
                pass
    return watch.sample


def _clean(home: Path, map_bytes: int = MAP_BYTES) -> Sample:
    copy = copy_log(home, home.with_name("copy"))
    sample = clean_with_logstore(copy, map_bytes=map_bytes).sample
    shutil.rmtree(copy)
    return sample


def _samples(setting: Setting, runs: Runs) -> Iterator[tuple[str, list[Sample]]]:
    """Yield the samples of each call; the first run of each is a warm-up."""
    yield from run_interleaved(runs, repeats=setting.repeats, warmups=1).items()


class Axis(NamedTuple):
    """What grows: its sizes, the tasks measured at each of them, and the function that does it."""

    name: str
    sizes: tuple[int, ...]
    tasks: tuple[str, ...]
    measure: Callable[[Setting, int, Path], Iterator[tuple[str, list[Sample]]]]

    def line_name(self, task: str, count: int) -> str:
        """Return the name of a line."""
        return f"growth/{self.name.replace(', ', '-').replace(' ', '-')}-{task}-{count}"


_TO_10_000 = (1, 10, 100, 1000, 10_000)
_TO_A_MILLION = (1000, 10_000, 100_000, 1_000_000)

AXES = (
    Axis("partitions", _TO_10_000, ("open", "explain", "inspect", "page", "minute"), _partitions),
    Axis("segments", _TO_10_000, ("open", "read", "clean"), _segments),
    Axis(
        "keys",
        (*_TO_A_MILLION, 10_000_000, 100_000_000),
        ("clean",),
        partial(_keys, map_bytes=MAP_BYTES),
    ),
    Axis(
        "keys, small map",
        _TO_A_MILLION,
        ("clean",),
        partial(_keys, map_bytes=SMALL_MAP_BYTES),
    ),
    Axis("producers", (*_TO_10_000, 100_000), ("open", "clean"), _producers),
)


def _lines(setting: Setting, *, axis: Axis, count: int) -> Iterator[Line]:
    home = setting.scratch / "growth" / "data"
    for task, samples in axis.measure(setting, count, home):
        yield Line(
            name=axis.line_name(task, count),
            title=f"{task}, {count:,} {axis.name}",
            unit="ms",
            higher_is_better=False,
            here=costs(1, samples, MS),
            facts={"axis": axis.name, "task": task, "size": count},
        )
    shutil.rmtree(home.parent)


def jobs() -> Iterator[Job]:
    """Yield a job for each axis and size. `make bench` runs none of them."""
    for axis in AXES:
        for count in axis.sizes:
            names = tuple(axis.line_name(task, count) for task in axis.tasks)
            yield Job(names, False, partial(_lines, axis=axis, count=count))
