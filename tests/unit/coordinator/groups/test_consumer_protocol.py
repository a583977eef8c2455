"""Groups of the consumer protocol: epochs, reconciliation, sessions, conversions and records."""

import logging

import pytest

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_member import ConsumerMember
from logstore.coordinator.groups.consumer_protocol import (
    Assignment,
    decode_assignment,
    encode_assignment,
)
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.groups.requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from logstore.errors import IllegalGenerationError
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import AppendOrigin, TopicPartition
from tests.support.world.groups import ConsumerClient, GroupBench, settle, wanting

T0 = TopicPartition("t", 0)
AT_ONCE = {"group.consumer.assignment.interval.ms": 0}


def opened(**config):
    bench = GroupBench(**(AT_ONCE | config))
    bench.broker.create_topic("t", 4)
    return bench


@pytest.fixture
def bench():
    return opened()


def pair(bench):
    """Two members with two partitions each."""
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    a.revoke()
    b.beat()
    assert (len(a.partitions), len(b.partitions)) == (2, 2)
    return a, b


def described(bench):
    found = bench.groups.describe_consumer_group("g")
    return found._replace(members=tuple(sorted(found.members)))


# -- steps -----------------------------------------------------------------------------------------


def test_a_member_gets_partitions_when_their_owner_has_revoked_them(bench):
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    assert a.join().member_epoch == 2
    assert a.partitions == ["t0", "t1", "t2", "t3"]
    assert b.join().member_epoch == 3
    assert b.partitions == []
    assert described(bench).state == "Reconciling"
    assert a.beat().member_epoch == 2, "it keeps its epoch until it has revoked"
    assert len(a.partitions) == 2
    assert b.beat().assignment is None
    assert a.beat().assignment is None, "without a report of its partitions"
    assert a.revoke().member_epoch == 3
    assert len(b.beat().assignment) == 1
    assert sorted(a.partitions + b.partitions) == ["t0", "t1", "t2", "t3"]
    assert described(bench).state == "Stable"


def test_the_assignment_is_only_sent_when_it_changes_or_everything_is_asked(bench):
    a = ConsumerClient(bench, "a")
    a.join()
    assert a.beat().assignment is None
    full = {"rebalance_timeout_ms": 1000, "topics": ("t",), "owned": a.owned}
    assert a.beat(**full).assignment == a.owned


@pytest.mark.parametrize("assignor", ("uniform", "range"))
def test_partitions_that_a_copied_topic_lacks_are_not_assigned(bench, assignor):
    bench.broker.create_topic("u", 4)
    bench.broker.close()
    for name in bench.fs.list_dir("/data"):
        if name.endswith(".json"):
            bench.fs.remove(f"/data/{name}")
    bench.fs.rename("/data/u-1", "/data/u-5")
    bench.open()
    a, b, c = (ConsumerClient(bench, name) for name in "abc")
    a.join(topics=("u",), assignor=assignor)
    assert a.partitions == ["u0", "u2", "u3", "u5"]
    b.join(topics=("u",), assignor=assignor)
    c.join(topics=("t", "u"), assignor=assignor)
    for _ in range(2):
        for each in (a, b, c):
            each.beat()
            each.revoke()
    everything = sorted(a.partitions + b.partitions + c.partitions)
    assert everything == ["t0", "t1", "t2", "t3", "u0", "u2", "u3", "u5"]


def test_a_member_whose_pattern_is_not_resolved_gets_no_topics_of_others(bench):
    """Kafka 4.3.1 treats the group as if all members had the same subscription."""
    a, b, c = (ConsumerClient(bench, name) for name in "abc")
    a.join(assignor="range")
    b.join(assignor="range")
    b.leave()
    c.join(topics=(), regex="no such topic", assignor="range")
    assert c.partitions == []
    assert described(bench).members[1].target == {}


def test_target_assignments_wait_for_the_interval(bench):
    bench = opened(**{"group.consumer.assignment.interval.ms": 1000})
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    a.join()
    assert b.join().member_epoch == 2, "the epoch of the last target"
    assert described(bench).state == "Assigning"
    bench.clock.advance(ms=999)
    assert b.beat().member_epoch == 2
    bench.reopen()
    bench.clock.advance(ms=1)
    assert b.beat().member_epoch == 3


@pytest.mark.parametrize("restart", (GroupBench.restart, GroupBench.reopen))
def test_a_restart_in_the_middle_of_a_reconciliation_changes_nothing(bench, restart):
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    before = described(bench)
    restart(bench)
    assert described(bench) == before
    assert b.beat().assignment is None
    assert a.revoke().member_epoch == 3
    assert len(b.beat().assignment) == 1


def test_cleaning_between_two_heartbeats_keeps_the_group(bench):
    a, b = pair(bench)
    for _ in range(20):
        a.beat(owned=a.owned, topics=("t", "u"), rebalance_timeout_ms=1)
        a.beat(owned=a.owned, topics=("t",), rebalance_timeout_ms=1)
    before = described(bench)
    bench.broker.clean(GROUP_OFFSETS_TOPIC, force=True, roll=True)
    bench.reopen()
    assert described(bench) == before
    assert a.beat().error is None
    b.leave()
    bench.broker.clean(GROUP_OFFSETS_TOPIC, force=True, roll=True)
    bench.reopen()
    assert [each.member_id for each in described(bench).members] == ["a"]


# -- topics ----------------------------------------------------------------------------------------


def test_new_partitions_are_assigned_with_the_next_heartbeat(bench):
    a, b = pair(bench)
    bench.broker.create_partitions("t", 6)
    assert a.beat().member_epoch == b.beat().member_epoch == 4
    assert sorted(a.partitions + b.partitions) == [f"t{number}" for number in range(6)]


def test_a_topic_that_is_deleted_and_created_again_has_another_id(bench):
    a = ConsumerClient(bench, "a")
    a.join()
    before = set(a.owned)
    bench.broker.delete_topic("t")
    a.beat()
    assert a.owned == {}
    a.revoke()
    bench.broker.create_topic("t", 1)
    a.beat()
    assert a.partitions == ["t0"]
    assert set(a.owned) != before


def test_another_subscription_takes_partitions_away_at_once(bench):
    bench.broker.create_topic("u", 1)
    a = ConsumerClient(bench, "a", topics=("t", "u"))
    a.join()
    a.beat(topics=("u",), owned=a.owned)
    assert a.partitions == ["u0"]
    assert a.beat(owned=a.owned).error is None


# -- patterns --------------------------------------------------------------------------------------


def test_a_pattern_is_resolved_after_the_answer(bench):
    bench.broker.create_topic("tu", 1)
    a = ConsumerClient(bench, "a", regex="t.?")
    assert a.join().assignment == {}
    a.beat()
    assert a.partitions == ["t0", "t1", "t2", "t3", "tu0"]
    bench.broker.create_topic("tx", 1)
    a.beat()
    assert "tx0" not in a.partitions, "patterns are resolved at most every 10 s"
    bench.clock.advance(ms=10_001)
    a.beat()
    a.beat()
    assert "tx0" in a.partitions


def test_a_pattern_whose_topics_cannot_be_stored_is_resolved_again(bench, monkeypatch, caplog):
    a = ConsumerClient(bench, "a", regex="t")
    save = bench.groups._store.save_records
    calls = []

    def fail_second(*arguments):
        calls.append(arguments)
        return "COORDINATOR_NOT_AVAILABLE" if len(calls) == 2 else save(*arguments)

    monkeypatch.setattr(bench.groups._store, "save_records", fail_second)
    a.join()
    (text,) = caplog.messages
    assert text.endswith(
        "the topics of patterns cannot be stored: the records of group g cannot be written"
    )
    a.beat()
    a.beat()
    assert a.partitions == ["t0", "t1", "t2", "t3"]


def test_a_pattern_only_matches_topics_that_the_member_may_describe(bench):
    bench.broker.create_topic("secret", 1)
    fields = {"rebalance_timeout_ms": 1000, "regex": ".*", "owned": {}}
    request = ConsumerHeartbeat("g", "a", **fields)
    bench.groups.consumer_heartbeat(request, lambda _: None, lambda name: name == "t")
    a = ConsumerClient(bench, "a")
    a.epoch = 1
    a.beat()
    assert a.partitions == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("pattern", ("[", "(?=t)", r"(a)\1", "x" * 10_001))
def test_an_invalid_pattern_is_refused(bench, pattern):
    assert ConsumerClient(bench, "a", regex=pattern).join().error == "INVALID_REGULAR_EXPRESSION"
    assert described(bench).error == "GROUP_ID_NOT_FOUND"


# -- epochs ----------------------------------------------------------------------------------------


def test_a_lost_answer_is_given_again_to_the_previous_epoch(bench):
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    lost = a.send(owned=a.owned)
    assert (a.epoch, lost.member_epoch) == (2, 3)
    full = {"rebalance_timeout_ms": 1000, "topics": ("t",)}
    assert a.send(**full, owned=a.owned).member_epoch == 3
    assert a.send(**full).error == "FENCED_MEMBER_EPOCH", "it must report its partitions"
    everything = {next(iter(a.owned)): (0, 1, 2, 3)}
    assert a.send(**full, owned=everything).error == "FENCED_MEMBER_EPOCH"


@pytest.mark.parametrize("epoch", (4, 1))
def test_another_epoch_is_fenced(bench, epoch):
    a, _ = pair(bench)
    assert a.send(member_epoch=epoch, owned={}).error == "FENCED_MEMBER_EPOCH"


def test_a_fenced_member_joins_again_with_its_id(bench):
    a, b = pair(bench)
    assert a.join().member_epoch == 3
    assert sorted(a.partitions + b.partitions) == ["t0", "t1", "t2", "t3"]


NO_SUBSCRIPTION = (
    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    (
        ({"member_epoch": 1}, "GROUP_ID_NOT_FOUND", "Group g not found."),
        ({"member_epoch": -1}, "GROUP_ID_NOT_FOUND", "Group g not found."),
        ({"member_epoch": -2}, "INVALID_REQUEST", "InstanceId can't be null."),
        ({"member_epoch": -2, "instance_id": "i"}, "GROUP_ID_NOT_FOUND", "Group g not found."),
        ({"member_epoch": -3}, "INVALID_REQUEST", "MemberEpoch is invalid."),
        ({}, "INVALID_REQUEST", "RebalanceTimeoutMs must be provided in first request."),
        (
            {"rebalance_timeout_ms": 1},
            "INVALID_REQUEST",
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"rebalance_timeout_ms": 1, "owned": {"t": (0,)}},
            "INVALID_REQUEST",
            "TopicPartitions must be empty when (re-)joining.",
        ),
        ({"rebalance_timeout_ms": 1, "owned": {}}, "INVALID_REQUEST", NO_SUBSCRIPTION),
        ({"member_id": "", "member_epoch": 1}, "INVALID_REQUEST", "MemberId can't be empty."),
        ({"member_id": " ", "member_epoch": -1}, "INVALID_REQUEST", "MemberId can't be empty."),
        ({"instance_id": " "}, "INVALID_REQUEST", "InstanceId can't be empty."),
        ({"rack_id": ""}, "INVALID_REQUEST", "RackId can't be empty."),
        (
            {"assignor": "sticky", "member_epoch": 1},
            "UNSUPPORTED_ASSIGNOR",
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
    ),
)
def test_invalid_requests_are_refused(bench, fields, error, message):
    assert ConsumerClient(bench, "a").send(**fields) == refusal(error, message)


def refusal(error, message):
    return ConsumerHeartbeatResult(error=error, message=message)


def test_a_group_without_an_id_is_refused(bench):
    result = ConsumerClient(bench, "a", group="").join()
    assert result == refusal("INVALID_REQUEST", "GroupId can't be empty.")


def test_an_unknown_member_is_refused(bench):
    pair(bench)
    unknown = refusal("UNKNOWN_MEMBER_ID", "Member x is not a member of group g.")
    assert ConsumerClient(bench, "x").send(member_epoch=2) == unknown
    assert ConsumerClient(bench, "x").leave() == unknown


def test_a_classic_group_refuses_heartbeats_of_the_other_protocol(bench):
    settle(bench.member())
    result = ConsumerClient(bench, "a").send(member_epoch=1)
    assert result == refusal("GROUP_ID_NOT_FOUND", "Group g is not a consumer group.")


def test_a_group_of_limited_size_refuses_more_members():
    bench = opened(**{"group.consumer.max.size": 2})
    a, _ = pair(bench)
    message = "The consumer group has reached its maximum capacity of 2 members."
    assert ConsumerClient(bench, "c").join() == refusal("GROUP_MAX_SIZE_REACHED", message)
    assert a.join().error is None


def test_static_members_that_are_refused(bench):
    a = ConsumerClient(bench, "a", instance="i")
    a.join()
    other = ConsumerClient(bench, "b", instance="i")
    assert other.join() == refusal(
        "UNRELEASED_INSTANCE_ID",
        "Static member b with instance id i cannot join the group because the instance id is owned"
        " by a member.",
    )
    fenced = refusal(
        "FENCED_INSTANCE_ID", "Static member b with instance id i was fenced by member a."
    )
    assert other.send(member_epoch=1) == fenced
    assert other.leave(-1) == other.leave(-2) == fenced
    unknown = refusal("UNKNOWN_MEMBER_ID", "Instance id j is unknown.")
    assert a.send(instance_id="j") == unknown
    assert a.send(instance_id="j", member_epoch=-1) == unknown
    assert a.beat().error is None


def test_epochs_that_are_fenced(bench):
    a, _ = pair(bench)
    text = (
        "The consumer group member has a {} member epoch ({}) than the one known by the group"
        " coordinator (3). The member must abandon all its partitions and rejoin."
    )
    for epoch, side in ((1, "smaller"), (2, "smaller"), (4, "greater")):
        result = a.send(member_epoch=epoch, owned={"x": (7,)})
        assert result == refusal("FENCED_MEMBER_EPOCH", text.format(side, epoch))


def test_an_invalid_pattern_is_named(bench):
    result = ConsumerClient(bench, "a", regex="t(").join()
    assert result.error == "INVALID_REGULAR_EXPRESSION"
    assert result.message.startswith("SubscribedTopicRegex `t(` is not a valid regular expression:")
    assert result.message.endswith(".")


def test_the_first_version_lets_the_broker_choose_the_id(bench):
    a = ConsumerClient(bench, "", requires_member_id=False)
    assert len(a.join().member_id) == 22
    assert ConsumerClient(bench, "").join().error == "INVALID_REQUEST"


# -- sessions --------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_after_its_session(bench):
    a, b = pair(bench)
    bench.clock.advance(ms=44_999)
    assert b.beat().error is None
    bench.clock.advance(ms=1)
    assert a.beat().error == "UNKNOWN_MEMBER_ID"
    b.beat()
    assert b.partitions == ["t0", "t1", "t2", "t3"]


def test_a_slow_revocation_ends_with_the_rebalance_timeout(bench):
    a = ConsumerClient(bench, "a", rebalance_timeout_ms=5000)
    b = ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    bench.clock.advance(ms=4999)
    assert a.beat().error is None
    bench.clock.advance(ms=1)
    assert a.beat().error == "UNKNOWN_MEMBER_ID"
    b.beat()
    assert b.partitions == ["t0", "t1", "t2", "t3"]


def test_the_timeouts_continue_after_a_restart(bench):
    a = ConsumerClient(bench, "a", rebalance_timeout_ms=5000)
    b = ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    bench.restart()
    assert a.beat().error is None
    bench.clock.advance(ms=5000)
    assert a.beat().error == "UNKNOWN_MEMBER_ID"
    bench.clock.advance(ms=45_000)
    assert b.beat().error == "UNKNOWN_MEMBER_ID"
    assert bench.groups.list_groups()[0].state == "Empty"


def test_members_over_the_wire_live_on_the_system_clock(bench):
    a, _ = pair(bench)
    bench.groups.use_system_clock()
    bench.clock.advance(ms=100_000)
    assert a.beat().error is None


def test_a_timeout_is_repeated_until_the_removal_can_be_written(bench, monkeypatch, caplog):
    """Every half a second; it has a reason, and each failure is logged."""
    caplog.set_level(logging.INFO)
    a, b = ConsumerClient(bench, "a"), ConsumerClient(bench, "b")
    a.join(rebalance_timeout_ms=10_000)
    b.join()
    assert a.beat().member_epoch == 2, "it must revoke"
    with monkeypatch.context() as patch:
        patch.setattr(bench.groups._store, "save_records", lambda *_: "COORDINATOR_NOT_AVAILABLE")
        bench.clock.advance(seconds=12)
        assert a.beat().error is None
    bench.clock.advance(ms=499)
    assert a.beat().error is None
    bench.clock.advance(ms=1)
    assert a.beat().error == "UNKNOWN_MEMBER_ID"
    removal = "group 'g': removing a: the revocation took longer than 10000 ms"
    failure = "a cannot be removed: the records of group g cannot be written"
    found = [each.rpartition(">: ")[2] for each in caplog.messages if "remov" in each]
    assert found == [removal, failure] * 5 + [removal]
    b.beat()
    assert len(b.partitions) == 4


def test_a_session_ends_as_soon_as_the_removal_can_be_written(bench, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    a, b = pair(bench)
    bench.clock.advance(seconds=30)
    b.beat()
    with monkeypatch.context() as patch:
        patch.setattr(bench.groups._store, "save_records", lambda *_: "COORDINATOR_NOT_AVAILABLE")
        bench.clock.advance(seconds=20)
        assert len(described(bench).members) == 2
    bench.clock.advance(ms=499)
    assert len(described(bench).members) == 2
    bench.clock.advance(ms=1)
    removals = [each for each in caplog.messages if "removing" in each]
    assert set(removals) == {"group 'g': removing a: its session expired"}
    assert len(removals) == 12
    assert [each.member_id for each in described(bench).members] == ["b"]
    assert a.beat().error == "UNKNOWN_MEMBER_ID"


# -- static members --------------------------------------------------------------------------------


def test_a_static_member_returns_with_its_partitions(bench):
    a, b = ConsumerClient(bench, "a", instance="i"), ConsumerClient(bench, "b")
    a.join()
    b.join()
    a.beat()
    a.revoke()
    b.beat()
    again = ConsumerClient(bench, "a2", instance="i")
    assert again.join().error == "UNRELEASED_INSTANCE_ID"
    assert again.send(member_epoch=3).error == "FENCED_INSTANCE_ID"
    assert a.leave(-2).member_epoch == -2
    assert b.beat().assignment is None, "the partitions belong to the instance"
    assert again.join().member_epoch == 3
    assert again.partitions == a.partitions
    assert a.send(member_epoch=3).error == "FENCED_INSTANCE_ID"
    assert ConsumerClient(bench, "x", instance="y").send(member_epoch=3).error == (
        "UNKNOWN_MEMBER_ID"
    )


def test_the_session_of_a_replaced_static_member_ends(bench):
    for number in range(5):
        client = ConsumerClient(bench, f"a{number}", instance="i")
        client.join()
        client.send(member_epoch=-2)
    client = ConsumerClient(bench, "last", instance="i")
    client.join()
    for _ in range(10):
        bench.clock.advance(seconds=10)
        client.beat()
    (group,) = bench.groups._groups
    assert list(group.sessions) == ["last"]


def test_a_static_member_that_does_not_return_loses_its_partitions(bench):
    a, b = ConsumerClient(bench, "a", instance="i"), ConsumerClient(bench, "b")
    a.join()
    a.leave(-2)
    bench.clock.advance(ms=45_000)
    b.join()
    assert b.partitions == ["t0", "t1", "t2", "t3"]


# -- offsets ---------------------------------------------------------------------------------------


def committed(bench, member, epoch, tp=T0, version=9):
    return bench.groups.commit(
        "g", {tp: OffsetAndMetadata(1)}, epoch, member.member_id, version=version
    )[tp]


def test_commits_are_checked_against_epochs(bench):
    a, b = pair(bench)
    kept, gone = (TopicPartition("t", int(each.partitions[0][1:])) for each in (a, b))
    assert committed(bench, a, 3, gone) is None, "with the current epoch, any partition"
    assert committed(bench, a, 2, kept) is None, "it has had the partition since epoch 2"
    assert committed(bench, a, 2, gone) == "STALE_MEMBER_EPOCH"
    assert committed(bench, b, 2, gone) == "STALE_MEMBER_EPOCH"
    assert committed(bench, a, 4, kept) == "STALE_MEMBER_EPOCH"
    assert committed(bench, ConsumerClient(bench, "x"), 3) == "UNKNOWN_MEMBER_ID"
    assert committed(bench, a, 3, version=8) == "UNSUPPORTED_VERSION"
    assert bench.groups.commit("g", {T0: OffsetAndMetadata(1)})[T0] == "UNKNOWN_MEMBER_ID"


def test_anybody_commits_to_a_group_without_members(bench):
    a, b = pair(bench)
    stranger = ConsumerClient(bench, "x")
    assert committed(bench, stranger, -1) == "UNKNOWN_MEMBER_ID"
    a.leave()
    b.leave()
    assert committed(bench, stranger, -1) is None
    assert committed(bench, stranger, 0) == "UNKNOWN_MEMBER_ID"
    assert bench.groups.commit("g", {T0: OffsetAndMetadata(1)})[T0] is None


def test_fetches_with_an_epoch_are_checked(bench):
    pair(bench)
    check = bench.groups.check_fetch
    assert check("g", "a", 3) is None
    assert check("g", None, -1) is None
    assert check("g", "a", 2) == "STALE_MEMBER_EPOCH"
    assert check("g", "x", 3) == "UNKNOWN_MEMBER_ID"


def test_offsets_of_a_transaction_are_checked(bench):
    a, _ = pair(bench)
    offsets = {T0: OffsetAndMetadata(1)}
    bench.groups.check_transactional(ConsumerGroupMetadata("g"), offsets)
    bench.groups.check_transactional(ConsumerGroupMetadata("g", 3, a.member_id), offsets)
    with pytest.raises(IllegalGenerationError):
        bench.groups.check_transactional(ConsumerGroupMetadata("g", 4, a.member_id), offsets)


def test_offsets_expire_unless_a_member_subscribes_to_the_topic(bench):
    bench.broker.create_topic("u", 1)
    a = ConsumerClient(bench, "a")
    a.join()
    committed(bench, a, 2)
    committed(bench, a, 2, TopicPartition("u", 0))
    for _ in range(8 * 24 * 90):
        bench.clock.advance(ms=40_000)
        a.beat()
    bench.groups.remove_expired()
    assert list(bench.groups.committed("g")) == [T0]


def test_a_group_without_members_and_offsets_is_deleted(bench):
    a, b = pair(bench)
    committed(bench, a, 3)
    assert bench.groups.delete(["g"]) == {"g": "NON_EMPTY_GROUP"}
    a.leave()
    b.leave()
    assert bench.groups.list_groups()[0].state == "Empty"
    assert bench.groups.delete(["g"]) == {"g": None}
    bench.reopen()
    assert bench.groups.list_groups() == []


# -- conversions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ("disabled", "downgrade", "upgrade", "bidirectional"))
def test_the_policy_decides_about_upgrades(policy):
    delay = {"group.initial.rebalance.delay.ms": 0}
    bench = opened(**delay, **{"group.consumer.migration.policy": policy})
    old = bench.member()
    old.join()
    everything = tuple(TopicPartition("t", number) for number in range(4))
    old.sync({old.member_id: encode_assignment(Assignment(everything))})
    new = ConsumerClient(bench, "n")
    result = new.join()
    if policy in ("disabled", "downgrade"):
        assert result == not_upgraded("online upgrade is disabled")
        assert bench.groups.list_groups()[0].group_type == "classic"
        return
    assert (result.error, result.member_epoch) == (None, 2)
    assert bench.groups.list_groups()[0].group_type == "consumer"
    assert old.beat() == "REBALANCE_IN_PROGRESS"
    old.join()
    assert old.joined.generation_id == 2, "it has revoked everything"
    old.sync()
    assert len(decode_assignment(old.synced.assignment).partitions) == 2
    new.beat()
    assert len(new.partitions) == 2
    assert old.beat() is None
    bench.reopen()
    assert [each.is_classic for each in described(bench).members] == [True, False]
    new.leave()
    if policy == "bidirectional":
        assert bench.groups.list_groups()[0].group_type == "classic"
        assert old.beat() == "REBALANCE_IN_PROGRESS"
        old.join()
        assert old.joined.error is None
    else:
        assert described(bench).state == "Assigning"


def test_a_classic_member_joins_a_consumer_group(bench):
    a = ConsumerClient(bench, "a")
    a.join()
    old = bench.member()
    old.join()
    assert (old.joined.error, old.joined.generation_id) == (None, 3)
    old.sync()
    a.beat()
    a.revoke()
    assert old.beat() == "REBALANCE_IN_PROGRESS", "partitions are free"
    old.join()
    old.sync()
    assert len(decode_assignment(old.synced.assignment).partitions) == 2
    assert old.leave() is None
    a.beat()
    assert len(a.partitions) == 4


def test_without_a_policy_classic_members_are_refused():
    bench = opened(**{"group.consumer.migration.policy": "disabled"})
    ConsumerClient(bench, "a").join()
    member = bench.member()
    member.join()
    assert member.joined.error == "INCONSISTENT_GROUP_PROTOCOL"


def not_upgraded(reason):
    message = f"Cannot upgrade classic group g to consumer group because {reason}."
    return refusal("GROUP_ID_NOT_FOUND", message)


def test_classic_groups_that_cannot_be_upgraded():
    delay = {"group.initial.rebalance.delay.ms": 0, "group.consumer.max.size": 1}
    bench = opened(**delay)
    connect = bench.member(protocol_type="connect")
    connect.join()
    new = ConsumerClient(bench, "n")
    assert new.join() == not_upgraded("the group does not use the consumer embedded protocol")
    assert connect.leave() is None
    old = bench.member(protocols=(("range", b"?"),))
    old.join()
    assert new.join() == not_upgraded("the embedded consumer protocol is malformed")
    old.protocols = (("range", wanting("t")),)
    old.join()
    old.sync({old.member_id: encode_assignment(Assignment((), b"mine"))})
    assert new.join() == not_upgraded("an unsupported custom assignor is in use")
    bench.member().join()
    assert new.join() == not_upgraded("the group size exceeds the consumer group maximum size")
    assert [each.group_type for each in bench.groups.list_groups()] == ["classic"]


REBALANCE_MS = 5000


@pytest.fixture
def mixed(bench):
    """A consumer group with a classic member, which has an assignment but no heartbeats yet."""
    a = ConsumerClient(bench, "a")
    a.join()
    old = bench.member(rebalance_ms=REBALANCE_MS, session_ms=40_000)
    old.join()
    old.sync()
    assert old.synced.error is None
    return a, old


def is_member(bench, client):
    return client.member_id in {each.member_id for each in described(bench).members}


@pytest.mark.parametrize("syncs", (False, True))
def test_a_classic_member_must_sync_within_its_rebalance_timeout(bench, syncs):
    ConsumerClient(bench, "a").join()
    old = bench.member(rebalance_ms=REBALANCE_MS, session_ms=40_000)
    old.join()
    bench.clock.advance(ms=REBALANCE_MS - 1)
    assert is_member(bench, old)
    if syncs:
        assert old.sync().error is None
    bench.clock.advance(ms=1)
    assert is_member(bench, old) == syncs
    bench.clock.advance(ms=40_000 - 2)
    assert is_member(bench, old) == syncs, "the sync has restarted its session"
    bench.clock.advance(ms=1)
    assert not is_member(bench, old)


@pytest.mark.parametrize("notice", ("heartbeat", "sync"))
@pytest.mark.parametrize("joins", (False, True))
def test_a_classic_member_must_rejoin_within_its_rebalance_timeout(bench, mixed, notice, joins):
    """The timeout starts with the first notice. A second one does not extend it; a join ends it."""
    _, old = mixed
    ConsumerClient(bench, "b").join()
    for _ in range(2):
        error = old.beat() if notice == "heartbeat" else old.sync().error
        assert error == "REBALANCE_IN_PROGRESS"
        bench.clock.advance(ms=REBALANCE_MS // 2 - 1)
    bench.clock.advance(ms=1)
    assert is_member(bench, old)
    if joins:
        old.join()
        assert old.joined.error is None
        assert old.sync().error is None
    bench.clock.advance(ms=1)
    assert is_member(bench, old) == joins
    bench.clock.advance(ms=REBALANCE_MS)
    assert is_member(bench, old) == joins


def test_the_join_of_a_classic_member_resolves_the_patterns_of_others(bench):
    a = ConsumerClient(bench, "a", regex="u.*")
    a.join()
    bench.broker.create_topic("u1")
    bench.broker.create_topic("u2")
    bench.clock.advance(ms=30_000)
    old = bench.member()
    old.join(may_describe=lambda topic: topic != "u2")
    a.beat()
    a.beat()
    assert a.partitions == ["u10"]


@pytest.mark.parametrize("protocol", ("classic", "consumer"))
def test_a_member_that_left_is_awaited_no_more(bench, mixed, caplog, protocol):
    """If it returns under its id, none of its former timeouts removes it."""
    _, old = mixed
    b = ConsumerClient(bench, "b")
    b.join()
    assert old.beat() == "REBALANCE_IN_PROGRESS"
    assert old.leave() is None
    if protocol == "classic":
        old.join()
        assert old.joined.error is None
        assert old.sync().error is None
    else:
        back = ConsumerClient(bench, old.member_id)
        assert back.join().error is None
    bench.clock.advance(ms=REBALANCE_MS)
    assert is_member(bench, old)


def test_an_empty_group_changes_its_protocol(bench):
    a = ConsumerClient(bench, "a")
    a.join()
    a.leave()
    old = bench.member()
    old.join()
    bench.clock.advance(ms=3000)
    assert bench.groups.list_groups()[0].group_type == "classic"
    old.leave()
    a.join()
    assert bench.groups.list_groups()[0].group_type == "consumer"
    bench.reopen()
    assert bench.groups.list_groups()[0].group_type == "consumer"


# -- records ---------------------------------------------------------------------------------------


def test_records_of_earlier_releases_are_read():
    """Kafka 4.2 wrote no assignment epochs, and 4.0 the metadata of partitions."""
    topic_id = "A" * 21 + "E"
    member = ConsumerMember("m", 3, 2, topics=frozenset("t"), assigned={topic_id: {1: 7, 0: 3}})
    key, value = consumer_records.current_assignment("g", member)
    value.assigned_partitions[0].assignment_epochs = []
    group = ConsumerGroup("g")
    group.apply([(key, value), consumer_records.partition_metadata_tombstone("g")])
    assert group.members["m"].assigned == {topic_id: {0: 3, 1: 3}}
    assert not group.has_partition_metadata


def test_a_damaged_record_refuses_its_group_alone(bench):
    pair(bench)
    log = bench.broker.log(GROUP_OFFSETS_TOPIC, 0)
    key, _ = consumer_records.encode(consumer_records.group_epoch("bad", 1, 0))
    batch = build_batch([Record(0, 0, key, b"\0\0")])
    log.writer.append_batches(batch, AppendOrigin.COORDINATOR)
    bench.reopen()
    assert described(bench).error is None
    assert bench.groups.describe_consumer_group("bad").error == "NOT_COORDINATOR"


# -- assignments by name ---------------------------------------------------------------------------


def test_an_assignment_is_named_in_order_without_deleted_topics(bench):
    bench.broker.create_topic("a", 3)
    ids = {name: bench.broker.topic(name).id for name in "ta"}
    assignment = {ids["t"]: (3, 0), "A" * 22: (0,), ids["a"]: (2, 1)}
    assert bench.groups.named_partitions(assignment) == (
        TopicPartition("a", 1),
        TopicPartition("a", 2),
        TopicPartition("t", 0),
        TopicPartition("t", 3),
    )
    bench.broker.delete_topic("a")
    assert bench.groups.named_partitions({ids["a"]: (0,)}) == ()


def test_the_partitions_of_a_target_are_stored_in_order():
    target = {"A" * 22: frozenset((33, 1, 8, 0, 64))}
    _, value = consumer_records.target_assignment("g", "m", target)
    (stored,) = value.topic_partitions
    assert (stored.topic_id, stored.partitions) == ("A" * 22, [0, 1, 8, 33, 64])


def test_only_an_absent_group_is_described_with_a_message(bench, monkeypatch):
    found = bench.groups.describe("g")
    assert (found.state, found.error, found.message is None) == ("Dead", None, False)
    monkeypatch.setattr(bench.groups._groups, "find", lambda _: (None, "NOT_COORDINATOR"))
    found = bench.groups.describe("g")
    assert (found.state, found.error, found.message) == ("Dead", "NOT_COORDINATOR", None)
