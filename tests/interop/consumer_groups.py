"""Histories of consumer groups with both protocols: a running Kafka 4.3.1 and this engine.

A seed determines the members of a group and their requests: joins, heartbeats with owned
partitions, changed subscriptions, static members that leave and return, stale epochs, repeated
requests, invalid requests, commits and fetches with epochs, classic members in the same group,
changed configurations and topics, members that are silent until their session ends, and members
that do not revoke, join or sync within their rebalance timeout. All fields of the two responses
must be equal (`tests.support.interop.answers`), and so must the descriptions of the group.

Against a cluster, the coordinator is killed in the middle of reconciliations. Kafka's broker lives
on: its members must see the same epochs and assignments. Run by hand:

    python -m tests.interop.consumer_groups 0 500              # seeds, end exclusive
    python -m tests.interop.consumer_groups 0 500 cluster      # a cluster of three, in memory
    python -m tests.interop.consumer_groups 0 500 cluster disk # on disk
    python -m tests.interop.consumer_groups 0 500 self         # Kafka against Kafka
"""

from __future__ import annotations

import base64
import contextlib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest import mock

from logstore import Broker, Cluster, SystemClock
from logstore.coordinator.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from logstore.errors import KAFKA_CODES
from logstore.messages import to_json
from logstore.types import TopicPartition, java_hash
from tests.interop.conversations import (
    NOT_YET,
    Build,
    Conversation,
    Difference,
    Fields,
    Tally,
    until,
    warm_up,
)
from tests.interop.conversations import SETTINGS as CONVERSATION_SETTINGS
from tests.support.interop import real_broker
from tests.support.interop.answers import Closed, Side
from tests.support.interop.judge import fast_scratch
from tests.support.interop.real_broker import GROUP_FEATURES, RealBroker, kafka_4_3

GROUP_SIZE, CLASSIC_MEMBERS = 5, 3
HEARTBEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"
GROUP = 32
UNKNOWN_ID = "Q2fr5vs4Rk2Zrb3y9bJ0NA"
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
SHORT_SESSION: Mapping[str, str | None] = {
    "consumer.session.timeout.ms": "2000",
    "consumer.heartbeat.interval.ms": "700",
}
LATE_S = 1.5
"""Time from a heartbeat to the response to the next one, after which a short session may have ended
in between because the machine is busy."""
SHORT_REBALANCE_MS = 500
LONG_REBALANCE_MS = 300_000
SETTLED_WITHIN_S = 30
CONTROLLER_DELAY_S = 1.0
"""Time after which a broker of Kafka knows a change that its controller has confirmed."""

SETTINGS = {
    **CONVERSATION_SETTINGS,
    # Without delays and background threads, a heartbeat is answered with its own effects.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.max.size": str(GROUP_SIZE),
}
ONLY_KAFKA = {"group.consumer.assignor.offload.enable": "false"}

NAMES = {code: name for name, code in KAFKA_CODES.items()}
FENCING = {
    KAFKA_CODES[name]
    for name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "UNRELEASED_INSTANCE_ID")
}
UNRELEASED = KAFKA_CODES["UNRELEASED_INSTANCE_ID"]
UNKNOWN_MEMBER_ID = KAFKA_CODES["UNKNOWN_MEMBER_ID"]
REBALANCE_IN_PROGRESS = KAFKA_CODES["REBALANCE_IN_PROGRESS"]
ILLEGAL_GENERATION = KAFKA_CODES["ILLEGAL_GENERATION"]

COVERED = (
    "FENCED_MEMBER_EPOCH",
    "STALE_MEMBER_EPOCH",
    "UNRELEASED_INSTANCE_ID",
    "FENCED_INSTANCE_ID",
    "UNSUPPORTED_ASSIGNOR",
    "GROUP_MAX_SIZE_REACHED",
    "INVALID_REGULAR_EXPRESSION",
    "UNKNOWN_MEMBER_ID",
    "INVALID_REQUEST",
    "GROUP_ID_NOT_FOUND",
    "NON_EMPTY_GROUP",
    "ILLEGAL_GENERATION",
    "UNKNOWN_TOPIC_ID",
)
"""Errors that enough histories must cover."""

Owned = dict[str, list[int]]
"""Partitions by the name of a topic id, the same on both sides."""


@dataclass(eq=False)
class ConsumerMember:
    """A member of the consumer protocol, as its client knows it."""

    connection: str
    member_id: str
    topics: list[str]
    instance: str | None = None
    regex: str | None = None
    assignor: str | None = None
    rack: str | None = None
    rebalance_ms: int = LONG_REBALANCE_MS
    epoch: int = JOINING
    owned: Owned = field(default_factory=dict)
    last: tuple[int, Owned] | None = None
    """Epoch and partitions of the request before the last, to repeat it."""


@dataclass(frozen=True)
class ClassicMember:
    """A member of the classic protocol in the same group."""

    connection: str
    topics: tuple[str, ...]
    name: str = ""
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()
    rebalance_ms: int = LONG_REBALANCE_MS

    @property
    def instance(self) -> str:
        """Its instance id. Assignors sort static members by it; member ids are random."""
        return f"classic {self.connection}"


class GroupConversation(Conversation):
    """One seed's history of one consumer group.

    Parameters
    ----------
    create : callable
        Creates a topic of a name and a number of partitions on both sides.
    has_equal_ids : bool
        Whether topics have the same ids on both sides. If not, members subscribe to one topic,
        because the order of ids decides assignments.
    fail_over : callable, optional
        Kills the coordinator of a group on our side, and returns once another one serves.
    """

    def __init__(
        self,
        seed: int,
        kafka: Side,
        ours: Side,
        closed: Closed,
        tally: Tally,
        create: Callable[[str, int], None],
        *,
        has_equal_ids: bool,
        fail_over: Callable[[Side, str], None] | None = None,
    ) -> None:
        super().__init__(seed, kafka, ours, closed, tally)
        self._create = create
        self._has_equal_ids = has_equal_ids
        self._fail_over = fail_over
        self.group_id = f"group{seed}"
        self.consumers: list[ConsumerMember] = []
        self.gone: list[ConsumerMember] = []
        """Static members that left for a while."""
        self.classics: list[ClassicMember] = []
        self.events: Counter[str] = Counter()
        self.last_error = ""
        self.is_late = False
        """Whether this process was so slow that the session of a member may have ended."""
        self._beats: dict[tuple[str, str], list[float]] | None = None  # while sessions are short
        # The uniform assignor follows the hashes of member ids. Ids of classic members are random.
        self.is_mixed = self.rng.random() < 0.3
        self.is_by_regex = not self.is_mixed and self.rng.random() < 0.15

        for side in self.sides:
            side.name_of("topic id", UNKNOWN_ID)

    def _send(self, side: Side, api: str, version: int, build: Build, connection: str) -> None:
        super()._send(side, api, version, build, connection)
        if api == HEARTBEAT and self._beats is not None:
            self._beats.setdefault((side.name, connection), []).append(time.monotonic())

    def _receive(self, side: Side, api: str, version: int, connection: str) -> Any:
        answer = _ordered(super()._receive(side, api, version, connection))
        if api == HEARTBEAT and self._beats is not None:
            beats = self._beats.get((side.name, connection), [])
            self.is_late |= len(beats) > 1 and time.monotonic() - beats[-2] > LATE_S
        if api == "SyncGroup" and answer["errorCode"] == 0:
            return answer | {"assignment": _classic_owned(answer)}
        if api == "ListGroups":  # earlier histories may have left groups
            own = [each for each in answer["groups"] if each["groupId"] == self.group_id]
            return answer | {"groups": own}
        return answer

    # -- topics --------------------------------------------------------------------------------

    def create_topic(self) -> None:
        """Create a topic; its id gets the same name on both sides."""
        name = f"{self.group_id}.{len(self.topics)}.{len(self.steps)}"
        partitions = self.rng.randint(1, 5)
        self._create(name, partitions)
        self.topics[name] = partitions
        self._learn_id(name)

    def _learn_id(self, name: str) -> None:
        for side in self.sides:
            side.name_of("topic id", self.id_of(side, name))
        time.sleep(CONTROLLER_DELAY_S)

    def id_of(self, side: Side, name: str) -> str:
        """Return a topic's id on a side, once the broker knows the topic."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            answer = side.caller().call("Metadata", 12, {"topics": [{"name": name}]})
            (topic,) = answer.topics
            if topic.error_code == 0 and len(topic.partitions) == self.topics.get(name, 1):
                return topic.topic_id
            if topic.error_code == 0 and name not in self.topics:
                return topic.topic_id
            assert time.monotonic() < deadline, f"{side.name} has no topic {name}"
            time.sleep(0.02)

    def grow_topic(self) -> None:
        """Add partitions to a topic."""
        name = self.topic()
        self.topics[name] += 1
        count = self.topics[name]
        topic = {"name": name, "count": count, "assignments": None}
        fields = {"topics": [topic], "timeout_ms": 10_000}
        self.ask("CreatePartitions", 3, lambda _: fields)
        self._learn_id(name)
        self.events["partitions added"] += 1
        self.converge()

    def recreate_topic(self) -> None:
        """Delete a topic, and create it again."""
        name = self.topic()
        fields = {"topics": [{"name": name}], "timeout_ms": 10_000}
        self.ask("DeleteTopics", 6, lambda _: fields)
        for side in self.sides:
            request = {"topics": [{"name": name}]}
            until(
                lambda side=side, request=request: (
                    side.caller().call("Metadata", 12, request).topics[0].error_code != 0
                )
            )
        time.sleep(CONTROLLER_DELAY_S)
        if self.rng.random() < 0.5:
            self.converge()
        self._create(name, self.topics[name])
        self._learn_id(name)
        self.events["topic created again"] += 1
        self.converge()

    # -- members of the consumer protocol ------------------------------------------------------

    def uuid(self) -> str:
        """Return a member id as clients generate it, the same on both sides.

        The uniform assignor iterates over a hash map. Members in the same bucket are in the order
        of Kafka's TimelineHashMap, which depends on the members that left since Kafka started, so
        ids have buckets of their own.
        """
        taken = {_bucket(each.member_id) for each in (*self.consumers, *self.gone)}
        while True:
            drawn = base64.urlsafe_b64encode(self.rng.randbytes(16)).decode().rstrip("=")
            if _bucket(drawn) not in taken:
                return drawn

    def subscription(self) -> list[str]:
        """Draw the topics of a member."""
        names = sorted(self.topics)
        if not self._has_equal_ids:
            return names[:1]
        return sorted(self.rng.sample(names, self.rng.randint(1, len(names))))

    def assignor(self) -> str | None:
        """Draw an assignor."""
        return "range" if self.is_mixed else self.rng.choice((None, None, "uniform", "range"))

    def fields_of(self, member: ConsumerMember, side: Side, **fields: Any) -> dict[str, Any]:
        """Return the fields of a member's complete heartbeat."""
        result: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "instance_id": member.instance,
            "rack_id": member.rack,
            "rebalance_timeout_ms": member.rebalance_ms,
            "subscribed_topic_names": member.topics,
            "server_assignor": member.assignor,
            "topic_partitions": _partitions(side, member.owned),
        }
        if member.regex is not None:
            result["subscribed_topic_regex"] = member.regex
        return result | fields

    def send(self, member: ConsumerMember, *, least: int = 0, **fields: Any) -> Any:
        """Send a member's complete heartbeat to both, with the given fields replaced."""
        version = self.version(HEARTBEAT, least=1 if member.regex is not None else least)
        given = dict(fields)
        owned = given.pop("owned", None)

        def build(side: Side) -> Fields:
            own = {} if owned is None else {"topic_partitions": _partitions(side, owned)}
            return self.fields_of(member, side, **own, **given)

        return self.ask(HEARTBEAT, version, build, member.connection, until=True)

    def take(self, member: ConsumerMember, answer: Any) -> None:
        """Apply the response to a member's heartbeat."""
        error = answer["errorCode"]
        if error in FENCING:
            self.events["fence"] += 1
            member.epoch, member.owned, member.last = JOINING, {}, None
            if error == UNRELEASED and member in self.consumers:
                self.consumers.remove(member)
        elif error == 0:
            member.last = member.epoch, dict(member.owned)
            member.epoch = answer["memberEpoch"]
            if answer["assignment"] is not None:
                member.owned = _owned(answer["assignment"])

    def join(self) -> None:
        """Let a new member join."""
        rng = self.rng
        number = len(self.steps)
        member = ConsumerMember(f"{self.group_id}/{number}", self.uuid(), self.subscription())
        if rng.random() < 0.3:
            member.instance = f"i{number}"
        if rng.random() < 0.2:
            member.rack = rng.choice(("a", "b"))
        member.assignor = self.assignor()
        self._join(member)

    def _join(self, member: ConsumerMember) -> None:
        member.epoch, member.owned = JOINING, {}
        answer = self.send(member)
        if answer["errorCode"] == 0:
            self.take(member, answer)
            self.consumers.append(member)

    def beat(self) -> None:
        """Send the heartbeat of a member: complete, or with changed fields only."""
        member = self.member()
        if member is None:
            return
        if member.epoch == JOINING:
            self.take(member, self.send(member))
            return
        draw = self.rng.random()
        if draw < 0.6:
            answer = self.send(member)
        elif draw < 0.8:
            answer = self.send(member, **self.unchanged())
        else:  # a sign of life
            unchanged = self.unchanged()
            answer = self.send(member, **unchanged, topic_partitions=None)
        self.take(member, answer)

    def unchanged(self) -> dict[str, Any]:
        """Return the values of fields that have not changed since the last heartbeat."""
        return {
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "server_assignor": None,
            "rack_id": None,
        }

    def member(self) -> ConsumerMember | None:
        """Draw a member of the consumer protocol."""
        return self.rng.choice(self.consumers) if self.consumers else None

    def resubscribe(self) -> None:
        """Change the subscription or the assignor of a member."""
        member = self.member()
        if member is None or member.epoch == JOINING or member.regex is not None:
            return
        if self.rng.random() < 0.8:
            member.topics = self.rng.choice((self.subscription(), self.subscription(), []))
        else:
            member.assignor = self.assignor() or member.assignor
        self.events["subscription"] += 1
        self.take(member, self.send(member))

    def leave(self) -> None:  # type: ignore[override]  # another protocol
        """Let a member leave; a static one for a while, or for good."""
        member = self.member()
        if member is None or member.epoch == JOINING:
            return
        if len(self.consumers) == 1 and len(self.classics) > 1:
            return  # in a classic group, classic members would wait for each other
        for_a_while = member.instance is not None and self.rng.random() < 0.7
        answer = self.send(
            member,
            member_epoch=LEAVING_STATIC if for_a_while else LEAVING,
            topic_partitions=None,
            **self.unchanged(),
        )
        if answer["errorCode"] == 0:
            self.consumers.remove(member)
            self._close(member)
            if for_a_while:
                self.events["static leave"] += 1
                self.gone.append(member)

    def _close(self, member: ConsumerMember | ClassicMember) -> None:
        for side in self.sides:
            side.forget(member.connection)

    def come_back(self) -> None:
        """Let a static member return under another member id; or one that is not released."""
        rng = self.rng
        static = [each for each in self.consumers if each.instance is not None]
        if self.gone and (not static or rng.random() < 0.7):
            left = self.gone.pop(rng.randrange(len(self.gone)))
            topics = left.topics if rng.random() < 0.7 else self.subscription()
            new = ConsumerMember(
                f"{left.connection}+", self.uuid(), topics, left.instance, None, left.assignor
            )
            self.events["static return"] += 1
            self._join(new)
        elif static:
            taken = rng.choice(static)
            intruder = ConsumerMember(
                f"{self.group_id}/x{len(self.steps)}", self.uuid(), taken.topics, taken.instance
            )
            epoch = rng.choice((JOINING, JOINING, max(taken.epoch, 1), LEAVING))
            intruder.epoch = epoch
            answer = self.send(intruder)
            if answer["errorCode"] == 0 and epoch != LEAVING:
                self.consumers.remove(taken)
                self._close(taken)
                self.take(intruder, answer)
                self.consumers.append(intruder)
            else:
                self._close(intruder)

    def use_wrong_epoch(self) -> None:
        """Send an earlier or a later epoch."""
        member = self.member()
        if member is None or member.epoch == JOINING:
            return
        epoch = max(1, member.epoch + self.rng.choice((-2, -1, 1, 7)))
        if epoch == member.epoch:
            return
        self.events["wrong epoch"] += 1
        answer = self.send(member, member_epoch=epoch, owned=self.rng.choice(({}, member.owned)))
        self.take(member, answer)

    def repeat(self) -> None:
        """Repeat the last request, as a client does whose response was lost."""
        member = self.member()
        if member is None or member.last is None:
            return
        epoch, owned = member.last
        self.events["repeated"] += 1
        answer = self.send(member, member_epoch=epoch, owned=owned)
        if answer["errorCode"] == 0:
            member.epoch = answer["memberEpoch"]
            if answer["assignment"] is not None:
                member.owned = _owned(answer["assignment"])
        else:
            self.take(member, answer)

    def ask_wrongly(self) -> None:
        """Send a heartbeat that is not valid."""
        rng = self.rng
        member = self.member() or ConsumerMember(
            f"{self.group_id}/w{len(self.steps)}", self.uuid(), self.subscription()
        )
        stranger = self.uuid()
        topics = sorted(self.topics)
        cases: list[dict[str, Any]] = [
            {"member_epoch": -3},
            {"member_epoch": LEAVING_STATIC, "instance_id": None},
            {"member_epoch": LEAVING, "member_id": stranger},
            {"member_epoch": 5, "member_id": stranger},
            {"member_epoch": 5, "member_id": ""},
            {"member_epoch": JOINING, "member_id": stranger, "rebalance_timeout_ms": -1},
            {"member_epoch": JOINING, "member_id": stranger, "topic_partitions": None},
            {"member_epoch": JOINING, "member_id": stranger, "subscribed_topic_names": None},
            {"group_id": ""},
            {"instance_id": ""},
            {"rack_id": ""},
            {"server_assignor": "no such assignor"},
            {"server_assignor": ""},
            {"group_id": f"{self.group_id}.none", "member_epoch": 3},
            {"member_epoch": JOINING, "member_id": stranger, "instance_id": None,
             "topic_partitions": [], "subscribed_topic_names": topics[:1],
             "subscribed_topic_regex": "a("},
            {"member_epoch": JOINING, "member_id": stranger, "instance_id": None,
             "topic_partitions": [], "subscribed_topic_names": topics[:1],
             "subscribed_topic_regex": "(?=a)b"},
        ]  # fmt: skip
        fields = rng.choice(cases)
        if "subscribed_topic_regex" in fields and self.is_by_regex:
            return
        least = 1 if "subscribed_topic_regex" in fields else 0
        answer = self.send(member, least=least, **fields)
        if answer["errorCode"] == 0 and member in self.consumers:
            self.take(member, answer)

    # -- convergence ---------------------------------------------------------------------------

    def converge(self) -> None:
        """Let all members follow the group until it is stable, on each side at its own pace.

        Heartbeats are not compared, because the sides may need different numbers of them; the
        resulting states are. Kafka's coordinator learns of new partitions some time after the
        response to CreatePartitions, so a stable group may change once more.
        """
        deadline = time.monotonic() + SETTLED_WITHIN_S
        begun = [(each.epoch, dict(each.owned)) for each in self.consumers], list(self.classics)
        states = [self._converged(side, *begun) for side in self.sides]
        while states[0] != states[1] and time.monotonic() < deadline:
            time.sleep(0.1)
            states = [
                self._converged(side, *state)
                for side, state in zip(self.sides, states, strict=True)
            ]
        if states[0] != states[1]:
            raise Difference(
                f"seed {self.seed}: members converge to\n  Kafka {states[0]}\n  here  {states[1]}\n"
                + "\n".join(self.steps[-25:])
            )
        for member, (epoch, owned) in zip(list(self.consumers), states[0][0], strict=True):
            member.epoch, member.owned, member.last = epoch, owned, None
            if epoch == JOINING:  # it was fenced, and cannot join again
                self.consumers.remove(member)
                self._close(member)
        self.classics = states[0][1]
        self.describe()

    def _converged(
        self, side: Side, states: list[tuple[int, Owned]], classics: list[ClassicMember]
    ) -> tuple[list[tuple[int, Owned]], list[ClassicMember]]:
        states, classics = [*states], [*classics]
        deadline = time.monotonic() + SETTLED_WITHIN_S
        quiet = 0
        while quiet < 2:
            before = [*states, *classics]
            for number, member in enumerate(self.consumers):
                states[number] = self._followed(side, member, *states[number])
            classics = [self._followed_classic(side, each) for each in classics]
            # A member whose instance id is taken cannot join again, and is given up.
            is_over = any(epoch == JOINING for epoch, _ in states) or self._is_stable(side)
            quiet = quiet + 1 if [*states, *classics] == before and is_over else 0
            if time.monotonic() > deadline:
                raise Difference(
                    f"seed {self.seed}: {side.name} does not converge: {states}, last error"
                    f" {self.last_error}\n" + "\n".join(self.steps[-25:])
                )
            if quiet == 0:
                time.sleep(0.005)
        return states, classics

    def _followed(
        self, side: Side, member: ConsumerMember, epoch: int, owned: Owned
    ) -> tuple[int, Owned]:
        fields = self.fields_of(
            member, side, member_epoch=epoch, topic_partitions=_partitions(side, owned)
        )
        answer = self._quiet(side, HEARTBEAT, 1, fields, member.connection)
        if answer["errorCode"]:
            self.last_error = f"{side.name}: {NAMES[answer['errorCode']]}"
            return (JOINING, {}) if answer["errorCode"] in FENCING else (epoch, owned)
        if answer["assignment"] is not None:
            owned = _owned(answer["assignment"])
        return answer["memberEpoch"], owned

    def _quiet(self, side: Side, api: str, version: int, fields: Fields, connection: str) -> Any:
        self._send(side, api, version, lambda _: fields, connection)
        return self._receive(side, api, version, connection)

    def _is_stable(self, side: Side) -> bool:
        answer = self._quiet(side, DESCRIBE, 1, {"group_ids": [self.group_id]}, "main")
        (group,) = answer["groups"]
        known = {side.name_of("member", each.member_id) for each in self.consumers}
        known.update(each.name for each in self.classics)
        # A static member that left for a while never reconciles, nor does one that was given up.
        has_absent = not known.issuperset(each["memberId"] for each in group["members"])
        return has_absent or group["groupState"] in ("Stable", "Empty", "")

    def _followed_classic(self, side: Side, member: ClassicMember) -> ClassicMember:
        answer = self._quiet(
            side, "Heartbeat", 4, self._classic_beat(member, side), member.connection
        )
        if answer["errorCode"] not in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            return member
        joining = self._classic_join(member, side)
        joined = self._quiet(side, "JoinGroup", 9, joining, member.connection)
        if joined["errorCode"]:
            return member
        member = replace(member, generation=joined["generationId"])
        syncing = self._classic_sync(member, side)
        synced = self._quiet(side, "SyncGroup", 5, syncing, member.connection)
        return member if synced["errorCode"] else replace(member, owned=synced["assignment"])

    def describe(self) -> None:
        """Describe the group by each API, and list it."""
        groups = _always({"group_ids": [self.group_id, f"{self.group_id}.none"]})
        self.ask(DESCRIBE, self.version(DESCRIBE), groups)
        if self.rng.random() < 0.3:
            described = _always({"groups": [self.group_id]})
            if not self.classics:
                self.ask("DescribeGroups", self.version("DescribeGroups"), described)
            version = self.version("ListGroups", least=4)
            listed: dict[str, Any] = {"states_filter": self.rng.choice(([], ["stable"]))}
            if version >= 5:
                listed["types_filter"] = self.rng.choice((["consumer"], ["Classic"], ["x"]))
            self.ask("ListGroups", version, _always(listed))

    # -- offsets -------------------------------------------------------------------------------

    def commit_epoch(self) -> None:
        """Commit as a member with its epoch, an earlier or a later one; or as nobody."""
        rng = self.rng
        member = self.member()
        version = self.version("OffsetCommit", least=rng.choice((2, 9, 10)))
        epoch, member_id = -1, ""
        if member is not None and rng.random() < 0.9:
            epoch = max(member.epoch, 0) + rng.choice((0, 0, 0, -1, 1))
            member_id = member.member_id if rng.random() < 0.9 else self.uuid()
        topics = [*rng.sample(sorted(self.topics), 1), *(["none"] if rng.random() < 0.2 else [])]
        offset = {"partition_index": rng.choice((0, 0, 9)), "committed_offset": rng.randrange(99)}

        def build(side: Side) -> Fields:
            return {
                "group_id": self.group_id,
                "generation_id_or_member_epoch": epoch,
                "member_id": member_id,
                "topics": [
                    self.named(side, topic, version) | {"partitions": [offset]} for topic in topics
                ],
            }

        self.ask("OffsetCommit", version, build, until=True)

    def fetch_epoch(self) -> None:
        """Fetch offsets as a member with its epoch, an earlier or a later one; or as nobody."""
        rng = self.rng
        member = self.member()
        version = self.version("OffsetFetch", least=rng.choice((1, 8, 9, 10)))
        topics = [*rng.sample(sorted(self.topics), 1), *(["none"] if rng.random() < 0.2 else [])]
        identity: dict[str, Any] = {}
        if version >= 9 and member is not None and rng.random() < 0.9:
            identity = {
                "member_id": member.member_id if rng.random() < 0.9 else self.uuid(),
                "member_epoch": max(member.epoch, 0) + rng.choice((0, 0, 0, -1, 1)),
            }

        def build(side: Side) -> Fields:
            named = [
                self.named(side, topic, version) | {"partition_indexes": [0, 1]} for topic in topics
            ]
            if version < 8:
                return {"group_id": self.group_id, "topics": named}
            return {"groups": [{"group_id": self.group_id, "topics": named, **identity}]}

        self.ask("OffsetFetch", version, build, until=True)

    def named(self, side: Side, topic: str, version: int) -> dict[str, Any]:
        """Return the field that names a topic in a version of OffsetCommit or OffsetFetch."""
        if version < 10:
            return {"name": topic}
        known = topic in self.topics
        return {"topic_id": self.id_of(side, topic) if known else UNKNOWN_ID}

    # -- classic members -----------------------------------------------------------------------

    def join_classic(self) -> None:
        """Let a classic member join the group, or one that is there send a heartbeat."""
        if not self.is_mixed:
            return
        if len(self.classics) < CLASSIC_MEMBERS and (not self.classics or self.rng.random() < 0.3):
            self._new_classic()
        elif self.classics:
            self.follow_classic(self.rng.randrange(len(self.classics)))

    def _new_classic(self, rebalance_ms: int = LONG_REBALANCE_MS) -> None:
        if self.classics and not self.consumers:
            return  # it would wait for the others
        connection = f"{self.group_id}/c{len(self.steps)}"
        topics = tuple(self.subscription())
        member = ClassicMember(connection, topics, rebalance_ms=rebalance_ms)
        answer = self._ask_classic("JoinGroup", 9, self._classic_join, member)
        if answer["errorCode"] != 0:
            for side in self.sides:
                side.forget(connection)
            return
        self.events["classic join"] += 1
        self.classics.append(member)
        self._sync_classic(len(self.classics) - 1, answer)

    def follow_classic(self, number: int) -> None:
        """Send a heartbeat, and join again if the group rebalances."""
        answer = self._ask_classic("Heartbeat", 4, self._classic_beat, self.classics[number])
        if answer["errorCode"] == REBALANCE_IN_PROGRESS:
            self._rejoin_classic(number)

    def _rejoin_classic(self, number: int) -> None:
        answer = self._ask_classic("JoinGroup", 9, self._classic_join, self.classics[number])
        if answer["errorCode"] == 0:
            self._sync_classic(number, answer)

    def _sync_classic(self, number: int, joined: Mapping[str, Any]) -> None:
        member = replace(
            self.classics[number], name=joined["memberId"], generation=joined["generationId"]
        )
        answer = self._ask_classic("SyncGroup", 5, self._classic_sync, member)
        if answer["errorCode"] == 0:
            member = replace(member, owned=answer["assignment"])
        self.classics[number] = member

    def use_wrong_generation(self) -> None:
        """Let a classic member send another generation, or a request at the wrong time."""
        rng = self.rng
        if not self.classics:
            return
        number = rng.randrange(len(self.classics))
        member = self.classics[number]
        wrong = replace(member, generation=max(0, member.generation + rng.choice((-2, -1, 1, 7))))
        self.events["wrong generation"] += 1
        draw = rng.choice(("beat", "sync", "commit", "join", "sync again", "beat as another"))
        if draw == "beat":
            self._ask_classic("Heartbeat", 4, self._classic_beat, wrong)
        elif draw == "sync":
            self._ask_classic("SyncGroup", 5, self._classic_sync, wrong)
        elif draw == "commit":
            self._commit_classic(rng.choice((member, wrong)))
        elif draw == "join":
            self._rejoin_classic(number)
        elif draw == "sync again":
            self._ask_classic("SyncGroup", 5, self._classic_sync, member)
        else:

            def build(member: ClassicMember, side: Side) -> Fields:
                return self._classic_beat(member, side) | {"member_id": "nobody"}

            self._ask_classic("Heartbeat", 4, build, member)

    def _commit_classic(self, member: ClassicMember) -> None:
        version = self.version("OffsetCommit", least=7)
        topic = self.topic()

        def build(member: ClassicMember, side: Side) -> Fields:
            offset = {"partition_index": 0, "committed_offset": 1}
            return {
                "group_id": self.group_id,
                "generation_id_or_member_epoch": member.generation,
                "member_id": side.value_of(member.name),
                "group_instance_id": member.instance,
                "topics": [self.named(side, topic, version) | {"partitions": [offset]}],
            }

        self._ask_classic("OffsetCommit", version, build, member)

    def leave_classic(self) -> None:
        """Let a classic member leave."""
        if not self.classics:
            return
        member = self.classics.pop(self.rng.randrange(len(self.classics)))

        def leaving(member: ClassicMember, side: Side) -> Fields:
            identity = {
                "member_id": side.value_of(member.name),
                "group_instance_id": member.instance,
            }
            return {"group_id": self.group_id, "members": [identity]}

        self._ask_classic("LeaveGroup", 5, leaving, member)
        self._close(member)

    def _ask_classic(
        self,
        api: str,
        version: int,
        fields: Callable[[ClassicMember, Side], Fields],
        member: ClassicMember,
    ) -> Any:
        return self.ask(
            api, version, lambda side: fields(member, side), member.connection, until=True
        )

    def _classic_join(self, member: ClassicMember, side: Side) -> dict[str, Any]:
        metadata = encode_subscription(
            Subscription(member.topics, None, member.owned, member.generation)
        )
        return {
            "group_id": self.group_id,
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": member.rebalance_ms,
            "member_id": side.value_of(member.name) if member.name else "",
            "group_instance_id": member.instance,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }

    def _classic_sync(self, member: ClassicMember, side: Side) -> dict[str, Any]:
        return self._classic_beat(member, side) | {
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }

    def _classic_beat(self, member: ClassicMember, side: Side) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": member.generation,
            "member_id": side.value_of(member.name),
            "group_instance_id": member.instance,
        }

    # -- configurations, time, administration --------------------------------------------------

    def configure(self, configs: Mapping[str, str | None] | None = None) -> None:
        """Change the configuration of the group."""
        rng = self.rng
        if configs is None:
            interval = rng.choice((None, "6000", "900", "15000"))
            configs = {"consumer.heartbeat.interval.ms": interval}
            self.events["configuration"] += 1
        rows = [
            {"name": key, "config_operation": int(value is None), "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": self.group_id, "configs": rows}
        self.ask("IncrementalAlterConfigs", 1, _always({"resources": [resource]}))
        time.sleep(CONTROLLER_DELAY_S)

    def fall_silent(self) -> None:
        """Let the session of a member end, while the others go on."""
        if len(self.consumers) < 2 or self.classics:
            return
        self.configure(SHORT_SESSION)
        self._beats = {}
        self.converge()  # starts new sessions
        silent = self.consumers.pop(self.rng.randrange(len(self.consumers)))
        if self._has_tie():
            self.consumers.append(silent)
        else:
            self._end_session(silent)
        self.configure(dict.fromkeys(SHORT_SESSION))
        self.converge()
        self._beats = None

    def _has_tie(self) -> bool:
        """Return whether as many members prefer one assignor as the other.

        Then the first heartbeat after the end of a session decides: the preference of its member is
        counted again, and wins. A session ends between any two heartbeats.
        """
        members = *self.consumers, *self.gone
        votes = Counter(each.assignor for each in members if each.assignor)
        return len(votes) > 1 and len(set(votes.values())) == 1

    def _end_session(self, silent: ConsumerMember) -> None:
        self.events["session ended"] += 1
        for side in self.sides:
            self._await_end_of(side, side.name_of("member", silent.member_id), self.consumers)
            if self._beats is not None:
                self._beats.pop((side.name, silent.connection), None)
        assert self.send(silent)["errorCode"] == UNKNOWN_MEMBER_ID
        self._close(silent)
        self.converge()

    def _await_end_of(self, side: Side, name: str, living: Sequence[ConsumerMember] = ()) -> None:
        """Wait until a silent member is removed on a side; others live on, on both.

        Parameters
        ----------
        name : str
            Name of the member's id, as in a response.
        """
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            for each in self.sides:
                for member in living:
                    fields = self.fields_of(member, each, topic_partitions=None)
                    self._quiet(each, HEARTBEAT, 1, fields, member.connection)
            answer = self._quiet(side, DESCRIBE, 1, {"group_ids": [self.group_id]}, "main")
            if name not in {each["memberId"] for each in answer["groups"][0]["members"]}:
                return
            if time.monotonic() > deadline:
                raise Difference(
                    f"seed {self.seed}: {side.name} keeps a silent member\n"
                    + "\n".join(self.steps[-25:])
                )
            time.sleep(0.1)

    def revoke_late(self) -> None:
        """Let a member keep partitions until its rebalance timeout has passed."""
        member = self.member()
        if member is None or len(self.consumers) >= GROUP_SIZE or member.regex is not None:
            return
        self.converge()
        if member not in self.consumers:
            return
        member.rebalance_ms = SHORT_REBALANCE_MS
        self.take(member, self.send(member))
        other = ConsumerMember(f"{self.group_id}/l{len(self.steps)}", self.uuid(), member.topics)
        self._join(other)
        before = member.owned
        answer = self.send(member)
        if answer["errorCode"] == 0 and answer["assignment"] is not None:
            kept = _owned(answer["assignment"])
            if any(set(numbers) - set(kept.get(name, ())) for name, numbers in before.items()):
                self.events["rebalance timeout"] += 1
                for side in self.sides:
                    self._await_end_of(side, side.name_of("member", member.member_id))
                self.describe()
                answer = self.send(member)
        self.take(member, answer)
        member.rebalance_ms = LONG_REBALANCE_MS
        self.converge()

    def rejoin_late(self) -> None:
        """Let a classic member join or sync after its rebalance timeout has passed."""
        if not self.is_mixed or len(self.classics) >= CLASSIC_MEMBERS:
            return
        self.converge()
        count = len(self.classics)
        self._new_classic(SHORT_REBALANCE_MS)
        if len(self.classics) == count:
            return
        self.converge()
        self.join()
        late = self.classics[-1]
        answer = self._ask_classic("Heartbeat", 4, self._classic_beat, late)
        if answer["errorCode"] == REBALANCE_IN_PROGRESS:
            if self.rng.random() < 0.5:
                self._ask_classic("JoinGroup", 9, self._classic_join, late)
            self.events["classic rebalance timeout"] += 1
            for side in self.sides:
                self._await_end_of(side, late.name)
            self.describe()
            self._ask_classic("Heartbeat", 4, self._classic_beat, late)
            self.classics.pop()
            self._close(late)
        else:
            self.classics[-1] = replace(late, rebalance_ms=LONG_REBALANCE_MS)
            self._rejoin_classic(count)
        self.converge()

    def kill_coordinator(self) -> None:
        """Kill our coordinator in the middle of a reconciliation."""
        member = self.member()
        if self._fail_over is None or member is None:
            return
        self.rng.choice((self.join, self.resubscribe, self.leave))()
        for _ in range(self.rng.randint(0, 2)):
            self.beat()
        self.events["coordinator killed"] += 1
        self._fail_over(self.sides[1], self.group_id)
        self.describe()

    def administer(self) -> None:
        """Delete the group, or offsets, while it has members or not."""
        if self.rng.random() < 0.5:
            names = _always({"groups_names": [f"{self.group_id}.none", self.group_id]})
            if self.consumers or self.classics:
                self.ask("DeleteGroups", self.version("DeleteGroups"), names)
            return
        where = {"name": self.topic(), "partitions": [{"partition_index": 0}]}
        self.ask("OffsetDelete", 0, _always({"group_id": self.group_id, "topics": [where]}))

    def subscribe_by_regex(self) -> None:
        """Let a member join by a regular expression, and wait until its topics are known."""
        if not self.is_by_regex or any(each.regex is not None for each in self.consumers):
            return
        number = len(self.steps)
        regex = self.rng.choice((f"{self.group_id}[.].*", f"{self.group_id}.0.*", "no.such.topic"))
        names = self.subscription() if self.rng.random() < 0.3 else []
        member = ConsumerMember(f"{self.group_id}/r{number}", self.uuid(), names, regex=regex)
        self.events["regex"] += 1
        self._join(member)
        time.sleep(CONTROLLER_DELAY_S)
        self.converge()

    def kafka_misassigns(self) -> bool:
        """Return whether Kafka assigns topics to a member that does not subscribe to them.

        A member that joins with a pattern which is not resolved yet does not increase the group
        epoch. If a target assignment is computed at its heartbeat, because another member has left,
        Kafka 4.3.1 takes the type of the subscriptions before the join. If it was homogeneous, the
        assignors give the new member the topics of the others.
        """
        (group,) = self.sides[0].caller().call(DESCRIBE, 1, {"group_ids": [self.group_id]}).groups
        self.sides[0].close()
        return any(
            topic.topic_name not in member.subscribed_topic_names
            and not re.fullmatch(member.subscribed_topic_regex or "", topic.topic_name)
            for member in group.members
            for topic in member.target_assignment.topic_partitions
        )

    # -- a history -----------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        """Run the history; raises `Difference`."""
        for _ in range(self.rng.randint(1, 3) if self._has_equal_ids else 1):
            self.create_topic()
        acts: list[tuple[Callable[[], None], int]] = [
            (self.join, 12),
            (self.beat, 40),
            (self.resubscribe, 6),
            (self.leave, 6),
            (self.come_back, 6),
            (self.use_wrong_epoch, 4),
            (self.repeat, 5),
            (self.ask_wrongly, 6),
            (self.commit_epoch, 8),
            (self.fetch_epoch, 8),
            (self.join_classic, 10 if self.is_mixed else 0),
            (self.leave_classic, 2),
            (self.use_wrong_generation, 6 if self.is_mixed else 0),
            (self.rejoin_late, 2 if self.is_mixed else 0),
            (self.revoke_late, 2),
            (self.kill_coordinator, 0 if self._fail_over is None else 4),
            (self.converge, 4),
            (self.describe, 4),
            (self.administer, 2),
            (self.configure, 1),
            (self.grow_topic, 1),
            (self.recreate_topic, 1),
            (self.fall_silent, 1),
            (self.subscribe_by_regex, 6 if self.is_by_regex else 0),
        ]
        names, weights = zip(*acts, strict=True)
        last = self.rng.choice((self.fall_silent, self.configure, self.use_wrong_epoch))
        if self._fail_over is not None:
            last = self.kill_coordinator
        try:
            if self.is_by_regex:
                self.subscribe_by_regex()
            self.join()
            for _ in range(rounds):
                self.rng.choices(names, weights)[0]()
            last()
            if not any(self.events[kind] for kind in EVENTFUL):
                self.configure()
            self.end()
        finally:
            for side in self.sides:
                side.close()
        self.tally.histories += 1

    def end(self) -> None:
        """Compare the stable group, and end it."""
        self.converge()
        while self.classics:
            self.leave_classic()
        for member in self.consumers:
            self.send(member, member_epoch=LEAVING, topic_partitions=None, **self.unchanged())
        self.consumers.clear()
        self.describe()
        self.ask("DeleteGroups", 2, _always({"groups_names": [self.group_id]}))
        for topic in list(self.topics):
            fields = {"topics": [{"name": topic}], "timeout_ms": 10_000}
            self.ask("DeleteTopics", 6, _always(fields))


def _bucket(member_id: str) -> int:
    """Return the bucket of an id in a HashMap of the smallest size."""
    hashed = java_hash(member_id) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15


def _always(fields: Fields) -> Callable[[Side], Fields]:
    return lambda _: fields


def _owned(assignment: Mapping[str, Any]) -> Owned:
    return {each["topicId"]: each["partitions"] for each in assignment["topicPartitions"]}


def _partitions(side: Side, owned: Owned) -> list[dict[str, Any]]:
    return [
        {"topic_id": side.value_of(name), "partitions": numbers} for name, numbers in owned.items()
    ]


def _classic_owned(answer: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
    """Return the partitions in a response to SyncGroup, in order."""
    data = base64.b64decode(answer["assignment"])
    return tuple(sorted(decode_assignment(data).partitions)) if data else ()


def _ordered(data: Any, key: str = "") -> Any:
    """Order topics and members by their shared names. Kafka keeps them in hash maps."""
    if isinstance(data, dict):
        return {name: _ordered(value, name) for name, value in data.items()}
    if not isinstance(data, list):
        return data
    found = [_ordered(each) for each in data]
    if key == "subscribedTopicNames":
        return sorted(found)
    names = NAMED_BY.get(key, ())
    return sorted(found, key=lambda each: [each.get(name) or "" for name in names])


NAMED_BY = {
    "topicPartitions": ("topicId",),
    "topics": ("name", "topicId"),
    "members": ("memberId",),
    "results": ("groupId",),
}


# -- running -------------------------------------------------------------------------------------


@dataclass
class GroupTally(Tally):
    """Numbers of requests, covered cases and events."""

    events: Counter[str] = field(default_factory=Counter)
    eventful: int = 0
    """Histories with a fence, a timeout, a kill or a changed configuration."""

    def __str__(self) -> str:
        versions: dict[str, set[int]] = {}
        for api, version in self.versions:
            versions.setdefault(api, set()).add(version)
        lines = [
            f"{self.histories} histories, {self.eventful} with a fence, a timeout, a kill or a"
            f" changed configuration; {self.requests.total()} compared requests,"
            f" {self.seconds:.0f} s",
            "events: " + ", ".join(f"{name} {n}" for name, n in sorted(self.events.items())),
            "errors: "
            + ", ".join(f"{NAMES.get(code, code)} {n}" for code, n in self.errors.most_common()),
            *(
                f"{api} {','.join(map(str, sorted(found)))}: {self.requests[api]}"
                for api, found in sorted(versions.items())
            ),
        ]
        return "\n".join(lines)


class OurBroker:
    """A broker of ours, served over real time."""

    def __init__(self, path: Path | None = None) -> None:
        self._broker = Broker(
            *([] if path is None else [path]),
            broker_config={**real_broker.SETTINGS, **SETTINGS},
        )
        self.bootstrap = self._broker.listen(auto_create=False).bootstrap
        self.fail_over = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.close()

    def create(self, name: str, partitions: int, topic_id: str) -> None:
        """Create a topic with Kafka's id."""
        self._broker.manager.topics.create(name, partitions, {}, topic_id=topic_id)

    def side(self, group_id: str) -> Side:
        """Return the side of a history."""
        return Side("here", self.bootstrap)


class OurCluster:
    """A cluster of three brokers, in memory or on disk, served over real time."""

    def __init__(self, path: Path | None = None) -> None:
        settings = {**real_broker.SETTINGS, **SETTINGS, "offsets.topic.replication.factor": "3"}
        for key in ("node.id", "process.roles", "controller.listener.names"):
            settings.pop(key)
        self._cluster = Cluster(data_dir=path, clock=SystemClock(), broker_config=settings)
        self._listeners = self._cluster.listen(auto_create=False)
        self.bootstrap = self._listeners[0].bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def create(self, name: str, partitions: int, topic_id: str) -> None:
        """Create a topic with Kafka's id."""
        with mock.patch.object(self._cluster, "_new_topic_id", return_value=topic_id):
            self._cluster.create_topic(name, partitions, replication_factor=3)

    def side(self, group_id: str) -> Side:
        """Return the side of a history: connections to the coordinator of its group."""
        return Side("here", self._listeners[self._coordinator(group_id)].bootstrap)

    def _coordinator(self, group_id: str) -> int:
        return self._cluster.group_coordinator(group_id)

    def fail_over(self, side: Side, group_id: str) -> None:
        """Kill the coordinator of a group, and restart it once another one serves the group."""
        cluster = self._cluster
        killed = self._coordinator(group_id)
        offsets = cluster.brokers[killed].groups.partition_of(group_id)
        until(lambda: len(cluster.state(offsets).isr) == len(cluster.brokers))
        cluster.kill(killed)
        until(lambda: self._coordinator(group_id) != killed)
        side.move(self._listeners[self._coordinator(group_id)].bootstrap)
        request = {"group_ids": [group_id]}
        until(lambda: side.caller().call(DESCRIBE, 1, request).groups[0].error_code not in NOT_YET)
        cluster.restart(killed)


def kafka_broker(home: Path) -> RealBroker:
    """Return a Kafka 4.3.1 broker; raises `Unavailable`."""
    return RealBroker(kafka_4_3(), home, {**SETTINGS, **ONLY_KAFKA}, features=GROUP_FEATURES)


def run_histories(
    kafka: str,
    ours: OurBroker | OurCluster | str,
    seeds: Iterable[int],
    rounds: int = 40,
    tally: GroupTally | None = None,
) -> tuple[GroupTally, Closed]:
    """Run the histories of seeds on two brokers, one of them Kafka's.

    Parameters
    ----------
    ours : OurBroker, OurCluster or str
        Brokers of ours, or the address of another broker of Kafka's.

    Raises
    ------
    Difference
        The answers to a seed's history differ.
    """
    tally, closed = GroupTally() if tally is None else tally, Closed("kafka4")
    began = time.monotonic()
    warm_up(Side("Kafka", kafka))
    if isinstance(ours, str):
        warm_up(Side("here", ours))
    for seed in seeds:
        group_id = f"group{seed}"
        here = Side("here", ours) if isinstance(ours, str) else ours.side(group_id)
        sides = Side("Kafka", kafka), here

        def create(name: str, partitions: int, sides: tuple[Side, Side] = sides) -> None:
            topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
            request = {"topics": [topic], "timeout_ms": 10_000}
            (found,) = to_json(sides[0].caller().call("CreateTopics", 7, request), 7)["topics"]
            assert found["errorCode"] == 0, found
            if isinstance(ours, str):
                sides[1].caller().call("CreateTopics", 7, request)
            else:
                ours.create(name, partitions, found["topicId"])

        history = GroupConversation(
            seed,
            *sides,
            closed,
            tally,
            create,
            has_equal_ids=not isinstance(ours, str),
            fail_over=None if isinstance(ours, str) else ours.fail_over,
        )
        try:
            history.run(rounds)
        except Difference:
            if history.is_late:
                tally.events["not compared, because sessions ended too early"] += 1
            elif history.kafka_misassigns():
                closed.used[MISASSIGNED] += 1
            else:
                raise
            tally.histories += 1
        finally:
            tally.events += history.events
            tally.eventful += any(history.events[kind] for kind in EVENTFUL)
    tally.seconds += time.monotonic() - began
    return tally, closed


MISASSIGNED = "Kafka assigns topics to a member whose pattern does not match them"

EVENTFUL = (
    "fence",
    "session ended",
    "configuration",
    "rebalance timeout",
    "classic rebalance timeout",
    "coordinator killed",
)


def main(arguments: list[str]) -> None:
    """Run a range of seeds; `self` compares Kafka with itself."""
    first, end, *rest = arguments
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=fast_scratch())))
        kafka = stack.enter_context(kafka_broker(home / "kafka"))
        ours: OurBroker | OurCluster | str
        if "self" in rest:
            ours = stack.enter_context(kafka_broker(home / "other")).bootstrap
        elif "cluster" in rest:
            ours = stack.enter_context(OurCluster(home / "ours" if "disk" in rest else None))
        else:
            ours = stack.enter_context(OurBroker(home / "ours"))
        tally, failed, parted = GroupTally(), 0, Counter[str]()
        for seed in range(int(first), int(end)):
            try:
                parted += run_histories(kafka.bootstrap, ours, [seed], tally=tally)[1].used
            except (Difference, TimeoutError) as error:
                failed += 1
                sys.stdout.write(f"seed {seed}: {error}\n")
                sys.stdout.flush()
        sys.stdout.write(f"{tally}\n{failed} seeds differ; permitted: {dict(parted)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
