"""Interrupted moves: a start completes or undoes them, and a read-only opening shows them."""

import logging

import pytest

from logstore import TopicPartition
from logstore.errors import InvalidConfigurationError, KafkaStorageError, LogStoreError
from logstore.inspect.check import Checker
from logstore.manager.directories.directory import OpenedFolder
from logstore.manager.directories.move_notes import MOVES_FILE, Move, read_moves, write_moves
from logstore.runtime import MemoryFileSystem, ReadOnlyFileSystem, VirtualClock
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.golden_dirs import tree
from tests.unit.manager.directories.test_moving import A0, Place, append, kill, move, records

FUTURE = f"a-0.{'7' * 32}-future"


@pytest.fixture
def place():
    clock = VirtualClock(1_700_000_000_000)
    return Place(FaultyFileSystem(MemoryFileSystem(clock)), "/mem", clock)


def interrupted(place, operation, path):
    """Crash a move at an operation, which does not happen, on a path that ends with `path`."""
    broker = place.filled()
    broker.clean()

    class Crash(BaseException):
        pass

    def rule(each, where):
        if each == operation and where.endswith(path):
            raise Crash
        return False

    place.fs.rule = rule
    with pytest.raises(Crash):
        move(broker, place.there)
    place.fs.rule = lambda *_: False
    kill(broker)


STOPS = {
    "noted": ("make_dirs", "-future", "here"),
    "half copied": ("sync", "-future/00000000000000000000.timeindex", "here"),
    "copied": ("rename", "-future", "here"),
    "in its place": ("rename", "/here/a-0", "there"),
    "retired": ("remove", MOVES_FILE, "there"),
    "forgotten": ("rename", "/here/cleaner-offset-checkpoint.tmp", "there"),
}


@pytest.mark.parametrize(("operation", "path", "home"), STOPS.values(), ids=list(STOPS))
def test_a_start_finishes_or_undoes_what_a_look_only_shows(place, operation, path, home):
    interrupted(place, operation, path)
    files = {each: tree(place.fs, each) for each in (place.here, place.there)}
    with place.open(read_only=True) as broker:
        assert broker.manager.registry.directory_of(A0).path.endswith(home)
        assert broker.partitions() == [A0]
        before = records(broker)
        assert broker.explain("a").partitions[0].decision.state.topic_partition == A0
    assert {each: tree(place.fs, each) for each in files} == files
    faults = list(Checker(ReadOnlyFileSystem(place.fs)).data_dirs([place.here, place.there]))
    assert [each for each in faults if each.severity == "error"] == []

    with place.open() as broker:
        assert broker.manager.registry.directory_of(A0).path.endswith(home)
        assert records(broker) == before
        assert broker.cleaner.checkpoints.of(A0) == 8
        other = place.here if home == "there" else place.there
        assert place.entry(other, CLEANER_OFFSETS) == []
        append(broker, 2)
    names = [name for each in files for name in place.fs.list_dir(each)]
    assert names.count("a-0") == 1
    assert not [name for name in names if name.endswith(("-future", "-delete"))]
    assert MOVES_FILE not in names
    with place.open() as broker:
        assert records(broker)[: len(before)] == before
        assert records(broker)[-1][0] == 11
        assert broker.log("a").findings == ()


RECORDS = "5 records"
MOVED = (
    "partition a-0 was moved from /mem/here to /mem/there, which is not one of the data directories"
    ": add it, or read /mem/there/a-0"
)
GONE = "a-0 was removed: another process has deleted it or moved it to another data directory"
OUTCOMES = {
    "not noted": [RECORDS, GONE],
    "noted": [RECORDS, MOVED],
    "half copied": [RECORDS, MOVED],
    "copied": [RECORDS, MOVED],
    "in its place": [MOVED],
    "forgotten": [MOVED],
    "retired": [MOVED],
}
"""Before a step of the move and, if the source could be opened then, after the move."""


def outcome(reader):
    try:
        return f"{len(records(reader))} records"
    except LogStoreError as error:
        return str(error)


@pytest.mark.parametrize("stage", OUTCOMES)
def test_a_folder_that_another_process_moves_is_not_reported_as_deleted(place, stage):
    operation, path, _ = {"not noted": ("write", f"{MOVES_FILE}.tmp", ""), **STOPS}[stage]
    readers, outcomes = [], []

    def open_readers(each, where):
        if each == operation and where.endswith(path) and not readers:
            readers.append(place.open(read_only=True))
            shown = {"dirs": [place.here], "shown": OpenedFolder(A0, "a-0"), "read_only": True}
            try:
                readers.append(place.open(**shown))
                with place.open(**shown) as reader:
                    outcomes.append(outcome(reader))
            except InvalidConfigurationError as error:
                outcomes.append(str(error))
        return False

    with place.filled() as broker:
        broker.clean()
        place.fs.rule = open_readers
        assert move(broker, place.there).error is None
        of_all, *of_source = map(outcome, readers)
        for reader in readers:
            reader.close()
    assert of_all == RECORDS
    assert outcomes + of_source == OUTCOMES[stage]


def test_a_folder_that_was_moved_is_not_read_as_empty_after_the_writer_has_closed(place):
    writer = place.filled()
    shown = {"dirs": [place.here], "shown": OpenedFolder(A0, "a-0"), "read_only": True}
    with place.open(read_only=True) as of_all, place.open(**shown) as of_source:
        assert move(writer, place.there).error is None
        writer.close()
        assert [outcome(reader) for reader in (of_all, of_source)] == ["10 records", GONE]


def test_a_partition_is_withheld_while_its_target_is_away(place):
    """It may be there with newer records, so the remaining copy must not count as complete."""
    interrupted(place, "rename", "/here/a-0")
    before = tree(place.fs, f"{place.here}/a-0")
    place.fs.rule = lambda each, path: each == "lock" and path.startswith(place.there)
    for _ in range(2):
        broker = place.open()
        with pytest.raises(KafkaStorageError, match=f"was being moved to {place.there}; offline"):
            broker.log("a")
        assert move(broker, place.there).error == "KAFKA_STORAGE_ERROR"
        broker.close()
        assert tree(place.fs, f"{place.here}/a-0") == before
    place.fs.rule = lambda *_: False
    with place.open() as broker:
        assert broker.manager.registry.directory_of(A0).path == place.there
        assert broker.cleaner.checkpoints.of(A0) == 8


def test_a_renamed_target_is_requested(place):
    interrupted(place, "rename", "/here/a-0")
    for read_only in (True, False):
        with pytest.raises(InvalidConfigurationError, match=f"moved from {place.here} to"):
            place.open(dirs=[place.here], read_only=read_only)
    with place.open() as broker:
        assert broker.manager.registry.directory_of(A0).path == place.there


def test_without_its_target_a_move_that_was_not_complete_is_undone(place):
    interrupted(place, "rename", "-future")
    with place.open(dirs=[place.here]) as broker:
        assert broker.manager.registry.directory_of(A0).path == place.here
    assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")


def test_directories_that_were_renamed_are_understood(place):
    interrupted(place, "rename", "/here/a-0")
    place.fs.rename(place.here, "/mem/one")
    place.fs.rename(place.there, "/mem/two")
    with place.open(dirs=["/mem/two", "/mem/one"]) as broker:
        assert broker.manager.registry.directory_of(A0).path == "/mem/two"
    assert not place.fs.exists(f"/mem/one/{MOVES_FILE}")


def test_a_copy_whose_move_was_undone_gives_way(place):
    """Its disk failed at the last step, came back, and shows the name."""
    interrupted(place, "rename", "/here/a-0")
    write_moves(place.fs, place.here, {A0: Move(place.there, FUTURE, undone=True)})
    with place.open(read_only=True) as broker:
        assert broker.manager.registry.directory_of(A0).path == place.here
    with place.open() as broker:
        assert broker.manager.registry.directory_of(A0).path == place.here
        assert broker.cleaner.checkpoints.of(A0) == 8
    assert "a-0" not in place.folders(place.there)
    assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")


def test_a_move_note_of_a_deleted_partition_is_removed(place):
    place.filled().close()
    write_moves(place.fs, place.here, {TopicPartition("z", 1): Move(place.there, FUTURE)})
    place.open().close()
    assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")


def test_two_unknown_copies_are_still_rejected(place):
    place.filled().close()
    place.fs.make_dirs(f"{place.there}/a-0")
    with pytest.raises(InvalidConfigurationError, match="exists in both"):
        place.open()


def test_a_copy_on_the_move_by_a_broker_is_left_alone(place):
    place.filled().close()
    place.fs.make_dirs(f"{place.there}/{FUTURE}")
    place.open().close()
    assert place.fs.is_dir(f"{place.there}/{FUTURE}")


@pytest.mark.parametrize("is_at_work", (False, True))
def test_an_abandoned_copy_is_reported_unless_a_process_uses_it(place, caplog, is_at_work):
    broker = place.filled()
    if not is_at_work:
        broker.close()
    place.fs.make_dirs(f"{place.there}/{FUTURE}")
    caplog.set_level(logging.INFO)
    caplog.clear()
    place.open(read_only=True).close()
    levels = [each.levelno for each in caplog.records if FUTURE in each.getMessage()]
    assert levels == [logging.INFO if is_at_work else logging.WARNING]
    broker.close()


@pytest.mark.parametrize("stage", ("retire", "tidy"))
def test_a_disk_failure_during_move_recovery_takes_the_directory_offline(place, stage):
    operation, path = ("rename", "/here/a-0") if stage == "retire" else ("rename", "-future")
    interrupted(place, operation, path)
    failing = f"{place.here}/a-0" if stage == "retire" else "-future"
    kind = "rename" if stage == "retire" else "remove_dir"
    place.fs.rule = lambda each, where: each == kind and where.endswith(failing)
    broker = place.open()
    place.fs.rule = lambda *_: False
    home = place.there if stage == "retire" else place.here
    offline = [each.path for each in broker.manager.directories if not each.is_online]
    assert offline == [place.here if stage == "retire" else place.there]
    assert len(records(broker)) == 5
    append(broker, 2)
    kill(broker)
    with place.open() as broker:
        assert broker.manager.registry.directory_of(A0).path == home
        assert len(records(broker)) == 7
    names = [name for each in (place.here, place.there) for name in place.fs.list_dir(each)]
    assert names.count("a-0") == 1
    assert not [name for name in names if name.endswith("-future") or name == MOVES_FILE]


# -- the file --------------------------------------------------------------------------------


def test_moves_are_read_as_they_were_written(place):
    place.fs.make_dirs(place.here)
    moves = {A0: Move(place.there, FUTURE), TopicPartition("b", 7): Move("/x y", "f", undone=True)}
    write_moves(place.fs, place.here, moves)
    assert read_moves(place.fs, place.here) == moves
    write_moves(place.fs, place.here, {})
    assert place.fs.list_dir(place.here) == []
    assert read_moves(place.fs, place.here) == {}
