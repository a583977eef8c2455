"""Loading beside the work: kernels that come while Python does what they will do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from logstore.jit import policy


def load_beside(
    function: Callable[..., Any],
    exercise: Callable[[], object],
    start: Callable[[Callable[[], None]], object],
) -> None:
    """Let nobody wait for the kernels of a room: Python does their work until they are there.

    If they were compiled before they are loaded from now on, else compiled once that pays. Only
    the first call for a room counts, and none where the work does not decide (`policy.MODE`).

    Parameters
    ----------
    function : kernel
        It stands for all kernels of its room.
    exercise : callable
        Calls all kernels of the room that Python calls, with arguments of the types that the work
        has; in the thread that calls it they run compiled.
    start : callable
        Runs what it is given in another thread.
    """
    entry = cast("policy.Entry", function)
    group = entry.group
    if policy.MODE != policy.AUTO:
        return
    if group.load_by(partial(start, partial(_load, group, exercise))) and entry.files.exist():
        group.heat()


def _load(group: policy.Group, exercise: Callable[[], object]) -> None:
    token = policy.loading_here.set(group)
    try:
        exercise()
    except Exception as error:  # the work goes on as Python, which is as exact
        policy.logger.warning("the kernels of %s cannot be loaded: %r", group.name, error)
    else:
        group.is_hot = True
    finally:
        policy.loading_here.reset(token)
