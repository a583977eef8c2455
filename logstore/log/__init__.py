"""A partition's log: what it is made of, how it is written, read, recovered and cut short."""

from logstore.log.drafts import AppendInfo, NewRecord
from logstore.log.log import Log
from logstore.log.offsets import CheckpointOffsets

__all__ = ["AppendInfo", "CheckpointOffsets", "Log", "NewRecord"]
