"""The entry point of the program. Handles Ctrl-C before importing anything else.

While the program is loading, Ctrl-C terminates it with the signal (exit code 130 in a shell) and no
traceback. Once it is loaded, Ctrl-C raises an exception, so that commands clean up. If the parent
process ignores SIGINT, it remains ignored.
"""

import _signal  # type: ignore[import-not-found]  # faster to import than `signal`
import gc

_HANDLES_SIGINT = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler

if _HANDLES_SIGINT:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

_YOUNG_OBJECTS_MAX = 50_000
"""Garbage collection threshold, higher than the number of objects in a read-only command.

Python's default of 700 would trigger many useless collections during imports.
"""


def main() -> None:
    """Run the program."""
    gc.set_threshold(_YOUNG_OBJECTS_MAX)
    from logstore.cli.streams import replace_closed_streams

    replace_closed_streams()
    from logstore.cli.main import main as program

    if _HANDLES_SIGINT:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    try:
        program()
    finally:
        # Interpreter shutdown would run a full garbage collection, and an interrupt would print a
        # traceback.
        gc.freeze()
        if _HANDLES_SIGINT:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
