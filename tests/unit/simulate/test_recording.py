"""Keys and arrivals of a recording, piece by piece."""

from types import SimpleNamespace

import numpy as np
import pytest

from logstore.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from logstore.simulate import recording
from logstore.simulate.recording import Arrivals, Origin, hashes_of, select_partitions
from logstore.types import TopicPartition


def test_keys_are_numbered_in_the_order_of_their_first_records():
    keys = recording._Keys(100)
    numbers, is_first = keys.add(0, [b"b", b"a", b"b", b"c"])
    assert (numbers.tolist(), is_first.tolist()) == ([0, 1, 0, 2], [True, True, False, True])
    numbers, is_first = keys.add(1, [b"c", b"b"])
    assert (numbers.tolist(), is_first.tolist()) == ([3, 4], [True, True])
    numbers, is_first = keys.add(0, [b"d", b"a", b"d"])
    assert (numbers.tolist(), is_first.tolist()) == ([5, 1, 5], [True, False, False])
    assert keys.keys == [b"b", b"a", b"c", b"c", b"b", b"d"]
    assert keys.partition.tolist() == [0, 0, 0, 1, 1, 0]
    assert keys.last_seen.tolist() == [2, 7, 3, 4, 5, 8]
    table, rank = keys.rank(np.array([1, 2, 0, 2, 5, 0]))
    assert rank.tolist() == [3, 1, 4, 2, 0, 5]
    assert (table.count, table.held) == (6, 6)
    assert table.data.tobytes() == b"bacbcd"
    assert table.partition.tolist() == [1, 0, 1, 0, 0, 0]
    found = table.find(hashes_of(0, [b"a", b"b", b"x", b"d"]))
    assert found.tolist() == [1, 3, -1, 5]
    assert table.find(hashes_of(1, [b"b", b"a", b"c"])).tolist() == [0, -1, 2]


def test_the_bytes_of_the_keys_that_were_seen_last_are_kept():
    keys = recording._Keys(2)
    keys.add(0, [b"a", b"b", b"c", b"d"])
    assert keys.keys == [b"a", b"b", b"c", b"d"]  # up to twice as many
    keys.add(0, [b"a", b"e"])
    assert keys.keys == [b"a", None, None, None, b"e"]
    keys.add(0, [b"f"])
    keys.add(0, [b"g"])
    table, rank = keys.rank(np.array([0, 9, 0, 0, 0, 0, 1]))
    assert keys.keys == [None, None, None, None, None, b"f", b"g"]
    assert (table.count, table.held, table.data.tobytes()) == (7, 2, b"gf")
    assert rank.tolist() == [3, 2, 4, 5, 6, 1, 0]


@pytest.mark.parametrize(
    ("prefix", "has_prefix"),
    ((b"", True), (b"ab", True), (b"abc", True), (b"abcd", False), (b"bc", False), (b"x", True)),
)
def test_a_prefix_of_any_key(prefix, has_prefix):
    keys = recording._Keys(9)
    keys.add(0, [b"zz", b"abc", b"x", b""])
    table, _ = keys.rank(np.array([3, 2, 1, 0]))
    assert table.has_prefix(prefix) is has_prefix


def test_an_empty_table_has_no_key():
    table, _ = recording._Keys(9).rank(np.zeros(0, np.int64))
    assert table.find(hashes_of(0, [b"a"])).tolist() == [-1]
    assert table.has_prefix(b"a") is False


def piece(*times):
    """Return a piece whose keys are its times."""
    column = np.array(times, np.int64)
    return recording._Piece(
        Arrivals(column, column, column, column, column, column > 0), [(each,) for each in times]
    )


def test_a_window_keeps_the_last_pieces_that_reach_its_limit():
    window = recording._Window(5)
    for times in ((1, 2, 3), (4, 5), (6, 7)):
        window.add(piece(*times))
    assert (len(window.pieces), window.records, window.left_out) == (3, 7, 0)
    window.add(piece(8))
    assert (len(window.pieces), window.records, window.left_out) == (3, 5, 3)
    window.add(piece(*range(9, 19)))
    assert (len(window.pieces), window.records, window.left_out) == (1, 10, 8)
    window.add(piece(19))
    window.clear()
    assert (window.pieces, window.records, window.left_out) == ([], 0, 0)
    assert [each.batches for each in window.cleaned] == [[(19,)]]
    window.clear()
    assert [each.batches for each in window.cleaned] == [[(19,)]]


def test_pieces_are_concatenated_and_cut_by_time():
    whole = recording._Piece.concatenate([piece(1, 2), piece(5), piece()])
    assert whole.arrivals.time_ms.tolist() == [1, 2, 5]
    assert whole.batches == [(1,), (2,), (5,)]
    assert whole.arrivals.before(2).key.tolist() == [1]
    assert whole.arrivals.since(2).key.tolist() == [2, 5]
    assert len(recording._Piece.concatenate([]).arrivals.is_first) == 0


@pytest.mark.parametrize(
    ("records", "base", "last", "previous", "has_hole"),
    (
        (3, 10, 12, -1, False),
        (3, 10, 12, 9, False),
        (2, 10, 12, 9, True),
        (3, 10, 12, 8, True),
        (3, 10, 12, 0, True),
        (3, 0, 2, -1, False),
    ),
)
def test_a_hole_is_in_a_batch_or_before_it(records, base, last, previous, has_hole):
    header = SimpleNamespace(record_count=records, base_offset=base, last_offset=last)
    assert recording._has_hole(header, previous) is has_hole


def origin(**topics):
    names = [TopicPartition(name, part) for name, count in topics.items() for part in range(count)]
    return Origin(dict.fromkeys(names))


def test_topics_are_selected_by_name_and_internal_ones_only_to_be_refused():
    some = origin(a=2, __consumer_offsets=1, b=1)
    parts = {"a": [TopicPartition("a", 0), TopicPartition("a", 1)], "b": [TopicPartition("b", 0)]}
    assert select_partitions(some, []) == parts
    assert select_partitions(some, ["b"]) == {"b": parts["b"]}
    assert len(select_partitions(origin(a=255, b=1), [])["a"]) == 255


@pytest.mark.parametrize(
    ("topics", "names", "error", "message"),
    (
        ({}, [], InvalidConfigurationError, "the directory contains no partition"),
        ({"a": 1}, ["a", "b"], UnknownTopicOrPartitionError,
         "unknown topic 'b'; existing topics: a"),
        (dict.fromkeys("abcde", 1), ["x"], UnknownTopicOrPartitionError,
         "unknown topic 'x'; existing topics: a, b, c, d, e"),
        (dict.fromkeys("abcdef", 1), ["x"], UnknownTopicOrPartitionError,
         "unknown topic 'x'; existing topics: a, b, c, d, e …"),
        ({"a": 200, "b": 57}, [], InvalidConfigurationError,
         "257 partitions of 2 topics are more than 256: choose topics by name"),
        ({"__consumer_offsets": 1}, [], InvalidConfigurationError,
         "topic '__consumer_offsets' cannot be simulated: only Kafka writes it, in a format of its "
         "own. Random keys and values are not valid records of it"),
        ({"a": 1, "__consumer_offsets": 1}, ["__consumer_offsets"], InvalidConfigurationError,
         "topic '__consumer_offsets' cannot be simulated: only Kafka writes it, in a format of its "
         "own. Random keys and values are not valid records of it"),
    ),
)  # fmt: skip
def test_a_selection_is_refused_with_its_reason(topics, names, error, message):
    with pytest.raises(error) as refusal:
        select_partitions(origin(**topics), names)
    assert str(refusal.value) == message
