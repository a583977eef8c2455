"""Moving partitions between data directories: moved state, refusals, failures."""

import errno
import os
import random

import pytest

from logstore import AlterReplicaLogDirsResult, Broker, TopicPartition, VirtualClock
from logstore.errors import (
    InvalidConfigurationError,
    KafkaStorageError,
    LogDirNotFoundError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.directories.move_notes import MOVES_FILE
from logstore.runtime import DiskFileSystem, MemoryFileSystem, Runtime
from logstore.storage.checkpoint.offsets import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.log import NewRecord
from logstore.types import AppendOrigin
from tests.support.world.builders import data_batch, log_name
from tests.support.world.data_home import Home, fill
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.golden_dirs import tree
from tests.support.world.messages import exactly

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
MINUTE_MS = 60_000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": 200, "min.cleanable.dirty.ratio": 0}


@pytest.fixture(params=("memory", "disk"))
def base(request, tmp_path):
    """A file system that fails on demand, and the folder in which the directories are."""
    clock = VirtualClock(1_700_000_000_000)
    if request.param == "disk":
        return FaultyFileSystem(DiskFileSystem(clock)), str(tmp_path), clock
    return FaultyFileSystem(MemoryFileSystem(clock)), "/mem", clock


@pytest.fixture
def place(base):
    return Place(*base)


class Place:
    """Two data directories, of which the first gets the first partition."""

    def __init__(self, fs, path, clock):
        self.fs = fs
        self.clock = clock
        self.here, self.there = f"{path}/here", f"{path}/there"

    def open(self, *, dirs=None, **options):
        dirs = dirs or [self.here, self.there]
        config = {"log.index.size.max.bytes": "4000"}
        options = {"broker_config": config, "clock": self.clock, "seed": 1, **options}
        return Broker(dirs, fs=self.fs, **options)

    def filled(self, count=10, configs=COMPACT, **options):
        broker = self.open(**options)
        broker.create_topic("a", configs=configs)
        append(broker, count)
        return broker

    def entry(self, directory, name, tp=A0):
        fs = DiskFileSystem() if isinstance(self.fs.base, DiskFileSystem) else self.fs.base
        home = Home(fs, directory, self.clock)
        lines = home.text(name).splitlines()[2:] if fs.exists(f"{directory}/{name}") else []
        return [int(line.split()[2]) for line in lines if line.startswith(f"{tp.topic} ")]

    def folders(self, directory):
        return {name.partition("/")[0] for name in tree(self.fs, directory) if "/" in name}

    def mtimes(self, folder):
        names = [name for name in self.fs.list_dir(folder) if name.startswith("0")]
        return {name: self.fs.stat(f"{folder}/{name}").mtime_ms for name in names}


def append(broker, count, topic="a"):
    for number in range(count):
        broker.append(topic, value=b"v%d" % number, key=b"k%d" % (number % 3))


def records(broker, topic="a"):
    return [(record.offset, record.key, record.value) for record in broker.read(topic)]


def move(broker, log_dir, tp=A0):
    (result,) = broker.alter_replica_log_dirs({tp: log_dir}).values()
    return result


def kill(broker):
    Home.kill(broker.manager)


# -- moved state -----------------------------------------------------------------------------


def test_s223_the_entries_of_a_partition_that_moves_go_along(place):
    """The cleaner's and the others; none is known once the second directory failed."""
    broker = place.filled(configs=COMPACT | {"cleanup.policy": "compact,delete"})
    broker.clean()
    broker.delete_records({A0: 8})
    broker.manager.checkpoint_high_watermarks()
    cleaned = broker.cleaner.checkpoints.of(A0)
    assert cleaned == 8
    assert place.entry(place.here, CLEANER_OFFSETS) == [cleaned]
    assert move(broker, place.there) == AlterReplicaLogDirsResult()
    for name, value in {
        CLEANER_OFFSETS: cleaned,
        RECOVERY_POINTS: 10,
        REPLICATION_OFFSETS: 10,
    }.items():
        assert place.entry(place.here, name) == [], name
        assert place.entry(place.there, name) == [value], name
    assert broker.cleaner.checkpoints.of(A0) == cleaned
    assert broker.log("a").log_start_offset == 8
    directory = broker.manager.registry.directory_of(A0)
    assert directory.path == place.there
    directory.go_offline("a test says so")
    assert broker.cleaner.checkpoints.of(A0) is None


def test_s223_a_move_retains_the_uncleanable_state(place):
    broker = place.filled()
    path = f"{place.here}/a-0/{log_name(0)}"
    file = place.fs.open(path, write=True)
    file.write_at([b"\xff"], 70)
    file.close()
    assert [each.reason for each in broker.clean().not_cleaned] == ["uncleanable"]
    (before,) = broker.cleaner.uncleanable()
    size = broker.metrics().uncleanable_bytes[place.here]
    assert before.log_dir == place.here
    assert size > 0
    assert move(broker, place.there).error is None
    (mark,) = broker.cleaner.uncleanable()
    assert mark == before._replace(log_dir=place.there)
    metrics = broker.metrics()
    assert metrics.uncleanable_partitions_count == {place.here: 0, place.there: 1}
    assert metrics.uncleanable_bytes == {place.here: 0, place.there: size}
    assert [each.reason for each in broker.clean(force=True).not_cleaned] == ["uncleanable"]


def test_s224_a_failed_directory_takes_its_checkpoints_out_of_view_and_stays_uncleaned(place):
    broker = place.open()
    broker.create_topic("a", 2, COMPACT)
    for tp in (A0, A1):
        for number in range(6):
            broker.append("a", value=b"v%d" % number, key=b"k", partition=tp.partition)
    broker.clean()
    assert [broker.cleaner.checkpoints.of(tp) for tp in (A0, A1)] == [4, 4]
    for tp in (A0, A1):
        broker.append("a", value=b"dirty", key=b"k", partition=tp.partition)
        broker.roll("a", tp.partition)
    failed, other = (broker.manager.registry.directory_of(tp) for tp in (A0, A1))
    assert failed is not other
    place.fs.rule = lambda operation, path: (
        operation == "write" and path.startswith(f"{failed.path}/")
    )
    with pytest.raises(KafkaStorageError):
        broker.append("a", value=b"v", key=b"k", partition=0)
    place.fs.rule = lambda *_: False
    assert [broker.cleaner.checkpoints.of(tp) for tp in (A0, A1)] == [None, 4]
    selected = broker.cleaner.chooser.select()
    assert selected.log.topic_partition == A1
    assert broker.cleaner.chooser.select() is None, "logs in the failed directory are not cleaned"
    broker.cleaner.states.done(A1)


def test_s222_a_truncation_lowers_the_cleaner_checkpoint_that_is_above_it(place):
    """999 stays below 1000 and becomes 1 below 1.

    Kafka does not change the checkpoint of a log that is not compacted now. Here it is lowered, or
    the next records would count as cleaned once the log is compacted again.
    """
    broker = place.filled()
    directory = broker.manager.registry.directory_of(A0)
    for policy in ("compact", "delete"):
        broker.alter_configs("a", {"cleanup.policy": policy})
        directory.write_cleaner_offset(A0, 999)
        directory.lower_cleaner_offset(A0, 1000)
        assert broker.cleaner.checkpoints.of(A0) == 999
        broker.manager.truncate_to(A0, 1)
        assert broker.cleaner.checkpoints.of(A0) == 0, "the active segment begins there"
        directory.write_cleaner_offset(A0, 999)
        directory.lower_cleaner_offset(A0, 1)
        assert broker.cleaner.checkpoints.of(A0) == 1


def test_the_files_are_the_same_and_the_old_ones_go_after_the_delay(place):
    broker = place.filled()
    before = records(broker)
    times = place.mtimes(f"{place.here}/a-0")
    place.clock.advance(minutes=5)
    log = broker.log("a")
    with log.at_rest():
        files = tree(place.fs, f"{place.here}/a-0")
    move(broker, place.there)
    assert records(broker) == before
    active = f"{log.active_segment.base_offset:020}."
    closed = [name for name in files if not name.startswith(active)]
    assert len(closed) > 15
    now = tree(place.fs, f"{place.there}/a-0")
    assert now.keys() == files.keys()
    assert [name for name in closed if now[name] != files[name]] == []
    moved = place.mtimes(f"{place.there}/a-0")
    logs = [name for name in times if name.endswith(".log")]
    assert {name: moved[name] for name in logs} == {name: times[name] for name in logs}
    (old,) = place.folders(place.here)
    assert old.startswith("a-0.")
    assert old.endswith("-delete")
    place.clock.advance(ms=MINUTE_MS - 1)
    broker.manager.delete_expired_files()
    assert place.folders(place.here) == {old}
    place.clock.advance(ms=1)
    broker.manager.delete_expired_files()
    assert place.folders(place.here) == set()
    append(broker, 4)
    assert len(records(broker)) == 14
    broker.close()
    broker = place.open()
    assert broker.manager.registry.directory_of(A0).path == place.there
    assert (len(records(broker)), broker.log("a").findings) == (14, ())
    assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")
    broker.close()


def test_there_and_back_again_while_it_is_written(place):
    broker = place.filled(3)
    for target in (place.there, place.here) * 3:
        move(broker, target + "/")
        append(broker, 3)
    assert [offset for offset, _, _ in records(broker)] == list(range(21))
    kill(broker)
    broker = place.open()
    assert broker.manager.registry.directory_of(A0).path == place.here
    assert len(records(broker)) == 21
    assert broker.partitions() == [A0]
    broker.close()


def test_a_move_after_an_unclean_start_recovers_nothing_again(place):
    """The move brings the files into good order, whatever the directory was before."""
    kill(place.filled())
    broker = place.open()
    (segment,) = broker.log("a").segments.view[-1:]
    file = place.fs.open(segment.log_path, write=True)
    file.write_at([b"\xff"], segment.size_bytes - 1)  # a recovery would truncate it
    move(broker, place.there)
    assert broker.log("a").findings == ()
    assert broker.log("a").log_end_offset == 10
    broker.close()
    for directory in (place.here, place.there):
        assert place.fs.exists(f"{directory}/{CLEAN_SHUTDOWN}")


def test_a_transaction_continues_in_the_new_place_and_so_does_its_coordinator(place):
    broker = place.open()
    broker.create_topic("a")
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("a", b"before")
    producer.flush()
    number = next(
        tp
        for tp in broker.partitions("__transaction_state")
        if broker.log(tp.topic, tp.partition).log_end_offset
    )
    for tp in (A0, number):
        here = broker.manager.registry.directory_of(tp).path
        assert move(broker, place.there if here == place.here else place.here, tp).error is None
    producer.send("a", b"after")
    assert list(broker.read("a", isolation="read_committed")) == []
    producer.commit_transaction()
    committed = broker.read("a", isolation="read_committed")
    assert [record.value for record in committed] == [b"before", b"after"]
    broker.close()


def test_an_interrupt_after_a_move_recovers_the_files_of_the_new_place(place):
    broker = place.filled()
    move(broker, place.there)
    append(broker, 2)
    log = broker.log("a")

    def interrupted():
        log.begin()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.change(interrupted)
    append(broker, 1)
    assert len(records(broker)) == 13
    assert {segment.log_path.rpartition("/")[0] for segment in log.segments} == {
        f"{place.there}/a-0"
    }
    broker.close()


def test_a_reference_to_the_log_follows_the_move(place):
    """Running readers, batch writers and holders of the log only look up the files again."""
    broker = place.filled()
    log, reading, writer = broker.log("a"), broker.read("a"), broker.batch_writer("a")
    assert next(reading).offset == 0
    writer.add(NewRecord(b"k", b"waits"))
    move(broker, place.there)
    assert broker.log("a") is log
    assert [batch.header.base_offset for batch in log.reader.batches(5)] == [5, 6, 7, 8, 9]
    fill(log, 1)
    assert [range.last_offset for range in writer.finish()] == [11]
    assert [record.offset for record in reading] == list(range(1, 12))
    assert log.directory == f"{place.there}/a-0"
    kill(broker)
    with place.open() as broker:
        assert [value for *_, value in records(broker)][9:] == [b"v9", b"v", b"waits"]


def test_a_move_retains_a_high_watermark_below_the_log_end(place):
    broker = place.filled()
    broker.log("a").offsets.set_high_watermark(6)
    move(broker, place.there)
    assert broker.log(A0).high_watermark == 6
    assert place.entry(place.there, REPLICATION_OFFSETS) == [6]
    assert [record.offset for record in broker.read("a")] == list(range(6))


def test_a_move_retains_a_log_start_inside_a_segment(place):
    """In the checkpoint at once: otherwise deleted records would reappear after a crash."""
    broker = place.filled(configs={"segment.bytes": 1_000_000})
    broker.delete_records({A0: 4})
    move(broker, place.there)
    assert place.entry(place.there, LOG_START_OFFSETS) == [4]
    kill(broker)
    with place.open() as broker:
        assert records(broker)[0][0] == 4


def test_a_move_retains_a_log_start_in_a_gap_at_the_end(place):
    """Deleted records stay deleted: the copy is judged by its batches, which end below."""
    with place.filled(5, {}) as broker:
        log = broker.log("a")
        log.writer.append_batches(data_batch(12, 12, 7), AppendOrigin.REPLICATION)
        log.truncate_to(10)
        broker.delete_records({A0: 8})
        assert move(broker, place.there).error is None
        assert (log.log_start_offset, log.log_end_offset) == (8, 10)
        append(broker, 1)
        assert [record.offset for record in broker.read("a", 0)] == [10]
    with place.open() as broker:
        assert (broker.log("a").log_start_offset, len(records(broker))) == (8, 1)


def test_a_disk_failure_while_closing_takes_the_directory_offline(place):
    broker = place.filled(5, {})
    broker.log("a").writer.append_batches(data_batch(12, 12, 7), AppendOrigin.REPLICATION)
    broker.log("a").truncate_to(10)
    broker.delete_records({A0: 8})
    place.fs.rule = lambda operation, path: operation == "read" and path.endswith(log_name(0))
    with pytest.raises(KafkaStorageError, match="cannot read the end"):
        broker.close()


def test_each_disk_answers_for_its_own_files_after_a_move(place):
    """A failure of the new one takes the new one offline, and spares the old one."""
    broker = place.filled()
    broker.create_topic("b")  # it stays in the second directory
    move(broker, place.there)
    here, there = broker.manager.directories
    place.fs.rule = lambda operation, path: operation == "write" and path.startswith(place.there)
    with pytest.raises(KafkaStorageError):
        append(broker, 1)
    place.fs.rule = lambda *_: False
    assert (here.is_online, there.is_online) == (True, False)


def test_a_copy_that_cannot_be_opened_takes_its_disk_offline(place):
    """From its rename on the copy is valid; holders of the log get an error that explains it."""
    broker = place.filled()
    log = broker.log("a")
    renamed = []

    def fail_once_in_place(operation, path):
        renamed.append(operation == "rename" and "-future" in path)
        return any(renamed) and operation == "open" and path.startswith(f"{place.there}/a-0")

    place.fs.rule = fail_once_in_place
    result = move(broker, place.there)
    place.fs.rule = lambda *_: False
    assert result.error == "KAFKA_STORAGE_ERROR"
    assert [each.is_online for each in broker.manager.directories] == [True, False]
    for use in (lambda: fill(log, 1), lambda: append(broker, 1)):
        with pytest.raises(KafkaStorageError):
            use()
    kill(broker)
    with place.open() as broker:
        assert len(records(broker)) == 10
        assert place.folders(place.there) == {"a-0"}


def test_readers_continue_while_the_files_are_copied(place):
    broker = place.filled()
    log, seen = broker.log("a"), []

    def read_meanwhile(operation, path):
        if operation == "write" and "-future/" in path and not seen:
            seen.append(None)
            seen[:] = [record.offset for _, record in log.reader.records(0)]
        return False

    place.fs.rule = read_meanwhile
    move(broker, place.there)
    assert seen == list(range(10))


def test_leftovers_are_not_copied(place):
    broker = place.filled()
    folder = f"{place.here}/a-0"
    names = (f"{5:020}.log.cleaned", f"{5:020}.log.deleted", "leader-epoch-checkpoint.tmp")
    for name in names:
        place.fs.open(f"{folder}/{name}", create=True).close()
    place.fs.make_dirs(f"{folder}/kept aside")
    place.fs.open(f"{folder}/notes.txt", create=True).close()
    move(broker, place.there)
    left = set(place.fs.list_dir(f"{place.there}/a-0"))
    assert left.isdisjoint({*names, "kept aside"})
    assert "notes.txt" in left


def test_a_topic_of_the_longest_name_can_be_moved(place):
    name = "t" * 249
    broker = place.open()
    broker.create_topic(name)
    broker.append(name, value=b"v")
    assert move(broker, place.there, TopicPartition(name, 0)).error is None
    assert [record.value for record in broker.read(name)] == [b"v"]
    kill(broker)
    broker = place.open()
    assert [record.value for record in broker.read(name)] == [b"v"]


# -- refusals --------------------------------------------------------------------------------


def test_one_refused_move_does_not_hide_others(place):
    broker = place.open()
    broker.create_topic("a", 2)
    append(broker, 1)
    results = broker.alter_replica_log_dirs(
        {
            A2: place.there,
            TopicPartition("none", 0): place.there,
            A1: "/elsewhere",
            A0: place.there,
        }
    )
    assert [each.error for each in results.values()] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LOG_DIR_NOT_FOUND",
        None,
    ]
    assert "no partition 2" in results[A2].message
    assert f"are {place.here}, {place.there}" in results[A1].message
    assert broker.manager.registry.directory_of(A0).path == place.there


def test_to_where_it_is_nothing_happens(place):
    broker = place.filled()
    log, before = broker.log("a"), tree(place.fs, place.here)
    assert move(broker, place.here) == AlterReplicaLogDirsResult()
    assert broker.log("a") is log
    assert tree(place.fs, place.here) == before


def test_a_read_only_log_is_not_moved(place):
    place.filled().close()
    broker = place.open(read_only=True)
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("cannot move partitions: the broker was opened read-only"),
    ):
        broker.alter_replica_log_dirs({A0: place.there})
    with pytest.raises(InvalidConfigurationError, match=r"cannot move a-0.*read-only"):
        broker.manager.registry.move_partition(A0, place.there)
    assert len(records(broker)) == 10


@pytest.mark.parametrize("which", ("source", "target"))
def test_from_or_to_a_directory_that_is_offline_nothing_moves(place, which):
    broker = place.filled()
    before = tree(place.fs, place.here)
    index = ("source", "target").index(which)
    broker.manager.directories[index].go_offline("a test says so")
    result = move(broker, place.there)
    assert result.error == "KAFKA_STORAGE_ERROR"
    assert f"{(place.here, place.there)[index]} is offline: a test says so" in result.message
    assert tree(place.fs, place.here) == before
    assert place.folders(place.there) == set()
    if which == "target":
        append(broker, 1)
        assert len(records(broker)) == 11


def test_the_manager_names_its_refusals():
    clock = VirtualClock()
    home = Home(MemoryFileSystem(clock), "/data", clock)
    manager = home.open()
    with pytest.raises(
        LogDirNotFoundError,
        match=exactly("/other is not one of the data directories, which are /data"),
    ):
        manager.registry.move_partition(A0, "/other")
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'a'")):
        manager.registry.move_partition(A0, "/data")


# -- disks that fail -------------------------------------------------------------------------


def test_a_full_target_gets_nothing_and_the_source_continues(place):
    """At any change of the target; the files copied until then are removed."""
    number = 0
    broker = place.filled(configs=COMPACT | {"segment.bytes": 100_000})
    broker.roll("a")
    broker.clean()
    while True:
        room = [number]

        def full(operation, path, room=room):
            own = path.startswith(f"{place.there}/") and "/a-0/" not in path  # until it is there
            if own and operation in ("write", "open"):
                room[0] -= 1
                if room[0] == -1:
                    raise OSError(errno.ENOSPC, "No space left on device", path)
            return False

        place.fs.rule = full
        result = move(broker, place.there)
        place.fs.rule = lambda *_: False
        if result.error is None:
            break
        assert "No space left" in result.message
        assert broker.manager.registry.directory_of(A0).path == place.here
        assert all(each.is_online for each in broker.manager.directories)
        assert not [name for name in place.fs.list_dir(place.there) if "a-0" in name]
        assert [place.entry(place.there, name) for name in CHECKPOINTS] == [[]] * 4
        assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")
        if not number:
            append(broker, 3)
        number += 1
    append(broker, 1)
    assert number > 10
    before = records(broker)
    broker.close()
    broker = place.open()
    assert records(broker) == before
    assert before[-1][0] == 13
    broker.close()


@pytest.mark.parametrize("number", (errno.ENOSPC, errno.EDQUOT))
def test_a_full_source_that_has_no_room_for_the_note_stays_online(place, number):
    """Neither a full disk nor a used-up quota is a disk that failed."""
    broker = place.filled()

    def full(operation, path):
        if operation == "write" and MOVES_FILE in path:
            raise OSError(number, os.strerror(number), path)
        return False

    place.fs.rule = full
    assert os.strerror(number) in move(broker, place.there).message
    place.fs.rule = lambda *_: False
    assert all(each.is_online for each in broker.manager.directories)
    assert "a-0" not in "".join(place.fs.list_dir(place.there))
    append(broker, 1)
    assert move(broker, place.there).error is None
    assert len(records(broker)) == 11


@pytest.mark.parametrize("operation", ("write", "sync", "sync_dir", "rename", "set_mtime"))
def test_a_target_that_fails_goes_offline_and_the_source_continues(place, operation):
    broker = place.filled()
    place.fs.rule = lambda each, path: each == operation and path.startswith(place.there)
    result = move(broker, place.there)
    assert result.error == "KAFKA_STORAGE_ERROR"
    assert f"cannot move a-0 from {place.here} to {place.there}" in result.message
    assert [each.is_online for each in broker.manager.directories] == [True, False]
    append(broker, 5)
    before = records(broker)
    assert len(before) == 15
    kill(broker)
    place.fs.rule = lambda *_: False
    # It may have come so far that the name is there.
    broker = place.open()
    assert records(broker) == before
    assert broker.manager.registry.directory_of(A0).path == place.here
    assert "a-0" not in place.folders(place.there)
    assert not [name for name in place.folders(place.there) if name.endswith("-future")]
    assert not place.fs.exists(f"{place.here}/{MOVES_FILE}")
    broker.close()


def test_a_target_that_failed_and_stays_away_stops_no_start(place):
    broker = place.filled()
    place.fs.rule = lambda each, path: each == "sync_dir" and path == place.there
    assert move(broker, place.there).error == "KAFKA_STORAGE_ERROR"
    append(broker, 1)
    kill(broker)
    for _ in range(2):
        place.fs.rule = lambda each, path: each in ("open", "lock") and path.startswith(place.there)
        broker = place.open()
        assert len(records(broker)) == 11
        broker.close()
    place.fs.rule = lambda *_: False
    broker = place.open()
    assert len(records(broker)) == 11


def test_a_source_that_cannot_be_read_goes_offline(place):
    broker = place.filled()
    place.fs.rule = lambda each, path: each == "read" and path.startswith(f"{place.here}/a-0/")
    result = move(broker, place.there)
    assert result.error == "KAFKA_STORAGE_ERROR"
    assert [each.is_online for each in broker.manager.directories] == [False, True]
    assert not [name for name in place.fs.list_dir(place.there) if "a-0" in name]
    kill(broker)
    place.fs.rule = lambda *_: False
    broker = place.open()
    assert len(records(broker)) == 10
    assert broker.manager.registry.directory_of(A0).path == place.here


def test_a_source_that_cannot_be_released_is_offline_and_the_target_serves(place):
    broker = place.filled()
    place.fs.rule = lambda each, path: each == "rename" and path == f"{place.here}/a-0"
    result = move(broker, place.there)
    assert result.error == "KAFKA_STORAGE_ERROR"
    assert f"a-0 is in {place.there}, but" in result.message
    append(broker, 2)
    before = records(broker)
    kill(broker)
    place.fs.rule = lambda *_: False
    broker = place.open()
    assert broker.manager.registry.directory_of(A0).path == place.there
    assert records(broker) == before
    assert len(before) == 12
    broker.close()
    assert place.folders(place.here) == set()


def test_a_paused_service_is_notified_of_a_move(base):
    fs, path, clock = base
    home = Home(fs, f"{path}/data", clock)
    manager = home.open(f"{path}/other", runtime=Runtime(clock, fs, random.Random(0)))
    manager.topics.create("a", 1, {})
    heard = []

    class Holder:
        def __getattr__(self, name):
            return lambda *told: heard.append((name, *told))

    manager.services.add_holder(Holder())
    manager.services.events.partition_moved.subscribe(lambda *told: heard.append(("moved", *told)))
    manager.registry.move_partition(A0, f"{path}/other")
    assert heard == [("pause", A0), ("moved", A0, f"{path}/other"), ("resume", A0)]
