"""Records as JSON, those of Kafka's own topics decoded beside their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from logstore.record.json_text import record_json

if TYPE_CHECKING:
    from logstore.record.batch import RecordBatch
    from logstore.record.records import Record
    from logstore.types import TopicPartition


class KeyAndValue(Protocol):
    """A record, as far as it is decoded."""

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def value(self) -> bytes | None: ...  # noqa: D102


def decoded_member(topic: str | None, record: KeyAndValue) -> dict[str, Any]:
    """Return what a record's JSON has besides its bytes: `decoded`, or nothing."""
    if topic is None or not topic.startswith("__"):
        return {}
    from logstore.inspect.internal_topics import decoded

    found = decoded(topic, record.key, record.value)
    return {} if found is None else {"decoded": found}


def decoded_key_member(topic: str, key: bytes | None) -> dict[str, Any]:
    """Return what JSON with a record's key has besides the bytes: `decoded`, or nothing.

    It has `type` and `key`, for Kafka's own topics, if the key can be decoded.
    """
    if key is None or not topic.startswith("__"):
        return {}
    from logstore.inspect.internal_topics import decoded

    found = decoded(topic, key, None)
    if found is None or found["key"] is None:
        return {}
    return {"decoded": {"type": found["type"], "key": found["key"]}}


def decodable_topic(topic_partition: TopicPartition | None, batch: RecordBatch) -> str | None:
    """Return the topic of records that may be decoded; None of control records, which are not."""
    if topic_partition is None or batch.header.is_control:
        return None
    return topic_partition.topic


def stored_record_json(
    topic_partition: TopicPartition | None,
    batch: RecordBatch,
    position: int,
    record: Record,
    *,
    raw: bool = False,
) -> str:
    """Return a record as it lies in its batch, at that position of a file, as one line of JSON."""
    header = batch.header
    topic, partition = topic_partition or (None, None)
    decoded = {} if raw else decoded_member(decodable_topic(topic_partition, batch), record)
    return record_json(
        topic,
        partition,
        header.timestamp_type,
        record,
        batch_base_offset=header.base_offset,
        position=position,
        is_control=header.is_control,
        **decoded,
    )
