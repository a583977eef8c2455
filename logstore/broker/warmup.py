"""Warm-up: compile or load every kernel before it is needed."""

from __future__ import annotations

from logstore.broker.broker import Broker
from logstore.jit import compile_always, policy
from logstore.runtime import VirtualClock

_RECORDS = 400


def warm_up() -> None:
    """Append, read, explain and clean in memory, so that every kernel is compiled.

    From then on, this process runs all kernels compiled. The compiled code is cached for all
    processes of the machine; processes that warm up at the same time share the work.

    Notes
    -----
    Takes about 16 s once per machine, then about a second.
    """
    if policy.MODE == policy.PYTHON:
        return  # kernels are never compiled
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
    # The map of offsets first, then the one with versions, which takes the clean section, too.
    for configs in ({}, {"compaction.strategy": "timestamp"}):
        broker.alter_configs("warmup", configs)
        broker.append_many("warmup", [(b"%d" % number, b"again") for number in range(_RECORDS)])
        broker.clean("warmup", force=True, roll=True)
