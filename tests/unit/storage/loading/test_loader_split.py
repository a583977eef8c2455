"""Segments with offset overflow: S-137 to S-140, and refusals."""

import pytest

from logstore.errors import SegmentOverflowError
from logstore.names import file_name
from logstore.storage.log.reader import Isolation
from tests.support.world.builders import (
    actions_of,
    batch,
    findings_of,
    log_name,
    offsets_in,
    records_of,
)
from tests.support.world.crafted import (
    CRAFTED,
    FAR,
    SPLIT_BASES,
    SPLIT_OFFSETS,
    bases_of,
    overflowed,
    overflowed_from_the_start,
    phases_of_split,
    segment_files,
    without,
)
from tests.support.world.messages import exactly

WHOLE = {"index_interval_bytes": 0}


def check_split(world, log, bases, offsets):
    """Assert that the log is complete and has exactly these segments."""
    assert [segment.base_offset for segment in log.segments] == bases
    assert offsets_in(log) == offsets
    for offset in offsets:
        assert next(log.reader.records(offset))[1].offset == offset
    for segment in log.segments:
        segment._check()  # no offset beyond 2^31-1 above the base
    log._check()
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    assert all(name.endswith((*kinds, "leader-epoch-checkpoint")) for name in world.files())
    assert bases_of(world.files()) == bases


def check_stays(world, bases, offsets):
    """Close and reopen in every way, without findings or changes."""
    before = world.files(".log", ".txnindex")
    for clean in (True, False, True):
        log = world.log(clean=clean, **WHOLE)
        assert log.findings == ()
        check_split(world, log, bases, offsets)
        log.close()
        assert world.files(".log", ".txnindex") == before


# -- found at load ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "circumstances",
    (
        {"clean": False},
        {"clean": False, "recovery_point": FAR + 7},
        {"clean": False, "recovery_point": 4 * FAR + 2},
        {"clean": True},
    ),
    ids=("all", "from the middle", "nothing to verify", "clean"),
)
def test_s139_an_overflowed_segment_is_split_when_it_is_loaded(world, circumstances):
    """Records, transactions and indexes are complete, with the old times, in all circumstances."""
    files = overflowed(aborted=True)
    world.put(files)
    world.fs.set_mtime(world.path(log_name(0)), 55_000)
    log = world.log(**circumstances, **WHOLE)
    assert findings_of(log) == [
        (
            "split_segment",
            "00000000000000000000.log",
            "offsets more than 2^31-1 above its base; now at 0, 2147483653, 6442450944",
        )
    ]
    assert log.findings[0].path == world.path(log_name(0))
    data = [offset for offset in SPLIT_OFFSETS if offset != FAR + 9]  # a marker is not a record
    assert len(log.segments) > len(bases_of(files))
    check_split(world, log, SPLIT_BASES, [*data[:3], 6, *data[3:]])
    assert b"".join(world.files(".log").values()) == b"".join(
        data for name, data in files.items() if name.endswith(".log")
    )
    for segment in log.segments.view[:3]:
        assert segment.last_modified_ms == 55_000
    committed = log.reader.records(0, isolation=Isolation.READ_COMMITTED)
    assert [r.offset for _, r in committed] == [0, 1, FAR + 5, FAR + 6, *data[-3:]]
    # Segments below the recovery point are durable results of the split.
    is_verified = circumstances == {"clean": False}
    first_index = world.fs.stat(log.segments.first.offset_index.path)
    assert (first_index.mtime_ms == 55_000) != is_verified
    middle = log.segments.view[1]
    assert [txn.last_offset for txn in middle.txn_index.entries()] == [FAR + 9]
    assert [entry.offset for entry in middle.offset_index] == [FAR + 9]
    assert log.reader.offset_for_timestamp(1000).offset == 0
    log.close()
    check_stays(world, SPLIT_BASES, [*data[:3], 6, *data[3:]])


def test_s140_a_segment_all_of_whose_batches_overflow_becomes_one_of_a_higher_base(world):
    for clean in (False, True):
        world.put(overflowed_from_the_start())
        log = world.log(clean=clean, **WHOLE)
        assert findings_of(log) == [
            (
                "split_segment",
                "00000000000000000000.log",
                "offsets more than 2^31-1 above its base; now at 2147483653",
            )
        ]
        offsets = [FAR + 5, FAR + 6, FAR + 9]
        check_split(world, log, [FAR + 5], offsets)
        assert (log.log_start_offset, log.log_end_offset) == (FAR + 5, FAR + 10)
        log.close()
        check_stays(world, [FAR + 5], offsets)


def test_each_of_several_overflowed_segments_is_split(world):
    files = {}
    for base in (0, 5 * FAR, 9 * FAR):
        files |= segment_files(base, *(batch(base + step * FAR) for step in range(3)))
    world.put(files)
    log = world.log(clean=False)
    assert findings_of(log) == [
        (
            "split_segment",
            "00000000000000000000.log",
            "offsets more than 2^31-1 above its base; now at 0, 2147483648, 4294967296",
        ),
        (
            "split_segment",
            "00000000010737418240.log",
            "offsets more than 2^31-1 above its base; now at 10737418240, 12884901888, 15032385536",
        ),
        (
            "split_segment",
            "00000000019327352832.log",
            "offsets more than 2^31-1 above its base; now at 19327352832, 21474836480, 23622320128",
        ),
    ]
    bases = [step * FAR for step in (0, 1, 2, 5, 6, 7, 9, 10, 11)]
    check_split(world, log, bases, bases)


def test_an_overflowed_segment_without_an_offset_index_is_split(world):
    """And one whose transaction index is damaged: its entries are rebuilt from the batches."""
    index, txn_index = file_name(0, ".index"), file_name(0, ".txnindex")
    expected = overflowed(aborted=True)[txn_index]
    for lost, damage in ((index, None), (txn_index, b"\x09" * 34), (index, b"\x09" * 34)):
        for clean in (True, False):
            files = overflowed(aborted=True)
            if damage is not None:
                files[txn_index] = damage
            if lost == index:
                del files[index]
            world.put(files)
            log = world.log(clean=clean, recovery_point=5 * FAR, **WHOLE)
            assert actions_of(log) == ["rebuilt_index", "split_segment"]
            assert [segment.base_offset for segment in log.segments] == SPLIT_BASES
            log.close()
            assert world.files(".txnindex") == {file_name(FAR + 5, ".txnindex"): expected}


def test_a_torn_batch_after_an_overflow_is_cut_with_everything_after_it(world):
    crafted = CRAFTED["S-139, torn and followed"]()
    crafted.put(world)
    log = crafted.open(world, index_interval_bytes=0)
    assert findings_of(log) == [
        ("removed_segment", "00000000008589934592.log", "it follows the cut in segment 0"),
        (
            "truncated_tail",
            "00000000000000000000.log",
            "89 bytes cut after position 453: the last batch is torn; 2 valid batches with 2"
            " records after it lost",
        ),
        (
            "split_segment",
            "00000000000000000000.log",
            "offsets more than 2^31-1 above its base; now at 0, 2147483653, 6442450944",
        ),
    ]
    assert [segment.base_offset for segment in log.segments] == SPLIT_BASES[:3]
    assert log.log_end_offset == 3 * FAR + 1
    assert records_of(log)[-1].offset == 3 * FAR
    log.close()
    assert world.log(clean=False).findings == ()


def test_damage_before_the_overflow_is_cut_as_in_any_segment(world):
    data = bytearray(batch(0) + batch(1) + batch(FAR + 5))
    data[100] ^= 1
    world.put(segment_files(0, bytes(data)))
    log = world.log(clean=False)
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000000.log",
            "162 bytes cut after position 72: 00000000000000000000.log at position 72: batch at"
            " offset 1 has a bad CRC (stored crc = 380100172, computed crc = 1995897459)",
        )
    ]
    assert (log.log_end_offset, len(log.segments)) == (1, 1)


# -- crashes, by hand --------------------------------------------------------------------------


def test_s137_and_s138_each_phase_of_a_split_ends_with_the_segments_split(world):
    """The original exists as long as a `.cleaned` does; later all new ones exist."""
    phases = phases_of_split(overflowed())
    assert [sorted({name.rpartition(".")[2] for name in phase}) for phase in phases] == [
        ["cleaned", "index", "log", "timeindex"],  # S-137: phase 1
        *[["cleaned", "index", "log", "swap", "timeindex"]] * 2,
        ["index", "log", "swap", "timeindex"],
        *[["deleted", "index", "log", "swap", "timeindex"]] * 3,  # S-138: phases 4 and 5
        ["deleted", "index", "log", "timeindex"],
    ]
    for number, phase in enumerate(phases):
        for clean in (False, True):
            world.put(phase)
            looked = world.log(clean=clean, runtime=world.read_only(), **WHOLE)
            assert world.files() == phase
            log = world.log(clean=clean, **WHOLE)
            assert looked.findings == log.findings
            assert ("split_segment" in actions_of(log)) == (number < 3)
            assert ("finished_swap" in actions_of(log)) == (3 <= number < 7)
            check_split(world, log, SPLIT_BASES, SPLIT_OFFSETS)
            log.close()
            check_stays(world, SPLIT_BASES, SPLIT_OFFSETS)


def test_each_phase_of_a_split_to_a_higher_base_ends_with_the_new_segment(world):
    """The original's name is below the new names, so it is recognized by its contents."""
    offsets = [3, 4, 10 + FAR, 11 + FAR, 14 + FAR]
    original = segment_files(10, *map(batch, offsets[2:]))
    for phase in phases_of_split(segment_files(0, batch(3), batch(4)) | original, base=10):
        world.put(phase)
        log = world.log(clean=False, **WHOLE)
        check_split(world, log, [0, 10 + FAR], offsets)
        log.close()
        check_stays(world, [0, 10 + FAR], offsets)


# -- refusals ----------------------------------------------------------------------------------


def test_a_jump_that_sound_offsets_contradict_is_refused(world):
    """Kafka refuses to load it too; a clean start does not check."""
    files = segment_files(0, batch(0), batch(1), batch(2 + 2**40), batch(3), batch(4))
    world.put(files)
    with pytest.raises(
        SegmentOverflowError,
        match=exactly(
            "{path}/00000000000000000000.log at position 240: offset 3 follows offset "
            "1099511627778, which is more than 2^31-1 above the segment's base; the "
            "file is not changed"
        ),
    ):
        world.log(clean=False)
    assert world.files(".log") == {log_name(0): files[log_name(0)]}


def test_an_overflow_into_the_next_segment_is_kept(world):
    """Splitting would replace another segment and lose its records."""
    crafted = CRAFTED["an overflow into the next segment"]()
    crafted.put(world)
    log = crafted.open(world)
    assert findings_of(log) == [
        (
            "kept_overflow",
            "00000000000000000000.log",
            "00000000000000000000.log: offset 2147483654 is more than 2^31-1 above the"
            " segment's base, and not below the base 2147483653 of the next one; the file is"
            " not changed",
        )
    ]
    assert offsets_in(log) == [0, FAR + 5, FAR + 6, FAR + 7]
    log.close()
    assert world.files(".log") == {n: d for n, d in crafted.files.items() if n.endswith(".log")}
    for lost in ((), (file_name(0, ".index"),)):
        files = without(crafted.files, *lost)
        world.put(files)
        with pytest.raises(
            SegmentOverflowError,
            match=exactly(
                "{path}/00000000000000000000.log: offset 2147483654 is more than 2^31-1 "
                "above the segment's base, and not below the base 2147483653 of the next "
                "one; the file is not changed"
            ),
        ):
            crafted.open(world, clean=False)
        left = world.files(".log", "index", ".cleaned")
        assert left == {name: data for name, data in files.items() if name in left}
        assert left.keys() == files.keys()


def test_damage_in_an_overflowed_segment_of_a_clean_log_is_left_to_the_reader(world):
    files = overflowed()
    data = bytearray(files[log_name(0)])
    data[len(batch(0, 1)) + 16] = 1  # the magic of the second batch
    world.put(files | {log_name(0): bytes(data)})
    log = world.log()
    assert (log.findings, log.log_end_offset) == ((), 4 * FAR + 2)
    index = (FAR - 1).to_bytes(4, "big") + (len(data) - len(batch(3 * FAR))).to_bytes(4, "big")
    world.put(files | {log_name(0): bytes(data), file_name(0, ".index"): index})
    log = world.log()  # no such batch begins there, so that the index leads nobody past the damage
    assert log.findings == ()
    assert world.files()[log_name(0)] == bytes(data)
