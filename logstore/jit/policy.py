"""Policy of compiling: when compiled code is worth the wait for it.

The kernels of one room become hot together: they are compiled, or loaded, once Python has spent as
long on their work as compiling takes, and stay so until the process ends.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from logstore.jit.files import KernelFiles

logger = logging.getLogger("logstore.jit")

COMPILE_SECONDS = 0.1
"""Cost of compiling a kernel, about, with its share of those that it calls."""

LOAD_SECONDS = 0.5
"""Cost of importing numba and loading compiled kernels, about."""

AUTO, COMPILED, PYTHON = "auto", "compiled", "python"


def _mode() -> str:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return PYTHON
    mode = os.environ.get("LOGSTORE_KERNELS", AUTO)
    return mode if mode in (COMPILED, PYTHON) else AUTO


MODE = _mode()
"""`auto` goes by the work; `compiled` and `python` do not.

Set by the variables `LOGSTORE_KERNELS` and `NUMBA_DISABLE_JIT`, which are read once.
"""


# Re-entrant: a signal handler may announce work while its thread does.
_deciding = threading.RLock()


def _renew_lock() -> None:
    """Replace the lock in a forked child, where the thread that held it does not exist."""
    global _deciding
    _deciding = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Group:
    """The kernels of one room, which are compiled together or not at all.

    Attributes
    ----------
    is_hot : bool
        Whether they run compiled.
    is_loading : bool
        Whether they are being made hot beside the work.
    load : callable or None
        Begins that, and returns; None if whoever's work pays waits.
    """

    __slots__ = ("is_hot", "is_loading", "kernels", "load", "name", "spent_seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Callable[..., Any]] = []
        self.spent_seconds = 0.0
        self.is_hot = MODE == COMPILED
        self.is_loading = False
        self.load: Callable[[], object] | None = None

    @property
    def compile_seconds(self) -> float:
        """Cost of compiling all of them, in seconds, about."""
        return len(self.kernels) * COMPILE_SECONDS

    def heat(self) -> bool:
        """Let them run compiled: from now on, or, if they load in the background, soon.

        Returns whether this call decided it: of several threads at the same time, one does.
        """
        with _deciding:
            if self.is_hot or self.is_loading:
                return False
            if self.load is None:
                self.is_hot = True
                return True
            self.is_loading = True
        try:
            self.load()
        except RuntimeError as error:  # the system has no more threads
            logger.warning("the kernels of %s cannot be loaded: %s", self.name, error)
        return True

    def load_by(self, load: Callable[[], object]) -> bool:
        """Set `load`; return False, changing nothing, if the kernels run compiled or it is set."""
        with _deciding:
            if self.is_hot or self.load is not None:
                return False
            self.load = load
            return True


loading_here: ContextVar[Group | None] = ContextVar("loading_here", default=None)
"""The group whose kernels run compiled in this thread, before they are hot for all."""

groups: dict[str, Group] = {}
"""Groups by the name of their room."""


class Entry(Protocol):
    """A kernel, as far as the policy needs to know it."""

    @property
    def group(self) -> Group:
        """The kernels of its room."""

    @property
    def files(self) -> KernelFiles:
        """The files of its compiled form."""


def group_of(module: str) -> Group:
    """Return the group of a module's kernels: that of its room, created at first."""
    room = module.partition(".kernels")[0]
    return groups.setdefault(room, Group(room))


def pays(function: Callable[..., Any], seconds: float) -> bool:
    """Announce work, and tell whether compiled code does it.

    Parameters
    ----------
    function : kernel
        A kernel that the work calls from Python; it stands for all kernels of its room.
    seconds : float
        Time of the work in Python, about.

    Notes
    -----
    A room's kernels are compiled, or loaded, once the announced work adds up to the time that
    takes: so no work takes more than twice as long as with the better choice.
    """
    entry = cast("Entry", function)
    group = entry.group
    if group.is_hot or MODE == PYTHON:
        return group.is_hot
    if group.is_loading:
        return loading_here.get() is group
    group.spent_seconds += seconds
    if group.spent_seconds > LOAD_SECONDS:  # the files are looked for only when it may matter
        if entry.files.exist():
            group.heat()
        elif group.spent_seconds > group.compile_seconds and group.heat():
            logger.info(
                "compiling the kernels of %s, about %.0f s, once on this machine;"
                " `logstore warmup` does it ahead",
                group.name,
                group.compile_seconds,
            )
    return group.is_hot


def follow(function: Callable[..., Any], leader: Callable[..., Any]) -> None:
    """Make the kernels of one room hot if those of another one are.

    For work that accompanies the other's: it is large too, and numba is loaded already.

    Parameters
    ----------
    function, leader : kernel
        Each stands for all kernels of its room.
    """
    if cast("Entry", leader).group.is_hot:
        cast("Entry", function).group.is_hot = True


def compile_always() -> None:
    """Make all kernels hot: each is compiled, or loaded, when it is called, whatever the work."""
    global MODE
    if MODE != PYTHON:
        MODE = COMPILED
        for group in groups.copy().values():  # another thread may import a room
            group.is_hot = True
