"""Client quotas, with the messages of Kafka 4.3.1."""

import math
import threading

import pytest

from logstore import Authorizer, Cluster
from logstore.messages.types import AlterClientQuotasRequest, DescribeClientQuotasRequest
from logstore.wire.client_quotas import ClientQuotas
from tests.support.world.wire import Client, name_of, versions

EXACT, DEFAULT, ANY = range(3)


def alter(client, entity, *changes, version=1, validate_only=False):
    """Return error and message; a change is a key with its value, or None to remove it."""
    kind = AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity],
        ops=[
            kind.OpData(key=key, value=0 if value is None else value, remove=value is None)
            for key, value in changes
        ],
    )
    answer = client.ask(kind(entries=[entry], validate_only=validate_only), version)
    (found,) = answer.entries
    assert [(each.entity_type, each.entity_name) for each in found.entity] == list(entity)
    return name_of(found.error_code), found.error_message


def described(client, *components, strict=False, version=1):
    """Return the quotas by entity, or error and message."""
    kind = DescribeClientQuotasRequest
    asked = [
        kind.ComponentData(entity_type=each, match_type=match, match=name)
        for each, match, name in components
    ]
    answer = client.ask(kind(components=asked, strict=strict), version)
    if answer.error_code:
        assert answer.entries is None
        return name_of(answer.error_code), answer.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


@versions("AlterClientQuotas")
def test_quotas_are_stored_and_described(client, version):
    ann, both = (("user", "ann"),), (("user", "ann"), ("client-id", "c"))
    default, address = (("user", None),), (("ip", "1.2.3.4"),)
    ok = ("NONE", None)
    assert alter(client, ann, ("producer_byte_rate", 1000), version=version) == ok
    assert alter(client, ann, ("request_percentage", 1.5)) == ok
    assert alter(client, both, ("consumer_byte_rate", 10)) == ok
    assert alter(client, default, ("controller_mutation_rate", 5)) == ok
    assert alter(client, address, ("connection_creation_rate", 7)) == ok
    of_ann = {ann: {"producer_byte_rate": 1000, "request_percentage": 1.5}}
    of_both = {tuple(sorted(both)): {"consumer_byte_rate": 10}}
    of_default = {default: {"controller_mutation_rate": 5}}
    of_address = {address: {"connection_creation_rate": 7}}
    assert described(client, version=version) == of_ann | of_both | of_default | of_address
    assert described(client, strict=True) == {}
    assert described(client, ("user", EXACT, "ann")) == of_ann | of_both
    assert described(client, ("user", EXACT, "ann"), strict=True) == of_ann
    assert described(client, ("user", DEFAULT, None)) == of_default
    assert described(client, ("user", ANY, None), strict=True) == of_ann | of_default
    assert described(client, ("user", EXACT, "ann"), ("client-id", ANY, None)) == of_both
    assert described(client, ("ip", ANY, None)) == of_address
    assert alter(client, ann, ("request_percentage", None), ("producer_byte_rate", None)) == ok
    assert described(client, ("user", EXACT, "ann")) == of_both


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    (
        ((("user", "u"),), "nope", 1, "Invalid configuration key nope"),
        (
            (("user", "u"),),
            "connection_creation_rate",
            1,
            "Invalid configuration key connection_creation_rate",
        ),
        (
            (("ip", "1.2.3.4"),),
            "producer_byte_rate",
            1,
            "Invalid configuration key producer_byte_rate",
        ),
        (
            (("user", "u"),),
            "producer_byte_rate",
            0,
            "Quota producer_byte_rate must be greater than 0",
        ),
        (
            (("user", "u"),),
            "producer_byte_rate",
            1.5,
            "producer_byte_rate cannot be a fractional value.",
        ),
        (
            (("user", "u"),),
            "producer_byte_rate",
            1e300,
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            (("ip", "1.2.3.4"),),
            "connection_creation_rate",
            2**31,
            "Proposed value for connection_creation_rate is too large for a INT.",
        ),
        ((("foo", "x"),), "producer_byte_rate", 1, "Unhandled client quota entity type: foo"),
        ((), "producer_byte_rate", 1, "Invalid empty client quota entity"),
        ((("client-id", ""),), "producer_byte_rate", 1, "Empty client-id not supported"),
        (
            (("ip", "1.2.3.4"), ("user", "u")),
            "producer_byte_rate",
            1,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or"
            " ClientId",
        ),
        (
            (("ip", "not an address"),),
            "connection_creation_rate",
            1,
            "not an address is not a valid IP or resolvable host.",
        ),
    ),
)
def test_invalid_quotas_are_refused(client, entity, key, value, message):
    assert alter(client, entity, (key, value)) == ("INVALID_REQUEST", message)
    assert described(client) == {}


def test_unusual_changes_are_accepted(client):
    user = (("user", "u"),)
    assert alter(client, user, ("nope", None)) == ("NONE", None)
    assert alter(client, user, ("producer_byte_rate", 5), validate_only=True) == ("NONE", None)
    assert described(client) == {}
    address = (("ip", "1.2.3.4"),)
    assert alter(client, address, ("connection_creation_rate", 2**31 - 1)) == ("NONE", None)
    assert alter(client, user, ("controller_mutation_rate", 1e300)) == ("NONE", None)
    assert described(client) == {
        address: {"connection_creation_rate": 2**31 - 1},
        user: {"controller_mutation_rate": 1e300},
    }
    assert alter(client, user, ("producer_byte_rate", math.nan)) == ("NONE", None)
    assert math.isnan(described(client)[user]["producer_byte_rate"])
    twice = alter(client, user, ("producer_byte_rate", 1), ("producer_byte_rate", 2))
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    assert twice == ("INVALID_REQUEST", message)


def test_an_entity_is_changed_once_in_a_request(client):
    kind = AlterClientQuotasRequest
    entities = (
        [("user", "u"), ("client-id", "c")],
        [("client-id", "c"), ("user", "u")],
        [("user", "u, client-id=c")],
    )
    entries = [
        kind.EntryData(
            entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity],
            ops=[kind.OpData(key="producer_byte_rate", value=1)],
        )
        for entity in entities
    ]
    found = client.ask(kind(entries=entries), 1).entries
    assert [name_of(each.error_code) for each in found] == ["INVALID_REQUEST"] * 2 + ["NONE"]
    assert described(client) == {(("user", "u, client-id=c"),): {"producer_byte_rate": 1}}


def test_concurrent_changes_of_quotas_are_all_stored():
    quotas = ClientQuotas()
    ann, bob = ((("user", name),) for name in ("ann", "bob"))
    other = threading.Thread(target=quotas.alter, args=([(bob, {"producer_byte_rate": 2})],))

    def changes():
        other.start()
        other.join(timeout=0.1)  # it has to wait
        yield ann, {"producer_byte_rate": 1}

    quotas.alter(changes())
    other.join()
    assert dict(quotas) == {ann: {"producer_byte_rate": 1}, bob: {"producer_byte_rate": 2}}


def test_many_quotas_are_encoded_outside_of_the_event_loop(client, listener, monkeypatch):
    ran = []
    run_large = listener._service.run_large
    monkeypatch.setattr(
        listener._service, "run_large", lambda call: ran.append(call) or run_large(call)
    )
    for count in (1, 300):
        listener._service.quotas.alter(
            ((("user", f"u{number}"),), {"producer_byte_rate": 1}) for number in range(count)
        )
        assert len(described(client)) == count
        assert bool(ran) == (count == 300)


@pytest.mark.parametrize(
    ("components", "error", "message"),
    (
        (
            [("ip", ANY, None), ("user", ANY, None)],
            "INVALID_REQUEST",
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component.",
        ),
        ([("foo", ANY, None)], "UNSUPPORTED_VERSION", "Unsupported entity type foo"),
        (
            [("user", EXACT, None)],
            "INVALID_REQUEST",
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "x")],
            "INVALID_REQUEST",
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", ANY, "x")],
            "INVALID_REQUEST",
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], "INVALID_REQUEST", "Unknown match type 3"),
        ([("", EXACT, "x")], "INVALID_REQUEST", "Invalid empty entity type."),
        (
            [("user", EXACT, "a"), ("user", EXACT, "b")],
            "INVALID_REQUEST",
            "Entity type user cannot appear more than once in the filter.",
        ),
    ),
)
def test_invalid_filters_are_refused(client, components, error, message):
    assert described(client, *components) == (error, message)


def test_quotas_need_permissions(broker):
    with broker.listen(authorizer=Authorizer([])) as listener, Client(listener) as client:
        denied = ("CLUSTER_AUTHORIZATION_FAILED", None)
        assert alter(client, (("user", "u"),), ("producer_byte_rate", 1)) == denied
        assert described(client)[0] == denied[0]


def test_brokers_of_a_cluster_share_quotas():
    user = (("user", "u"),)
    with Cluster(2) as cluster, cluster.listen() as server:
        with Client(server[0]) as client:
            alter(client, user, ("producer_byte_rate", 1))
        with Client(server[1]) as client:
            assert described(client) == {user: {"producer_byte_rate": 1}}
