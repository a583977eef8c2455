"""After a crash, `check` excuses damage that the next opening recovers, and none below it."""

from __future__ import annotations

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.inspect.check import ERROR, INFO, WARNING
from logstore.runtime import MemoryFileSystem
from tests.support.world.damage import Directory, Found

TP = TopicPartition("golden", 0)
RECOVERY = "recovery-point-offset-checkpoint"
FIRST, SECOND, LAST = (f"golden-0/{base:020d}" for base in (0, 4, 8))
BATCH_BYTES = 72


@pytest.fixture
def crashed():
    """Three segments of four batches of a record each, flushed up to offset 6, and not closed."""
    fs = MemoryFileSystem(VirtualClock())
    configs = {"index.interval.bytes": "1", "segment.bytes": str(4 * BATCH_BYTES)}
    with Broker("/data", fs=fs, clock=VirtualClock()) as broker:
        broker.create_topic("golden", configs=configs)
        for number in range(12):
            broker.append("golden", value=b"%04d" % number)
    directory = Directory(fs)
    assert directory.bases() == [0, 4, 8]
    fs.remove("/data/.kafka_cleanshutdown")
    recover_from(directory, 6)
    return directory


def recover_from(directory, offset):
    directory.write(RECOVERY, b"0\n1\ngolden 0 %d\n" % offset)


def close_cleanly(directory):
    directory.write(".kafka_cleanshutdown", b"{}")


def test_it_is_healthy(crashed):
    assert crashed.found() == []
    close_cleanly(crashed)
    assert crashed.found() == []


@pytest.mark.parametrize("suffix", ("index", "timeindex", "txnindex"))
@pytest.mark.parametrize("point", (4, 6, 7))  # the first segment ends at 4
def test_indexes_are_built_again_from_the_recovery_point_on(crashed, point, suffix):
    recover_from(crashed, point)
    for segment in (FIRST, SECOND, LAST):
        crashed.write(f"{segment}.{suffix}", b"\1" * 5)
    sizes = [row for row in crashed.found() if row.check.endswith("_size")]
    assert [row.severity for row in sizes] == [ERROR, INFO, INFO]
    close_cleanly(crashed)
    sizes = [row for row in crashed.found() if row.check.endswith("_size")]
    assert [row.severity for row in sizes] == [ERROR, ERROR, ERROR]


def test_a_missing_index_is_made_by_recovery(crashed):
    for base in (0, 4):
        crashed.fs.remove(f"/data/golden-0/{base:020d}.index")
    assert crashed.found() == [
        Found("missing_index", f"{FIRST}.index", None, 0, WARNING),
        Found("missing_index", f"{SECOND}.index", None, 4, INFO),
    ]


@pytest.mark.parametrize("size", (0, 5))
@pytest.mark.parametrize(("offset", "severity"), ((4, ERROR), (6, INFO), (8, INFO)))
def test_a_snapshot_that_a_crash_tore_is_removed_by_recovery(crashed, offset, severity, size):
    crashed.write(f"golden-0/{offset:020d}.snapshot", bytes(size))
    (row,) = crashed.found()
    assert row == Found("snapshot_size", row.path, 0, offset, severity)
    close_cleanly(crashed)
    assert [each.severity for each in crashed.found()] == [ERROR]


@pytest.mark.parametrize("damage", (bytes(BATCH_BYTES), b"\xee" * BATCH_BYTES), ids=("0", "0xee"))
def test_damage_is_excused_where_the_log_was_not_flushed(crashed, damage):
    """Pages reach the disk in any order: valid batches may follow those that did not."""

    def replace(data):
        data[BATCH_BYTES : 2 * BATCH_BYTES] = damage

    crashed.edit(f"{LAST}.log", replace)
    found = [row for row in crashed.found() if row.path.endswith(".log")]
    assert {row.severity for row in found} == {WARNING}
    assert {row.check for row in found} <= {"batch_length", "offset_gap"}
    crashed.edit(f"{FIRST}.log", replace)
    found = [row for row in crashed.found() if row.path == f"{FIRST}.log"]
    assert Found("batch_length", f"{FIRST}.log", BATCH_BYTES, row_offset(damage)) in found


def row_offset(damage):
    return int.from_bytes(damage[:8], "big", signed=True)


def test_damage_is_not_a_crash_while_a_process_has_the_directory(crashed):
    crashed.flip(f"{LAST}.log", BATCH_BYTES + 65)
    position = BATCH_BYTES
    assert crashed.found() == [Found("crc", f"{LAST}.log", position, 9, WARNING)]
    lock = crashed.fs.lock("/data/.lock")
    assert crashed.found() == [Found("crc", f"{LAST}.log", position, 9, ERROR)]
    lock.release()
    recover_from(crashed, 10)
    assert crashed.found() == [Found("crc", f"{LAST}.log", position, 9, ERROR)]


def test_a_segment_whose_name_was_not_synced_is_a_warning(crashed):
    crashed.fs.remove(f"/data/{LAST}.log")
    assert Found("missing_log", f"{LAST}.log", None, 8, WARNING) in crashed.found()
    recover_from(crashed, 9)
    assert Found("missing_log", f"{LAST}.log", None, 8, ERROR) in crashed.found()


def test_checkpoints_beyond_the_end_are_warnings_unless_they_prove_a_flush(crashed):
    for name in ("log-start-offset", "replication-offset"):
        crashed.write(f"{name}-checkpoint", b"0\n1\ngolden 0 13\n")
    crashed.write("golden-0/leader-epoch-checkpoint", b"0\n2\n0 0\n1 13\n")
    recover_from(crashed, 13)
    assert {row.severity for row in crashed.found()} == {WARNING}, "never below the log start"
    recover_from(crashed, 14)
    errors = [row for row in crashed.found() if row.severity == ERROR]
    assert errors == [Found("checkpoint_beyond_end", RECOVERY, 4, 14)]


def test_a_folder_that_was_copied_alone_was_not_left_by_a_crash(crashed):
    crashed.fs.remove("/data/.lock")
    crashed.fs.remove(f"/data/{RECOVERY}")
    crashed.append(f"{LAST}.index", b"\1" * 5)
    assert [row.severity for row in crashed.found()] == [ERROR]
