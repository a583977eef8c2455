"""How to open a damaged log.

A broker's recovery truncates a log at the first invalid byte and drops everything after it, valid
or not. Commands that only read skip the damage instead. Commands that write may refuse to truncate
the log.
"""

from __future__ import annotations

from enum import Enum


class OnDamage(Enum):
    """How to open a log with valid batches after the damage."""

    RECOVER = "recover"
    """Truncate the log at the damage, as a broker does, and report how much was lost."""

    PASS_OVER = "pass_over"
    """Skip and report damaged bytes, and read the rest. The log must be read-only."""

    REFUSE = "refuse"
    """Refuse a cut below `LoadRequest.keep_below` before anything changes."""
