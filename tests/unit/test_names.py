"""Names of files and topics: nothing but what the format says, to the last character."""

from __future__ import annotations

import pytest

from logstore.errors import InvalidTopicError
from logstore.names import SegmentFile, parse_segment_file, validate_topic_name


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
def test_other_names_are_no_segment_files(name: str) -> None:
    assert parse_segment_file(name) is None


@pytest.mark.parametrize("name", ("", ".", "..", "a\n", "a/b", "a b", "ä", "a" * 250))
def test_names_that_no_topic_may_have(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        validate_topic_name(name)
