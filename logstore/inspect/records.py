"""Records as JSON. Records of Kafka's internal topics are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from logstore.record.json_text import record_json

if TYPE_CHECKING:
    from logstore.record.batch import RecordBatch
    from logstore.record.records import Record
    from logstore.types import TopicPartition


class KeyAndValue(Protocol):
    """The parts of a record that are decoded."""

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def value(self) -> bytes | None: ...  # noqa: D102


def decoded_member(topic: str | None, record: KeyAndValue) -> dict[str, Any]:
    """Return a dict with the `decoded` field of a record's JSON; empty for users' topics."""
    if topic is None or not topic.startswith("__"):
        return {}
    from logstore.inspect.internal_topics import decode_internal_record

    decoded = decode_internal_record(topic, record.key, record.value)
    return {} if decoded is None else {"decoded": decoded}


def decoded_key_member(topic: str, key: bytes | None) -> dict[str, Any]:
    """Return the `decoded` member for JSON that only shows a record's key.

    The member contains `type` and `key`. Empty unless the topic is internal and the key can be
    decoded.
    """
    if key is None or not topic.startswith("__"):
        return {}
    from logstore.inspect.internal_topics import decode_internal_record

    decoded = decode_internal_record(topic, key, None)
    if decoded is None or decoded["key"] is None:
        return {}
    return {"decoded": {"type": decoded["type"], "key": decoded["key"]}}


def decodable_topic(topic_partition: TopicPartition | None, batch: RecordBatch) -> str | None:
    """Return the topic for decoding a batch's records, or None for control records."""
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
    """Return a stored record as a line of JSON, with the position of its batch in the file."""
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
