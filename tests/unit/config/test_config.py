"""Keys, defaults, precedence, ranges, old names (storage-format §16, cleaner §12)."""

import dataclasses
import os
import pickle
import threading

import pytest

from logstore import Broker
from logstore.config.broker_config import BrokerConfig, read_properties
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.keys import ConfigKey, Kind, render
from logstore.config.log_config import LogConfig
from logstore.config.overrides import ConfigValue, describe, effective_config, parse_overrides
from logstore.config.suggest import and_nearest, nearest
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX, TimestampType
from tests.support.world.messages import exactly

# storage-format §16, row by row.
TOPIC_DEFAULTS = {
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "segment.jitter.ms": "0",
    "segment.index.bytes": "10485760",
    "index.interval.bytes": "4096",
    "flush.messages": str(INT64_MAX),
    "flush.ms": str(INT64_MAX),
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "max.message.bytes": "1048588",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(INT64_MAX),
    "file.delete.delay.ms": "60000",
    "min.cleanable.dirty.ratio": "0.5",
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "preallocate": "false",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(INT64_MAX),
    "message.timestamp.after.max.ms": str(INT64_MAX),
    "message.timestamp.difference.max.ms": str(INT64_MAX),
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "1",
    "compaction.strategy": "offset",
    "compaction.strategy.header": "",
    "logstore.compaction.strategy.header.encoding": "long",
    "logstore.decompression.max.bytes": "268435456",
    "logstore.batch.max.records": "1000000",
}
BROKER_DEFAULTS = {
    "log_dirs": (),
    "node_id": -1,
    "broker_id": -1,
    "log_retention_check_interval_ms": 300_000,
    "log_initial_task_delay_ms": 30_000,
    "log_flush_scheduler_interval_ms": INT64_MAX,
    "log_flush_offset_checkpoint_interval_ms": 60_000,
    "log_flush_start_offset_checkpoint_interval_ms": 60_000,
    "replica_high_watermark_checkpoint_interval_ms": 5000,
    "num_recovery_threads_per_data_dir": 1,
    "producer_id_expiration_ms": 86_400_000,
    "producer_id_expiration_check_interval_ms": 600_000,
    "transactional_id_expiration_ms": 604_800_000,
    "transaction_partition_verification_enable": True,
    "transaction_max_timeout_ms": 900_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 10_000,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 3_600_000,
    "transaction_state_log_num_partitions": 50,
    "transaction_state_log_segment_bytes": 104_857_600,
    "transaction_state_log_min_isr": 2,
    "num_partitions": 1,
    "offsets_topic_num_partitions": 50,
    "offsets_topic_segment_bytes": 104_857_600,
    "offset_metadata_max_bytes": 4096,
    "offsets_retention_minutes": 10_080,
    "offsets_retention_check_interval_ms": 600_000,
    "group_min_session_timeout_ms": 6_000,
    "group_max_session_timeout_ms": 1_800_000,
    "group_initial_rebalance_delay_ms": 0,
    "group_max_size": 2**31 - 1,
    "group_consumer_session_timeout_ms": 45_000,
    "group_consumer_min_session_timeout_ms": 45_000,
    "group_consumer_max_session_timeout_ms": 60_000,
    "group_consumer_heartbeat_interval_ms": 5000,
    "group_consumer_min_heartbeat_interval_ms": 5000,
    "group_consumer_max_heartbeat_interval_ms": 15_000,
    "group_consumer_assignment_interval_ms": 1000,
    "group_consumer_min_assignment_interval_ms": 0,
    "group_consumer_max_assignment_interval_ms": 15_000,
    "group_consumer_max_size": 2**31 - 1,
    "group_consumer_assignors": ("uniform", "range"),
    "group_consumer_migration_policy": "bidirectional",
    "group_consumer_regex_refresh_interval_ms": 600_000,
    "broker_rack": "",
    "replica_selector_class": "",
    "max_connections": 2000,
    "max_connections_per_ip": 2**31 - 1,
    "connections_max_idle_ms": 600_000,
    "socket_request_max_bytes": 100 << 20,
    "sasl_server_max_receive_size": 512 << 10,
    "queued_max_request_bytes": 256 << 20,
    "fetch_max_bytes": 55 << 20,
    "max_incremental_fetch_session_cache_slots": 1000,
    "logstore_request_max_entries": 100_000,
    "log_dir_failure_timeout_ms": 30_000,
    "log_cleaner_enable": True,
    "log_cleaner_threads": 1,
    "log_cleaner_io_max_bytes_per_second": 1.7976931348623157e308,
    "log_cleaner_dedupe_buffer_size": 134_217_728,
    "log_cleaner_io_buffer_size": 524_288,
    "log_cleaner_io_buffer_load_factor": 0.9,
    "log_cleaner_backoff_ms": 15_000,
    "logstore_kafka_exact": False,
    "logstore_small_file_max_bytes": 64 << 20,
    "logstore_cleaner_max_read_bytes_per_second": 1.7976931348623157e308,
    "logstore_cleaner_max_write_bytes_per_second": 1.7976931348623157e308,
    "replica_lag_time_max_ms": 30_000,
    "replica_fetch_max_bytes": 1 << 20,
    "replica_fetch_backoff_ms": 1000,
    "default_replication_factor": 1,
    "topic_defaults": {},
    "notes": (),
}


def broker(**properties):
    return BrokerConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})


# --- the table ------------------------------------------------------------------------------------


def test_topic_keys_and_defaults_match_the_specification():
    assert {key: render(row.default) for key, row in TOPIC_KEYS.items()} == TOPIC_DEFAULTS
    described = describe({})
    assert {key: value.value for key, value in described.items()} == TOPIC_DEFAULTS
    assert {value.origin for value in described.values()} == {"default"}


def test_broker_defaults_match_the_specification():
    layers = {"given": {}, "dynamic": None}
    assert dataclasses.asdict(BrokerConfig()) == BROKER_DEFAULTS | layers
    assert effective_config({}, BrokerConfig()).max_message_bytes == 1_048_588
    assert BrokerConfig.from_properties({}) == BrokerConfig()


def test_every_topic_key_is_an_attribute_and_the_reverse():
    attributes = [field.name for field in dataclasses.fields(LogConfig)]
    assert attributes == [row.attribute for row in TOPIC_KEYS.values()]
    assert effective_config({}) == LogConfig()


def test_every_row_is_sound():
    for row in [*TOPIC_KEYS.values(), *BROKER_KEYS.values()]:
        assert row.doc.endswith("."), row.key
        assert row.range_text
        if row.key in TOPIC_KEYS or row.attribute in BROKER_DEFAULTS:
            assert row._has_type(row.default), row.key
            assert row._allows(row.default), row.key
            assert row.parse(render(row.default)) == row.default, row.key
    for row in TOPIC_KEYS.values():
        for synonym in row.synonyms:
            assert synonym.key in BROKER_KEYS
            assert synonym.factor == 1 or row.kind is Kind.LONG


# --- parsing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    (
        ("segment.bytes", " 14 ", 14),
        ("segment.bytes", "+2147483647", 2**31 - 1),
        ("retention.bytes", "-9223372036854775808", -(2**63)),
        ("retention.ms", "-1", -1),
        ("preallocate", " TRUE ", True),
        ("preallocate", "False", False),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("cleanup.policy", "compact", ("compact",)),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "", ()),
        ("compression.type", "zstd", "zstd"),
        ("compression.gzip.level", "-1", -1),
        ("compression.zstd.level", "-131072", -131072),
        ("message.timestamp.type", "LogAppendTime", TimestampType.LOG_APPEND_TIME),
        ("compaction.strategy", "header", "header"),
        ("compaction.strategy", "  ", "offset"),
        ("compaction.strategy.header", " version ", "version"),
    ),
)
def test_values_parse_as_kafka_parses_them(key, text, value):
    config = effective_config({key: text})
    parsed = getattr(config, TOPIC_KEYS[key].attribute)
    assert parsed == value
    assert type(parsed) is type(value)
    assert effective_config({key: render(parsed)}) == config


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    (
        ("segment.bytes", "13", "a 32-bit integer of at least 14"),
        ("segment.bytes", "2147483648", "a 32-bit integer"),
        ("segment.bytes", "1_000", "a 32-bit integer"),
        ("segment.bytes", "1e6", "a 32-bit integer"),
        ("segment.bytes", "", "a 32-bit integer"),
        ("segment.bytes", "\u0661\u0662\u0663", "a 32-bit integer"),
        ("segment.ms", "0", "a 64-bit integer of at least 1"),
        ("segment.ms", "9223372036854775808", "a 64-bit integer"),
        ("segment.ms", "9" * 5000, "a 64-bit integer"),
        ("segment.index.bytes", "3", "of at least 4"),
        ("retention.ms", "-2", "of at least -1"),
        ("max.compaction.lag.ms", "0", "of at least 1"),
        ("min.cleanable.dirty.ratio", "1.01", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "inf", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
        ("cleanup.policy", "Compact", "a list of compact, delete"),
        ("cleanup.policy", "compact,", "a list of compact, delete"),
        ("compression.type", "none", "one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("compression.type", "", "one of producer"),
        ("compression.gzip.level", "0", "a 32-bit integer of -1 or from 1 to 9"),
        ("compression.lz4.level", "18", "from 1 to 17"),
        ("preallocate", "yes", "true or false"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.insync.replicas", "0", "of at least 1"),
        ("compaction.strategy", "Timestamp2", "one of offset, timestamp, header"),
    ),
)
def test_bad_values_are_refused_with_key_value_and_range(key, text, allowed):
    """S-245 among others."""
    with pytest.raises(InvalidConfigurationError) as caught:
        effective_config({key: text})
    assert str(caught.value).startswith(f"{key} = {text!r} is not allowed: it must be ")
    assert allowed in str(caught.value)


def test_python_values_are_understood():
    config = effective_config(
        {
            "segment.bytes": 1000,
            "segment.ms": 3.6e6,
            "preallocate": True,
            "min.cleanable.dirty.ratio": 0.25,
            "cleanup.policy": ["compact", "delete"],
            "message.timestamp.type": TimestampType.LOG_APPEND_TIME,
        }
    )
    assert (config.segment_bytes, config.segment_ms, config.preallocate) == (1000, 3600000, True)
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.cleanup_policy == ("compact", "delete")
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert effective_config({"cleanup.policy": {"delete", "compact"}}).cleanup_policy == (
        "compact",
        "delete",
    )


# --- LogConfig ------------------------------------------------------------------------------------


def test_policies():
    assert LogConfig().delete
    assert not LogConfig().compact
    both = LogConfig(cleanup_policy=("compact", "delete"))
    assert both.compact
    assert both.delete


@pytest.mark.parametrize(
    ("field", "message"),
    (
        (
            {"segment_bytes": 13},
            ("segment.bytes = 13 is not allowed: it must be a 32-bit integer of at least 14"),
        ),
        (
            {"segment_bytes": "1000"},
            ("segment.bytes = '1000' is not allowed: it must be a 32-bit integer of at least 14"),
        ),
        (
            {"segment_bytes": True},
            ("segment.bytes = True is not allowed: it must be a 32-bit integer of at least 14"),
        ),
        (
            {"segment_bytes": 1.5},
            ("segment.bytes = 1.5 is not allowed: it must be a 32-bit integer of at least 14"),
        ),
        ({"preallocate": 1}, "preallocate = 1 is not allowed: it must be true or false"),
        (
            {"cleanup_policy": "compact"},
            ("cleanup.policy = 'compact' is not allowed: it must be a list of compact, delete"),
        ),
        (
            {"cleanup_policy": ("compact", "dedupe")},
            (
                "cleanup.policy = ('compact', 'dedupe') is not allowed: it must be a "
                "list of compact, delete"
            ),
        ),
        (
            {"min_cleanable_dirty_ratio": -0.1},
            ("min.cleanable.dirty.ratio = -0.1 is not allowed: it must be a number from 0 to 1"),
        ),
        (
            {"min_cleanable_dirty_ratio": float("nan")},
            ("min.cleanable.dirty.ratio = nan is not allowed: it must be a number from 0 to 1"),
        ),
        (
            {"message_timestamp_type": "CreateTime"},
            (
                "message.timestamp.type = 'CreateTime' is not allowed: it must be one of "
                "CreateTime, LogAppendTime"
            ),
        ),
        (
            {"compaction_strategy": "newest"},
            (
                "compaction.strategy = 'newest' is not allowed: it must be one of "
                "offset, timestamp, header"
            ),
        ),
    ),
)
def test_a_configuration_built_by_hand_is_checked_too(field, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        LogConfig(**field)


def test_numbers_for_ratios_may_be_whole():
    assert LogConfig(min_cleanable_dirty_ratio=0).min_cleanable_dirty_ratio == 0


def test_a_configuration_cannot_change():
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=exactly("cannot assign to field 'segment_bytes'")
    ):
        LogConfig().segment_bytes = 5
    assert hash(LogConfig()) == hash(effective_config({}))


def test_the_maximum_lag_must_not_be_below_the_minimum():
    """Checked on effective values: one may come from the broker."""
    assert effective_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(
        InvalidConfigurationError,
        match=r"max\.compaction\.lag\.ms = 4 must not be below min\.compaction\.lag\.ms = 5",
    ):
        effective_config(
            {"max.compaction.lag.ms": "4"}, broker(log_cleaner_min_compaction_lag_ms=5)
        )


def test_a_compacted_log_rolls_within_its_maximum_lag():
    lag = {"segment.ms": "1000", "max.compaction.lag.ms": "600"}
    assert effective_config(lag).max_segment_ms == 1000
    assert effective_config({**lag, "cleanup.policy": "compact"}).max_segment_ms == 600
    assert effective_config({"segment.ms": "5", "cleanup.policy": "compact"}).max_segment_ms == 5


def test_the_deprecated_timestamp_difference_fills_in():
    config = effective_config(
        {
            "message.timestamp.difference.max.ms": "7",
            "message.timestamp.after.max.ms": "3",
        }
    )
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (7, 3)
    assert LogConfig().timestamp_before_max_ms == INT64_MAX
    other = LogConfig(message_timestamp_before_max_ms=5, message_timestamp_difference_max_ms=6)
    assert (other.timestamp_before_max_ms, other.timestamp_after_max_ms) == (5, 6)


# --- precedence -----------------------------------------------------------------------------------


def test_topic_over_broker_over_default():
    """S-245: the topic's strategy wins."""
    properties = broker(
        log_segment_bytes="2000", log_cleaner_compaction_strategy="header", log_preallocate="true"
    )
    overrides = {"segment.bytes": "1000", "compaction.strategy": "timestamp"}
    config = effective_config(overrides, properties)
    assert (config.segment_bytes, config.compaction_strategy) == (1000, "timestamp")
    assert config.preallocate
    assert config.segment_ms == 604_800_000
    assert effective_config({}, properties).compaction_strategy == "header"
    described = describe(overrides, properties)
    assert described["segment.bytes"] == ConfigValue(
        "1000",
        "topic",
        TOPIC_KEYS["segment.bytes"].doc,
        layers=(
            ("segment.bytes", "1000", "topic"),
            ("log.segment.bytes", "2000", "broker"),
            ("log.segment.bytes", "1073741824", "default"),
        ),
    )
    assert described["preallocate"][:2] == ("true", "broker")
    assert described["preallocate"].broker_key == "log.preallocate"
    assert described["segment.ms"][:2] == ("604800000", "default")


@pytest.mark.parametrize(
    ("properties", "retention_ms", "key"),
    (
        ({"log.retention.hours": "2"}, 7_200_000, "log.retention.hours"),
        (
            {"log.retention.hours": "2", "log.retention.minutes": 3},
            180_000,
            "log.retention.minutes",
        ),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, 5, "log.retention.ms"),
        ({"log.retention.minutes": "-7"}, -1, "log.retention.minutes"),
        ({"log.retention.ms": "-5"}, -1, "log.retention.ms"),
    ),
)
def test_retention_synonyms_convert_and_the_finest_wins(properties, retention_ms, key):
    config = BrokerConfig.from_properties(properties)
    assert effective_config({}, config).retention_ms == retention_ms
    assert describe({}, config)["retention.ms"].broker_key == key


def test_roll_and_flush_synonyms():
    config = effective_config(
        {},
        BrokerConfig.from_properties(
            {
                "log.roll.hours": "3",
                "log.roll.jitter.hours": "1",
                "log.flush.scheduler.interval.ms": "8",
                "message.max.bytes": "77",
            }
        ),
    )
    assert (config.segment_ms, config.segment_jitter_ms) == (10_800_000, 3_600_000)
    assert (config.flush_ms, config.max_message_bytes) == (8, 77)
    both = {"log.roll.hours": "3", "log.roll.ms": "9"}
    assert effective_config({}, BrokerConfig.from_properties(both)).segment_ms == 9


@pytest.mark.parametrize(
    ("key", "value"),
    (
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
        ("log.roll.hours", "0"),
        ("log.roll.hours", "2147483648"),
        ("log.cleaner.threads", "-1"),
        ("log.retention.check.interval.ms", "0"),
        ("log.segment.bytes", "13"),
        ("producer.id.expiration.ms", "0"),
    ),
)
def test_bad_broker_values_are_refused_by_the_brokers_name(key, value):
    with pytest.raises(InvalidConfigurationError, match=rf"^{key} = '{value}' is not allowed"):
        BrokerConfig.from_properties({key: value})


# --- broker ---------------------------------------------------------------------------------------


def test_broker_values_are_attributes():
    config = BrokerConfig.from_properties(
        {
            "log.cleaner.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(1 << 26),
            "log.cleaner.io.max.bytes.per.second": "1e6",
            "log.cleaner.enable": "false",
            "logstore.kafka.exact": True,
            "message.max.bytes": 500,
        }
    )
    assert config.log_cleaner_threads == 2
    assert config.log_cleaner_dedupe_buffer_size == 1 << 26
    assert config.log_cleaner_io_max_bytes_per_second == 1e6
    assert not config.log_cleaner_enable
    assert config.logstore_kafka_exact
    assert effective_config({}, config).max_message_bytes == 500
    assert config.notes == ()
    assert isinstance(hash(config), int)


@pytest.mark.parametrize(
    ("properties", "dirs"),
    (
        ({}, ()),
        ({"log.dir": "/a"}, ("/a",)),
        ({"log.dir": "/a", "log.dirs": "/b, /c"}, ("/b", "/c")),
    ),
)
def test_log_dirs_over_log_dir(properties, dirs):
    assert BrokerConfig.from_properties(properties).log_dirs == dirs


def test_each_cleaner_thread_needs_more_than_a_mebibyte():
    """The rule behind scenario 235."""
    size = "log.cleaner.dedupe.buffer.size"
    threads = "log.cleaner.threads"
    BrokerConfig.from_properties({size: 2 << 20})
    for refused in ({size: 1 << 20}, {size: 2 << 20, threads: 2}):
        with pytest.raises(InvalidConfigurationError, match=r"dedupe\.buffer\.size = \d+ is not"):
            BrokerConfig.from_properties(refused)
    BrokerConfig.from_properties({size: 1, threads: 0})
    BrokerConfig.from_properties({size: 1, "log.cleaner.enable": "false"})


def test_the_pool_of_requests_holds_the_largest_request():
    pool, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    for taken in ({pool: -1}, {pool: 0}, {pool: 100 << 20}, {pool: 5, largest: 5}):
        BrokerConfig.from_properties(taken)
    # Only the default is smaller then, and a listener makes up for it.
    assert BrokerConfig.from_properties({largest: 1 << 30}).queued_max_request_bytes == 256 << 20
    for refused in ({pool: 1000}, {pool: 5, largest: 6}):
        with pytest.raises(
            InvalidConfigurationError, match=r"queued\.max\.request\.bytes = \d+ is"
        ):
            BrokerConfig.from_properties(refused)


def test_keys_without_effect_are_listed_once_and_unknown_ones_warned_about():
    config = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "localhost:2181",
            "advertised.listeners": "a",
            "listeners": "PLAINTEXT://:9092",
            "log.cleaner.thread": "4",
            "segment.bytes": "5",
        }
    )
    assert config.notes == (
        "ignoring unknown broker key log.cleaner.thread; the nearest is 'log.cleaner.threads'",
        "ignoring unknown broker key segment.bytes; the nearest is 'log.segment.bytes'",
        "broker keys that have no effect here: advertised.listeners, listeners, zookeeper.connect",
    )
    assert config == BrokerConfig()


@pytest.mark.parametrize(
    "key", ("my.plugin.setting", "nonsense", "x", "sasl.kerberos.min.time.before.relogin", "é")
)
def test_an_unrelated_key_is_not_suggested(key):
    with pytest.raises(InvalidConfigurationError) as refused:
        parse_overrides({key: "1"})
    assert str(refused.value) == f"unknown topic configuration {key!r}"
    assert refused.value.nearest is None


@pytest.mark.parametrize(
    ("given", "names", "near"),
    (
        ("retention", ("log.retention.ms", "retention.ms", "retention.bytes"), "retention.ms"),
        ("flsh.ms", ("flush.ms", "flush.messages"), "flush.ms"),
        ("ab", ("ba", "zz"), None),
        ("", ("a",), None),
        ("a", (), None),
    ),
)
def test_a_suggestion_is_similar_or_begins_with_what_was_given(given, names, near):
    assert nearest(given, names) == near
    assert and_nearest(given, names) == ("" if near is None else f"; the nearest is {near!r}")


def test_a_misspelled_key_in_a_program_is_refused():
    """Also of topics' own names, which a broker has under others."""
    for given, near in (
        ("log.cleaner.thread", "log.cleaner.threads"),
        ("segment.bytes", "log.segment.bytes"),
        ("log_cleaner_threads", "log.cleaner.threads"),
    ):
        text = f"^unknown broker configuration '{given}'; the nearest is '{near}'$"
        with pytest.raises(InvalidConfigurationError, match=text):
            Broker(broker_config={given: "4"})
    known = {"zookeeper.connect": "localhost:2181", "cleaner.thread.pool.size": 2, "node.id": 1}
    with Broker(broker_config=known) as broker:
        assert broker.broker_config.log_cleaner_threads == 2
    with Broker(broker_config=BrokerConfig.from_properties({"no.such.key": 1})) as broker:
        assert "no.such.key" in broker.broker_config.notes[0]


# --- old names ------------------------------------------------------------------------------------


def test_the_names_of_kafka_631_are_understood_with_a_note():
    config = BrokerConfig.from_properties(
        {
            "topic.cleanup.policy": "dedupe",
            "cleaner.thread.pool.size": "3",
            "cleaner.buffer.size.bytes": str(4 << 20),
            "cleaner.max.read.throughput": "900",
            "cleaner.max.write.throughput": "700",
            "log.cleanup.interval.mins": "10",
        }
    )
    assert config.log_cleaner_threads == 3
    assert config.log_cleaner_dedupe_buffer_size == 12 << 20
    assert config.logstore_cleaner_max_read_bytes_per_second == 900
    assert config.logstore_cleaner_max_write_bytes_per_second == 700
    assert config.log_retention_check_interval_ms == 600_000
    assert effective_config({}, config).cleanup_policy == ("compact",)
    text = "\n".join(config.notes)
    for name in (
        "topic.cleanup.policy",
        "dedupe is the old name of compact",
        "cleaner.thread.pool.size is an old name: using log.cleaner.threads = 3",
        "cleaner.buffer.size.bytes",
        "cleaner.max.read.throughput",
        "cleaner.max.write.throughput",
        "log.cleanup.interval.mins",
    ):
        assert name in text
    assert "unknown" not in text


def test_todays_name_wins_over_an_old_one():
    config = BrokerConfig.from_properties(
        {"cleaner.thread.pool.size": "3", "log.cleaner.threads": "2"}
    )
    assert config.log_cleaner_threads == 2
    assert config.notes == (
        "cleaner.thread.pool.size is ignored because log.cleaner.threads is set",
    )


def test_bad_numbers_under_old_names_are_refused():
    with pytest.raises(InvalidConfigurationError, match=r"cleaner\.buffer\.size\.bytes = 'many'"):
        BrokerConfig.from_properties({"cleaner.buffer.size.bytes": "many"})


def test_old_names_in_a_topic():
    normal, notes = parse_overrides({"topic.cleanup.policy": "dedupe, delete"})
    assert normal == {"cleanup.policy": "compact,delete"}
    assert len(notes) == 2
    assert effective_config({"cleanup.policy": "dedupe"}).compact
    for overrides in (
        {"topic.cleanup.policy": "dedupe", "cleanup.policy": "delete"},
        {"cleanup.policy": "delete", "topic.cleanup.policy": "dedupe"},
    ):
        assert parse_overrides(overrides)[0] == {"cleanup.policy": "delete"}


def test_overrides_are_normalized_to_text():
    normal, notes = parse_overrides({"preallocate": " True ", "segment.ms": 5, "flush.ms": "+7"})
    assert normal == {"preallocate": "true", "segment.ms": "5", "flush.ms": "7"}
    assert notes == ()


@pytest.mark.parametrize(
    ("key", "nearest"),
    (
        ("segment.byte", "segment.bytes"),
        ("min.cleanable.dirty.ration", "min.cleanable.dirty.ratio"),
        ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
        ("log.roll.hours", "segment.ms"),
    ),
)
def test_unknown_topic_keys_are_refused_with_the_nearest(key, nearest):
    for call in (effective_config, describe, parse_overrides):
        with pytest.raises(InvalidConfigurationError) as caught:
            call({key: "1"})
        assert repr(key) in str(caught.value)
        assert repr(nearest) in str(caught.value)
        assert (caught.value.key, caught.value.nearest) == (key, nearest)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def properties(tmp_path):
    """Write a properties file; return the settings read from it."""

    def read(data):
        path = tmp_path / "server.properties"
        path.write_bytes(data)
        return read_properties(str(path))

    return read


def test_properties_are_read_as_java_reads_them(properties):
    text = (
        b"# a broker\n! another comment\nlog.dirs=/a,/b\nlog.segment.bytes : 1000\n"
        b"log.cleaner.compaction.strategy.header = v\\u00e4\\\n   r\xe9\nempty\n"
    )
    assert properties(text) == {
        "log.dirs": "/a,/b",
        "log.segment.bytes": "1000",
        "log.cleaner.compaction.strategy.header": "väré",
        "empty": "",
    }


@pytest.mark.parametrize("end", (b"\n", b"\r", b"\r\n"))
def test_lines_of_properties_are_joined_as_java_joins_them(properties, end):
    lines = (
        b"a = 1" + b"\\" * 4,  # an even number: the line ends
        b"b=x" + b"\\" * 3,  # an odd one: it goes on
        b"\t  y\\",
        b"",
        b"# no comment \\",  # goes on, whatever it ends in
        b"c=2",
        b"\\",
        b"#d=3",
        b"   \\",
        b"  !e=4",
        b"f=\\",
        b"  # g \\",
        b"h",
        b"last=5\\",
    )
    assert properties(end.join(lines)) == {
        "a": "1" + "\\" * 2,
        "b": "x\\y",
        "c": "2",
        "#d": "3",
        "!e": "4",
        "f": "# g h",
        "last": "5",
    }


def test_a_value_of_a_hundred_thousand_lines_is_joined(properties):
    """In time that grows with its length; this one would take minutes."""
    assert properties(b"a=\\\n" + b"  b\\\n" * 100_000 + b"c") == {"a": "b" * 100_000 + "c"}


def test_properties_can_be_read_from_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"a=1",))
    writer.start()
    assert read_properties(str(path)) == {"a": "1"}
    writer.join()


def test_missing_and_malformed_properties_are_configuration_errors(properties, tmp_path):
    with pytest.raises(InvalidConfigurationError, match=r"file .*server\.prop\S+ does not exist"):
        read_properties(f"{tmp_path}/server.properties")
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "{path}/server.properties is not a properties file: Invalid \\u escape "
            "sequence: \\uZZZZ"
        ),
    ):
        properties(b"key=\\uZZZZ\n")


# -- once parsed -----------------------------------------------------------------------------


def test_a_value_is_parsed_once_on_its_way_into_force(monkeypatch):
    """From a command's options, through the stored topic, to the settings of its log."""
    parsed = []
    parse = ConfigKey.parse

    def counted(row, text, **options):
        parsed.append((row.key, text))
        return parse(row, text, **options)

    monkeypatch.setattr(ConfigKey, "parse", counted)
    given = {"segment.bytes": "0100", "topic.cleanup.policy": "dedupe"}
    overrides, _ = parse_overrides(given)
    with Broker() as broker:
        topic = broker.create_topic("a", 2, overrides)
        broker.alter_configs("a", {"segment.ms": " 7 "})
        broker.override_configs("a", {"flush.ms": 9})
        config = broker.log("a", 1).config
        described = broker.describe_configs("a")
    assert (config.segment_bytes, config.segment_ms, config.flush_ms) == (100, 7, 9)
    assert config.compact
    assert dict(topic.configs) == {"segment.bytes": "100", "cleanup.policy": "compact"}
    assert described["segment.bytes"].value == "100"
    assert parsed == [
        *(("segment.bytes", "0100"), ("cleanup.policy", "compact")),
        *(("segment.ms", " 7 "), ("flush.ms", "9")),
    ]


def test_overrides_are_a_mapping_of_text():
    overrides, _ = parse_overrides({"cleanup.policy": ["compact", "delete"], "flush.ms": 5})
    assert overrides == {"flush.ms": "5", "cleanup.policy": "compact,delete"}
    assert repr(overrides) == "{'cleanup.policy': 'compact,delete', 'flush.ms': '5'}"
    assert (len(overrides), "flush.ms" in overrides, overrides.get("no")) == (2, True, None)
    assert pickle.loads(pickle.dumps(overrides)) == overrides
    assert parse_overrides(overrides) == (overrides, ())


def test_every_default_is_a_value_of_its_key():
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        assert key.parse(render(key.default)) == key.default
