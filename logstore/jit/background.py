"""Loading kernels in the background while Python does their work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from logstore.jit import policy


def load_in_background(
    function: Callable[..., Any],
    exercise: Callable[[], object],
    start: Callable[[Callable[[], None]], object],
) -> None:
    """Load the kernels of a package in the background. Until then Python does their work.

    Loading starts at once if they were compiled before, otherwise when compiling pays. Only the
    first call for a package has an effect, and none unless `policy.MODE` is `auto`.

    Parameters
    ----------
    function : kernel
        Any kernel of the package.
    exercise : callable
        Calls all kernels that Python calls, with the types of arguments that occur. In the thread
        that runs it the kernels are compiled.
    start : callable
        Runs a function in another thread.
    """
    entry = cast("policy.Entry", function)
    group = entry.group
    if policy.MODE != policy.AUTO:
        return
    if group.load_by(partial(start, partial(_load, group, exercise))) and entry.files.exist():
        group.compile()


def _load(group: policy.Group, exercise: Callable[[], object]) -> None:
    token = policy.loading_here.set(group)
    try:
        exercise()
    except Exception as error:  # Python continues to do the work
        policy.logger.warning("the kernels of %s cannot be loaded: %r", group.name, error)
    else:
        group.is_compiled = True
    finally:
        policy.loading_here.reset(token)
