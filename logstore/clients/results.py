"""Results of requests about many partitions: one value a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from logstore.types import TopicPartition


class DeleteRecordsResult(NamedTuple):
    """The result for one partition of a delete-records request.

    `low_watermark` is the log start afterwards, -1 with an error; `error` is its name in Kafka's
    protocol, None if there was none, and `message` says more.
    """

    low_watermark: int
    error: str | None = None
    message: str | None = None

    def to_json(self, topic_partition: TopicPartition) -> dict[str, Any]:
        """Return an item of `partitions` in `logstore delete-records --format json`."""
        return {
            **topic_partition._asdict(),
            "low_watermark": self.low_watermark,
            "error": self.error,
        }


class AlterReplicaLogDirsResult(NamedTuple):
    """The result for one partition that was to be moved to another data directory.

    `error` is its name in Kafka's protocol, None if there was none, and `message` says more.
    """

    error: str | None = None
    message: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time; the epoch is -1 if its batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int
