"""Read-only views while another process writes: it acts between any two reads of the reader."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.summary import inspect_partition
from logstore.errors import CorruptRecordError, KafkaStorageError, UnknownTopicOrPartitionError
from logstore.runtime import File, FileStat, MemoryFileSystem
from logstore.storage.checkpoint.atomic import read_bytes

DATA, OTHER = "/data", "/other"
TP = TopicPartition("t", 0)


class BusyFileSystem(MemoryFileSystem):
    """Files in memory; an action runs before the n-th read access."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.looks = 0
        self.act: Callable[[], object] | None = None
        self._at = 0
        self._period = 0

    def before_look(self, number: int, act: Callable[[], object], *, period: int = 0) -> None:
        """Call `act` before the n-th access from now on, and then once a period."""
        self.looks, self._at, self.act, self._period = 0, number, act, period

    def _look(self) -> None:
        self.looks += 1
        act = self.act
        if act is not None and self.looks == self._at:
            self.act = None
            act()
            self.act, self._at = (act, self.looks + self._period) if self._period else (None, 0)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        if not write and not create:
            self._look()
        return super().open(path, write=write, create=create)

    def list_dir(self, path: str) -> list[str]:
        self._look()
        return super().list_dir(path)

    def stat(self, path: str) -> FileStat:
        self._look()
        return super().stat(path)


class Scene:
    """A broker that writes, and the same files for read-only brokers."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.fs = BusyFileSystem(self.clock)
        self.fs.make_dirs(DATA)
        self.fs.make_dirs(OTHER)
        self.writer = Broker([DATA, OTHER], fs=self.fs, clock=self.clock, seed=1)
        configs = {"cleanup.policy": "compact", "segment.bytes": 300, "index.interval.bytes": 0}
        self.writer.create_topic("t", 1, configs)
        self.states: list[dict[bytes, bytes]] = []
        for number in range(8):
            self.append(number)

    def note_state(self) -> None:
        """Append the latest value of each key to `states`."""
        looks, act = self.fs.looks, self.fs.act
        self.fs.act = None
        self.states.append(latest(list(self.writer.read("t"))))
        self.fs.looks, self.fs.act = looks, act

    def append(self, number: int) -> None:
        self.writer.append(
            "t", key=b"k%d" % (number % 5), value=b"%d" % number + bytes(60), partition=0
        )

    def append_and_roll(self) -> None:
        self.append(100)
        self.writer.roll("t")
        self.append(101)

    def clean(self) -> None:
        self.writer.clean("t", force=True, roll=True)

    def clean_and_remove(self) -> None:
        self.clean()
        self.clock.advance(minutes=2)
        self.writer.manager.delete_expired_files()

    def move(self) -> None:
        home = self.writer.manager.registry.directory_of(TP).path
        self.writer.alter_replica_log_dirs({TP: OTHER if home == DATA else DATA})

    def cut_and_go_on(self) -> None:
        end = self.writer.log("t").log_end_offset
        self.writer.manager.truncate_to(TP, end - 1)
        self.note_state()
        self.append(102)

    def half_an_append(self) -> None:
        """Write the first half of a batch, as a reader sees it during an append."""
        segment = self.writer.log("t").active_segment
        file = self.fs.open(segment.log_path, write=True)
        file.append([file.read(0, 90)])
        file.close()

    def reader(self) -> Broker:
        return Broker([DATA, OTHER], fs=self.fs, clock=self.clock, read_only=True)


ACTS = ("append_and_roll", "clean", "clean_and_remove", "move", "cut_and_go_on")


@pytest.fixture(autouse=True)
def warnings(caplog):
    caplog.set_level(logging.WARNING)
    return caplog


def latest(records: list) -> dict[bytes, bytes]:
    return {record.key: record.value for record in records}


def looks_of(look: Callable[[Broker], object]) -> int:
    """Count the file accesses of a reader's operation without concurrent changes."""
    scene = Scene()
    scene.fs.before_look(0, lambda: None)
    with scene.reader() as reader:
        look(reader)
    return scene.fs.looks


def read(reader: Broker) -> list:
    return list(reader.read("t"))


@pytest.mark.parametrize("act", ACTS)
def test_a_reader_sees_the_state_before_or_after_a_concurrent_change(act, warnings):
    for number in range(1, looks_of(read) + 1, 2):
        scene = Scene()
        scene.note_state()
        scene.fs.before_look(number, getattr(scene, act))
        with scene.reader() as reader:
            found = read(reader)
        scene.note_state()
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), f"{act} before look {number}"
        assert latest(found) in scene.states, f"{act} before look {number}"
        assert warnings.messages == [], f"{act} before look {number}"


@pytest.mark.parametrize("act", ACTS)
def test_a_summary_has_no_findings_during_a_concurrent_change(act, warnings):
    def look(reader: Broker) -> None:
        summary = inspect_partition(reader, TP, deep=True)
        assert summary.recovery == ()
        assert summary.live_keys == 5

    for number in range(1, looks_of(look) + 1, 2):
        scene = Scene()
        scene.fs.before_look(number, getattr(scene, act))
        with scene.reader() as reader:
            look(reader)
        assert warnings.messages == [], f"{act} before look {number}"


def test_a_read_that_fails_midway_continues_in_a_new_view():
    """Files of a view are held open, but a truncation and later appends change the same file."""
    scene = Scene()
    segment = scene.writer.log("t").segments.first
    with scene.reader() as reader:
        assert reader.log("t").log_end_offset == 8
        file = scene.fs.open(segment.log_path, write=True)
        sound = file.read(0, 200)
        file.write_at([bytes(100)], 100)
        scene.fs.before_look(20, lambda: file.write_at([sound], 0))
        assert [record.offset for record in reader.read("t", max_records=6)] == list(range(6))
    assert scene.fs.looks > 20


def test_a_view_can_read_its_files_after_they_were_removed():
    """Also after the segments closed them, as they do if many are open."""
    scene = Scene()
    with scene.reader() as reader:
        log = reader.log("t")
        before = [record for _, record in log.reader.records(0)]
        assert len(log.segments) > 2
    with scene.reader() as reader:
        log = reader.log("t")
        for segment in log.segments:
            assert segment.release_file()
        scene.clean_and_remove()
        assert [record for _, record in log.reader.records(0)] == before


def test_a_further_attempt_sees_that_the_writer_has_closed():
    scene = Scene()
    with scene.reader() as reader:
        directory = reader.manager.directories[0]
        assert not directory.clean
        scene.writer.close()
        directory.reload()
        assert directory.clean


def test_a_further_attempt_reads_a_checkpoint_that_was_damaged_before():
    scene = Scene()
    scene.writer.manager.checkpoint_recovery_points()
    path = f"{DATA}/recovery-point-offset-checkpoint"
    sound = read_bytes(scene.fs, path)

    def write(data: bytes) -> None:
        file = scene.fs.open(path, write=True)
        file.truncate(0)
        file.append([data])
        file.close()

    write(b"garbled\n")
    with scene.reader() as reader:
        directory = reader.manager.directories[0]
        assert directory.recovery_points == {}
        write(sound)
        directory.reload()
        assert directory.recovery_points == {TP: 6}


def test_a_roll_during_a_load_does_not_cause_another_attempt():
    """The segments that were finished before are unchanged, so the first view is accepted."""
    scene = Scene()
    with scene.reader() as reader:
        assert len(read(reader)) == 8
        looks = scene.fs.looks
    for at in range(1, looks):
        scene.fs.before_look(at, scene.append_and_roll)
        before_ms = scene.clock.now_ms()
        with scene.reader() as reader:
            read(reader)
        assert scene.clock.now_ms() == before_ms, at


def test_a_partial_append_is_not_reported_once_it_is_complete(warnings):
    scene = Scene()
    segment = scene.writer.log("t").active_segment
    size = segment.size_bytes
    scene.half_an_append()

    def finish() -> None:
        file = scene.fs.open(segment.log_path, write=True)
        file.truncate(size)
        file.close()

    scene.fs.before_look(40, finish)
    with scene.reader() as reader:
        assert len(read(reader)) == 8
        assert reader.log("t").findings == ()
    assert scene.fs.looks > 40
    assert warnings.messages == []


def test_lasting_damage_is_reported_after_the_last_attempt():
    scene = Scene()
    scene.writer.manager.checkpoint_recovery_points()
    first = scene.writer.log("t").segments.first
    file = scene.fs.open(first.log_path, write=True)
    file.write_at([b"\xff\xff"], 80)
    file.close()
    before_ms = scene.clock.now_ms()
    with scene.reader() as reader, pytest.raises(CorruptRecordError, match=first.log_path):
        read(reader)
    assert 500 < scene.clock.now_ms() - before_ms < 5000


def test_the_attempts_are_limited_if_the_writer_never_pauses():
    scene = Scene()
    before_ms = scene.clock.now_ms()
    scene.fs.before_look(1, scene.append_and_roll, period=60)
    with scene.reader() as reader:
        assert len(latest(read(reader))) == 5
    assert scene.clock.now_ms() - before_ms < 10_000


def test_a_partition_that_always_changes_is_not_reported_as_a_disk_failure():
    scene = Scene()

    def load(_):
        raise FileNotFoundError(2, "No such file or directory", "00.log")

    with scene.reader() as reader:
        views = reader.manager.directories[0]._views
        with pytest.raises(KafkaStorageError, match="another process changed it during each of 9"):
            views.take(f"{DATA}/t-0", load)
        scene.writer.close()
        with pytest.raises(FileNotFoundError):
            views.take(f"{DATA}/t-0", load)


def test_a_partition_that_is_deleted_during_a_load_is_reported_as_deleted():
    scene = Scene()
    with scene.reader() as reader:
        scene.writer.delete_topic("t")
        with pytest.raises(
            UnknownTopicOrPartitionError,
            match="t-0 was removed: another process has deleted it or moved it",
        ):
            reader.read("t")


def test_without_a_writer_the_first_attempt_counts_and_reports_findings(warnings):
    scene = Scene()
    scene.half_an_append()
    scene.writer.manager.directories[0].close(clean=False)
    before_ms = scene.clock.now_ms()
    with scene.reader() as reader:
        (found,) = (f for f in reader.log("t").findings if f.action == "truncated_tail")
    assert found.path.endswith(".log")
    assert scene.clock.now_ms() == before_ms
    assert any("truncated_tail" in message for message in warnings.messages)
