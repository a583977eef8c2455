"""The entry of the program: nothing but this is imported before Ctrl-C is taken care of.

While the program loads, Ctrl-C ends it as it ends a program of the shell: by the signal (130 for a
shell), without a traceback. From then on it is an exception, and commands clean up after
themselves. A process that was told to ignore it, in the background of a script, still does.
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself takes longer to load than this
import gc

_HEEDS_INTERRUPTS = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler

if _HEEDS_INTERRUPTS:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

_YOUNG_OBJECTS_MAX = 50_000
"""New objects at which cycles among them are looked for: more than a command that looks makes.

With Python's 700, loading the program would be one search after another, all for nothing.
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
        # Only the interpreter's own end is left, which would search all that was loaded for
        # cycles, and would tell of an interrupt at length.
        gc.freeze()
        if _HEEDS_INTERRUPTS:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
