"""A partition's log: what it is made of, how it is written, read, recovered and cut short."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.storage.log.drafts import AppendInfo, NewRecord
    from logstore.storage.log.log import Log
    from logstore.storage.log.offsets import CheckpointOffsets

__all__ = ["AppendInfo", "CheckpointOffsets", "Log", "NewRecord"]

_HOMES = {
    "AppendInfo": "logstore.storage.log.drafts",
    "CheckpointOffsets": "logstore.storage.log.offsets",
    "Log": "logstore.storage.log.log",
    "NewRecord": "logstore.storage.log.drafts",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load a name from its module: who reads files without a log needs some modules alone."""
    if name not in _HOMES:
        raise AttributeError(f"module 'logstore.storage.log' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
