"""Names of files, directories and topics (storage-format §6)."""

from __future__ import annotations

import re
from typing import NamedTuple

from logstore.errors import InvalidTopicError
from logstore.types import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

MAX_TOPIC_LENGTH = 249

_SEGMENT_FILE = re.compile(
    r"([0-9]+)(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.\w+)?", re.ASCII
)
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


class SegmentFile(NamedTuple):
    """A name in a partition directory, taken apart: `00…05.log.swap` is (5, `.log`, `.swap`)."""

    base_offset: int
    kind: str
    state: str


def file_name(base_offset: int, kind: str) -> str:
    """Return `00000000000000000005.log` for 5 and `.log`."""
    return f"{base_offset:020d}{kind}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Take a segment's or snapshot's file name apart; None if it is not one."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition that a directory name stands for, or None if it is not one.

    Suffixed forms (`-delete`, `-future`, `-stray`) are no live partitions and give None.
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))


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
