"""Output of kafka-dump-log's decoders for records of Kafka's internal topics.

Each decoder returns the key and payload as the tool prints them, or None if it prints nothing.
Record types that are new in Kafka 4 are decoded as well, unlike in the tool of Kafka 3.9.2. The
reason after `skipping.` differs from Kafka's, which is the text of a Java exception. Source:
Kafka's DumpLogSegments, TransactionLog, and the classes of tiered logs.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from logstore.errors import InvalidRecordError, LogStoreError, UnsupportedFormatError
from logstore.inspect.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    UnknownKindError,
    coordinator_record,
    framed_record,
)
from logstore.messages import Message, decode, to_json, types
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.record.control import CURRENT_VERSION, ControlType
from logstore.record.records import Record
from logstore.types import TopicPartition, java_hash

Texts = tuple[str | None, str | None]

DELETE = "<DELETE>"

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

_ESCAPE = re.compile(r"\\\\|\\u[0-9a-f]{4}")
"""An escaped backslash or a `\\u` escape in JSON."""

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
DELETION_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def offsets_texts(record: Record) -> Texts:
    """Return a `__consumer_offsets` record as `--offsets-decoder` prints it."""
    return _coordinator_texts(GROUP_OFFSETS_TOPIC, record)


def share_group_state_texts(record: Record) -> Texts:
    """Return a `__share_group_state` record as `--share-group-state-decoder` prints it."""
    return _coordinator_texts(SHARE_GROUP_STATE_TOPIC, record)


def _coordinator_texts(topic: str, record: Record) -> Texts:
    try:
        decoded = coordinator_record(topic, record.key, record.value)
        key = {"type": str(decoded.key_version), "data": decoded.key_json()}
        if decoded.value is None:
            return java_json(key), DELETE
        value = {"version": str(decoded.value_version), "data": decoded.value_json()}
    except UnknownKindError as error:
        return f"Unknown record type {error.kind} at offset {record.offset}, skipping.", None
    except LogStoreError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return java_json(key), java_json(value)


def transaction_log_texts(record: Record) -> Texts:
    """Return a `__transaction_state` record as `--transaction-log-decoder` prints it."""
    try:
        decoded = coordinator_record(TRANSACTION_STATE_TOPIC, record.key, record.value)
    except UnknownKindError as error:
        return f"unknown::version={error.kind}", None
    except LogStoreError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    assert isinstance(decoded.key, types.TransactionLogKey)
    key = f"transaction_metadata::transactionalId={decoded.key.transactional_id}"
    if decoded.value is None:
        return key, DELETE
    state = decoded.value
    assert isinstance(state, types.TransactionLogValue)
    named = _named(TRANSACTION_STATES, state.transaction_status)
    batches = (
        [TopicPartition(topic.topic, number) for number in topic.partition_ids]
        for topic in state.transaction_partitions or ()
    )
    partitions = ",".join(map(str, scala_set(batches)))
    return key, (
        f"producerId:{state.producer_id},producerEpoch:{state.producer_epoch},state={named},"
        f"partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={state.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={state.transaction_timeout_ms}"
    )


def cluster_metadata_texts(record: Record) -> Texts:
    """Return a `__cluster_metadata` record as `--cluster-metadata-decoder` prints it."""
    try:
        decoded = framed_record(CLUSTER_METADATA_TOPIC, record.value)
    except LogStoreError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    data = to_json(decoded.message, decoded.version)
    return None, java_json({"type": decoded.record_type, "version": decoded.version, "data": data})


def remote_log_metadata_texts(record: Record) -> Texts:
    """Return a `__remote_log_metadata` record as `--remote-log-metadata-decoder` prints it."""
    try:
        decoded = framed_record(REMOTE_LOG_METADATA_TOPIC, record.value)
    except LogStoreError as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"
    return None, _remote_log_text(decoded.message)


DECODERS: Mapping[str, Callable[[Record], Texts]] = {
    GROUP_OFFSETS_TOPIC: offsets_texts,
    TRANSACTION_STATE_TOPIC: transaction_log_texts,
    CLUSTER_METADATA_TOPIC: cluster_metadata_texts,
    REMOTE_LOG_METADATA_TOPIC: remote_log_metadata_texts,
    SHARE_GROUP_STATE_TOPIC: share_group_state_texts,
}
"""The decoders by topic."""


# -- decoders by class ---------------------------------------------------------------------------

DECODER_PACKAGE = "org.apache.kafka.tools.api."
DEPRECATED_PACKAGE = "kafka.serializer."
STRING_DECODER = "StringDecoder"
DEFAULT_DECODER = "DefaultDecoder"

_NUMBERS = {"IntegerDecoder": struct.Struct(">i"), "LongDecoder": struct.Struct(">q")}


class DecoderClass(NamedTuple):
    """A class that `--key-decoder-class` and `--value-decoder-class` accept.

    Attributes
    ----------
    name : str
        Class name without the package.
    is_deprecated : bool
        Whether the name was given with the package used before Kafka 3.5.
    """

    name: str = STRING_DECODER
    is_deprecated: bool = False

    @property
    def warning(self) -> str:
        """The tool's warning for a deprecated name."""
        return (
            f"{DEPRECATED_PACKAGE}{self.name} is deprecated."
            f" Please use {DECODER_PACKAGE}{self.name} instead"
        )

    def text(self, data: bytes) -> str:
        """Return bytes as the decoder class prints them.

        Raises
        ------
        InvalidRecordError
            There are too few bytes for a number. Extra bytes are ignored.
        """
        number = _NUMBERS.get(self.name)
        if number is None:
            return java_text(data)
        if len(data) < number.size:
            kind = self.name.removesuffix("Decoder").lower()
            raise InvalidRecordError(f"{len(data)} bytes are too few for {kind}")
        return str(number.unpack_from(data)[0])


def decoder_class(name: str) -> DecoderClass:
    """Return a decoder by its full name, or by its class name in Kafka's package.

    Raises
    ------
    UnsupportedFormatError
        The decoder is unknown, or is `DefaultDecoder`, which only prints an address.
    """
    plain = name.removeprefix(DECODER_PACKAGE).removeprefix(DEPRECATED_PACKAGE)
    if plain not in (STRING_DECODER, *_NUMBERS):
        why = " shows an address in memory, not bytes" if plain == DEFAULT_DECODER else ""
        known = ", ".join((STRING_DECODER, *_NUMBERS))
        raise UnsupportedFormatError(
            f"unsupported decoder {name}{why}; supported are {known} of {DECODER_PACKAGE}"
        )
    return DecoderClass(plain, name.startswith(DEPRECATED_PACKAGE))


def class_texts(key: DecoderClass, value: DecoderClass, record: Record) -> Texts:
    """Return a record as the decoder classes print it."""
    try:
        return (
            None if record.key is None else key.text(record.key),
            None if record.value is None else value.text(record.value),
        )
    except InvalidRecordError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def java_text(data: bytes) -> str:
    """Decode as Java does: invalid UTF-8 becomes U+FFFD, one per encoded surrogate."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


# -- control records of a Raft log ---------------------------------------------------------------

RAFT_CONTROLS: Mapping[ControlType, tuple[str, type[Message]]] = {
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", types.SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", types.SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion", types.KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", types.VotersRecord),
}


def raft_control_text(control_type: ControlType, value: bytes) -> str | None:
    """Return a Raft log's control record as the tool prints it, or None for other types.

    Raises
    ------
    MessageError
    """
    if control_type not in RAFT_CONTROLS:
        return None
    title, kind = RAFT_CONTROLS[control_type]
    message: Message = decode(kind, CURRENT_VERSION, value)
    return f"{title} {java_json(to_json(message, CURRENT_VERSION))}"


# -- metadata of tiered logs ---------------------------------------------------------------------


def _remote_log_text(message: Message) -> str:
    match message:
        case types.RemoteLogSegmentMetadataRecord():
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(message)},"
                f" startOffset={message.start_offset}, endOffset={message.end_offset},"
                f" brokerId={message.broker_id}, maxTimestampMs={message.max_timestamp_ms},"
                f" eventTimestampMs={message.event_timestamp_ms},"
                f" segmentLeaderEpochs={_epochs(message)},"
                f" segmentSizeInBytes={message.segment_size_in_bytes},"
                f" customMetadata={_custom(message.custom_metadata)},"
                f" state={_named(SEGMENT_STATES, message.remote_log_segment_state)}}}"
            )
        case types.RemoteLogSegmentMetadataUpdateRecord():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(message)},"
                f" customMetadata={_custom(message.custom_metadata)},"
                f" state={_named(SEGMENT_STATES, message.remote_log_segment_state)},"
                f" eventTimestampMs={message.event_timestamp_ms}, brokerId={message.broker_id}}}"
            )
        case types.RemotePartitionDeleteMetadataRecord():
            state = _named(DELETION_STATES, message.remote_partition_delete_state)
            return (
                "RemotePartitionDeleteMetadata{"
                f"topicPartition={_partition(message.topic_id_partition)}, state={state},"
                f" eventTimestampMs={message.event_timestamp_ms}, brokerId={message.broker_id}}}"
            )
        case types.RemoteLogSegmentMetadataSnapshotRecord():
            return (
                f"RemoteLogSegmentMetadataSnapshot{{segmentId={message.segment_id},"
                f" startOffset={message.start_offset}, endOffset={message.end_offset},"
                f" maxTimestampMs={message.max_timestamp_ms},"
                f" segmentLeaderEpochs={_epochs(message)},"
                f" segmentSizeInBytes={message.segment_size_in_bytes},"
                f" customMetadata={_custom(message.custom_metadata)},"
                f" state={_named(SEGMENT_STATES, message.remote_log_segment_state)}}}"
            )
    raise AssertionError(f"not tiered-log metadata: {message}")


def _segment_id(
    message: types.RemoteLogSegmentMetadataRecord | types.RemoteLogSegmentMetadataUpdateRecord,
) -> str:
    segment = message.remote_log_segment_id
    where = _partition(segment.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={where}, id={segment.id}}}"


def _partition(
    named: types.RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry
    | types.RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry
    | types.RemotePartitionDeleteMetadataRecord.TopicIdPartitionEntry,
) -> str:
    return f"{named.id}:{named.name}-{named.partition}"


def _epochs(
    message: types.RemoteLogSegmentMetadataRecord | types.RemoteLogSegmentMetadataSnapshotRecord,
) -> str:
    epochs = {entry.leader_epoch: entry.offset for entry in message.segment_leader_epochs}
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom(data: bytes | bytearray | memoryview | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _named(names: tuple[str, ...], number: int) -> str:
    """Return the name of a state, or Java's null if the number has no name."""
    return names[number] if 0 <= number < len(names) else "null"


# -- Java and Scala formats ----------------------------------------------------------------------


def java_json(value: Any) -> str:  # noqa: ANN401  # whatever JSON has
    """Return JSON as Jackson writes it in Kafka's tools: no spaces, no escaped letters."""
    match value:
        case dict():
            return "{" + ",".join(f"{_text(k)}:{java_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(java_json, value)) + "]"
        case str():
            return _text(value)
        case float():
            return java_double(value)
    return json.dumps(value)


def _text(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def java_double(value: float) -> str:
    """Return Java's `Double.toString`: shortest digits; an exponent outside 0.001 to 10^7."""
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else f'"{"-" if value < 0 else ""}Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    shortest = Decimal(repr(value)).normalize()
    if len(shortest.as_tuple().digits) == 1:
        shortest = Decimal(f"{value:.1e}")  # Java picks the nearest number with two digits
    sign, digits, _ = shortest.as_tuple()
    first, *rest = map(str, digits)
    fraction = "".join(rest).rstrip("0") or "0"
    return f"{'-' if sign else ''}{first}.{fraction}E{shortest.adjusted()}"


def scala_set(batches: Iterable[Iterable[TopicPartition]]) -> list[TopicPartition]:
    """Return partitions in the iteration order of Scala's mutable set.

    Kafka's coordinator adds partitions topic by topic. The table grows by the size of each
    addition. The order is by slot, then by hash within a slot. Source:
    `scala.collection.mutable.HashSet` of Scala 2.13.
    """
    slots = 16
    known: dict[TopicPartition, int] = {}
    for batch in batches:
        added = dict.fromkeys(batch)
        wanted = int((len(added) + 1) / 0.75)
        slots = max(slots, 1 << max(wanted - 1, 4).bit_length())
        for topic_partition in added:
            # Five or more form a set of a different class, whose entries are added without growing.
            if len(added) <= 4 and len(known) + 1 >= slots * 3 // 4:
                slots *= 2
            known[topic_partition] = _scala_hash(topic_partition)
    return sorted(
        known,
        key=lambda entry: (known[entry] & (slots - 1), known[entry]),
    )


def _scala_hash(topic_partition: TopicPartition) -> int:
    value = (31 * (31 + topic_partition.partition) + java_hash(topic_partition.topic)) & 0xFFFFFFFF
    value ^= value >> 16
    return value - (1 << 32) if value >= 1 << 31 else value
