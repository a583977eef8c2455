"""Segment maps: each segment's item, joined neighbours, files that await removal, and damage."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis import segment_map
from logstore.analysis.segment_map import SegmentMapItem, SegmentMaps, log_files
from logstore.analysis.summary import SegmentSummary
from logstore.runtime import MemoryFileSystem

T = TopicPartition("t", 0)
START = 1_700_000_000_000


def item(first: int, section: str = "clean", **fields: object) -> SegmentMapItem:
    """Return an item with values of its own."""
    summary = SegmentSummary(10 * first, 10 * first + 7, 100 + first, 3, 5, 1000 + first, section)
    values = {
        "first": first,
        "segments": 1,
        "summary": summary,
        "holes": first,
        "delete_horizon_ms": None,
        "deleted": False,
        "error": None,
    }
    return SegmentMapItem(**(values | fields))


@pytest.mark.parametrize(
    ("horizons", "errors", "horizon", "error"),
    (
        ((None, None), (None, None), None, None),
        ((5, None), (None, "b"), 5, "b"),
        ((None, 6), ("a", None), 6, "a"),
        ((7, 6), ("a", "b"), 6, "a"),
        ((0, 6), (None, None), 0, None),
    ),
)
def test_neighbours_are_joined(horizons, errors, horizon, error) -> None:
    one = item(1, delete_horizon_ms=horizons[0], error=errors[0])
    two = item(2, segments=3, delete_horizon_ms=horizons[1], error=errors[1])
    summary = SegmentSummary(10, 27, 203, 6, 10, 1002, "clean")
    joined = SegmentMapItem(1, 4, summary, 3, horizon, False, error)
    assert one.join(two) == joined
    assert item(1, deleted=True).join(item(2)).deleted
    low = item(2, summary=summary._replace(last_offset=3, max_timestamp=4))
    assert one.join(low).summary[1:] == (17, 304, 9, 15, 1001, "clean")
    assert joined.to_json() == {
        "base_offset": 10,
        "last_offset": 27,
        "size_bytes": 203,
        "batches": 6,
        "records": 10,
        "max_timestamp": 1002,
        "section": "clean",
        "first": 1,
        "segments": 4,
        "holes": 3,
        "tombstones": None,
        "delete_horizon_ms": horizon,
        "deleted": False,
        "error": error,
    }


@pytest.mark.parametrize(
    ("each", "groups"),
    (
        (1, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]),
        (2, [(0, 2), (2, 1), (3, 2), (5, 1)]),
        (3, [(0, 3), (3, 2), (5, 1)]),
        (9, [(0, 3), (3, 2), (5, 1)]),
    ),
)
def test_only_neighbours_of_one_section_are_joined(each: int, groups: list) -> None:
    sections = ["clean"] * 3 + ["dirty"] * 2 + ["clean"]
    items = [item(at, section) for at, section in enumerate(sections)]
    joined = list(segment_map._combine(items, each))
    assert [(one.first, one.segments) for one in joined] == groups
    assert list(segment_map._combine([], each)) == []


def test_the_files_of_a_folder_by_suffix() -> None:
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/d/a/00000000000000000009.log")
    names = ("7.log", "7.index", "8.log.deleted", "8.index.deleted", "9.log.swap")
    for size, name in enumerate((*(f"{0:019d}{name}" for name in names), "x.log", "y.deleted")):
        fs.open(f"/d/{name}", create=True).append([bytes(size + 1)])
    assert log_files(fs, "/d") == [(7, 1)]
    assert log_files(fs, "/d", ".deleted") == segment_map.deleted_files(fs, "/d") == [(8, 3)]
    assert log_files(fs, "/d", ".swap") == [(9, 5)]
    assert log_files(fs, "/nowhere") == []


def test_a_file_that_vanishes_does_not_hide_the_others() -> None:
    class Vanishing:
        def list_dir(self, path: str) -> list[str]:
            return [f"{number:020d}.log" for number in (1, 2, 3)]

        def stat(self, path: str):
            if path.endswith("2.log"):
                raise FileNotFoundError(path)
            return SimpleNamespace(size=9)

    assert log_files(Vanishing(), "/d") == [(1, 9), (3, 9)]


def test_the_items_of_a_partition_and_what_is_read_again(monkeypatch) -> None:
    with Broker(clock=VirtualClock(START)) as broker:
        configs = {"cleanup.policy": "compact", "file.delete.delay.ms": "60000"}
        broker.create_topic("t", configs=configs)
        for value in (b"1", b"2", None):
            broker.append("t", key=b"a", value=value)
            broker.append("t", key=b"b", value=b"v")
            broker.roll("t")
        broker.append("t", key=b"c", value=b"v")
        maps = SegmentMaps(broker)
        log = broker.log("t")
        sizes = [each.size_bytes for each in log.segments]

        def rows(items) -> list[tuple]:
            return [
                (
                    *(each.first, each.segments, *each.summary),
                    *(each.holes, each.delete_horizon_ms, each.deleted, each.error),
                )
                for each in items
            ]

        total, items = maps.items(T)
        assert total == 4
        plain = (None, False, None)
        assert rows(items) == [
            *(
                (at, 1, 2 * at, 2 * at + 1, sizes[at], 2, 2, START, "dirty", 0, *plain)
                for at in range(3)
            ),
            (3, 1, 6, 6, sizes[3], 1, 1, START, "active", 0, *plain),
        ]
        assert maps.items(T, 1, 2) == (4, items[1:3])
        assert maps.items(T, 3) == (4, items[3:])
        assert maps.items(T, 9, 1) == (4, [])
        assert rows(maps.buckets(T, 2, 0, None)[1])[0][:5] == (0, 2, 0, 3, sum(sizes[:2]))
        assert [each.segments for each in maps.buckets(T, 3, 0, 3)[1]] == [1, 1, 1]
        assert [each.segments for each in maps.buckets(T, 0, 0, None)[1]] == [3, 1]
        broker.append("t", key=b"c", value=b"w")
        assert rows(maps.items(T)[1])[3][3:7] == (7, log.active_segment.size_bytes, 2, 2)
        broker.clean("t", force=True)
        total, items = maps.items(T)
        assert rows(items)[0][:2] == (0, 1)
        live = [each for each in items if not each.deleted]
        gone = [each for each in items if each.deleted]
        assert [each.summary.base_offset for each in live] == [0, 6]
        assert (live[0].holes, live[0].delete_horizon_ms) == (4, START + 86_400_000)
        assert live[0].summary[1:6] == (5, log.segments.first.size_bytes, 2, 2, START)
        assert rows(gone) == [
            (
                at,
                1,
                2 * number,
                2 * number - 1,
                sizes[number],
                0,
                0,
                -1,
                "deleted",
                0,
                None,
                True,
                None,
            )
            for at, number in zip([each.first for each in gone], range(3), strict=True)
        ]
        assert total == 5
