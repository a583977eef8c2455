"""The group coordinator: states, errors and timeouts of the classic protocol.

Expected results are Kafka's: `GroupCoordinatorTest` and GroupCoordinator of version 3.9.
"""

import logging
import threading
from threading import Thread
from types import SimpleNamespace

import pytest

from logstore import Broker, VirtualClock
from logstore.coordinator.groups.requests import LeavingMember, SyncRequest
from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.runtime import SystemClock, ThreadScheduler
from tests.support.world.groups import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    GroupBench,
    settle,
    wanting,
)


@pytest.fixture
def bench():
    bench = GroupBench()
    bench.broker.create_topic("t", 4)
    yield bench
    bench.broker.close()


# -- joining ---------------------------------------------------------------------------------


def test_the_first_member_leads_and_gets_its_assignment(bench):
    member = bench.member()
    joined = member.join()
    assert (joined.error, joined.generation_id, joined.protocol_name) == (None, 1, "range")
    assert joined.leader == joined.member_id == member.member_id
    assert [each.metadata for each in joined.members] == [wanting("t")]
    assert bench.state() == "CompletingRebalance"
    assert member.sync({member.member_id: b"all"}).assignment == b"all"
    assert bench.state() == "Stable"
    assert member.beat() is None
    assert member.member_id.startswith("c-")


def test_a_new_member_gets_an_id_to_join_with(bench):
    member = bench.member(requires_member_id=True)
    first = member.join()
    assert first.error == "MEMBER_ID_REQUIRED"
    assert first.member_id != ""
    assert bench.state() == "Empty"
    assert member.join().error is None
    assert member.member_id == first.member_id


def test_no_member_gets_the_id_of_another(bench, monkeypatch):
    """The second member simulates a member of an earlier broker with the same seed."""
    drawn = iter((7, 7, 8, 7, 9))
    monkeypatch.setattr(bench.broker.runtime.rng, "getrandbits", lambda bits: next(drawn))
    first, second = (bench.member(requires_member_id=True) for _ in range(2))
    ids = [member.join().member_id for member in (first, second)]  # pending ids
    first.join()
    third = bench.member()
    third.join()  # has the id of a joined member
    assert len({*ids, third.member_id}) == 3
    assert next(drawn, None) is None


def test_a_pending_member_id_expires(bench):
    """Until then, no rebalance completes without it."""
    first, second = bench.member(), bench.member(requires_member_id=True)
    settle(first)
    second.join()
    assert first.join() is None
    assert bench.state() == "PreparingRebalance"
    bench.clock.advance(ms=SESSION_MS - 1)
    assert first.joined is None
    bench.clock.advance(ms=1)
    assert first.joined.error is None
    assert second.join().error == "UNKNOWN_MEMBER_ID"


def test_a_second_member_makes_the_first_join_again(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    assert second.join() is None
    assert bench.state() == "PreparingRebalance"
    assert first.beat() == "REBALANCE_IN_PROGRESS"
    assert first.join().generation_id == second.joined.generation_id == 2
    assert first.is_leader
    assert not second.is_leader
    assert [each.member_id for each in first.joined.members] == [first.member_id, second.member_id]
    assert second.joined.members == ()
    assert second.sync() is None
    assert first.sync().assignment == first.member_id.encode()
    assert second.synced.assignment == second.member_id.encode()


def test_a_member_that_does_not_rejoin_in_time_is_removed(bench):
    first, second = bench.member(session_ms=REBALANCE_MS * 2), bench.member()
    settle(first)
    second.join()
    bench.clock.advance(ms=REBALANCE_MS - 1)
    assert second.joined is None
    bench.clock.advance(ms=1)
    assert second.joined.generation_id == 2
    assert second.is_leader
    assert first.beat() == "UNKNOWN_MEMBER_ID"
    assert first.join().error == "UNKNOWN_MEMBER_ID"


def test_a_retry_of_a_join_is_answered_with_the_same(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    again = second.join()
    assert (again.error, again.generation_id, again.members) == (None, 2, ())
    first.sync()
    second.sync()
    assert second.join().generation_id == 2
    assert bench.state() == "Stable"
    assert first.join() is None  # a leader rejoins to trigger a rebalance
    assert second.join().generation_id == 3


def test_another_subscription_rebalances(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    second.protocols = (("range", wanting("t", "u")),)
    second.join()
    assert bench.state() == "PreparingRebalance"
    assert first.join().members[1].metadata == wanting("t", "u")


def test_a_second_join_of_a_waiting_member_replaces_the_first(bench):
    first, second, third = bench.member(), bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    third.join()
    answers = []
    for _ in range(2):
        second._on_joined = answers.append
        second.join()
    assert [each.error for each in answers] == ["REBALANCE_IN_PROGRESS"]
    first.join()
    assert [each.error for each in answers] == ["REBALANCE_IN_PROGRESS", None]


def test_the_protocol_with_most_votes_is_chosen(bench):
    a, b, c = (wanting(name) for name in "abc")
    first = bench.member(protocols=(("range", a), ("roundrobin", a)))
    second = bench.member(protocols=(("roundrobin", b), ("range", b), ("sticky", b)))
    third = bench.member(protocols=(("sticky", c), ("roundrobin", c), ("range", c)))
    settle(first)
    second.join()
    settle(first, second)
    third.join()
    second.join()
    assert first.join().protocol_name == "roundrobin"
    assert [each.metadata for each in first.joined.members] == [a, b, c]


@pytest.mark.parametrize(
    ("change", "error"),
    (
        ({"group_id": ""}, "INVALID_GROUP_ID"),
        ({"session_timeout_ms": 5999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"group_id": "new", "member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"protocols": (("other", b""),)}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group_id": "new", "protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group_id": "new", "protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group_instance_id": "i", "member_id": "x"}, "UNKNOWN_MEMBER_ID"),
    ),
)
def test_joins_that_are_refused(bench, change, error):
    settle(bench.member())
    before = bench.groups.describe("g")
    assert bench.member().join(**change).error == error
    assert bench.groups.describe("g") == before


def test_a_group_has_a_largest_size():
    bench = GroupBench(**{"group.max.size": 2})
    first, second, third = bench.member(), bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    assert third.join().error == "GROUP_MAX_SIZE_REACHED"
    assert bench.state() == "Stable"
    first.join()
    assert third.join() is None  # in a rebalance, the first two to join are admitted
    assert second.join().error == "GROUP_MAX_SIZE_REACHED"
    assert first.joined.generation_id == 3
    assert third.joined.error is None


def test_the_first_rebalance_is_delayed_as_configured():
    bench = GroupBench(**{"group.initial.rebalance.delay.ms": 3000})
    first, second = bench.member(), bench.member()
    assert first.join() is None
    bench.clock.advance(ms=2000)
    assert second.join() is None
    bench.clock.advance(ms=1000)
    assert first.joined is None  # a member that joined in the meantime extends the delay
    bench.clock.advance(ms=3000)
    assert (first.joined.generation_id, second.joined.generation_id) == (1, 1)
    first.leave()
    second.leave()
    assert bench.state() == "Empty"


def test_a_rebalance_waits_for_the_longest_rebalance_timeout(bench):
    """The longest rebalance timeout of the members counts."""
    hasty = bench.member(rebalance_ms=5_000, session_ms=300_000)
    patient = bench.member(rebalance_ms=60_000, session_ms=300_000)
    third = bench.member(rebalance_ms=20_000, session_ms=300_000)
    settle(hasty)
    patient.join()
    settle(hasty, patient)
    assert third.join() is None
    bench.clock.advance(ms=59_999)
    assert third.joined is None
    bench.clock.advance(ms=1)
    assert third.joined.error is None
    assert [each.member_id for each in bench.groups.describe("g").members] == [third.member_id]
    # The member with the longest timeout is removed: the remaining member's timeout counts.
    fourth = bench.member(rebalance_ms=5_000, session_ms=300_000)
    third.sync()
    assert fourth.join() is None
    bench.clock.advance(ms=19_999)
    assert fourth.joined is None
    bench.clock.advance(ms=1)
    assert fourth.joined.error is None


# -- syncs, heartbeats, sessions -------------------------------------------------------------


def test_syncs_that_are_refused(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    assert first.sync(generation_id=0).error == "ILLEGAL_GENERATION"
    assert first.sync(member_id="nobody").error == "UNKNOWN_MEMBER_ID"
    assert first.sync(group_id="none").error == "UNKNOWN_MEMBER_ID"
    assert first.sync(protocol_name="sticky").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert first.sync(protocol_type="connect").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert first.sync(protocol_type="consumer", protocol_name="range").error is None
    second.join()
    assert first.sync().error == "REBALANCE_IN_PROGRESS"


def test_a_member_without_an_assignment_gets_an_empty_one(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    second.sync()
    first.sync({first.member_id: b"x"})
    assert second.synced.assignment == b""


def test_a_member_waiting_for_its_assignment_is_notified_of_the_next_rebalance(bench):
    first, second, third = bench.member(), bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    assert second.sync() is None
    third.join()
    assert second.synced.error == "REBALANCE_IN_PROGRESS"


def test_a_member_can_wait_for_its_assignment_once(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    replaced = []
    assert second.sync() is None
    bench.groups.sync(
        SyncRequest("g", second.generation, second.member_id, assignments={}), replaced.append
    )
    assert (second.synced.error, replaced) == ("REBALANCE_IN_PROGRESS", [])
    first.sync()
    assert [(each.error, each.assignment) for each in replaced] == [
        (None, second.member_id.encode())
    ]


def test_a_member_that_does_not_sync_in_time_is_removed(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    first.sync()
    for _ in range(7):
        bench.clock.advance(ms=REBALANCE_MS // 10)
        assert (first.beat(), second.beat()) == (None, None)
    for _ in range(3):
        bench.clock.advance(ms=REBALANCE_MS // 10)
        first.beat()
        second.beat()
    assert second.beat() == "UNKNOWN_MEMBER_ID"
    assert first.beat() == "REBALANCE_IN_PROGRESS"


def test_a_silent_member_is_removed_after_its_session_timeout(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    bench.clock.advance(ms=SESSION_MS - 1)
    assert first.beat() is None
    bench.clock.advance(ms=1)
    assert bench.state() == "PreparingRebalance"
    assert second.beat() == "UNKNOWN_MEMBER_ID"
    assert first.join().generation_id == 3
    assert len(first.joined.members) == 1


def test_a_member_waiting_in_a_join_or_sync_needs_no_heartbeats(bench):
    first, second = bench.member(session_ms=REBALANCE_MS * 3), bench.member()
    settle(first)
    second.join()
    bench.clock.advance(ms=SESSION_MS * 2)
    first.join()
    assert second.joined.error is None
    second.sync()
    bench.clock.advance(ms=SESSION_MS * 2)
    assert second.synced is None
    first.sync()
    assert second.synced.error is None
    bench.clock.advance(ms=SESSION_MS)
    assert second.beat() == "UNKNOWN_MEMBER_ID"


def test_a_new_member_waits_five_minutes_at_most(bench):
    ten_minutes = 600_000
    first = bench.member(session_ms=ten_minutes, rebalance_ms=ten_minutes)
    second = bench.member(rebalance_ms=ten_minutes)
    settle(first)
    second.join()
    bench.clock.advance(minutes=5)
    assert second.joined.error == "UNKNOWN_MEMBER_ID"


def test_heartbeats_of_unknown_members(bench):
    member = bench.member()
    assert member.beat() == "UNKNOWN_MEMBER_ID"
    settle(member)
    generation, member.generation = member.generation, 7
    assert member.beat() == "ILLEGAL_GENERATION"
    member.generation, member.member_id = generation, "nobody"
    assert member.beat() == "UNKNOWN_MEMBER_ID"


# -- leaving ---------------------------------------------------------------------------------


def test_the_last_leave_starts_an_empty_generation(bench):
    member = bench.member()
    settle(member)
    assert member.leave() is None
    assert bench.state() == "Empty"
    assert member.beat() == "UNKNOWN_MEMBER_ID"
    assert member.leave() == "UNKNOWN_MEMBER_ID"
    assert bench.member().join().generation_id == 3


def test_the_others_are_rebalanced_when_one_leaves(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    first.leave()
    assert second.beat() == "REBALANCE_IN_PROGRESS"
    second.join()
    assert second.is_leader


def test_a_member_that_leaves_while_it_waits_gets_an_error(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    second.member_id = bench.groups.describe("g").members[1].member_id
    second.leave()
    assert second.joined.error == "UNKNOWN_MEMBER_ID"
    assert first.join().generation_id == 2


def test_a_member_that_leaves_while_it_waits_for_its_assignment_gets_an_error(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    assert second.sync() is None
    assert second.leave() is None
    assert second.synced.error == "UNKNOWN_MEMBER_ID"
    assert bench.state() == "PreparingRebalance"
    assert first.join().generation_id == 3


def test_an_administrator_removes_members(bench):
    first, second = bench.member(instance="i"), bench.member()
    settle(first)
    second.join()
    left = bench.groups.leave(
        "g", [LeavingMember("", "i"), LeavingMember("", "j"), LeavingMember("", None)]
    )
    assert [each.error for each in left.members] == [None, "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert second.joined.error is None
    assert bench.groups.leave("none", [LeavingMember("x")]).members[0].error == "UNKNOWN_MEMBER_ID"


def test_a_pending_member_can_leave(bench):
    member = bench.member(requires_member_id=True)
    member.join()
    assert member.leave() is None
    assert member.join().error == "UNKNOWN_MEMBER_ID"


# -- static members --------------------------------------------------------------------------


def two_static(bench, **options):
    first, second = bench.member(instance="a", **options), bench.member(instance="b", **options)
    settle(first)
    second.join()
    settle(first, second)
    return first, second


@pytest.mark.parametrize("can_skip", (True, False))
def test_a_static_member_returns_without_a_rebalance(bench, can_skip):
    first, second = two_static(bench)
    assignment = second.synced.assignment
    again = bench.member(instance="b", can_skip_assignment=can_skip)
    joined = again.join()
    assert (joined.error, joined.generation_id, bench.state()) == (None, 2, "Stable")
    assert joined.member_id != second.member_id
    assert again.sync().assignment == assignment
    assert second.beat() == "FENCED_INSTANCE_ID"
    assert second.sync().error == "FENCED_INSTANCE_ID"
    assert second.join().error == "FENCED_INSTANCE_ID"
    assert second.leave() == "FENCED_INSTANCE_ID"
    assert first.beat() is None


def test_a_static_member_keeps_its_id_if_its_return_cannot_be_stored(bench, monkeypatch):
    first, second = two_static(bench)
    before = bench.groups.describe("g").members
    write = bench.groups._store.write_group
    failures = []

    def fail(*_):
        failures.append(1)
        raise KafkaStorageError("the disk is broken")

    for _ in range(2):
        monkeypatch.setattr(bench.groups._store, "write_group", fail)
        again = bench.member(instance="b")
        assert again.join().error == "NOT_COORDINATOR"
        monkeypatch.setattr(bench.groups._store, "write_group", write)
        assert bench.groups.describe("g").members == before
        assert (bench.state(), first.beat(), second.beat()) == ("Stable", None, None)
    assert len(failures) == 2
    assert second.sync().error is None
    third = bench.member(instance="b")
    assert third.join().error is None
    assert second.beat() == "FENCED_INSTANCE_ID"


def test_a_returning_static_leader_assigns_nothing(bench):
    first, _ = two_static(bench)
    again = bench.member(instance="a")
    joined = again.join()
    assert joined.skip_assignment
    assert joined.leader == again.member_id
    assert len(joined.members) == 2
    older = bench.member(instance="a", can_skip_assignment=False)
    joined = older.join()
    assert not joined.skip_assignment
    assert joined.leader == again.member_id  # not its own id, so that it does not assign
    assert joined.members == ()
    assert first.beat() == "FENCED_INSTANCE_ID"


def test_a_static_member_with_other_protocols_rebalances(bench):
    data = wanting("t")
    first, _ = two_static(bench, protocols=(("range", data), ("sticky", data)))
    again = bench.member(instance="b", protocols=(("sticky", data),))
    assert again.join() is None
    assert first.join().protocol_name == "sticky"
    assert again.joined.error is None


def test_a_static_member_remains_until_its_session_expires(bench):
    first, second = two_static(bench)
    for _ in range(3):
        bench.clock.advance(ms=SESSION_MS // 4)
        first.beat()
    assert bench.state() == "Stable"
    bench.clock.advance(ms=SESSION_MS // 4)
    assert bench.state() == "PreparingRebalance"
    assert second.beat() == "UNKNOWN_MEMBER_ID"


def test_a_static_member_that_does_not_join_again_stays_a_member(bench):
    """The rebalance completes without it, and its session continues."""
    first, second = two_static(bench, session_ms=REBALANCE_MS * 2)
    third = bench.member()
    third.join()
    first.join()
    bench.clock.advance(ms=REBALANCE_MS)
    assert first.joined.generation_id == 3
    assert len(first.joined.members) == 3
    assert bench.groups.heartbeat("g", 3, second.member_id, "b") is None


def test_a_second_process_under_one_instance_id_fences_the_one_that_waits(bench):
    first, second = bench.member(), bench.member(instance="b")
    settle(first)
    second.join()
    other = bench.member(instance="b")
    assert other.join() is None
    assert second.joined.error == "FENCED_INSTANCE_ID"
    assert first.join().error is None
    assert other.joined.error is None


def test_a_second_process_under_one_instance_id_fences_the_one_that_waits_for_its_assignment(bench):
    first, second = bench.member(), bench.member(instance="b")
    settle(first)
    second.join()
    first.join()
    assert second.sync() is None
    bench.member(instance="b").join()
    assert second.synced.error == "FENCED_INSTANCE_ID"


# -- restarts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", (GroupBench.restart, GroupBench.reopen))
def test_members_send_heartbeats_to_the_next_broker(bench, end):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    described = bench.groups.describe("g")
    end(bench)
    assert bench.groups.describe("g") == described
    assert (first.beat(), second.beat()) == (None, None)
    bench.clock.advance(ms=SESSION_MS - 1)
    first.beat()
    bench.clock.advance(ms=1)
    assert second.beat() == "UNKNOWN_MEMBER_ID"
    assert first.join().generation_id == 3


def test_the_next_broker_knows_the_empty_group(bench):
    member = bench.member()
    settle(member)
    member.leave()
    bench.reopen()
    assert bench.state() == "Empty"
    assert bench.member().join().generation_id == 3


def test_a_group_larger_than_the_new_limit_is_rebalanced(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    settle(first, second)
    bench.config["group.max.size"] = 1
    bench.restart()
    assert first.beat() == "REBALANCE_IN_PROGRESS"
    assert first.join() is None
    assert second.join().error == "GROUP_MAX_SIZE_REACHED"
    assert first.joined.error is None


def test_a_coordinator_of_a_closed_broker_is_refused(bench):
    groups = bench.groups
    member = bench.member()
    settle(member)
    bench.restart()
    with pytest.raises(IllegalStateError):
        groups.describe("g")
    assert bench.state() == "Stable"
    bench.clock.advance(ms=SESSION_MS)
    assert bench.state() == "Empty"


def test_the_topic_may_be_deleted_while_a_group_uses_it(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    bench.broker.delete_topic("__consumer_offsets")
    assert bench.groups.list_groups() == []
    assert second.joined.error == "NOT_COORDINATOR"
    assert first.beat() == "UNKNOWN_MEMBER_ID"
    assert bench.member().join().generation_id == 1


def test_the_topic_may_be_deleted_while_a_member_waits_for_its_assignment(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    second.join()
    first.join()
    assert second.sync() is None
    bench.broker.delete_topic("__consumer_offsets")
    assert bench.groups.list_groups() == []
    assert second.synced.error == "NOT_COORDINATOR"


def test_the_same_seed_writes_the_same_bytes():
    def story():
        bench = GroupBench(seed=7)
        bench.broker.create_topic("t", 2)
        first, second = bench.member(), bench.member(requires_member_id=True)
        settle(first)
        second.join()
        second.join()
        settle(first, second)
        log = bench.broker.log("__consumer_offsets")
        return [batch.data for batch in log.reader.batches(0)]

    assert story() == story() != []


def test_a_group_left_by_all_members_before_its_first_rebalance_accepts_new_ones():
    bench = GroupBench(**{"group.initial.rebalance.delay.ms": 3000})
    first, second = bench.member(), bench.member()
    first.join()
    bench.groups.leave("g", [LeavingMember(bench.groups.describe("g").members[0].member_id)])
    assert bench.state() == "PreparingRebalance"
    assert second.join() is None
    bench.clock.advance(ms=6000)
    assert second.joined.error is None


def test_members_in_other_programs_use_the_system_clock(bench):
    """A jump of the virtual clock expires no session, and no wait depends on it."""
    member = bench.member()
    settle(member)
    bench.broker.groups.use_system_clock()
    bench.clock.advance(days=30)
    assert member.beat() is None
    assert bench.state() == "Stable"
    scheduler = bench.broker.groups.scheduler
    assert isinstance(scheduler, ThreadScheduler)
    bench.broker.groups.use_system_clock()
    assert bench.broker.groups.scheduler is scheduler


LONG_MS = 20 * 60_000
"""A timeout that is never reached."""


def until(condition):
    """Wait for a change by a thread on the system clock."""
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise TimeoutError


def test_a_rebalance_in_progress_ends_on_the_system_clock():
    bench = GroupBench()
    options = {"session_ms": LONG_MS, "rebalance_ms": 50}
    silent, newcomer = bench.member(**options), bench.member(**options)
    settle(silent)
    assert newcomer.join() is None
    bench.broker.groups.use_system_clock()
    until(lambda: newcomer.joined)
    assert [each.member_id for each in newcomer.joined.members] == [newcomer.member_id]
    until(lambda: bench.state() == "Empty")  # the wait for its sync ends too
    bench.broker.close()


def test_a_first_rebalance_in_progress_ends_on_the_system_clock():
    bench = GroupBench(**{"group.initial.rebalance.delay.ms": 50})
    member = bench.member(session_ms=LONG_MS, rebalance_ms=LONG_MS)
    assert member.join() is None
    bench.broker.groups.use_system_clock()
    until(lambda: member.joined)
    bench.broker.close()


def test_a_pending_member_id_expires_on_the_system_clock():
    bench = GroupBench(**{"group.min.session.timeout.ms": 50})
    options = {"session_ms": LONG_MS, "rebalance_ms": LONG_MS}
    first, second = bench.member(**options), bench.member(**options)
    pending = bench.member(requires_member_id=True, session_ms=50)
    settle(first)
    pending.join()
    assert second.join() is None
    assert first.join() is None, "the pending member may still join"
    bench.broker.groups.use_system_clock()
    until(lambda: first.joined and second.joined)
    bench.broker.close()


@pytest.mark.parametrize("background", (False, True))
def test_earlier_timers_do_not_run_on_the_virtual_clock(background):
    clock = VirtualClock()
    with Broker(clock=clock, background=background) as broker:
        bench = SimpleNamespace(groups=broker.groups, clock=clock)
        silent, newcomer = (
            Client(bench, session_ms=LONG_MS, rebalance_ms=LONG_MS) for _ in range(2)
        )
        settle(silent)
        assert newcomer.join() is None
        broker.groups.use_system_clock()
        clock.advance(days=1)
        assert newcomer.joined is None
        assert broker.groups.describe("g").state == "PreparingRebalance"


def test_expired_sessions_are_logged(bench, caplog):
    caplog.set_level(logging.INFO, "logstore.coordinator")
    member = bench.member()
    settle(member)
    bench.clock.advance(ms=SESSION_MS)
    assert caplog.messages == [f"group 'g': the session of {member.member_id} has expired"]


def test_a_group_that_cannot_be_stored_as_empty_is_logged(bench, monkeypatch, caplog):
    member = bench.member()
    settle(member)
    group = bench.groups._groups.get_or_create("g")
    monkeypatch.setattr(bench.groups._membership, "_save", lambda *_: "NOT_LEADER_OR_FOLLOWER")
    member.leave()
    assert caplog.messages == [f"{group}: cannot store the empty group: NOT_LEADER_OR_FOLLOWER"]


def test_a_listener_times_sessions_by_the_system_clock(bench):
    assert bench.groups._timers._clock is bench.clock
    with bench.broker.listen():
        assert type(bench.groups._timers._clock) is SystemClock


def test_a_refused_sync_is_answered_after_the_lock_is_released(bench):
    listed = []

    def on_synced(result):
        thread = Thread(target=lambda: listed.append(bench.groups.list_groups()), daemon=True)
        thread.start()
        thread.join(5)
        listed.append(result.error)

    bench.groups.sync(SyncRequest("unknown", 1, "m", assignments={}), on_synced)
    assert listed == [[], "UNKNOWN_MEMBER_ID"]
