"""Names of files, directories and topics."""

from __future__ import annotations

import re
from typing import NamedTuple

from logstore.errors import InvalidTopicError
from logstore.types import INT32_MAX, TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

LEADER_EPOCHS = "leader-epoch-checkpoint"
"""The leader epochs of a partition, in its folder."""

LOCK_FILE = ".lock"

META_PROPERTIES = "meta.properties"
"""Kafka's file with the node id and cluster id of a data directory."""

PRODUCER_IDS_FILE = "logstore-producer-ids.json"
"""The file with the producer ids that were assigned."""

CLUSTER_FILE = "logstore-cluster.json"
"""The file of a cluster's controller, in `CONTROLLER_DIR`."""

CONTROLLER_DIR = "controller"
"""The folder of the controller in a cluster's directory."""

FORMER_COORDINATOR_DIR = "coordinator"
"""The directory of groups and transactions that earlier versions created in a cluster directory."""

METADATA_LOG_DIR = "__cluster_metadata-0"
"""The folder of a KRaft node's metadata log, which is not a partition."""

METADATA_LOG = TopicPartition("__cluster_metadata", 0)
"""The name of the metadata log in commands that read."""

RAFT_SNAPSHOT_SUFFIX = ".checkpoint"
RAFT_BOOTSTRAP = "bootstrap.checkpoint"
"""Snapshots of a Raft log, and the first one of a new cluster. They contain batches like a log."""

RAFT_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
"""The end offset and the epoch of a Raft log's snapshot."""

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_COMPACTED_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})

KAFKAS_OWN_TOPICS = INTERNAL_COMPACTED_TOPICS | {
    "__cluster_metadata",
    "__remote_log_metadata",
    "__share_group_state",
}
"""Topics that only brokers and controllers write, in their own formats."""

_COMPACT = {"cleanup.policy": "compact"}
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}

_CONFIGS_BY_NAME: tuple[tuple[str, str, dict[str, str]], ...] = (
    (r"__consumer_offsets|__transaction_state", "Kafka's brokers create it", _COMPACT),
    (r"__share_group_state", "Kafka's brokers create it", _KEEP | {"segment.bytes": "104857600"}),
    (r"_schemas", "a schema registry creates it", _COMPACT),
    (r".+-(offsets|configs|status)", "Kafka Connect creates topics of this name", _COMPACT),
    (r".+-changelog", "Kafka Streams creates topics of this name", _COMPACT),
    (
        r".+-repartition",
        "Kafka Streams creates topics of this name",
        _KEEP | {"segment.bytes": "52428800"},
    ),
)


class NamedConfigs(NamedTuple):
    """The configuration with which `creator` creates topics whose names match."""

    creator: str
    configs: dict[str, str]


def configs_by_name(topic: str) -> NamedConfigs | None:
    """Return the configuration implied by a topic's name, or None if there is none.

    Sources: `KafkaAdminClient` of Connect's `TopicAdmin`, `InternalTopicConfig` of Streams, and the
    broker's `ShareCoordinatorService`. The changelog of a windowed store also uses the policy
    `delete`, which its name does not show.
    """
    for pattern, creator, configs in _CONFIGS_BY_NAME:
        if re.fullmatch(pattern, topic):
            return NamedConfigs(creator, configs)
    return None


BROKER_DIRS = frozenset({METADATA_LOG_DIR, "remote-log-index-cache"})
"""Folders of a broker in a data directory that are not partitions."""

MAX_TOPIC_LENGTH = 249
MAX_DIR_NAME_LENGTH = 255

_SEGMENT_FILE = re.compile(
    r"([0-9]+)(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.\w+)?", re.ASCII
)
_SUFFIXED_DIR = re.compile(r"(.+)\.[0-9a-f]{32}(-delete|-future|-stray)", re.ASCII)
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


class SegmentFile(NamedTuple):
    """A parsed file name in a partition directory. `00…05.log.swap` is (5, `.log`, `.swap`)."""

    base_offset: int
    kind: str
    state: str


class LogDirName(NamedTuple):
    """A parsed folder name. `state` is the suffix, or empty for a live partition.

    If the name was truncated to the maximum length, only the beginning of the topic is known.
    """

    topic_partition: TopicPartition
    state: str


def file_name(base_offset: int, kind: str) -> str:
    """Return `00000000000000000005.log` for 5 and `.log`."""
    return f"{base_offset:020d}{kind}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the file name of a segment or snapshot. Return None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def is_raft_snapshot(name: str) -> bool:
    """Return whether a file is a snapshot of a Raft log, by its name."""
    return name == RAFT_BOOTSTRAP or RAFT_SNAPSHOT.fullmatch(name) is not None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition that a directory is named after, or None if there is none.

    Also None for names with a suffix (`-delete`, `-future`, `-stray`).
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))


def parse_log_dir(name: str) -> LogDirName | None:
    """Parse the name of a partition folder: `t-7`, or `t-7.<32 hex>-delete` (-future, -stray).

    Stricter than `parse_partition_dir`: the result is None unless a broker would give the partition
    exactly this name. A folder is thus never opened under a different name (`t-007`), and a topic
    name never breaks the lines of a checkpoint.
    """
    match = _SUFFIXED_DIR.fullmatch(name)
    stem, state = (match[1], match[2]) if match else (name, "")
    found = parse_partition_dir(stem)
    if found is None or stem != str(found) or stem == METADATA_LOG_DIR:
        return None
    if found.partition > INT32_MAX or not is_legal_topic_name(found.topic):
        return None
    return LogDirName(found, state)


def deletion_dir_name(topic_partition: TopicPartition, bits: int) -> str:
    """Return a new name for the folder of a partition that will be deleted.

    The topic is truncated if the name would exceed 255 characters, the limit of file systems.

    Parameters
    ----------
    bits : int
        128 random bits, which make the name unique.
    """
    return _suffixed_dir_name(topic_partition, bits, DELETE_DIR_SUFFIX)


def future_dir_name(topic_partition: TopicPartition, bits: int) -> str:
    """Return a new name for the folder into which a partition is copied.

    Long topics are truncated as in `deletion_dir_name`. Kafka does not truncate them, and cannot
    move a partition whose topic has more than 213 characters.
    """
    return _suffixed_dir_name(topic_partition, bits, FUTURE_DIR_SUFFIX)


def _suffixed_dir_name(topic_partition: TopicPartition, bits: int, suffix: str) -> str:
    ending = f"-{topic_partition.partition}.{bits:032x}{suffix}"
    return topic_partition.topic[: MAX_DIR_NAME_LENGTH - len(ending)] + ending


def is_legal_topic_name(name: str) -> bool:
    """Return whether `validate_topic_name` accepts a name."""
    return (
        len(name) <= MAX_TOPIC_LENGTH
        and name not in (".", "..")
        and _LEGAL_TOPIC.fullmatch(name) is not None
    )


def validate_topic_name(name: str) -> None:
    """Raise `InvalidTopicError` unless `name` is a legal topic name."""
    if not name:
        raise InvalidTopicError("the topic name is empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"topic name {name!r} is not allowed")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopicError(
            f"topic name of {len(name)} characters is longer than {MAX_TOPIC_LENGTH}"
        )
    if not _LEGAL_TOPIC.fullmatch(name):
        raise InvalidTopicError(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )
