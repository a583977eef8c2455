"""Broker configs for groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.types import MINUTE_MS

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * MINUTE_MS
"""Session timeout of a new member until the end of its first rebalance; a constant in Kafka too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Configuration of the group coordinator.

    Attributes
    ----------
    topic_num_partitions : int
        `offsets.topic.num.partitions`: number of partitions for the creation of the topic.
    topic_segment_bytes : int
        `offsets.topic.segment.bytes`.
    metadata_max_bytes : int
        `offset.metadata.max.bytes`: longest metadata, in UTF-16 code units as in Kafka.
    retention_ms : int
        `offsets.retention.minutes`, converted to ms.
    retention_check_interval_ms : int
        `offsets.retention.check.interval.ms`.
    min_session_timeout_ms, max_session_timeout_ms : int
        `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
    initial_rebalance_delay_ms : int
        `group.initial.rebalance.delay.ms`; no delay if 0 or negative.
    max_size : int
        `group.max.size`.
    """

    topic_num_partitions: int
    topic_segment_bytes: int
    metadata_max_bytes: int
    retention_ms: int
    retention_check_interval_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupConfig:
        """Return the group configs of a broker's configuration."""
        return cls(
            topic_num_partitions=config.offsets_topic_num_partitions,
            topic_segment_bytes=config.offsets_topic_segment_bytes,
            metadata_max_bytes=config.offset_metadata_max_bytes,
            retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
        )

    @property
    def topic_configs(self) -> dict[str, str]:
        """Topic configs with which Kafka's broker creates `__consumer_offsets`."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.topic_segment_bytes),
        }
