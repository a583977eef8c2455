"""Links, pipes and sockets in a data directory: no write outside of it, and no hang."""

import os
from pathlib import Path

import pytest

from logstore.errors import CorruptCheckpointError, KafkaStorageError
from logstore.manager.directories.directory import REPLACED_FILES
from logstore.manager.topics import TOPICS_FILE
from logstore.names import INDEX_SUFFIXES, LOCK_FILE, SNAPSHOT_SUFFIX, file_name
from logstore.runtime import DiskFileSystem, VirtualClock
from logstore.storage.checkpoint.atomic import TMP_SUFFIX
from logstore.storage.checkpoint.offsets import CHECKPOINTS
from logstore.storage.checkpoint.rows import CHECKPOINT_VERSION
from logstore.types import TopicPartition
from tests.support.world.builders import log_name
from tests.support.world.data_home import Home, fill, offsets
from tests.support.world.messages import exactly
from tests.support.world.special_files import PRECIOUS, files_below, make_precious, no_hang

A0 = TopicPartition("a", 0)
B0 = TopicPartition("b", 0)


@pytest.fixture(autouse=True)
def deadline():
    with no_hang():
        yield


@pytest.fixture
def home(tmp_path):
    return Home(DiskFileSystem(VirtualClock()), f"{tmp_path}/data", VirtualClock())


@pytest.fixture
def outside(tmp_path):
    """Return a folder outside of all data directories."""
    return make_precious(tmp_path / "precious")


def closed(home, *topics, count=3):
    """Create topics with one partition and some records, and close them."""
    manager = home.open()
    for topic in topics:
        manager.topics.create(topic, 1, {"file.delete.delay.ms": "0"})
        fill(manager.log(TopicPartition(topic, 0)), count)
    manager.close()


def data(home, *parts):
    return Path(home.path, *parts)


# -- deleting ------------------------------------------------------------------------------------


def test_deleting_a_topic_removes_links_and_not_their_targets(home, outside):
    closed(home, "a")
    targets = (outside, outside / "one", outside / "none", data(home, "a-0"), data(home))
    for number, target in enumerate(targets):
        data(home, "a-0", f"link-{number}").symlink_to(target)
    data(home, "a-0", "loop").symlink_to(data(home, "a-0", "loop"))
    manager = home.open()
    manager.topics.delete("a")
    manager.close()
    assert files_below(outside) == PRECIOUS
    assert not [path for path in data(home).iterdir() if path.name.startswith("a-0")]


@pytest.mark.parametrize("target", ("folder", "file", "nothing", "itself"))
def test_a_link_named_like_a_deleted_folder_is_removed_without_its_target(home, outside, target):
    closed(home, "a")
    name = f"old-0.{'a' * 32}-delete"
    leads_to = {
        "folder": outside,
        "file": outside / "one",
        "nothing": outside / "none",
        "itself": data(home, name),
    }[target]
    data(home, name).symlink_to(leads_to)
    manager = home.open()
    fill(manager.log(A0), 1)
    manager.close()
    assert files_below(outside) == PRECIOUS
    # If its target is not a folder, it is a foreign file.
    assert data(home, name).is_symlink() == (target != "folder")


def test_a_partition_folder_that_is_a_link_is_used_and_only_the_link_deleted(home, tmp_path):
    """Operators use links to put a partition on another disk; Kafka accepts them too."""
    closed(home, "a", "b")
    elsewhere = tmp_path / "elsewhere"
    data(home, "a-0").rename(elsewhere)
    data(home, "a-0").symlink_to(elsewhere)
    manager = home.open()
    fill(manager.log(A0), 2)
    assert offsets(manager.log(A0)) == [0, 1, 2, 3, 4]
    manager.close()
    before = files_below(elsewhere)
    manager = home.open()
    manager.topics.delete("a")
    manager.close()
    assert not data(home, "a-0").is_symlink()
    assert [path for path in data(home).iterdir() if "delete" in path.name] == []
    left = files_below(elsewhere)
    assert left[log_name(0)] == before[log_name(0)]
    assert before.keys() <= left.keys()
    manager = home.open()
    assert offsets(manager.log(B0)) == [0, 1, 2]
    manager.close()


@pytest.mark.parametrize("name", ("nothing", "itself"))
def test_a_partition_folder_that_leads_nowhere_is_named(home, outside, name):
    closed(home, "a", "b")
    data(home, "a-0").rename(data(home, "kept"))
    path = data(home, "a-0")
    path.symlink_to(outside / "none" if name == "nothing" else path)
    manager = home.open()
    with pytest.raises(KafkaStorageError, match=r"a-0.*symbolic link"):
        manager.log(A0)
    manager.close()
    assert not (outside / "none").exists()


def test_a_data_directory_may_be_a_link(home, tmp_path):
    closed(home, "a")
    data(home).rename(tmp_path / "real")
    data(home).symlink_to(tmp_path / "real")
    manager = home.open()
    fill(manager.log(A0), 1)
    manager.close()
    assert data(home).is_symlink()
    manager = home.open()
    assert offsets(manager.log(A0)) == [0, 1, 2, 3]
    manager.close()


# -- writing -------------------------------------------------------------------------------------


def test_small_files_replace_the_targets_of_links(home, outside):
    """A checkpoint that is a link is read, and replaced by a regular file."""
    closed(home, "a")
    for name in REPLACED_FILES:
        data(home, name + TMP_SUFFIX).symlink_to(outside / "one")
    for name in CHECKPOINTS:
        path = outside / name
        path.write_text(f"{CHECKPOINT_VERSION}\n0\n")
        data(home, name).unlink(missing_ok=True)
        data(home, name).symlink_to(path)
    before = files_below(outside)
    manager = home.open()
    manager.topics.create("b", 1, {})
    fill(manager.log(A0), 2)
    manager.close()
    assert files_below(outside) == before
    manager = home.open()
    assert offsets(manager.log(A0)) == [0, 1, 2, 3, 4]
    manager.close()


@pytest.mark.parametrize("read_only", (False, True))
@pytest.mark.parametrize("sort", ("link", "dangling link", "loop", "pipe"))
@pytest.mark.parametrize("kind", INDEX_SUFFIXES)
def test_an_index_that_is_not_a_regular_file_is_rebuilt(home, outside, kind, sort, read_only):
    closed(home, "a", count=30)
    path = data(home, "a-0", file_name(0, kind))
    was_there = path.exists()
    path.unlink(missing_ok=True)
    if sort == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link": outside / "one", "loop": path}.get(sort, outside / "none"))
    manager = home.open(read_only=read_only)
    log = manager.log(A0)
    assert offsets(log) == list(range(30))
    assert log.reader.offset_for_timestamp(0).offset == 0
    if not read_only:
        fill(log, 1)
    elif sort == "pipe":
        assert [finding.action for finding in log.findings] == ["rebuilt_index"] * 2
    manager.close()
    assert files_below(outside) == PRECIOUS
    if not read_only:
        assert not path.is_symlink()
        assert path.is_file() == was_there


@pytest.mark.parametrize("state", (".cleaned", ".deleted", ".swap"))
@pytest.mark.parametrize("sort", ("file", "folder", "nothing", "pipe"))
def test_leftovers_that_are_links_or_pipes_go_alone(home, outside, state, sort):
    closed(home, "a")
    for kind in (".log", *INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
        path = data(home, "a-0", file_name(0, kind) + state)
        if sort == "pipe":
            os.mkfifo(path)
        else:
            target = {"file": "one", "folder": "sub", "nothing": "none"}[sort]
            path.symlink_to(outside / target)
    manager = home.open()
    assert offsets(manager.log(A0)) == [0, 1, 2]
    manager.log(A0).writer.roll()
    manager.close()
    assert files_below(outside) == PRECIOUS
    assert [each for each in data(home, "a-0").iterdir() if each.name.endswith(state)] == []


def test_a_log_file_that_is_a_link_is_read_and_not_written(home, outside, tmp_path):
    """A tree of links to a directory, as `cp -rs` creates it, can be read."""
    closed(home, "a", "b")
    target = tmp_path / "real.log"
    path = data(home, "a-0", log_name(0))
    path.rename(target)
    path.symlink_to(target)
    before = target.read_bytes()
    looking = home.open(read_only=True)
    assert offsets(looking.log(A0)) == [0, 1, 2]
    assert looking.log(A0).findings == ()
    looking.close()
    manager = home.open()
    with pytest.raises(KafkaStorageError, match=f"{log_name(0)} is a symbolic link"):
        manager.log(A0)
    fill(manager.log(B0), 1)  # other partitions still work
    manager.close()
    assert target.read_bytes() == before
    assert path.is_symlink()


def test_a_folder_in_the_place_of_an_index_is_named(home):
    closed(home, "a", "b")
    path = data(home, "a-0", file_name(0, ".index"))
    path.unlink()
    path.mkdir()
    manager = home.open()
    with pytest.raises(KafkaStorageError, match=r"\.index is a folder"):
        manager.log(A0)
    fill(manager.log(B0), 1)
    manager.close()


def test_a_pipe_named_as_a_log_is_foreign(home):
    closed(home, "a")
    for base_offset in (2, 9999):
        os.mkfifo(data(home, "a-0", log_name(base_offset)))
    for read_only in (True, False):
        manager = home.open(read_only=read_only)
        assert offsets(manager.log(A0)) == [0, 1, 2]
        manager.close()
    manager = home.open()
    fill(manager.log(A0), 1)
    manager.log(A0).writer.roll()
    manager.close()


# -- irregular small files -----------------------------------------------------------------------


def put_pipe(home, *parts):
    path = data(home, *parts)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_pipe_as_a_checkpoint_is_damage(home, caplog, name):
    closed(home, "a")
    path = put_pipe(home, name)
    for read_only in (True, False):
        caplog.clear()
        manager = home.open(read_only=read_only)
        manager.directories[0].cleaner_offset(A0)
        if name not in CHECKPOINTS[2:3]:  # the high watermarks are not read
            assert f"{path}: is not a regular file; it is treated as empty" in caplog.text
        assert offsets(manager.log(A0)) == [0, 1, 2]
        manager.close()


def test_a_pipe_as_the_topics_file_is_named(home):
    closed(home, "a")
    put_pipe(home, TOPICS_FILE)
    for read_only in (True, False):
        with pytest.raises(CorruptCheckpointError, match=f"{TOPICS_FILE}: is not a regular file"):
            home.open(read_only=read_only)


def test_a_pipe_as_the_lock_file_is_named(home):
    closed(home, "a")
    put_pipe(home, LOCK_FILE)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "data directory {path}/data is offline: cannot open: [Errno 22] is not a "
            "regular file: '{path}/.lock'"
        ),
    ):
        home.open()


@pytest.mark.parametrize("name", ("leader-epoch-checkpoint", file_name(3, SNAPSHOT_SUFFIX)))
def test_a_pipe_in_a_partition_folder_is_damage(home, name):
    closed(home, "a")
    put_pipe(home, "a-0", name)
    for read_only in (True, False):
        manager = home.open(read_only=read_only)
        log = manager.log(A0)
        assert offsets(log) == [0, 1, 2]
        actions = {finding.action for finding in log.findings}
        assert actions == {"reset_epochs" if name.startswith("leader") else "removed_snapshot"}
        manager.close()


def test_moving_and_copying_skip_irregular_files(home, outside, tmp_path):
    closed(home, "a")
    os.mkfifo(data(home, "a-0", "pipe"))
    data(home, "a-0", "link").symlink_to(outside / "none")
    other = f"{tmp_path}/other"
    manager = home.open(other)
    manager.registry.move_partition(A0, other)
    fill(manager.log(A0), 1)
    assert offsets(manager.log(A0)) == [0, 1, 2, 3]
    manager.close()
    assert not {"pipe", "link"} & {path.name for path in Path(other, "a-0").iterdir()}


# -- interrupted writes --------------------------------------------------------------------------


def test_files_of_an_interrupted_write_are_removed_at_the_next_start(home):
    """Only for the engine's own names, and only regular files."""
    closed(home, "a")
    own = [name + TMP_SUFFIX for name in REPLACED_FILES]
    foreign = ["notes.tmp", "meta.properties.tmp", ".tmp"]
    inside = ["leader-epoch-checkpoint.tmp", "partition.metadata.tmp"]
    for name in [*own, *foreign, *(f"a-0/{name}" for name in [*inside, "notes.tmp"])]:
        home.write(name, b"half")
    data(home, own[0]).unlink()
    data(home, own[0]).mkdir()
    before = home.files()
    looking = home.open(read_only=True)
    assert looking.log(A0).findings == ()
    looking.close()
    assert home.files() == before
    manager = home.open()
    manager.log(A0)
    Home.kill(manager)
    left = {name for name in home.files() if name.endswith(TMP_SUFFIX)}
    assert left == {*foreign, "a-0/notes.tmp"}
    assert data(home, own[0]).is_dir()
