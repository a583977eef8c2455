"""Clients that people use, unchanged: they log in, share, transact, are denied."""

import asyncio
import ssl
from contextlib import closing

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from aiokafka.errors import TopicAuthorizationFailedError as AioTopicDenied
from kafka.admin import ACL as KafkaAcl
from kafka.admin import ACLFilter as KafkaAclFilter
from kafka.admin import ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)

from logstore import Acl, Authorizer, Broker
from logstore.security.sasl import MECHANISMS

TIMEOUT_S = 30
USERS = {"ann": "secret", "bob": "b", "admin": "root"}
ACLS = (
    Acl("User:ann", "all", "topic", "t"),
    Acl("User:ann", "all", "group", "*"),
    Acl("User:ann", "all", "transactional_id", "*"),
    Acl("User:bob", "read", "topic", "t"),
)


@pytest.fixture
def broker():
    with Broker(broker_config={"offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
def authorizer():
    return Authorizer(ACLS, super_users=["User:admin"])


def settings(listener, mechanism, user="ann", password=None):
    """Return the login settings of a kafka-python client."""
    encrypted = listener.ca_path is not None
    found = {
        "bootstrap_servers": listener.bootstrap,
        "security_protocol": "SASL_SSL" if encrypted else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": USERS[user] if password is None else password,
    }
    return found | ({"ssl_cafile": listener.ca_path} if encrypted else {})


def settings_of_aiokafka(listener, mechanism, user="ann"):
    found = settings(listener, mechanism, user)
    path = found.pop("ssl_cafile", None)
    if path is not None:
        found["ssl_context"] = ssl.create_default_context(cafile=path)
    return found


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


# -- logging in ------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("encrypted", (False, True))
def test_kafka_python_logs_in(broker, authorizer, mechanism, encrypted):
    tls = "generate" if encrypted else None
    with broker.listen(sasl=USERS, authorizer=authorizer, tls=tls) as listener:
        with closing(kafka.KafkaProducer(**settings(listener, mechanism))) as producer:
            producer.send("t", b"v", partition=0).get(TIMEOUT_S)
        options = settings(listener, mechanism, "bob") | {"enable_idempotence": False}
        denied = kafka.KafkaProducer(**options)
        with closing(denied), pytest.raises(TopicAuthorizationFailedError):
            denied.send("t", b"v", partition=0).get(TIMEOUT_S)
    assert [record.value for record in broker.read("t")] == [b"v"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("encrypted", (False, True))
def test_aiokafka_logs_in(broker, authorizer, mechanism, encrypted):
    async def work(listener):
        options = settings_of_aiokafka(listener, mechanism)
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
        options |= {"group_id": "g", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer("t", **options) as consumer:
            assert (await consumer.getone()).value == b"v"
        denied = settings_of_aiokafka(listener, mechanism, "bob")
        async with AIOKafkaProducer(**denied) as producer:
            with pytest.raises(AioTopicDenied):
                await producer.send_and_wait("t", b"v", partition=0)

    tls = "generate" if encrypted else None
    with broker.listen(sasl=USERS, authorizer=authorizer, tls=tls) as listener:
        run(work(listener))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_fails_with_a_wrong_password(broker, mechanism, caplog):
    """It tries again and again, and finds each time the answer before the end."""
    options = {"bootstrap_timeout_ms": 500}
    with broker.listen(sasl=USERS) as listener, pytest.raises(KafkaTimeoutError):
        kafka.KafkaAdminClient(**settings(listener, mechanism, password="wrong"), **options)
    assert "SaslAuthenticationFailedError: wrong user or password" in caplog.text
    assert "socket disconnected" not in caplog.text


# -- ACLs ------------------------------------------------------------------------------------


def test_kafka_python_manages_acls(broker, authorizer):
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    new = KafkaAcl("User:bob", "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, pattern)
    bobs = KafkaAclFilter("User:bob", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    with broker.listen(sasl=USERS, authorizer=authorizer) as listener:
        with closing(kafka.KafkaAdminClient(**settings(listener, "PLAIN", "admin"))) as admin:
            admin.create_acls([new])
            assert Acl("User:bob", "write", "topic", "t") in authorizer.acls()
            found = admin.describe_acls(bobs)
            found = found[0] if isinstance(found, tuple) else found
            assert {each.operation for each in found} == {ACLOperation.READ, ACLOperation.WRITE}
            admin.delete_acls([bobs])
        assert {each.principal for each in authorizer.acls()} == {"User:ann"}


# -- groups ----------------------------------------------------------------------------------


class Shares(ConsumerRebalanceListener):
    """Records a member's assignment."""

    def __init__(self):
        self.now = set()

    def on_partitions_revoked(self, revoked):
        self.now = set()

    def on_partitions_assigned(self, assigned):
        self.now = set(assigned)


def test_aiokafka_members_share_and_take_over(broker):
    both = {AioPartition("t", 0), AioPartition("t", 1)}

    async def until(condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def work(listener):
        options = {
            "bootstrap_servers": listener.bootstrap,
            "group_id": "g",
            "heartbeat_interval_ms": 50,
            "auto_offset_reset": "earliest",
        }
        shares = Shares(), Shares()
        first, second = (AIOKafkaConsumer(**options) for _ in shares)
        async with first:
            first.subscribe(["t"], listener=shares[0])
            await until(lambda: shares[0].now == both)
            async with second:
                second.subscribe(["t"], listener=shares[1])
                await until(lambda: len(shares[0].now) == len(shares[1].now) == 1)
                assert shares[0].now | shares[1].now == both
                assert broker.groups.describe("g").state == "Stable"
            await until(lambda: shares[0].now == both)
        assert broker.groups.describe("g").state == "Empty"

    with broker.listen() as listener:
        run(work(listener))


def test_a_static_member_of_kafka_python_restarts_without_a_rebalance(broker):
    broker.append("t", value=b"v", partition=0)
    with broker.listen() as listener:

        def read():
            consumer = kafka.KafkaConsumer(
                "t",
                bootstrap_servers=listener.bootstrap,
                group_id="g",
                group_instance_id="one",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                consumer_timeout_ms=TIMEOUT_S * 1000,
            )
            with closing(consumer):
                assert next(iter(consumer)).value == b"v"
                return broker.groups.describe("g").members[0].member_id

        assert read() != read()  # the member is another one, and the group the same
        first, second = [each.body for each in listener.requests if each.api == "SyncGroup"][-2:]
    assert first.member_id != second.member_id
    assert first.generation_id == second.generation_id


# -- transactions ----------------------------------------------------------------------------


def test_aiokafka_reads_and_writes_exactly_once(broker):
    """Consume, transform, produce; an aborted attempt leaves neither records nor offsets."""
    broker.append_many("t", [(None, b"%d" % n) for n in range(5)], partition=0)
    source, target = AioPartition("t", 0), 1

    async def attempt(listener, *, commit):
        options = {"bootstrap_servers": listener.bootstrap}
        consumer = AIOKafkaConsumer(
            **options, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest"
        )
        producer = AIOKafkaProducer(**options, transactional_id="x")
        async with consumer, producer:
            consumer.assign([source])
            records = [await consumer.getone() for _ in range(5)]
            await producer.begin_transaction()
            for record in records:
                await producer.send("t", record.value * 2, partition=target)
            end = {source: records[-1].offset + 1}
            await producer.send_offsets_to_transaction(end, "g")
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            return await consumer.committed(source)

    def written():
        return [each.value for each in broker.read("t", target, isolation="read_committed")]

    with broker.listen() as listener:
        assert run(attempt(listener, commit=False)) is None
        assert written() == []
        assert run(attempt(listener, commit=True)) == 5
    assert written() == [b"00", b"11", b"22", b"33", b"44"]


def test_a_transactional_producer_of_aiokafka_is_fenced_by_its_successor(broker):
    async def work(listener):
        options = {"bootstrap_servers": listener.bootstrap, "transactional_id": "x"}
        async with AIOKafkaProducer(**options) as old:
            await old.begin_transaction()
            await old.send_and_wait("t", b"old", partition=0)
            async with AIOKafkaProducer(**options) as new:
                async with new.transaction():
                    await new.send_and_wait("t", b"new", partition=0)
                with pytest.raises(ProducerFenced):
                    await old.commit_transaction()

    with broker.listen() as listener:
        run(work(listener))
    found = [each.value for each in broker.read("t", 0, isolation="read_committed")]
    assert found == [b"new"]


def test_kafka_python_reports_a_missing_permission_to_alter_the_cluster(broker, authorizer):
    new = KafkaAcl(
        "User:ann",
        "*",
        ACLOperation.ALL,
        ACLPermissionType.ALLOW,
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
    )
    with broker.listen(sasl=USERS, authorizer=authorizer) as listener:
        with closing(kafka.KafkaAdminClient(**settings(listener, "PLAIN"))) as admin:
            try:
                told = str(admin.create_acls([new]))
            except ClusterAuthorizationFailedError as error:
                told = repr(error)
        assert "ClusterAuthorizationFailed" in told
    assert len(authorizer.acls()) == len(ACLS)
