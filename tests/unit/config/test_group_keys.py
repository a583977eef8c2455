"""Configurations of groups: their keys, bounds, and effect."""

import pytest

from logstore.config.broker_config import BrokerConfig
from logstore.config.group_keys import (
    GROUP_ID_CHARACTERS_MAX,
    GROUPS_MAX,
    GroupConfig,
    alter_group_overrides,
    check_new_group,
    describe_group,
    effective_group_config,
)
from logstore.errors import InvalidConfigurationError

BROKER = BrokerConfig()
SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def test_defaults_are_those_of_the_broker():
    assert effective_group_config({}, BROKER) == GroupConfig(45_000, 5_000, 1_000)
    other = BrokerConfig.from_properties({"group.consumer.session.timeout.ms": "50000"})
    assert effective_group_config({}, other).session_timeout_ms == 50_000


def test_a_group_sets_its_own_values():
    own = alter_group_overrides({}, {SESSION: " 50s", HEARTBEAT: 6000}, [], BROKER)
    assert own == {SESSION: "50000", HEARTBEAT: "6000"}
    assert effective_group_config(own, BROKER) == GroupConfig(50_000, 6_000, 1_000)
    assert alter_group_overrides(own, {}, [SESSION, ASSIGNMENT], BROKER) == {HEARTBEAT: "6000"}


@pytest.mark.parametrize(
    ("key", "value"),
    (
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "x"),
        (SESSION, "0"),
        (SESSION, "10 parsecs"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        (ASSIGNMENT, "-1"),
        (ASSIGNMENT, "15001"),
        ("share.session.timeout.ms", "46000"),
        ("session.timeout.ms", "46000"),
    ),
)
def test_a_value_that_is_not_allowed(key, value):
    with pytest.raises(InvalidConfigurationError) as caught:
        alter_group_overrides({}, {key: value}, [], BROKER)
    assert caught.value.key == key


def test_the_session_exceeds_the_heartbeat_interval():
    broker = BrokerConfig.from_properties({"group.consumer.max.heartbeat.interval.ms": "50000"})
    with pytest.raises(InvalidConfigurationError):
        alter_group_overrides({}, {HEARTBEAT: "45000"}, [], broker)
    own = alter_group_overrides({}, {HEARTBEAT: "45000", SESSION: "46000"}, [], broker)
    assert effective_group_config(own, broker) == GroupConfig(46_000, 45_000, 1_000)
    with pytest.raises(InvalidConfigurationError):
        alter_group_overrides(own, {}, [SESSION], broker)


def test_stored_values_are_brought_into_new_bounds():
    """As in Kafka, the bounds of a later start apply to values that are already stored."""
    broker = BrokerConfig.from_properties({"group.consumer.max.session.timeout.ms": "47000"})
    assert effective_group_config({SESSION: "50000"}, broker).session_timeout_ms == 47_000
    broker = BrokerConfig.from_properties(
        {
            "group.consumer.min.heartbeat.interval.ms": "7000",
            "group.consumer.heartbeat.interval.ms": "7000",
        }
    )
    assert effective_group_config({HEARTBEAT: "6000"}, broker).heartbeat_interval_ms == 7_000


def test_descriptions_have_all_layers():
    broker = BrokerConfig.from_properties({"group.consumer.session.timeout.ms": "46000"})
    rows = describe_group({SESSION: "50000"}, broker)
    assert [(each.key, each.value, each.origin) for each in rows[SESSION].layers] == [
        (SESSION, "50000", "group"),
        ("group.consumer.session.timeout.ms", "46000", "broker"),
        ("group.consumer.session.timeout.ms", "45000", "default"),
    ]
    assert (rows[SESSION].value, rows[SESSION].broker_key) == ("50000", None)
    assert (rows[HEARTBEAT].value, rows[HEARTBEAT].origin) == ("5000", "default")
    assert rows[HEARTBEAT].broker_key == "group.consumer.heartbeat.interval.ms"


def test_the_number_of_groups_is_bounded():
    known = {str(number) for number in range(GROUPS_MAX)}
    check_new_group("7", known)
    with pytest.raises(InvalidConfigurationError):
        check_new_group("new", known)
    with pytest.raises(InvalidConfigurationError):
        check_new_group("g" * (GROUP_ID_CHARACTERS_MAX + 1), ())


@pytest.mark.parametrize(
    "settings",
    (
        {"session.timeout.ms": "44999"},
        {"session.timeout.ms": "60001"},
        {"min.session.timeout.ms": "60001"},
        {"heartbeat.interval.ms": "15001"},
        {"max.heartbeat.interval.ms": "4999"},
        {"min.heartbeat.interval.ms": "5001"},
        {"assignment.interval.ms": "15001"},
        {"min.assignment.interval.ms": "1001"},
        {"max.heartbeat.interval.ms": "50000", "heartbeat.interval.ms": "45000"},
        {"max.size": "0"},
        {"assignors": ""},
        {"assignors": "uniform,mine"},
        {"migration.policy": "never"},
        {"regex.refresh.interval.ms": "9999"},
    ),
)
def test_broker_settings_that_kafka_refuses(settings):
    with pytest.raises(InvalidConfigurationError):
        BrokerConfig.from_properties({f"group.consumer.{k}": v for k, v in settings.items()})


def test_broker_settings_that_kafka_accepts():
    config = BrokerConfig.from_properties(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "1",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.assignors": "range",
            "group.consumer.migration.policy": "DISABLED",
        }
    )
    assert config.group_consumer_assignors == ("range",)
    assert config.group_consumer_migration_policy == "disabled"
    assert effective_group_config({}, config) == GroupConfig(1_000, 100, 1_000)
