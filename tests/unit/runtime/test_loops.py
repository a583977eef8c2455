"""A thread with an event loop: calls that outlive the cancellation of their callers."""

import asyncio
import threading

import pytest

from logstore.runtime.loops import LoopThread


@pytest.fixture
def loops():
    loops = LoopThread("test")
    yield loops
    loops.stop()


async def pass_control():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_call_ends_before_its_canceller_goes_on_however_often_it_is_cancelled(loops):
    gate = threading.Event()

    async def cancel_twice():
        task = asyncio.create_task(loops.to_its_end(lambda: gate.wait(60)))
        try:
            await pass_control()
            for _ in range(2):
                task.cancel()
                await pass_control()
                assert not task.done()
        finally:
            gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    loops.call(cancel_twice())


def test_an_undisturbed_call_returns_its_result_or_raises_its_error(loops):
    assert loops.call(loops.to_its_end(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        loops.call(loops.to_its_end(lambda: 1 // 0))
