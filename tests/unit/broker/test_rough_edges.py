"""Arguments as users give them, and what objects say of themselves."""

from __future__ import annotations

import gc
import logging
import warnings
from collections import namedtuple
from datetime import timedelta

import pytest

import logstore
from logstore import (
    Broker,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    OffsetAndMetadata,
    ShiftedClock,
    SystemClock,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
)
from logstore.broker import topics
from logstore.broker.plugins import ENTRY_POINTS, find_plugin
from logstore.config.broker_config import BrokerConfig
from logstore.runtime import FixedWallClock
from logstore.runtime.overlay import OverlayFileSystem
from logstore.storage.loading.on_damage import OnDamage
from logstore.testing import FaultyFileSystem
from tests.support.world.brokers import values
from tests.support.world.messages import exactly

USERS = TopicPartition("users", 1)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("users", partitions=2)
        yield broker


# --- key and value -----------------------------------------------------------------------------


def test_key_and_value_are_given_by_name(broker):
    broker.append("users", value=b"v", key=b"k", partition=0)
    broker.append("users", key=b"k", value=None, partition=0)
    assert [(r.key, r.value) for r in broker.read("users")] == [(b"k", b"v"), (b"k", None)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    (((), {}), ((), {"key": b"k"}), ((b"v",), {}), ((b"v",), {"value": b"v"})),
)
def test_a_value_without_its_name_is_refused(broker, arguments, named):
    with pytest.raises(TypeError, match="append"):
        broker.append("users", *arguments, **named)
    assert [broker.log(tp).log_end_offset for tp in broker.partitions("users")] == [0] * 2


def test_headers_are_pairs_or_a_mapping_everywhere(broker):
    headers = {"source": b"web", "try": b"2"}
    broker.append("users", value=b"1", headers=headers, partition=0)
    broker.append_many("users", [{"value": b"2", "headers": headers}], partition=0)
    broker.append_many("users", [(None, b"3", None, headers)], partition=0)
    broker.producer().send("users", b"4", headers=headers, partition=0)
    assert {record.headers for record in broker.read("users")} == {tuple(headers.items())}
    with pytest.raises(TypeError, match="a list or a mapping"):
        broker.producer().send("users", b"4", headers="source")


# --- partitions and offsets ------------------------------------------------------------------


def test_a_partition_name_is_accepted_in_place_of_a_topic(broker):
    broker.append(USERS, value=b"1")
    broker.append_many(USERS, [(b"k", b"2")])
    broker.producer().send(USERS, b"3")
    assert values(broker, USERS) == values(broker, "users", 1) == [b"1", b"2", b"3"]
    assert broker.log(USERS).topic_partition == USERS
    assert broker.roll(USERS) == 3
    assert broker.partitions(USERS) == [USERS]
    assert broker.topic(USERS).name == "users"
    assert broker.describe_configs(USERS) == broker.describe_configs("users")
    assert [each.partition for each in broker.explain(USERS).partitions] == [1]
    assert [each.topic_partition for each in broker.retain(USERS, dry_run=True).decisions] == [
        USERS
    ]
    assert broker.clean(USERS, dry_run=True).not_cleaned[0].partition == 1
    assert len(list(broker.fates(USERS))) == 3
    assert broker.table(USERS) == {b"k": b"2"}


def test_a_partition_of_kafka_pythons_type_is_taken_too(broker):
    theirs = namedtuple("TopicPartition", ["topic", "partition"])  # as theirs is
    broker.append(theirs("users", 1), value=b"1")
    assert values(broker, theirs("users", 1)) == [b"1"]


def test_values_that_are_neither_names_nor_partitions_are_rejected(broker):
    with pytest.raises(TypeError, match="expected a TopicPartition, not 7"):
        broker.append(7, value=b"1")
    conflict = "users-1 conflicts with partition 3"
    with pytest.raises(InvalidConfigurationError, match=conflict):
        broker.read(USERS, 3)
    with pytest.raises(TypeError, match=r"for partitions, use assign\(\)"):
        broker.consumer(USERS)


def test_offsets_have_names(broker):
    for number in range(4):
        broker.append("users", value=b"%d" % number, partition=0)
    broker.delete_records({TopicPartition("users", 0): 1})
    assert values(broker, "users", offset="earliest") == [b"1", b"2", b"3"]
    assert values(broker, "users", offset="earliest", until="latest") == [b"1", b"2", b"3"]
    assert values(broker, "users", offset="latest") == []
    with pytest.raises(InvalidConfigurationError, match="'earliest' or 'latest', not 'first'"):
        broker.read("users", offset="first")
    with pytest.raises(InvalidConfigurationError, match="'latest', not 'all'"):
        broker.delete_records({TopicPartition("users", 0): "all"})
    broker.delete_records({TopicPartition("users", 0): "latest"})
    assert values(broker, "users") == []


@pytest.mark.parametrize("level", ("committed", "read-committed", "READ_COMMITTED", 1))
def test_an_isolation_that_there_is_not_is_refused_with_those_that_there_are(broker, level):
    with pytest.raises(InvalidConfigurationError, match="read_uncommitted, read_committed"):
        broker.read("users", isolation=level)
    with pytest.raises(InvalidConfigurationError, match="read_uncommitted, read_committed"):
        broker.table("users", isolation=level)


# --- configurations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "given", "stored"),
    (
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1d12h", "129600000"),
        ("retention.ms", timedelta(hours=1), "3600000"),
        ("retention.ms", -1, "-1"),
        ("segment.bytes", "1MiB", "1048576"),
        ("retention.bytes", "1 GiB", "1073741824"),
    ),
)
def test_times_and_sizes_have_units(broker, key, given, stored):
    broker.create_topic("t", configs={key: given})
    assert broker.topic("t").configs == {key: stored}
    broker.alter_configs("users", {key: given})
    assert broker.topic("users").configs == {key: stored}
    broker.override_configs("users", {key: given})
    assert broker.describe_configs("users")[key].value == stored


@pytest.mark.parametrize(
    ("key", "given", "message"),
    (
        ("retention.ms", "7x", "retention.ms: '7x' is not a duration"),
        ("retention.bytes", "1GB", "retention.bytes: '1GB' is not a size: use bytes, or 512KiB"),
        ("segment.bytes", "7d", "segment.bytes: '7d' is not a size"),
        ("segment.bytes", timedelta(days=1.5, microseconds=1), "segment.bytes = "),
    ),
)
def test_units_that_a_key_has_not_are_refused(broker, key, given, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        broker.alter_configs("users", {key: given})
    assert broker.topic("users").configs == {}


def test_there_is_one_replica(broker):
    broker.create_topic("one", replication_factor=1)
    broker.create_topic("default", replication_factor=-1)
    with pytest.raises(InvalidReplicationFactorError, match="'three' cannot have 3 replicas"):
        broker.create_topic("three", replication_factor=3)
    assert [topic.name for topic in broker.topics()] == ["default", "one", "users"]


# --- read-only -------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path):
    clock = VirtualClock()
    config = {"offsets.topic.num.partitions": 1}
    with Broker(str(tmp_path), clock=clock, broker_config=config) as broker:
        broker.create_topic("users", partitions=2)
        for number in range(4):
            broker.append(USERS, value=b"%d" % number)
        consumer = broker.consumer(group_id="g")
        consumer.assign([USERS])
        consumer.commit({USERS: OffsetAndMetadata(2)})
    with Broker(str(tmp_path), clock=clock, read_only=True, broker_config=config) as copy:
        yield copy


def test_a_consumer_of_a_read_only_broker_reads_and_commits_nothing(copy):
    with copy.consumer("users", group_id="g") as consumer:
        assert [r.value for records in consumer.poll().values() for r in records] == [b"2", b"3"]
        assert consumer.committed(USERS) == 2
        for commit in (consumer.commit, consumer.commit_async, consumer.group_metadata):
            with pytest.raises(
                InvalidConfigurationError,
                match=exactly("cannot commit or join group 'g' because the broker is read-only"),
            ):
                commit()
        copy.clock.advance(minutes=5)
        assert consumer.poll() == {}
    assert copy.groups.committed("g")[USERS].offset == 2


def test_an_admin_of_a_read_only_broker_describes(copy):
    admin = copy.admin()
    assert admin.list_topics() == ["__consumer_offsets", "users"]
    assert admin.list_group_offsets("g")["g"][USERS].offset == 2
    assert [group["group_id"] for group in admin.list_groups()] == ["g"]
    assert admin.describe_groups(["g"])["g"]["group_state"] == "Empty"
    for change in (
        lambda: admin.create_topics(["new"]),
        lambda: admin.delete_topics(["users"]),
        lambda: admin.create_partitions({"users": 3}),
        lambda: admin.alter_configs([]),
        lambda: admin.reset_configs([]),
        lambda: admin.delete_groups(["g"]),
        lambda: admin.remove_group_members("g", []),
        lambda: admin.alter_group_offsets("g", {}),
        lambda: admin.reset_group_offsets("g", {}),
        lambda: admin.delete_group_offsets("g", [USERS]),
        lambda: admin.delete_records({USERS: 1}),
        lambda: admin.alter_replica_log_dirs({}),
    ):
        with pytest.raises(InvalidConfigurationError, match="read-only"):
            change()


# --- metrics ---------------------------------------------------------------------------------


def test_a_consumer_counts(broker):
    for number in range(10):
        broker.append(USERS, value=b"x" * 10, key=b"%d" % number)
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll(max_records=4)
    consumer.commit()
    broker.clock.advance(seconds=2)
    metrics = consumer.metrics()
    assert metrics["consumer-fetch-manager-metrics"] == {
        "bytes-consumed-rate": 22,
        "bytes-consumed-total": 44,
        "fetch-rate": 0.5,
        "fetch-size-avg": 44,
        "fetch-size-max": 44,
        "fetch-total": 1,
        "records-consumed-rate": 2,
        "records-consumed-total": 4,
        "records-lag-max": 6,
        "records-per-request-avg": 4,
    }
    assert metrics["consumer-fetch-manager-metrics.users-1"] == {"records-lag": 6}
    assert metrics["consumer-fetch-manager-metrics.users-0"] == {"records-lag": 0}
    assert metrics["consumer-coordinator-metrics"] == {
        "assigned-partitions": 2,
        "commit-rate": 0.5,
        "commit-total": 1,
    }
    assert consumer.metrics(raw=True)["records-lag-max"] == 6
    assert broker.consumer(metrics_enabled=False).metrics() is None


def test_a_commit_that_was_refused_does_not_count(broker):
    broker.append(USERS, value=b"x")
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    with broker.fail("commit", error="COORDINATOR_NOT_AVAILABLE"):
        consumer.commit_async()
    assert consumer.metrics(raw=True)["commit-total"] == 0


# --- what objects say of themselves ------------------------------------------------------------


def test_every_object_has_a_short_repr(broker, tmp_path):
    broker.append(USERS, value=b"x", key=b"k")
    producer, clock = broker.producer(client_id="p"), broker.clock
    with Broker(str(tmp_path)) as disk, Broker(clock=VirtualClock(), background=True) as worker:
        consumer = broker.consumer("users", group_id="g", client_id="c")
        shown = {
            broker: "Broker(/memory)",
            disk: f"Broker({tmp_path})",
            producer: "Producer(p, transactional_id=None)",
            consumer: "Consumer(c, group_id='g')",
            broker.admin(): "AdminClient(/memory)",
            clock: "VirtualClock(2024-01-01T00:00:00.000Z)",
            broker.snapshot(): "Snapshot(/memory at VirtualClock(2024-01-01T00:00:00.000Z))",
            broker.batch_writer("users"): "BatchWriter(users, 0 records waiting)",
            broker.fates("users"): "PartitionFates(users-0)",
            broker.manager: "LogManager(/memory)",
            broker.cleaner: "LogCleanerManager(LogManager(/memory))",
            broker.groups: "GroupCoordinator(0 groups in use)",
            broker.coordinator: "TransactionCoordinator(LogManager(/memory))",
            worker.pool: "CleanerPool(1 workers)",
            disk.runtime.fs: "DiskFileSystem()",
            SystemClock(): "SystemClock()",
            ShiftedClock(): "ShiftedClock(+0 ms)",
            FixedWallClock(1500): "FixedWallClock(1970-01-01T00:00:01.500Z)",
            FixedWallClock(2**63 - 1): f"FixedWallClock({2**63 - 1} ms)",
            FaultyFileSystem(): "FaultyFileSystem(0 operations)",
        }
        assert {each: repr(each) for each in shown} == shown
        assert repr(broker.runtime.fs).startswith("FaultyDisk(MemoryFileSystem(")
        assert "CommitFuture(" in repr(consumer.commit_async({}))
        broker.clean("users")
        assert repr(broker.clean("users")) == "<CleanReport: 0 passes cleaned, 2 partitions not>"
        assert repr(broker.explain()) == "<ExplainReport: 0 of 2 partitions due for cleaning>"
        assert repr(broker.retain(dry_run=True)) == (
            "<RetainReport: 0 segments of 2 partitions would be removed>"
        )
    assert repr(disk) == f"Broker({tmp_path}, closed)"
    with Broker(str(tmp_path), read_only=True) as copy:
        assert repr(copy) == f"Broker({tmp_path}, read-only)"


# --- ends ------------------------------------------------------------------------------------


def dropped_warnings(make):
    """Return the messages of ResourceWarnings when a broker is dropped."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        make()
        gc.collect()
    return [str(each.message) for each in caught if each.category is ResourceWarning]


def test_an_unclosed_broker_with_threads_is_reported(tmp_path):
    kept = []

    def with_threads():
        broker = Broker(str(tmp_path), background=True)
        kept.append(broker.manager)

    (message,) = dropped_warnings(with_threads)
    assert (
        message
        == f"Broker({tmp_path}) was not closed and its threads are still running: use a with block"
    )
    kept.pop().close()


def test_brokers_without_threads_and_closed_brokers_are_not_reported(tmp_path):
    def without_threads():
        Broker(str(tmp_path / "a"), background=True).close()
        Broker(clock=VirtualClock(), background=True)
        Broker()
        with pytest.raises(InvalidConfigurationError):
            Broker(broker_config={"log.retention.mss": 1})

    assert dropped_warnings(without_threads) == []


def test_raised_errors_are_not_also_logged(broker, caplog):
    caplog.set_level(logging.WARNING)
    for refused in (
        lambda: broker.append("nobody", value=b"1"),
        lambda: broker.append("users", value=b"x" * 2_000_000),
        lambda: broker.producer(max_request_size=3_000_000).send("users", b"x" * 2_000_000).get(),
        lambda: list(broker.read("users", offset=99)),
        lambda: broker.create_topic("users"),
        lambda: broker.alter_configs("users", {"retention.mss": 1}),
        lambda: broker.consumer("users", group_id="g").commit({USERS: OffsetAndMetadata(1)}),
        lambda: broker.producer(transactional_id="t").begin_transaction(),
    ):
        with pytest.raises(logstore.LogStoreError):
            refused()
    assert caplog.records == []


def test_a_closed_broker_refuses_what_is_asked_in_any_shape(broker):
    broker.close()
    for use in (lambda: broker.append(USERS, value=b"1"), lambda: broker.fail("append", delay=1)):
        with pytest.raises(IllegalStateError):
            use()
    with (
        pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'users'")),
        Broker() as other,
    ):
        other.append(USERS, value=b"1")


def test_an_entry_point_that_is_not_installed_is_named():
    with pytest.raises(InvalidConfigurationError) as caught:
        find_plugin("nothing")
    assert str(caught.value) == (
        "no installed package has the entry point 'nothing' of "
        f"{ENTRY_POINTS}:"
        " reinstall kafka-logstore"
    )


def test_topics_are_read_without_a_way_to_write(tmp_path, monkeypatch):
    with Broker(str(tmp_path)) as broker:
        broker.create_topic("users", partitions=2)
    seen = []
    opened = topics.open_directories

    def record(runtime, dirs, config, **options):
        seen.append((type(runtime.fs), runtime.clock, dirs, config, options))
        return opened(runtime, dirs, config, **options)

    monkeypatch.setattr(topics, "open_directories", record)
    clock, config = VirtualClock(), BrokerConfig()
    found = topics.read_topics([str(tmp_path)], clock, config, "pass_over")
    assert [topic.name for topic in found] == ["users"]
    options = {"read_only": True, "on_damage": OnDamage.PASS_OVER}
    assert seen == [(OverlayFileSystem, clock, [str(tmp_path)], config, options)]
