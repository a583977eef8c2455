"""`logstore warmup`: compile the kernels before first use."""

from __future__ import annotations

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit, emit_json


@command("warmup", examples=["logstore warmup"])
def warmup(settings: Settings) -> None:
    """Compile the kernels in advance, so that large appends, reads and cleaning passes start fast.

    The compiled code is stored in NUMBA_CACHE_DIR, or next to the installation, or in
    ~/.cache/logstore if that is read-only. It is used until logstore or one
    of its libraries changes.
    """
    from logstore.broker.warmup import warm_up
    from logstore.runtime import SystemClock

    timer = SystemClock()
    started_ns = timer.monotonic_ns()
    warm_up()
    elapsed_ms = (timer.monotonic_ns() - started_ns) // 1_000_000
    if settings.as_table:
        emit(f"kernels ready after {elapsed_ms / 1000:.1f} s")
    else:
        emit_json({"elapsed_ms": elapsed_ms}, settings.output)
