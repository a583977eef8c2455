"""Values that only make sense together, where each comes from, and a topic's overrides changed."""

import dataclasses

import pytest

from logstore.config.broker_config import BrokerConfig, TopicDefault
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import OLD_BROKER_NAMES
from logstore.config.keys import Kind, render
from logstore.config.log_config import LogConfig
from logstore.config.overrides import alter_overrides, describe, effective_config
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError

MIN_LAG = "min.compaction.lag.ms"
MAX_LAG = "max.compaction.lag.ms"
BROKER_MIN_LAG = "log.cleaner.min.compaction.lag.ms"
BROKER_MAX_LAG = "log.cleaner.max.compaction.lag.ms"


def broker(properties):
    return BrokerConfig.from_properties(properties)


# --- the two compaction lags ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "properties", "complaint"),
    (
        (
            {MIN_LAG: 5, MAX_LAG: 4},
            {},
            "max.compaction.lag.ms = 4 must not be below min.compaction.lag.ms = 5:"
            " both are the topic's own",
        ),
        (
            {MAX_LAG: 4},
            {BROKER_MIN_LAG: 5},
            "max.compaction.lag.ms = 4 must not be below min.compaction.lag.ms = 5:"
            f" the first is the topic's own, the second the broker's ({BROKER_MIN_LAG})",
        ),
        (
            {MIN_LAG: 5},
            {BROKER_MAX_LAG: 4},
            "max.compaction.lag.ms = 4 must not be below min.compaction.lag.ms = 5:"
            f" the first is the broker's ({BROKER_MAX_LAG}), the second the topic's own",
        ),
    ),
)
def test_lags_are_compared_for_every_source(topic, properties, complaint):
    with pytest.raises(InvalidConfigurationError) as caught:
        effective_config(topic, broker(properties))
    assert str(caught.value) == complaint
    with pytest.raises(InvalidConfigurationError) as caught:
        alter_overrides({}, topic, (), broker(properties))
    assert str(caught.value) == complaint
    raised = {key: 5 if key == MAX_LAG else value for key, value in topic.items()}
    properties = {BROKER_MAX_LAG: 5} if BROKER_MAX_LAG in properties else properties
    assert effective_config(raised, broker(properties)).max_compaction_lag_ms == 5


def test_a_broker_whose_own_lags_contradict_each_other_is_refused_by_its_names():
    broker({BROKER_MIN_LAG: 5, BROKER_MAX_LAG: 5})
    with pytest.raises(InvalidConfigurationError) as caught:
        broker({BROKER_MIN_LAG: 5, BROKER_MAX_LAG: 4})
    complaint = f"{BROKER_MAX_LAG} = 4 must not be below {BROKER_MIN_LAG} = 5"
    assert str(caught.value) == complaint
    with pytest.raises(InvalidConfigurationError, match="must not be below"):
        BrokerConfig(
            topic_defaults={
                MIN_LAG: TopicDefault(5, BROKER_MIN_LAG),
                MAX_LAG: TopicDefault(4, BROKER_MAX_LAG),
            }
        )


def test_a_topic_may_leave_a_brokers_lags_that_would_not_suit_its_own():
    """The topic's pair counts, not the broker's."""
    properties = {BROKER_MIN_LAG: 50, BROKER_MAX_LAG: 60}
    config = effective_config({MIN_LAG: 5, MAX_LAG: 6}, broker(properties))
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (5, 6)
    with pytest.raises(InvalidConfigurationError, match=r"= 6 must not be below .* = 50"):
        effective_config({MAX_LAG: 6}, broker(properties))


def test_lags_of_a_configuration_built_by_hand_are_compared_too():
    with pytest.raises(InvalidConfigurationError) as caught:
        LogConfig(min_compaction_lag_ms=5, max_compaction_lag_ms=4)
    assert str(caught.value) == f"{MAX_LAG} = 4 must not be below {MIN_LAG} = 5"
    with pytest.raises(InvalidConfigurationError):
        dataclasses.replace(LogConfig(max_compaction_lag_ms=4), min_compaction_lag_ms=5)


def test_contradictions_can_still_be_described():
    described = describe({MAX_LAG: "4"}, broker({BROKER_MIN_LAG: 5}))
    assert described[MAX_LAG][:2] == ("4", "topic")
    assert described[MIN_LAG][:2] == ("5", "broker")


# --- directories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "dirs"),
    (
        ({"log.dir": "/a, /b"}, ("/a", "/b")),
        ({"log.dirs": "/a,,/b,"}, ("/a", "/b")),
        ({"log.dirs": "/a", "log.dir": ""}, ("/a",)),
    ),
)
def test_directories_are_listed_with_commas(properties, dirs):
    assert broker(properties).log_dirs == dirs


@pytest.mark.parametrize(
    ("properties", "key"),
    (
        ({"log.dirs": ""}, "log.dirs"),
        ({"log.dirs": " , "}, "log.dirs"),
        ({"log.dir": ""}, "log.dir"),
        ({"log.dirs": "", "log.dir": "/a"}, "log.dirs"),
    ),
)
def test_at_least_one_directory_must_be_named_if_any(properties, key):
    with pytest.raises(
        InvalidConfigurationError, match=f"^{key} is set but does not name a directory$"
    ):
        broker(properties)


# --- values and origins ---------------------------------------------------------------------------


def another_value(row):
    """Return a value that a row allows and that is not its default."""
    if row.values:
        value = next(text for text in row.values if text != render(row.default))
    elif row.kind is Kind.BOOLEAN:
        value = render(not row.default)
    elif row.kind is Kind.STRING:
        value = "version"
    elif row.kind is Kind.DOUBLE:
        value = "0.25"
    else:
        value = next(text for text in ("2", "77") if allows(row, text))
    row.parse(value)
    return value


def allows(row, text):
    return not row.ranges or any(low is not None and low <= int(text) for low, _ in row.ranges)


@pytest.mark.parametrize(
    ("key", "synonym"),
    [(row.key, synonym) for row in TOPIC_KEYS.values() for synonym in row.synonyms],
    ids=lambda each: each if isinstance(each, str) else each.key,
)
def test_a_brokers_value_is_described_with_the_key_it_came_by(key, synonym):
    value = another_value(BROKER_KEYS[synonym.key])
    config = broker({synonym.key: value})
    described = describe({}, config)
    expected = str(int(value) * synonym.factor) if synonym.factor != 1 else value
    assert described[key][:4] == (expected, "broker", TOPIC_KEYS[key].doc, synonym.key)
    assert described[key].layers[0] == (synonym.key, value, "broker")
    assert {
        other: each.origin for other, each in described.items() if each.origin != "default"
    } == {key: "broker"}
    effective = getattr(effective_config({}, config), TOPIC_KEYS[key].attribute)
    assert render(effective) == expected
    own = another_value(TOPIC_KEYS[key])
    described = describe({key: own}, config)
    assert described[key][:4] == (own, "topic", TOPIC_KEYS[key].doc, None)
    assert described[key].layers[:2] == ((key, own, "topic"), (synonym.key, value, "broker"))


# --- changes --------------------------------------------------------------------------------------


def test_a_change_sets_replaces_and_takes_out():
    before = {"segment.ms": "5", "cleanup.policy": "compact", "preallocate": "true"}
    kept = dict(before)
    after, notes = alter_overrides(
        before, {"segment.ms": 7, "retention.ms": " +9 "}, ["preallocate", "flush.ms"]
    )
    assert after == {"segment.ms": "7", "cleanup.policy": "compact", "retention.ms": "9"}
    assert notes == ()
    assert before == kept
    assert alter_overrides(after, {}, after) == ({}, ())


def test_a_change_may_use_old_names():
    after, notes = alter_overrides({}, {"topic.cleanup.policy": "dedupe"}, ())
    assert after == {"cleanup.policy": "compact"}
    assert notes == (
        "topic.cleanup.policy is the old name of cleanup.policy",
        "cleanup.policy: dedupe is the old name of compact",
    )
    after, notes = alter_overrides(after, {}, ["topic.cleanup.policy"])
    assert after == {}
    assert notes == ("topic.cleanup.policy is the old name of cleanup.policy",)


@pytest.mark.parametrize(
    ("changes", "removed", "complaint"),
    (
        ({"segment.mss": "1"}, (), "unknown topic configuration 'segment.mss'; the nearest is"),
        ({}, ("segment.mss",), r"'segment\.mss'; the nearest is 'segment\.ms'$"),
        ({}, ("log.roll.hours",), r"'log\.roll\.hours'; the nearest is 'segment\.ms'$"),
        ({}, ("max.decompressed.message.bytes",), "is not supported: use logstore"),
        ({"segment.ms": "soon"}, (), "segment.ms = 'soon' is not allowed"),
        (
            {"segment.ms": "5"},
            ("segment.ms",),
            "segment.ms cannot be set and unset at the same time",
        ),
        (
            {"cleanup.policy": "compact"},
            ("topic.cleanup.policy",),
            "cleanup.policy cannot be set and unset at the same time",
        ),
        ({MAX_LAG: "4"}, (), "must not be below"),
        ({}, (MAX_LAG,), "must not be below"),
    ),
)
def test_a_change_is_refused_as_a_whole(changes, removed, complaint):
    """The last one is only invalid together with the broker's value."""
    overrides = {MIN_LAG: "5", MAX_LAG: "6"}
    with pytest.raises(InvalidConfigurationError, match=complaint):
        alter_overrides(overrides, changes, removed, broker({BROKER_MAX_LAG: 3}))
    assert overrides == {MIN_LAG: "5", MAX_LAG: "6"}


def test_invalid_values_may_be_replaced_or_removed():
    """Else a topic whose stored value nobody allows any more could never be mended."""
    wrong = {"segment.ms": "soon", "no.such.key": "1", "flush.ms": "3"}
    assert alter_overrides(wrong, {"segment.ms": "5"}, ["no.such.key"])[0] == {
        "flush.ms": "3",
        "segment.ms": "5",
    }
    with pytest.raises(InvalidConfigurationError, match=r"'no\.such\.key'"):
        alter_overrides(wrong, {"segment.ms": "5"}, ())
    with pytest.raises(InvalidConfigurationError, match="'soon'"):
        alter_overrides(wrong, {}, ["no.such.key"])


# --- old names of broker keys ---------------------------------------------------------------------


@pytest.mark.parametrize("name", OLD_BROKER_NAMES, ids=lambda name: name.old)
def test_every_old_broker_name_becomes_todays(name):
    value = {"log.cleanup.policy": "dedupe", "log.cleaner.threads": "3"}.get(
        name.current, str(3 << 20)
    )
    config = broker({name.old: value})
    assert any(
        note.startswith(f"{name.old} is an old name: using {name.current} = ")
        for note in config.notes
    )
    changed = {
        field.name
        for field in dataclasses.fields(BrokerConfig)
        if field.compare and getattr(config, field.name) != getattr(BrokerConfig(), field.name)
    }
    row = BROKER_KEYS[name.current]
    assert changed == {row.attribute if row.attribute != "log_cleanup_policy" else "topic_defaults"}
