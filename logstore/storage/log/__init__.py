"""The log of a partition: its state, and how it is written, read, recovered and truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.lazy import import_on_use

if TYPE_CHECKING:
    from logstore.storage.log.drafts import AppendInfo, NewRecord
    from logstore.storage.log.log import Log
    from logstore.storage.log.offsets import CheckpointOffsets

__all__ = ["AppendInfo", "CheckpointOffsets", "Log", "NewRecord"]

__getattr__, __dir__ = import_on_use(
    __name__,
    {
        "logstore.storage.log.drafts": (
            "AppendInfo",
            "NewRecord",
        ),
        "logstore.storage.log.log": ("Log",),
        "logstore.storage.log.offsets": ("CheckpointOffsets",),
    },
)
