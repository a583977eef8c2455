"""Policy of compiling: when compiled code is worth the wait for it.

The kernels of one room are compiled together or not at all, once the work that Python did instead
would have taken as long; and then they stay so until the process ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
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
"""`auto`; or `compiled` or `python`, whatever the work is.

Of the variables `LOGSTORE_KERNELS` and `NUMBA_DISABLE_JIT`, read once.
"""


class Group:
    """The kernels of one room, which are compiled together or not at all."""

    __slots__ = ("is_hot", "kernels", "name", "spent_seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Callable[..., Any]] = []
        self.spent_seconds = 0.0
        self.is_hot = MODE == COMPILED

    @property
    def compile_seconds(self) -> float:
        """Cost of compiling all of them, about."""
        return len(self.kernels) * COMPILE_SECONDS


groups: dict[str, Group] = {}
"""By the name of their room."""


class Entry(Protocol):
    """A kernel, as far as the policy needs to know it."""

    @property
    def group(self) -> Group:
        """The kernels of its room."""

    @property
    def files(self) -> KernelFiles:
        """Where its compiled form is kept."""


def group_of(module: str) -> Group:
    """Return the group of the kernels of a module: that of the room it is in, made if need be."""
    room = module.partition(".kernels")[0]
    return groups.setdefault(room, Group(room))


def pays(function: Callable[..., Any], seconds: float) -> bool:
    """Tell of work that is ahead, and learn whether it is done by compiled code.

    Parameters
    ----------
    function : kernel
        One that Python calls in that work. It stands for all kernels of its room.
    seconds : float
        About how long the work takes in Python.

    Notes
    -----
    A room's kernels are compiled, or loaded, once the work that Python did instead would have
    taken as long: so no work takes more than twice as long as it might have.
    """
    entry = cast("Entry", function)
    group = entry.group
    if group.is_hot or MODE == PYTHON:
        return group.is_hot
    group.spent_seconds += seconds
    if group.spent_seconds > LOAD_SECONDS:  # looked up only when it may matter
        if entry.files.exist():
            group.is_hot = True
        elif group.spent_seconds > group.compile_seconds:
            group.is_hot = True
            logger.info(
                "compiling the kernels of %s, about %.0f s, once on this machine;"
                " `logstore warmup` does it ahead",
                group.name,
                group.compile_seconds,
            )
    return group.is_hot


def follow(function: Callable[..., Any], leader: Callable[..., Any]) -> None:
    """Let the kernels of one room be compiled, or loaded, if those of another one are.

    For work that comes with the other's: it is large too, and numba is there already.

    Parameters
    ----------
    function, leader : kernel
        Each stands for all kernels of its room.
    """
    if cast("Entry", leader).group.is_hot:
        cast("Entry", function).group.is_hot = True


def compile_always() -> None:
    """Let all kernels be compiled, or loaded, when they are called, whatever the work is."""
    global MODE
    if MODE != PYTHON:
        MODE = COMPILED
        for group in groups.values():
            group.is_hot = True
