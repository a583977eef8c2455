"""Scenarios S-129 to S-148 of loading and recovery; splits are in `test_loader_split`."""

import pytest

from logstore.errors import CorruptRecordError
from logstore.names import file_name
from logstore.storage.log.epochs import EpochEntry
from logstore.types import AppendOrigin, TimestampOffset
from tests.support.world.builders import (
    World,
    actions_of,
    batch,
    fill,
    findings_of,
    log_name,
    memory_world,
    offsets_in,
    records_of,
)
from tests.support.world.crafted import CRAFTED, FAR, SMALL, bases_of, closed

REPLICA = AppendOrigin.REPLICATION


def put(world, name):
    """Copy the directory of a scenario."""
    crafted = CRAFTED[name]()
    crafted.put(world)
    return crafted


def mtimes(world):
    return {n: world.fs.stat(world.path(n)).mtime_ms for n in world.files()}


# -- indexes ---------------------------------------------------------------------------------


def test_s129_indexes_without_a_log_are_removed(world):
    """The indexes of 5 stay removed; the one of 0 is recreated at full size when it is used."""
    crafted = put(world, "S-129")
    log = crafted.open(world, segment_index_bytes=4000)
    assert [(f.action, f.path) for f in log.findings] == [
        ("removed_leftover", world.path(name)) for name in crafted.files
    ]
    fill(log, 1)
    assert not [name for name in world.files() if name.startswith(f"{5:020d}")]
    assert world.files(".index", ".timeindex") == {
        file_name(0, ".index"): bytes(4000),
        file_name(0, ".timeindex"): bytes(3996),
    }
    assert (log.segments.first.offset_index.entries, offsets_in(log)) == (0, [0])


def test_s130_lost_indexes_are_built_again(world):
    log = put(world, "S-130").open(world)
    assert len(log.segments) == 50
    assert [record.offset for record in records_of(log)] == list(range(200))
    for offset in range(200):
        assert next(log.reader.records(offset))[1].offset == offset
        found = log.reader.offset_for_timestamp(1000 + offset)
        assert (found.timestamp, found.offset) == (1000 + offset, offset)
    for segment in log.segments:
        assert segment.offset_index.entries == 3
        assert segment.time_index.entries > 0
    log.close()
    assert world.files(".index", ".timeindex", ".log") == {
        name: data
        for name, data in closed(200, **SMALL).items()
        if name.endswith((".index", ".timeindex", ".log"))
    }


def test_s131_lost_time_indexes_stay_empty_after_a_clean_stop(world):
    """Without recovery: the times of the files replace the lost timestamps."""
    crafted = put(world, "S-131")
    for base in bases_of(crafted.files):
        world.fs.set_mtime(world.path(log_name(base)), 77_000 + base)
    log = crafted.open(world)
    assert log.findings == ()
    for segment in log.segments:
        assert segment.time_index.entries == 0
        assert segment.largest_timestamp == 77_000 + segment.base_offset
        assert segment.max_timestamp_so_far == TimestampOffset(-1, segment.base_offset)
    assert offsets_in(log) == list(range(20))
    log.close()
    assert set(world.files(".timeindex").values()) == {b""}
    assert len(world.files(".timeindex")) == len(bases_of(crafted.files))


def test_s132_only_the_segment_without_an_index_is_rebuilt(world):
    """In other segments only the active one's indexes are written, to let them grow."""
    crafted = put(world, "S-132")
    victim = bases_of(crafted.files)[1]
    before = mtimes(world)
    world.clock.advance(days=1)
    log = crafted.open(world)
    assert [(f.action, f.path) for f in log.findings] == [
        ("rebuilt_index", world.path(log_name(victim)))
    ]
    active = log.active_segment.base_offset
    after = mtimes(world)
    touched = {name for name in after if after[name] != before.get(name)}
    # Snapshots depend on the batches that were read, not on the segments.
    assert {name for name in touched if not name.endswith(".snapshot")} == {
        file_name(base, kind) for base in (victim, active) for kind in (".index", ".timeindex")
    }
    assert offsets_in(log) == list(range(20))
    log.close()
    assert world.files(".index", ".timeindex", ".log") == {
        name: data
        for name, data in closed(20, **SMALL).items()
        if name.endswith((".index", ".timeindex", ".log"))
    }


def test_s133_noise_in_all_indexes_is_replaced_by_an_unclean_start(world):
    log = put(world, "S-133").open(world, recovery_point=0)
    assert offsets_in(log) == list(range(30))
    for offset in range(30):
        assert log.reader.offset_for_timestamp(1000 + offset).offset == offset
    log.close()
    assert world.files(".index", ".timeindex", ".log") == {
        name: data
        for name, data in closed(30, **SMALL).items()
        if name.endswith((".index", ".timeindex", ".log"))
    }


def test_s134_an_unclean_start_finds_what_a_clean_stop_left(world):
    log = world.log(**SMALL)
    fill(log, 100)
    log.close()
    files = world.files()

    def indexes(log):
        return [
            (s.offset_index.entries, s.time_index.entries, s.time_index.last_entry)
            for s in log.segments
        ]

    expected = indexes(world.log(**SMALL))
    assert expected[-1][-1] == TimestampOffset(1099, 99)
    for recovery_point in (100, 10):
        world.put(files)
        log = world.log(clean=False, recovery_point=recovery_point, **SMALL)
        assert indexes(log) == expected
        assert (log.recovery_point, log.log_end_offset) == (recovery_point, 100)
        log.flush()
        assert log.recovery_point == 100


def test_s144_an_untouched_active_segment_gets_its_indexes(world):
    crafted = put(world, "S-144")
    assert file_name(2, ".index") not in crafted.files
    log = crafted.open(world)
    assert findings_of(log) == [
        ("rebuilt_index", "00000000000000000002.log", "the offset index is missing")
    ]
    assert (log.log_end_offset, log.active_segment.base_offset) == (2, 2)
    assert (world.path(file_name(2, ".index")), 0) == (
        log.active_segment.offset_index.path,
        log.active_segment.offset_index.entries,
    )
    assert log.active_segment.offset_index.exists_on_disk
    log.active_segment.offset_index.sanity_check()


# -- data lost -------------------------------------------------------------------------------


def test_s135_what_is_cut_below_the_log_start_gives_way_to_an_empty_segment(world):
    crafted = put(world, "S-135")
    assert bases_of(crafted.files) == [0, 1, 2, 3, 4, 5]
    log = crafted.open(world)
    assert [(s.base_offset, s.size_bytes) for s in log.segments] == [(4, 0)]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (4, 4, 4)
    assert {"truncated_tail", "removed_segment", "reset_log"} == set(actions_of(log))
    assert log.epochs.entries == ()
    on_disk = [int(name[:20]) for name in world.files(".snapshot")]
    assert on_disk == log.producer_state.snapshot_offsets
    assert [name for name in world.files() if name.endswith(".log")] == [log_name(4)]
    fill(log, 1)
    assert offsets_in(log) == [4]


def test_s146_a_recovery_point_beyond_the_log_end_is_lowered(world):
    log = put(world, "S-146").open(world)
    assert (log.log_end_offset, log.recovery_point) == (3, 3)


def test_s147_the_log_start_is_the_checkpoint_or_the_first_base(world):
    for base, expected in ((5, 7), (10, 10)):
        world.put({log_name(base): b"".join(batch(base + each) for each in range(5))})
        log = world.log(clean=False, log_start_offset=7)
        assert (log.log_start_offset, log.segments.first.base_offset) == (expected, base)
        assert offsets_in(log) == list(range(expected, base + 5))
        log.close()


def test_s148_a_clean_start_does_not_look_at_the_data(world):
    """Damage in the middle is found when the batch is read."""
    log = put(world, "S-148").open(world)
    assert (log.findings, log.log_end_offset) == ((), 3)
    with pytest.raises(CorruptRecordError) as caught:
        records_of(log)
    assert (caught.value.path, caught.value.position) == (world.path(log_name(0)), 0)
    assert [record.offset for _, record in log.reader.records(1)] == [1, 2]


# -- leftovers, gaps, deleted directories ------------------------------------------------------


def test_s136_deleted_and_cleaned_files_are_removed(world):
    crafted = put(world, "S-136")
    log = crafted.open(world)
    assert {f.action for f in log.findings} == {"removed_leftover"}
    assert sorted(f.path for f in log.findings) == sorted(
        world.path(name) for name in crafted.files if name.endswith((".deleted", ".cleaned"))
    )
    assert offsets_in(log) == list(range(20))
    log.close()
    assert world.files() == closed(20, **SMALL)


def test_s141_followers_gaps_make_segments(world):
    """One at 0, one at 2^31+1 with two records, one at 2^32+2; unchanged after any restart."""
    offsets = [0, FAR + 1, FAR + 2, 2 * FAR + 2]
    log = world.log()
    for offset in offsets:
        log.writer.append_batches(batch(offset), REPLICA)
    log.close()
    for clean in (True, False, False):
        log = world.log(clean=clean)
        assert log.findings == ()
        assert [(s.base_offset, s.read_next_offset()) for s in log.segments] == [
            (0, 1),
            (FAR + 1, FAR + 3),
            (2 * FAR + 2, 2 * FAR + 3),
        ]
        assert log.log_end_offset == 2 * FAR + 3
        assert offsets_in(log) == offsets
        for offset in offsets:
            assert next(log.reader.records(offset))[1].offset == offset
        if clean:
            log.close()


def test_s145_a_directory_that_is_being_deleted_is_not_recovered(tmp_path):
    """Damage stays, regardless of the recovery point."""
    memory = memory_world()
    directory = f"/data/t-0.{'0f' * 16}-delete"
    memory.fs.make_dirs(directory)
    world = World(memory.runtime, directory, memory.clock)
    damaged = bytearray(b"".join(map(batch, range(4))))
    damaged[100] ^= 1
    files = {log_name(0): bytes(damaged), file_name(0, ".index"): b""}
    world.put(files)
    log = world.log(clean=False)
    assert log.findings == ()
    assert world.files()[log_name(0)] == files[log_name(0)]
    world.put({})
    assert [s.base_offset for s in world.log(clean=False).segments] == [0]


# -- derived state -----------------------------------------------------------------------------


def test_s142_a_coordinator_epoch_may_go_back_in_what_is_stored(world):
    """The last marker's values win."""
    crafted = put(world, "S-142")
    for clean in (False, True):
        log = crafted.open(world, clean=clean)
        entry = log.producer_state.entry(7)
        assert (entry.coordinator_epoch, entry.producer_epoch) == (4, 2)
        assert entry.current_txn_first_offset is None
        assert (log.log_end_offset, log.last_stable_offset) == (5, 5)
        assert log.findings == ()
        log.close()


def test_s143_emptied_epochs_are_built_again_by_recovery(world):
    crafted = put(world, "S-143")
    expected = (EpochEntry(0, 0), EpochEntry(2, 3), EpochEntry(4, 6), EpochEntry(6, 9))
    assert world.log(**SMALL).epochs.entries == ()
    log = crafted.open(world)
    assert log.epochs.entries == expected
    log.close()
    assert world.files()["leader-epoch-checkpoint"] == b"0\n4\n0 0\n2 3\n4 6\n6 9\n"
    assert world.log(**SMALL).epochs.entries == expected
