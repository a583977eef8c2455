"""Random histories of a consumer group: members join, revoke slowly, lose answers, leave and crash.

The rules and the memberships are tested as they are. Timers, topics and storage are small models,
so that a history takes milliseconds. Every record is encoded and decoded. Each client acts on the
answers that it received. Some answers get lost, some clients are silent, and another coordinator
loads the records.
"""

from __future__ import annotations

import heapq
import itertools
import random

from logstore.config.broker_config import BrokerConfig
from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.cluster_topics import ClusterTopics, TopicInfo
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_membership import ConsumerMembership
from logstore.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logstore.coordinator.groups.consumer_rules import GroupSettings, MigrationPolicy
from logstore.coordinator.groups.group import Group, GroupState
from logstore.coordinator.groups.membership import ClassicMembership
from logstore.coordinator.groups.migration import must_rejoin
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata
from logstore.coordinator.groups.records import decode_group, encode_group_key
from logstore.coordinator.groups.requests import (
    ConsumerHeartbeat,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from logstore.coordinator.groups.server_assignors import SERVER_ASSIGNORS
from logstore.runtime.patterns import compile_pattern
from logstore.types import TopicPartition, encode_topic_id
from tests.support.world.transcripts import Transcript

FEW = 200
DETAILED_SEEDS = 80
"""Seeds whose transcripts have the state of the group after each step."""

GROUP = "g"
NAMES = ("a", "b", "c", "d")
PATTERNS = ("a|b", "[b-d]", ".*", "x+")
NS = 1_000_000
REBALANCE_MS = 20_000
DISK_ERROR = "COORDINATOR_NOT_AVAILABLE"
FENCED = ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND")


JOINING = {"member_epoch": 0, "rebalance_timeout_ms": 1, "topics": ("a",), "owned": {}}
REFUSED = (
    {},
    {"member_id": ""},
    {"member_id": " ", "requires_member_id": False},
    {"member_id": "nobody"},
    {"instance_id": ""},
    {"instance_id": "x"},
    {"instance_id": "nothing"},
    {"instance_id": "x", "member_epoch": -2},
    {"instance_id": "x", "member_epoch": -1, "member_id": "nobody"},
    {"member_id": "nobody", "member_epoch": -1},
    {"member_epoch": -2},
    {"member_epoch": -3},
    {"rack_id": " "},
    {"assignor": "sticky"},
    JOINING | {"rebalance_timeout_ms": -1},
    JOINING | {"owned": None},
    JOINING | {"owned": {"a": [1]}},
    JOINING | {"topics": None},
    JOINING | {"member_id": "nobody", "regex": "["},
    JOINING | {"member_id": "nobody", "instance_id": "y"},
)
"""Fields of requests that are refused, almost always."""


class Timers:
    """Timers on a clock that only the test moves; it is the wall clock too."""

    def __init__(self, transcript):
        self.transcript = transcript
        self.ns = 10**15
        self.queue = []
        self.numbers = itertools.count()

    def now_ns(self):
        return self.ns

    def now_ms(self):
        return self.ns // NS

    def after(self, delay_ms, name, action):
        self.at(self.ns + delay_ms * NS, name, action)

    def at(self, due_ns, name, action):
        self.transcript.note(self.ns, "timer", name, due_ns)
        heapq.heappush(self.queue, (due_ns, next(self.numbers), action))

    def advance(self, ms, settle):
        end = self.ns + ms * NS
        while self.queue and self.queue[0][0] <= end:
            due_ns, _, action = heapq.heappop(self.queue)
            self.ns = max(self.ns, due_ns)
            action()
            settle()
        self.ns = end


class Coordinator:
    """The coordinator of one group, which writes to a log of encoded records."""

    read_only = False

    def __init__(self, history, log):
        self.history = history
        self.transcript = history.transcript
        self.timers = history.timers
        self.log = log
        self.replies = []
        self.group = None
        config = BrokerConfig(group_initial_rebalance_delay_ms=0)
        rng = history.rng
        self.classic = ClassicMembership(
            config, self.timers, self.timers, rng, self.reply, self.save_group
        )
        self.consumers = ConsumerMembership(
            self.timers,
            self.timers,
            rng,
            self,
            self,
            self.classic,
            self.put,
            lambda _: history.settings,
            self.reply,
        )
        self.load()

    @property
    def current(self):
        return self.history.topics

    def put(self, group):
        self.group = group

    def reply(self, on_done, result):
        self.transcript.note(self.timers.ns, "reply", result)
        self.replies.append((on_done, result))

    def settle(self):
        """Deliver the answers."""
        while self.replies:
            on_done, result = self.replies.pop(0)
            on_done(result)

    def disk_error(self):
        """Return the error of a write while the disk fails."""
        history = self.history
        is_failing = self.timers.ns < history.disk_fails_until and not history.is_calm
        return self.noted("disk", DISK_ERROR) if is_failing else None

    def save_group(self, group, assignments):
        if (error := self.disk_error()) is not None:
            return error
        key, value = consumer_records.encode(
            (consumer_records.GroupMetadataKey(group=GROUP), group.to_record(assignments))
        )
        self.transcript.note("group", key, value)
        assert key == encode_group_key(GROUP)
        self.log[key] = value
        return None

    def save_records(self, group_id, records):
        assert group_id == GROUP
        if (error := self.disk_error()) is not None:
            return error
        for record in records:
            key, value = consumer_records.encode(record)
            self.transcript.note("record", key, value)
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
        return None

    def load(self):
        """Load the group from its newest records, as after a compaction."""
        log = dict(self.log)
        stored = log.pop(encode_group_key(GROUP), None)
        assert stored is None or not log, "records of both protocols"
        if stored is not None:
            self.group = Group.from_record(GROUP, decode_group(stored))
            self.classic.resume(self.group)
        elif log:
            self.group = ConsumerGroup(GROUP)
            self.group.apply(consumer_records.decode(*record) for record in log.items())
            self.consumers.resume(self.group)

    # -- requests, as GroupCoordinator routes them ---------------------------------------------

    def heartbeat(self, request, on_done):
        self.consumers.heartbeat(self.group, request, on_done)

    def join(self, request, on_done):
        if isinstance(self.group, ConsumerGroup) and not self.group.members:
            if (error := self.save_records(GROUP, self.group.deletion())) is not None:
                return self.noted("join", error)
            self.group = None
        if isinstance(self.group, ConsumerGroup):
            error = self.consumers.join(self.group, request, on_done)
        elif self.group is None and request.member_id:
            error = "UNKNOWN_MEMBER_ID"
        else:
            self.group = self.group or Group(GROUP)
            error = self.classic.join(self.group, request, on_done)
        return self.noted("join", error)

    def noted(self, name, errors):
        self.transcript.note(name, errors)
        return errors

    def sync(self, request, on_done):
        if self.group is None:
            return "UNKNOWN_MEMBER_ID"
        is_consumer = isinstance(self.group, ConsumerGroup)
        membership = self.consumers if is_consumer else self.classic
        return self.noted("sync", membership.sync(self.group, request, on_done))

    def classic_heartbeat(self, generation, member_id, instance):
        if self.group is None:
            return "UNKNOWN_MEMBER_ID"
        if isinstance(self.group, ConsumerGroup):
            beat = self.consumers.classic_heartbeat
        else:
            beat = self.classic.heartbeat
        return self.noted("heartbeat", beat(self.group, generation, member_id, instance))

    def classic_leave(self, member_id, instance):
        leaving = LeavingMember(member_id, instance)
        if isinstance(self.group, ConsumerGroup):
            self.noted("leave", self.consumers.leave(self.group, [leaving]))
        elif self.group is not None:
            self.noted("leave", self.classic.leave(self.group, leaving))


class Client:
    """A member's process. `owned` are the partitions that it reads, by topic id."""

    def __init__(self, history, number, instance=None):
        self.history = history
        self.rng = history.rng
        self.instance = instance
        self.member_id = f"m{number}"
        self.epoch = 0
        self.owned: dict[str, set[int]] = {}
        self.is_silent = False
        self.subscribe()

    def subscribe(self):
        self.names = frozenset(self.rng.sample(NAMES, self.rng.randint(0, 3)))
        self.regex = ""

    def may_own(self):
        """Return the names of the topics to which the client is subscribed."""
        matches = compile_pattern(self.regex) if self.regex else bool
        return self.names | {name for name in NAMES if self.regex and matches(name)}

    def take(self, assignment):
        """Own an assignment, all of which must be subscribed."""
        topics = self.history.topics
        self.owned = {topic_id: set(numbers) for topic_id, numbers in assignment.items() if numbers}
        known = filter(None, map(topics.of_id, self.owned))
        if not self.is_classic or self.home is self.history.coordinator.group:
            assert {topic.name for topic in known} <= self.may_own(), (self, assignment)


class Consumer(Client):
    """A client of the consumer protocol."""

    is_classic = False

    def __init__(self, history, number, instance=None):
        super().__init__(history, number, instance)
        self.assignor = self.rng.choice((None, None, *SERVER_ASSIGNORS))
        self.revoking_until = None
        self.wanted = None
        self.is_full = True
        self.is_new = False

    def subscribe(self):
        super().subscribe()
        if self.rng.random() < 0.3:
            self.regex = self.rng.choice(PATTERNS)
            if self.rng.random() < 0.7:
                self.names = frozenset()
        self.is_full = True

    def step(self):
        """Finish a revocation, and send a heartbeat whose answer may be lost."""
        if self.wanted is not None and self.timers_ns() >= self.revoking_until:
            self.owned = {
                topic_id: numbers & set(self.wanted.get(topic_id, ()))
                for topic_id, numbers in self.owned.items()
            }
            self.owned = {each: numbers for each, numbers in self.owned.items() if numbers}
            if self.epoch:
                self.take(self.wanted)
            self.wanted = None
            self.is_new = True
        is_full = self.is_full or self.epoch == 0
        sends_owned = is_full or self.is_new or self.rng.random() < 0.2
        self.is_new = False
        answer = self.send(
            ConsumerHeartbeat(
                GROUP,
                self.member_id,
                self.epoch,
                self.instance,
                None,
                REBALANCE_MS if is_full else -1,
                tuple(sorted(self.names)) if is_full else None,
                self.regex if is_full else None,
                self.assignor if is_full else None,
                {each: sorted(numbers) for each, numbers in self.owned.items()}
                if sends_owned
                else None,
            )
        )
        if self.history.loses(0.15):
            self.is_full = True  # the client asks for everything after an error
            return
        self.is_full = False
        if answer.error is None:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.reconcile(answer.assignment)
        elif answer.error in FENCED:
            self.start_anew()
        elif answer.error == DISK_ERROR:
            self.is_full = True
        else:
            assert answer.error in (
                "UNRELEASED_INSTANCE_ID",
                "FENCED_INSTANCE_ID",
                "GROUP_MAX_SIZE_REACHED",
            ), answer
            self.start_anew()

    def timers_ns(self):
        return self.history.timers.ns

    def reconcile(self, assignment):
        """Take an assignment; give up partitions first, which may take long."""
        loses = any(
            numbers - set(assignment.get(topic_id, ())) for topic_id, numbers in self.owned.items()
        )
        if loses or self.wanted is not None:
            self.wanted = assignment
            if self.revoking_until is None or self.timers_ns() >= self.revoking_until:
                slow_ms = 30_000 if self.rng.random() < 0.1 else self.rng.choice((0, 500, 5000))
                slow_ms = 0 if self.history.is_calm else slow_ms
                self.revoking_until = self.timers_ns() + slow_ms * NS
        else:
            self.take(assignment)
            self.is_new = True

    def start_anew(self):
        """Abandon all partitions and join again."""
        self.epoch = 0
        self.owned = {}
        self.wanted = None
        self.is_full = True

    def send(self, request):
        answers = []
        self.history.coordinator.heartbeat(request, answers.append)
        self.history.coordinator.settle()
        (answer,) = answers
        return answer

    def leave(self):
        epoch = -2 if self.instance is not None and self.rng.random() < 0.7 else -1
        self.send(ConsumerHeartbeat(GROUP, self.member_id, epoch, self.instance))
        self.owned = {}


class Classic(Client):
    """A client of the classic protocol, eager or cooperative."""

    is_classic = True

    def __init__(self, history, number, instance=None):
        super().__init__(history, number, instance)
        self.member_id = ""
        self.epoch = -1
        self.is_eager = self.rng.random() < 0.5
        self.phase = "joining"
        self.round = 0
        self.answer = None
        self.home = None  # the group of the last sync

    def subscribe(self):
        super().subscribe()
        self.phase = "joining"

    def step(self):
        getattr(self, f"when_{self.phase}")()

    def ask(self, send, request, phase):
        self.round += 1
        number = self.round
        self.answer = None

        def deliver(result):
            if number == self.round and not self.history.loses(0.05):
                self.answer = result

        error = send(request, deliver)
        self.history.coordinator.settle()
        if error is not None:
            self.fail(error)
        else:
            self.phase = phase

    def when_joining(self):
        if self.is_eager:
            self.owned = {}
        topics = self.history.topics
        named = [
            TopicPartition(topics.of_id(topic_id).name, number)
            for topic_id, numbers in self.owned.items()
            if topics.of_id(topic_id)
            for number in numbers
        ]
        subscription = Subscription(tuple(sorted(self.names)), None, tuple(named), self.epoch)
        request = JoinRequest(
            GROUP,
            "consumer",
            (("range", encode_subscription(subscription)),),
            10_000,
            REBALANCE_MS,
            self.member_id,
            self.instance,
            requires_member_id=False,
        )
        self.ask(self.history.coordinator.join, request, "joined")

    def when_joined(self):
        result = self.answer
        if result is None:
            if self.rng.random() < 0.2:
                self.phase = "joining"
            return
        if result.error is not None:
            self.fail(result.error)
            return
        self.member_id, self.epoch = result.member_id, result.generation_id
        assignments = {}
        if result.leader == result.member_id:
            assignments = self.assign(result.members)
        request = SyncRequest(
            GROUP, self.epoch, self.member_id, self.instance, "consumer", "range", assignments
        )
        self.ask(self.history.coordinator.sync, request, "synced")

    def assign(self, members):
        """Distribute partitions as the leader; none that another member reports as its own."""
        subscriptions = {each.member_id: decode_subscription(each.metadata) for each in members}
        owners = {tp: each for each, s in subscriptions.items() for tp in s.owned_partitions}
        shares = {each: [] for each in subscriptions}
        for name in sorted({name for s in subscriptions.values() for name in s.topics}):
            topic = self.history.topics.named(name)
            takers = [each for each, s in subscriptions.items() if name in s.topics]
            for number in () if topic is None else topic.partitions:
                tp = TopicPartition(name, number)
                taker = takers[number % len(takers)]
                if owners.get(tp, taker) == taker:
                    shares[taker].append(tp)
        return {each: encode_assignment(Assignment(tuple(s))) for each, s in shares.items()}

    def when_synced(self):
        result = self.answer
        if result is None:
            if self.rng.random() < 0.2:
                self.phase = "joining"
            return
        if result.error is not None:
            self.fail(result.error)
            return
        assignment: dict[str, set[int]] = {}
        for tp in decode_assignment(result.assignment).partitions:
            topic = self.history.topics.named(tp.topic)
            if topic is not None:
                assignment.setdefault(topic.topic_id, set()).add(tp.partition)
        has_lost = any(
            numbers - assignment.get(topic_id, set()) for topic_id, numbers in self.owned.items()
        )
        self.take(assignment)
        self.phase = "joining" if has_lost else "stable"
        self.home = self.history.coordinator.group

    def when_stable(self):
        error = self.history.coordinator.classic_heartbeat(
            self.epoch, self.member_id, self.instance
        )
        self.history.coordinator.settle()
        if error is not None:
            self.fail(error)

    def fail(self, error):
        self.phase = "joining"
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        if error not in ("REBALANCE_IN_PROGRESS", "NOT_COORDINATOR", DISK_ERROR):
            self.owned, self.epoch = {}, -1
            assert error in (
                "UNKNOWN_MEMBER_ID",
                "ILLEGAL_GENERATION",
                "FENCED_INSTANCE_ID",
                "INCONSISTENT_GROUP_PROTOCOL",
                "GROUP_MAX_SIZE_REACHED",
            ), error
            if error == "FENCED_INSTANCE_ID":
                self.member_id = ""

    def leave(self):
        if self.member_id:
            self.history.coordinator.classic_leave(self.member_id, self.instance)
            self.history.coordinator.settle()
        self.owned = {}


class History:
    """One group, its members, topics and clock, as a seed has them."""

    def __init__(self, seed, *, classic=None):
        self.seed = seed
        self.rng = random.Random(seed)
        self.transcript = Transcript()
        self.timers = Timers(self.transcript)
        self.topics = ClusterTopics()
        self.has_classic = self.rng.random() < 0.4 if classic is None else classic
        self.settings = GroupSettings(
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            max_size=self.rng.choice((3, 100)),
            migration=self.rng.choice(tuple(MigrationPolicy)),
            assignment_interval_ms=self.rng.choice((0, 1000, 5000)),
            classic_max_size=self.rng.choice((2, 100)),
            assignors=self.rng.choice((("uniform", "range"), ("range", "uniform"))),
            regex_refresh_interval_ms=self.rng.choice((15_000, 600_000)),
        )
        self.is_calm = False
        self.disk_fails_until = 0
        self.numbers = itertools.count()
        self.clients: list[Client] = []
        self.log: dict[bytes, bytes] = {}
        for name in NAMES[:2]:
            self.create_topic(name)
        self.coordinator = Coordinator(self, self.log)

    def loses(self, chance):
        """Return whether an answer gets lost."""
        return not self.is_calm and self.rng.random() < chance

    # -- the history ---------------------------------------------------------------------------

    def live(self, steps=40):
        """Live a random life, come to rest, and check that the group converges."""
        for number in range(steps):
            self.rng.choice(ACTIONS)(self)
            for client in self.clients:
                if not client.is_silent and self.rng.random() < 0.8:
                    client.step()
                    self.check()
            self.note_group(number)
        self.come_to_rest()
        self.note_group(steps)
        return self.log

    def come_to_rest(self):
        self.is_calm = True
        for _ in range(100):
            self.timers.advance(1000, self.coordinator.settle)
            for client in self.clients:
                if not client.is_silent:
                    client.step()
                    self.check()
        self.check_rest()

    def add(self):
        if len(self.clients) < 5:
            used = {each.instance for each in self.clients}
            free = [name for name in "xy" if name not in used]
            instance = self.rng.choice(free) if free and self.rng.random() < 0.3 else None
            is_classic = self.has_classic and self.rng.random() < 0.5
            kind = Classic if is_classic else Consumer
            self.clients.append(kind(self, next(self.numbers), instance))

    def leave(self):
        if self.clients:
            self.clients.pop(self.rng.randrange(len(self.clients))).leave()
            self.check()

    def crash(self):
        if self.clients:
            self.clients.pop(self.rng.randrange(len(self.clients)))

    def sleep(self):
        for client in self.clients:
            client.is_silent = not client.is_silent and self.rng.random() < 0.2

    def resubscribe(self):
        if self.clients:
            client = self.rng.choice(self.clients)
            before = client.may_own()
            client.subscribe()
            gone = before - client.may_own()
            # The client gives up these partitions before it reports its subscription.
            for name in gone:
                topic = self.topics.named(name)
                if topic is not None:
                    client.owned.pop(topic.topic_id, None)
            if isinstance(client, Consumer):
                client.wanted = None

    def wait(self):
        self.timers.advance(self.rng.choice((1, 500, 1500, 6000)), self.coordinator.settle)
        self.check()

    def fail_disk(self):
        self.disk_fails_until = self.timers.ns + self.rng.choice((1, 700, 3000)) * NS

    def create_topic(self, name=None):
        name = name or self.rng.choice(NAMES)
        if self.topics.named(name) is None:
            identity = encode_topic_id(self.rng.getrandbits(128).to_bytes(16, "big"))
            partitions = range(self.rng.randint(1, 5))
            self.set_topics([*self.all(), TopicInfo(name, identity, partitions)])

    def delete_topic(self):
        name = self.rng.choice(NAMES)
        self.set_topics([each for each in self.all() if each.name != name])

    def grow_topic(self):
        name = self.rng.choice(NAMES)
        self.set_topics(
            each._replace(partitions=range(min(len(each.partitions) + 2, 8)))
            if each.name == name
            else each
            for each in self.all()
        )

    def all(self):
        return [self.topics.named(name) for name in self.topics.names()]

    def set_topics(self, topics):
        self.topics = self.topics.changed_to(list(topics))

    def fail_over(self):
        """Replace the coordinator by one that loads the records."""
        before = self.coordinator
        if before.group is not None:
            is_consumer = isinstance(before.group, ConsumerGroup)
            (before.consumers if is_consumer else before.classic).abandon(before.group)
        before.settle()
        self.coordinator = Coordinator(self, self.log)
        after = self.coordinator.group
        if isinstance(before.group, ConsumerGroup) and after is not None:
            assert after.members == before.group.members
            assert after.targets == before.group.targets
            assert after.regexes == before.group.regexes
        self.check()

    # -- invariants ----------------------------------------------------------------------------

    def check(self):
        group = self.coordinator.group
        if group is None:
            return
        group._check()
        if not isinstance(group, ConsumerGroup):
            return
        owners = {}
        for client in self.clients:
            member = group.members.get(client.member_id)
            if client.is_classic and member is None:
                client.home = None
            if member is None or not self.is_current(client, member):
                continue  # removed, which it does not know yet
            for topic_id, numbers in client.owned.items():
                if self.topics.of_id(topic_id) is None:
                    continue  # deleted, and no longer named by classic members
                has = {*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())}
                assert numbers <= has, (client.member_id, topic_id, numbers, has)
                for number in numbers:
                    assert (topic_id, number) not in owners, "two owners"
                    owners[topic_id, number] = client.member_id

    def note_group(self, number):
        """Add everything that the group reports, and its answers to requests that it refuses."""
        group, note = self.coordinator.group, self.transcript.note
        if group is None or self.seed >= DETAILED_SEEDS:
            return
        note(group, group.state, group.type, group.is_consumer_group, group.protocol_type)
        if not isinstance(group, ConsumerGroup):
            note(group.describe(), group.subscribed_topics)
            return
        note(group.describe_consumer_group(self.topics, "uniform"), group.subscribed_topics)
        note(group.classic_members, group.targets, group.regexes, group.static_members)
        note(group.checked_version, group.resolved_version, group.assigned_ns, group.resolved_ns)
        note(group.target_ms, group.metadata_hash, group.sessions, list(group.timeouts))
        ids = {topic.topic_id: topic.partitions for topic in self.all()}
        note([each for topic in ids for each in ids[topic] if group.is_free(topic, each)])
        for member in group.members.values():
            note(member, must_rejoin(group, member))
            for epoch in (-1, *range(member.member_epoch - 2, member.member_epoch + 2)):
                sender = ConsumerGroupMetadata(GROUP, epoch, member.member_id)
                note(
                    epoch,
                    group.check_commit(sender, version=9),
                    group.check_commit(sender, version=8),
                    group.check_commit(sender, is_transactional=True),
                    group.check_fetch(member.member_id, epoch),
                    [group.check_partition(sender, topic, 0) for topic in ids],
                )
        name = self.rng.choice((*group.members, "nobody"))
        epoch = 1 + max((each.member_epoch for each in group.members.values()), default=0)
        fields = {"member_id": name, "member_epoch": epoch} | REFUSED[number % len(REFUSED)]
        self.coordinator.heartbeat(ConsumerHeartbeat(GROUP, **fields), bool)
        self.coordinator.settle()

    def is_current(self, client, member):
        """Return whether the group would accept the client's epoch.

        A classic member learns at a sync that it has lost partitions. As in Kafka, that may be too
        late if the group was converted in a rebalance, or if the member was removed and rejoins
        with its id.
        """
        if client.is_classic and client.home is not self.coordinator.group:
            return False
        return client.epoch in (member.member_epoch, member.previous_epoch)

    def check_rest(self):
        group = self.coordinator.group
        awake = [each for each in self.clients if not each.is_silent]
        if not isinstance(group, ConsumerGroup) or group.classic_members == len(group.members) > 0:
            return  # in Kafka too, only requests of other members compute a target assignment
        if group.target_ms == 0:
            return  # converted by a member without topics: in Kafka too, no target is computed
        assert group.state in (GroupState.STABLE, GroupState.EMPTY), group
        members = [each for each in awake if each.member_id in group.members]
        assert len(members) == len(group.members), (members, group.members)
        for client in members:
            member = group.members[client.member_id]
            target = group.target_of(client.member_id)
            assert client.epoch == member.member_epoch == group.group_epoch
            assert {each: frozenset(numbers) for each, numbers in client.owned.items()} == target
        wanted = {
            (topic.topic_id, number)
            for client in members
            for name in client.may_own()
            if (topic := self.topics.named(name))
            for number in topic.partitions
        }
        has = [(each, n) for client in members for each in client.owned for n in client.owned[each]]
        assert sorted(has) == sorted(wanted), "each partition has exactly one owner"
        same = {(client.names, client.regex) for client in members}
        if len(same) == 1 and group.preferred_assignor(self.settings.assignors[0]) == "uniform":
            sizes = [sum(map(len, client.owned.values())) for client in members]
            assert max(sizes) - min(sizes) <= 1, sizes


def transcribe(seed):
    """Return the transcript of a history."""
    history = History(seed)
    history.live()
    return history.transcript


ACTIONS = (
    *[History.add] * 5,
    *[History.wait] * 6,
    History.leave,
    History.crash,
    History.sleep,
    History.resubscribe,
    History.create_topic,
    History.delete_topic,
    History.grow_topic,
    History.fail_over,
    History.fail_disk,
)
