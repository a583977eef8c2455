"""Warm up: compile or load all kernels before they are needed."""

from __future__ import annotations

from logstore.broker.broker import Broker
from logstore.jit import compile_always, policy
from logstore.runtime import VirtualClock

_RECORDS = 400


def warm_up() -> None:
    """Compile all kernels by appending, reading, explaining and cleaning in memory.

    After that, this process always runs compiled kernels. The compiled code is cached for all
    processes on the machine. Concurrent warm-ups share the work.

    Notes
    -----
    Takes about 16 s the first time on a machine, and about one second after that.
    """
    if policy.MODE == policy.PYTHON:
        return  # kernels are not compiled in this mode
    compile_always()
    with Broker(clock=VirtualClock(), seed=0) as broker:
        _exercise(broker)


def _exercise(broker: Broker[VirtualClock]) -> None:
    broker.create_topic("warmup", 1, {"cleanup.policy": "compact"})
    for compression in ("none", "lz4"):
        broker.append_many(
            "warmup",
            [
                (b"%d" % (number % 100), b"value" if number % 7 else None, None, (("h", b"1"),))
                for number in range(_RECORDS)
            ],
            compression=compression,
            batch_records=_RECORDS // 2,
        )
    for _ in broker.read("warmup"):
        pass
    for _ in broker.fates("warmup", roll=True):
        pass
    broker.clean("warmup", force=True, roll=True)
    # First use the offset map without versions, and then the one with versions, which also includes
    # the clean section.
    for configs in ({}, {"compaction.strategy": "timestamp"}):
        broker.alter_configs("warmup", configs)
        broker.append_many("warmup", [(b"%d" % number, b"again") for number in range(_RECORDS)])
        broker.clean("warmup", force=True, roll=True)
