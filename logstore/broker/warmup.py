"""Warm-up: every kernel compiled, or loaded, before something waits for it."""

from __future__ import annotations

from logstore.broker.broker import Broker
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.build import MapBuild, new_map
from logstore.cleaner.passes.chunks import ChunkReader
from logstore.cleaner.passes.rewrite import Rewriter
from logstore.cleaner.strategy import Strategy
from logstore.jit import compile_always, policy
from logstore.jit.files import turn
from logstore.runtime import VirtualClock
from logstore.runtime.processes import in_processes, usable_cores

_RECORDS = 400
_TOPIC = "warmup"


def warm_up() -> None:
    """Append, read, look at and clean in memory what needs every kernel.

    From then on all kernels of this process run compiled. The compiled code is kept for all
    processes of the machine; of several that warm up at a time, each compiles its share.

    Notes
    -----
    About 15 s once on a machine, 9 where two processes are at it; then about a second.
    """
    if policy.MODE == policy.PYTHON:
        return  # nothing is ever compiled
    compile_always()
    with Broker(clock=VirtualClock(), seed=0) as broker, turn() as number:
        broker.create_topic(_TOPIC, 1, {"cleanup.policy": "compact"})
        broker.append(_TOPIC, value=b"value", key=b"key")
        # Half of the time is for the first one's kernels: so two processes begin at two ends.
        if number == 0:
            _map(broker)
        elif number == 1:
            _rewrite(broker)
        _exercise(broker)


def warm_up_machine() -> None:
    """Let two processes, if there are cores for them, warm up at a time, for those to come."""
    for _ in in_processes(_warm_up, (0, 1), workers=usable_cores()):
        pass


def _warm_up(_: int) -> None:
    warm_up()


def _map(broker: Broker[VirtualClock]) -> None:
    log = broker.log(_TOPIC, 0)
    config, end = CleanerConfig(), log.log_end_offset
    key_map = new_map(log, config, Strategy(), 0, end, with_winners=True)
    for _ in MapBuild(log, 0, end, key_map, ChunkReader(config.io_buffer_bytes)).steps():
        pass


def _rewrite(broker: Broker[VirtualClock]) -> None:
    """Rewrite by an empty map, into nothing."""
    log = broker.log(_TOPIC, 0)
    config, end = CleanerConfig(), log.log_end_offset
    key_map = new_map(log, config, Strategy(), 0, end, with_winners=True)
    rewriter = Rewriter(
        log,
        key_map,
        ChunkReader(config.io_buffer_bytes),
        first_dirty_offset=0,
        upper_bound_offset=end,
        now_ms=broker.clock.now_ms(),
    )
    for _ in rewriter.steps(log.segments.view, None):
        pass


def _exercise(broker: Broker[VirtualClock]) -> None:
    for compression in ("none", "lz4"):
        broker.append_many(
            _TOPIC,
            [
                (b"%d" % (number % 100), b"value" if number % 7 else None, None, (("h", b"1"),))
                for number in range(_RECORDS)
            ],
            compression=compression,
            batch_records=_RECORDS // 2,
        )
    for _ in broker.read(_TOPIC):
        pass
    for _ in broker.fates(_TOPIC, roll=True):
        pass
    broker.clean(_TOPIC, force=True, roll=True)
    # The map of offsets first, then the one with versions, which takes the clean section, too.
    for configs in ({}, {"compaction.strategy": "timestamp"}):
        broker.alter_configs(_TOPIC, configs)
        broker.append_many(_TOPIC, [(b"%d" % number, b"again") for number in range(_RECORDS)])
        broker.clean(_TOPIC, force=True, roll=True)
