"""Security over the wire: authentication, authorization, and responses to denied requests."""

import socket
import ssl
import struct
from pathlib import Path

import pytest

from logstore import Acl, Authorizer, Broker, Cluster
from logstore.errors import InvalidConfigurationError
from logstore.messages.types import (
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
    ListGroupsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from logstore.security import sasl, tls
from tests.support.world.messages import exactly
from tests.support.world.wire import Client, name_of
from tests.unit.security.test_sasl import Client as ScramClient

USERS = {"ann": "secret", "admin": "root"}
ANY_ACL = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}


@pytest.fixture
def broker():
    with Broker() as broker:
        broker.create_topic("t")
        broker.create_topic("hidden")
        yield broker


@pytest.fixture
def client(broker):
    """A client of a listener that wants to know who it is."""
    with broker.listen(sasl=USERS) as listener, Client(listener) as client:
        yield client


def plain(user="ann", password="secret"):
    return f"\0{user}\0{password}".encode()


def log_in(client, user="ann", version=1):
    password = USERS[user]
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    asked = SaslAuthenticateRequest(auth_bytes=plain(user, password))
    return client.ask(asked, version)


# -- SASL ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", (0, 1, 2))
def test_plain(client, version):
    answer = log_in(client, version=version)
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert client.ask(ListGroupsRequest(), 0).error_code == 0


@pytest.mark.parametrize("mechanism", ("SCRAM-SHA-256", "SCRAM-SHA-512"))
def test_scram(client, mechanism):
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    scram = ScramClient(mechanism, "ann", "secret")
    challenge = client.ask(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
    final = scram.final(bytes(challenge.auth_bytes))
    assert client.ask(SaslAuthenticateRequest(auth_bytes=final), 2).error_code == 0
    assert client.ask(ListGroupsRequest(), 0).error_code == 0


def test_messages_without_a_header_after_handshake_0(client):
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    client.send_raw(plain())
    assert client.read_bytes(4) == struct.pack(">i", 0)
    assert client.ask(ListGroupsRequest(), 0).error_code == 0


def test_messages_without_a_header_of_scram(client):
    client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)
    scram = ScramClient("SCRAM-SHA-256", "ann", "secret")
    client.send_raw(scram.first())
    (size,) = struct.unpack(">i", client.read_bytes(4))
    client.send_raw(scram.final(client.read_bytes(size)))
    (size,) = struct.unpack(">i", client.read_bytes(4))
    assert client.read_bytes(size).startswith(b"v=")
    assert client.ask(ListGroupsRequest(), 0).error_code == 0


def test_a_wrong_message_without_a_header_ends_the_connection(client):
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    client.send_raw(plain(password="wrong"))
    assert client.is_at_end()


@pytest.mark.parametrize(("user", "password"), (("ann", "wrong"), ("nobody", "secret")))
def test_failed_authentication_is_answered_and_closes_the_connection(client, user, password):
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain(user, password)), 1)
    assert name_of(answer.error_code) == "SASL_AUTHENTICATION_FAILED"
    assert answer.error_message == "wrong user or password"
    assert client.is_at_end()


def test_a_mechanism_that_is_not_offered(client):
    answer = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert name_of(answer.error_code) == "UNSUPPORTED_SASL_MECHANISM"
    assert "PLAIN" in answer.mechanisms
    assert client.is_at_end()


def test_a_message_before_the_handshake(client):
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain()), 1)
    assert name_of(answer.error_code) == "ILLEGAL_SASL_STATE"
    assert client.is_at_end()


def test_a_second_handshake(client):
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert name_of(answer.error_code) == "ILLEGAL_SASL_STATE"
    assert client.is_at_end()


def test_an_unauthenticated_client_gets_the_versions_only(client):
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    client.socket.sendall(client.frame(MetadataRequest(topics=[]), 1))
    assert client.is_at_end()


def test_an_authenticated_client_cannot_authenticate_again(client):
    log_in(client)
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (name_of(answer.error_code), answer.mechanisms) == ("ILLEGAL_SASL_STATE", [])
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain("admin", "root")), 1)
    assert name_of(answer.error_code) == "ILLEGAL_SASL_STATE"


def test_a_listener_without_users_wants_no_handshake(broker):
    with broker.listen() as listener, Client(listener) as client:
        answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert name_of(answer.error_code) == "ILLEGAL_SASL_STATE"
        assert client.ask(ListGroupsRequest(), 0).error_code == 0


def test_requests_identify_their_client(broker):
    with broker.listen(sasl=USERS) as listener, Client(listener) as client:
        log_in(client)
        client.ask(ListGroupsRequest(), 0)
        assert [each.principal for each in listener.requests][-1] == "User:ann"


def test_few_mechanisms(broker):
    few = sasl.Credentials(USERS, ["SCRAM-SHA-512"])
    with broker.listen(sasl=few) as listener, Client(listener) as client:
        answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.mechanisms == ["SCRAM-SHA-512"]


def test_users_without_passwords_are_refused_before_anything_opens(broker):
    with pytest.raises(
        InvalidConfigurationError, match=exactly("user 'ann' needs a name and a password")
    ):
        broker.listen(sasl={"ann": ""})


# -- TLS -------------------------------------------------------------------------------------


def secured(listener, client, name="127.0.0.1"):
    context = ssl.create_default_context(cafile=listener.ca_path)
    client.socket = context.wrap_socket(client.socket, server_hostname=name)
    return client


@pytest.mark.parametrize("name", ("127.0.0.1", "localhost"))
def test_a_generated_certificate(broker, name):
    with broker.listen(tls="generate") as listener, Client(listener) as client:
        secured(listener, client, name)
        assert client.ask(ListGroupsRequest(), 0).error_code == 0
        path = Path(listener.ca_path)
        assert path.read_text().startswith("-----BEGIN CERTIFICATE")
    assert not path.exists()


def test_another_authority_does_not_trust_it(broker):
    with (
        broker.listen(tls="generate") as listener,
        broker.listen(tls="generate") as other,
        Client(listener) as client,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        secured(other, client)


def test_a_client_without_tls_is_disconnected_without_affecting_others(broker):
    with broker.listen(tls="generate") as listener:
        with Client(listener) as client:
            client.socket.sendall(client.frame(ListGroupsRequest(), 0))
            client.socket.settimeout(20)
            assert client.socket.recv(1024)[:1] in (b"", b"\x15")  # nothing, or an alert
        with Client(listener) as client:
            assert secured(listener, client).ask(ListGroupsRequest(), 0).error_code == 0


def test_a_context_of_ones_own(broker):
    made = tls.generate_tls("127.0.0.1")
    with broker.listen(tls=made.context) as listener, Client(listener) as client:
        assert listener.ca_path is None
        context = ssl.create_default_context(cadata=made.ca_pem.decode())
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        assert client.ask(ListGroupsRequest(), 0).error_code == 0


def test_tls_and_sasl_together(broker):
    with broker.listen(tls="generate", sasl=USERS) as listener, Client(listener) as client:
        secured(listener, client)
        assert log_in(client).error_code == 0


def test_without_trustme_nothing_is_generated(broker, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trustme", None)
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("tls='generate' needs trustme: pip install 'kafka-logstore[tls]'"),
    ):
        broker.listen(tls="generate")


# -- SCRAM credentials -----------------------------------------------------------------------

SHA_256, SHA_512 = 1, 2


def scram_users(client, *users):
    name = DescribeUserScramCredentialsRequest.UserName
    asked = DescribeUserScramCredentialsRequest(users=[name(name=each) for each in users] or None)
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        or name_of(each.error_code)
        for each in client.ask(asked, 0).results
    }


def alter_scram(client, deletions=(), upsertions=()):
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    asked = AlterUserScramCredentialsRequest(
        deletions=[deletion(name=name, mechanism=kind) for name, kind in deletions],
        upsertions=[
            upsertion(name=name, mechanism=kind, iterations=count, salt=b"s", salted_password=b"p")
            for name, kind, count in upsertions
        ],
    )
    return {each.user: name_of(each.error_code) for each in client.ask(asked, 0).results}


def test_scram_credentials_are_described_and_altered(client):
    log_in(client)
    both = [(SHA_256, 4096), (SHA_512, 4096)]
    assert scram_users(client) == {"admin": both, "ann": both}
    assert scram_users(client, "ann", "eve", "admin", "admin") == {
        "ann": both,
        "eve": "RESOURCE_NOT_FOUND",
        "admin": "DUPLICATE_RESOURCE",
    }
    assert alter_scram(client, [("ann", SHA_256)], [("eve", SHA_512, 8192)]) == {
        "ann": "NONE",
        "eve": "NONE",
    }
    assert scram_users(client) == {
        "admin": both,
        "ann": [(SHA_512, 4096)],
        "eve": [(SHA_512, 8192)],
    }


def test_brokers_of_a_cluster_share_credentials_without_authentication():
    with Cluster(2) as cluster, cluster.listen() as server:
        with Client(server[0]) as client:
            assert alter_scram(client, upsertions=[("ann", SHA_512, 4096)]) == {"ann": "NONE"}
        with Client(server[1]) as client:
            assert scram_users(client) == {"ann": [(SHA_512, 4096)]}


@pytest.mark.parametrize(
    ("deletions", "upsertions", "errors"),
    (
        ([("eve", 1)], [], {"eve": "RESOURCE_NOT_FOUND"}),
        ([("ann", 7)], [], {"ann": "UNSUPPORTED_SASL_MECHANISM"}),
        ([("", 1)], [], {"": "UNACCEPTABLE_CREDENTIAL"}),
        ([], [("eve", 1, 4095)], {"eve": "UNACCEPTABLE_CREDENTIAL"}),
        ([], [("eve", 1, 16385)], {"eve": "UNACCEPTABLE_CREDENTIAL"}),
        ([], [("eve", 0, 4096)], {"eve": "UNSUPPORTED_SASL_MECHANISM"}),
        ([("ann", 1)], [("ann", 1, 4096)], {"ann": "DUPLICATE_RESOURCE"}),
        # one that is wrong is the end of all for the user, and of nothing for others
        (
            [("admin", 1)],
            [("ann", 1, 4096), ("ann", 2, 1)],
            {"admin": "NONE", "ann": "UNACCEPTABLE_CREDENTIAL"},
        ),
    ),
)
def test_scram_credentials_that_are_refused(client, deletions, upsertions, errors):
    log_in(client)
    assert alter_scram(client, deletions, upsertions) == errors
    assert scram_users(client)["ann"] == [(SHA_256, 4096), (SHA_512, 4096)]


# -- ACLs ------------------------------------------------------------------------------------


@pytest.fixture
def authorizer():
    return Authorizer(
        [Acl("User:ann", "describe", "topic", "t"), Acl("User:ann", "describe", "cluster")],
        super_users=["User:admin"],
    )


@pytest.fixture
def guarded(broker, authorizer):
    with broker.listen(sasl=USERS, authorizer=authorizer) as listener:
        yield listener


def creation(**fields):
    return CreateAclsRequest.AclCreation(
        **{
            "resource_type": 2,
            "resource_name": "t",
            "resource_pattern_type": 4,
            "principal": "User:bob",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        | fields
    )


@pytest.mark.parametrize("version", (1, 2, 3))
def test_acls_are_created_described_and_deleted(guarded, authorizer, version):
    with Client(guarded) as admin:
        log_in(admin, "admin")
        made = admin.ask(CreateAclsRequest(creations=[creation()]), version)
        assert [each.error_code for each in made.results] == [0]
        new = Acl("User:bob", "read", "topic", "t", "prefixed")
        assert new in authorizer.acls()
        told = admin.ask(DescribeAclsRequest(**ANY_ACL | {"resource_type_filter": 2}), version)
        assert {
            (each.resource_name, each.pattern_type, acl.principal, acl.operation)
            for each in told.resources
            for acl in each.acls
        } == {("t", 3, "User:ann", 8), ("t", 4, "User:bob", 3)}
        wanted = DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL | {"principal_filter": "User:bob"})
        none = DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL | {"principal_filter": "User:eve"})
        gone, empty = admin.ask(DeleteAclsRequest(filters=[wanted, none]), version).filter_results
        (told,) = gone.matching_acls
        assert (told.resource_name, told.principal, told.host) == ("t", "User:bob", "*")
        assert (empty.error_code, empty.matching_acls) == (0, [])
        assert new not in authorizer.acls()


def test_an_acl_that_makes_no_sense_keeps_from_no_other(guarded, authorizer):
    with Client(guarded) as admin:
        log_in(admin, "admin")
        given = [
            creation(operation=0),
            creation(resource_type=4),
            creation(principal="bob"),
            creation(resource_name=""),
            creation(),
        ]
        results = admin.ask(CreateAclsRequest(creations=given), 3).results
        errors = [name_of(each.error_code) for each in results]
        assert errors == ["INVALID_REQUEST"] * 4 + ["NONE"]
        assert (
            results[1].error_message
            == "the name of a CLUSTER resource must be kafka-cluster, not t"
        )
        assert len(authorizer.acls()) == 3
        unknown = ANY_ACL | {"operation": 99}
        answer = admin.ask(DescribeAclsRequest(**unknown), 3)
        assert name_of(answer.error_code) == "INVALID_REQUEST"
        wrong = DeleteAclsRequest.DeleteAclsFilter(**unknown)
        (result,) = admin.ask(DeleteAclsRequest(filters=[wrong]), 3).filter_results
        assert name_of(result.error_code) == "INVALID_REQUEST"


def test_acls_need_permission_to_alter_the_cluster(guarded, authorizer):
    before = authorizer.acls()
    with Client(guarded) as ann:
        log_in(ann)
        assert len(ann.ask(DescribeAclsRequest(**ANY_ACL), 3).resources) == 2
        (made,) = ann.ask(CreateAclsRequest(creations=[creation()]), 3).results
        wanted = DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL)
        (gone,) = ann.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results
        errors = {name_of(made.error_code), name_of(gone.error_code)}
        assert errors == {"CLUSTER_AUTHORIZATION_FAILED"}
        assert set(alter_scram(ann, upsertions=[("eve", 1, 4096)]).values()) == errors
    assert authorizer.acls() == before


def test_without_an_authorizer_there_are_no_acls(client):
    log_in(client)
    answer = client.ask(DescribeAclsRequest(**ANY_ACL), 3)
    (made,) = client.ask(CreateAclsRequest(creations=[creation()]), 3).results
    wanted = DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL)
    (gone,) = client.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results
    codes = {answer.error_code, made.error_code, gone.error_code}
    assert {name_of(code) for code in codes} == {"SECURITY_DISABLED"}


def test_a_topic_that_may_not_be_seen_is_not_among_all(guarded):
    with Client(guarded) as ann:
        log_in(ann)
        every = ann.ask(MetadataRequest(topics=None), 9).topics
        assert [each.name for each in every] == ["t"]
        topic = MetadataRequest.MetadataRequestTopic
        asked = MetadataRequest(
            topics=[topic(name="hidden"), topic(name="t")], allow_auto_topic_creation=False
        )
        errors = {each.name: name_of(each.error_code) for each in ann.ask(asked, 9).topics}
        assert errors == {"hidden": "TOPIC_AUTHORIZATION_FAILED", "t": "NONE"}


def test_an_acl_is_in_force_for_connections_that_are_open(guarded, authorizer):
    with Client(guarded) as ann:
        log_in(ann)
        authorizer.add(Acl("User:ann", "describe", "topic", "hidden"))
        every = ann.ask(MetadataRequest(topics=None), 9).topics
        assert [each.name for each in every] == ["hidden", "t"]


def test_the_address_counts_where_an_acl_names_one(broker):
    here = Authorizer([Acl("User:*", "describe", "topic", "t", host="127.0.0.1")])
    elsewhere = Authorizer([Acl("User:*", "describe", "topic", "t", host="10.0.0.7")])
    for authorizer, names in ((here, ["t"]), (elsewhere, [])):
        with broker.listen(authorizer=authorizer) as listener, Client(listener) as client:
            assert [
                each.name for each in client.ask(MetadataRequest(topics=None), 9).topics
            ] == names


def test_loud_only_without_authentication(broker, caplog):
    try:
        socket.create_server(("0.0.0.0", 0)).close()
    except OSError:  # pragma: no cover
        pytest.skip("this machine lets nobody listen to others")
    broker.listen("0.0.0.0", sasl=USERS)
    assert not caplog.records
    broker.listen("0.0.0.0")
    assert "without authentication" in caplog.text
