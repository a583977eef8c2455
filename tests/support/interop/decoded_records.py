"""Records of Kafka's internal topics for the decoders of the dump tool, from a seed.

`python -m tests.support.interop.decoded_records` writes them as segments into
tests/data/kafka-3.9/decoders; `python -m tests.support.interop.dump_tool` records the output of
Kafka's tool for them, as for other files.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from random import Random

from logstore.inspect.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    framed_kinds,
)
from logstore.messages import Message, encode_bytes, encode_versioned, schema, types
from logstore.messages.compiler import uvarint
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.support.world.golden_dirs import ROOT
from tests.support.world.random_messages import random_message

RECORDED = ROOT / "decoders"
SEGMENT = "00000000000000000000.log"
SNAPSHOTS = ("00000000000000000009-0000000002.checkpoint", "bootstrap.checkpoint")
FLAGS = {
    GROUP_OFFSETS_TOPIC: "--offsets-decoder",
    TRANSACTION_STATE_TOPIC: "--transaction-log-decoder",
    CLUSTER_METADATA_TOPIC: "--cluster-metadata-decoder",
    REMOTE_LOG_METADATA_TOPIC: "--remote-log-metadata-decoder",
}
"""The decoders of the tool of Kafka 3.9.2."""

Pair = tuple[bytes | None, bytes | None]

NEWEST_IN_KAFKA_3 = {
    "ClearElrRecord": -1,
    "UnregisterControllerRecord": -1,
    "RegisterBrokerRecord": 3,
    "BrokerRegistrationChangeRecord": 2,
}
GROUP_KINDS = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
}
"""Records that Kafka 3.9 writes for groups of the new protocol."""
ADDED_BY_KAFKA_4 = {
    ("OffsetCommitValue", "topic_id"): "A" * 22,
    ("ConsumerGroupMetadataValue", "metadata_hash"): 0,
    ("ConsumerGroupTargetAssignmentMetadataValue", "assignment_timestamp"): 0,
    ("TopicPartitions", "assignment_epochs"): [],
}


def without_news(message: Message) -> Message:
    """Give tagged fields that Kafka 4 added to old versions their defaults; return the message."""
    for name in message.__slots__:
        value = getattr(message, name)
        added = type(message).__name__, name
        if added in ADDED_BY_KAFKA_4:
            setattr(message, name, ADDED_BY_KAFKA_4[added])
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Message):
                without_news(each)
    return message


def pairs(topic: str, rng: Random) -> Iterator[Pair]:
    """Yield keys and values of a topic's records."""
    return {
        GROUP_OFFSETS_TOPIC: _group_pairs,
        TRANSACTION_STATE_TOPIC: _transaction_pairs,
        CLUSTER_METADATA_TOPIC: _cluster_pairs,
        REMOTE_LOG_METADATA_TOPIC: _remote_pairs,
        SHARE_GROUP_STATE_TOPIC: _share_pairs,
    }[topic](rng)


def _group_pairs(rng: Random) -> Iterator[Pair]:
    for version in (0, 1, 1, 1):
        key = encode_versioned(random_message(rng, "OffsetCommitKey", version), version)
        yield key, None
        for number in range(5):
            value = without_news(random_message(rng, "OffsetCommitValue", number))
            yield key, encode_versioned(value, number)
    for number in range(5):
        key = encode_versioned(random_message(rng, "GroupMetadataKey", 2), 2)
        yield key, None
        yield key, encode_versioned(random_message(rng, "GroupMetadataValue", number), number)
        group = random_message(rng, "GroupMetadataValue", number, absent=0)
        group.protocol_type = "consumer"
        for member in group.members:
            report = rng.randint(0, 3)
            member.subscription = _told(rng, "ConsumerProtocolSubscription", report)
            member.assignment = _told(rng, "ConsumerProtocolAssignment", report)
        yield key, encode_versioned(group, number)
    for number, kind in GROUP_KINDS.items():
        key = encode_versioned(random_message(rng, f"{kind}Key", number), number)
        yield key, None
        for _ in range(3):
            value = without_news(random_message(rng, f"{kind}Value", 0))
            yield key, encode_versioned(value, 0)
    yield b"\0\x63abc", b"\0\0"


def _told(rng: Random, name: str, version: int) -> bytes:
    return encode_versioned(random_message(rng, name, version), version)


def _transaction_pairs(rng: Random) -> Iterator[Pair]:
    for number in range(60):
        key = encode_versioned(types.TransactionLogKey(transactional_id=f"id-{number}"), 0)
        if number % 10 == 9:
            yield key, None
            continue
        state = rng.randint(0, 5)
        partitions = [
            types.TransactionLogValue.PartitionsSchema(
                topic=f"topic-{rng.randint(0, 999)}",
                partition_ids=rng.sample(range(200), k=rng.choice((1, 2, 4, 5, 12, 40))),
            )
            for _ in range(rng.randint(0, 6))
        ]
        value = types.TransactionLogValue(
            producer_id=rng.randint(0, 1 << 40),
            producer_epoch=rng.randint(0, 32767),
            transaction_timeout_ms=rng.randint(1, 900_000),
            transaction_status=state,
            transaction_partitions=partitions if state else None,
            transaction_last_update_timestamp_ms=rng.randint(0, 1 << 41),
            transaction_start_timestamp_ms=rng.randint(0, 1 << 41),
        )
        yield key, encode_versioned(value, number % 2)
    yield b"\0\5abc", b"\0\0"


def _share_pairs(rng: Random) -> Iterator[Pair]:
    for number, kind in ((0, "ShareSnapshot"), (1, "ShareUpdate")):
        for _ in range(6):
            key = encode_versioned(random_message(rng, f"{kind}Key", number), number)
            yield key, None
            yield key, encode_versioned(random_message(rng, f"{kind}Value", 0), 0)
    yield b"\0\5abc", b"\0\0"


def _framed(message: Message, version: int) -> Pair:
    assert message.schema.key is not None
    frame = uvarint(1) + uvarint(message.schema.key) + uvarint(version)
    return None, frame + encode_bytes(message, version)


def _cluster_pairs(rng: Random) -> Iterator[Pair]:
    for name in framed_kinds(CLUSTER_METADATA_TOPIC).values():
        for version in sorted(schema(name).versions):
            for _ in range(4 if version <= NEWEST_IN_KAFKA_3.get(name, version) else 0):
                yield _framed(random_message(rng, name, version), version)
    for number in (0.0, 0.001, 0.00099, 1e7, 9999999.5, 1e21, -1.5e-7, 123456789.125, 5e-324):
        yield _framed(types.ClientQuotaRecord(key="producer_byte_rate", value=number), 0)
    yield _framed(types.ConfigRecord(resource_name='tab\t "x" \x01\x1f\x7f é 🦜 \\', value=""), 0)


def _remote_pairs(rng: Random) -> Iterator[Pair]:
    segment, update = (
        types.RemoteLogSegmentMetadataRecord,
        types.RemoteLogSegmentMetadataUpdateRecord,
    )
    deletion = types.RemotePartitionDeleteMetadataRecord
    ids = [random_message(rng, "TopicRecord", 0, absent=0).topic_id for _ in range(4)]
    for custom in (None, b"", b"abc"):
        for state in range(4):
            yield _framed(
                segment(
                    remote_log_segment_id=segment.RemoteLogSegmentIdEntry(
                        topic_id_partition=segment.TopicIdPartitionEntry(
                            name="orders", id=ids[0], partition=state
                        ),
                        id=ids[1],
                    ),
                    start_offset=10,
                    end_offset=1 << 33,
                    broker_id=state,
                    max_timestamp_ms=1_700_000_000_000,
                    event_timestamp_ms=1_700_000_000_001,
                    segment_leader_epochs=[
                        segment.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=epoch * 7)
                        for epoch in (12, 0, 3)
                    ],
                    segment_size_in_bytes=1 << 20,
                    custom_metadata=custom,
                    remote_log_segment_state=state,
                ),
                0,
            )
            yield _framed(
                update(
                    remote_log_segment_id=update.RemoteLogSegmentIdEntry(
                        topic_id_partition=update.TopicIdPartitionEntry(
                            name="orders", id=ids[2], partition=state
                        ),
                        id=ids[3],
                    ),
                    broker_id=state,
                    event_timestamp_ms=5,
                    custom_metadata=custom,
                    remote_log_segment_state=state,
                ),
                0,
            )
    for state in range(3):
        yield _framed(
            deletion(
                topic_id_partition=deletion.TopicIdPartitionEntry(
                    name="orders", id=ids[0], partition=state
                ),
                broker_id=1,
                event_timestamp_ms=7,
                remote_partition_delete_state=state,
            ),
            0,
        )


def segment_of(result: list[Pair], offset: int = 0) -> bytes:
    """Return a segment with some keys and values from an offset on, a batch for each ten."""
    records = [
        Record(number, 1_700_000_000_000 + number, key, value)
        for number, (key, value) in enumerate(result, offset)
    ]
    return b"".join(
        build_batch(records[first : first + 10]) for first in range(0, len(records), 10)
    )


def raft_snapshot(rng: Random) -> bytes:
    """Return the control records that begin and end a snapshot of the cluster's metadata."""
    header = types.SnapshotHeaderRecord(last_contained_log_timestamp=7)
    voters = types.VotersRecord(
        voters=[
            types.VotersRecord.Voter(
                voter_id=1,
                voter_directory_id="AAECAwQFBgcICQoLDA0ODw",
                endpoints=[
                    types.VotersRecord.Endpoint(name="CONTROLLER", host="localhost", port=9093)
                ],
                k_raft_version_feature=types.VotersRecord.KRaftVersionFeature(
                    max_supported_version=1
                ),
            )
        ]
    )
    result: list[tuple[int, Message]] = [
        (2, types.LeaderChangeMessage(leader_id=1)),
        (3, header),
        (5, types.KRaftVersionRecord(k_raft_version=1)),
        (6, voters),
        (4, types.SnapshotFooterRecord()),
    ]
    controls = b"".join(
        build_batch(
            [Record(offset, 7, struct.pack(">hh", 0, number), encode_bytes(message, 0))],
            is_control=True,
        )
        for offset, (number, message) in enumerate(result)
    )
    return controls + segment_of(list(_cluster_pairs(rng))[:3], offset=len(result))


def segments() -> dict[str, bytes]:
    """Return the path and bytes of each recorded file."""
    result = {
        f"{topic}-0/{SEGMENT}": segment_of(list(pairs(topic, Random(topic)))) for topic in FLAGS
    }
    snapshot = raft_snapshot(Random(1))
    folder = f"{CLUSTER_METADATA_TOPIC}-0"
    return result | {f"{folder}/{name}": snapshot for name in SNAPSHOTS}


def main() -> None:
    """Write the segments."""
    for name, data in segments().items():
        path = RECORDED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        sys.stdout.write(f"{name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
