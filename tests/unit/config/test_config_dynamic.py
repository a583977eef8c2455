"""Settings that may change while a broker runs, and the effects."""

from datetime import timedelta

import pytest

from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import (
    RECONFIGURABLE_KEYS,
    Layer,
    changes_of,
    is_reconfigurable,
    merge_layers,
    reconfigure,
)
from logstore.config.inert_keys import INERT_BROKER_KEYS
from logstore.config.keys import Operation, apply_operations
from logstore.config.overrides import (
    describe,
    describe_broker,
    describe_broker_values,
    describe_cluster_wide,
    effective_config,
)
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from tests.support.world.messages import exactly


def broker(**properties):
    return BrokerConfig.from_properties(
        {key.replace("_", "."): value for key, value in properties.items()}
    )


def test_fields_and_defaults_change_and_the_rest_is_retained():
    before = broker(log_cleaner_threads="2", log_retention_hours="5", log_segment_bytes="2000")
    after, notes = reconfigure(
        before,
        {
            "log.cleaner.threads": 4,
            "log.cleaner.backoff.ms": "7",
            "log.retention.ms": "1000",
            "log.preallocate": "true",
        },
    )
    assert (after.log_cleaner_threads, after.log_cleaner_backoff_ms) == (4, 7)
    effective = effective_config({}, after)
    assert (effective.retention_ms, effective.segment_bytes) == (1000, 2000)
    assert effective.preallocate is True
    assert notes == ()
    assert effective_config({}, before).retention_ms == 5 * 3_600_000


def test_none_gives_a_key_back_to_the_layer_below():
    before = broker(log_cleaner_backoff_ms="9", log_cleaner_min_cleanable_ratio="0.1")
    keys = ("log.cleaner.backoff.ms", "log.cleaner.min.cleanable.ratio")

    def changed(config, value, layer):
        return reconfigure(config, dict.fromkeys(keys, value), layer)[0]

    def values(config):
        effective = effective_config({}, config)
        return config.log_cleaner_backoff_ms, effective.min_cleanable_dirty_ratio

    config = changed(changed(before, "1", Layer.BROKER), "0", Layer.CLUSTER)
    assert values(config) == (1, 1.0)
    config = changed(config, None, Layer.BROKER)
    assert values(config) == (0, 0.0)
    config = changed(config, None, Layer.BROKER)  # a value that is not set there cannot be removed
    assert values(config) == (0, 0.0)
    config = changed(config, None, Layer.CLUSTER)
    assert values(config) == (9, 0.1)
    assert config == before
    assert config.dynamic is None


def told(layers):
    return [(each.key, each.value, each.origin) for each in layers]


def test_a_topic_s_key_is_described_with_every_layer():
    static = broker(log_retention_hours="5", log_retention_minutes="7")
    config, _ = reconfigure(static, {"log.retention.ms": "1000"}, Layer.CLUSTER)
    config, _ = reconfigure(config, {"log.retention.ms": timedelta(seconds=2)})
    below = [
        ("log.retention.ms", "2000", "dynamic broker"),
        ("log.retention.ms", "1000", "dynamic default"),
        ("log.retention.minutes", "7", "broker"),
        ("log.retention.hours", "5", "broker"),
        ("log.retention.hours", "168", "default"),
    ]
    found = describe({"retention.ms": "3"}, config)["retention.ms"]
    assert (found.value, found.origin, found.broker_key) == ("3", "topic", None)
    assert told(found.layers) == [("retention.ms", "3", "topic"), *below]
    found = describe({}, config)["retention.ms"]
    assert found[:2] == ("2000", "dynamic broker")
    assert told(found.layers) == below
    assert describe({}, static)["retention.ms"][:2] == ("420000", "broker")


def test_a_broker_s_own_key_is_described_with_every_layer():
    static = broker(log_cleaner_threads="1")  # the default, but set explicitly
    config, _ = reconfigure(static, {"log.cleaner.threads": 2}, Layer.CLUSTER)
    rows = {each.row.key: each for each in describe_broker(config)}
    row = rows["log.cleaner.threads"]
    assert (row.value, row.origin) == ("2", "dynamic default")
    assert told(row.layers) == [
        ("log.cleaner.threads", "2", "dynamic default"),
        ("log.cleaner.threads", "1", "broker"),
        ("log.cleaner.threads", "1", "default"),
    ]
    assert told(rows["num.partitions"].layers) == [("num.partitions", "1", "default")]
    cluster_wide = list(describe_cluster_wide(config))
    assert [(each.row.key, each.value) for each in cluster_wide] == [("log.cleaner.threads", "2")]


def test_two_layers_contradict_each_other_together():
    config, _ = reconfigure(
        BrokerConfig(), {"log.cleaner.min.compaction.lag.ms": "10"}, Layer.CLUSTER
    )
    with pytest.raises(InvalidConfigurationError, match=r"log.cleaner.max.compaction.lag.ms"):
        reconfigure(config, {"log.cleaner.max.compaction.lag.ms": "9"})
    both = {"log.cleaner.max.compaction.lag.ms": "9", "log.cleaner.min.compaction.lag.ms": "9"}
    assert effective_config({}, reconfigure(config, both)[0]).max_compaction_lag_ms == 9


@pytest.mark.parametrize(
    ("key", "is_dynamic"),
    (
        ("max.connections", True),
        ("max.connections.per.ip", True),
        ("transaction.partition.verification.enable", True),
        ("log.retention.ms", True),
        ("log.cleaner.backoff.ms", True),
        ("an.unknown.key", True),
        ("log.retention.hours", False),
        ("log.dirs", False),
    ),
)
def test_keys_that_may_change(key, is_dynamic):
    assert is_reconfigurable(key) is is_dynamic


def test_old_names_are_understood():
    after, notes = reconfigure(BrokerConfig(), {"cleaner.max.read.throughput": "5000"})
    assert after.logstore_cleaner_max_read_bytes_per_second == 5000
    assert notes == (
        "cleaner.max.read.throughput is an old name: using "
        "logstore.cleaner.max.read.bytes.per.second = 5000",
    )


@pytest.mark.parametrize(
    "key", ("log.cleaner.enable", "log.dirs", "log.retention.hours", "ssl.protocol")
)
def test_other_keys_are_refused_by_name(key):
    with pytest.raises(InvalidConfigurationError, match=f"{key} cannot be changed"):
        reconfigure(BrokerConfig(), {key: "true" if key == "log.cleaner.enable" else "1"})


def test_times_and_sizes_may_have_units():
    given = {"log.retention.ms": "7d", "log.cleaner.dedupe.buffer.size": "64MiB"}
    after, _ = reconfigure(BrokerConfig(), given)
    assert after.log_cleaner_dedupe_buffer_size == 64 << 20
    assert after.dynamic.broker == {
        "log.retention.ms": "604800000",
        "log.cleaner.dedupe.buffer.size": str(64 << 20),
    }
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "log.retention.ms: '7 days' is not a duration: use milliseconds, or 7d, "
            "12h, 5m, 30s, 250ms"
        ),
    ) as told:
        reconfigure(BrokerConfig(), {"log.retention.ms": "7 days"})
    assert told.value.key == "log.retention.ms"


def test_an_unknown_key_is_reported_with_the_closest_match():
    with pytest.raises(
        InvalidConfigurationError, match=r"nearest is 'log.cleaner.threads'"
    ) as told:
        reconfigure(BrokerConfig(), {"log.cleaner.thread": "1"}, refuse_unknown=True)
    assert (told.value.key, told.value.nearest) == ("log.cleaner.thread", "log.cleaner.threads")
    with pytest.raises(InvalidConfigurationError, match=r"nearest is 'log.cleaner.threads'"):
        reconfigure(BrokerConfig(), {"log.cleaner.thread": None})


def test_an_unknown_key_like_no_other_is_reported_without_a_nearest_one():
    _, notes = reconfigure(BrokerConfig(), {"zzqq": "1", "log.cleaner.thread": "1"})
    assert notes == (
        "unknown broker key zzqq is stored but has no effect",
        "unknown broker key log.cleaner.thread is stored but has no effect; the nearest is"
        " 'log.cleaner.threads'",
    )
    for changes, refuse_unknown in (({"zzqq": None}, False), ({"zzqq": "1"}, True)):
        with pytest.raises(InvalidConfigurationError) as refused:
            reconfigure(BrokerConfig(), changes, refuse_unknown=refuse_unknown)
        assert str(refused.value) == "zzqq cannot be changed because it is an unknown broker key"
        assert (refused.value.key, refused.value.nearest) == ("zzqq", None)


def test_of_several_keys_the_one_that_is_refused_is_named():
    known = {"num.io.threads": "4", "log.cleaner.backoff.ms": "1"}
    for changes, key in (
        ({**known, "log.dirs": "x"}, "log.dirs"),
        ({**known, "log.dirs": None}, "log.dirs"),
        ({**known, "log.cleaner.thread": None}, "log.cleaner.thread"),
        ({"my.a": "x", "my.b": "x" * 4097}, "my.b"),
        ({"my.a": "x", "m" * 256: "x"}, "m" * 255),
        ({f"my.{n}": "x" for n in range(101)}, "my.0"),
        ({**known, "log.cleaner.threads": "3"}, "log.cleaner.threads"),
        ({**known, "log.cleaner.threads": "0"}, "log.cleaner.threads"),
    ):
        with pytest.raises(InvalidConfigurationError) as refused:
            reconfigure(BrokerConfig(), changes)
        assert refused.value.key == key
    longest, _ = reconfigure(BrokerConfig(), {"m" * 255: "x" * 4096})
    assert longest.dynamic.broker == {"m" * 255: "x" * 4096}


def test_unknown_keys_are_counted_by_layer():
    changes = {f"my.{n}": "x" for n in range(100)}
    both = BrokerConfig()
    for layer in (Layer.BROKER, Layer.CLUSTER):
        both, _ = reconfigure(both, changes, layer)
    for layer in (Layer.BROKER, Layer.CLUSTER):
        with pytest.raises(InvalidConfigurationError, match="there would be 101"):
            reconfigure(both, {"my.100": "x"}, layer)
    assert [each.row.key for each in describe_cluster_wide(both)] == list(changes)
    assert all(each.is_sensitive and each.value is None for each in describe_cluster_wide(both))


def test_an_unknown_key_is_stored_verbatim_with_its_value_hidden():
    key, value = "my.plugin.size.bytes", " 1KiB "
    after, notes = reconfigure(BrokerConfig(), {key: value})
    assert after.dynamic.broker == {key: value}
    assert len(notes) == 1
    assert key in notes[0]
    assert value not in notes[0]
    (row,) = [each for each in describe_broker(after) if each.row.key == key]
    assert (row.value, row.origin, row.is_sensitive) == (None, "dynamic broker", True)
    assert describe_broker_values(after)[key].value == "(hidden)"
    assert merge_layers(BrokerConfig(), {}, after.dynamic.broker).dynamic.broker == {key: value}
    assert reconfigure(after, {key: None})[0].dynamic is None


def test_unknown_keys_are_bounded_in_number_and_size():
    full, _ = reconfigure(BrokerConfig(), {f"my.{n}": "x" * 4096 for n in range(100)})
    assert reconfigure(full, {"my.7": "y", "log.cleaner.threads": "2"})[0].log_cleaner_threads == 2
    for changes, words in (
        ({"my.100": "x"}, "my.100 cannot be stored: there would be 101 unknown broker keys"),
        ({"my.7": "x" * 4097}, "unknown broker key my.7 has 4097 characters; at most 4096"),
        ({"m" * 256: "x"}, "the name of an unknown broker key has 256 characters"),
        ({"": "x"}, "the name of an unknown broker key has 0 characters"),
    ):
        with pytest.raises(InvalidConfigurationError, match=words):
            reconfigure(full, changes)
    moved, _ = reconfigure(full, {"my.7": None, "my.100": "x"})
    assert len(moved.dynamic.broker) == 100


@pytest.mark.parametrize("key", sorted(INERT_BROKER_KEYS))
def test_a_key_without_effect_is_checked_stored_and_described(key):
    after, notes = reconfigure(BrokerConfig(), {key: "1000"})
    assert after == BrokerConfig()
    assert (after.dynamic.broker, notes) == ({key: "1000"}, ())
    described = describe_broker_values(after)[key]
    assert (described.value, described.origin) == ("1000", "dynamic broker")
    assert "no effect" in described.doc
    with pytest.raises(InvalidConfigurationError, match=f"^{key} = 'x' is not allowed"):
        reconfigure(after, {key: "x"})
    assert key not in describe_broker_values(reconfigure(after, {key: None})[0])


def test_a_cluster_wide_value_without_effect_holds_for_a_broker_without_its_own():
    key = "num.io.threads"
    cluster_wide, _ = reconfigure(BrokerConfig(), {key: "4"}, Layer.CLUSTER)
    described = describe_broker_values(cluster_wide)[key]
    assert (described.value, described.origin) == ("4", "dynamic default")
    own, _ = reconfigure(cluster_wide, {key: "5"})
    described = describe_broker_values(own)[key]
    assert (described.value, described.origin) == ("5", "dynamic broker")
    assert [each.value for each in described.layers] == ["5", "4"]


def test_a_throttle_is_at_least_0():
    for key in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ):
        with pytest.raises(InvalidConfigurationError, match="a 64-bit integer of at least 0"):
            reconfigure(BrokerConfig(), {key: "-1"})
        assert reconfigure(BrokerConfig(), {key: None})[0].dynamic is None


@pytest.mark.parametrize(
    ("now", "wanted", "words"),
    (
        ("1", "0", "log.cleaner.threads = 0 is not allowed: it must be at least 1"),
        (
            "1",
            "3",
            ("log.cleaner.threads = 3 is not allowed: it must be at most twice the current 1"),
        ),
        (
            "4",
            "1",
            ("log.cleaner.threads = 1 is not allowed: it must be at least half of the current 4"),
        ),
        (
            "5",
            "2",
            ("log.cleaner.threads = 2 is not allowed: it must be at least half of the current 5"),
        ),
        (
            "0",
            "1",
            ("log.cleaner.threads = 1 is not allowed: it must be at most twice the current 0"),
        ),
    ),
)
def test_threads_change_by_a_factor_of_two_at_most(now, wanted, words):
    with pytest.raises(InvalidConfigurationError, match=exactly(words)):
        reconfigure(broker(log_cleaner_threads=now), {"log.cleaner.threads": wanted})


@pytest.mark.parametrize(("now", "wanted"), (("1", "2"), ("4", "2"), ("5", "3"), ("2", "2")))
def test_threads_within_that_factor_are_taken(now, wanted):
    after, _ = reconfigure(broker(log_cleaner_threads=now), {"log.cleaner.threads": wanted})
    assert after.log_cleaner_threads == int(wanted)


@pytest.mark.parametrize(
    "changes",
    (
        {"log.cleaner.backoff.ms": "soon"},
        {"log.cleaner.backoff.ms": "-1"},
        {"log.cleaner.dedupe.buffer.size": "1048576"},
        {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
    ),
)
def test_wrong_values_and_contradictions_are_refused(changes):
    with pytest.raises(InvalidConfigurationError):
        reconfigure(BrokerConfig(), changes)


def test_the_keys_are_kafkas_dynamic_ones_and_this_engines():
    assert {"message.max.bytes", "log.cleaner.threads", "log.retention.ms"} <= RECONFIGURABLE_KEYS
    assert not {"log.cleaner.enable", "log.retention.hours"} & RECONFIGURABLE_KEYS


def test_only_values_of_unknown_keys_are_hidden():
    changes = {"my.plugin": "secret", "num.io.threads": "9", "log.cleaner.threads": "2"}
    for layer, origin in ((Layer.BROKER, "dynamic broker"), (Layer.CLUSTER, "dynamic default")):
        config, _ = reconfigure(BrokerConfig(), changes, layer)
        settings = {each.row.key: each for each in describe_broker(config)}
        assert [key for key, each in settings.items() if each.is_sensitive] == ["my.plugin"]
        assert settings["my.plugin"][1:] == (None, origin, (), True)
        layers = (("num.io.threads", "9", origin),)
        assert settings["num.io.threads"][1:] == ("9", origin, layers, False)
        cluster_wide = [each.row.key for each in describe_cluster_wide(config)]
        assert cluster_wide == ([] if layer is Layer.BROKER else list(changes))


def test_a_name_of_an_unknown_key_may_have_255_characters():
    config, notes = reconfigure(BrokerConfig(), {"m" * 255: "x"})
    assert config.dynamic.broker == {"m" * 255: "x"}
    assert notes == (f"unknown broker key {'m' * 255} is stored but has no effect",)


def test_a_key_is_not_set_and_unset_at_once():
    assert changes_of({"a": 1, " b": 2}, [" c ", "d"]) == {"a": 1, " b": 2, "c": None, "d": None}
    with pytest.raises(InvalidConfigurationError) as info:
        changes_of({"z": 1, " b": 2, "y": 3}, ["z", " b ", "x"])
    assert (str(info.value), info.value.key) == ("b cannot be set and unset at the same time", "b")


def test_operations_set_delete_and_change_lists():
    keys = {"cleanup.policy": TOPIC_KEYS["cleanup.policy"], "segment.ms": TOPIC_KEYS["segment.ms"]}

    def applied(operation, value, **now):
        now = {key.replace("_", "."): text for key, text in now.items()}
        return apply_operations([("cleanup.policy", operation, value)], keys, now)

    assert applied(Operation.SET, "x") == ({"cleanup.policy": "x"}, [])
    assert applied(Operation.DELETE, "x") == ({}, ["cleanup.policy"])
    for operation, value, now, after in (
        (Operation.APPEND, "compact", {}, "delete,compact"),
        (Operation.APPEND, "delete,b,,c", {"cleanup_policy": "a,,b"}, "a,b,delete,c"),
        (Operation.SUBTRACT, "delete", {}, ""),
        (Operation.SUBTRACT, "b,,d", {"cleanup_policy": "a,b,c"}, "a,c"),
    ):
        assert applied(operation, value, **now) == ({"cleanup.policy": after}, [])
    for key in ("segment.ms", "unknown"):
        with pytest.raises(InvalidConfigurationError) as info:
            apply_operations([(key, Operation.SUBTRACT, "1")], keys, {})
        assert str(info.value) == f"Can't SUBTRACT to key {key} because its type is not LIST."
