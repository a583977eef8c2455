"""Small files, which are read as a whole: their size limit, and the number of reads."""

from collections import Counter
from pathlib import Path

import pytest

from logstore.coordinator.transactions.producer_ids import ProducerIds
from logstore.errors import CorruptCheckpointError
from logstore.manager.directories.move_notes import MOVES_FILE
from logstore.manager.topics import TOPICS_FILE
from logstore.names import LEADER_EPOCHS, PRODUCER_IDS_FILE, SNAPSHOT_SUFFIX, file_name
from logstore.runtime import DiskFileSystem, MemoryFileSystem, VirtualClock
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA, read_partition_metadata
from logstore.types import TopicPartition
from tests.support.world.data_home import Home, fill, offsets

A0 = TopicPartition("a", 0)
LIMIT = 10_000
SETTINGS = {"logstore.small.file.max.bytes": LIMIT}


@pytest.fixture
def home(tmp_path):
    home = Home(DiskFileSystem(VirtualClock()), f"{tmp_path}/data", VirtualClock())
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    manager.close()
    return home


def grow(home, name, size=LIMIT + 1):
    """Create a large sparse file; return the message about it."""
    path = Path(home.path, name)
    path.touch()
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path}: its size of {size} bytes exceeds logstore.small.file.max.bytes = {LIMIT}"


@pytest.mark.parametrize("name", (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS))
def test_a_checkpoint_that_is_too_large_is_reported_once_and_replaced(home, caplog, name):
    told = grow(home, name, 4 << 30)
    for read_only in (True, False):
        caplog.clear()
        manager = home.open(read_only=read_only, **SETTINGS)
        assert offsets(manager.log(A0)) == [0, 1, 2]
        for _ in range(3):
            assert manager.directories[0].cleaner_offset(A0) is None
        assert [told in r.getMessage() for r in caplog.records].count(True) == 1
        if not read_only:
            manager.directories[0].write_cleaner_offset(A0, 2)
            assert manager.directories[0].cleaner_offset(A0) == 2
        manager.close()
    assert Path(home.path, name).stat().st_size < 100


@pytest.mark.parametrize("name", (TOPICS_FILE, MOVES_FILE))
def test_a_file_that_nothing_can_do_without_is_named(home, name):
    told = grow(home, name)
    with pytest.raises(CorruptCheckpointError) as caught:
        home.open(**SETTINGS)
    assert str(caught.value) == told


@pytest.mark.parametrize("name", (LEADER_EPOCHS, file_name(3, SNAPSHOT_SUFFIX)))
def test_derived_files_are_rebuilt_from_the_batches(home, name):
    told = grow(home, f"a-0/{name}")
    manager = home.open(**SETTINGS)
    log = manager.log(A0)
    assert told in [f"{f.path}: {f.detail.removeprefix(f.path + ': ')}" for f in log.findings]
    assert offsets(log) == [0, 1, 2]
    manager.close()


def test_producer_ids_and_topic_ids_have_the_limit_too(home):
    told = grow(home, PRODUCER_IDS_FILE)
    manager = home.open()
    ids = ProducerIds(home.fs, home.path, manager.runtime.lock(), lambda: -1, LIMIT)
    with pytest.raises(CorruptCheckpointError, match="its size of 10001 bytes exceeds") as caught:
        ids.take()
    assert str(caught.value) == told
    manager.close()
    told = grow(home, f"a-0/{PARTITION_METADATA}")
    with pytest.raises(CorruptCheckpointError) as caught:
        read_partition_metadata(home.fs, f"{home.path}/a-0", LIMIT)
    assert str(caught.value) == told


def test_files_of_just_the_limit_are_read(home):
    size = Path(home.path, TOPICS_FILE).stat().st_size
    with pytest.raises(CorruptCheckpointError):
        home.open(**{"logstore.small.file.max.bytes": size - 1})
    home.open(**{"logstore.small.file.max.bytes": size}).close()


class Counting(MemoryFileSystem):
    """Counts the opens of each file."""

    def __init__(self, clock):
        super().__init__(clock)
        self.opened = Counter()

    def open(self, path, **options):
        self.opened[path.rpartition("/")[2]] += 1
        return super().open(path, **options)


def test_a_damaged_checkpoint_is_read_once_and_not_for_every_partition():
    clock = VirtualClock()
    home = Home(Counting(clock), "/data", clock)
    manager = home.open()
    manager.topics.create("a", 50, {})
    manager.close()
    home.write(CLEANER_OFFSETS, b"0\n1\n" + b"x" * 1000)
    manager = home.open()
    home.fs.opened.clear()
    for partition in range(50):
        assert manager.directories[0].cleaner_offset(TopicPartition("a", partition)) is None
    assert home.fs.opened[CLEANER_OFFSETS] == 1
    manager.close()
