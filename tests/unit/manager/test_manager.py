"""The log manager: directories, checkpoints, the marker of a clean stop, topics and adoption."""

import logging
import random

import pytest

from logstore.config.broker_config import BrokerConfig
from logstore.errors import (
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.manager.manager import LogManager
from logstore.manager.topics import TOPICS_FILE
from logstore.runtime import (
    Runtime,
)
from logstore.storage.checkpoint.offsets import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.types import TopicPartition
from tests.support.world.builders import batch, log_name, old_message
from tests.support.world.data_home import fill, offsets
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)


# -- interrupts ------------------------------------------------------------------------------


def test_an_interrupt_as_soon_as_a_log_is_open_does_not_lose_it(home):
    """The caller asks again, and gets the log whose files are open already."""

    class Interrupted(set):
        def discard(self, each):
            super().discard(each)
            raise KeyboardInterrupt

    manager = home.open()
    manager.topics.create("a", 1, {})
    manager.close()
    manager = home.open()
    (directory,) = manager.directories
    directory.half_opened = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        manager.log(A0)
    (opened,) = manager.registry.open_logs()
    assert manager.log(A0) is opened
    manager.close()


# -- stopping and starting -------------------------------------------------------------------


def test_an_orderly_stop_and_start(home):
    """The marker is there after an orderly stop only, and goes at the next start."""
    manager = home.open()
    manager.topics.create("a", 2, {"cleanup.policy": "compact"})
    manager.topics.create("b", 1, {})
    fill(manager.log(A0), 3)
    fill(manager.log(B0), 5)
    assert CLEAN_SHUTDOWN not in home.files()
    manager.close()
    assert home.text(CLEAN_SHUTDOWN) == '{"version":0,"brokerEpoch":-1}'
    assert home.text(RECOVERY_POINTS) == "0\n3\na 0 3\na 1 0\nb 0 5\n"
    assert home.text(REPLICATION_OFFSETS) == "0\n3\na 0 3\na 1 0\nb 0 5\n"
    assert home.text(LOG_START_OFFSETS) == "0\n0\n"
    stored = home.files()

    manager = home.open()
    assert CLEAN_SHUTDOWN not in home.files()
    assert [topic.name for topic in manager.catalog.topics()] == ["a", "b"]
    assert manager.catalog.config("a").compact
    assert offsets(manager.log(B0)) == list(range(5))
    assert manager.log(B0).findings == ()
    manager.close()
    assert home.files() == stored


def test_a_kill_makes_the_next_start_recover_every_log(home):
    manager = home.open()
    manager.topics.create("a", 2, {})
    fill(manager.log(A0), 3)
    fill(manager.log(A1), 2)
    data = home.files()[f"a-0/{log_name(0)}"]
    home.kill(manager)
    home.write(f"a-0/{log_name(0)}", data[:-1])
    manager = home.open()
    assert {log.topic_partition for log in manager.registry.open_logs()} == {A0, A1}
    assert [finding.action for finding in manager.log(A0).findings] == ["truncated_tail"]
    assert offsets(manager.log(A0)) == [0, 1]
    assert manager.log(A1).findings == ()
    manager.close()
    assert CLEAN_SHUTDOWN in home.files()
    assert home.open().log(A0).findings == ()


def test_recovery_starts_at_the_checkpoint(home):
    manager = home.open(log_segment_bytes="200")
    manager.topics.create("a", 1, {})
    log = manager.log(A0)
    fill(log, 10)
    log.flush()
    manager.checkpoint_recovery_points()
    home.kill(manager)
    first = home.files()[f"a-0/{log_name(0)}"]
    home.write(f"a-0/{log_name(0)}", first[:-1] + bytes([first[-1] ^ 1]))
    manager = home.open(log_segment_bytes="200")
    assert manager.log(A0).findings == ()
    home.kill(manager)
    home.write(RECOVERY_POINTS, b"not a checkpoint")
    log = home.open(log_segment_bytes="200").log(A0)
    assert "truncated_tail" in {finding.action for finding in log.findings}


def test_logs_that_were_not_opened_keep_their_checkpoints(home):
    manager = home.open()
    manager.topics.create("a", 2, {})
    fill(manager.log(A0), 3)
    fill(manager.log(A1), 2)
    manager.close()
    manager = home.open()
    assert list(manager.registry.open_logs()) == []
    fill(manager.log(A0), 1)
    manager.close()
    assert home.text(RECOVERY_POINTS) == "0\n2\na 0 4\na 1 2\n"


def test_a_log_start_above_the_first_base_offset_is_stored(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 5)
    manager.log(A0).offsets.log_start_offset = 3
    manager.close()
    assert home.text(LOG_START_OFFSETS) == "0\n1\na 0 3\n"
    manager = home.open()
    assert manager.log(A0).log_start_offset == 3
    assert offsets(manager.log(A0)) == [3, 4]
    manager.log(A0).offsets.log_start_offset = 0
    manager.close()
    assert home.text(LOG_START_OFFSETS) == "0\n0\n"


def test_unreadable_checkpoints_are_taken_as_empty_and_replaced(home, caplog):
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 2)
    manager.close()
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, REPLICATION_OFFSETS):
        home.write(name, b"0\n5\nnonsense\n")
    with caplog.at_level(logging.WARNING):
        manager = home.open()
    assert RECOVERY_POINTS in caplog.text
    assert offsets(manager.log(A0)) == [0, 1]
    manager.close()
    assert home.text(RECOVERY_POINTS) == "0\n1\na 0 2\n"
    assert home.text(REPLICATION_OFFSETS) == "0\n1\na 0 2\n"


def test_read_only_use_changes_nothing(home):
    """Neither in a directory of a clean stop nor in one that must be recovered."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 3)
    for clean in (False, True):
        if clean:
            manager.close()
        before = home.files()
        looking = home.open(read_only=True)
        assert offsets(looking.log(A0)) == [0, 1, 2]
        looking.close()
        assert home.files() == before
    with pytest.raises(
        InvalidConfigurationError, match=exactly("data directory {path}/datax does not exist")
    ):
        LogManager(home.runtime, [home.path + "x"], BrokerConfig(), read_only=True)


def test_a_failed_close_leaves_its_directory_unclean(home):
    """Logs of other directories are closed cleanly, and the next start recovers."""
    fs = FaultyFileSystem(home.fs)
    runtime = Runtime(home.clock, fs, random.Random(0))
    manager = home.open(home.path + "-2", runtime=runtime)
    manager.topics.create("a", 2, {})
    fill(manager.log(A0), 3)
    fill(manager.log(A1), 2)
    elsewhere = manager.registry.directory_of(A1)
    failing = manager.registry.directory_of(A0)
    assert elsewhere is not failing
    fs.rule = lambda operation, path: operation == "sync" and "/a-0/" in path
    with pytest.raises(KafkaStorageError, match="a-0"):
        manager.close()
    fs.rule = lambda *_: False
    assert not home.fs.exists(f"{failing.path}/{CLEAN_SHUTDOWN}")
    assert home.fs.exists(f"{elsewhere.path}/{CLEAN_SHUTDOWN}")
    recovery_points = OffsetCheckpoint(home.fs, f"{elsewhere.path}/{RECOVERY_POINTS}")
    assert recovery_points.read() == {A1: 2}
    manager = home.open(home.path + "-2")
    assert offsets(manager.log(A0)) == [0, 1, 2]
    assert offsets(manager.log(A1)) == [0, 1]
    manager.close()


def test_a_log_of_an_old_format_is_refused_alone_and_left_alone(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    manager.close()
    home.write(f"b-0/{log_name(0)}", old_message(1))
    before = home.files()
    manager = home.open()
    with pytest.raises(UnsupportedFormatError):
        manager.log(B0)
    fill(manager.log(A0), 1)
    manager.close()
    after = home.files()
    assert {n: d for n, d in after.items() if n.startswith("b-0/")} == {
        n: d for n, d in before.items() if n.startswith("b-0/")
    }
    with pytest.raises(UnsupportedFormatError):
        home.open().log(B0)


# -- directories -----------------------------------------------------------------------------


def test_partitions_spread_over_directories_and_are_found_again(home):
    other = home.path + "-2"
    manager = home.open(other)
    manager.topics.create("a", 4, {})
    assert sorted(len(d.partitions) for d in manager.directories) == [2, 2]
    for number in range(4):
        fill(manager.log(TopicPartition("a", number)), number)
    homes = {tp: manager.registry.directory_of(tp).path for tp in manager.catalog.partitions("a")}
    manager.close()
    assert home.fs.exists(f"{other}/{CLEAN_SHUTDOWN}")
    assert not home.fs.exists(f"{other}/{TOPICS_FILE}")
    manager = home.open(other)
    for number in range(4):
        tp = TopicPartition("a", number)
        assert manager.registry.directory_of(tp).path == homes[tp]
        assert manager.log(tp).log_end_offset == number


def test_a_partition_in_two_directories_is_refused(home):
    for path in (home.path, home.path + "-2"):
        home.fs.make_dirs(f"{path}/a-0")
    with pytest.raises(InvalidConfigurationError, match="exists in both"):
        home.open(home.path + "-2")


def test_folders_that_are_not_partitions_are_ignored_and_kept(home):
    names = ("a-0.0123456789abcdef0123456789abcdef-stray", "lost+found", "__cluster_metadata", "x")
    for name in names:
        home.fs.make_dirs(f"{home.path}/{name}")
    home.write("meta.properties", b"version=1\n")
    home.write("a-1", b"a file, no folder")
    manager = home.open()
    assert manager.catalog.topics() == []
    manager.close()
    assert home.text("meta.properties") == "version=1\n"
    assert set(names) <= set(home.fs.list_dir(home.path))


def test_folders_that_are_not_partitions_are_named_once(home, caplog):
    """But not a broker's own or hidden ones; a broker refuses the whole directory for one."""
    manager = home.open()
    manager.close()
    for name in (
        "foo-bar",
        "a-007",
        "remote-log-index-cache",
        "__cluster_metadata-0",
        ".job",
        "b-1",
    ):
        home.fs.make_dirs(f"{home.path}/{name}")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        manager = home.open()
        manager.close()
    told = [record.message for record in caplog.records if "partition names" in record.message]
    assert len(told) == 1
    assert ": a-007, foo-bar; a Kafka broker does not start" in told[0]


# -- topics ----------------------------------------------------------------------------------


def test_creating_topics(home):
    manager = home.open()
    manager.topics.create("a", 2, {"retention.ms": "5"})
    assert manager.catalog.partitions() == [A0, A1]
    assert manager.catalog.partitions("a", 1) == [A1]
    assert manager.catalog.config("a").retention_ms == 5
    for arguments, error in (
        (("a", 1, {}), TopicAlreadyExistsError),
        (("a/b", 1, {}), InvalidTopicError),
        (("..", 1, {}), InvalidTopicError),
        (("b", 0, {}), InvalidTopicError),
        (("b", 1, {"retention.ms": "soon"}), InvalidConfigurationError),
        (("b", 1, {"retention.msx": "1"}), InvalidConfigurationError),
    ):
        before = home.files()
        with pytest.raises(error):
            manager.topics.create(*arguments)
        assert home.files() == before
    for call in (
        lambda: manager.catalog.topic("b"),
        lambda: manager.log(B0),
        lambda: manager.log(TopicPartition("a", 2)),
        lambda: manager.catalog.partitions("a", 2),
        lambda: manager.catalog.partitions("b"),
    ):
        with pytest.raises(UnknownTopicOrPartitionError):
            call()


def test_copied_folders_are_adopted(home):
    """With the defaults in force, internal topics as compacted; creating takes them over."""
    home.write(f"a-3/{log_name(0)}", batch(0))
    home.write(f"__consumer_offsets-7/{log_name(0)}", b"")
    manager = home.open(log_retention_ms="77")
    a = manager.catalog.topic("a")
    assert (a.adopted, a.partitions) == (True, (3,))
    assert manager.catalog.config("a").retention_ms == 77
    assert manager.catalog.config("__consumer_offsets").compact
    assert offsets(manager.log(TopicPartition("a", 3))) == [0]
    manager.close()
    assert TOPICS_FILE not in home.files()
    manager = home.open()
    created = manager.topics.create("a", 2, {"cleanup.policy": "compact"})
    assert (created.adopted, created.partitions) == (False, (0, 1, 3))
    assert offsets(manager.log(TopicPartition("a", 3))) == [0]
    assert home.files()[f"a-3/{log_name(0)}"] == batch(0)


def test_overrides_apply_until_the_manager_closes(home):
    manager = home.open()
    manager.topics.create("a", 2, {"segment.bytes": "1000"})
    log = manager.log(A0)
    manager.topics.override("a", {"segment.bytes": "2000", "cleanup.policy": "compact"})
    assert (log.config.segment_bytes, log.config.compact) == (2000, True)
    assert log.active_segment.config is log.config
    assert manager.log(A1).config.segment_bytes == 2000
    assert manager.catalog.overrides("a") == {"segment.bytes": "2000", "cleanup.policy": "compact"}
    with pytest.raises(InvalidConfigurationError):
        manager.topics.override("a", {"segment.bytes": "many"})
    assert manager.catalog.config("a").segment_bytes == 2000, "a refused override leaves no trace"
    manager.close()
    assert home.open().catalog.config("a").segment_bytes == 1000


def test_a_failure_to_open_is_a_storage_error(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    home.kill(manager)
    fs = FaultyFileSystem(home.fs, lambda operation, path: operation == "open" and "/a-0/" in path)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "every data directory is offline: cannot open a-0: [Errno 5] injected "
            "failure of open: '{path}/leader-epoch-checkpoint'"
        ),
    ):
        home.open(runtime=Runtime(home.clock, fs, random.Random(0)))
