"""The logs of a broker: opening, creating, changing, deleting, checkpoints, background tasks."""

from logstore.manager.manager import LogManager

__all__ = ["LogManager"]
