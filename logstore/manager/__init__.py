"""The logs of a broker: opening, creating, changing, deleting, checkpoints, background tasks."""
