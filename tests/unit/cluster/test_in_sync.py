"""Which followers a leader considers in sync, fetch by fetch. All times are in ms."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster.messages import FetchRequest

T = TopicPartition("t", 0)
LAG_MAX_MS = 30_000


class World:
    """A leader on broker 0 of which broker 1, and maybe 2, is a follower, by the test's fetches."""

    def __init__(self, cluster, followers=(1,), **configs):
        self.cluster = cluster
        for follower in (1, 2):  # its own messages never arrive
            cluster.slow(0, follower, 10**12)
        cluster.create_topic("t", assignment=[(0, *followers)], configs=configs)
        self.began_ms = cluster.clock.monotonic_ms()
        self.leadership = cluster.replicas(0).leadership(T)

    def advance_to(self, time_ms):
        elapsed_ms = self.cluster.clock.monotonic_ms() - self.began_ms
        self.cluster.clock.advance(ms=time_ms - elapsed_ms)

    def append(self, count=1):
        for _ in range(count):
            self.cluster.append(T, value=b"x", acks=1)

    def fetch(self, offset, log_start_offset=0, *, replica=1):
        self.leadership.on_fetch(
            FetchRequest(
                replica,
                self.cluster.network.number(),
                self.leadership.state.leader_epoch,
                offset,
                log_start_offset,
                None,
            )
        )

    def known(self, follower=1):
        """Return the state of a follower as known to the leader, and the high watermark."""
        state = self.leadership.followers[follower]
        since_ms = state.behind_since_ms
        return (
            None if since_ms is None else since_ms - self.began_ms,
            state.last_fetch_ms - self.began_ms,
            state.leader_end_at_last_fetch,
            (state.log_start_offset, state.log_end_offset),
            self.leadership.log.high_watermark,
        )

    @property
    def isr(self):
        return self.cluster.state(T).isr


@pytest.fixture
def cluster():
    with Cluster(3, clock=VirtualClock(), seed=1) as cluster:
        yield cluster


def test_since_when_a_follower_is_behind(cluster):
    world = World(cluster)
    assert world.known() == (0, 0, 0, (-1, -1), 0)
    world.advance_to(10)
    world.fetch(0)
    assert world.known() == (None, 10, 0, (0, 0), 0)
    world.advance_to(20)
    world.append(2)
    assert world.known() == (20, 10, 0, (0, 0), 0)
    world.advance_to(30)
    world.fetch(0)
    assert world.known() == (20, 30, 2, (0, 0), 0)
    world.advance_to(40)
    world.append()
    assert world.known() == (20, 30, 2, (0, 0), 0)
    world.advance_to(50)
    world.fetch(2)  # the end of the log at the previous fetch
    assert world.known() == (30, 50, 3, (0, 2), 2)
    world.advance_to(60)
    world.fetch(2)
    assert world.known() == (30, 60, 3, (0, 2), 2)
    world.advance_to(70)
    world.fetch(3, 1)
    assert world.known() == (None, 70, 3, (1, 3), 3)
    world.advance_to(80)
    world.fetch(1)  # it has lost records
    assert world.known() == (80, 80, 3, (0, 1), 3)


def test_a_follower_leaves_the_isr_after_the_longest_lag_and_rejoins_at_the_high_watermark(cluster):
    world = World(cluster, (1, 2))
    world.advance_to(10)
    for replica in (1, 2):
        world.fetch(0, replica=replica)
    world.advance_to(20)
    world.append(3)
    world.advance_to(30)
    world.fetch(3, replica=2)
    world.advance_to(20 + LAG_MAX_MS)
    assert (world.isr, world.known()[-1]) == ((0, 1, 2), 0)
    world.advance_to(20 + LAG_MAX_MS + 1)
    assert (world.isr, world.known()[-1]) == ((0, 2), 3)
    world.append()
    world.fetch(2)
    assert (world.isr, world.known()[-1]) == ((0, 2), 3)
    world.fetch(3)
    assert (world.isr, world.known()[-1]) == ((0, 1, 2), 3)
    world.fetch(4, replica=2)
    assert world.known()[-1] == 3
    world.fetch(4)
    assert world.known()[-1] == 4


def test_the_lag_of_a_follower_that_cannot_be_reached_begins_when_its_link_was_cut(cluster):
    world = World(cluster)
    world.advance_to(10)
    world.fetch(0)
    cluster.disconnect({0}, {1})
    world.advance_to(5_000)
    world.append()
    assert world.known()[0] == 10
    world.advance_to(10 + LAG_MAX_MS)
    assert world.isr == (0, 1)
    world.advance_to(10 + LAG_MAX_MS + 1)
    assert (world.isr, world.known()[-1]) == ((0,), 1)


def test_the_lag_of_an_append_long_after_the_cut_is_noticed_at_once(cluster):
    world = World(cluster)
    world.fetch(0)
    cluster.disconnect({0}, {1})
    world.advance_to(10 * LAG_MAX_MS)
    assert world.isr == (0, 1), "it is caught up"
    world.append()
    world.advance_to(10 * LAG_MAX_MS)
    assert (world.isr, world.known()[-1]) == ((0,), 1)


def test_the_high_watermark_stays_while_too_few_replicas_are_in_sync(cluster):
    world = World(cluster, (1, 2), **{"min.insync.replicas": 2})
    for replica in (1, 2):
        world.fetch(0, replica=replica)
    world.append(2)
    world.fetch(1)
    world.fetch(2, replica=2)
    assert world.known()[-1] == 1
    world.advance_to(2 * LAG_MAX_MS)
    assert (world.isr, world.known()[-1]) == ((0, 2), 2)
    world.append()
    world.advance_to(4 * LAG_MAX_MS)
    assert (world.isr, world.known()[-1]) == ((0,), 2)
    world.fetch(2)
    assert (world.isr, world.known()[-1]) == ((0, 1), 2)
    world.fetch(3)
    assert (world.isr, world.known()[-1]) == ((0, 1), 3)


def test_a_new_follower_does_not_delay_the_high_watermark(cluster):
    world = World(cluster, ())
    world.append()
    cluster.reassign(T, replicas=(0, 1))
    assert world.known() == (-LAG_MAX_MS - 1, -LAG_MAX_MS - 1, 0, (-1, -1), 1)
    world.append()
    assert world.known()[-1] == 2
    world.fetch(2)
    assert world.isr == (0, 1)


def test_consumers_read_from_the_follower_with_the_longest_log_that_was_caught_up_last(cluster):
    world = World(cluster, (1, 2))
    preferred = world.leadership.preferred_follower
    world.append(3)
    world.fetch(3, 1)
    world.fetch(2, replica=2)
    cases = (((1, 2), 3), ((1, 2), 2), ((1, 2), 1), ((1, 2), 0), ((2,), 2), ((2,), 3), ((0, 3), 2))
    assert [preferred(*each) for each in cases] == [1, 1, 1, 2, 2, -1, -1]
    world.advance_to(10)
    world.fetch(3, replica=2)
    assert preferred((1, 2), 3) == 2, "the larger id"
    cluster.disconnect({0}, {2})
    world.advance_to(20)
    world.append()
    assert [world.known(each)[0] for each in (1, 2)] == [20, 10]
    assert preferred((1, 2), 3) == 1
    world.fetch(3)
    world.advance_to(10 + LAG_MAX_MS + 1)
    assert world.isr == (0, 1)
    assert [preferred(each, 3) for each in ((1, 2), (2,), ())] == [1, -1, -1]
