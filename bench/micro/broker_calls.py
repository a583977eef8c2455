"""Broker lines: time per record of appending, producing and reading."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from logstore.bench.measuring import Run, Sample, Stopwatch, no_collection
from logstore.bench.micro.figures import NS, US, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.broker import Broker

TOPIC = "bench"
VALUE = bytes(range(100))
KEYS = [b"key-%012d" % number for number in range(1000)]

SINGLE_RECORDS = 20_000
MANY_RECORDS = 200_000
ROOMY_BYTES = 1 << 29
"""Batch size that is never reached."""


def _append(setting: Setting, *, on_disk: bool) -> Iterator[Line]:
    data_dir = setting.scratch / "broker-calls"
    count = setting.share_of(SINGLE_RECORDS)
    keys = [KEYS[number % len(KEYS)] for number in range(count)]

    def run() -> Sample:
        shutil.rmtree(data_dir, ignore_errors=True)
        with Broker(data_dir if on_disk else None) as broker:
            broker.create_topic(TOPIC)
            append = broker.append
            with no_collection(), Stopwatch() as watch:
                for key in keys:
                    append(TOPIC, key=key, value=VALUE)
        return watch.sample

    yield Line(
        name="api/append-disk" if on_disk else "api/append",
        title="Broker.append" + (", on disk" if on_disk else ", in memory"),
        unit="µs/record",
        higher_is_better=False,
        here=costs(count, setting.samples(run), US),
        facts={"records": count, "value_bytes": len(VALUE)},
    )
    shutil.rmtree(data_dir, ignore_errors=True)


def _append_many(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(MANY_RECORDS)
    records = [(KEYS[number % len(KEYS)], VALUE) for number in range(count)]

    def run() -> Sample:
        with Broker() as broker:
            broker.create_topic(TOPIC)
            with no_collection(), Stopwatch() as watch:
                broker.append_many(TOPIC, records)
        return watch.sample

    yield _cost_line("api/append_many", "Broker.append_many, in memory", setting, run, count)


def _send(setting: Setting, *, is_stored: bool) -> Iterator[Line]:
    count = setting.share_of(SINGLE_RECORDS)
    keys = [KEYS[number % len(KEYS)] for number in range(count)]
    configs = {} if is_stored else {"max.message.bytes": str(ROOMY_BYTES)}
    batch = {} if is_stored else {"batch_size": ROOMY_BYTES}

    def run() -> Sample:
        with Broker() as broker:
            broker.create_topic(TOPIC, configs=configs)
            with broker.producer(linger_ms=3_600_000, **batch) as producer:
                send = producer.send
                with no_collection(), Stopwatch() as watch:
                    for key in keys:
                        send(TOPIC, VALUE, key)
        return watch.sample

    target = "batches of 16 KiB, full ones are appended" if is_stored else "one open batch"
    yield Line(
        name="api/send" if is_stored else "api/send-accumulator",
        title=f"producer.send into {target}",
        unit="µs/record",
        higher_is_better=False,
        here=costs(count, setting.samples(run), US),
        facts={"records": count, "value_bytes": len(VALUE)},
    )


def _read(setting: Setting) -> Iterator[Line]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        count = setting.share_of(MANY_RECORDS)
        broker.append_many(TOPIC, [(KEYS[number % len(KEYS)], VALUE) for number in range(count)])

        def run() -> Sample:
            with no_collection(), Stopwatch() as watch:
                deque(((each.key, each.value) for each in broker.read(TOPIC)), maxlen=0)
            return watch.sample

        yield _cost_line("api/read", "Broker.read, keys and values", setting, run, count)


def _cost_line(name: str, title: str, setting: Setting, run: Run, count: int) -> Line:
    return Line(
        name=name,
        title=title,
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, setting.samples(run), NS),
        facts={"records": count, "value_bytes": len(VALUE)},
    )


def jobs() -> Iterator[Job]:
    """Yield a job for each call, slowest first."""
    calls: dict[str, Callable[[Setting], Iterator[Line]]] = {
        "api/append": partial(_append, on_disk=False),
        "api/append-disk": partial(_append, on_disk=True),
        "api/append_many": _append_many,
        "api/send": partial(_send, is_stored=True),
        "api/send-accumulator": partial(_send, is_stored=False),
        "api/read": _read,
    }
    for name, measure in calls.items():
        yield Job((name,), True, measure)
