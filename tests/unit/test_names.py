"""Names of files, folders and topics: exactly those of the format, to the last character."""

from __future__ import annotations

import re

import pytest

from logstore.errors import InvalidTopicError
from logstore.names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    LogDirName,
    SegmentFile,
    deletion_dir_name,
    future_dir_name,
    parse_log_dir,
    parse_partition_dir,
    parse_segment_file,
    validate_topic_name,
)
from logstore.types import TopicPartition
from tests.support.world.messages import exactly

HEX = "0123456789abcdef" * 2


def test_a_segment_file_is_taken_apart() -> None:
    assert parse_segment_file("00000000000000000005.log.swap") == SegmentFile(5, ".log", ".swap")
    assert parse_segment_file("00000000000000000005.txnindex") == SegmentFile(5, ".txnindex", "")


@pytest.mark.parametrize(
    "name",
    (
        "00000000000000000005.log\n",
        "00000000000000000005.log.swap\n",
        "0000000000000000000\u0665.log",
        "00000000000000000005.logs",
        "x00000000000000000005.log",
        "leader-epoch-checkpoint",
    ),
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert parse_segment_file(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    (
        ("", "the topic name is empty"),
        (".", "topic name '.' is not allowed"),
        ("..", "topic name '..' is not allowed"),
        (
            "a\n",
            ("topic name 'a\\n' has characters other than ASCII letters, digits, '.', '_' and '-'"),
        ),
        (
            "a/b",
            ("topic name 'a/b' has characters other than ASCII letters, digits, '.', '_' and '-'"),
        ),
        (
            "a b",
            ("topic name 'a b' has characters other than ASCII letters, digits, '.', '_' and '-'"),
        ),
        ("ä", ("topic name 'ä' has characters other than ASCII letters, digits, '.', '_' and '-'")),
        ("a" * 250, "topic name of 250 characters is longer than 249"),
    ),
)
def test_names_that_no_topic_may_have(name: str, message: str) -> None:
    with pytest.raises(InvalidTopicError, match=exactly(message)):
        validate_topic_name(name)


# --- folders of a data directory --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    (
        ("t-7", "t", 7, ""),
        ("a-b-0", "a-b", 0, ""),
        ("-1-2", "-1", 2, ""),
        ("t.x-2147483647", "t.x", 2**31 - 1, ""),
        (f"t-7.{HEX}-delete", "t", 7, DELETE_DIR_SUFFIX),
        (f"t-7.{HEX}-future", "t", 7, FUTURE_DIR_SUFFIX),
        (f"t-7.{HEX}-stray", "t", 7, STRAY_DIR_SUFFIX),
        (f"a.b-c-10.{HEX}-delete", "a.b-c", 10, DELETE_DIR_SUFFIX),
        # A topic whose own name looks like a folder to be deleted.
        (f"t-7.{HEX}-delete-3", f"t-7.{HEX}-delete", 3, ""),
        (f"t-7.{HEX}-delete-3.{HEX}-stray", f"t-7.{HEX}-delete", 3, STRAY_DIR_SUFFIX),
        (f"{'t' * 249}-2147483647", "t" * 249, 2**31 - 1, ""),
    ),
)
def test_a_partitions_folder_is_taken_apart(name, topic, partition, state) -> None:
    assert parse_log_dir(name) == LogDirName(TopicPartition(topic, partition), state)
    if not state:
        assert parse_partition_dir(name) == (topic, partition)
    else:
        assert parse_partition_dir(name) is None


@pytest.mark.parametrize(
    "name",
    (
        "",
        "t",
        "-",
        "-7",
        "t-",
        "t-x",
        "t-+7",
        "t- 7",
        "t-\u0667",
        "t-7\n",
        "t-delete",
        "t-7-delete",
        f"t-7.{HEX[1:]}-delete",
        f"t-7.{HEX}0-delete",
        f"t-7.{HEX.upper()}-delete",
        f"t-7.{HEX}-deleted",
        f"t.{HEX}-delete",
        f"-7.{HEX}-delete",
        f".{HEX}-delete",
        # Names that would be opened under another name, or do not fit into a checkpoint.
        "t-007",
        "t-2147483648",
        "a b-0",
        "ä-0",
        "..-0",
        f"{'t' * 250}-0",
        f"a b-0.{HEX}-delete",
        # Kafka's folders next to the partitions.
        "remote-log-index-cache",
        "__cluster_metadata-0",
        "lost+found",
    ),
)
def test_other_folders_are_not_partitions(name: str) -> None:
    assert parse_log_dir(name) is None


def test_s127_a_name_for_deletion_fits_and_is_never_the_same_twice() -> None:
    """The topic's part of 249 characters is cut, the partition and the rest are not."""
    partition = TopicPartition("t" * 249, 12)
    first, second = (deletion_dir_name(partition, bits) for bits in (7, 2**128 - 1))
    for name in (first, second):
        assert len(name) == 255
        assert re.fullmatch(r"(t+)-12\.[0-9a-f]{32}-delete", name)
        assert len(name.partition("-")[0]) < 249
        parsed = parse_log_dir(name)
        assert parsed is not None
        assert parsed.state == DELETE_DIR_SUFFIX
        assert parsed.topic_partition.partition == 12
    assert first[-39:] != second[-39:]


def test_a_name_for_a_copy_fits_too() -> None:
    name = future_dir_name(TopicPartition("t" * 249, 12), 7)
    assert len(name) == 255
    assert re.fullmatch(r"(t+)-12\.[0-9a-f]{32}-future", name)
    short = future_dir_name(TopicPartition("t", 7), 7)
    parsed = parse_log_dir(short)
    assert parsed == (TopicPartition("t", 7), FUTURE_DIR_SUFFIX)


@pytest.mark.parametrize("length", (1, 211, 212, 213, 249))
@pytest.mark.parametrize("number", (0, 2**31 - 1))
def test_a_topic_is_cut_no_more_than_it_must_be(length: int, number: int) -> None:
    """S-127 at its edges: the hex may begin with zeros."""
    partition = TopicPartition("a" * length, number)
    name = deletion_dir_name(partition, 5)
    whole = f"{partition}.{'5':0>32}-delete"
    assert name == whole if len(whole) <= 255 else len(name) == 255
    assert name.endswith(f"-{number}.{'5':0>32}-delete")
    parsed = parse_log_dir(name)
    assert parsed is not None
    assert partition.topic.startswith(parsed.topic_partition.topic)
