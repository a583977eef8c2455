"""Thousands of partitions: what looks at all of them costs each as much as it costs one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from logstore import Broker, VirtualClock
from logstore.analysis.summary import inspect_partition
from logstore.runtime import MemoryFileSystem
from tests.support.world.effort import CountedCalls, lines_run

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": 400, "min.cleanable.dirty.ratio": 0}


CLEAN, UNCLEAN = "stopped cleanly", "not stopped cleanly"
UNCLEAN_WITHOUT_INDEXES = "nor with its indexes"


def explain(broker: Broker) -> None:
    assert len(broker.explain().partitions) == len(broker.partitions())


def inspect(broker: Broker) -> None:
    for tp in broker.partitions():
        assert inspect_partition(broker, tp).records == 6


def retain(broker: Broker) -> None:
    assert len(broker.retain(dry_run=True).decisions) == len(broker.partitions())


def stats(broker: Broker) -> None:
    for tp in broker.partitions():
        assert broker.stats(tp).records == 6


def clean_dry_run(broker: Broker) -> None:
    assert len(broker.clean(dry_run=True, force=True).cleaned) == len(broker.partitions())


def choose(broker: Broker) -> None:
    for tp in broker.partitions():
        broker.log(*tp)
    assert broker.cleaner.chooser.select() is not None


WORKS: dict[str, Callable[[Broker], None]] = {
    each.__name__: each for each in (explain, inspect, stats, clean_dry_run, retain, choose)
}


@cache
def directory_of(partitions: int, *, adopted: bool, stop: str = CLEAN) -> MemoryFileSystem:
    """Make a data directory of topics with two partitions each, which are only read from then on.

    Making it takes longer than all that is measured.

    Parameters
    ----------
    stop : str
        `CLEAN`, `UNCLEAN`, or `UNCLEAN_WITHOUT_INDEXES`.
    """
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    with Broker("/data", clock=clock, fs=fs, seed=1) as broker:
        for number in range(partitions // 2):
            broker.create_topic(f"topic-{number}", 2, CONFIGS)
            for partition in range(2):
                for value in (b"1", b"2", b"3"):
                    broker.append(f"topic-{number}", value=value, key=b"key", partition=partition)
                broker.roll(f"topic-{number}", partition)
                for value in (b"4", b"5", b"6"):
                    broker.append(f"topic-{number}", value=value, key=b"key", partition=partition)
    checkpoint = "".join(f"topic-{n} {p} 2\n" for n in range(partitions // 2) for p in range(2))
    file = fs.open("/data/cleaner-offset-checkpoint", create=True)
    file.append([b"0\n%d\n" % partitions, checkpoint.encode()])
    file.close()
    if adopted:
        fs.remove("/data/logstore-topics.json")
    if stop != CLEAN:
        fs.remove("/data/.kafka_cleanshutdown")
    if stop == UNCLEAN_WITHOUT_INDEXES:
        for folder in fs.list_dir("/data"):
            for name in fs.list_dir(f"/data/{folder}") if fs.is_dir(f"/data/{folder}") else ():
                if name.endswith("index"):
                    fs.remove(f"/data/{folder}/{name}")
    return fs


def looked_at(fs: CountedCalls, work: Callable[[Broker], None], *, adopted: bool = False) -> None:
    config = {"log.cleanup.policy": "compact"} if adopted else {}
    with Broker(
        "/data", clock=VirtualClock(), fs=fs, read_only=True, seed=1, broker_config=config
    ) as broker:
        work(broker)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "adopted"),
    (*((name, False) for name in WORKS), ("explain", True), ("inspect", True)),
)
def test_twice_the_partitions_are_twice_the_work_and_no_more(name: str, adopted: bool) -> None:
    """2,000 took minutes: each listing of a folder walked all that was known of all folders."""
    check_growth(name, adopted=adopted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stop"),
    (
        ("inspect", UNCLEAN),
        *((name, UNCLEAN_WITHOUT_INDEXES) for name in ("explain", "clean_dry_run")),
    ),
)
def test_the_same_holds_of_what_was_killed_or_copied_in_part(name: str, stop: str) -> None:
    check_growth(name, stop=stop)


def test_the_result_is_the_same_during_writes_of_another_process() -> None:
    check_growth("explain", is_written=True)


def check_growth(
    name: str, *, adopted: bool = False, is_written: bool = False, stop: str = CLEAN
) -> None:
    efforts = []
    for partitions in (2, 4, 8):
        fs = CountedCalls(directory_of(partitions, adopted=adopted, stop=stop))
        lock = fs.lock("/data/.lock") if is_written else None
        looked_at(fs, WORKS[name], adopted=adopted)  # work that is done only once
        fs.calls.clear()
        lines = lines_run(lambda fs=fs: looked_at(fs, WORKS[name], adopted=adopted))
        efforts.append((lines, fs.calls.total()))
        del lock
    (lines, calls), (lines_2, calls_2), (lines_4, calls_4) = efforts
    assert calls_4 - calls_2 <= 2 * (calls_2 - calls), "files"
    assert lines_4 - lines_2 <= 2.02 * (lines_2 - lines), "steps"
