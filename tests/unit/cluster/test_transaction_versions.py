"""Transactions of both versions in a cluster: a broker fails before, at and after the end."""

import pytest

from logstore import Cluster, VirtualClock
from logstore.cluster.coordination import ClusterHost
from logstore.cluster.replicas import Replicas
from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.transactions.produce import append_as_client
from logstore.coordinator.transactions.state import TransactionVersion
from logstore.errors import LogStoreError
from tests.unit.cluster.test_coordinators import CONFIG, Client, T, values

V0, V2 = TransactionVersion.V0, TransactionVersion.V2


class VersionedClient(Client):
    """A client that may change its version between transactions."""

    version = V2

    def add(self, *partitions):
        if self.version is V0:
            super().add(*partitions)

    def send(self, tp, value):
        if self.version is V0:
            super().send(tp, value)
            return
        batch = self.batch(tp, value)

        def append(broker):
            return append_as_client(
                broker.manager, broker.coordinator, tp, batch, self.id, adds=True
            )

        self.retry(
            lambda: self.cluster._produce(tp, append, lambda info: info.last_offset, "all", 30_000)
        )

    def send_offset(self, offset):
        if self.version is V0:
            super().send_offset(offset)
            return
        part = self.retry(lambda: self.groups.partition_for(self.group_id))

        def commit():
            with self.coordinator.verified(part, self.producer, self.id, adds=True):
                offsets = {T[0]: OffsetAndMetadata(offset, "")}
                wait = self.groups.append_transactional(self.group_id, offsets, self.producer)
            wait()

        self.retry(commit)

    def end(self, *, commit=True):
        producer = self.retry(
            lambda: self.coordinator.end_transaction(
                self.id, self.producer, commit=commit, version=self.version
            )
        )
        if producer != self.producer:
            self.producer = producer
            self.sequences = dict.fromkeys(T, 0)


def transact(cluster, client, number, *, commit):
    """Run one transaction on three partitions and a group."""
    value = b"%d" % number
    client.add(*T)
    for tp in T:
        client.send(tp, value)
    client.send_offset(number)
    client.end(commit=commit)


VERSIONS = ((V0, V0, V0), (V2, V2, V2), (V0, V2, V0), (V2, V0, V2))
VICTIMS = ("transaction", "group", "data")


@pytest.mark.parametrize("stride", (8, pytest.param(1, marks=pytest.mark.long)))
@pytest.mark.parametrize("versions", VERSIONS)
@pytest.mark.parametrize("commit", (True, False))
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_transaction_is_whole_although_a_broker_is_killed_at_one_of_its_waits(
    monkeypatch, victim, commit, versions, stride
):
    """At each wait for replicas, and before and after each leader writes markers.

    The waits are after `Ongoing`, the decision, and the completion. The client repeats its calls at
    the next coordinator, also an end that was decided. Unless the test is `long`, each case tries
    every eighth wait, and different cases try different waits.
    """
    await_replicated, on_markers = ClusterHost.await_replicated, Replicas.on_markers
    waits = -1
    first = (VERSIONS.index(versions) + VICTIMS.index(victim) + commit) % stride
    for kill_at in range(first, 40, stride):
        with Cluster(clock=VirtualClock(), broker_config=CONFIG, seed=kill_at) as cluster:
            cluster.create_topic("t", 3, replication_factor=3)
            client = VersionedClient(cluster)
            client.init()
            first = client.producer
            client.version = versions[0]
            transact(cluster, client, 1, commit=True)
            waits = -1

            def kill(cluster=cluster, kill_at=kill_at):
                nonlocal waits
                waits += 1
                if waits == kill_at:
                    cluster.kill(
                        {
                            "transaction": cluster.transaction_coordinator("x"),
                            "group": cluster.group_coordinator("g"),
                            "data": cluster.leader("t", 2),
                        }[victim]
                    )

            def kill_and_wait(host, written, kill=kill):
                kill()
                return await_replicated(host, written)

            def kill_at_markers(replicas, *request, kill=kill):
                kill()
                on_markers(replicas, *request)
                kill()

            client.version = versions[1]
            with monkeypatch.context() as patch:
                patch.setattr(ClusterHost, "await_replicated", kill_and_wait)
                patch.setattr(Replicas, "on_markers", kill_at_markers)
                transact(cluster, client, 2, commit=commit)
            for broker in [each for each in range(3) if each not in cluster.brokers]:
                cluster.restart(broker)
            cluster.clock.advance(minutes=1)
            metadata = client.retry(lambda client=client: client.coordinator.describe("x"))
            name = "CompleteCommit" if commit else "CompleteAbort"
            assert metadata.state.kafka_name == name, kill_at
            expected = [b"1", b"2"] if commit else [b"1"]
            assert [values(cluster, tp) for tp in T] == [expected] * 3, kill_at
            assert client.committed() == (2 if commit else 1)
            client.version = versions[2]
            transact(cluster, client, 3, commit=True)
            assert client.committed() == 3
            moves = sum(version is V2 for version in versions)
            assert client.producer == (first.producer_id, first.producer_epoch + moves)
            if waits < kill_at:
                break
    assert waits >= 8


def test_a_batch_of_the_last_transaction_opens_none_at_the_next_coordinator():
    with Cluster(clock=VirtualClock(), broker_config=CONFIG, seed=1) as cluster:
        cluster.create_topic("t", 3, replication_factor=3)
        client = VersionedClient(cluster)
        client.init()
        former = client.producer
        transact(cluster, client, 1, commit=True)
        cluster.kill(cluster.transaction_coordinator("x"))
        following, client.producer = client.producer, former
        client.sequences = dict.fromkeys(T, 1)
        with pytest.raises(LogStoreError) as caught:
            client.send(T[1], b"late")
        assert caught.value.kafka_error == "INVALID_PRODUCER_EPOCH"
        client.producer, client.sequences = following, dict.fromkeys(T, 0)
        transact(cluster, client, 2, commit=True)
        assert client.committed() == 2
