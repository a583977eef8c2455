"""Topics that are altered and deleted, also when the process ends in the middle."""

import random
import threading

import pytest

from logstore import Broker
from logstore.errors import (
    InvalidConfigurationError,
    KafkaStorageError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.topics import TOPICS_FILE
from logstore.runtime import Runtime, VirtualClock
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.types import TopicPartition
from tests.support.world.builders import batch, log_name
from tests.support.world.data_home import fill, offsets
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)


def folders(home):
    return {name.partition("/")[0] for name in home.files() if "/" in name}


# -- alter -----------------------------------------------------------------------------------


def test_an_altered_topic_obeys_at_the_next_use_and_after_a_restart(home):
    manager = home.open()
    manager.topics.create("a", 1, {"segment.bytes": "1000", "retention.ms": "5"})
    log = manager.log(A0)
    fill(log, 3)
    assert len(log.segments) == 1
    topic, notes = manager.topics.alter("a", {"segment.bytes": 200}, ["retention.ms"])
    assert (topic.configs, notes) == ({"segment.bytes": "200"}, ())
    fill(log, 3)
    assert len(log.segments) > 1
    assert log.config.retention_ms == 7 * 24 * 3_600_000
    manager.close()
    assert home.open().catalog.topic("a").configs == {"segment.bytes": "200"}


def test_a_refused_change_changes_nothing(home):
    manager = home.open(log_cleaner_max_compaction_lag_ms="100")
    manager.topics.create("a", 1, {"segment.bytes": "1000"})
    before = home.files()
    for change, unset in (
        ({"segment.bites": "1"}, ()),
        ({"segment.bytes": "few"}, ()),
        ({"min.compaction.lag.ms": "101"}, ()),
        ({}, ["retention.mss"]),
        ({"segment.bytes": "1"}, ["segment.bytes"]),
    ):
        with pytest.raises(InvalidConfigurationError):
            manager.topics.alter("a", change, unset)
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'b'")):
        manager.topics.alter("b", {}, ())
    assert home.files() == before
    assert manager.catalog.config("a").segment_bytes == 1000


def test_altering_an_adopted_topic_stores_its_current_state(home):
    home.write(f"__consumer_offsets-7/{log_name(0)}", batch(0))
    manager = home.open()
    topic, _ = manager.topics.alter("__consumer_offsets", {"segment.bytes": "200"})
    assert (topic.adopted, topic.partitions) == (False, (7,))
    assert topic.configs == {"cleanup.policy": "compact", "segment.bytes": "200"}
    assert offsets(manager.log(TopicPartition("__consumer_offsets", 7))) == [0]


def test_a_change_that_cannot_be_stored_is_not_in_force(home):
    fs = FaultyFileSystem(home.fs)
    manager = home.open(runtime=Runtime(home.clock, fs, random.Random(0)))
    manager.topics.create("a", 1, {"segment.bytes": "1000"})
    fs.rule = lambda operation, path: operation in ("open", "rename") and TOPICS_FILE in path
    for change in (
        lambda: manager.topics.alter("a", {"segment.bytes": "200"}),
        lambda: manager.topics.create("b", 1, {}),
    ):
        with pytest.raises(KafkaStorageError):
            change()
    assert manager.catalog.config("a").segment_bytes == 1000
    assert [topic.name for topic in manager.catalog.topics()] == ["a"]


# -- delete ----------------------------------------------------------------------------------


def test_a_log_start_is_checkpointed_again_for_a_topic_of_the_same_name(home):
    """The same offset of the same partition as before must be written again."""
    configs = {"cleanup.policy": "delete"}
    manager = home.open()
    for _ in range(2):
        manager.topics.create("a", 1, configs)
        fill(manager.log(A0), 5)
        assert manager.delete_records(A0, 3) == 3
        directory = manager.registry.directory_of(A0)
        assert directory.checkpoint(LOG_START_OFFSETS).read() == {A0: 3}
        manager.topics.delete("a")
        assert directory.checkpoint(LOG_START_OFFSETS).read() == {}
    manager.close()


def test_no_roll_happens_between_checking_and_truncating_the_active_segment(home, monkeypatch):
    """Otherwise a pass, which is not stopped for the active one, might read removed bytes."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    log = manager.log(A0)
    fill(log, 5)
    got = []

    def try_to_roll():
        got.append(log.lock.acquire(blocking=False))
        if got[-1]:
            log.lock.release()

    def look(*_):
        roller = threading.Thread(target=try_to_roll)
        roller.start()
        roller.join()

    monkeypatch.setattr(manager, "_lower_checkpoints", look)  # first of all that it does
    assert manager.truncate_to(A0, 3)
    assert got == [False]
    manager.close()


@pytest.mark.parametrize("fully", (False, True))
@pytest.mark.parametrize("is_active", (False, True))
def test_the_recovery_point_is_lowered_before_a_truncation(home, monkeypatch, is_active, fully):
    """A log never ends below its recovery point, and something still proves its log start."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    log = manager.log(A0)
    fill(log, 4)
    if not is_active:
        log.writer.roll()
        fill(log, 4)
    log.flush()
    manager.delete_records(A0, 3)
    directory = manager.registry.directory_of(A0)
    points, marks = directory.checkpoint(RECOVERY_POINTS), directory.checkpoint(REPLICATION_OFFSETS)
    assert points.read()[A0] > 3
    seen = []

    def look(*_):
        seen.append((points.read()[A0], marks.read().get(A0)))

    name = "truncate_fully_and_start_at" if fully else "truncate_to"
    monkeypatch.setattr(type(log), name, look)
    getattr(manager, name)(A0, 2)
    assert seen[0] == (0 if fully else 2, 3)
    manager.close()


def test_a_recovery_point_that_was_lowered_in_vain_is_raised_again(home, monkeypatch):
    """Otherwise each start would recover records that were flushed long ago."""
    manager = home.open()
    manager.topics.create("a", 1, {})
    log = manager.log(A0)
    fill(log, 4)
    log.flush()
    manager.checkpoint_recovery_points()
    points = manager.registry.directory_of(A0).checkpoint(RECOVERY_POINTS)
    reached = points.read()[A0]
    monkeypatch.setattr(type(log), "truncate_to", lambda *_: False)
    manager.truncate_to(A0, 2)
    assert points.read()[A0] == 2
    manager.checkpoint_recovery_points()
    assert points.read()[A0] == reached
    manager.close()


@pytest.mark.parametrize("moment", range(4))
@pytest.mark.parametrize(
    "command",
    (
        lambda broker: {each.topic_partition.topic for each in broker.retain().decisions},
        lambda broker: {
            each.topic_partition.topic for each in broker.retain(dry_run=True).decisions
        },
        lambda broker: {each["topic"] for each in broker.explain().to_json()["partitions"]},
        lambda broker: cleaned(broker.clean(force=True, roll=True)),
        lambda broker: cleaned(broker.clean(force=True, roll=True, dry_run=True)),
    ),
    ids=("retain", "retain dry", "explain", "clean", "clean dry"),
)
def test_a_topic_that_is_deleted_meanwhile_keeps_no_command_from_the_others(
    command, moment, monkeypatch
):
    """Whatever the command has done with its log until then."""
    broker = Broker(clock=VirtualClock())
    configs = {"cleanup.policy": "compact,delete"}
    for topic in ("a", "b", "c"):
        broker.create_topic(topic, configs=configs)
        for _ in range(3):
            broker.append(topic, value=b"v", key=b"k")
    looked, log_b = [], broker.log("b")

    def delete_at_some_moment(*_):
        looked.append(None)
        if len(looked) == moment + 1:
            broker.delete_topic("b")

    for owner, name in (
        (broker.manager, "log"),
        (broker.cleaner.checkpoints, "of"),
        (broker.manager.services, "paused"),
        (broker.cleaner.chooser, "decision_of"),
    ):
        real = getattr(owner, name)

        def look(subject, *rest, real=real, **options):
            if subject in (B0, log_b):
                delete_at_some_moment()
            return real(subject, *rest, **options)

        monkeypatch.setattr(owner, name, look)
    assert command(broker) - {"b"} == {"a", "c"}
    broker.close()


def cleaned(report):
    """The topics that a cleaning pass says anything of."""
    json = report.to_json()
    return {each["topic"] for part in ("cleaned", "not_cleaned") for each in json[part]}


def test_a_deleted_topic_is_removed_at_once_and_its_name_is_free(home):
    manager = home.open()
    manager.topics.create("a", 2, {"cleanup.policy": "delete", "segment.bytes": "200"})
    manager.topics.create("b", 1, {})
    for tp in (A0, A1, B0):
        fill(manager.log(tp), 5)
    manager.delete_records(A0, 3)
    directory = manager.registry.directory_of(A0)
    directory.checkpoint(CLEANER_OFFSETS).write({A0: 3, B0: 1})
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    held = manager.log(A0)
    manager.topics.delete("a")
    for use in (lambda: manager.log(A0), lambda: manager.topics.delete("a")):
        with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'a'")):
            use()
    with pytest.raises(UnknownTopicOrPartitionError, match="a-0: the log was deleted"):
        held.reader.read(3, 100)
    assert [topic.name for topic in manager.catalog.topics()] == ["b"]
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, REPLICATION_OFFSETS, CLEANER_OFFSETS):
        assert set(directory.checkpoint(name).read()) <= {B0}
    assert len([name for name in folders(home) if name.endswith("-delete")]) == 2
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 1)
    assert offsets(manager.log(A0)) == [0]
    manager.close()
    assert folders(home) == {"a-0", "b-0"}
    assert offsets(home.open().log(B0)) == list(range(5))


def test_a_deleted_adopted_topic_does_not_return(home):
    home.write(f"a-3/{log_name(0)}", batch(0))
    manager = home.open()
    manager.topics.delete("a")
    assert manager.catalog.topics() == []
    home.kill(manager)
    manager = home.open()
    assert manager.catalog.topics() == []
    manager.close()
    assert folders(home) == set()


@pytest.mark.parametrize("operation", ("rename", "sync_dir"))
def test_a_deletion_that_the_disk_interrupts_is_finished_by_the_next_start(home, operation):
    fs = FaultyFileSystem(home.fs)
    manager = home.open(runtime=Runtime(home.clock, fs, random.Random(0)))
    manager.topics.create("a", 2, {})
    manager.topics.create("b", 1, {})
    fill(manager.log(A0), 2)
    fs.rule = lambda done, path: (
        done == operation and (path.endswith("a-0") or (operation == "sync_dir" and seen(fs)))
    )
    with pytest.raises(KafkaStorageError, match="cannot delete a-0"):
        manager.topics.delete("a")
    fs.rule = lambda *_: False
    assert [topic.name for topic in manager.catalog.topics()] == ["b"]
    home.kill(manager)
    looking = home.open(read_only=True)
    assert [topic.name for topic in looking.catalog.topics()] == ["b"]
    looking.close()
    manager = home.open()
    assert [topic.name for topic in manager.catalog.topics()] == ["b"]
    assert "deleting" not in home.text(TOPICS_FILE)
    manager.close()
    assert folders(home) == {"b-0"}


def seen(fs):
    """Whether the folder has been renamed already."""
    return any(op == "rename" and path.endswith("a-0") for op, path in fs.operations)


def test_a_deletion_waits_for_a_directory_that_is_offline(home):
    """Available partitions are deleted now; the rest when the directory is back."""
    manager = home.open(home.path + "-2")
    manager.topics.create("a", 2, {})
    other = next(tp for tp in (A0, A1) if manager.registry.directory_of(tp).path != home.path)
    manager.registry.directory_of(other).go_offline("on purpose")
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "topic 'a' may have partitions in {path}/data-2, which is offline; all "
            "others were deleted"
        ),
    ):
        manager.topics.delete("a")
    assert manager.catalog.topics() == []
    assert home.fs.exists(f"{home.path}-2/{other}"), "an offline directory is not changed"
    assert not home.fs.exists(f"{home.path}/{A0 if other == A1 else A1}")
    home.kill(manager)
    manager = home.open(home.path + "-2")
    assert manager.catalog.topics() == []
    manager.close()
    assert not home.fs.exists(f"{home.path}-2/{other}")


def test_reading_shows_a_directory_with_folders_to_be_deleted_as_it_is(home):
    home.write(f"a-0.{'0' * 32}-delete/{log_name(0)}", b"")
    home.write(f"a-1.{'0' * 32}-future/{log_name(0)}", b"")
    before = home.files()
    looking = home.open(read_only=True)
    assert looking.catalog.topics() == []
    looking.close()
    assert home.files() == before
    home.open().close()
    assert folders(home) == {f"a-1.{'0' * 32}-future"}, "a replica on the move is a broker's"


# -- records ---------------------------------------------------------------------------------


def test_deleted_records_stay_deleted_after_a_kill(home):
    manager = home.open(log_segment_bytes="200")
    manager.topics.create("a", 1, {})
    fill(manager.log(A0), 10)
    manager.log(A0).flush()
    assert manager.delete_records(A0, 4) == 4
    home.kill(manager)
    log = home.open(log_segment_bytes="200").log(A0)
    assert (log.log_start_offset, offsets(log)) == (4, [4, 5, 6, 7, 8, 9])


def test_checkpoints_follow_a_truncation(home):
    manager = home.open(log_segment_bytes="200")
    manager.topics.create("a", 1, {"cleanup.policy": "compact,delete"})
    log = manager.log(A0)
    fill(log, 10)
    log.flush()
    directory = manager.registry.directory_of(A0)
    directory.checkpoint(CLEANER_OFFSETS).write({A0: 8, B0: 9})
    directory.partitions.add(B0)
    manager.delete_records(A0, 5)
    manager.checkpoint_recovery_points()
    assert manager.truncate_to(A0, 7)
    read = lambda name: directory.checkpoint(name).read()  # noqa: E731  # said four times
    base = log.active_segment.base_offset
    assert base < 7
    assert (read(RECOVERY_POINTS)[A0], read(CLEANER_OFFSETS)) == (7, {A0: base, B0: 9})
    assert not manager.truncate_to(A0, 7)
    manager.truncate_fully_and_start_at(A0, 3)
    assert (read(RECOVERY_POINTS)[A0], read(CLEANER_OFFSETS)[A0]) == (3, 3)
    assert A0 not in read(LOG_START_OFFSETS)
    home.kill(manager)
    log = home.open(log_segment_bytes="200").log(A0)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_a_second_truncation_lowers_what_was_cleaned_in_between(home):
    manager = home.open(log_segment_bytes="200")
    manager.topics.create("a", 1, {"cleanup.policy": "compact"})
    log = manager.log(A0)
    directory = manager.registry.directory_of(A0)
    for _ in range(2):
        fill(log, 10 - log.log_end_offset)
        directory.write_cleaner_offset(A0, 8)
        manager.truncate_to(A0, 5)
        assert directory.cleaner_offset(A0) == log.active_segment.base_offset <= 5


def test_a_new_topic_does_not_take_over_the_checkpoints_of_one_that_was_deleted(home):
    """As after a crash between the renaming of a folder and the rewriting of the checkpoints."""
    manager = home.open()
    manager.topics.create("b", 1, {})
    manager.close()
    home.write(LOG_START_OFFSETS, b"0\n1\na 0 2\n")
    home.write(RECOVERY_POINTS, b"0\n2\na 0 9\nb 0 0\n")
    manager = home.open()
    manager.topics.create("a", 1, {})
    log = manager.log(A0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    fill(log, 3)
    log.flush()
    home.kill(manager)
    assert offsets(home.open().log(A0)) == [0, 1, 2], "nor after another crash"


# --- another compaction strategy ------------------------------------------------------------------


@pytest.mark.parametrize("how", ("alter", "override", "broker"))
def test_another_strategy_lets_the_last_cleaned_offset_compete_again(how):
    """It may have been kept as the log's last record although it lost."""
    broker = Broker(clock=VirtualClock())
    for name in ("users", "other"):
        broker.create_topic(name, 1, {"cleanup.policy": "compact"})
    directory = broker.manager.directories[0]
    users, other = TopicPartition("users", 0), TopicPartition("other", 0)
    directory.write_cleaner_offset(users, 7)
    directory.write_cleaner_offset(other, 0)
    if how == "alter":
        broker.alter_configs("users", {"segment.ms": "1000"})
        assert directory.cleaner_offset(users) == 7
        broker.alter_configs("users", {"compaction.strategy": "timestamp"})
    elif how == "override":
        broker.override_configs("users", {"compaction.strategy": "timestamp"})
    else:
        broker.alter_broker_configs({"log.cleaner.compaction.strategy": "timestamp"})
    assert directory.cleaner_offset(users) == 6
    assert directory.cleaner_offset(other) == 0
