"""The members of consumer groups: their requests, sessions and timeouts (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.coordinator.groups.group import GroupState

if TYPE_CHECKING:
    from logstore.coordinator.groups.consumer_group import ConsumerGroup
    from logstore.runtime.clock import Clock

DEFAULT_ASSIGNOR = "uniform"


class ConsumerMembership:
    """Changes consumer groups. Calls must be serialized by the caller.

    Parameters
    ----------
    clock : Clock
        Dates the records.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def resume(self, group: ConsumerGroup) -> None:
        """Start the sessions of a loaded group."""

    def abandon(self, group: ConsumerGroup) -> None:
        """End a group whose partition was deleted or replaced."""
        group.enter(GroupState.DEAD, self._clock.now_ms())
