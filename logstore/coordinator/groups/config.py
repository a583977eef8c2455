"""Settings of groups and their offsets, as Kafka's broker has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.types import MINUTE_MS

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * MINUTE_MS
"""Longest wait of a new member for the end of its first rebalance; a constant in Kafka too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings, under their names at Kafka's broker.

    Attributes
    ----------
    topic_num_partitions : int
        `offsets.topic.num.partitions`, for a topic that does not exist yet.
    topic_segment_bytes : int
        `offsets.topic.segment.bytes`.
    metadata_max_bytes : int
        `offset.metadata.max.bytes`: the longest metadata, counted as Kafka does, in UTF-16 units.
    retention_ms : int
        `offsets.retention.minutes`, in ms.
    retention_check_interval_ms : int
        `offsets.retention.check.interval.ms`.
    min_session_timeout_ms, max_session_timeout_ms : int
        `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
    initial_rebalance_delay_ms : int
        `group.initial.rebalance.delay.ms`; 0 or less: no delay.
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
        """Return the settings that a broker's configuration has."""
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
        """The topic's configuration, as Kafka's broker creates it."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.topic_segment_bytes),
        }
