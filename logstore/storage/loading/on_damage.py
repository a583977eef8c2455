"""The ways of an opening with damage.

A broker's recovery cuts a log at the first bad byte and drops all that follows, valid or not. Who
only reads passes over the damage instead; who writes by hand may refuse the cut.
"""

from __future__ import annotations

from enum import Enum


class OnDamage(Enum):
    """The way of an opening with damage that valid batches lie behind."""

    RECOVER = "recover"
    """As a broker: recovery cuts there, and tells how much was lost."""

    PASS_OVER = "pass_over"
    """Read only: what is damaged is left out, named, and the rest is served."""

    REFUSE = "refuse"
    """A cut below the recovery point, or without one, is refused before anything changes."""
