"""Operations that wait, in virtual time, in threads and in a loop."""

import threading
from random import Random

import pytest

from logstore.runtime import (
    MemoryFileSystem,
    Runtime,
    Signal,
    SystemClock,
    ThreadScheduler,
    VirtualClock,
)
from logstore.runtime.loops import LoopThread
from logstore.wire.purgatory import Purgatory

LONG_S = 600
"""More than any test lasts: what waits so long is woken, not out of time."""


class Door:
    """An operation that is done once it is open."""

    def __init__(self):
        self.is_open = False
        self.changed = Signal("a door")
        self.asked = 0
        self.watched = threading.Event()

    def open(self):
        self.is_open = True
        self.changed.emit()

    def is_done(self):
        self.asked += 1
        return self.is_open

    def subscribe(self, listener):
        unsubscribe = self.changed.subscribe(listener)
        self.watched.set()
        return unsubscribe

    @property
    def is_watched(self):
        return bool(self.changed._listeners)


@pytest.fixture
def loops():
    loops = LoopThread("test")
    yield loops
    loops.stop()


def virtual():
    clock = VirtualClock()
    runtime = Runtime(clock, MemoryFileSystem(clock), Random(0))
    runtime.scheduler.start()
    return clock, runtime.scheduler


def test_virtual_time_passes_until_all_are_done_and_no_further():
    clock, scheduler = virtual()
    purgatory, first, second = Purgatory(), Door(), Door()
    sizes = []
    scheduler.schedule("first", first.open, delay_ms=40)
    scheduler.schedule("size", lambda: sizes.append(len(purgatory)), delay_ms=50)
    scheduler.schedule("second", second.open, delay_ms=70)
    scheduler.schedule("late", lambda: None, delay_ms=1000)
    begin_ms = clock.monotonic_ms()
    assert purgatory.wait([first, second], scheduler, timeout_ms=100)
    assert clock.monotonic_ms() - begin_ms == 70
    assert (sizes, len(purgatory)) == ([2], 0)
    assert not first.is_watched
    assert not second.is_watched


def test_virtual_time_stops_at_the_timeout():
    clock, scheduler = virtual()
    purgatory, door = Purgatory(), Door()
    begin_ms = clock.monotonic_ms()
    assert not purgatory.wait([door], scheduler, timeout_ms=100)
    assert clock.monotonic_ms() - begin_ms == 100
    assert len(purgatory) == 0
    assert not door.is_watched


def test_completed_operations_are_not_polled_again():
    _, scheduler = virtual()
    purgatory, first, second = Purgatory(), Door(), Door()
    first.is_open = True
    scheduler.schedule("second", second.open, delay_ms=40)
    assert purgatory.wait([first, second], scheduler, timeout_ms=100)
    assert first.asked == 1
    assert purgatory.wait([], scheduler, timeout_ms=0)


def test_a_thread_is_woken_by_the_opening_thread():
    scheduler = ThreadScheduler(SystemClock())
    purgatory, door = Purgatory(), Door()
    thread = threading.Thread(target=_open_once_watched, args=(door,))
    thread.start()
    assert purgatory.wait([door], scheduler, timeout_ms=LONG_S * 1000)
    thread.join()
    scheduler.shutdown()
    assert len(purgatory) == 0


def _open_once_watched(door):
    assert door.watched.wait(LONG_S)
    door.open()


def test_a_coroutine_is_woken_by_another_thread(loops):
    purgatory, door = Purgatory(), Door()
    thread = threading.Thread(target=_open_once_watched, args=(door,))
    thread.start()
    assert loops.call(purgatory.wait_in(loops, [door], loops.loop.time() + LONG_S))
    thread.join()
    assert len(purgatory) == 0
    assert not door.is_watched


def test_a_coroutine_is_asked_once_for_what_came_at_once(loops, monkeypatch):
    purgatory, door = Purgatory(), Door()
    wake, wakes = loops.wake, []
    monkeypatch.setattr(loops, "wake", lambda action: (wakes.append(action), wake(action)))

    async def story():
        waiting = loops.loop.create_task(
            purgatory.wait_in(loops, [door], loops.loop.time() + LONG_S)
        )
        while not door.is_watched:
            await _turn(loops)
        assert len(purgatory) == 1
        for _ in range(100):
            door.changed.emit()
        for _ in range(10):
            await _turn(loops)
        told = door.asked, len(wakes)
        door.open()
        return told, await waiting

    told, is_done = loops.call(story())
    assert is_done
    assert told == (2, 1), "once at the beginning, once for all hundred"


async def _turn(loops):
    turn = loops.loop.create_future()
    loops.loop.call_soon(turn.set_result, None)
    await turn


def test_a_coroutine_gives_up_when_its_time_is_over(loops):
    purgatory, door = Purgatory(), Door()
    assert not loops.call(purgatory.wait_in(loops, [door], loops.loop.time()))
    assert not door.is_watched
    door.is_open = True
    assert loops.call(purgatory.wait_in(loops, [door], loops.loop.time()))


def test_news_that_never_end_do_not_move_the_deadline(loops):
    purgatory = Purgatory()

    class Restless(Door):
        def is_done(self):
            self.changed.emit()
            return super().is_done()

    assert not loops.call(purgatory.wait_in(loops, [Restless()], loops.loop.time() + 0.01))


def test_a_coroutine_that_is_cancelled_waits_no_more(loops):
    purgatory, door = Purgatory(), Door()

    async def story():
        waiting = loops.loop.create_task(
            purgatory.wait_in(loops, [door], loops.loop.time() + LONG_S)
        )
        while not door.is_watched:
            await _turn(loops)
        waiting.cancel()
        while not waiting.done():
            await _turn(loops)

    loops.call(story())
    assert len(purgatory) == 0
    assert not door.is_watched
