"""Partitions that lost `.log` files: the other files still name the offsets that the log held."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock
from logstore.inspect.check import ERROR, INFO, WARNING, Checker
from logstore.names import parse_segment_file
from logstore.runtime import MemoryFileSystem
from logstore.storage.producers.snapshot import encode_snapshot
from tests.support.world.builders import batch, log_name
from tests.support.world.damage import ORIGINS, Directory, Found, healthy, partition
from tests.support.world.golden_dirs import tree

EPOCHS = "golden-0/leader-epoch-checkpoint"
RECOVERY = "recovery-point-offset-checkpoint"
CHECKPOINTS = (RECOVERY, "replication-offset-checkpoint", "log-start-offset-checkpoint")


def lose_segments(directory: Directory, *, keep_below: int = 0) -> None:
    """Remove the `.log` files and indexes from an offset on; snapshots and checkpoints stay."""
    for name in directory.fs.list_dir("/data/golden-0"):
        parsed = parse_segment_file(name)
        if parsed and parsed.kind != ".snapshot" and parsed.base_offset >= keep_below:
            directory.fs.remove(f"/data/golden-0/{name}")


def lose_checkpoints(directory: Directory) -> None:
    for name in CHECKPOINTS:
        if directory.fs.exists(f"/data/{name}"):
            directory.fs.remove(f"/data/{name}")


def alone(directory: Directory) -> list[Found]:
    """Check the partition's folder as a copy that has nothing around it."""
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/copy/golden-0")
    for name, data in tree(directory.fs, "/data/golden-0").items():
        file = fs.open(f"/copy/golden-0/{name}", create=True)
        file.append([data])
        file.close()
    return [
        Found(row.check, row.path.removeprefix("/copy/"), row.position, row.offset, row.severity)
        for row in Checker(fs).path("/copy/golden-0")
    ]


@pytest.mark.parametrize("origin", ORIGINS)
def test_all_logs_are_lost_and_snapshots_say_so(origin):
    directory = healthy("segments", origin)
    lose_segments(directory)
    lose_checkpoints(directory)
    directory.fs.remove(f"/data/{EPOCHS}")
    directory.write(f"golden-0/{326_493:020d}.snapshot", encode_snapshot([]))
    expected = [Found("missing_log", "golden-0", None, 326_493)]
    assert directory.found() == expected
    assert alone(directory) == expected
    (row,) = directory.check()
    assert (row.expected, row.found) == ("segments up to offset 326493", "no .log file")


@pytest.mark.parametrize("origin", ORIGINS)
def test_all_logs_are_lost_and_leader_epochs_say_so(origin):
    directory = healthy("segments", origin)
    lose_segments(directory)
    lose_checkpoints(directory)
    for name in directory.fs.list_dir("/data/golden-0"):
        if name.endswith(".snapshot"):
            directory.fs.remove(f"/data/golden-0/{name}")
    directory.write(EPOCHS, b"0\n2\n0 0\n3 40\n")
    assert directory.found() == [Found("missing_log", "golden-0", None, 40)]
    assert alone(directory) == [Found("missing_log", "golden-0", None, 40)]


@pytest.mark.parametrize("name", CHECKPOINTS[:2])
def test_a_checkpoint_reports_that_all_logs_are_lost(name):
    directory = Directory.of({name: b"0\n1\ngolden 0 700\n", ".kafka_cleanshutdown": b"{}"})
    assert directory.found() == [Found("checkpoint_beyond_end", name, 4, 700)]


@pytest.mark.parametrize("has_clean_marker", (True, False))
def test_only_a_snapshot_shows_that_the_last_segment_is_lost(has_clean_marker):
    directory = healthy("segments", "kafka")
    lose_segments(directory, keep_below=293)
    lose_checkpoints(directory)
    directory.write(EPOCHS, b"0\n1\n0 0\n")
    if not has_clean_marker:
        directory.unclean()
    found = [row for row in directory.found() if row.check not in ("missing_index", "leader_epoch")]
    severity = ERROR if has_clean_marker else WARNING
    snapshots = [name for name in tree(directory.fs) if name.endswith(".snapshot")]
    above = [name for name in snapshots if int(name[9:29]) > 293]
    assert above
    assert found == [
        Found("snapshot_offset", name, None, int(name[9:29]), severity) for name in above
    ]


@pytest.mark.parametrize(
    "recovery", (b"0\n0\n", b"0\n1\ngolden 0 5\n"), ids=("never flushed", "flushed below")
)
def test_a_new_partition_whose_files_a_crash_took_is_a_warning(recovery):
    """A `.log` may lose its name while a snapshot above the recovery point keeps its own."""
    directory = Directory.of(
        {
            RECOVERY: recovery,
            "log-start-offset-checkpoint": b"0\n1\ngolden 0 5\n",
            f"golden-0/{9:020d}.snapshot": encode_snapshot([]),
        }
    )
    assert directory.found() == [Found("missing_log", "golden-0", None, 9, WARNING)]


@pytest.mark.parametrize(
    ("recovery_point", "severity"), ((7, WARNING), (8, WARNING), (9, ERROR), (10, ERROR))
)
def test_a_snapshot_without_a_log_is_excused_from_the_recovery_point_on(recovery_point, severity):
    """Its last offset, one below its own, must not have been flushed."""
    files = {
        RECOVERY: f"0\n1\ngolden 0 {recovery_point}\n".encode(),
        f"golden-0/{9:020d}.snapshot": encode_snapshot([]),
    }
    found = Directory.of(files).found()
    assert [each.severity for each in found if each.check == "missing_log"] == [severity]


def test_a_flushed_snapshot_without_a_log_is_an_error_after_a_crash_too():
    files = {RECOVERY: b"0\n1\ngolden 0 9\n", f"golden-0/{9:020d}.snapshot": encode_snapshot([])}
    found = Directory.of(files).found()
    assert Found("missing_log", "golden-0", None, 9) in found
    assert Found("checkpoint_beyond_end", RECOVERY, 4, 9) in found


# -- healthy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", (True, False))
@pytest.mark.parametrize("epochs", (b"0\n0\n", b"0\n1\n0 0\n", b"0\n1\n7 0\n"))
def test_a_new_partition_holds_nothing_yet(is_clean, epochs):
    files = {EPOCHS: epochs, RECOVERY: b"0\n1\ngolden 0 0\n"}
    if is_clean:
        files[".kafka_cleanshutdown"] = b"{}"
    assert Directory.of(files).found() == []


def test_everything_was_deleted_and_the_empty_segment_is_removed():
    """The log starts again at its log start, where all the others say that it ended."""
    files = dict.fromkeys(CHECKPOINTS, b"0\n1\ngolden 0 5\n")
    files |= {EPOCHS: b"0\n1\n0 5\n", f"golden-0/{5:020d}.snapshot": encode_snapshot([])}
    files[".kafka_cleanshutdown"] = b"{}"
    assert Directory.of(files).found() == []


@pytest.mark.parametrize("is_closed", (True, False))
def test_records_that_were_deleted_are_no_loss(is_closed):
    fs = MemoryFileSystem(VirtualClock())
    broker = Broker("/data", fs=fs, clock=VirtualClock())
    broker.create_topic("golden", configs={"segment.bytes": "200"})
    for number in range(20):
        broker.append("golden", value=b"%d" % number)
    broker.delete_records({broker.partitions()[0]: 20})
    if is_closed:
        broker.close()
    found = [row for row in Directory(fs).check() if row.severity != INFO]
    assert found == []


def test_a_truncated_log_is_not_a_loss():
    fs = MemoryFileSystem(VirtualClock())
    with Broker("/data", fs=fs, clock=VirtualClock()) as broker:
        broker.create_topic("golden", configs={"segment.bytes": "200"})
        for number in range(20):
            broker.append("golden", value=b"%d" % number)
        broker.manager.checkpoint_recovery_points()
        broker.manager.truncate_to(broker.partitions()[0], 7)
    assert [row for row in Directory(fs).check() if row.severity != INFO] == []


# -- lost segments of logs that may be compacted --------------------------------------------------


def without_the_second(*first):
    """Lose a segment from offset 4 to 5, between others."""
    directory = partition([*first], [batch(4, 5)], [batch(6, 9)])
    for name in directory.fs.list_dir("/data/golden-0"):
        if name.startswith(f"{4:020d}"):
            directory.fs.remove(f"/data/golden-0/{name}")
    return directory


def test_a_gap_between_dense_segments_may_be_a_lost_segment():
    directory = without_the_second(batch(0, 3))
    row = Found("lost_segment", f"golden-0/{log_name(6)}", 0, 6, WARNING)
    assert row in directory.found()
    assert row in alone(directory)


def test_a_neighbour_with_a_hole_of_its_own_may_have_been_cleaned():
    directory = without_the_second(batch(0, 1), batch(3))
    assert "lost_segment" not in [each.check for each in directory.found()]


def test_a_damaged_or_empty_neighbour_hides_whether_a_segment_is_lost():
    directory = without_the_second(batch(0, 3))
    for broken in (b"", batch(0, 3)[:-1] + b"\xff"):
        directory.write(f"golden-0/{log_name(0)}", broken)
        assert "lost_segment" not in [each.check for each in directory.found()]
