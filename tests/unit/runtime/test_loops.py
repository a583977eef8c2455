"""Event loops in threads of their own."""

import asyncio
import gc
import threading
from contextlib import suppress

import pytest

from logstore.runtime.loops import LoopThread, give_way

LONG_S = 60


@pytest.fixture
def loop():
    thread = LoopThread("test")
    yield thread
    thread.stop()


class Work:
    """A blocking call that the test lets begin, and end."""

    def __init__(self, error=None):
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False
        self._error = error

    def __call__(self):
        self.begun.set()
        assert self.may_end.wait(LONG_S)
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return "done"


async def begun(loop, work):
    """Start `work` as a task that runs to its end; return the task once the call has begun."""
    task = asyncio.ensure_future(loop.to_its_end(work))
    await loop.blocking(lambda: work.begun.wait(LONG_S))
    return task


def test_a_call_to_its_end_returns_its_result(loop):
    assert loop.call(loop.to_its_end(lambda: threading.current_thread().name)).startswith(
        "logstore-test_"
    )


def test_a_call_to_its_end_raises_its_error(loop):
    with pytest.raises(ZeroDivisionError):
        loop.call(loop.to_its_end(lambda: 1 / 0))


@pytest.mark.parametrize("error", (None, OSError("failed")), ids=("returns", "raises"))
@pytest.mark.parametrize("times", (1, 2, 3))
def test_cancelling_waits_for_the_end_of_the_call(loop, times, error):
    work = Work(error)

    async def scenario():
        task = await begun(loop, work)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not task.done()
        work.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return work.has_ended

    assert loop.call(scenario())


def test_the_error_of_a_cancelled_call_is_not_reported_as_lost(loop):
    work, reports = Work(OSError("failed")), []

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        task = await begun(loop, work)
        task.cancel()
        work.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.call(scenario())
    gc.collect()  # a lost error is reported when its future is freed
    assert reports == []


def test_the_loop_continues_during_a_blocking_call(loop):
    work = Work()

    async def scenario():
        task = await begun(loop, work)
        work.may_end.set()  # by the loop, which the call does not block
        return await task

    assert loop.call(scenario()) == "done"


def test_wake_runs_an_action_in_the_thread_of_the_loop(loop):
    ran, threads = threading.Event(), []

    def action():
        threads.append((threading.current_thread(), loop.is_current))
        ran.set()

    loop.wake(action)
    assert ran.wait(LONG_S)
    assert threads == [(loop._thread, True)]
    assert not loop.is_current


def test_a_stopped_loop_is_not_usable_and_ignores_wakes(loop):
    assert loop.is_usable
    loop.stop()
    assert not loop.is_usable
    loop.wake(lambda: pytest.fail("the loop has ended"))
    loop.stop()  # nothing is left to stop


def test_stop_waits_for_calls_in_the_background(loop):
    begun, ended = threading.Event(), []

    def work():
        begun.set()
        with suppress(RuntimeError):  # no further calls are accepted once `stop` has begun
            while True:
                loop.submit(int)
        for _ in range(100):
            give_way()
        ended.append(True)

    loop.submit(work)
    assert begun.wait(LONG_S)
    loop.stop()
    assert ended == [True]
