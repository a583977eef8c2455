"""`logstore serve`: prints its address, serves, and stops on a signal."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from contextlib import contextmanager

import confluent_kafka
import pytest
import trustme

from logstore import Acl, Authorizer, Broker
from logstore.cli import listener_options
from logstore.messages.types import (
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from logstore.security import sasl
from tests.support.world.builders import batch
from tests.support.world.wire import Client, Listening, fetch_of, name_of

TIMEOUT_S = 100
"""Maximum wait of a test; a passing test never waits this long."""

PROGRAM = [sys.executable, "-m", "logstore", "serve", "--listen", "127.0.0.1:0"]


@contextmanager
def serving(*arguments, **variables):
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOGSTORE_VERIFY": "0", **variables},
        # The suite may run in the background, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process, Listening(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def produce_of(topic, partition=0):
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch(0))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


@pytest.mark.parametrize(
    ("number", "code"), ((signal.SIGTERM, 0), (signal.SIGINT, 130)), ids=("term", "ctrl-c")
)
def test_it_serves_a_data_directory_until_it_is_stopped(tmp_path, number, code):
    topics = ("--topic", "users:3:cleanup.policy=compact:segment.ms=1d", "--topic", "plain")
    with serving("--data-dir", tmp_path / "data", *topics) as (process, address):
        with Client(address) as client:
            answer = client.ask(MetadataRequest(topics=None), 9)
            found = {topic.name: len(topic.partitions) for topic in answer.topics}
            assert found == {"users": 3, "plain": 1}
            assert client.ask(produce_of("plain"), 9).responses[0].partition_responses[0]
        process.send_signal(number)
        output, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, output, errors.strip()) == (code, "", "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Broker(tmp_path / "data", read_only=True) as broker:
        assert [record.value for record in broker.read("plain")] == [b"v0"]
        configs = {"cleanup.policy": "compact", "segment.ms": "86400000"}
        assert dict(broker.topic("users").configs) == configs
    with serving("--data-dir", tmp_path / "data", *topics) as (process, address):
        with Client(address) as client:
            client.ask(MetadataRequest(topics=None), 9)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert "topic users already exists with 3 partitions" in errors
        assert process.returncode == 0


TAKES_A_SIGNAL = """
import signal, sys, threading
from logstore.cli.entry import main

def take():
    sys.stdin.readline()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=take, daemon=True).start()
sys.argv = ["logstore", "serve", "--memory", "--listen", "127.0.0.1:0"]
main()
"""


def test_a_signal_that_another_thread_takes_stops_it():
    """The system may deliver it to any thread, and does when the main one is about to wait."""
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_A_SIGNAL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("127.0.0.1:")
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_in_memory_it_leaves_no_files(tmp_path):
    with serving("--memory", "--data-dir", tmp_path / "data") as (process, address):
        with Client(address) as client:
            topics = [MetadataRequest.MetadataRequestTopic(name="new")]
            assert client.ask(MetadataRequest(topics=topics), 9).topics[0].error_code == 0
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert list(tmp_path.iterdir()) == []


# -- authentication and authorization --------------------------------------------------------


def test_a_common_client_logs_in_over_tls_and_uses_its_permissions(tmp_path):
    users, ca_path = tmp_path / "users", tmp_path / "ca.pem"
    users.write_text("# who\nann=pass=word with a blank \n\nbob=ü\nroot=r\n", encoding="utf-8")
    options = ("--memory", "--topic", "orders-1", "--topic", "secret", "--sasl-users", users)
    options += ("--sasl-mechanism", "SCRAM-SHA-256", "--tls-generate", ca_path)
    options += ("--acl", "User:ann write topic:orders- prefixed", "--acl", "User:bob all topic:*")
    options += ("--acl", "User:bob describe cluster", "--acl", "deny User:* read topic:secret")
    options += ("--super-user", "User:root")
    with serving(*options) as (process, address):

        def client(kind, user, password, **more):
            return kind(
                {
                    "bootstrap.servers": address.bootstrap,
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(ca_path),
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.username": user,
                    "sasl.password": password,
                    "log_level": 0,
                    **more,
                }
            )

        def sent(topic, user, password):
            producer = client(confluent_kafka.Producer, user, password)
            heard = []
            producer.produce(topic, b"v", on_delivery=lambda error, _: heard.append(error))
            assert producer.flush(TIMEOUT_S) == 0
            return heard[0] and heard[0].name()

        assert sent("orders-1", "ann", "pass=word with a blank ") is None
        assert sent("secret", "ann", "pass=word with a blank ") == "TOPIC_AUTHORIZATION_FAILED"
        assert sent("secret", "bob", "ü") is None
        assert sent("secret", "root", "r") is None
        process.terminate()
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output) == (0, "")
    assert errors.strip() == f"note: clients must trust the certificate authority in {ca_path}"


def test_users_from_the_environment_and_a_custom_certificate(tmp_path):
    authority = trustme.CA()
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("localhost")
    chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    context = ssl.create_default_context()
    authority.configure_trust(context)
    options = ("--memory", "--tls-cert", chain, "--tls-key", key, "--sasl-mechanism", "PLAIN")
    with serving(*options, LOGSTORE_SASL_USERS="ann=secret") as (_, address):
        for password, error in ((b"wrong", 58), (b"secret", 0)):
            with Client(address) as client:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                told = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                assert told.mechanisms == ["PLAIN"]
                asked = SaslAuthenticateRequest(auth_bytes=b"\0ann\0" + password)
                assert client.ask(asked, 2).error_code == error
        with Client(address) as client:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.socket.sendall(client.frame(MetadataRequest(topics=None), 9))
            assert client.is_at_end(), "an unauthenticated client gets no response"


def test_the_mechanisms_of_the_option_are_all_that_there_are():
    assert listener_options.MECHANISMS == sasl.MECHANISMS


def test_acls_of_a_file(tmp_path):
    acls = tmp_path / "acls.json"
    acls.write_text(Authorizer([Acl("User:*", "describe", "topic", "open")]).to_json())
    options = ("--memory", "--topic", "open", "--topic", "closed", "--acls", acls)
    with serving(*options) as (process, address):
        with Client(address) as client:
            answer = client.ask(MetadataRequest(topics=None), 9)
            assert [topic.name for topic in answer.topics] == ["open"]
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert "no authentication: every client is User:ANONYMOUS" in errors


@pytest.mark.parametrize(
    ("users", "is_warned"), (((), True), (("--sasl-users",), False)), ids=("open", "users")
)
def test_beyond_loopback_without_users_it_warns(tmp_path, users, is_warned):
    file = tmp_path / "users"
    file.write_text("ann=secret\n")
    options = ("--memory", "--listen", "0.0.0.0:0", *(each for u in users for each in (u, file)))
    with serving(*options) as (process, address):
        assert address.bootstrap.startswith("0.0.0.0:")
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
    warning = "warning: the broker listens on 0.0.0.0:"
    assert errors.startswith(warning) is is_warned
    assert ("without authentication: anyone" in errors) is is_warned


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    (
        ("ann\n", ("--sasl-users", "FILE"), "FILE: line 1 is not NAME=PASSWORD"),
        ("# x\nann=\n", ("--sasl-users", "FILE"), "FILE: line 2 is not NAME=PASSWORD"),
        ("a=hush\na=b\n", ("--sasl-users", "FILE"), "FILE: line 2: duplicate user 'a'"),
        ("\n", ("--sasl-users", "FILE"), "FILE: no users"),
        ("", ("--sasl-mechanism", "PLAIN"), "requires --sasl-users or LOGSTORE_SASL_USERS"),
        ("x", ("--tls-cert", "FILE"), "cannot serve TLS with FILE: "),
        ("x", ("--tls-key", "FILE"), "--tls-key requires --tls-cert"),
        (
            "x",
            ("--tls-cert", "FILE", "--tls-generate", "FILE"),
            "excludes --tls-cert and --tls-key",
        ),
        ("x", ("--acls", "FILE"), "FILE: the ACLs are not valid JSON"),
        ("", ("--acl", "User:a read"), "is not [deny] PRINCIPAL OPERATION TYPE:NAME [prefixed]"),
        ("", ("--acl", "User:a reed topic:t"), "'reed' is not one of"),
        ("", ("--acl", "ann read topic:t"), "principal 'ann' has no type"),
        ("", ("--acl", "User:a read topic"), "the TOPIC resource name is empty"),
        ("", ("--super-user", "root"), "root"),
    ),
)
def test_an_invalid_listener_is_refused_by_name(run, tmp_path, text, arguments, message):
    file = tmp_path / "file"
    file.write_text(text)
    given = [str(file) if each == "FILE" else each for each in arguments]
    outcome = run("serve", "--memory", "--listen", "127.0.0.1:0", *given, code=2)
    assert message.replace("FILE", str(file)) in " ".join(outcome.stderr.split())
    assert "hush" not in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--listen", "nowhere"), "'nowhere' is not HOST:PORT"),
        (("--listen", "127.0.0.1:0", "--topic", "t:0"), "is not NAME:PARTITIONS:K=V"),
        (("--listen", "127.0.0.1:0", "--topic", "t:x"), "is not NAME:PARTITIONS:K=V"),
        (("--listen", "127.0.0.1:0", "--topic", "t:1:key"), "'key' is not KEY=VALUE"),
        (("--listen", "no.such.host.invalid:0"), "cannot listen on no.such.host.invalid:0"),
        (("--listen", "127.0.0.1:0", "--topic", "t:1:no.such=1"), "unknown topic configuration"),
        (("--schema", "7=no-such.avsc"), "no-such.avsc: no such file"),
    ),
)
def test_options_that_cannot_be_served_are_refused_by_name(run, arguments, message):
    outcome = run("serve", "--memory", *arguments, code=2)
    assert message in outcome.stderr
    assert outcome.stdout == ""


def test_schemas_need_the_page(run, tmp_path):
    (tmp_path / "7.avsc").write_text('"long"')
    outcome = run("serve", "--memory", "--schema", tmp_path, code=2)
    assert "--schema decodes values on the page: it needs --ui" in outcome.stderr


def test_it_serves_several_brokers_that_replicate(tmp_path):
    options = ("--brokers", 3, "--topic", "users:2:min.insync.replicas=2")
    with serving("--data-dir", tmp_path / "data", *options) as (process, addresses):
        listening = [Listening(each) for each in addresses.bootstrap.split(",")]
        assert len(listening) == 3
        for each in listening:
            with Client(each) as client:
                answer = client.ask(MetadataRequest(topics=None), 9)
            (users,) = answer.topics
            assert len(answer.brokers) == 3
            assert [len(partition.replica_nodes) for partition in users.partitions] == [3, 3]
        with Client(listening[0]) as client:
            answer = client.ask(produce_of("users"), 9).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
            answer = client.ask(produce_of("users", 1), 9).responses[0].partition_responses[0]
            assert name_of(answer.error_code) == "NOT_LEADER_OR_FOLLOWER"
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        *(f"broker-{number}" for number in range(3)),
        "controller",
    ]
    with serving("--data-dir", tmp_path / "data", *options) as (process, addresses):
        leader = Listening(addresses.bootstrap.split(",")[0])
        with Client(leader) as client:
            found = client.ask(fetch_of("users", 0), 11).responses[0].partitions[0]
            assert found.high_watermark == 1
        process.terminate()
        assert "topic users already exists" in process.communicate(timeout=60)[1]
    with Broker(tmp_path / "one"):
        pass
    refused = subprocess.run(
        [*PROGRAM, "--data-dir", tmp_path / "one", "--brokers", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "is the data directory of one broker" in refused.stderr
