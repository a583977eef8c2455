"""Replication by Kafka's fetch path: in sync or not, truncated by epochs, moved into range."""

from __future__ import annotations

import errno
from dataclasses import replace
from datetime import timedelta

import pytest

from logstore import (
    Cluster,
    InvalidConfigurationError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    TopicPartition,
    VirtualClock,
)
from logstore.cluster.requests import DelayedProduce
from tests.unit.cluster.batches import batch_of
from tests.unit.cluster.replicas import (
    TP,
    assert_alike,
    create,
    ends,
    log_files,
    settle,
    starts,
    values,
)

LAG_MAX_MS = 30_000


@pytest.fixture
def cluster():
    with Cluster(brokers=3, clock=VirtualClock(), seed=1) as cluster:
        yield cluster


# -- the high watermark --------------------------------------------------------------------------


def test_a_follower_shows_nothing_beyond_the_high_watermark_of_its_leader(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.disconnect({0, 1}, {2})
    cluster.append(TP, value=b"b", acks=1)
    settle(cluster)
    assert ends(cluster) == {0: 2, 1: 2, 2: 1}
    assert [values(cluster, broker) for broker in range(3)] == [[b"a"]] * 3
    cluster.heal()
    settle(cluster)
    assert [values(cluster, broker) for broker in range(3)] == [[b"a", b"b"]] * 3


def test_the_high_watermark_of_a_restarted_broker_is_the_stored_one(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.disconnect({0}, {1, 2})
    cluster.append(TP, value=b"b", acks=1)
    cluster.clock.advance(ms=6_000)  # the checkpoint of high watermarks is written
    cluster.kill(0)
    broker = cluster.restart(0)
    assert broker.log(TP).log_end_offset == 2
    assert broker.log(TP).high_watermark == 1


def test_below_min_insync_replicas_nothing_is_committed(cluster):
    create(cluster, min_insync_replicas=2)
    cluster.append(TP, value=b"a")
    cluster.kill(1)
    cluster.kill(2)
    assert cluster.append(TP, value=b"b", acks=1).offset == 1
    assert cluster.brokers[0].log(TP).high_watermark == 1
    cluster.restart(1)
    settle(cluster)
    assert cluster.brokers[0].log(TP).high_watermark == 2


# -- in sync -------------------------------------------------------------------------------------


def test_a_lagging_replica_leaves_and_rejoins_the_isr(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.disconnect({2}, {0, 1})
    with pytest.raises(RequestTimedOutError):
        cluster.append(TP, value=b"b", timeout_ms=LAG_MAX_MS)
    assert cluster.state(TP).isr == (0, 1, 2)
    cluster.clock.advance(ms=1)
    assert cluster.state(TP).isr == (0, 1)
    assert cluster.brokers[0].log(TP).high_watermark == 2
    cluster.heal()
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)


def test_a_caught_up_replica_remains_in_sync_while_idle(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.disconnect({2}, {0, 1})
    cluster.clock.advance(days=1)
    assert cluster.state(TP).isr == (0, 1, 2)
    cluster.append(TP, value=b"b", acks=1)
    settle(cluster)  # a day ago it had all for the last time
    assert cluster.state(TP).isr == (0, 1)


def test_an_out_of_sync_replica_does_not_delay_the_next_leader(cluster):
    """It never caught up with that leader, so it is not waited for."""
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.disconnect({2}, {0, 1})
    cluster.append(TP, value=b"b", acks=1)
    cluster.clock.advance(ms=LAG_MAX_MS + 1)
    cluster.kill(0)
    state = cluster.state(TP)
    assert (state.leader, state.isr, sorted(cluster.brokers)) == (1, (1,), [1, 2])
    assert cluster.brokers[1].log(TP).high_watermark == 2
    assert cluster.append(TP, value=b"c", acks="all", timeout_ms=0).offset == 2


def test_min_insync_replicas_is_capped_at_the_replication_factor(cluster):
    """Kafka's effectiveMinIsr."""
    cluster.create_topic("alone", replication_factor=1, configs={"min.insync.replicas": "2"})
    assert cluster.append("alone", value=b"a", acks="all", timeout_ms=1).offset == 0
    create(cluster, min_insync_replicas=4)
    assert cluster.append(TP, value=b"a", acks="all").offset == 0
    cluster.kill(2)
    with pytest.raises(NotEnoughReplicasError):
        cluster.append(TP, value=b"b", acks="all")


def elected_above_its_high_watermark(cluster):
    """Let broker 1 lead with a committed record above its high watermark; 2 is away without it.

    Broker 0, which has the record, too, is in sync and out of reach.
    """
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.kill(2)
    cluster.slow(0, 1, 100)  # so that broker 1 hears later that the record is committed
    cluster.append(TP, value=b"b", acks="all")
    cluster.disconnect({0}, {1, 2})
    cluster.move_leader(TP, to=1)
    log, state = cluster.brokers[1].log(TP), cluster.state(TP)
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert (state.leader, state.isr) == (1, (0, 1))


def test_a_returning_replica_is_not_in_sync_below_the_epoch_start(cluster):
    """Although it has reached the high watermark, which is below the committed records."""
    elected_above_its_high_watermark(cluster)
    cluster.slow(1, 2, 100)
    cluster.restart(2)
    cluster.run_until(lambda: cluster.replicas(1).role(TP).followers[2].log_end_offset == 1)
    assert cluster.state(TP).isr == (0, 1)
    cluster.run_until(lambda: cluster.replicas(1).role(TP).followers[2].log_end_offset == 2)
    assert cluster.state(TP).isr == (0, 1, 2)


def test_acknowledged_records_survive_two_elections(cluster):
    """Who came back to the high watermark alone may not lead when the others end."""
    elected_above_its_high_watermark(cluster)
    cluster.slow(1, 2, 100)
    cluster.restart(2)
    cluster.run_until(lambda: cluster.replicas(1).role(TP).followers[2].log_end_offset == 1)
    cluster.kill(1)
    cluster.kill(0)
    assert cluster.leader(TP) == -1, "nobody who runs has all that was acknowledged"
    cluster.heal()
    cluster.restart(0)
    settle(cluster)
    assert (cluster.leader(TP), cluster.state(TP).isr) == (0, (0, 2))
    assert values(cluster, 0) == values(cluster, 2) == [b"a", b"b"]


def test_a_returning_replica_is_in_sync_at_the_high_watermark(cluster):
    create(cluster)
    cluster.kill(2)
    for number in range(3):
        cluster.append(TP, value=b"%d" % number)
    cluster.slow(0, 2, 100)
    cluster.restart(2)
    cluster.clock.advance(ms=250)  # it asked, from offset 0, and has its answer
    assert ends(cluster)[2] == 3
    assert cluster.state(TP).isr == (0, 1)
    cluster.clock.advance(ms=100)
    assert cluster.state(TP).isr == (0, 1, 2)


def test_a_fetch_that_was_long_on_its_way_counts_no_more(cluster):
    """It says less than the one that overtook it, and its answer is for nobody."""
    create(cluster)
    cluster.slow(0, 2, 5_000)
    cluster.clock.advance(ms=1)  # the fetch is on its way
    cluster.append(TP, value=b"a", acks=1)
    cluster.heal()
    cluster.clock.advance(ms=10_000)
    cluster.append(TP, value=b"b", timeout_ms=10)
    settle(cluster)
    assert values(cluster, 2) == [b"a", b"b"]


def test_a_wait_takes_its_timeout_in_virtual_time(cluster):
    create(cluster)
    cluster.disconnect({2}, {0, 1})
    before = cluster.clock.now_ms()
    with pytest.raises(RequestTimedOutError):
        cluster.append(TP, value=b"a", timeout_ms=1234)
    assert cluster.clock.now_ms() == before + 1234
    assert values(cluster, 0) == []


def test_replicas_lost_after_the_append_are_reported(cluster):
    create(cluster, min_insync_replicas=2)
    cluster.append(TP, value=b"a")
    waiting = DelayedProduce(cluster.replicas(0), TP, 0, cluster.replicas(0).role(TP))
    cluster.kill(1)
    cluster.kill(2)
    assert waiting.is_done()
    assert isinstance(waiting.error, NotEnoughReplicasAfterAppendError)


def test_an_append_of_an_earlier_epoch_is_never_acknowledged(cluster):
    """By another's record at its offset, when the broker leads again."""
    create(cluster)
    cluster.disconnect({0}, {1, 2})
    cluster.append(TP, value=b"lost", acks=1)
    waiting = DelayedProduce(cluster.replicas(0), TP, 0, cluster.replicas(0).role(TP))
    cluster.move_leader(TP, to=1)
    cluster.append(TP, value=b"kept", acks=1)
    cluster.heal()
    settle(cluster)
    cluster.move_leader(TP, to=0)
    settle(cluster)
    assert values(cluster, 0) == [b"kept"]
    assert waiting.is_done()
    assert isinstance(waiting.error, NotLeaderForPartitionError)
    assert str(waiting.error) == "the leader of users-0 changed during the append"


def test_a_slow_link_delays_and_no_more(cluster):
    create(cluster)
    settle(cluster)
    cluster.slow(0, 1, 100)
    before = cluster.clock.now_ms()
    cluster.append(TP, value=b"a")
    # The waiting fetch is answered, and the next one reports it.
    assert cluster.clock.now_ms() == before + 200


def test_idle_years_pass_at_once(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.clock.advance(timedelta(days=3650))
    assert cluster.append(TP, value=b"b").offset == 1


# -- truncation ----------------------------------------------------------------------------------


def test_uncommitted_records_are_truncated_under_a_new_leader(cluster):
    """KIP-101: by the epoch, not by the high watermark."""
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.disconnect({0}, {1, 2})
    cluster.append(TP, value=b"b, of the old leader", acks=1)
    cluster.move_leader(TP, to=1)
    cluster.append(TP, value=b"c", acks=1)
    cluster.heal()
    settle(cluster)
    assert [values(cluster, broker) for broker in range(3)] == [[b"a", b"c"]] * 3
    assert_alike(cluster)


def test_committed_records_survive_even_if_the_follower_does_not_know(cluster):
    """KIP-101's first story: a follower that restarts before it heard of the high watermark."""
    create(cluster)
    settle(cluster)
    cluster.disconnect({1, 2}, {1, 2})
    cluster.append(TP, value=b"a", acks=1)
    cluster.run_until(lambda: ends(cluster) == {0: 1, 1: 1, 2: 1}, timeout=10)
    for broker in (1, 2):
        cluster.brokers[broker].log(TP).offsets.set_high_watermark(0)
        cluster.kill(broker)
    cluster.restart(1)
    cluster.kill(0)
    assert ends(cluster)[1] == 1


def test_an_epoch_that_the_follower_never_saw_is_asked_again(cluster):
    """KIP-279: leader and follower have epochs that the other one lacks."""
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    for broker in range(3):
        cluster.disconnect({broker}, {0, 1, 2})
    cluster.move_leader(TP, to=1)
    cluster.append(TP, value=b"b", acks=1)
    cluster.append(TP, value=b"c", acks=1)
    cluster.move_leader(TP, to=2)
    for value in (b"x", b"y", b"z"):
        cluster.append(TP, value=value, acks=1)
    cluster.move_leader(TP, to=1)
    cluster.append(TP, value=b"d", acks=1)
    cluster.heal()
    settle(cluster)
    assert [values(cluster, broker) for broker in range(3)] == [[b"a", b"b", b"c", b"d"]] * 3
    assert_alike(cluster)


def test_an_unclean_leader_loses_what_only_others_had(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.kill(1)
    cluster.kill(2)
    cluster.append(TP, value=b"b")
    cluster.kill(0)
    cluster.restart(1)
    assert cluster.leader(TP) == -1
    with pytest.raises(LeaderNotAvailableError, match="not in sync"):
        cluster.move_leader(TP, to=1)
    cluster.move_leader(TP, to=1, unclean=True)
    cluster.restart(0)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1)
    assert [values(cluster, broker) for broker in (0, 1)] == [[b"a"]] * 2


def test_an_unclean_leader_is_elected_if_the_topic_lets_it(cluster):
    create(cluster, unclean_leader_election_enable="true")
    cluster.kill(1)
    cluster.kill(2)
    cluster.append(TP, value=b"b")
    cluster.kill(0)
    cluster.restart(1)
    assert cluster.state(TP).leader == 1
    assert cluster.state(TP).isr == (1,)


# -- out of range --------------------------------------------------------------------------------


def test_a_follower_below_the_leaders_start_begins_again_there(cluster):
    create(cluster, segment_bytes=100)
    cluster.append(TP, value=b"a")
    cluster.kill(2)
    for number in range(5):
        cluster.append(TP, value=b"%d" % number)
    assert cluster.delete_records({TP: 4})[TP].low_watermark == 4  # a dead replica does not count
    cluster.restart(2)
    settle(cluster)
    assert starts(cluster) == {0: 4, 1: 4, 2: 4}
    assert ends(cluster) == {0: 6, 1: 6, 2: 6}
    assert cluster.low_watermark(TP) == 4


def test_a_follower_may_begin_inside_a_batch(cluster):
    create(cluster)
    cluster.kill(2)
    cluster.append_batches(TP, batch_of(4))
    cluster.delete_records({TP: 2})
    cluster.restart(2)
    settle(cluster)
    assert starts(cluster) == {0: 2, 1: 2, 2: 2}
    assert values(cluster, 2) == [b"2", b"3"]
    assert_alike(cluster)


def test_records_deleted_on_the_leader_do_not_block_a_followers_first_batch(cluster):
    """The follower has another record below the leader's log start, which is inside a batch."""
    create(cluster)
    cluster.disconnect({0}, {1, 2})
    cluster.append(TP, value=b"never committed", acks=1)
    cluster.kill(0)
    cluster.append_batches(TP, batch_of(4))
    cluster.delete_records({TP: 1})
    cluster.heal()
    cluster.restart(0)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)
    assert starts(cluster) == {0: 1, 1: 1, 2: 1}
    assert_alike(cluster)


def test_a_log_start_unknown_to_the_next_leader_is_retained(cluster):
    """It is inside a batch that was lost in a power failure."""
    create(cluster)
    cluster.append_batches(TP, batch_of(4))
    settle(cluster)
    cluster.disconnect({0}, {1})
    cluster.delete_records({TP: 1}, timeout_ms=10)
    cluster.kill(0, power_loss=True)
    assert cluster.leader(TP) == 1
    cluster.heal()
    cluster.restart(0)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)
    assert starts(cluster) == {0: 1, 1: 0, 2: 1}
    assert values(cluster, 0) == [b"1", b"2", b"3"]


def test_a_raised_start_drops_the_segments_of_followers(cluster):
    create(cluster, segment_bytes=100)
    for number in range(6):
        cluster.append(TP, value=b"%d" % number)
    assert len(log_files(cluster, 1)) == 6
    cluster.delete_records({TP: 4})
    names = {name for name in log_files(cluster, 1) if name.endswith(".log")}
    assert names == {f"{offset:020d}.log" for offset in (4, 5)}


# -- files ---------------------------------------------------------------------------------------


def test_log_files_of_followers_are_the_leaders_byte_for_byte(cluster):
    create(cluster, segment_bytes=400)
    for number in range(30):
        codec = ("none", "gzip", "lz4")[number % 3]
        cluster.append(TP, key=b"k", value=b"v" * (7 * number), compression=codec)
        if number % 10 == 9:
            cluster.append_batches(TP, batch_of(number // 2))
            cluster.move_leader(TP, to=number % 3)
    settle(cluster)
    assert len(log_files(cluster, 0)) > 5
    assert_alike(cluster)


def test_a_follower_that_was_long_away_has_the_same_files(cluster):
    create(cluster, segment_bytes=400)
    cluster.kill(2)
    for number in range(20):
        cluster.append(TP, value=b"v" * (7 * number))
    cluster.restart(2)
    settle(cluster)
    assert_alike(cluster)


# -- brokers that end ----------------------------------------------------------------------------


def test_lost_power_takes_what_was_not_synced_and_others_bring_it_back(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.kill(1, power_loss=True)
    for broker in (0, 2):
        cluster.disconnect({1}, {broker})
    broker = cluster.restart(1)
    assert broker.log(TP).log_end_offset == 0
    cluster.heal()
    settle(cluster)
    assert values(cluster, 1) == [b"a"]


def test_a_killed_process_loses_nothing_that_was_written(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.kill(1)
    cluster.disconnect({1}, {0, 2})
    assert cluster.restart(1).log(TP).log_end_offset == 1


def test_a_broker_that_is_stopped_hands_on_its_leadership(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    cluster.stop(0)
    assert cluster.state(TP).leader == 1
    assert sorted(cluster.brokers) == [1, 2]
    cluster.restart(0)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)


def test_a_replica_whose_disk_fails_is_led_by_another(cluster):
    create(cluster)
    cluster.append(TP, value=b"a")
    settle(cluster)
    cluster.brokers[0].fail("append", error=errno.errorcode[errno.EIO])
    with pytest.raises(Exception, match="cannot append"):
        cluster.append(TP, value=b"b")
    settle(cluster)
    assert cluster.state(TP).leader == 1
    assert cluster.state(TP).isr == (1, 2)
    assert cluster.append(TP, value=b"b").offset == 1
    with pytest.raises(LeaderNotAvailableError, match="disk"):
        cluster.move_leader(TP, to=0)
    cluster.restart(0)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)


def test_the_last_one_in_sync_leads_when_it_is_back_and_no_other(cluster):
    create(cluster)
    for broker in (2, 1, 0):
        cluster.kill(broker)
    assert cluster.state(TP).isr == (0,)
    cluster.restart(2)
    assert cluster.leader(TP) == -1
    cluster.restart(0)
    assert cluster.leader(TP) == 0


# -- topics --------------------------------------------------------------------------------------


def test_a_restarted_broker_learns_of_topic_changes(cluster):
    create(cluster)
    cluster.create_topic("gone", replication_factor=3)
    cluster.create_topic("anew", replication_factor=3)
    cluster.append("anew", value=b"of the old one")
    settle(cluster)
    cluster.kill(2)
    cluster.alter_configs("users", {"retention.ms": "77"})
    cluster.delete_topic("gone")
    cluster.delete_topic("anew")
    cluster.create_topic("anew", replication_factor=2)
    broker = cluster.restart(2)
    assert broker.log(TP).config.retention_ms == 77
    assert [topic.name for topic in broker.topics()] == ["users"]


def test_a_setting_that_is_unset_is_unset_on_every_broker(cluster):
    create(cluster, retention_ms=77, segment_ms=88)
    cluster.kill(2)
    cluster.alter_configs("users", {}, unset=["retention.ms"])
    cluster.restart(2)
    for broker in cluster.brokers.values():
        config = broker.log(TP).config
        assert (config.retention_ms, config.segment_ms) == (7 * 24 * 3600 * 1000, 88)
        assert "retention.ms" not in broker.topic("users").configs


def test_partitions_are_where_the_controller_puts_them(cluster):
    cluster.create_topic("pairs", partitions=3, replication_factor=2)
    replicas = [state.replicas for state in cluster.controller.topic("pairs").partitions]
    assert replicas == [(0, 1), (1, 2), (2, 0)]
    hosted = {
        number: broker.topic("pairs").partitions for number, broker in cluster.brokers.items()
    }
    assert hosted == {0: (0, 2), 1: (0, 1), 2: (1, 2)}
    cluster.create_partitions("pairs", 4)
    assert cluster.state("pairs", 3).replicas == (0, 1)
    for number in range(4):
        cluster.append(TopicPartition("pairs", number), value=b"%d" % number)


def test_clocks_of_brokers_go_apart(cluster):
    create(cluster)
    cluster.skew(0, 5000)
    assert cluster.append(TP, value=b"a").timestamp == cluster.clock.now_ms() + 5000
    cluster.move_leader(TP, to=1)
    assert cluster.append(TP, value=b"b").timestamp == cluster.clock.now_ms()


# -- on a disk -----------------------------------------------------------------------------------


def test_a_cluster_continues_where_it_was_closed(tmp_path):
    with Cluster(brokers=3, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        create(cluster, min_insync_replicas=2)
        cluster.append(TP, value=b"a")
        cluster.kill(0)
        cluster.append(TP, value=b"b")
        before = cluster.state(TP)
    with Cluster(brokers=3, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        state = cluster.state(TP)
        assert (state.leader, state.leader_epoch) == (1, before.leader_epoch + 1)
        assert state.isr == (1, 2)  # what broker 0 lacks, the others have
        settle(cluster)
        assert values(cluster, 0) == [b"a", b"b"]
        assert_alike(cluster)


def test_a_cluster_without_its_file_reports_it_and_deletes_nothing(tmp_path):
    with Cluster(brokers=1, clock=VirtualClock(), data_dir=tmp_path) as cluster:
        cluster.create_topic("users")
    (tmp_path / "controller" / "logstore-cluster.json").unlink()
    with pytest.raises(InvalidConfigurationError, match="no controller file"):
        Cluster(brokers=1, clock=VirtualClock(), data_dir=tmp_path)
    assert (tmp_path / "broker-0" / "users-0").is_dir()


# -- in threads ----------------------------------------------------------------------------------


def test_replication_in_threads():
    """The same on the system clock, in no particular order."""
    with Cluster(brokers=3) as cluster:
        create(cluster, min_insync_replicas=2)
        for number in range(30):
            if number == 10:
                cluster.kill(0)
            if number == 15:
                cluster.restart(0)
            if number == 20:
                assert cluster.run_until(lambda: 0 in cluster.state(TP).isr, timeout=600_000)
                cluster.move_leader(TP, to=0)
            assert cluster.append(TP, value=b"%d" % number, timeout_ms=600_000).offset == number
        wanted = [b"%d" % number for number in range(30)]
        for broker in range(3):
            assert cluster.run_until(
                lambda broker=broker: values(cluster, broker) == wanted, timeout=600_000
            )
        assert_alike(cluster)


def test_a_fetch_from_before_a_loss_of_power_does_not_put_the_replica_in_sync(cluster):
    create(cluster)
    cluster.slow(0, 1, 50)
    cluster.append(TP, value=b"1", acks=1)
    assert cluster.run_until(lambda: cluster.brokers[1].log(TP).log_end_offset == 1, timeout=1000)
    # Its next fetch, which shows that it has the record, is under way.
    cluster.kill(1, power_loss=True)
    cluster.restart(1)
    assert cluster.brokers[1].log(TP).log_end_offset == 0
    while 1 not in cluster.state(TP).isr:
        cluster.clock.advance(ms=1)
    assert cluster.brokers[1].log(TP).log_end_offset == 1


@pytest.mark.parametrize("epochs", (0, 1))
def test_a_leader_learns_of_a_new_epoch_from_its_message_alone(cluster, monkeypatch, epochs):
    """The answer to a change of the ISR has the epoch of the next leader already."""
    create(cluster)
    role = cluster.replicas(cluster.leader(TP)).role(TP)
    before = role.state

    def alter_isr(known, isr):
        assert known == before
        return replace(
            known,
            isr=isr,
            leader=known.leader if epochs == 0 else -1,
            leader_epoch=known.leader_epoch + epochs,
            partition_epoch=known.partition_epoch + 1,
        )

    monkeypatch.setattr(cluster.controller, "alter_isr", alter_isr)
    with role.log.lock:
        role._alter_isr(before.isr[:2])
    changed = {} if epochs else {"partition_epoch": before.partition_epoch + 1}
    assert role.state == replace(before, isr=before.isr[:2], **changed)
