"""Copying partitions into a new data directory."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.copies import UNFINISHED, copy_partitions, unfinished
from logstore.errors import InvalidConfigurationError, KafkaStorageError
from logstore.runtime import DiskFileSystem, MemoryFileSystem
from logstore.storage.checkpoint.offsets import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from tests.cli.conftest import GOLDEN, tree_hash
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

USERS = TopicPartition("users", 0)


class Original:
    """A data directory of two topics, closed cleanly, in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.fs = MemoryFileSystem(self.clock)
        with self.open() as broker:
            broker.create_topic("users", 3, {"cleanup.policy": "compact"})
            broker.create_topic("events", 1)
            for number in range(30):
                broker.append("users", value=b"v", key=b"k%d" % (number % 4), partition=number % 3)
                broker.append("events", value=b"v", key=b"k", partition=0)
            broker.roll("users", 0)
            broker.clean("users", 0, force=True)
        self.clock.advance(days=3)

    def open(self, path: object = "/data", **options: object) -> Broker:
        return Broker(path, clock=self.clock, fs=self.fs, seed=1, **options)

    def copy(self, *partitions: TopicPartition, target: str = "/copy", **options: object) -> None:
        with self.open(read_only=True) as source:
            chosen = partitions or source.partitions()
            copy_partitions(source.manager, chosen, self.fs, target, **options)

    def contents(self, path: str) -> dict[str, tuple[bytes, int]]:
        """Bytes and modification time of each file in a folder."""
        found = {}
        for name in self.fs.list_dir(path):
            if not self.fs.is_dir(f"{path}/{name}"):
                file = self.fs.open(f"{path}/{name}")
                found[name] = (file.read(0, file.size()), self.fs.stat(f"{path}/{name}").mtime_ms)
        return found

    def checkpoint(self, path: str, name: str) -> dict[TopicPartition, int]:
        return OffsetCheckpoint(self.fs, f"{path}/{name}").read()


@pytest.fixture
def original() -> Original:
    return Original()


def test_files_keep_their_bytes_and_their_times(original: Original) -> None:
    original.fs.make_dirs("/copy")
    original.copy()
    for tp in ("users-0", "users-1", "users-2", "events-0"):
        assert original.contents(f"/copy/{tp}") == original.contents(f"/data/{tp}")
    for name in CHECKPOINTS:
        assert original.checkpoint("/copy", name) == original.checkpoint("/data", name)
    assert original.contents("/copy")[CLEAN_SHUTDOWN]
    assert ".lock" not in original.fs.list_dir("/copy")


def test_only_what_was_chosen_is_copied(original: Original) -> None:
    original.copy(USERS, TopicPartition("users", 2))
    assert [n for n in original.fs.list_dir("/copy") if "-" in n and n[-1].isdigit()] == [
        "users-0",
        "users-2",
    ]
    points = original.checkpoint("/data", RECOVERY_POINTS)
    assert len(points) == 4
    assert original.checkpoint("/copy", RECOVERY_POINTS) == {
        tp: point for tp, point in points.items() if tp in (USERS, TopicPartition("users", 2))
    }
    stored = original.checkpoint("/data", CLEANER_OFFSETS)
    assert original.checkpoint("/copy", CLEANER_OFFSETS) == {USERS: stored[USERS]}
    with original.open("/copy") as copy, original.open(read_only=True) as source:
        [topic] = copy.topics()
        assert (topic.name, topic.partitions, topic.adopted) == ("users", (0, 2), False)
        assert topic.configs == source.topic("users").configs
        assert list(copy.read("users", 2)) == list(source.read("users", 2))
        # The clean section is still clean.
        assert copy.cleaner.chooser.state_of(copy.log("users")).first_dirty_offset == stored[USERS]


def test_adopted_topics_stay_adopted(tmp_path: Path) -> None:
    source_dir = shutil.copytree(GOLDEN / "segments" / "data", tmp_path / "data")
    with Broker(source_dir, read_only=True) as source:
        copy_partitions(
            source.manager, source.partitions(), DiskFileSystem(), str(tmp_path / "copy")
        )
    with Broker(tmp_path / "copy") as copy:
        assert copy.topic("golden").adopted
        assert copy.log("golden").log_start_offset == 45


def test_several_data_directories_become_one() -> None:
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    with Broker(["/one", "/two"], clock=clock, fs=fs) as broker:
        broker.create_topic("t", 4)
        for number in range(4):
            broker.append("t", value=b"v%d" % number, partition=number)
        places = {
            directory.path: len(directory.partitions) for directory in broker.manager.directories
        }
    assert places == {"/one": 2, "/two": 2}
    with Broker(["/one", "/two"], clock=clock, fs=fs, read_only=True) as source:
        copy_partitions(source.manager, source.partitions(), fs, "/copy")
    with Broker("/copy", clock=clock, fs=fs) as copy:
        assert [each.value for n in range(4) for each in copy.read("t", n)] == [
            b"v0",
            b"v1",
            b"v2",
            b"v3",
        ]


def test_a_copy_of_a_directory_that_was_not_closed_is_recovered(original: Original) -> None:
    original.fs.remove(f"/data/{CLEAN_SHUTDOWN}")
    torn = original.fs.open(f"/data/users-1/{0:020}.log", write=True)
    whole = torn.size()
    torn.append([b"torn tail"])
    torn.close()
    original.copy()
    assert CLEAN_SHUTDOWN not in original.fs.list_dir("/copy")
    with original.open("/copy") as copy:
        assert copy.log("users", 1).active_segment.size_bytes == whole
        assert [finding.action for finding in copy.log("users", 1).findings] == ["truncated_tail"]
    assert original.fs.stat(f"/data/users-1/{0:020}.log").size == whole + 9


def test_a_damaged_checkpoint_is_left_out(original: Original, caplog) -> None:
    file = original.fs.open(f"/data/{CLEANER_OFFSETS}", write=True)
    file.write_at([b"x"], 0)
    original.copy()
    assert CLEANER_OFFSETS not in original.fs.list_dir("/copy")
    assert [record.getMessage() for record in caplog.records if "copied" in record.msg] == [
        f"/data/{CLEANER_OFFSETS}: line 1: version 'x' is not a 32-bit number; it is not copied"
    ]


def test_topics_without_a_folder_are_stored(original: Original) -> None:
    """A broker that stopped between storing a topic and creating its logs leaves one."""
    for name in original.fs.list_dir("/data/users-1"):
        original.fs.remove(f"/data/users-1/{name}")
    original.fs.remove_dir("/data/users-1")
    original.copy(TopicPartition("users", 1))
    with original.open("/copy") as copy:
        assert copy.topic("users").partitions == (1,)
        assert copy.log("users", 1).log_end_offset == 0


# --- refusals ---------------------------------------------------------------------------------


def test_a_directory_that_holds_something_is_refused(original: Original) -> None:
    original.fs.make_dirs("/copy/anything")
    with pytest.raises(InvalidConfigurationError, match="/copy is not empty"):
        original.copy()
    assert original.fs.list_dir("/copy") == ["anything"]
    original.fs.open("/file", create=True).close()
    with pytest.raises(InvalidConfigurationError, match="/file is not a directory"):
        original.copy(target="/file")


@pytest.mark.parametrize("existed", (False, True))
def test_a_copy_that_fails_at_any_operation_is_removed_again(
    original: Original, existed: bool
) -> None:
    if existed:
        original.fs.make_dirs("/copy")
    for failing in itertools.count():
        steps = itertools.count()
        fs = FaultyFileSystem(original.fs, lambda *_, steps=steps, at=failing: next(steps) == at)
        with original.open(read_only=True) as source:
            try:
                copy_partitions(source.manager, [USERS], fs, "/copy")
            except KafkaStorageError as error:
                failure = str(error)
            else:
                break
        assert "injected failure" in failure
        assert original.fs.exists("/copy") == existed
        assert not existed or original.fs.list_dir("/copy") == []
    assert failing > 30
    assert original.fs.is_dir("/copy/users-0")


# --- next to a process that uses the original -------------------------------------------------


def test_records_appended_meanwhile_are_left_out(original: Original) -> None:
    with original.open() as broker:
        broker.append("users", value=b"new", key=b"k", partition=0)
        end = broker.log("users").log_end_offset

        def append(_: object) -> None:
            broker.append("users", value=b"newer", key=b"k", partition=0)

        original.copy(USERS, progress=append)
        assert broker.log("users").log_end_offset > end
    with original.open("/copy") as copy:
        assert copy.log("users").log_end_offset == end


@pytest.mark.parametrize("change", ("roll and clean", "truncate"))
def test_a_partition_that_is_rewritten_meanwhile_is_not_copied(
    original: Original, change: str
) -> None:
    with original.open() as broker:
        for number in range(20):
            broker.append("users", value=b"w", key=b"k%d" % number, partition=0)
        broker.roll("users")
        done = []

        def interfere(_: object) -> None:
            if not done:
                done.append(change)
                if change == "truncate":
                    broker.manager.truncate_to(USERS, 3)
                else:
                    broker.clean("users", 0, force=True)
                    broker.manager.delete_expired_files()

        with pytest.raises(
            KafkaStorageError,
            match=exactly(
                "/data/users-0 changed during the copy "
                "(/data/users-0/00000000000000000010.index was removed): another process "
                "writes to it; stop it or try again"
            ),
        ):
            original.copy(USERS, progress=interfere)
    assert not original.fs.exists("/copy")


def test_a_segment_that_is_replaced_under_its_name_is_noticed(original: Original) -> None:
    with original.open() as broker:
        broker.roll("users", 1)
        done = []

        def clean(_: object) -> None:
            if not done:
                done.extend(broker.clean("users", 1, force=True).cleaned)

        with pytest.raises(KafkaStorageError, match=f"{0:020}"):
            original.copy(TopicPartition("users", 1), progress=clean)
        assert done[0].segments_before == done[0].segments_after == 1


def test_progress_counts_the_bytes_of_all_files(original: Original) -> None:
    heard = []
    original.copy(USERS, TopicPartition("events", 0), progress=heard.append)
    sizes = {
        tp: [len(data) for data, _ in original.contents(f"/data/{tp}").values()]
        for tp in ("users-0", "events-0")
    }
    total, done, expected = sum(map(sum, sizes.values())), 0, []
    for tp, files in sizes.items():
        for size in files:
            if size:
                expected.append((tp, done, total))
            done += size
    assert [(str(each[0]), *each[1:]) for each in heard] == expected
    assert len(expected) > 5


def test_nothing_is_linked(tmp_path: Path) -> None:
    source_dir = shutil.copytree(GOLDEN / "segments" / "data", tmp_path / "data")
    before = tree_hash(source_dir)
    with Broker(source_dir, read_only=True) as source:
        copy_partitions(
            source.manager, source.partitions(), DiskFileSystem(), str(tmp_path / "copy")
        )
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        assert (path.stat().st_nlink, path.is_symlink()) == (1, False)
        path.write_bytes(b"overwritten")
        os.utime(path, ns=(0, 0))
    assert tree_hash(source_dir) == before


def test_a_copy_is_called_unfinished_durably_before_anything_is_in_it():
    fs = FaultyFileSystem(MemoryFileSystem(VirtualClock()))
    marker = f"/copy/{UNFINISHED}"
    with unfinished(fs, "/copy"):
        assert fs.operations[-2:] == [("open", marker), ("sync_dir", "/copy")]
        assert fs.exists(marker)
    assert fs.operations[-2:] == [("remove", marker), ("sync_dir", "/copy")]


class Linked:
    """A directory on the disk, closed cleanly, and a copy whose closed segments are links."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = VirtualClock()
        self.before, self.after = tmp_path / "before", tmp_path / "after"
        with self.open(self.before) as broker:
            broker.create_topic("users", 1, {"cleanup.policy": "compact"})
            for number in range(40):
                broker.append("users", value=b"v" * 50, key=b"k%d" % (number % 7))
                if number % 10 == 9:
                    broker.roll("users")
        self.clock.advance(days=3)
        self.hash = self.state()

    def open(self, path: Path, **options: object) -> Broker:
        return Broker(path, clock=self.clock, fs=DiskFileSystem(self.clock), seed=1, **options)

    def copy(self, link: object = None, progress: object = None) -> None:
        with self.open(self.before, read_only=True) as source:
            fs = DiskFileSystem(self.clock)
            copy_partitions(
                *(source.manager, source.partitions(), fs, str(self.after)),
                link=link or fs.link,
                progress=progress,
            )

    def state(self) -> object:
        """Return bytes, times and inodes of the original."""
        paths = sorted(self.before.rglob("*"))
        return tree_hash(self.before), [(path.name, path.stat().st_ino) for path in paths]

    def shared(self) -> list[str]:
        return sorted(p.name for p in self.after.rglob("*") if p.is_file() and _is_shared(p))


def _is_shared(path: Path) -> bool:
    return path.stat().st_nlink > 1


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    return Linked(tmp_path)


CLOSED = [f"{base:020}.log" for base in (0, 10, 20, 30)]


def test_closed_segments_are_links_and_nothing_else_is(linked: Linked) -> None:
    linked.copy()
    assert linked.shared() == CLOSED
    assert linked.state() == linked.hash
    with linked.open(linked.after, read_only=True) as copy:
        assert len(list(copy.read("users"))) == 40
    with linked.open(linked.after) as copy:
        assert len(list(copy.read("users"))) == 40
    assert linked.shared() == CLOSED, "reading parts nothing"
    assert linked.state() == linked.hash


def test_links_count_as_copied_without_a_report(linked: Linked) -> None:
    heard = []
    linked.copy(progress=heard.append)
    sizes = {
        path.name: path.stat().st_size
        for path in sorted((linked.before / "users-0").iterdir())
        if path.stat().st_size
    }
    names = [name for name in sizes if name not in CLOSED]
    done = {name: sum(list(sizes.values())[:at]) for at, name in enumerate(sizes)}
    assert [each[1:] for each in heard] == [(done[n], sum(sizes.values())) for n in names]


def _append(linked: Linked) -> None:
    with linked.open(linked.after) as copy:
        copy.append("users", value=b"v", key=b"k")


def _clean(linked: Linked) -> None:
    with linked.open(linked.after) as copy:
        copy.clean("users", force=True, roll=True)
        linked.clock.advance(minutes=5)
        assert len(list(copy.read("users"))) < 40
    assert linked.shared() == []


def _truncate(linked: Linked) -> None:
    with linked.open(linked.after) as copy:
        copy.log("users").truncate_to(13)
        copy.append("users", value=b"v", key=b"k")
    assert linked.shared() == CLOSED[:1]


def _delete(linked: Linked) -> None:
    with linked.open(linked.after) as copy:
        copy.delete_topic("users")


def _recover(linked: Linked) -> None:
    """Cut a torn end, and close, after which no segment is longer than its data."""
    (linked.after / CLEAN_SHUTDOWN).unlink()
    (linked.after / RECOVERY_POINTS).unlink()
    last = linked.after / "users-0" / CLOSED[-1]
    torn = last.read_bytes()[:-5]
    last.unlink()
    last.write_bytes(torn)
    for name in CLOSED[:-1]:
        assert _is_shared(linked.after / "users-0" / name)
    with linked.open(linked.after) as copy:
        assert copy.log("users").log_end_offset == 39


def _recover_a_link(linked: Linked) -> None:
    """Cut a link itself: a bad batch may lie in any segment after an unclean stop."""
    (linked.after / CLEAN_SHUTDOWN).unlink()
    (linked.after / RECOVERY_POINTS).unlink()
    second = linked.after / "users-0" / CLOSED[1]
    data = bytearray(second.read_bytes())
    data[data.index(b"vvvv", len(data) // 2)] ^= 1
    second.unlink()
    second.write_bytes(data)
    other = linked.after.parent / "other.log"
    other.hardlink_to(second)
    with linked.open(linked.after) as copy:
        assert 10 < copy.log("users").log_end_offset < 20
    assert other.read_bytes() == bytes(data)
    assert not second.samefile(other)


@pytest.mark.parametrize(
    "work",
    (_append, _clean, _truncate, _delete, _recover, _recover_a_link),
    ids=lambda work: work.__name__.strip("_"),
)
def test_no_work_on_a_linked_copy_shows_in_the_original(linked: Linked, work) -> None:
    linked.copy()
    work(linked)
    assert linked.state() == linked.hash


@pytest.mark.parametrize("code", (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK))
def test_where_no_link_can_be_files_are_copied(
    linked: Linked, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    linked.copy()
    assert linked.shared() == []
    with linked.open(linked.after, read_only=True) as copy:
        assert len(list(copy.read("users"))) == 40


def test_a_link_that_fails_leaves_no_copy(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(KafkaStorageError, match="after: cannot copy to it: "):
        linked.copy()
    assert not linked.after.exists()
    assert linked.state() == linked.hash
