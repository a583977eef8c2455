"""Background threads that no other thread waits for, except before a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

FORK_WAIT_S = 10.0
"""Longest time for which a fork waits for a background thread."""

_started: list[threading.Thread] = []


def run_in_background(name: str, action: Callable[[], object]) -> None:
    """Run an action in a daemon thread, which ends with the process.

    A fork waits for the thread. Otherwise the child would inherit locks that the thread holds,
    such as import locks, and nothing would release them.

    Parameters
    ----------
    name : str
        The thread is named `logstore-<name>`.
    action : callable
        It must not raise.

    Raises
    ------
    RuntimeError
        The system cannot start another thread.
    """
    thread = threading.Thread(target=action, name=f"logstore-{name}", daemon=True)
    thread.start()
    _started.append(thread)


def _wait_before_fork() -> None:
    for thread in _started:
        if thread is not threading.current_thread():
            thread.join(FORK_WAIT_S)


os.register_at_fork(before=_wait_before_fork, after_in_child=_started.clear)
