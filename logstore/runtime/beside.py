"""Work beside: in a thread of its own, a few times a process, for what nobody waits for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

FORK_WAIT_S = 10.0
"""Longest time for which a fork waits for work beside."""

_started: list[threading.Thread] = []


def run_beside(name: str, action: Callable[[], object]) -> None:
    """Run an action in a daemon thread, and do not wait for it; the process may end meanwhile.

    Only a fork waits: the child would have the locks that the thread holds, of modules that it
    imports for instance, and nobody who releases them.

    Parameters
    ----------
    name : str
        Of the thread: `logstore-<name>`.
    action : callable
        Raises nothing.

    Raises
    ------
    RuntimeError
        The system has no more threads.
    """
    thread = threading.Thread(target=action, name=f"logstore-{name}", daemon=True)
    thread.start()
    _started.append(thread)


def _wait_before_fork() -> None:
    for thread in _started:
        if thread is not threading.current_thread():
            thread.join(FORK_WAIT_S)


os.register_at_fork(before=_wait_before_fork, after_in_child=_started.clear)
