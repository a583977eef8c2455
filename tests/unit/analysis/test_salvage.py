"""Salvage: whatever is damaged, all undamaged records are in the result, and `check` accepts it.

Undamaged batches are identified without the engine: their bytes under the CRC are still in some
`.log` of the damaged directory.
"""

from contextlib import suppress
from types import SimpleNamespace

import pytest

from logstore import Broker
from logstore.analysis.salvage import _valid_overrides, _with_epochs, salvage
from logstore.errors import InvalidConfigurationError, UnsupportedFormatError
from logstore.inspect.check import ERROR, Checker
from logstore.record.walk import walk_buffer
from logstore.runtime import DiskFileSystem, MemoryFileSystem, ReadOnlyFileSystem, VirtualClock
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log import NewRecord
from tests.support.world.builders import batch, batches_of, commit, data_batch, log_name
from tests.support.world.damage import EPOCHS, KAFKA, OWN, Directory, healthy, kafka, partition
from tests.support.world.legacy import compressed_set, message
from tests.unit.inspect.check import (
    test_check_damage_files,
    test_check_damage_indexes,
    test_check_damage_log,
    test_check_damage_names,
)

TABLES = {
    name: module.TABLE
    for module in (
        test_check_damage_log,
        test_check_damage_indexes,
        test_check_damage_files,
        test_check_damage_names,
    )
    for name in module.TABLE
}
RENAMED = "folder_of_no_partition"  # its partition is unknown, so its own name is reported
LATER = VirtualClock(1_800_000_000_000)


def saved(directory, out="/out"):
    """Salvage a directory; return the report."""
    fs = directory.fs
    with Broker("/data", fs=fs, clock=LATER, read_only=True, on_damage="pass_over") as broker:
        return salvage(broker, broker.partitions(), fs, out)


def log_bytes(fs, root):
    """The bytes of all `.log` files but those that are on their way out."""
    folders = [f"{root}/{name}" for name in fs.list_dir(root) if fs.is_dir(f"{root}/{name}")]
    return b"".join(
        read_bytes(fs, f"{folder}/{name}")
        for folder in folders
        for name in fs.list_dir(folder)
        if ".log" in name and not name.endswith(".deleted")
    )


def records_in(fs, root="/out"):
    """The records of a partition's batches; messages of old formats end a file."""
    found = {}
    for name in fs.list_dir(f"{root}/golden-0"):
        if name.endswith(".log"):
            with suppress(UnsupportedFormatError):
                for each in walk_buffer(read_bytes(fs, f"{root}/golden-0/{name}")):
                    found |= {record.offset: record for record in each.records()}
    return found


def intact_records(sound, damaged):
    left = log_bytes(damaged.fs, "/data")
    return {
        record.offset: record
        for base in sound.bases()
        for each in batches_of(sound.read(f"golden-0/{log_name(base)}"))
        if each.data[21:] in left
        for record in each.records()
    }


def errors_of(fs, root="/out"):
    checker = Checker(ReadOnlyFileSystem(fs))
    return [found for found in checker.path(root) if found.severity == ERROR]


def origin_of(name):
    """Of Kafka's and of our directories in turn: either has all shapes."""
    return (KAFKA, OWN)[len(name) % 2]


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {RENAMED}))
def test_of_each_damage_all_undamaged_records_are_saved_and_check_accepts_the_result(name):
    table = TABLES[name]
    origin = origin_of(name)
    place, _ = table.seed(name, origin)
    before = log_bytes(place.fs, "/data")
    wanted = intact_records(healthy(table[name].case, origin), place)
    saved(place)
    found = records_in(place.fs)
    assert {offset: found.get(offset) for offset in wanted} == wanted
    assert errors_of(place.fs) == []
    assert log_bytes(place.fs, "/data") == before


def test_a_sound_directory_is_copied_byte_for_byte():
    for case in ("segments", "transactions"):
        directory = kafka(case)
        report = saved(directory, f"/{case}")
        assert (report.lost, report.mended) == ((), 0)
        for name in directory.fs.list_dir("/data/golden-0"):
            if name.endswith((".log", ".txnindex")):
                copied = read_bytes(directory.fs, f"/{case}/golden-0/{name}")
                assert copied == directory.read(f"golden-0/{name}"), name
        checkpoint = read_bytes(directory.fs, f"/{case}/log-start-offset-checkpoint")
        assert checkpoint == directory.read("log-start-offset-checkpoint")
        assert errors_of(directory.fs, f"/{case}") == []


def test_losses_are_listed_with_location_and_reason():
    directory = kafka("segments")
    name = f"golden-0/{log_name(83)}"
    directory.flip(name, 61)
    directory.append(f"golden-0/{log_name(directory.bases()[-1])}", b"torn")
    directory.unclean()
    sizes = [len(each.data) for each in batches_of(kafka("segments").read(name))]
    report = saved(directory)
    last = f"golden-0/{log_name(directory.bases()[-1])}"
    assert [lost._asdict() for lost in report.lost] == [
        {"path": f"/data/{name}", "position": 0, "size_bytes": sizes[0], "reason": "crc"},
        {
            "path": f"/data/{last}",
            "position": len(directory.read(last)) - 4,
            "size_bytes": 4,
            "reason": "torn_tail",
        },
    ]
    assert (report.batches, report.records) == (119, 297)


def test_a_leader_epoch_that_is_not_between_those_around_is_put_right(caplog):
    directory = kafka("segments")
    name = f"golden-0/{log_name(83)}"
    third = sum(len(each.data) for each in batches_of(directory.read(name))[:3])
    directory.put(name, ">i", third + 12, 1 << 20)
    report = saved(directory)
    assert (report.mended, report.lost) == (1, ())
    assert caplog.messages == []
    assert read_bytes(directory.fs, f"/out/{name}") == kafka("segments").read(name)
    assert read_bytes(directory.fs, f"/out/{EPOCHS}") == kafka("segments").read(EPOCHS)


@pytest.mark.parametrize(
    ("known", "stored", "right"),
    (
        ("", [], []),
        ("", [3], [3]),
        ("", [0, 1, 1, 2], [0, 1, 1, 2]),
        ("", [0, 9, 1], [0, 0, 1]),
        ("", [0, 9, 0, 1], [0, 0, 0, 1]),
        ("", [2, 0, 3], [-1, 0, 3]),
        ("", [2, 3, 0], [2, 3, 3]),
        ("", [9, 1], [-1, 1]),
        ("", [-1, 0], [-1, 0]),
        ("", [2, 9], [2, 9]),
        ("0 0", [0, 9], [0, 0]),
        ("0 0", [2, 9], [2, 2]),
        ("0 0 1 10", [0, 9, 1], [0, 1, 1]),
        ("0 0 1 20", [0, 9, 1], [0, 0, 1]),
        ("0 0 5 10", [0, 9, 3], [0, 3, 3]),
        ("0 0 1 10 4 20", [0, 0, 9], [0, 0, 4]),
        ("0 0 1 10 4 20", [0, 1, 4], [0, 1, 4]),
        ("0 0 1 10 4 21", [0, 1, 9], [0, 1, 1]),
        ("0 0 1 10 4 21", [0, 1, 4], [0, 1, 4]),
        ("2 0 3 10", [2, 3, 0], [2, 3, 3]),
        ("0 0 3 10", [4, 1, 4], [0, 1, 3]),
        ("0 0 3 10", [0, 3, 1], [0, 1, 1]),
    ),
)
def test_the_right_epoch_is_between_its_neighbours(known, stored, right):
    """Batches begin at offsets 0, 10, 20; the epoch file has pairs of epoch and first offset."""
    numbers = known.split()
    rows = [" ".join(numbers[at : at + 2]) for at in range(0, len(numbers), 2)]
    text = "".join(f"{each}\n" for each in ("0", len(rows), *rows))
    directory = Directory.of({EPOCHS: text.encode()})
    data = [batch(10 * at, leader_epoch=epoch) for at, epoch in enumerate(stored)]
    batches = [SimpleNamespace(batch=each) for one in data for each in batches_of(one)]
    view = SimpleNamespace(files=directory.fs, batches=lambda start: iter(batches[start:]))
    log = SimpleNamespace(directory="/data/golden-0")
    assert list(_with_epochs(view, log, 0)) == list(zip(batches, right, strict=True))
    if known:
        directory.write(EPOCHS, b"damaged")
        assert len(list(_with_epochs(view, log, 0))) == len(stored)


def test_invalid_overrides_are_left_out(caplog):
    configs = {"segment.bytes": "500", "retention.ms": "x", "cleanup.policy": "compact"}
    assert _valid_overrides(configs) == {"segment.bytes": "500", "cleanup.policy": "compact"}
    [message] = caplog.messages
    assert message.startswith("left out an invalid configuration: ")
    assert "retention.ms" in message


def test_a_batch_outside_the_transaction_whose_marker_is_lost_is_left_out():
    """A broker would refuse the whole log for it."""
    batches = [
        data_batch(0, 1, 7, sequence=0),
        commit(2, 7),
        batch(3, producer_id=7, producer_epoch=0, base_sequence=2),
        batch(4),
    ]
    directory = partition(batches)
    directory.flip(f"golden-0/{log_name(0)}", len(batches[0]) + 70)
    directory.unclean()
    report = saved(directory)
    assert [lost.reason for lost in report.lost] == ["transaction_state", "crc"]
    assert sorted(records_in(directory.fs)) == [0, 1, 4]
    assert errors_of(directory.fs) == []


def test_messages_in_old_formats_are_saved_unchanged():
    data = [
        message(0, b"k", b"v", magic=0),
        message(1, b"k", None, timestamp=5),
        compressed_set([(2, b"a", b"1"), (3, b"b", b"2")], timestamp=6),
    ]
    directory = Directory(MemoryFileSystem(VirtualClock()))
    directory.make_dirs("golden-0")
    directory.write(f"golden-0/{log_name(0)}", b"".join(data) + b"\0\0\0")
    report = saved(directory)
    assert (report.batches, report.records) == (3, 4)
    assert read_bytes(directory.fs, f"/out/golden-0/{log_name(0)}") == b"".join(data)
    assert errors_of(directory.fs) == []


def test_a_target_that_holds_something_is_refused_and_left_alone():
    directory = kafka("segments")
    directory.fs.make_dirs("/out")
    directory.fs.open("/out/mine", create=True).close()
    with pytest.raises(InvalidConfigurationError, match="not empty"):
        saved(directory)
    assert directory.fs.list_dir("/out") == ["mine"]


def test_the_result_accepts_appends_and_contains_the_topics():
    directory = Directory(MemoryFileSystem(VirtualClock()))
    with Broker("/data", fs=directory.fs, clock=LATER) as broker:
        broker.create_topic("golden", 1, {"segment.bytes": "500"})
        for row in range(20):
            broker.log("golden").writer.append_records([NewRecord(b"k", b"v" * 90, row)])
    name = f"golden-0/{log_name(directory.bases()[1])}"
    directory.flip(name, 80)
    report = saved(directory)
    assert len(report.lost) == 1
    with Broker("/out", fs=directory.fs, clock=LATER) as broker:
        assert broker.manager.catalog.topic("golden").configs == {"segment.bytes": "500"}
        assert broker.append("golden", key=b"k", value=b"v").offset == 20
        assert len(list(broker.read("golden"))) == 20


def test_saved_segments_keep_the_times_of_their_files():
    """Retention of records without timestamps goes by them."""
    directory = kafka("segments")
    names = [f"golden-0/{log_name(base)}" for base in directory.bases()]
    directory.flip(names[1], 61)
    for day, name in enumerate(names):
        directory.fs.set_mtime(f"/data/{name}", day * 86_400_000)
    saved(directory)
    times = [directory.fs.stat(f"/out/{name}").mtime_ms for name in names]
    assert times == [day * 86_400_000 for day in range(len(names))]


def test_check_accepts_what_was_saved_of_producers_that_expired(tmp_path):
    """A producer that expired has in a snapshot no batch, but the marker that came after a day."""
    with Broker(tmp_path / "old", clock=VirtualClock()) as broker:
        configs = {"cleanup.policy": "compact", "segment.bytes": "300"}
        broker.create_topic("t", configs=configs)
        with broker.producer(transactional_id="x") as producer:
            producer.init_transactions()

            def commit(key):
                producer.begin_transaction()
                producer.send("t", b"x" * 40, key=key).get()
                producer.commit_transaction()
                broker.roll("t")

            commit(b"a")
            broker.append("t", key=b"p", value=b"x" * 150)
            broker.roll("t")
            commit(b"b")
            commit(b"b")
            broker.append("t", key=b"z", value=b"")
            broker.clean("t", force=True, roll=True)
    week_ms = 7 * 86_400_000
    late = VirtualClock(VirtualClock().now_ms() + week_ms)
    with Broker(tmp_path / "old", clock=late, read_only=True, on_damage="pass_over") as broker:
        partitions = broker.partitions("t")
        saved = salvage(broker, partitions, DiskFileSystem(late), str(tmp_path / "new"))
    assert not saved.lost
    assert not list(Checker(DiskFileSystem()).path(str(tmp_path / "new")))
