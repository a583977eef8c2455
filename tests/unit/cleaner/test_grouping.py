"""Grouping of neighbouring segments that are merged."""

from __future__ import annotations

from types import SimpleNamespace

from logstore.cleaner.passes.grouping import BATCH_BYTES, BATCH_GROUPS, batch_groups, group_segments
from logstore.config.log_config import LogConfig
from logstore.types import INT32_MAX
from tests.support.world.builders import bases_of, memory_world
from tests.support.world.cleaning import compacted, put_each, run_pass

CONFIG = LogConfig(segment_bytes=1024, segment_index_bytes=80)


def segment(base: int, size: int = 100, index: int = 0, time_index: int = 12):
    """Return a segment with the attributes that grouping uses."""
    return SimpleNamespace(
        base_offset=base,
        size_bytes=size,
        offset_index=SimpleNamespace(size_bytes=index),
        time_index=SimpleNamespace(size_bytes=time_index),
    )


def groups(segments: list, upper_bound: int | None = None) -> list[list[int]]:
    end = segments[-1].base_offset + 10 if upper_bound is None else upper_bound
    return [[s.base_offset for s in group] for group in group_segments(segments, CONFIG, end)]


def test_s190_log_bytes_up_to_the_limit() -> None:
    assert groups([segment(0, 600), segment(10, 424)]) == [[0, 10]]
    assert groups([segment(0, 600), segment(10, 425)]) == [[0], [10]]


def test_groups_are_greedy_and_in_order() -> None:
    sizes = (500, 500, 100, 924, 1, 2000, 1, 1)
    segments = [segment(10 * at, size, time_index=0) for at, size in enumerate(sizes)]
    assert groups(segments) == [[0, 10], [20, 30], [40], [50], [60, 70]]


def test_used_bytes_of_either_index_are_limited() -> None:
    assert groups([segment(0, index=40), segment(10, index=40)]) == [[0, 10]]
    assert groups([segment(0, index=40), segment(10, index=48)]) == [[0], [10]]
    assert groups([segment(0, time_index=36), segment(10, time_index=36)]) == [[0, 10]]
    assert groups([segment(0, time_index=36), segment(10, time_index=48)]) == [[0], [10]]


def test_the_span_of_offsets_is_limited_by_what_a_segment_may_hold() -> None:
    """Up to the base of the next segment, or the end of the round."""
    assert groups([segment(5), segment(10), segment(5 + INT32_MAX + 1)]) == [
        [5, 10],
        [5 + INT32_MAX + 1],
    ]
    assert groups([segment(5), segment(10), segment(5 + INT32_MAX + 2)])[0] == [5]
    assert groups([segment(5), segment(10)], upper_bound=5 + INT32_MAX + 1) == [[5, 10]]
    assert groups([segment(5), segment(10)], upper_bound=5 + INT32_MAX + 2) == [[5], [10]]


def test_an_empty_segment_joins_whatever_its_span() -> None:
    far = 2**33
    assert groups([segment(0, 0), segment(far, 0), segment(2 * far, 50)]) == [[0, far], [2 * far]]


def test_one_segment_is_a_group_however_large() -> None:
    assert groups([segment(0, 10_000, index=800, time_index=800)]) == [[0]]
    assert group_segments([], CONFIG, 0) == []


def test_s191_sizes_are_those_before_cleaning() -> None:
    log = compacted(memory_world(), segment_bytes=1000)
    put_each(log, *((b"%d" % (number % 2), b"v" * 30) for number in range(18)))
    log.writer.roll()
    assert len(bases_of(log)) == 3
    first, second, active = bases_of(log)
    stats = run_pass(log)
    assert (stats.segments_before, stats.segments_after) == (2, 2)
    assert bases_of(log) == [first, second, active]
    stats = run_pass(log, active, active)
    assert (stats.segments_before, stats.segments_after) == (2, 1)
    assert bases_of(log) == [first, active]


# -- batches of groups -----------------------------------------------------------------------------


def batches(*sizes: int) -> list[list[int]]:
    """Return the numbers of the groups that are swapped together, for groups of these sizes."""
    named = [[segment(number, size)] for number, size in enumerate(sizes)]
    return [[group[0].base_offset for group in batch] for batch in batch_groups(named)]


def test_small_groups_are_swapped_together_as_many_as_may_be() -> None:
    assert [len(batch) for batch in batches(*[1] * (2 * BATCH_GROUPS + 1))] == [
        BATCH_GROUPS,
        BATCH_GROUPS,
        1,
    ]
    assert batches() == []


def test_what_is_swapped_together_is_small() -> None:
    assert batches(1, BATCH_BYTES - 1, 1) == [[0, 1], [2]]
    assert batches(1, BATCH_BYTES, 1) == [[0], [1], [2]], "a large one is swapped alone"
    assert batches(BATCH_BYTES * 2, 0, 0) == [[0], [1, 2]]


def test_all_sources_of_a_group_count() -> None:
    pair = [segment(0, BATCH_BYTES // 2), segment(1, BATCH_BYTES // 2)]
    assert len(list(batch_groups([pair, [segment(2, 1)]]))) == 2
