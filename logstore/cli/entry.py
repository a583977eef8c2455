"""The entry point of the program. It handles Ctrl-C before importing anything else.

While the program loads, Ctrl-C terminates it by the signal (exit code 130 in a shell), without a
traceback. After that, Ctrl-C raises an exception, so that commands clean up. If the parent process
set SIGINT to be ignored, it remains ignored.
"""

import _signal  # type: ignore[import-not-found]  # faster to import than `signal`
import gc

_HEEDS_INTERRUPTS = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler

if _HEEDS_INTERRUPTS:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

_YOUNG_OBJECTS_MAX = 50_000
"""Garbage collection threshold, above the number of objects that a read-only command allocates.

With Python's default of 700, importing the program would trigger many useless collections.
"""


def main() -> None:
    """Run the program."""
    gc.set_threshold(_YOUNG_OBJECTS_MAX)
    from logstore.cli.streams import replace_closed_streams

    replace_closed_streams()
    from logstore.cli.main import main as program

    if _HEEDS_INTERRUPTS:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    try:
        program()
    finally:
        # Only interpreter shutdown is left, which would run a full garbage collection and print
        # a traceback on an interrupt.
        gc.freeze()
        if _HEEDS_INTERRUPTS:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
