"""Warm-up: each process begins where the others do not, and all come to every kernel."""

from contextlib import nullcontext

import pytest

from logstore.broker import warmup
from logstore.jit.kernel import Bound, Kernel


def kernels_called(monkeypatch, turn: int) -> list[str]:
    """Return the kernels that a warm-up calls from Python, in order, as if others were at it."""
    found: dict[str, None] = {}

    def noted(kind):
        call = kind.__call__

        def noting(self, *args, **kwargs):
            found.setdefault((self if kind is Kernel else self._kernel).__name__)
            return call(self, *args, **kwargs)

        return noting

    with monkeypatch.context() as patched:
        patched.setattr(warmup, "turn", lambda: nullcontext(turn))
        patched.setattr(warmup, "compile_always", lambda: None)
        patched.setattr(warmup.policy, "MODE", "auto")
        for kind in (Kernel, Bound):
            patched.setattr(kind, "__call__", noted(kind))
        warmup.warm_up()
    return list(found)


def test_two_processes_begin_at_two_ends_and_come_to_the_same(monkeypatch):
    first, second, third = (kernels_called(monkeypatch, turn) for turn in range(3))
    assert "classify_batches" not in first[: first.index("map_batches")]
    assert "map_batches" not in second[: second.index("assemble_batches")]
    for called in (first, second, third):
        assert {"scan_survivors", "map_batches", "classify_batches", "list_records"} <= set(called)


def test_without_compiling_there_is_nothing_to_warm_up(monkeypatch):
    monkeypatch.setattr(warmup.policy, "MODE", warmup.policy.PYTHON)
    monkeypatch.setattr(warmup, "compile_always", lambda: pytest.fail("compiled"))
    warmup.warm_up()
