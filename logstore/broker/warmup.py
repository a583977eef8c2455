"""Warm-up: every kernel compiled, or loaded, before something waits for it."""

from __future__ import annotations

from logstore.broker.broker import Broker
from logstore.jit import compile_always, policy
from logstore.runtime import VirtualClock

_RECORDS = 400


def warm_up() -> None:
    """Append, read, look at and clean in memory what needs every kernel.

    From then on all kernels of this process run compiled. The compiled code is kept for all
    processes of the machine; of several that warm up at a time, each compiles its share.

    Notes
    -----
    About 16 s once on a machine, then about a second.
    """
    if policy.MODE == policy.PYTHON:
        return  # nothing is ever compiled
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
