"""The table of keys against what Kafka says of itself (tests/data/config)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logstore.config.broker_config import BrokerConfig
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import (
    INERT_BROKER_KEYS,
    INERT_TOPIC_KEYS,
    NOT_OFFERED_TO_TOPICS,
    STORED_TOPIC_KEYS,
    has_no_effect,
)
from logstore.config.keys import LATER_RELEASES, ConfigKey, Kind, ReleaseChange, render
from logstore.config.overrides import alter_overrides, describe, effective_config
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError

DATA = Path(__file__).parents[2] / "data" / "config"

OUR_TOPIC_KEYS = {
    "compaction.strategy",
    "compaction.strategy.header",
    "logstore.compaction.strategy.header.encoding",
    "logstore.batch.max.records",
    "logstore.decompression.max.bytes",
}
OUR_BROKER_KEYS = {
    "log.cleaner.compaction.strategy",
    "log.cleaner.compaction.strategy.header",
    "logstore.compaction.strategy.header.encoding",
    "logstore.batch.max.records",
    "logstore.decompression.max.bytes",
    "logstore.kafka.exact",
    "logstore.request.max.entries",
    "logstore.small.file.max.bytes",
    "logstore.cleaner.max.read.bytes.per.second",
    "logstore.cleaner.max.write.bytes.per.second",
}
KEYS_OF_KAFKA_4 = {
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.regex.refresh.interval.ms",
}
DEFAULTS_OF_KAFKA_4 = {"group.consumer.assignors", "group.consumer.migration.policy"}
"""Kafka 4 introduced the consumer group protocol, and Kafka 3.9 had a preview."""

CHECKED_ELSEWHERE = {
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "replica.selector.class",
}
"""Kafka bounds these when it builds the topic's defaults; `test_values_in_force` shows it."""

OUR_DEFAULTS = {
    "broker.rack": "",
    "group.initial.rebalance.delay.ms": "0",
    "max.connections": "2000",
    "node.id": "-1",
    "queued.max.request.bytes": str(256 << 20),
    "replica.selector.class": "",
}
"""Where a broker for tests begins with another value than Kafka's; COMPATIBILITY.md says so.

`node.id` has no default in Kafka 4 and must be set. Kafka's null is an empty text here."""

LOG_DIRS = {"log.dir", "log.dirs"}
"""Text that Kafka 3.9 splits at commas itself; a list since."""


class Definition(NamedTuple):
    """A row of `keys.tsv`."""

    kind: str
    default: str
    validator: str


def definitions(version: str, scope: str) -> dict[str, Definition]:
    rows = (DATA / f"kafka-{version}" / "keys.tsv").read_text(encoding="utf-8").splitlines()
    fields = (row.split("\t") for row in rows)
    return {key: Definition(*rest) for found, key, *rest in fields if found == scope}


def validator_of(row: ConfigKey) -> str | set[str]:
    """Return a row's range as Kafka writes it; lists of values as sets."""
    if row.values:
        return set(row.values)
    texts = []
    for low, high in sorted(row.ranges, key=lambda bounds: bounds[0] == bounds[1]):
        if low == high:
            texts.append(f"{low}")
        else:
            texts.append(f"[{low},...]" if high is None else f"[{low},...,{high}]")
    return " or ".join(texts)


def as_kafka_says(definition: Definition) -> str | set[str]:
    text = definition.validator
    if text.startswith("(case insensitive) "):
        text = text.removeprefix("(case insensitive) ").lower()
    listed = re.fullmatch(r"\[(\w+(?:, \w+)+)\]", text)
    return set(listed[1].split(", ")) if listed else text


def default_of(row: ConfigKey) -> str:
    return render(row.default).replace("e+", "E")


def differences(rows: dict[str, ConfigKey], kafka: dict[str, Definition]) -> Iterator[str]:
    for key in sorted(rows.keys() & kafka.keys()):
        row, definition = rows[key], kafka[key]
        if key not in LOG_DIRS and row.kind.name != definition.kind:
            yield f"{key}: type {row.kind.name}, Kafka {definition.kind}"
        if key not in CHECKED_ELSEWHERE | LOG_DIRS and validator_of(row) != as_kafka_says(
            definition
        ):
            yield f"{key}: {validator_of(row)}, Kafka {as_kafka_says(definition)}"
        has_default = (key in TOPIC_KEYS or not is_synonym(key)) and key not in LOG_DIRS
        expected = OUR_DEFAULTS.get(key, definition.default)
        if has_default and default_of(row) != expected:
            yield f"{key}: default {default_of(row)}, Kafka {definition.default}"


def is_synonym(key: str) -> bool:
    return any(key == synonym.key for row in TOPIC_KEYS.values() for synonym in row.synonyms)


def applied(row: ConfigKey, change: ReleaseChange) -> ConfigKey:
    if change.default is not None:
        row = row._replace(default=change.default)
    return row if change.ranges is None else row._replace(ranges=change.ranges)


def as_of_kafka_4(rows: dict[str, ConfigKey]) -> dict[str, ConfigKey]:
    """Return the rows after `LATER_RELEASES`, broker keys following their topic key."""
    changed = dict(rows)
    for change in LATER_RELEASES:
        names = {change.key}
        if change.key in TOPIC_KEYS:
            names |= {synonym.key for synonym in TOPIC_KEYS[change.key].synonyms}
        for name in names & rows.keys():
            if change.removed:
                del changed[name]
            else:
                changed[name] = applied(rows[name], change)
    return changed


@pytest.mark.parametrize(
    ("scope", "rows", "ours"),
    (("topic", TOPIC_KEYS, OUR_TOPIC_KEYS), ("broker", BROKER_KEYS, OUR_BROKER_KEYS)),
    ids=("topic", "broker"),
)
def test_types_defaults_and_ranges_match_kafka_3_9(scope, rows, ours):
    kafka = definitions("3.9.2", scope)
    assert len(kafka) > 30
    found = {text.partition(":")[0]: text for text in differences(dict(rows), kafka)}
    assert found.keys() == DEFAULTS_OF_KAFKA_4 & rows.keys(), found
    assert rows.keys() - kafka.keys() == ours | (KEYS_OF_KAFKA_4 & rows.keys())


@pytest.mark.parametrize(
    ("scope", "rows", "ours"),
    (("topic", TOPIC_KEYS, OUR_TOPIC_KEYS), ("broker", BROKER_KEYS, OUR_BROKER_KEYS)),
    ids=("topic", "broker"),
)
def test_the_changes_listed_lead_to_kafka_4_4(scope, rows, ours):
    """Each is needed, and no other."""
    kafka = definitions("4.4.0", scope)
    changed = as_of_kafka_4(dict(rows))
    assert list(differences(changed, kafka)) == []
    assert changed.keys() - kafka.keys() == ours
    listed = {change.key for change in LATER_RELEASES if not change.removed}
    found = {text.partition(":")[0] for text in differences(dict(rows), kafka)}
    assert listed & rows.keys() <= found


def test_broker_keys_follow_topic_keys_in_kafkas_order():
    text = (DATA / "kafka-3.9.2" / "synonyms.tsv").read_text(encoding="utf-8")
    kafka = dict(line.split("\t", 1) for line in text.splitlines())
    assert {
        key: "\t".join(synonym.key for synonym in row.synonyms)
        for key, row in TOPIC_KEYS.items()
        if key not in OUR_TOPIC_KEYS
    } == {key: names for key, names in kafka.items() if key not in INERT_TOPIC_KEYS}


@pytest.mark.parametrize("version", ("3.9.2", "4.4.0"))
def test_every_other_key_of_kafkas_is_known_to_be_without_effect(version):
    """A broker's own file must not be warned about, nor a topic's key be called a misspelling."""
    others = definitions(version, "broker").keys() - BROKER_KEYS.keys()
    assert [key for key in sorted(others) if not has_no_effect(key)] == []
    topic_keys = definitions(version, "topic").keys() - STORED_TOPIC_KEYS.keys()
    assert {
        key for key in topic_keys if not key.startswith("internal.")
    } <= NOT_OFFERED_TO_TOPICS.keys()
    for key in NOT_OFFERED_TO_TOPICS:
        with pytest.raises(
            InvalidConfigurationError, match=f"^Kafka's topic configuration '{key}'"
        ):
            effective_config({key: "1"})


@pytest.mark.parametrize("version", ("3.9.2", "4.4.0"))
@pytest.mark.parametrize(
    ("scope", "rows"), (("topic", INERT_TOPIC_KEYS), ("broker", INERT_BROKER_KEYS))
)
def test_keys_without_effect_have_kafkas_types_defaults_and_ranges(version, scope, rows):
    """Three ranges are worded differently, and 3.9 bounds `num.replica.fetchers` elsewhere."""
    kafka = definitions(version, scope)
    assert len(rows.keys() & kafka.keys()) > 5
    plain = {
        key: row
        for key, row in rows.items()
        if row.form is None and (version, key) != ("3.9.2", "num.replica.fetchers")
    }
    assert list(differences(plain, kafka)) == []
    for key, row in rows.items():
        if row.form is not None and key in kafka:
            assert (row.kind.name, default_of(row)) == kafka[key][:2]
            assert row.parse(default_of(row)) == row.default


@pytest.mark.parametrize(
    ("key", "text"),
    (
        *(
            ("leader.replication.throttled.replicas", text)
            for text in ("", "*", " * ", "0:1", "0:1,0:2 , 12:1003", "0:1,")
        ),
        *(("message.format.version", text) for text in ("0.8.0", "0.10.2", "2.8.1", "3.0-IV1")),
        ("message.downconversion.enable", "False"),
        ("remote.storage.enable", "false"),
        ("remote.log.copy.disable", "true"),
        ("local.retention.ms", "-2"),
    ),
)
def test_valid_values_of_topic_keys_without_effect_are_stored(key, text):
    stored, _ = alter_overrides({}, {key: text}, ())
    assert effective_config(stored) == effective_config({})
    described = describe(stored)[key]
    assert (described.value, described.origin) == (stored[key], "topic")
    assert "no effect" in described.doc
    assert alter_overrides(dict(stored), {}, [key])[0] == {}


@pytest.mark.parametrize(
    ("key", "text", "words"),
    (
        *(
            ("follower.replication.throttled.replicas", text, r"\* or a list of PARTITION:BROKER")
            for text in ("0", "0:1:2", "0:x", "*,0:1", "-1:0", "none")
        ),
        *(("message.format.version", text, "a release of Kafka") for text in ("", "4.0", "x", "2")),
        ("message.downconversion.enable", "perhaps", "true or false"),
        ("remote.storage.enable", "true", "false, since tiered storage is not supported"),
        ("local.retention.bytes", "-3", "a 64-bit integer of at least -2"),
    ),
)
def test_other_values_of_topic_keys_without_effect_are_refused(key, text, words):
    with pytest.raises(InvalidConfigurationError, match=f"^{key} = .* must be {words}"):
        alter_overrides({}, {key: text}, ())


def test_no_key_that_is_obeyed_is_called_idle():
    assert [key for key in BROKER_KEYS if has_no_effect(key) and "replica" not in key] == []


def effective_cases() -> list[dict[str, object]]:
    text = (DATA / "kafka-3.9.2" / "effective.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def case_name(case: dict[str, object]) -> str:
    return " | ".join(
        ";".join(f"{key}={value}" for key, value in case[side].items())
        for side in ("broker", "topic")
    )


@pytest.mark.parametrize("case", effective_cases(), ids=case_name)
def test_values_in_force(case):
    """Kafka's answer to the same properties: the same values, or a refusal too."""
    if "error" in case:
        with pytest.raises(InvalidConfigurationError):
            effective_config(case["topic"], BrokerConfig.from_properties(case["broker"]))
        return
    broker = BrokerConfig.from_properties(case["broker"])
    config = effective_config(case["topic"], broker)
    expected = dict(case["values"])
    assert str(config.timestamp_before_max_ms) == expected.pop("before")
    assert str(config.timestamp_after_max_ms) == expected.pop("after")
    assert str(config.max_segment_ms) == expected.pop("max segment ms")
    found = {
        key: row for key, row in TOPIC_KEYS.items() if getattr(config, row.attribute) != row.default
    }
    if expected.get("cleanup.policy") == "delete,delete":
        del expected["cleanup.policy"]  # a duplicate counts once
    assert {key: as_parsed(key, text) for key, text in expected.items()} == {
        key: getattr(config, row.attribute) for key, row in found.items()
    }
    described = describe(case["topic"], broker)
    for key in expected:
        origin = "topic" if key in case["topic"] else "broker"
        assert described[key].origin == origin
        assert as_parsed(key, described[key].value) == as_parsed(key, expected[key])


def as_parsed(key: str, text: str) -> object:
    return float(text) if TOPIC_KEYS[key].kind is Kind.DOUBLE else TOPIC_KEYS[key].parse(text)
