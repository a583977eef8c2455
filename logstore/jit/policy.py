"""The compilation threshold: when compiling is worthwhile.

All kernels of a package are compiled or loaded together, once plain Python has spent as much time
on their work as compiling would take. They remain compiled until the process exits.
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
"""Approximate time to compile a kernel, including its share of inner kernels."""

LOAD_SECONDS = 0.5
"""Approximate time to import numba and load compiled kernels."""

AUTO, COMPILED, PYTHON = "auto", "compiled", "python"


def _mode() -> str:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return PYTHON
    mode = os.environ.get("LOGSTORE_KERNELS", AUTO)
    return mode if mode in (COMPILED, PYTHON) else AUTO


MODE = _mode()
"""`auto` decides by the work. `compiled` and `python` are fixed.

Set by the environment variables `LOGSTORE_KERNELS` and `NUMBA_DISABLE_JIT`, which are read once.
"""


# Re-entrant, because a signal handler may interrupt `compile_if_worthwhile` and call it.
_policy_lock = threading.RLock()


def _renew_lock() -> None:
    """Replace the lock in a forked child, where a thread that held it does not exist."""
    global _policy_lock
    _policy_lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Group:
    """The kernels of a package, which are compiled together.

    Attributes
    ----------
    is_compiled : bool
        Whether the kernels run compiled.
    is_loading : bool
        Whether the kernels are being compiled or loaded in the background.
    load : callable or None
        Starts loading in the background. If None, the calling thread compiles or loads.
    """

    __slots__ = ("is_compiled", "is_loading", "kernels", "load", "name", "spent_seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Callable[..., Any]] = []
        self.spent_seconds = 0.0
        self.is_compiled = MODE == COMPILED
        self.is_loading = False
        self.load: Callable[[], object] | None = None

    @property
    def compile_seconds(self) -> float:
        """Approximate time to compile all kernels."""
        return len(self.kernels) * COMPILE_SECONDS

    def compile(self) -> bool:
        """Switch to compiled kernels, at once or after loading in the background.

        Returns whether this call made the change. Among concurrent calls, only one does.
        """
        with _policy_lock:
            if self.is_compiled or self.is_loading:
                return False
            if self.load is None:
                self.is_compiled = True
                return True
            self.is_loading = True
        try:
            self.load()
        except RuntimeError as error:  # cannot start a thread
            logger.warning("the kernels of %s cannot be loaded: %s", self.name, error)
        return True

    def load_by(self, load: Callable[[], object]) -> bool:
        """Set `load`. Return False if it is already set or the kernels already run compiled."""
        with _policy_lock:
            if self.is_compiled or self.load is not None:
                return False
            self.load = load
            return True


loading_here: ContextVar[Group | None] = ContextVar("loading_here", default=None)
"""The group that this thread is loading, and that only runs compiled in this thread."""

groups: dict[str, Group] = {}
"""Groups by package name."""


class Entry(Protocol):
    """The part of a kernel that the policy uses."""

    @property
    def group(self) -> Group:
        """The kernels of the same package."""

    @property
    def files(self) -> KernelFiles:
        """The cache files of the kernel."""


def group_of(module: str) -> Group:
    """Return the kernel group of a module, creating it on first use."""
    package = module.partition(".kernels")[0]
    return groups.setdefault(package, Group(package))


def compile_if_worthwhile(
    function: Callable[..., Any], seconds: float, ahead_seconds: float = 0.0
) -> bool:
    """Report work, and return whether to do it with compiled code.

    Parameters
    ----------
    function : kernel
        Any kernel of the package.
    seconds : float
        Approximate time of the work in plain Python.
    ahead_seconds : float
        Approximate time in plain Python of the work that will follow.

    Notes
    -----
    Kernels are compiled or loaded once the total of reported work reaches the time that compiling
    or loading takes. Work thus takes at most twice as long as with the better choice. Work that is
    known to be large is compiled from the start.
    """
    entry = cast("Entry", function)
    group = entry.group
    if group.is_compiled or MODE == PYTHON:
        return group.is_compiled
    if group.is_loading:
        return loading_here.get() is group
    group.spent_seconds += seconds
    expected_seconds = group.spent_seconds + ahead_seconds
    if expected_seconds > LOAD_SECONDS:  # looking for files takes time
        if entry.files.exist():
            group.compile()
        elif expected_seconds > group.compile_seconds and group.compile():
            logger.info(
                "compiling the kernels of %s, about %.0f s, once on this machine;"
                " `logstore warmup` does it in advance",
                group.name,
                group.compile_seconds,
            )
    return group.is_compiled


def follow(function: Callable[..., Any], leader: Callable[..., Any]) -> None:
    """Compile the kernels of a package if the kernels of a different package are compiled.

    For work that accompanies other work: it is equally large, and numba is already loaded.

    Parameters
    ----------
    function, leader : kernel
        Any kernel of each package.
    """
    if cast("Entry", leader).group.is_compiled:
        cast("Entry", function).group.is_compiled = True


def compile_always() -> None:
    """Compile or load each kernel on its first call, regardless of the work."""
    global MODE
    if MODE != PYTHON:
        MODE = COMPILED
        for group in groups.copy().values():  # another thread may import a package
            group.is_compiled = True
