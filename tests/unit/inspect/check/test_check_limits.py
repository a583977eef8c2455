"""Checks at exact limits: producers in snapshots, control batches, and the files to verify."""

import pytest

from logstore.inspect.check import Checker
from logstore.inspect.check.batches import verify_batch
from logstore.inspect.check.producers import ProducerHistory
from logstore.record import batch as batches
from logstore.record.batch import RecordBatch
from logstore.record.control import ControlType, EndTxnMarker
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.storage.producers.snapshot import SnapshotEntry
from tests.support.world.builders import abort, commit, data_batch

SEGMENT = f"{0:020d}.log"
PRODUCER = 7


# -- producers -----------------------------------------------------------------------------------


def history_of(*data):
    """Follow data batches, then the markers among them."""
    history = ProducerHistory()
    for each in data:
        header = RecordBatch(each).header
        if header.is_control:
            list(history.marker(header, EndTxnMarker(ControlType.COMMIT, 0), "", 0))
        else:
            list(history.data(header, "", 0, gaps_explained=False))
    return history


def entry(last_offset, *, epoch=0, sequence=-1, delta=0, txn=-1):
    return SnapshotEntry(PRODUCER, epoch, sequence, last_offset, delta, 1000, 0, txn)


DATA = data_batch(10, 12, PRODUCER)
FINISHED = (DATA, commit(13, PRODUCER))
LONE_MARKER = (*FINISHED, commit(20, PRODUCER))


@pytest.mark.parametrize("last_offset", (-1, 5, 11))
@pytest.mark.parametrize("log_start", (0, 12, 13))
def test_an_older_last_offset_is_wrong_unless_the_log_starts_beyond_it(log_start, last_offset):
    found = list(history_of(*FINISHED).contradictions(entry(last_offset), 0, log_start))
    assert found == ([] if log_start == 13 else [("lastOffset", 12, last_offset)])


@pytest.mark.parametrize("last_offset", (-1, 0, 11))
def test_a_lone_marker_explains_a_producer_without_batches_only(last_offset):
    found = list(history_of(*LONE_MARKER).contradictions(entry(last_offset), 0))
    assert found == ([] if last_offset == -1 else [("lastOffset", 12, last_offset)])


def test_a_marker_of_a_transaction_explains_no_missing_batches():
    found = list(history_of(*FINISHED).contradictions(entry(-1), 0))
    assert found == [("lastOffset", 12, -1)]


def test_a_batch_after_a_lone_marker_is_known_again():
    history = history_of(*LONE_MARKER, data_batch(21, 21, PRODUCER, sequence=3))
    assert list(history.contradictions(entry(-1, txn=21), 0)) == [("lastOffset", 21, -1)]


@pytest.mark.parametrize("epoch", (0, 1))
@pytest.mark.parametrize("missing_end", (12, 13, 14))
def test_a_newer_epoch_explains_missing_batches_where_some_are_missing(missing_end, epoch):
    found = list(history_of(*FINISHED).contradictions(entry(-1, epoch=epoch), missing_end))
    is_explained = epoch == 1 and missing_end == 14
    assert found == ([] if is_explained else [("lastOffset", 12, -1)])


@pytest.mark.parametrize(
    ("fields", "expected"),
    (
        ({}, []),
        ({"epoch": 1}, [("producerEpoch", 0, 1)]),
        ({"sequence": 3}, [("lastSequence", 2, 3)]),
        ({"delta": 1}, [("offsetDelta", 2, 1)]),
        ({"txn": 10}, [("currentTxnFirstOffset", -1, 10)]),
    ),
)
def test_each_field_of_a_snapshot_is_compared(fields, expected):
    known = entry(12, **({"sequence": 2, "delta": 2} | fields))
    assert list(history_of(*FINISHED).contradictions(known, 0)) == expected


# -- control batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_compiled", (False, True))
@pytest.mark.parametrize(
    ("marker", "kind"), ((abort, ControlType.ABORT), (commit, ControlType.COMMIT))
)
def test_a_marker_is_sound_however_it_is_decoded(monkeypatch, is_compiled, marker, kind):
    monkeypatch.setattr(batches, "decodes_by_kernel", lambda count: is_compiled)
    data = marker(5, PRODUCER, coordinator_epoch=3)
    assert list(verify_batch(RecordBatch(data), 10**6)) == [EndTxnMarker(kind, 3)]


# -- files to verify -----------------------------------------------------------------------------


def tree(*paths):
    """Return a file system in memory with these files, and folders where a path ends in `/`."""
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/data")
    for path in paths:
        folder, _, name = f"/data/{path}".rpartition("/")
        fs.make_dirs(folder)
        if name:
            fs.open(f"{folder}/{name}", create=True).close()
    return fs


@pytest.mark.parametrize(
    ("paths", "expected"),
    (
        ((), False),
        (("notes.txt",), False),
        (("logs/",), False),
        (("logs/notes.txt",), False),
        ((f"{SEGMENT}/",), False),
        (("t-0",), False),
        (("meta.properties/",), False),
        (("meta.properties",), True),
        ((SEGMENT,), True),
        (("t-0/",), True),
        ((f"logs/{SEGMENT}",), True),
        (("logs/", "notes.txt", "t-0/"), True),
    ),
)
def test_a_directory_has_something_to_check(paths, expected):
    for path in ("/data", "/data/"):
        assert Checker(tree(*paths)).has_anything(path) is expected


def test_the_name_of_a_partition_is_something_to_check():
    checker = Checker(tree("t-0/", "t/"))
    assert checker.has_anything("/data/t-0/")
    assert not checker.has_anything("/data/t")
    assert checker.has_anything("/data/missing")


def test_folders_are_named_without_hidden_ones_and_files():
    checker = Checker(tree("b/", "a/x/", ".hidden/", "file", "t-0/"))
    assert sorted(checker.folders("/data/")) == ["a", "b", "t-0"]
    assert checker.folders("/data/file") == []
    assert checker.folders("/data/missing") == []


@pytest.mark.parametrize(
    ("path", "paths", "segments"),
    (
        ("/data/t-0", (f"t-0/{SEGMENT}",), 1),
        ("/data/logs", (f"logs/{SEGMENT}",), 1),
        ("/data", (f"t-0/{SEGMENT}", f"t-1/{SEGMENT}"), 2),
        ("/data", (SEGMENT, f"t-0/{SEGMENT}"), 1),
        ("/data/t-0", (f"t-0/u-0/{SEGMENT}", "t-0/meta.properties"), 1),
        ("/data/t-0", (f"t-0/{SEGMENT}", "t-0/u-0"), 1),
    ),
)
def test_a_path_is_a_partition_or_a_data_directory_by_what_it_holds(path, paths, segments):
    checker = Checker(tree(*paths))
    list(checker.path(path))
    assert checker.counts.segments == segments
