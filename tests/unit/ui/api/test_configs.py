"""Settings as fields of a form: all of it from the one table of keys."""

import pytest

from logstore import Acl, Authorizer
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.dynamic import RECONFIGURABLE_KEYS
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.types import INT64_MAX
from tests.support.world.page import Asked

USERS, BROKER = "/api/topics/users/configs", "/api/broker/configs"


def fields(page, path):
    return {each["key"]: each for each in page.get(path)["configs"]}


def test_every_key_of_a_topic_is_a_field(page, broker):
    found = fields(page, USERS)
    assert found.keys() == TOPIC_KEYS.keys() == broker.describe_configs("users").keys()
    for key, field in found.items():
        assert field["documentation"] == TOPIC_KEYS[key].doc
        assert field["range"] == TOPIC_KEYS[key].range_text
        assert field["value"] == broker.describe_configs("users")[key].value
        assert not field["read_only"]
        assert not field["sensitive"]


def test_a_field_describes_its_form_input(page):
    found = fields(page, USERS)
    assert found["cleanup.policy"] == {
        "key": "cleanup.policy",
        "value": "compact",
        "default": "delete",
        "origin": "topic",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "broker_key": None,
        "kind": "list",
        "unit": None,
        "range": TOPIC_KEYS["cleanup.policy"].range_text,
        "bounds": [],
        "choices": ["delete", "compact"],
        "documentation": TOPIC_KEYS["cleanup.policy"].doc,
        "read_only": False,
        "sensitive": False,
        "layers": [
            {"key": "cleanup.policy", "value": "compact", "origin": "topic"},
            {"key": "log.cleanup.policy", "value": "delete", "origin": "default"},
        ],
    } | {"choices": list(TOPIC_KEYS["cleanup.policy"].values)}
    assert found["retention.ms"]["unit"] == "ms"
    assert found["retention.ms"]["bounds"] == [[-1, INT64_MAX]]
    assert found["retention.ms"]["source"] == "DEFAULT_CONFIG"
    assert found["segment.bytes"]["unit"] == "bytes"
    assert found["segment.bytes"]["bounds"] == [[14, 2**31 - 1]]
    assert found["min.cleanable.dirty.ratio"]["bounds"] == [[0, 1]]
    assert found["min.cleanable.dirty.ratio"]["unit"] is None
    assert found["preallocate"]["choices"] == ["true", "false"]
    assert found["message.timestamp.type"]["choices"] == ["CreateTime", "LogAppendTime"]


def test_every_value_of_the_broker_is_a_field(page, broker):
    broker.alter_broker_configs({"log.retention.ms": "1d"})
    broker.alter_broker_configs({"log.cleaner.threads": "2"}, cluster_wide=True)
    found = fields(page, BROKER)
    assert found.keys() == broker.describe_broker_configs().keys() <= BROKER_KEYS.keys()
    assert {key for key, field in found.items() if not field["read_only"]} == {
        key for key in found if key in RECONFIGURABLE_KEYS
    }
    assert found["log.retention.ms"]["source"] == "DYNAMIC_BROKER_CONFIG"
    assert found["log.cleaner.threads"]["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert found["log.cleaner.dedupe.buffer.size"]["unit"] == "bytes"
    assert fields(page, USERS)["retention.ms"]["broker_key"] == "log.retention.ms"


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    ((USERS, "topic", "users"), (BROKER, "cluster", "kafka-cluster")),
)
def test_settings_are_described_only_with_permission(broker, path, kind, name):
    authorizer = Authorizer()
    with Asked(broker, authorizer, "User:ann") as page:
        assert page.ask("GET", path).status == 403
        authorizer.add(Acl("User:ann", "describe_configs", kind, name))
        assert page.ask("GET", path).status == 200
