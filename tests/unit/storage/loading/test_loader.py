"""Opening a partition: clean restarts, torn tails, leftovers of cleanings, derived files."""

import random
import struct
import zlib
from collections import Counter
from contextlib import suppress
from itertools import accumulate

import pytest

from logstore.errors import UnsupportedFormatError
from logstore.names import file_name
from logstore.record.batch import RecordBatch
from logstore.record.walk import walk_headers
from logstore.runtime import Runtime
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log import NewRecord
from logstore.storage.log.epochs import EpochEntry
from logstore.storage.log.reader import Isolation
from logstore.storage.producers.snapshot import decode_snapshot
from logstore.storage.segment import segment as segment_module
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Names,
    SimulatedCrash,
)
from logstore.types import AppendOrigin
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import (
    abort,
    actions_of,
    batch,
    batches_of,
    commit,
    data_batch,
    fill,
    findings_of,
    log_name,
    memory_world,
    offsets_in,
    old_message,
    records_of,
)

REPLICA = AppendOrigin.REPLICATION
SMALL = {"segment_bytes": 300, "index_interval_bytes": 60}


# -- clean restarts -------------------------------------------------------------------------


def test_a_new_directory_starts_at_the_log_start(world):
    log = world.log(log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (42, 42, 42)
    assert log.active_segment.base_offset == 42
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 42


def test_a_clean_restart_changes_nothing(world):
    log = world.log(**SMALL)
    fill(log, 20)
    log.close()
    before = world.files()
    for _ in range(2):
        log = world.log(**SMALL)
        assert log.findings == ()
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (20, 20, 20)
        assert offsets_in(log) == list(range(20))
        log.close()
        assert world.files() == before
    log = world.log(**SMALL)
    fill(log, 5, 20)
    assert offsets_in(log) == list(range(25))
    log._check()


def test_a_clean_restart_walks_the_end_of_the_log_once(world, monkeypatch):
    """To check that it is complete; the same walk yields the end offset and the last entry."""
    log = world.log(**SMALL)
    fill(log, 20)
    log.close()
    walks = []

    def counted(file, path, start, end):
        walks.append((path, start))
        return walk_headers(file, path, start, end)

    monkeypatch.setattr(segment_module, "walk_headers", counted)
    log = world.log(**SMALL)
    active = log.active_segment
    assert walks == [(active.log_path, active.offset_index.entry(2).position)]
    assert log.log_end_offset == 20


def test_a_cut_by_an_index_rebuild_replaces_the_walked_end(world):
    """The walk reads headers; recovery, which a damaged index requires, reads all bytes."""
    log = world.log(index_interval_bytes=60)
    fill(log, 5)
    path = log.active_segment.log_path
    log.close()
    data = bytearray(read_bytes(world.fs, path))
    data[-1] ^= 1
    file = world.fs.open(path, write=True)
    file.write_at([bytes(data)], 0)
    file.close()
    damaged = world.fs.open(path.removesuffix(".log") + ".txnindex", create=True)
    damaged.append([b"abc"])
    damaged.close()
    log = world.log(index_interval_bytes=60)
    assert findings_of(log) == [
        (
            "rebuilt_index",
            "00000000000000000000.log",
            "00000000000000000000.txnindex at position 0: length 3 is not a multiple of the"
            " entry size 34",
        ),
        (
            "truncated_tail",
            "00000000000000000000.log",
            "71 bytes cut after position 284: 00000000000000000000.log at position 284: batch"
            " at offset 4 has a bad CRC (stored crc = 2487530939, computed crc = 1714370232)",
        ),
    ]
    assert (log.log_end_offset, offsets_in(log)) == (4, [0, 1, 2, 3])


def test_appends_continue_in_the_segment_they_left(world):
    """Indexes can grow again; the roll clock starts at the time of the first batch."""
    log = world.log(segment_ms=1000)
    log.writer.append_records([NewRecord(b"k", b"v", 5000)])
    log.close()
    world.clock.advance(days=30)
    log = world.log(segment_ms=1000)
    assert not log.active_segment.offset_index.is_full
    assert not log.active_segment.time_index.is_full
    assert log.writer.append_records([NewRecord(b"k", b"v", 6000)]).roll_reason is None
    assert log.writer.append_records([NewRecord(b"k", b"v", 6001)]).roll_reason is not None


def test_data_that_ends_below_the_log_start_gives_way_to_an_empty_log(world):
    """The end was lost: the recovery point, in another file, proves that the log reached it."""
    log = world.log(**SMALL)
    fill(log, 9)
    log.close()
    log = world.log(clean=False, recovery_point=20, log_start_offset=20, **SMALL)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (20, 20, 1)
    assert "reset_log" in actions_of(log)
    assert log.epochs.entries == ()
    assert log.recovery_point == 20
    assert [n for n in world.files() if n.endswith(".log")] == [log_name(20)]
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 20


@pytest.mark.parametrize(
    ("clean", "recovery_point"), ((True, 0), (True, 20), (True, 9), (False, 0), (False, 19))
)
def test_a_log_start_that_the_log_never_reached_is_ignored(world, clean, recovery_point):
    log = world.log(**SMALL)
    fill(log, 5)
    log.delete_records(2)
    fill(log, 4, 5)
    log.close()
    before = {n: data for n, data in world.files().items() if n.endswith(".log")}
    log = world.log(clean=clean, recovery_point=recovery_point, log_start_offset=20, **SMALL)
    assert actions_of(log).count("ignored_log_start") == 1
    assert "20 is beyond the log end 9" in log.findings[-1].detail
    first = log.segments.first.base_offset
    assert (log.log_start_offset, log.log_end_offset) == (first, 9)
    assert offsets_in(log) == list(range(first, 9))
    assert {n: data for n, data in world.files().items() if n.endswith(".log")} == before
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 9


@pytest.mark.parametrize("clean", (True, False))
def test_records_below_a_log_start_in_a_hole_stay_deleted(world, clean):
    """A truncation to an offset in a hole leaves the log end above the last batch."""
    log = world.log(**SMALL)
    fill(log, 5)
    log.writer.append_batches(data_batch(12, 12, 7), AppendOrigin.REPLICATION)
    log.truncate_to(10)
    log.delete_records(8)
    closed = log.close()
    assert (closed.log_start_offset, closed.recovery_point) == (8, 10)
    log = world.log(clean=clean, recovery_point=10, log_start_offset=8, **SMALL)
    assert "ignored_log_start" not in actions_of(log)
    assert (log.log_start_offset, log.log_end_offset) == (8, 10)
    assert offsets_in(log) == []


@pytest.mark.parametrize("clean", (True, False))
def test_an_epoch_between_the_log_start_and_the_first_segment_keeps_its_start(world, clean):
    """Epochs are truncated at the checkpointed log start, as in Kafka, not at the first base."""
    world.put({log_name(8): batch(8, 9, leader_epoch=3)})
    world.write("leader-epoch-checkpoint", b"0\n1\n3 5\n")
    log = world.log(clean=clean, recovery_point=10, log_start_offset=5)
    assert log.log_start_offset == 8
    assert log.epochs.entries == (EpochEntry(3, 5),)


def test_transactions_of_a_log_whose_start_is_ignored_are_recovered(world):
    """This is decided before recovery, so producers are replayed from the first batch on."""
    log = world.log()
    log.writer.append_batches(data_batch(0, 0, 1))
    log.writer.append_end_txn_marker(1, 0, 0, commit=False)
    log.close()
    log = world.log(clean=False, log_start_offset=20)
    assert len(log.segments) == 2
    aborted, _ = log.active_segment.collect_aborted_txns(0, 2)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted] == [(1, 0, 1)]


@pytest.mark.parametrize("records", (0, 9))
def test_an_empty_log_that_starts_above_0_outlives_a_crash(records):
    """Only the segment's name has the start: the checkpoint omits it if they agree."""
    world = memory_world()
    if records:
        log = world.log()
        fill(log, records)
        log.close()
    fs = FaultyFileSystem(world.clock, world.fs)
    runtime = Runtime(world.clock, fs, random.Random(0))
    log = world.log(runtime=runtime, clean=False, recovery_point=20, log_start_offset=20)
    assert log.log_end_offset == 20
    left = fs.crash(CrashMode(Contents.DROPPED, Names.UNDONE))
    log = world.log(runtime=Runtime(world.clock, left, random.Random(0)), clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


# -- old formats -----------------------------------------------------------------------------


def old_log(magic):
    """Return three messages of an old format, as in Kafka before 0.11."""
    messages = []
    for offset in range(3):
        body = bytes([magic, 0]) + (1000).to_bytes(8, "big") * magic
        body += struct.pack(">i3si5s", 3, b"key", 5, b"value")
        crc = zlib.crc32(body)
        messages.append(struct.pack(">qiI", offset, 4 + len(body), crc) + body)
    return messages


@pytest.mark.parametrize("damage", ("crc", "value", "key length", "size", "torn"))
@pytest.mark.parametrize("magic", (0, 1))
def test_a_damaged_log_of_an_old_format_is_left_as_it_is(world, magic, damage):
    """Recovery would truncate it like any damage; other segments stay as well."""
    first, *rest = old_log(magic)
    at = {"crc": 13, "value": -1, "key length": 18 + 8 * magic, "size": 9}.get(damage, 0)
    data = bytearray(first + b"".join(rest))
    if damage == "torn":
        data = data[: len(first) - 2]
    else:
        data[at if at >= 0 else len(first) + at] ^= 0x40
    world.put({log_name(0): batch(0) + b"torn", log_name(5): bytes(data)})
    before = world.files()
    for clean in (True, False):
        with pytest.raises(UnsupportedFormatError, match=rf"{log_name(5)} .*format v{magic}"):
            world.log(clean=clean)
        assert world.files() == before


# -- missing and damaged indexes -------------------------------------------------------------


def test_a_missing_offset_index_has_its_segment_rebuilt(world):
    """Only that segment is rebuilt, with the same indexes as before."""
    log = world.log(**SMALL)
    fill(log, 20)
    log.close()
    before = world.files()
    bases = [int(n[:20]) for n in before if n.endswith(".log")]
    assert len(bases) > 3
    for base in bases:
        world.put(before)
        world.fs.remove(world.path(file_name(base, ".index")))
        log = world.log(**SMALL)
        assert actions_of(log) == ["rebuilt_index"]
        assert offsets_in(log) == list(range(20))
        log.close()
        after = world.files()
        assert {n: d for n, d in after.items() if not n.endswith(".snapshot")} == {
            n: d for n, d in before.items() if not n.endswith(".snapshot")
        }


def test_a_damaged_transaction_index_has_its_segment_rebuilt(world):
    log = world.log()
    log.writer.append_batches(
        data_batch(0, 1, 5) + abort(2, 5) + data_batch(3, 4, 5, sequence=2), REPLICA
    )
    log.writer.append_batches(abort(5, 5), REPLICA)
    log.close()
    before = world.files()
    sound = before[file_name(0, ".txnindex")]
    world.write(file_name(0, ".txnindex"), b"\x00\x09" + sound[2:])
    log = world.log()
    assert findings_of(log) == [
        (
            "rebuilt_index",
            "00000000000000000000.log",
            "00000000000000000000.txnindex at position 0: aborted transaction of version 9,"
            " newest known is 0",
        )
    ]
    assert list(log.reader.records(0, isolation=Isolation.READ_COMMITTED)) == []
    log.close()
    assert world.files()[file_name(0, ".txnindex")] == sound


# -- torn and damaged tails ------------------------------------------------------------------


def check_cut(world, data, kept, **config):
    """Open a damaged `.log` three times: read-only, for repair, and repaired."""
    world.put({log_name(0): data, file_name(0, ".index"): b"", file_name(0, ".timeindex"): b""})
    before = world.files()
    looked = world.log(clean=False, runtime=world.read_only(), **config)
    assert world.files() == before
    log = world.log(clean=False, **config)
    assert looked.findings == log.findings
    assert actions_of(log) == ([] if len(kept) == len(data) else ["truncated_tail"])
    assert records_of(looked) == records_of(log)
    assert world.files()[log_name(0)] == kept
    assert log.log_end_offset == looked.log_end_offset
    log._check()
    log.active_segment._check()
    end_offset = log.log_end_offset
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == end_offset
    log.close()
    log = world.log(clean=False, **config)
    assert log.findings == ()
    assert log.log_end_offset == end_offset + 1
    return end_offset


def test_every_cut_of_the_last_batches_ends_at_a_whole_one():
    """Files truncated at each byte of the last two batches; reading changes nothing."""
    world = memory_world()
    first, second, third = batch(0, 2), batch(3, 4), batch(5)
    whole = first + second + third
    for size in range(len(first), len(whole) + 1):
        kept = first
        if size >= len(first + second):
            kept += second
        if size == len(whole):
            kept += third
        end_offset = check_cut(world, whole[:size], kept)
        assert end_offset == {len(first): 3, len(first + second): 5, len(whole): 6}[len(kept)]
    for size in range(len(first)):
        assert check_cut(world, first[:size], b"") == 0


def test_every_flipped_byte_under_the_crc_cuts_there():
    """Each byte of the middle batch from its magic on, and the bytes of its length."""
    world = memory_world()
    first, second, third = batch(0, 2), batch(3, 4), batch(5)
    for position in (*range(8, 12), *range(16, len(second))):
        damaged = bytearray(second)
        damaged[position] ^= 0x5A
        assert check_cut(world, first + bytes(damaged) + third, first) == 3


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_loses_records_before_it(seed):
    """Noise, zeros or a hole somewhere in a log of several segments, opened twice."""
    world = memory_world()
    rng = random.Random(seed)
    log = world.log(**SMALL)
    fill(log, 30)
    log.close()
    files = world.files()
    victim = rng.choice([n for n in files if n.endswith(".log")])
    data = bytearray(files[victim])
    start = rng.randrange(len(data))
    end = rng.randrange(start, len(data)) + 1
    match seed % 4:
        case 0:
            data[start:end] = rng.randbytes(end - start)
        case 1:
            data[start:end] = bytes(end - start)
        case 2:
            del data[start:end]
        case 3:
            data[start:start] = rng.randbytes(end - start)
    world.write(victim, bytes(data))
    before = world.files()
    looked = world.log(clean=False, runtime=world.read_only(), **SMALL)
    assert world.files() == before
    log = world.log(clean=False, **SMALL)
    assert looked.findings == log.findings
    # A hole of whole batches looks like compaction, so later batches may stay.
    survivors = offsets_in(log)
    assert survivors == sorted(set(survivors)) == offsets_in(looked)
    base = int(victim[:20])
    ends = accumulate(len(each.data) for each in batches_of(files[victim]))
    intact = base + sum(1 for each_end in ends if each_end <= start)
    assert survivors[:intact] == list(range(intact))
    log._check()
    for segment in log.segments:
        segment._check()
    log.close()
    again = world.log(clean=False, **SMALL)
    assert again.findings == ()
    assert offsets_in(again) == survivors


def test_a_cut_removes_later_segments(world):
    """Recovery leaves no gap; snapshots and epochs beyond the cut are removed as well."""
    log = world.log(**SMALL)
    for epoch in range(20):
        log.writer.append_batches(batch(epoch, leader_epoch=epoch), REPLICA)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    victim = bases[2]
    data = world.files()[log_name(victim)]
    world.write(log_name(victim), data[:-1])
    log = world.log(clean=False, **SMALL)
    end_offset = bases[3] - 1
    assert log.log_end_offset == end_offset
    assert [segment.base_offset for segment in log.segments] == bases[:3]
    expected = {"truncated_tail": 1, "removed_segment": len(bases) - 3}
    assert Counter(actions_of(log)) == expected
    assert log.epochs.latest == EpochEntry(end_offset - 1, end_offset - 1)
    snapshots = [int(n[:20]) for n in world.files(".snapshot")]
    assert max(snapshots) == end_offset
    names = [n for n in world.files() if n[:20].isdigit()]
    assert all(int(n[:20]) <= end_offset for n in names)


def test_a_cut_is_the_end_whatever_was_verified_behind_it(world):
    """A segment without an index is verified before the recovery that drops it."""
    log = world.log(**SMALL)
    fill(log, 12)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    world.fs.remove(world.path(file_name(bases[2], ".index")))
    data = world.files()[log_name(bases[1])]
    world.write(log_name(bases[1]), data[:-1])
    log = world.log(clean=False, **SMALL)
    assert Counter(actions_of(log)) == {
        "rebuilt_index": 1,
        "truncated_tail": 1,
        "removed_segment": len(bases) - 2,
    }
    assert (log.log_end_offset, len(log.segments)) == (bases[2] - 1, 2)


# -- unclean stops ---------------------------------------------------------------------------


def test_only_segments_beyond_the_recovery_point_are_verified(world):
    """Damage below the recovery point is ignored."""
    log = world.log(**SMALL)
    fill(log, 20)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    data = bytearray(world.files()[log_name(0)])
    data[-1] ^= 1
    world.write(log_name(0), bytes(data))
    log = world.log(clean=False, recovery_point=bases[2], **SMALL)
    assert log.findings == ()
    assert (log.log_end_offset, log.recovery_point) == (20, bases[2])
    log.flush()
    assert log.recovery_point == 20
    log = world.log(clean=False, recovery_point=0, **SMALL)
    assert "truncated_tail" in actions_of(log)


def test_a_recently_dropped_log_is_restored_completely(world):
    """Not closed, indexes full of zeros, only rolls synced."""
    log = world.log(**SMALL)
    fill(log, 26)
    files = world.files()
    assert len(files[file_name(log.active_segment.base_offset, ".index")]) > 1000
    log = world.log(clean=False, recovery_point=log.recovery_point, **SMALL)
    assert log.findings == ()
    assert offsets_in(log) == list(range(26))
    for offset in range(26):
        assert log.reader.offset_for_timestamp(1000 + offset).offset == offset
    fill(log, 4, 26)
    assert offsets_in(log) == list(range(30))
    log._check()


def test_preallocated_zeros_are_cut(world):
    config = {"preallocate": True, "segment_bytes": 10_000}
    log = world.log(**config)
    fill(log, 3)
    size = log.size_bytes
    log = world.log(clean=False, **config)
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000000.log",
            "9787 bytes cut after position 213: 00000000000000000000.log at position 213: batch"
            " length 0 is less than the minimum 14",
        )
    ]
    assert (log.size_bytes, log.log_end_offset) == (size, 3)
    fill(log, 2, 3)
    log.close()
    assert offsets_in(world.log(**config)) == list(range(5))


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", (0, 1))
@pytest.mark.parametrize("clean", (True, False))
@pytest.mark.parametrize("base", (0, 50))
def test_old_formats_are_refused_and_left_untouched(world, magic, clean, base):
    """In any segment, with leftovers and stale files, not a byte changes."""
    files = {
        log_name(0): batch(0),
        file_name(0, ".index"): bytes(16),
        log_name(50): batch(50),
        log_name(90) + ".deleted": b"x",
        file_name(77, ".snapshot"): b"x",
        log_name(base): old_message(magic, offset=base) * 3,
    }
    world.put(files)
    for runtime in (None, world.read_only()):
        with pytest.raises(UnsupportedFormatError) as caught:
            world.log(clean=clean, runtime=runtime)
        assert caught.value.path == world.path(log_name(base))
        assert (caught.value.position, caught.value.magic) == (0, magic)
    assert world.files() == files


def test_a_damaged_old_message_is_an_ordinary_torn_log(world):
    world.put({log_name(0): old_message(1)[:-1] + b"!"})
    log = world.log(clean=False)
    assert log.log_end_offset == 0
    assert "truncated_tail" in actions_of(log)


# -- epochs and producers --------------------------------------------------------------------


def test_leader_epochs_survive_and_are_rebuilt(world):
    log = world.log()
    for epoch, offset in ((0, 0), (3, 1), (4, 2), (9, 3)):
        log.writer.append_batches(batch(offset, leader_epoch=epoch), REPLICA)
    log.close()
    expected = log.epochs.entries
    assert world.log().epochs.entries == expected
    for content in (None, b"", b"not a checkpoint\n"):
        if content is None:
            world.fs.remove(world.path("leader-epoch-checkpoint"))
        else:
            world.write("leader-epoch-checkpoint", content)
        log = world.log(clean=False)
        assert log.epochs.entries == expected
        log.close()
    world.write("leader-epoch-checkpoint", b"0\n1\n5 x\n")
    assert findings_of(world.log()) == [
        (
            "reset_epochs",
            "leader-epoch-checkpoint",
            "leader-epoch-checkpoint: line 3: start offset 'x' is not a 64-bit number",
        )
    ]


def test_epochs_are_bounded_by_the_log(world):
    """Epochs beyond the end are removed; an earlier one starts at the checkpointed log start."""
    log = world.log()
    for epoch in range(6):
        log.writer.append_batches(batch(epoch, leader_epoch=epoch), REPLICA)
    log.close()
    files = world.files()
    world.write(log_name(0), b"".join(batch(e, leader_epoch=e) for e in range(4)))
    log = world.log(clean=False)
    assert log.epochs.latest == EpochEntry(3, 3)
    world.put(files)
    log = world.log(log_start_offset=3)
    assert log.epochs.entries[0] == EpochEntry(3, 3)


def test_producers_survive_with_and_without_snapshots(world):
    """From the snapshot after a clean stop; otherwise, or if it is damaged, by replay."""
    log = world.log()
    now = {"timestamp": world.clock.now_ms()}
    log.writer.append_batches(data_batch(0, 2, 7, epoch=2, sequence=5, **now), REPLICA)
    log.writer.roll()
    end = commit(3, 7, epoch=2, coordinator_epoch=4, **now)
    log.writer.append_batches(end + data_batch(4, 5, 8, **now), REPLICA)
    log.close()
    files = world.files()
    assert len(decode_snapshot(files[file_name(6, ".snapshot")])) == 2
    expected = sorted(log.producer_state.entries(), key=lambda entry: entry.producer_id)
    snapshots = [n for n in files if n.endswith(".snapshot")]
    assert snapshots == [file_name(3, ".snapshot"), file_name(6, ".snapshot")]
    for clean in (True, False):
        for lost in ([], snapshots, snapshots[:1], snapshots[1:]):
            world.put({n: (b"junk" if n in lost else d) for n, d in files.items()})
            log = world.log(clean=clean)
            found = sorted(log.producer_state.entries(), key=lambda entry: entry.producer_id)
            assert found == expected
            assert log.last_stable_offset == 4
            assert log.producer_state.map_end_offset == 6
            log.close()
            assert world.files()[file_name(6, ".snapshot")] == files[file_name(6, ".snapshot")]


@pytest.mark.parametrize("clean", (True, False))
def test_a_damaged_snapshot_is_reported_if_it_is_needed(world, clean):
    """At the start of the verified range, or at the end of a cleanly closed log."""
    log = world.log()
    now = {"timestamp": world.clock.now_ms()}
    for offset in (0, 3):
        log.writer.append_batches(
            data_batch(offset, offset + 2, 7, sequence=offset, **now), REPLICA
        )
        log.writer.roll()
    log.close()
    damaged = world.path(file_name(6 if clean else 3, ".snapshot"))
    world.write(damaged.rpartition("/")[2], b"junk")
    log = world.log(clean=clean, recovery_point=3)
    assert [finding[:2] for finding in log.findings] == [("removed_snapshot", damaged)]
    assert log.producer_state.entry(7).last_sequence == 5
    log.close()
    assert world.log(clean=clean, recovery_point=3).findings == ()


def test_producers_that_expired_are_forgotten_from_segment_to_segment(world):
    """The recovery of each segment starts from the snapshot at the end of the preceding one."""
    log = world.log()
    log.writer.append_batches(
        data_batch(0, 0, 7, timestamp=1000) + commit(1, 7, timestamp=1000), REPLICA
    )
    for offset in (2, 3):
        log.writer.roll()
        log.writer.append_batches(batch(offset), REPLICA)
    log.close()
    for n in world.files(".snapshot"):
        world.fs.remove(world.path(n))
    log = world.log(clean=False)
    known = {int(n[:20]): len(decode_snapshot(d)) for n, d in world.files(".snapshot").items()}
    assert known == {2: 1, 3: 0, 4: 0}
    assert log.producer_state.entries() == []


def test_without_any_snapshot_a_clean_start_spares_the_scan(world):
    """Then no batch has a producer id; empty snapshots record this from now on."""
    log = world.log()
    for _ in range(3):
        fill(log, 2, log.log_end_offset)
        log.writer.roll()
    fill(log, 1, 6)
    log.close()
    for n in world.files(".snapshot"):
        world.fs.remove(world.path(n))
    log = world.log()
    assert log.producer_state.snapshot_offsets == [4, 6, 7]
    assert list(world.files(".snapshot")) == [file_name(o, ".snapshot") for o in (4, 6, 7)]


def test_stray_snapshots_are_removed(world):
    log = world.log()
    fill(log, 3)
    log.writer.roll()
    fill(log, 2, 3)
    log.close()
    snapshot = world.files()[file_name(5, ".snapshot")]
    for offset in (1, 2, 4, 99):
        world.write(file_name(offset, ".snapshot"), snapshot)
    log = world.log()
    assert log.producer_state.snapshot_offsets == [3, 5]
    assert list(world.files(".snapshot")) == [file_name(3, ".snapshot"), file_name(5, ".snapshot")]


def test_an_empty_batch_still_identifies_its_producer(world):
    log = world.log()
    now_ms = world.clock.now_ms()
    header = RecordBatch(data_batch(0, 3, 9, sequence=4, timestamp=now_ms)).header
    log.writer.append_batches(empty_batch(header) + commit(4, 9, timestamp=now_ms), REPLICA)
    log.close()
    for n in world.files(".snapshot"):
        world.fs.remove(world.path(n))
    log = world.log(clean=False)
    entry = log.producer_state.entry(9)
    assert (entry.last_sequence, entry.last_data_offset) == (7, 3)


def test_a_partly_rebuilt_index_is_never_trusted():
    """On a disk that keeps bytes and loses names, the sound sparse indexes are renamed first.

    They are rebuilt because the transaction index is damaged.
    """
    world = memory_world()
    log = world.log(index_interval_bytes=0, segment_index_bytes=4000)
    log.writer.append_batches(data_batch(0, 0, 1, timestamp=world.clock.now_ms()))
    log.writer.append_end_txn_marker(1, 0, 0, commit=False)
    fill(log, 10, 2)
    log.writer.roll()
    fill(log, 1, 12)
    log.close()
    sound = world.files()
    txn_index = file_name(0, ".txnindex")
    assert sound[txn_index]
    world.write(txn_index, b"\0\1" + sound[txn_index][2:])
    settings = {"index_interval_bytes": 0, "segment_index_bytes": 4000}

    def opened(fs, **how):
        return world.log(runtime=Runtime(world.clock, fs, random.Random(0)), **settings, **how)

    whole = FaultyFileSystem(world.clock, world.fs)
    opened(whole)
    for number in range(1, len(whole.operations) + 1):
        fs = FaultyFileSystem(world.clock, world.fs)
        fs.crash_at(number)
        with suppress(SimulatedCrash):
            opened(fs)
        for names in (Names.UNDONE, Names.KEPT):
            left = fs.crash(CrashMode(Contents.KEPT, names))
            log = opened(left, clean=False, recovery_point=13)
            log.close()
            for kind in (".index", ".timeindex", ".txnindex"):
                name = file_name(0, kind)
                stored = read_bytes(left, world.path(name))
                assert stored == sound[name], (fs.operations[-1], names, name)
