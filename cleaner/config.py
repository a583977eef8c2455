"""The memory of a cleaner thread: its share of the broker's buffers, and its number of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.cleaner.strategy import OFFSET_ENTRY_BYTES, Strategy
from logstore.errors import InvalidConfigurationError
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig

IO_BUFFER_BYTES_MIN = 1 << 20
"""Minimum number of bytes that a pass reads at once.

Smaller reads have more overhead.
"""


def keys_of(
    dedupe_buffer_bytes: int,
    load_factor: float,
    entry_bytes: int = OFFSET_ENTRY_BYTES,
    least_keys: int = 1,
) -> int:
    """Return how many keys fit into a thread's share of the dedupe buffer.

    Parameters
    ----------
    least_keys : int
        Minimum number of keys required to make progress: one, plus one with a version strategy, for
        the record before the first dirty offset.

    Raises
    ------
    InvalidConfigurationError
        The buffer has room for fewer keys.
    """
    slots = dedupe_buffer_bytes // entry_bytes
    keys = int(slots * load_factor)
    # Like Kafka, refuse a product of exactly 1.
    if slots * load_factor <= 1 or keys < least_keys:
        needed = "one key"
        if least_keys > 1:
            needed = "two keys, which compaction by version needs"
        raise InvalidConfigurationError(
            f"log.cleaner.dedupe.buffer.size: a cleaner thread's share of {dedupe_buffer_bytes} "
            f"bytes, filled to log.cleaner.io.buffer.load.factor {load_factor}, has no room for "
            f"{needed}: no progress is possible"
        )
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Settings of a cleaner thread.

    Attributes
    ----------
    dedupe_buffer_bytes : int
        This thread's share of the memory that limits the number of keys in the map.
    load_factor : float
        Fraction of the counted slots (`slots`) that may be used, in (0, 1].
    io_buffer_bytes : int
        Number of bytes read at once. A larger batch is still read as a whole.

    Raises
    ------
    InvalidConfigurationError
        The load factor is out of range, or the buffer has no room for a single key.
    """

    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    io_buffer_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not 0 < self.load_factor <= 1:
            raise InvalidConfigurationError(
                f"log.cleaner.io.buffer.load.factor must be in (0, 1], not {self.load_factor}"
            )
        keys_of(self.dedupe_buffer_bytes, self.load_factor)

    @classmethod
    def from_broker(cls, broker: BrokerConfig) -> CleanerConfig:
        """Return one thread's share of a broker's cleaner settings."""
        threads = max(1, broker.log_cleaner_threads)
        return cls(
            dedupe_buffer_bytes=min(broker.log_cleaner_dedupe_buffer_size // threads, INT32_MAX),
            load_factor=broker.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=max(
                broker.log_cleaner_io_buffer_size // threads // 2, IO_BUFFER_BYTES_MIN
            ),
        )

    @property
    def slots(self) -> int:
        """Number of entries that Kafka's map has in the same memory."""
        return self.dedupe_buffer_bytes // OFFSET_ENTRY_BYTES

    def max_keys_of(self, strategy: Strategy) -> int:
        """Return the maximum number of distinct keys that a pass maps."""
        return int(self.dedupe_buffer_bytes // strategy.entry_bytes * self.load_factor)
