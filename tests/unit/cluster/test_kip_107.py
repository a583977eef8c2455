"""KIP-107, "Proposed Changes": each row of its sections as a test that names it.

Section 1, steps 1 to 9, and its sections 2 and 4; section 3, authorization, is in `test_wire.py`.
"""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.clients.results import DeleteRecordsResult
from logstore.types import NO_OFFSET

TP = TopicPartition("t", 0)
LEADER, FOLLOWERS = 0, (1, 2)


@pytest.fixture
def cluster():
    with Cluster(brokers=3, clock=VirtualClock()) as cluster:
        cluster.create_topic("t", replication_factor=3, configs={"segment.bytes": "300"})
        yield cluster


def fill(cluster, count=10, tp=TP):
    for number in range(count):
        cluster.append(tp, value=b"%d" % number, timestamp=cluster.clock.now_ms())


def delete(cluster, offset, *, timeout_ms=5000, tp=TP):
    return cluster.delete_records({tp: offset}, timeout_ms=timeout_ms)[tp]


def starts(cluster, tp=TP):
    return [broker.log(tp).log_start_offset for broker in cluster.brokers.values()]


def first_bases(cluster):
    return [broker.log(TP).segments.first.base_offset for broker in cluster.brokers.values()]


@pytest.fixture
def messages(monkeypatch):
    """What brokers say to each other about fetches: (receiver, message)."""
    from logstore.cluster.replicas import Replicas

    seen = []
    for name in ("on_fetch", "on_fetch_response"):
        method = getattr(Replicas, name)

        def note(self, tp, message, method=method):
            seen.append((self.broker_id, message))
            method(self, tp, message)

        monkeypatch.setattr(Replicas, name, note)
    return seen


# -- 1) interaction between user application and brokers ---------------------------------------


def test_step_1_the_offset_may_come_from_a_time(cluster):
    fill(cluster, 5)
    cluster.clock.advance(hours=1)
    cutoff_ms = cluster.clock.now_ms()
    fill(cluster, 5)
    found = cluster.brokers[LEADER].offsets_for_times({TP: cutoff_ms})[TP]
    assert delete(cluster, found.offset) == DeleteRecordsResult(5)


def test_step_2_each_partition_is_deleted_at_its_own_leader(cluster):
    cluster.create_topic("many", partitions=3, replication_factor=3)
    partitions = [TopicPartition("many", number) for number in range(3)]
    assert [cluster.leader(tp) for tp in partitions] == [0, 1, 2]
    for tp in partitions:
        fill(cluster, 4, tp)
    results = cluster.delete_records({tp: tp.partition + 1 for tp in partitions})
    assert results == {tp: DeleteRecordsResult(tp.partition + 1) for tp in partitions}
    assert [starts(cluster, tp) for tp in partitions] == [[1] * 3, [2] * 3, [3] * 3]


def test_step_3_minus_one_is_the_high_watermark(cluster):
    fill(cluster, 4)
    cluster.disconnect({LEADER}, FOLLOWERS)
    cluster.append(TP, value=b"not everywhere", acks=1)
    assert cluster.brokers[LEADER].log(TP).log_end_offset == 5
    cluster.delete_records({TP: -1}, timeout_ms=0)
    assert cluster.brokers[LEADER].log(TP).log_start_offset == 4


def test_step_3_the_log_start_only_rises(cluster):
    fill(cluster)
    assert delete(cluster, 6) == DeleteRecordsResult(6)
    assert delete(cluster, 3) == DeleteRecordsResult(6)
    assert starts(cluster) == [6, 6, 6]


def test_step_3_an_offset_above_the_high_watermark_is_refused_and_changes_nothing(cluster):
    fill(cluster, 4)
    result = delete(cluster, 5)
    assert (result.low_watermark, result.error) == (NO_OFFSET, "OFFSET_OUT_OF_RANGE")
    assert starts(cluster) == [0, 0, 0]


def test_step_3_segments_wholly_below_go_at_the_leader(cluster):
    fill(cluster)
    log = cluster.brokers[LEADER].log(TP)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    delete(cluster, bases[2] + 1)
    assert log.segments.first.base_offset == bases[2]


def test_step_4_the_result_is_the_lowest_start_of_the_live_replicas(cluster):
    fill(cluster)
    for follower in FOLLOWERS:
        cluster.slow(LEADER, follower, 100 * follower)
    waiting = []
    cluster.runtime.scheduler.schedule(
        "look",
        lambda: waiting.append((len(cluster.purgatory), cluster.low_watermark(TP))),
        delay_ms=150,
    )
    assert delete(cluster, 7) == DeleteRecordsResult(7)
    assert waiting == [(1, 0)], "one follower has deleted, the other not yet"
    assert starts(cluster) == [7, 7, 7]
    assert len(cluster.purgatory) == 0


def test_step_4_a_broker_that_has_ended_is_not_a_live_replica(cluster):
    fill(cluster)
    cluster.kill(2)
    assert delete(cluster, 7) == DeleteRecordsResult(7)
    cluster.restart(2)
    assert cluster.run_until(lambda: starts(cluster) == [7, 7, 7], timeout=60_000)


def test_step_4_a_broker_out_of_reach_is_live_and_waited_for(cluster):
    fill(cluster)
    cluster.disconnect({LEADER}, {2})
    cluster.append(TP, value=b"not everywhere", acks=1)
    begin_ms = cluster.clock.monotonic_ms()
    result = delete(cluster, 7, timeout_ms=60_000)
    assert (result.low_watermark, result.error) == (NO_OFFSET, "REQUEST_TIMED_OUT")
    assert cluster.clock.monotonic_ms() - begin_ms == 60_000
    assert 2 not in cluster.state(TP).isr, "though it is out of sync by then"
    assert starts(cluster) == [7, 7, 0]
    cluster.heal()
    assert delete(cluster, 7) == DeleteRecordsResult(7)


def test_step_4_whose_leader_moves_meanwhile_is_not_the_leader(cluster):
    fill(cluster)
    cluster.disconnect({LEADER}, {2})
    cluster.runtime.scheduler.schedule("move", lambda: cluster.move_leader(TP, to=1), delay_ms=20)
    begin_ms = cluster.clock.monotonic_ms()
    result = delete(cluster, 7)
    assert (result.low_watermark, result.error) == (NO_OFFSET, "NOT_LEADER_OR_FOLLOWER")
    assert cluster.clock.monotonic_ms() - begin_ms == 20, "nobody waits for the timeout"


def test_step_4_whose_leader_ends_meanwhile_is_not_the_leader(cluster):
    fill(cluster)
    cluster.disconnect({LEADER}, {2})
    cluster.runtime.scheduler.schedule("kill", lambda: cluster.kill(LEADER), delay_ms=20)
    assert delete(cluster, 7).error == "NOT_LEADER_OR_FOLLOWER"


def test_step_4_no_request_waits_longer_than_the_timeout(cluster):
    fill(cluster)
    cluster.disconnect({LEADER}, FOLLOWERS)
    for timeout_ms in (0, 1, 700):
        begin_ms = cluster.clock.monotonic_ms()
        assert delete(cluster, 7, timeout_ms=timeout_ms).error == "REQUEST_TIMED_OUT"
        assert cluster.clock.monotonic_ms() - begin_ms == timeout_ms
    assert len(cluster.purgatory) == 0


def test_step_4_each_partition_has_its_own_result(cluster):
    fill(cluster, 4)
    unknown = TopicPartition("none", 0)
    results = cluster.delete_records({unknown: 1, TP: 2, TopicPartition("t", 7): 1})
    assert [result.error for result in results.values()] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        None,
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert results[TP].low_watermark == 2


def test_step_5_answers_to_followers_have_the_leader_s_log_start(cluster, messages):
    fill(cluster)
    del messages[:]
    delete(cluster, 7)
    told = {receiver for receiver, m in messages if hasattr(m, "data") and m.log_start_offset == 7}
    assert told == set(FOLLOWERS)


def test_step_6_a_follower_raises_its_log_start_and_drops_segments(cluster):
    fill(cluster)
    bases = [segment.base_offset for segment in cluster.brokers[1].log(TP).segments]
    delete(cluster, bases[2] + 1)
    assert starts(cluster) == [bases[2] + 1] * 3
    assert first_bases(cluster) == [bases[2]] * 3


def test_step_6_a_follower_that_starts_above_its_leader_stays_there(cluster):
    fill(cluster)
    cluster.brokers[1].manager.raise_log_start(TP, 8)
    assert delete(cluster, 7) == DeleteRecordsResult(7)
    assert starts(cluster) == [7, 8, 7]


def test_step_7_fetches_of_followers_have_their_log_start(cluster, messages):
    fill(cluster)
    del messages[:]
    delete(cluster, 7)
    asked = {
        m.replica
        for receiver, m in messages
        if hasattr(m, "replica") and receiver == LEADER
        if m.log_start_offset == 7
    }
    assert asked == set(FOLLOWERS)


def test_step_8_the_leader_knows_each_follower_s_log_start_and_completes_what_waits(cluster):
    fill(cluster)
    delete(cluster, 7)
    followers = cluster.replicas(LEADER).leadership(TP).followers
    assert {number: each.log_start_offset for number, each in followers.items()} == {1: 7, 2: 7}
    assert cluster.low_watermark(TP) == 7
    assert len(cluster.purgatory) == 0


def test_step_9_what_did_not_come_in_time_may_be_done_all_the_same(cluster):
    fill(cluster)
    cluster.slow(LEADER, 2, 300)
    assert delete(cluster, 7, timeout_ms=100) == DeleteRecordsResult(
        NO_OFFSET,
        "REQUEST_TIMED_OUT",
        "t-0: not all live replicas have deleted the records up to offset 7 yet",
    )
    assert cluster.run_until(lambda: cluster.low_watermark(TP) == 7, timeout=10_000)
    assert starts(cluster) == [7, 7, 7]


# -- 2) routine operation in the broker --------------------------------------------------------


def test_routine_only_records_from_the_log_start_on_are_read_anywhere(cluster):
    fill(cluster)
    delete(cluster, 7)
    for broker in cluster.brokers.values():
        assert [record.offset for record in broker.read(TP)] == [7, 8, 9]


def test_routine_retention_raises_the_log_start_of_the_leader_and_then_of_followers(cluster):
    fill(cluster)
    cluster.clock.advance(days=8)
    cluster.append(TP, value=b"new")
    cluster.brokers[LEADER].retain("t")
    start = cluster.brokers[LEADER].log(TP).log_start_offset
    assert start > 0
    assert cluster.run_until(lambda: starts(cluster) == [start] * 3, timeout=60_000)


def test_routine_log_starts_are_checkpointed_on_each_replica(cluster):
    fill(cluster)
    delete(cluster, 7)
    for number in range(3):
        cluster.kill(number, power_loss=True)
    for number in range(3):
        cluster.restart(number)
    assert starts(cluster) == [7, 7, 7]


# -- 4) ListOffsetRequest ----------------------------------------------------------------------


def test_list_offsets_the_earliest_is_the_log_start(cluster):
    fill(cluster)
    delete(cluster, 7)
    for broker in cluster.brokers.values():
        assert broker.log("t").reader.offset_for_timestamp(-2).offset == 7
