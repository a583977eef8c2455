"""Small files of a data directory (storage-format §10; S-123, S-124, S-126, F6, F7, F8)."""

import itertools

import pytest

from logstore.errors import CorruptCheckpointError
from logstore.runtime import DiskFileSystem, MemoryFileSystem, Runtime
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.shutdown import (
    CLEAN_SHUTDOWN,
    is_clean_shutdown,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from logstore.storage.checkpoint.topic_id import read_partition_metadata, write_partition_metadata
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from logstore.types import TopicPartition, decode_topic_id, encode_topic_id
from tests.support.world.brokers import write_file
from tests.support.world.locks import HeldLock

PATH = "data/" + RECOVERY_POINTS
F7 = b'{"version":0,"brokerEpoch":-1}'
F8 = b"version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg"
F8_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")


@pytest.fixture
def fs():
    fs = MemoryFileSystem()
    fs.make_dirs("data")
    return fs


def test_names_are_kafkas():
    assert {RECOVERY_POINTS, REPLICATION_OFFSETS, LOG_START_OFFSETS, CLEANER_OFFSETS} == {
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    }


def test_write_and_read_the_golden_checkpoint(fs):
    """S-123: vector F6."""
    checkpoint = OffsetCheckpoint(fs, PATH)
    checkpoint.write({TopicPartition("foo", 0): 5})
    assert read_bytes(fs, PATH) == b"0\n1\nfoo 0 5\n"
    assert checkpoint.read() == {TopicPartition("foo", 0): 5}


def test_entries_are_written_in_order_and_survive_a_round_trip(fs):
    offsets = {
        TopicPartition("b", 10): 2**63 - 1,
        TopicPartition("b", 9): 0,
        TopicPartition("a-1", 0): 7,
    }
    checkpoint = OffsetCheckpoint(fs, PATH, lock=Runtime(fs=fs).lock())
    checkpoint.write(offsets)
    assert read_bytes(fs, PATH) == b"0\n3\na-1 0 7\nb 9 0\nb 10 9223372036854775807\n"
    assert checkpoint.read() == offsets
    checkpoint.write({})
    assert read_bytes(fs, PATH) == b"0\n0\n"
    assert checkpoint.read() == {}


@pytest.mark.parametrize(
    "text",
    (
        "0\n1\nfoo  0 \t 5\n",
        "0\n1\nfoo 0 5  \n",
        "0\n1\nfoo 0 5",
        "0\r\n1\r\nfoo 0 5\r\n",
        "0\n2\nfoo 0 4\nfoo 0 +5\n",
    ),
)
def test_lenient_forms_are_read(fs, text):
    """S-123: extra spaces, and other forms that Kafka's reader tolerates."""
    write_file(fs, PATH, text)
    assert OffsetCheckpoint(fs, PATH).read() == {TopicPartition("foo", 0): 5}


def test_a_missing_or_empty_file_has_no_entries_and_reading_creates_nothing(fs):
    """S-123."""
    assert OffsetCheckpoint(fs, PATH).read() == {}
    assert fs.list_dir("data") == []
    write_file(fs, PATH, "")
    assert OffsetCheckpoint(fs, PATH).read() == {}
    write_file(fs, PATH, "0\n")
    assert OffsetCheckpoint(fs, PATH).read() == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    (
        ("1\n1\nfoo 0 5\n", "line 1: unknown version 1"),
        ("x\n", "line 1: version 'x'"),
        ("\n", "line 1: version ''"),
        (" 0\n", "line 1: version ' 0'"),
        ("0\n2\nfoo 0 5\n", "announces 2 entries, found 1"),
        ("0\n1\nfoo 0 5\nfoo 1 5\n", "announces 1 entries, found 2"),
        ("0\n-1\n", "announces -1"),
        ("0\n1\nfoo 0\n", "line 3: an entry of 3 fields"),
        ("0\n1\nfoo 0 5 6\n", "line 3: an entry of 3 fields"),
        ("0\n1\n foo 0 5\n", "line 3: an entry of 3 fields"),
        ("0\n2\nfoo 0 5\n\nfoo 1 5\n", "line 4: an entry of 3 fields"),
        ("0\n1\nfoo 0 5\n\n", "line 4: an entry of 3 fields"),
        ("0\n1\nfoo 0 five\n", "line 3: offset 'five'"),
        ("0\n1\nfoo 0 1_000\n", "line 3: offset '1_000'"),
        ("0\n1\nfoo 0 \u0665\n", "line 3: offset"),
        ("0\n1\nfoo 0 9223372036854775808\n", "line 3: offset '9223372036854775808'"),
        ("0\n1\nfoo 2147483648 5\n", "line 3: partition '2147483648'"),
        (f"0\n1\nfoo 0 {'9' * 5000}\n", "line 3: offset"),
    ),
)
def test_damage_is_reported_with_file_and_line(fs, text, complaint):
    """S-123."""
    write_file(fs, PATH, text)
    with pytest.raises(CorruptCheckpointError, match=complaint) as caught:
        OffsetCheckpoint(fs, PATH).read()
    assert caught.value.path == PATH
    assert str(caught.value).startswith(PATH)


def test_bytes_that_are_not_text_are_damage(fs):
    write_file(fs, PATH, b"0\n1\nf\xffo 0 5\n")
    with pytest.raises(CorruptCheckpointError, match="at position 5: not UTF-8"):
        OffsetCheckpoint(fs, PATH).read()


def test_a_topic_that_would_break_its_line_is_never_written(fs):
    with pytest.raises(AssertionError):
        OffsetCheckpoint(fs, PATH).write({TopicPartition("a b", 0): 1})


def test_a_leftover_tmp_file_is_ignored_and_overwritten(fs):
    """S-124: it is longer than the new contents."""
    checkpoint = OffsetCheckpoint(fs, PATH)
    checkpoint.write({TopicPartition("foo", 0): 5})
    write_file(fs, PATH + ".tmp", "0\n1\nfoo 0 6\n" + "x" * 100)
    assert checkpoint.read() == {TopicPartition("foo", 0): 5}
    checkpoint.write({TopicPartition("foo", 0): 7})
    assert checkpoint.read() == {TopicPartition("foo", 0): 7}
    assert fs.list_dir("data") == [RECOVERY_POINTS]


@pytest.mark.parametrize("mode", (CrashMode(), CrashMode(Contents.KEPT, Names.KEPT)), ids=str)
def test_a_crash_anywhere_leaves_the_old_content_or_the_new(mode):
    """S-124: before the rename the old one; a leftover X.tmp has no effect afterwards."""
    old, new = {TopicPartition("foo", 0): 5}, {TopicPartition("foo", 0): 6}
    before = MemoryFileSystem()
    before.make_dirs("data")
    OffsetCheckpoint(before, PATH).write(old)
    found = []
    for number in itertools.count(1):
        fs = FaultyFileSystem(image=before)
        fs.crash_at(number)
        try:
            OffsetCheckpoint(fs, PATH).write(new)
        except SimulatedCrash:
            after = fs.crash(mode)
        else:
            break
        kind = fs.operations[-1].kind
        found.append((kind, OffsetCheckpoint(after, PATH).read()))
        OffsetCheckpoint(after, PATH).write({TopicPartition("foo", 0): 7})
        assert OffsetCheckpoint(after, PATH).read() == {TopicPartition("foo", 0): 7}
        assert after.list_dir("data") == [RECOVERY_POINTS]
    kinds = [kind for kind, _ in found]
    assert kinds[-2:] == [Kind.RENAME, Kind.SYNC_DIR]
    assert Kind.SYNC in kinds[:-2]
    assert [offsets for kind, offsets in found if kind not in (Kind.RENAME, Kind.SYNC_DIR)] == [
        old
    ] * (len(found) - 2)
    # The rename had begun: the new name may or may not survive the crash.
    kept = mode.names is Names.KEPT
    assert [offsets for _, offsets in found[-2:]] == [new if kept else old] * 2


class Tracing(MemoryFileSystem):
    """Records the order of names and syncs, and fails the rename on demand."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.rename_fails = False

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        file_sync = file.sync

        class Traced(type(file)):
            def sync(inner):
                self.calls.append(("sync", path))
                file_sync()

        return Traced(file._contents, file._clock)

    def rename(self, source, target):
        if self.rename_fails:
            raise OSError("crash between writing and renaming")
        self.calls.append(("rename", target))
        super().rename(source, target)

    def sync_dir(self, path):
        self.calls.append(("sync_dir", path))


def test_the_old_content_stays_until_the_rename():
    """S-124: a crash between the write of X.tmp and its rename."""
    fs = Tracing()
    fs.make_dirs("data")
    checkpoint = OffsetCheckpoint(fs, PATH)
    checkpoint.write({TopicPartition("foo", 0): 5})
    fs.rename_fails = True
    with pytest.raises(OSError, match="crash"):
        checkpoint.write({TopicPartition("foo", 0): 6})
    assert OffsetCheckpoint(fs, PATH).read() == {TopicPartition("foo", 0): 5}


def test_external_changes_are_seen_and_the_result_belongs_to_the_caller():
    """The file is read each time, and parsed once."""
    fs = Tracing()
    fs.make_dirs("data")
    foo = TopicPartition("foo", 0)
    checkpoint, other = OffsetCheckpoint(fs, PATH), OffsetCheckpoint(fs, PATH)
    for offset in (5, 6):
        checkpoint.write({foo: offset})
        other.write({foo: offset + 1})
        for _ in range(2):
            found = checkpoint.read()
            assert found == {foo: offset + 1}
            found.clear()
    fs.rename_fails = True
    with pytest.raises(OSError, match="crash"):
        checkpoint.write({foo: 9})
    assert checkpoint.read() == {foo: 7}
    fs.remove(PATH)
    assert checkpoint.read() == {}


def test_contents_are_synced_before_and_the_directory_after_the_rename():
    fs = Tracing()
    fs.make_dirs("data")
    write_atomically(fs, "data/x", b"abc")
    assert fs.calls == [("sync", "data/x.tmp"), ("rename", "data/x"), ("sync_dir", "data")]


def test_the_same_on_a_disk(tmp_path):
    fs = DiskFileSystem()
    checkpoint = OffsetCheckpoint(fs, f"{tmp_path}/{CLEANER_OFFSETS}")
    for offset in (5, 123456789, 6):
        checkpoint.write({TopicPartition("foo", 0): offset})
        assert checkpoint.read() == {TopicPartition("foo", 0): offset}
    assert fs.list_dir(str(tmp_path)) == [CLEANER_OFFSETS]


def test_the_clean_shutdown_marker_is_kafkas_and_is_taken_once(fs):
    """S-128 in part: vector F7."""
    assert not is_clean_shutdown(fs, "data")
    assert not take_clean_shutdown(fs, "data")
    mark_clean_shutdown(fs, "data")
    assert read_bytes(fs, "data/" + CLEAN_SHUTDOWN) == F7
    assert is_clean_shutdown(fs, "data")
    assert take_clean_shutdown(fs, "data")
    assert not take_clean_shutdown(fs, "data")
    mark_clean_shutdown(fs, "data", broker_epoch=42)
    assert read_bytes(fs, "data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'


def test_partition_metadata_round_trip(fs):
    """S-126: vector F8, no final newline."""
    assert read_partition_metadata(fs, "data") is None
    write_partition_metadata(fs, "data", F8_ID)
    assert read_bytes(fs, "data/partition.metadata") == F8
    assert read_partition_metadata(fs, "data") == F8_ID
    write_file(fs, "data/partition.metadata", F8.replace(b"version: 0", b"version: 3") + b"\n")
    assert read_partition_metadata(fs, "data") == F8_ID


@pytest.mark.parametrize(
    ("text", "complaint"),
    (
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"),
        ("version: -1\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", "negative version"),
        ("version: 0", "line 2: 'topic_id' and its value"),
        ("", "line 1: 'version' and its value"),
        ("version:0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", "line 1"),
        ("version: x\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", "line 1: version 'x'"),
        ("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAA", "is not a topic id"),
        ("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAA+", "is not a topic id"),
        ("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAgAA", "is not a topic id"),
    ),
)
def test_damaged_partition_metadata_is_refused(fs, text, complaint):
    """S-126: zero id, version -1."""
    write_file(fs, "data/partition.metadata", text)
    with pytest.raises(CorruptCheckpointError, match=complaint):
        read_partition_metadata(fs, "data")


def test_topic_ids_use_the_url_safe_alphabet():
    topic_id = bytes([0xFB, 0xEF, 0xBE] + [0xFF] * 13)
    text = encode_topic_id(topic_id)
    assert text.startswith("----_")
    assert decode_topic_id(text) == topic_id


@pytest.mark.parametrize("number", (-(2**63), 2**63 - 1))
@pytest.mark.parametrize("sign", ("", "+"))
def test_the_longest_numbers_are_read(number, sign):
    """A sign and 19 digits are 20 characters."""
    text = f"{number:+d}" if sign else str(number)
    fs = MemoryFileSystem()
    file = fs.open("c", create=True)
    file.append([f"0\n1\nt 0 {text}\n".encode()])
    file.close()
    assert OffsetCheckpoint(fs, "c").read() == {TopicPartition("t", 0): number}


def test_only_the_file_is_read_and_written_under_the_lock(fs, monkeypatch):
    lock = HeldLock(Runtime(fs=fs).lock())
    checkpoint = OffsetCheckpoint(fs, PATH, lock=lock)
    held = []
    for name in ("open", "rename"):

        def call(*arguments, method=getattr(fs, name), **options):  # noqa: B008  # each its own
            held.append(lock.depth)
            return method(*arguments, **options)

        monkeypatch.setattr(fs, name, call)
    checkpoint.write({TopicPartition("foo", 0): 5})
    assert checkpoint.read() == {TopicPartition("foo", 0): 5}
    assert set(held) == {1}
    assert (lock.entered, lock.depth) == (2, 0)
