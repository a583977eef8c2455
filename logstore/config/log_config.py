"""The effective configuration of a log.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from logstore.config.topic_keys import COMPACT, DELETE, TOPIC_KEYS, TopicSettings
from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX

MIN_LAG = "min.compaction.lag.ms"
MAX_LAG = "max.compaction.lag.ms"


class LogConfig(TopicSettings):
    """The effective configuration of a topic's logs.

    The fields are named after the topic keys (`TOPIC_KEYS`), with underscores instead of dots.
    `LogConfig()` has Kafka's defaults.

    Raises
    ------
    InvalidConfigurationError
        A value is out of range, or max.compaction.lag.ms < min.compaction.lag.ms.
    """

    def __post_init__(self) -> None:
        for key in TOPIC_KEYS.values():
            key.check(getattr(self, key.attribute))
        check_lags(
            LagSetting(MIN_LAG, self.min_compaction_lag_ms),
            LagSetting(MAX_LAG, self.max_compaction_lag_ms),
        )

    @cached_property
    def batch_bytes_max(self) -> int:
        """Maximum size of a batch in bytes, limited by max.message.bytes and segment.bytes."""
        return min(self.max_message_bytes, self.segment_bytes)

    @cached_property
    def compact(self) -> bool:
        """Whether the cleanup policy includes compaction."""
        return COMPACT in self.cleanup_policy

    @cached_property
    def delete(self) -> bool:
        """Whether the cleanup policy includes deletion by age and size."""
        return DELETE in self.cleanup_policy

    @property
    def winner_keys(self) -> tuple[str, str, str]:
        """The settings that determine which record of a key survives compaction."""
        return (
            self.compaction_strategy,
            self.compaction_strategy_header,
            self.logstore_compaction_strategy_header_encoding,
        )

    @cached_property
    def max_segment_ms(self) -> int:
        """Age in milliseconds at which a segment is rolled.

        For compacted topics, limited by max.compaction.lag.ms.
        """
        if not self.compact:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @cached_property
    def timestamp_before_max_ms(self) -> int:
        """Maximum age of a create time in ms. If only the deprecated key is set, it is used."""
        if self.message_timestamp_before_max_ms != INT64_MAX:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @cached_property
    def timestamp_after_max_ms(self) -> int:
        """Maximum number of milliseconds that a create time may be in the future.

        See `timestamp_before_max_ms`.
        """
        if self.message_timestamp_after_max_ms != INT64_MAX:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms


class LagSetting(NamedTuple):
    """A compaction lag, the key to name in error messages, and the value's origin if known."""

    key: str
    value: int
    source: str = ""


def check_lags(low: LagSetting, high: LagSetting) -> None:
    """Raise `InvalidConfigurationError` if the maximum lag is below the minimum lag."""
    if high.value >= low.value:
        return
    sources = f": the first is {high.source}, the second {low.source}" if high.source else ""
    if high.source == low.source != "":
        sources = f": both are {low.source}"
    raise InvalidConfigurationError(
        f"{high.key} = {high.value} must not be below {low.key} = {low.value}{sources}",
        key=high.key,
    )
