"""Group members for tests that call the coordinator directly, and a broker for them."""

from __future__ import annotations

from logstore.broker import Broker
from logstore.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from logstore.coordinator.groups.requests import (
    ConsumerHeartbeat,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from logstore.runtime import MemoryFileSystem, VirtualClock
from tests.support.world.data_home import Home

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def wanting(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics))


class GroupBench:
    """A broker in virtual time that can be killed, with one partition for all groups."""

    def __init__(self, *, seed=1, clock=None, fs=None, **config):
        self.clock = VirtualClock() if clock is None else clock
        self.fs = MemoryFileSystem(self.clock) if fs is None else fs
        self.config = {"offsets.topic.num.partitions": 1} | config
        self.seed = seed
        self.open()

    def open(self):
        self.broker = Broker(
            "/data", fs=self.fs, clock=self.clock, broker_config=self.config, seed=self.seed
        )
        self.groups = self.broker.groups

    def kill(self):
        if self.groups.own_scheduler is not None:
            self.groups.own_scheduler.shutdown()
        Home.kill(self.broker.manager)

    def reopen(self):
        """End the process without a clean stop, and start another."""
        self.kill()
        self.seed += 1000
        self.open()

    def restart(self):
        self.broker.close()
        self.seed += 1000
        self.open()

    def member(self, group="g", **options) -> Client:
        return Client(self, group, **options)

    def state(self, group="g") -> str:
        return self.groups.describe(group).state


class Client:
    """A member's client: its last request and response."""

    def __init__(
        self,
        bench,
        group="g",
        *,
        topics=("t",),
        protocols=None,
        instance=None,
        client_id="c",
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        requires_member_id=False,
        can_skip_assignment=True,
        protocol_type="consumer",
    ):
        self.bench = bench
        self.group = group
        self.instance = instance
        self.protocols = (("range", wanting(*topics)),) if protocols is None else protocols
        self.options = {
            "session_timeout_ms": session_ms,
            "rebalance_timeout_ms": rebalance_ms,
            "client_id": client_id,
            "client_host": "/127.0.0.1",
            "requires_member_id": requires_member_id,
            "can_skip_assignment": can_skip_assignment,
        }
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation = -1
        self.joined = self.synced = None

    def join(self, **changes):
        """Send a join request; the response is in `joined` when it arrives."""
        self.joined = None
        request = JoinRequest(
            self.group,
            self.protocol_type,
            self.protocols,
            member_id=self.member_id,
            group_instance_id=self.instance,
            **self.options,
        )
        self.bench.groups.join(request._replace(**changes), self._on_joined)
        return self.joined

    def _on_joined(self, result):
        assert self.joined is None, "a callback is called once"
        self.joined = result
        if result.error is None or result.error == "MEMBER_ID_REQUIRED":
            self.member_id, self.generation = result.member_id, result.generation_id

    def sync(self, assignments=None, **changes):
        """Request the assignment; a leader assigns each member its own id by default."""
        self.synced = None
        if assignments is None and self.is_leader:
            assignments = {each.member_id: each.member_id.encode() for each in self.joined.members}
        request = SyncRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance,
            assignments=assignments or {},
        )
        self.bench.groups.sync(request._replace(**changes), self._on_synced)
        return self.synced

    def _on_synced(self, result):
        assert self.synced is None, "a callback is called once"
        self.synced = result

    @property
    def is_leader(self):
        return self.joined is not None and self.joined.leader == self.member_id

    def beat(self):
        return self.bench.groups.heartbeat(
            self.group, self.generation, self.member_id, self.instance
        )

    def leave(self):
        left = self.bench.groups.leave(self.group, [LeavingMember(self.member_id, self.instance)])
        return left.members[0].error

    def commit(self, offsets):
        return self.bench.groups.commit(
            self.group, offsets, self.generation, self.member_id, self.instance
        )


def settle(*clients):
    """Rejoin members as requested until all have their assignment."""
    for client in clients:
        client.join()
    for client in sorted(clients, key=lambda each: not each.is_leader):
        client.sync()
    assert [each.synced.error for each in clients] == [None] * len(clients)


class ConsumerClient:
    """A member of the consumer protocol (KIP-848): its epoch and its partitions by topic name."""

    def __init__(self, bench, member_id, group="g", *, topics=("t",), instance=None, **fields):
        self.bench = bench
        self.member_id = member_id
        self.group = group
        self.topics = topics
        self.instance = instance
        self.fields = fields
        self.epoch = 0
        self.owned = {}

    def send(self, **fields):
        """Send a heartbeat, and return its result."""
        request = {"member_id": self.member_id, "member_epoch": self.epoch} | fields
        request.setdefault("instance_id", self.instance)
        results = []
        heartbeat = ConsumerHeartbeat(self.group, **request)
        self.bench.groups.consumer_heartbeat(heartbeat, results.append)
        (result,) = results
        return result

    def take(self, result):
        """Take over the epoch and the assignment of a result."""
        if result.error is None:
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.owned = dict(result.assignment)
        return result

    def join(self, **fields):
        """Join the group without partitions."""
        self.epoch, self.owned = 0, {}
        first = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}}
        topics = {} if "regex" in self.fields else {"topics": self.topics}
        return self.take(self.send(**(first | topics | self.fields | fields)))

    def beat(self, **fields):
        """Send a heartbeat, and take over its result."""
        return self.take(self.send(**fields))

    def revoke(self, **fields):
        """Report the partitions that the member has."""
        return self.beat(owned=self.owned, **fields)

    def leave(self, epoch=-1):
        """Leave the group."""
        return self.send(member_epoch=epoch)

    @property
    def partitions(self):
        """The partitions that the member has, as `t0`."""
        topics = self.bench.groups._topics.current
        return sorted(
            f"{topics.of_id(topic_id).name}{number}"
            for topic_id, numbers in self.owned.items()
            for number in numbers
        )
