"""How a log is opened if it is damaged.

A broker's recovery truncates a log at the first invalid byte and drops everything after it, valid
or not. Commands that only read skip the damage instead; commands that write may refuse the cut.
"""

from __future__ import annotations

from enum import Enum


class OnDamage(Enum):
    """How to open a log with damage that valid batches follow."""

    RECOVER = "recover"
    """As a broker: recovery truncates the log there and reports how much was lost."""

    PASS_OVER = "pass_over"
    """Read only: damaged bytes are skipped and reported, and the rest is served."""

    REFUSE = "refuse"
    """Refuse a cut below `LoadRequest.keep_below` before anything changes."""
