"""`logstore warmup`: compile the kernels ahead of their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit, emit_json

if TYPE_CHECKING:
    from logstore.broker import Broker

_RECORDS = 400


@command("warmup", examples=["logstore warmup"])
def warmup(settings: Settings) -> None:
    """Compile the kernels, so that no large append, read or cleaning waits for it.

    The compiled code is kept beside the installation, in ~/.cache/logstore if that is read-only, or
    where NUMBA_CACHE_DIR says. It serves all processes until the program or its libraries change.
    """
    from logstore import jit
    from logstore.broker import Broker
    from logstore.runtime import SystemClock, VirtualClock

    timer = SystemClock()
    started_ns = timer.monotonic_ns()
    jit.compile_always()
    with Broker(clock=VirtualClock(), seed=0) as broker:
        _exercise(broker)
    elapsed_ms = (timer.monotonic_ns() - started_ns) // 1_000_000
    if settings.as_table:
        emit(f"kernels ready after {elapsed_ms / 1000:.1f} s")
    else:
        emit_json({"elapsed_ms": elapsed_ms})


def _exercise(broker: Broker) -> None:
    """Append, read, look at and clean in memory what needs every kernel."""
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
