"""Load kernels in the background while plain Python does the work."""

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
    """Load the kernels of a package in the background, and use plain Python until then.

    Loading starts immediately if the kernels are cached, otherwise once compiling is worthwhile.
    Only the first call for a package has an effect, and only if `policy.MODE` is `auto`.

    Parameters
    ----------
    function : kernel
        Any kernel of the package.
    exercise : callable
        Calls each kernel that Python calls, with all argument types that occur. This compiles the
        kernels in the background thread.
    start : callable
        Starts a function in a new thread.
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
    except Exception as error:  # continue with plain Python
        policy.logger.warning("the kernels of %s cannot be loaded: %r", group.name, error)
    else:
        group.is_compiled = True
    finally:
        policy.loading_here.reset(token)
