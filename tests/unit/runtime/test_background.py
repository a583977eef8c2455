"""Background threads: only a fork waits for them."""

import gc
import os
import signal
import threading
import time
import weakref

import pytest

from logstore.runtime import background

DEADLINE_S = 60


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_lock_that_a_background_thread_held(monkeypatch):
    lock, is_held, may_end = threading.Lock(), threading.Event(), threading.Event()

    class Joined(threading.Thread):
        """Ends only when somebody waits for it."""

        def join(self, timeout=None):
            may_end.set()
            super().join(timeout)

    def work():
        with lock:
            is_held.set()
            may_end.wait(DEADLINE_S)

    monkeypatch.setattr(background.threading, "Thread", Joined)
    background.run_in_background("test", work)
    assert is_held.wait(DEADLINE_S)
    child = os.fork()
    if child == 0:
        signal.alarm(DEADLINE_S)
        os._exit(0 if lock.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()


def test_a_process_ends_without_it():
    ended = threading.Event()
    background.run_in_background("test", ended.wait)
    (thread,) = (each for each in threading.enumerate() if each.name == "logstore-test")
    ended.set()
    thread.join(DEADLINE_S)
    assert thread.daemon


def test_a_thread_that_has_ended_is_forgotten():
    """Each listener starts one, and a process may open thousands of listeners."""
    seen = []
    background.run_in_background(
        "test", lambda: seen.append(weakref.ref(threading.current_thread()))
    )
    deadline = time.monotonic() + DEADLINE_S
    while not seen or seen[0]() is not None:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)
