"""Damage that valid batches follow, and segments that another one superseded."""

import pytest

from logstore.config.log_config import LogConfig
from logstore.record.survey import Damage
from logstore.storage.loading.damage import Lost, is_followed, lost_behind
from logstore.storage.loading.leftovers import PartitionFiles
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.on_damage import OnDamage
from logstore.storage.loading.request import LoadRequest
from logstore.storage.loading.surveyed import (
    Leftover,
    _with_following,
    find_superseded,
    leftover_text,
    survey_files,
)
from logstore.types import TopicPartition
from tests.support.world.builders import batch, log_name
from tests.support.world.crafted import segment_files

LIMIT = 1 << 20
SIZE = len(batch(0))


def broken(data):
    """Return a batch whose CRC does not match."""
    return data[:-1] + bytes([data[-1] ^ 1])


def segments(world, **contents):
    """Write segments, named by base offset as `s5`, and open them."""
    for name, data in contents.items():
        world.write(log_name(int(name[1:])), b"".join(data))
    return [world.segment(int(name[1:]), create=False) for name in contents]


@pytest.mark.parametrize(
    ("lost", "text"),
    (
        (Lost(1, 1), "1 valid batch with 1 record"),
        (Lost(1, 2), "1 valid batch with 2 records"),
        (Lost(2, 1), "2 valid batches with 1 record"),
        (Lost(1000, 23456), "1,000 valid batches with 23,456 records"),
        (Lost(0, 0), "0 valid batches with 0 records"),
    ),
)
def test_lost_items_are_named_in_singular_or_plural(lost, text):
    assert str(lost) == text


def test_lost_batches_are_those_at_or_behind_the_cut_and_in_later_segments(world):
    first, second, third = segments(
        world,
        s0=[batch(0, 1), broken(batch(2)), batch(3, 4), batch(6)],
        s7=[batch(7), batch(8, 9)],
        s10=[batch(10), broken(batch(11)), batch(12, 13), bytes(80)],
    )
    at = len(batch(0, 1))
    assert lost_behind(first, at, ()) == Lost(2, 3)
    assert lost_behind(first, 0, ()) == Lost(3, 5)
    last = first.size_bytes - SIZE
    assert lost_behind(first, last, ()) == Lost(1, 1)
    assert lost_behind(first, last + 1, ()) == Lost(0, 0)
    assert lost_behind(first, last + 1, [second]) == Lost(2, 3)
    assert lost_behind(first, at, [second, third]) == Lost(2 + 2 + 2, 3 + 3 + 3)


def test_damage_is_followed_by_a_valid_batch_in_its_file_or_a_later_one(world):
    first, torn, sound = segments(
        world, s0=[batch(0), broken(batch(1)), batch(2)], s3=[broken(batch(3))], s4=[batch(4)]
    )
    assert is_followed(first, SIZE, ())
    assert not is_followed(first, 2 * SIZE, ()), "the batch at the position itself is damaged"
    assert not is_followed(first, 2 * SIZE, [torn])
    assert is_followed(first, 2 * SIZE, [torn, sound])


# -- superseded segments -------------------------------------------------------------------------


def superseded(world, **contents):
    segments(world, **contents)
    paths = {int(name[1:]): world.path(log_name(int(name[1:]))) for name in contents}
    return find_superseded(world.fs, paths, LIMIT)


@pytest.mark.parametrize(
    ("contents", "found"),
    (
        ({"s0": [batch(0), batch(1)], "s2": [batch(2)]}, {}),
        ({"s0": [batch(0), batch(3)], "s2": [batch(2), batch(3)]}, {2: (4, True)}),
        ({"s0": [batch(0), batch(3)], "s2": [batch(2), batch(3), batch(4)]}, {2: (4, False)}),
        ({"s0": [batch(0), batch(2)], "s2": [batch(2)], "s3": [batch(3)]}, {2: (3, True)}),
        (
            {"s0": [batch(0), batch(2), batch(5)], "s2": [batch(2)], "s4": [batch(5), batch(6)]},
            {2: (6, True), 4: (6, False)},
        ),
        # No record in common, another value, or an empty segment: an offset is damaged instead.
        ({"s0": [batch(0), batch(3)], "s2": [batch(2), batch(4)]}, {}),
        ({"s0": [batch(0), batch(3, value=b"w")], "s2": [batch(3)]}, {}),
        ({"s0": [batch(0), batch(3)], "s2": []}, {}),
        ({"s0": [batch(0), batch(9)], "s2": [batch(2)]}, {}),
    ),
)
def test_a_segment_is_superseded_if_all_records_of_the_new_one_are_in_it(world, contents, found):
    path = world.path(log_name(0))
    assert superseded(world, **contents) == {
        base: Leftover(end, path, is_whole) for base, (end, is_whole) in found.items()
    }


def test_a_damaged_segment_ends_after_its_last_valid_batch(world):
    path = world.path(log_name(0))
    contents = {"s0": [batch(0), broken(batch(1)), batch(3)], "s2": [batch(2), batch(3)]}
    assert superseded(world, **contents) == {2: Leftover(4, path, True)}
    contents["s0"].append(bytes(80))  # the headers cannot be walked to the end
    assert superseded(world, **contents) == {2: Leftover(4, path, True)}


def test_the_next_segment_is_the_next_that_is_not_superseded():
    logs = dict.fromkeys((0, 5, 8, 20), "")
    assert list(_with_following(logs, {})) == [(0, 5), (5, 8), (8, 20), (20, None)]
    left = {5: Leftover(10, "", True), 8: Leftover(10, "", False)}
    assert list(_with_following(logs, left)) == [(0, 20), (5, 20), (8, 20), (20, None)]
    last = {20: Leftover(23, "", False)}
    assert list(_with_following(logs, last)) == [(0, 5), (5, 8), (8, 23), (20, None)]


# -- the survey of a partition -------------------------------------------------------------------


def survey_of(world, *, clean=True, **contents):
    segments(world, **contents)
    files = PartitionFiles(world.read_only().fs, world.directory)
    return survey_files(files, LogConfig(), clean), files


def damage(world, base, position, size, check, before, after, **more):
    return Damage(world.path(log_name(base)), position, size, check, before, after, **more)


def test_damage_has_the_offsets_around_it_and_the_records_behind_it(world):
    found, _ = survey_of(
        world,
        s0=[batch(0), broken(batch(1)), batch(2, 3)],
        s4=[broken(batch(4))],
        s5=[batch(5), batch(6), broken(batch(7)), batch(8)],
    )
    assert found.damages == [
        damage(world, 0, SIZE, SIZE, "crc", 0, 2, later_records=5),
        damage(world, 4, 0, SIZE, "crc", 3, 5, later_records=3),
        damage(world, 5, 2 * SIZE, SIZE, "crc", 6, 8, later_records=1),
    ]
    assert found.torn == []
    assert list(found.bounds) == [world.path(log_name(base)) for base in (0, 4, 5)]
    assert [each.following for each in found.bounds.values()] == [4, 5, None]


@pytest.mark.parametrize(
    ("tail", "clean", "check", "is_torn"),
    (
        (broken(batch(1)), True, "crc", False),
        (broken(batch(1)), False, "crc", True),
        (batch(1)[:-5], True, "torn_tail", True),
        (batch(1)[:-5], False, "torn_tail", True),
        (bytes(80), True, "zero_tail", True),
    ),
)
def test_the_end_is_torn_after_an_unclean_stop_or_if_a_batch_is_incomplete(
    world, tail, clean, check, is_torn
):
    found, files = survey_of(world, clean=clean, s0=[batch(0), tail])
    expected = damage(world, 0, SIZE, len(tail), check, 0, None, later_records=0)
    assert (found.torn, found.damages) == (([expected], []) if is_torn else ([], [expected]))
    path = world.path(log_name(0))
    texts = [(each.action, each.path, each.detail) for each in files.findings]
    detail = f"{len(tail)} bytes after position {SIZE} ({check})"
    assert texts == ([("truncated_tail", path, detail)] if is_torn else [])


@pytest.mark.parametrize("clean", (True, False))
def test_a_last_batch_that_can_be_read_is_not_torn(world, clean):
    wrong = batch(1)[:16] + b"\x09" + batch(1)[17:]
    found, files = survey_of(world, clean=clean, s0=[batch(0), wrong])
    expected = damage(world, 0, SIZE, SIZE, "magic", 0, 1, is_mended=True, later_records=1)
    assert (found.torn, found.damages, files.findings) == ([], [expected], ())


def test_the_beginning_that_a_swap_superseded_is_hidden(world):
    found, files = survey_of(
        world, s0=[batch(0), batch(3)], s2=[batch(2), batch(3), batch(4)], s5=[batch(5)]
    )
    [hidden] = found.damages
    assert hidden == damage(
        world, 2, 0, 2 * SIZE, "segment_overlap", 3, 4, is_mended=True, later_records=2
    )
    text = leftover_text(world.path(log_name(0)), 4)
    assert text == f"{world.path(log_name(0))} supersedes its offsets below 4 after a finished swap"
    assert [(each.action, each.path, each.detail) for each in files.findings] == [
        ("leftover_segment", world.path(log_name(2)), text)
    ]


def request(world, **more):
    return LoadRequest(
        directory=world.directory,
        topic_partition=TopicPartition("t", 0),
        config=LogConfig(),
        clean=True,
        **more,
    )


def test_a_surveyed_log_is_not_reloaded_from_files_that_it_does_not_show(world):
    world.put(segment_files(0, batch(0)))
    log = open_log(world.read_only(), request(world, surveys=True, on_damage=OnDamage.PASS_OVER))
    assert log.reload is None
    assert open_log(world.read_only(), request(world)).reload is not None


def test_the_defaults_of_a_request_recover_everything(world):
    found = request(world)
    assert (found.recovery_point, found.log_start_offset, found.reached_offset) == (0, 0, 0)
    assert (found.keep_below, found.high_watermark, found.store_reached_offset) == (0, None, None)
    assert (found.on_damage, found.surveys, found.keeps_cleaned) == (OnDamage.RECOVER, False, False)
    assert (found.producer_id_expiration_ms, found.finding_level) == (86_400_000, 30)
    assert found.small_file_max_bytes == 64 << 20
