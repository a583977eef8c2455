"""Limits of what is read into memory as a whole, for those who read files without a log."""

from __future__ import annotations

from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import effective_config
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.types import SMALL_FILE_MAX_BYTES


def _default(key: str) -> int:
    value = TOPIC_KEYS[key].default
    assert isinstance(value, int)
    return value


class ReadLimits(NamedTuple):
    """Bytes that may be read at once.

    Attributes
    ----------
    batch_bytes : int
        To which a compressed batch may unfold: `logstore.decompression.max.bytes`.
    small_file_bytes : int
        Of a checkpoint, a snapshot and the like: `logstore.small.file.max.bytes`.
    """

    batch_bytes: int = _default("logstore.decompression.max.bytes")
    small_file_bytes: int = SMALL_FILE_MAX_BYTES

    @classmethod
    def of(cls, config: BrokerConfig) -> ReadLimits:
        """Return what a broker of that configuration obeys, for topics that say nothing."""
        topic = effective_config({}, config)
        return cls(topic.logstore_decompression_max_bytes, config.logstore_small_file_max_bytes)
