"""Copied directories: configurations that follow from a topic's name, and retention under them."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.assumptions import policy_assumption
from logstore.analysis.verdict import partition_verdict
from logstore.errors import InvalidConfigurationError

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
COMPACT = {"cleanup.policy": "compact"}
CONNECT, STREAMS = "Kafka Connect creates topics", "Kafka Streams creates topics"


@pytest.fixture
def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Broker[VirtualClock]:
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic(request.param)
        broker.append(request.param, key=b"a", value=b"1")
    (tmp_path / "logstore-topics.json").unlink()
    later = VirtualClock()
    later.advance(days=60)
    return Broker(tmp_path, clock=later)


@pytest.mark.parametrize(
    ("copied", "configs", "creator", "state"),
    (
        ("connect-offsets", COMPACT, CONNECT, "waiting"),
        ("my-configs", COMPACT, CONNECT, "waiting"),
        ("my.status", {}, None, "unknown"),
        ("my-status", COMPACT, CONNECT, "waiting"),
        ("_schemas", COMPACT, "a schema registry creates it", "waiting"),
        ("app-KSTREAM-AGGREGATE-changelog", COMPACT, STREAMS, "waiting"),
        ("app-repartition", KEPT | {"segment.bytes": "52428800"}, STREAMS, "not_compacted"),
        (
            "__share_group_state",
            KEPT | {"segment.bytes": "104857600"},
            "Kafka's brokers create it",
            "not_compacted",
        ),
        ("__consumer_offsets", COMPACT, "Kafka's brokers create it", "waiting"),
        ("offsets", {}, None, "unknown"),
    ),
    indirect=["copied"],
)
def test_a_name_gives_the_settings_with_which_its_owner_creates_topics(
    copied: Broker[VirtualClock], configs: dict[str, str], creator: str | None, state: str
) -> None:
    with copied as broker:
        [topic] = broker.topics()
        described = broker.describe_configs(topic.name)
        assert topic.configs == configs
        assert all(described[key].value == value for key, value in configs.items())
        assumed = policy_assumption(broker.manager, topic.name)
        assert assumed is not None
        assert (creator is None) == (" as " not in assumed)
        assert creator is None or creator in assumed
        assert all(value in assumed for value in configs.values())
        verdict = partition_verdict(broker, TopicPartition(topic.name, 0))
        assert verdict.state == state


@pytest.mark.parametrize("copied", ("events", "app-repartition"), indirect=True)
def test_nothing_is_deleted_under_an_assumed_policy(copied: Broker[VirtualClock]) -> None:
    with copied as broker:
        [topic] = broker.topics()
        broker.create_topic("known", configs={"retention.ms": "1000"})
        broker.append("known", key=b"a", value=b"1")
        broker.clock.advance(days=1)
        before = broker.log(topic.name).size_bytes
        with pytest.raises(InvalidConfigurationError, match="was not changed"):
            broker.retain()
        assert broker.log(topic.name).size_bytes == before
        assert broker.log("known").size_bytes > 0
        assert broker.retain(topic.name, dry_run=True).decisions
        broker.override_configs(topic.name, {"cleanup.policy": "delete", "retention.ms": "1000"})
        broker.retain()
        assert broker.log(topic.name).size_bytes == broker.log("known").size_bytes == 0
