"""Brokers that are opened and closed, one after another, leave nothing behind."""

import gc
import os
import resource
import threading
from itertools import count
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock

WARM_UP = 3

ROUNDS = 3
"""What leaks does so in each of them; what threads come to do for the first time, only in one."""

SMALL = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


def live(broker):
    """Do a little of everything: groups, a member that dies, transactions, lingering, cleaning."""
    broker.create_topic("t", partitions=2, configs={"cleanup.policy": "compact"})
    broker.append("t", key=b"k", value=b"v", partition=0)
    first, second = (
        broker.consumer("t", group_id="g", auto_offset_reset="earliest") for _ in range(2)
    )
    for _ in range(4):
        first.poll(timeout_ms=1)
        second.poll(timeout_ms=1)
    first.commit()
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", key=b"k", partition=0)
    producer.commit_transaction()
    broker.producer(linger_ms=5).send("t", b"v", key=b"k", partition=0)
    second.crash()
    broker.clean("t", force=True, roll=True)


def in_memory(path):
    return Broker(clock=VirtualClock(), seed=0, broker_config=SMALL)


def with_everything_in_virtual_time(path):
    return Broker(clock=VirtualClock(), seed=0, background=True, broker_config=SMALL)


def on_a_disk_with_threads(path):
    return Broker(path, background=True, broker_config=SMALL)


def left():
    """Return the resources of a process: objects, threads, descriptors."""
    gc.collect()
    descriptors = Path("/proc/self/fd")
    return (
        len(gc.get_objects()),
        threading.active_count(),
        len(os.listdir(descriptors)) if descriptors.is_dir() else 0,  # noqa: PTH208
    )


def open_and_close(make, tmp_path, numbers, times):
    for _ in range(times):
        with make(tmp_path / str(next(numbers))) as broker:
            live(broker)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", (in_memory, with_everything_in_virtual_time, on_a_disk_with_threads)
)
@pytest.mark.parametrize(
    "times", (8, pytest.param(1000, marks=(pytest.mark.long, pytest.mark.timeout(1800))))
)
def test_brokers_leave_no_objects_threads_or_descriptors(make, times, tmp_path):
    numbers = count()
    open_and_close(make, tmp_path, numbers, WARM_UP)
    before = left()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(ROUNDS):
        open_and_close(make, tmp_path, numbers, times)
        after = left()
        grown = after[0] - before[0]
        if grown < times:
            break
        before = after
    assert grown < times, "an object or more a broker"
    assert after[1:] == before[1:]
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib
    assert grown_kib < 16 * 1024, f"{grown_kib} KiB"
