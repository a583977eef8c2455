"""Responses to requests that are refused: whole results, with their messages."""

from types import SimpleNamespace

import pytest

from logstore import Acl, Authorizer, Broker, Cluster
from logstore.errors import InvalidConfigurationError
from logstore.messages.types import (
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from logstore.wire.settings import settings_of_several
from tests.support.world.wire import Client, name_of
from tests.unit.wire.test_security import (
    ANY_ACL,
    USERS,
    alter_scram,
    creation,
    log_in,
    plain,
    scram_users,
)

GROUP = 32


@pytest.fixture
def broker():
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def clients(broker):
    """Clients of a super user, of a user with few permissions, and without an authorizer."""
    authorizer = Authorizer([Acl("User:ann", "read", "topic", "t")], super_users=["User:admin"])
    with (
        broker.listen(sasl=USERS, authorizer=authorizer) as listener,
        Client(listener) as admin,
        Client(listener) as ann,
        broker.listen() as open_listener,
        Client(open_listener) as anybody,
    ):
        log_in(admin, "admin")
        log_in(ann)
        yield SimpleNamespace(admin=admin, ann=ann, anybody=anybody)


def result_of(found):
    return name_of(found.error_code), found.error_message


# -- SASL ------------------------------------------------------------------------------------------


def test_authentication(broker):
    with broker.listen(sasl=USERS) as listener:
        with Client(listener) as client:
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain()), 1)
            assert result_of(answer) == (
                "ILLEGAL_SASL_STATE",
                "unexpected SASL token",
            )
        with Client(listener) as client:
            log_in(client)
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain()), 1)
            assert result_of(answer) == (
                "ILLEGAL_SASL_STATE",
                "SaslAuthenticate request after authentication",
            )
            assert bytes(answer.auth_bytes) == b""
        for mechanism, error in (
            ("GSSAPI", "UNSUPPORTED_SASL_MECHANISM"),
            ("PLAIN", "NONE"),
        ):
            with Client(listener) as client:
                answer = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
                assert (name_of(answer.error_code), answer.mechanisms) == (
                    error,
                    ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
                )


# -- SCRAM credentials -----------------------------------------------------------------------------


def test_descriptions_of_credentials(clients):
    kind = DescribeUserScramCredentialsRequest
    users = [kind.UserName(name=each) for each in ("eve", "ann", "admin", "ann")]
    answer = clients.admin.ask(kind(users=users), 0)
    assert result_of(answer) == ("NONE", None)
    assert [
        (each.user, *result_of(each), len(each.credential_infos)) for each in answer.results
    ] == [
        ("eve", "RESOURCE_NOT_FOUND", "user eve has no SCRAM credentials", 0),
        ("ann", "DUPLICATE_RESOURCE", "user ann is listed more than once", 0),
        ("admin", "NONE", None, 2),
    ]
    answer = clients.ann.ask(kind(users=None), 0)
    assert (result_of(answer), answer.results) == (("CLUSTER_AUTHORIZATION_FAILED", None), [])


def test_changes_of_credentials(clients):
    """Users are in the order of the request, deletions first; each is changed whole or not."""
    kind = AlterUserScramCredentialsRequest

    def delete(name, mechanism=1):
        return kind.ScramCredentialDeletion(name=name, mechanism=mechanism)

    def put(name, mechanism=1, iterations=4096, salt=b"s", password=b"p"):
        return kind.ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=password,
        )

    request = kind(
        deletions=[delete("nobody"), delete("ann", 7), delete("admin", 1), delete("")],
        upsertions=[
            put("few", iterations=4095),
            put("many", iterations=16385),
            put("zero", 0),
            put("admin", 1),
            put("ann", 2),
            put("new", 2, 16384),
            put("admin", 2),
        ],
    )
    before = scram_users(clients.admin)
    results = clients.admin.ask(request, 0).results
    assert [(each.user, *result_of(each)) for each in results] == [
        (
            "nobody",
            "RESOURCE_NOT_FOUND",
            "Attempt to delete a user credential that does not exist",
        ),
        ("ann", "UNSUPPORTED_SASL_MECHANISM", "unknown SCRAM mechanism 7"),
        ("admin", "DUPLICATE_RESOURCE", "a user credential cannot be altered twice"),
        ("", "UNACCEPTABLE_CREDENTIAL", "the user's name is empty"),
        ("few", "UNACCEPTABLE_CREDENTIAL", "4095 iterations are not in [4096, 16384]"),
        ("many", "UNACCEPTABLE_CREDENTIAL", "16385 iterations are not in [4096, 16384]"),
        ("zero", "UNSUPPORTED_SASL_MECHANISM", "unknown SCRAM mechanism 0"),
        ("new", "NONE", None),
    ]
    assert scram_users(clients.admin) == before | {"new": [(2, 16384)]}
    results = clients.ann.ask(request, 0).results
    assert {result_of(each) for each in results} == {("CLUSTER_AUTHORIZATION_FAILED", "")}
    assert len(results) == 8
    assert alter_scram(clients.admin, [("new", 2)]) == {"new": "NONE"}
    assert scram_users(clients.admin) == before


# -- ACLs ------------------------------------------------------------------------------------------


def test_acls(clients):
    delete = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL)] * 2)
    create = CreateAclsRequest(creations=[creation(), creation()])
    for client, describing, changing in (
        (
            clients.ann,
            ("CLUSTER_AUTHORIZATION_FAILED", "DESCRIBE on the cluster is required"),
            ("CLUSTER_AUTHORIZATION_FAILED", "ALTER on the cluster is required"),
        ),
        (
            clients.anybody,
            ("SECURITY_DISABLED", "No Authorizer is configured on the broker"),
            ("SECURITY_DISABLED", "No Authorizer is configured on the broker"),
        ),
    ):
        answer = client.ask(DescribeAclsRequest(**ANY_ACL), 3)
        assert (result_of(answer), answer.resources) == (describing, [])
        assert list(map(result_of, client.ask(create, 3).results)) == [changing] * 2
        results = client.ask(delete, 3).filter_results
        assert list(map(result_of, results)) == [changing] * 2
        assert [each.matching_acls for each in results] == [[], []]
    answer = clients.admin.ask(DescribeAclsRequest(**ANY_ACL), 3)
    assert result_of(answer) == ("NONE", None)
    assert len(answer.resources) == 1


# -- configurations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "group", "described", "changed"),
    (
        (
            "ann",
            "g",
            ("GROUP_AUTHORIZATION_FAILED", "Group authorization failed."),
            ("GROUP_AUTHORIZATION_FAILED", "Group authorization failed."),
        ),
        (
            "admin",
            "",
            ("INVALID_REQUEST", "Group name must not be empty"),
            ("INVALID_REQUEST", "Default group resources are not allowed."),
        ),
        ("admin", "g", ("NONE", ""), ("NONE", None)),
    ),
)
def test_configurations_of_groups(clients, user, group, described, changed):
    client = getattr(clients, user)
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=None
    )
    (found,) = client.ask(kind(resources=[resource]), 4).results
    assert result_of(found) == described
    key = "consumer.session.timeout.ms"
    for kind, config, version in (
        (AlterConfigsRequest, AlterConfigsRequest.AlterableConfig(name=key, value="50000"), 1),
        (
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=0, value="50000"
            ),
            1,
        ),
    ):
        resource = kind_of_resource(kind)(
            resource_type=GROUP, resource_name=group, configs=[config]
        )
        (found,) = client.ask(kind(resources=[resource]), version).responses
        assert result_of(found) == changed


def kind_of_resource(kind):
    return kind.AlterConfigsResource


# -- elections -------------------------------------------------------------------------------------


def test_elections():
    kind = ElectLeadersRequest
    with Cluster(3) as cluster, cluster.listen() as server, Client(server[2]) as client:
        cluster.create_topic("t", 3, assignment=[(0, 1), (1, 0), (0, 1)])

        def elect(*numbers, unclean=False, topic="t"):
            partitions = [kind.TopicPartitions(topic=topic, partitions=list(numbers))]
            answer = client.ask(kind(election_type=int(unclean), topic_partitions=partitions), 2)
            (found,) = answer.replica_election_results
            assert (name_of(answer.error_code), found.topic) == ("NONE", topic)
            return [(each.partition_id, *result_of(each)) for each in found.partition_result]

        not_needed = ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
        assert elect(0, 3, 1) == [
            (0, *not_needed),
            (3, "UNKNOWN_TOPIC_OR_PARTITION", "No such partition as t-3"),
            (1, *not_needed),
        ]
        assert elect(0, topic="x") == [(0, "UNKNOWN_TOPIC_OR_PARTITION", "No such topic as x")]
        cluster.move_leader("t", 0, to=1)
        assert elect(0, 0, 2) == [(0, "NONE", None), (0, *not_needed), (2, *not_needed)]
        assert cluster.leader("t", 0) == 0
        for broker in (0, 1):
            cluster.stop(broker)
        assert cluster.leader("t", 0) == -1
        assert elect(0, unclean=True) == [
            (
                0,
                "ELIGIBLE_LEADERS_NOT_AVAILABLE",
                "Eligible topic partition leaders are not available.",
            )
        ]
        ((_, error, _),) = elect(0)
        assert error == "PREFERRED_LEADER_NOT_AVAILABLE"


# -- listeners -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    (
        ({"sasls": {}, "abc": 1}, "unknown listener settings: abc, sasls"),
        (
            {"tls": "generate"},
            "tls='generate' works for one listener only: for several, pass an ssl.SSLContext",
        ),
    ),
)
def test_listeners_of_a_cluster(settings, message):
    with pytest.raises(InvalidConfigurationError) as raised:
        settings_of_several(settings)
    assert str(raised.value) == message
    with Cluster(1) as cluster, pytest.raises(InvalidConfigurationError) as raised:
        cluster.listen(**settings)
    assert str(raised.value) == message
