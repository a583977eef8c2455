"""Kafka refuses the same clients for the same reasons, API by API.

Each API has two users: one without permissions, and one with those that `logstore.wire.permissions`
lists. Both log in by SASL PLAIN and send the request of `tests.unit.wire.test_permissions` to Kafka
and to a listener; the authorizer must refuse the same resources, and none for the second user.
"""

import time

import pytest

from logstore import Acl, Authorizer, Broker
from logstore.messages.apis import apis_by_name
from logstore.wire.permissions import NEEDS
from logstore.wire.versions import SERVED
from tests.interop.conftest import unavailable
from tests.support.interop.caller import Caller
from tests.support.interop.judge import RELEASES, Unavailable
from tests.support.interop.real_broker import RealBroker
from tests.unit.wire.test_permissions import CASES, LAST_OF_CLIENTS, REFUSALS, errors_of

pytestmark = pytest.mark.interop

PASSWORD = "secret"
NOBODY, ADMIN = "nobody", "admin"
USERS = dict.fromkeys((NOBODY, ADMIN, *CASES), PASSWORD)
SETTLED_WITHIN_S = 30

SETTINGS = {
    # The name of the clients' listener stays; only its protocol changes.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{ADMIN}" password="{PASSWORD}" '
        + " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
        + ";"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",  # the latter is the broker at its controller
}


def acls():
    return [
        Acl(f"User:{api}", operation, kind, "kafka-cluster" if kind == "cluster" else "*")
        for api in CASES
        for operation, kind in NEEDS[api]
    ]


def logged_in(bootstrap, user):
    caller = Caller(bootstrap)
    assert caller.call("SaslHandshake", 1, {"mechanism": "PLAIN"}).error_code == 0
    token = f"\0{user}\0{PASSWORD}".encode()
    assert caller.call("SaslAuthenticate", 2, {"auth_bytes": token}).error_code == 0
    return caller


def until(done):
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while not done():
        assert time.monotonic() < deadline, "the broker does not settle"
        time.sleep(0.1)


def prepare(bootstrap):
    """Give a broker its topic and, by the wire, its ACLs."""
    admin = logged_in(bootstrap, ADMIN)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    until(
        lambda: (
            admin.call("CreateTopics", 5, {"topics": [topic], "timeout_ms": 5000})
            .topics[0]
            .error_code
            in (0, 36)
        )
    )
    given = [
        {
            "resource_type": each.resource_type,
            "resource_name": each.resource_name,
            "resource_pattern_type": each.pattern_type,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation,
            "permission_type": each.permission,
        }
        for each in acls()
    ]
    made = admin.call("CreateAcls", 3, {"creations": given})
    assert {each.error_code for each in made.results} == {0}
    every = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }

    def is_reported():
        result = admin.call("DescribeAcls", 3, every).resources
        return sum(len(each.acls) for each in result) == len(given)

    until(is_reported)
    for key_type in (0, 1):  # Kafka makes the coordinators' topics when they are asked for
        request = {"key": "g", "key_type": key_type}
        until(lambda request=request: admin.call("FindCoordinator", 3, request).error_code == 0)
    admin.close()


def versions_of(bootstrap):
    """Return the last version of each API that a broker serves and this one does."""
    caller = logged_in(bootstrap, ADMIN)
    last = {each.api_key: each.max_version for each in caller.call("ApiVersions", 0, {}).api_keys}
    caller.close()
    return {
        api: min(LAST_OF_CLIENTS.get(api, SERVED[api].last), last[apis_by_name()[api].key])
        for api in CASES
    }


def refusals(bootstrap, versions):
    """Return the authorizer's refusals for each user of each API."""
    result = {}
    for api, (fields, _) in CASES.items():
        for user in (NOBODY, api):
            caller = logged_in(bootstrap, user)
            version = versions[api]
            errors = errors_of(caller.call(api, version, fields), version)
            result[api, user == NOBODY] = errors & REFUSALS
            caller.close()
    return result


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.profile)
def test_kafka_refuses_the_same(release, scratch):
    try:
        kafka = RealBroker.of(release, scratch / "kafka", SETTINGS)
    except Unavailable as error:
        unavailable(error)
    authorizer = Authorizer(super_users=[f"User:{ADMIN}"])
    with kafka, Broker() as broker, broker.listen(sasl=USERS, authorizer=authorizer) as listener:
        for bootstrap in (kafka.bootstrap, listener.bootstrap):
            prepare(bootstrap)
        versions = versions_of(kafka.bootstrap)
        kafkas = refusals(kafka.bootstrap, versions)
        ours = refusals(listener.bootstrap, versions)
    if release.profile == "kafka3":  # it refuses the protocol before it asks the authorizer
        for api in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"):
            assert kafkas.pop((api, True)) == set()
            assert ours.pop((api, True)) == {"GROUP_AUTHORIZATION_FAILED"}
    assert ours == kafkas
    assert not any(errors for (_, is_nobody), errors in ours.items() if not is_nobody)
