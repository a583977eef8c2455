"""Results, for one partition each, of requests for several partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from logstore.types import TopicPartition


class DeleteRecordsResult(NamedTuple):
    """The result of a DeleteRecords request for one partition.

    Attributes
    ----------
    low_watermark : int
        The new log start offset, or -1 after an error.
    error : str or None
        Kafka's error name, or None on success.
    message : str or None
        Details of the error, or None on success.
    """

    low_watermark: int
    error: str | None = None
    message: str | None = None

    def to_json(self, topic_partition: TopicPartition) -> dict[str, Any]:
        """Return the partition's object in the JSON output of `logstore delete-records`."""
        return {
            **topic_partition._asdict(),
            "low_watermark": self.low_watermark,
            "error": self.error,
        }


class AlterReplicaLogDirsResult(NamedTuple):
    """The result of an AlterReplicaLogDirs request for one partition.

    Attributes
    ----------
    error : str or None
        Kafka's error name, or None on success.
    message : str or None
        Details of the error, or None on success.
    """

    error: str | None = None
    message: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of a record. The leader epoch is -1 if the batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int
