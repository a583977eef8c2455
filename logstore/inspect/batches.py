"""Batches described with kafka-dump-log's field names, in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.errors import CorruptionError
from logstore.record.codecs import Codec

if TYPE_CHECKING:
    from logstore.record.batch import RecordBatch
    from logstore.record.legacy import OldMessage


def describe_batch(batch: RecordBatch, position: int) -> dict[str, Any]:
    """Describe the header of the batch at `position` of a file, and check its CRC."""
    header = batch.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": position,
        "timestampType": header.timestamp_type.kafka_name,
        "maxTimestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": codec_name(header.codec_id),
        "crc": header.crc,
        "isvalid": batch.is_valid(),
    }


def describe_old(message: OldMessage) -> dict[str, Any]:
    """Describe a magic 0 or 1 message by the fields that its converted batch lacks."""
    return {
        "size": message.size_bytes,
        "magic": message.magic,
        "compresscodec": codec_name(message.codec_id),
        "crc": message.crc,
        "timestampType": old_timestamp_type(message),
        "maxTimestamp": message.timestamp,
    }


def old_timestamp_type(message: OldMessage) -> str:
    """Return Kafka's name of a message's timestamp type. Magic 0 has none."""
    kind = message.timestamp_type
    return "NoTimestampType" if kind is None else kind.kafka_name


def codec_name(codec_id: int) -> str:
    """Return kafka-dump-log's name of a codec, or its number if the codec does not exist."""
    try:
        return Codec(codec_id).kafka_name
    except CorruptionError:
        return str(codec_id)
