"""Virtual-time line: an idle day of a broker."""

from __future__ import annotations

from collections.abc import Iterator

from logstore.bench.measuring import Sample, Stopwatch, no_collection
from logstore.bench.micro.figures import MS, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.broker import Broker
from logstore.runtime import VirtualClock

PARTITIONS = 100


def _day(setting: Setting) -> Iterator[Line]:
    with Broker(clock=VirtualClock(), background=True) as broker:
        broker.create_topic("idle", PARTITIONS, {"cleanup.policy": "compact"})
        for number in range(PARTITIONS):
            broker.append("idle", key=b"key", value=b"value", partition=number)
        broker.clock.advance(days=10)  # complete all work for the records

        def run() -> Sample:
            with no_collection(), Stopwatch() as watch:
                broker.clock.advance(days=1)
            return watch.sample

        samples = setting.samples(run)
    yield Line(
        name="idle/day",
        title=f"one day of virtual time, {PARTITIONS} idle partitions",
        unit="ms",
        higher_is_better=False,
        here=costs(1, samples, MS),
        facts={"partitions": PARTITIONS},
    )


def jobs() -> Iterator[Job]:
    """Yield the job of the only line."""
    yield Job(("idle/day",), True, _day)
