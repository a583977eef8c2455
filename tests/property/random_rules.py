"""Random states of consumer groups, and the decisions of the rules in each of them.

States that histories reach rarely, or never, are as likely here as all others.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from logstore.coordinator.groups import consumer_records, consumer_rules, migration
from logstore.coordinator.groups.cluster_topics import ClusterTopics, TopicInfo
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_member import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from logstore.coordinator.groups.consumer_membership import check_pattern
from logstore.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from logstore.coordinator.groups.consumer_rules import (
    GroupSettings,
    MigrationPolicy,
    Refusal,
    RuleContext,
)
from logstore.coordinator.groups.requests import ConsumerHeartbeat, JoinRequest, SyncRequest
from logstore.coordinator.groups.target import compute_target
from logstore.types import TopicPartition, encode_topic_id
from tests.support.world.transcripts import Transcript

FEW = 120
REQUESTS = 8
NAMES = ("t", "u", "v", "w")
PATTERNS = ("t|u", "v", "no", "[")
IDS = {name: encode_topic_id(bytes([number + 1] * 16)) for number, name in enumerate(NAMES)}
EPOCH = 7
NS = 1_000_000
NOW_MS = 2_000_000


def transcribe(seed: int) -> Transcript:
    """Return decisions about random requests to a random group."""
    return _Rules(seed).run()


class _Rules:
    """A group, its topics and settings."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.transcript = Transcript()
        existing = rng.sample(NAMES, rng.randint(2, 4))
        topics = [
            TopicInfo(
                name,
                IDS[name],
                range(count),
                [rng.sample(("r1", "r2"), rng.randint(0, 2)) for _ in range(count)]
                if rng.random() < 0.3
                else (),
            )
            for name in existing
            for count in [rng.randint(1, 5)]
        ]
        settings = GroupSettings(
            max_size=rng.choice((2, 4, 100)),
            classic_max_size=rng.choice((1, 3, 100)),
            assignors=rng.choice((("uniform", "range"), ("range",))),
            migration=rng.choice(tuple(MigrationPolicy)),
            assignment_interval_ms=rng.choice((0, 1000)),
            regex_refresh_interval_ms=rng.choice((11_000, 600_000)),
        )
        version = rng.randint(1, 3)
        self.topics = ClusterTopics(topics, version, rng.randint(1, version))
        self.at = RuleContext(self.topics, settings, NOW_MS, NOW_MS * NS)
        self.group = self.random_group()

    def random_group(self) -> ConsumerGroup:
        rng, group = self.rng, ConsumerGroup("g")
        free = [(name, number) for name in NAMES for number in range(5)]
        rng.shuffle(free)
        records: list[Any] = []
        members = [self.random_member(number, free) for number in range(rng.randint(0, 4))]
        for member in members:
            records.append(consumer_records.member("g", member))
            if rng.random() < 0.8:
                target = {IDS[name]: frozenset(rng.sample(range(5), 2)) for name in NAMES[:2]}
                target = {key: numbers for key, numbers in target.items() if rng.random() < 0.8}
                records.append(consumer_records.target_assignment("g", member.member_id, target))
            records.append(consumer_records.current_assignment("g", member))
        for pattern in PATTERNS[:2]:
            if rng.random() < 0.5:
                names = frozenset(rng.sample(NAMES, rng.randint(0, 2)))
                resolved_ms = NOW_MS - rng.choice((0, 9_999, 10_000, 10_001, 11_001, 600_001))
                resolved = ResolvedRegex(names, rng.randint(0, 3), resolved_ms)
                records.append(consumer_records.resolved_regex("g", pattern, resolved))
        names = rng.choice((NAMES, NAMES[:2], ()))
        records.append(consumer_records.group_epoch("g", EPOCH, self.topics.hash_of(names)))
        target_ms = NOW_MS - rng.choice((0, 999, 1000, 1001, NOW_MS))
        records.append(consumer_records.target_epoch("g", EPOCH - rng.randint(0, 1), target_ms))
        group.apply(records)
        group.checked_version = rng.choice((None, self.topics.version))
        group.resolved_version = rng.choice((None, 0, self.topics.version))
        if rng.random() < 0.5:
            group.assigned_ns = (NOW_MS - rng.choice((999, 1000, 1001))) * NS
            group.resolved_ns = (NOW_MS - rng.choice((0, 10_000, 10_001, 11_001))) * NS
        group.has_partition_metadata = rng.random() < 0.1
        return group

    def random_member(self, number: int, free: list[tuple[str, int]]) -> ConsumerMember:
        rng = self.rng
        has: list[dict[str, dict[int, int]]] = [{}, {}]
        for part in has:
            for _ in range(rng.randint(0, 3)):
                name, partition = free.pop()
                part.setdefault(IDS[name], {})[partition] = rng.randint(1, EPOCH)
        return ConsumerMember(
            f"m{number}",
            rng.choice((EPOCH, EPOCH, EPOCH - 1, EPOCH - 2, -2)),
            rng.choice((EPOCH - 1, EPOCH - 2, -1)),
            rng.choice((*MemberState, MemberState.STABLE)),
            "ab"[number] if number < 2 and rng.random() < 0.6 else None,
            rng.choice((None, "r1")),
            rng.choice((1000, 60_000)),
            "c",
            "/h",
            frozenset(rng.sample(NAMES, rng.randint(0, 2))),
            rng.choice(("", None, *PATTERNS[:2])),
            rng.choice((None, None, "uniform", "range")),
            has[0],
            has[1] if rng.random() < 0.5 else {},
            self.protocols(rng.choice((("range",), ("range", "sticky"))))
            if rng.random() < 0.4
            else None,
        )

    def protocols(self, names: tuple[str, ...]) -> ClassicProtocols:
        rng = self.rng
        topics = tuple(sorted(rng.sample(NAMES, rng.randint(1, 2))))
        owned = tuple(TopicPartition(name, rng.randrange(5)) for name in topics)
        data = encode_subscription(Subscription(topics, None, rng.choice(((), owned)), 3))
        return ClassicProtocols(10_000, tuple((name, data) for name in names))

    # -- requests ------------------------------------------------------------------------------

    def run(self) -> Transcript:
        """Note the group, and decisions about requests, each to the group as it was."""
        group, note = self.group, self.transcript.note
        note(group, group.state, group.members, group.targets, group.regexes, group._owners)
        note(group.describe_consumer_group(self.topics, "uniform"))
        note([consumer_records.encode(record) for record in group.deletion()])
        for member in group.members.values():
            self.attempt(consumer_rules.leave_temporarily, group, member)
            must_rejoin = migration.must_rejoin(group, member)
            note(member.member_id, consumer_rules.must_revoke(member), must_rejoin)
        for _ in range(REQUESTS):
            self.heartbeat()
            self.leave()
            self.resolve()
            self.join()
            self.replace()
        return self.transcript

    def attempt(self, rule: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Note the decision of a rule, or its refusal."""
        try:
            result = rule(*arguments, **options)
        except Refusal as refusal:
            self.transcript.note(rule.__name__, refusal.error, refusal.message)
            return
        records = getattr(result, "records", None)
        if records is not None:
            self.transcript.note([consumer_records.encode(record) for record in records])
            result = result._replace(records=[])
        self.transcript.note(rule.__name__, result)

    def member_id(self) -> str:
        return self.rng.choice((*self.group.members, *self.group.members, "new"))

    def instance(self) -> str | None:
        return self.rng.choice((None, None, "a", "b", "c"))

    def heartbeat(self) -> None:
        rng = self.rng
        joins = rng.random() < 0.4
        known = self.group.members.get(name := self.member_id())
        epoch = 0 if known is None else rng.choice((known.member_epoch, known.previous_epoch))
        has = {} if known is None else {each: [*of] for each, of in known.assigned.items()}
        request = ConsumerHeartbeat(
            "g",
            name,
            0 if joins else epoch,
            self.instance() if known is None or rng.random() < 0.2 else known.instance_id,
            rng.choice((None, "r2")),
            rng.choice((5000, -1)),
            rng.choice((None, ("t",), ("t", "u"), ("w",))),
            rng.choice((None, "", *PATTERNS)),
            rng.choice((None, "uniform", "range")),
            rng.choice((None, has, has, {})),
            "d",
            "/i",
        )
        self.transcript.note(request)
        self.attempt(consumer_rules.heartbeat, self.group, request, self.at, check_pattern)

    def leave(self) -> None:
        rng, group = self.rng, self.group
        request = ConsumerHeartbeat("g", self.member_id(), -1, self.instance())
        self.attempt(consumer_rules.leaving_member, group, request)
        members = [each for each in group.members.values() if rng.random() < 0.6]
        self.attempt(consumer_rules.remove, group, members, self.at)
        may_downgrade = migration.may_downgrade(group, members, self.at.settings)
        left = [each for each in group.members.values() if each not in members]
        self.transcript.note("may downgrade", may_downgrade)
        if left and all(each.classic is not None for each in left):
            ids = [each.member_id for each in members]
            down = migration.downgrade(group, ids, self.topics, NOW_MS)
            self.transcript.note(down.group, down.group.describe(), down.must_rebalance)
            self.transcript.note([consumer_records.encode(record) for record in down.records])

    def resolve(self) -> None:
        rng = self.rng
        found = {
            pattern: rng.sample(NAMES, rng.randint(0, 2)) for pattern in rng.sample(PATTERNS, 2)
        }
        self.attempt(consumer_rules.resolve, self.group, found, self.at)
        for member in self.group.members.values():
            after = member._replace(regex=rng.choice(("", None, *PATTERNS[:3])))
            patterns = consumer_rules.patterns_to_resolve(self.group, member, after, self.at)
            self.transcript.note("patterns", patterns)

    def replace(self) -> None:
        """Compute the target if a member replaces another one."""
        rng = self.rng
        after = ConsumerMember(
            self.member_id(),
            instance_id=self.instance(),
            topics=frozenset(rng.sample(NAMES, 2)),
            regex=rng.choice(("", None, "t|u")),
        )
        assignor = rng.choice(("uniform", "range"))
        target = compute_target(self.group, after, self.topics, assignor)
        self.transcript.note("target", assignor, after, sorted(target.items()))
        self.transcript.note(self.group.preferred_assignor("uniform", None, after))

    def join(self) -> None:
        rng, group = self.rng, self.group
        protocols = self.protocols(rng.choice((("range",), ("sticky", "range"), ("no",))))
        request = JoinRequest(
            "g",
            rng.choice(("consumer", "consumer", "consumer", "connect")),
            protocols.protocols,
            10_000,
            30_000,
            member_id=rng.choice(("", self.member_id())),
            group_instance_id=self.instance(),
            client_id="d",
            client_host="/i",
            requires_member_id=rng.random() < 0.3,
        )
        self.transcript.note(request)
        try:
            joined = migration.classic_join(group, request, self.at, check_pattern, lambda: "made")
        except Refusal as refusal:
            self.transcript.note("join", refusal.error, refusal.message)
        except AssertionError:  # members of the consumer protocol do not become classic
            self.transcript.note("join", "not possible")
        else:
            self.transcript.note(joined.result, joined.downgrade is None)
            if joined.decision is not None:
                self.attempt(lambda: joined.decision)
        member_id = self.member_id()
        generation = rng.choice((None, EPOCH, EPOCH - 1))
        try:
            member = migration.classic_member(group, member_id, self.instance(), generation)
        except Refusal as refusal:
            self.transcript.note("classic", refusal.error, refusal.message)
            return
        sync = SyncRequest(
            "g", EPOCH, member_id, None, "consumer", rng.choice((None, "range", "x"))
        )
        self.attempt(migration.classic_sync, group, member, sync, self.topics)
