"""Background threads that nothing waits for, except a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet

FORK_WAIT_S = 10.0
"""Maximum time for which a fork waits for a background thread, in seconds."""

_started: WeakSet[threading.Thread] = WeakSet()


def run_in_background(name: str, action: Callable[[], object]) -> None:
    """Run an action in a daemon thread, which ends with the process.

    A fork waits for the thread. Otherwise the child would inherit locks held by the thread, such as
    import locks, which would never be released.

    Parameters
    ----------
    name : str
        Suffix of the thread name, `logstore-<name>`.
    action : callable
        Must not raise an exception.

    Raises
    ------
    RuntimeError
        The system cannot start a new thread.
    """
    thread = threading.Thread(target=action, name=f"logstore-{name}", daemon=True)
    thread.start()
    _started.add(thread)


def _wait_before_fork() -> None:
    for thread in list(_started):
        if thread is not threading.current_thread():
            thread.join(FORK_WAIT_S)


os.register_at_fork(before=_wait_before_fork, after_in_child=_started.clear)
