"""The requests and the log ends of a follower after each answer of its leader."""

import pytest

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
from logstore.cluster.replicas import Replicas
from tests.unit.cluster.batches import batch_of
from tests.unit.cluster.replicas import settle

T = TopicPartition("t", 0)
FOLLOWER, LEADER, EPOCH = 1, 2, 5
BACKOFF_MS = 1000


@pytest.fixture
def cluster():
    """Return a cluster whose broker 1 has two records of epoch 0, three of 2 and two of 4.

    It follows broker 2 in epoch 5, and its link is cut. Its high watermark is 6.
    """
    with Cluster(3, clock=VirtualClock(), seed=1) as cluster:
        cluster.create_topic("t", assignment=[(0, 1, 2)])
        for count in (2, 3, 1):
            cluster.append_batches(T, batch_of(count))
            settle(cluster)
            if count != 1:
                for leader in (1, 0):
                    cluster.move_leader(T, to=leader)
                    settle(cluster)
        cluster.disconnect({0}, {2})
        cluster.append(T, value=b"7", acks=1)
        settle(cluster)
        cluster.disconnect({FOLLOWER}, {0, 2})
        cluster.move_leader(T, to=LEADER)
        log = cluster.brokers[FOLLOWER].log(T)
        assert [tuple(each) for each in log.epochs.entries] == [(0, 0), (2, 2), (4, 5)]
        assert (log.log_end_offset, log.high_watermark) == (7, 6)
        yield cluster


@pytest.fixture
def sent(monkeypatch):
    """Record (receiver, request) instead of sending a request."""
    requests = []

    class Receiver:
        def on_epoch(self, tp, request):
            requests.append((tp, request))

        on_fetch = on_epoch

    def send(self, target, name, call):
        if self.broker_id == FOLLOWER:
            requests.append(target)
            call(Receiver())

    monkeypatch.setattr(Replicas, "send", send)
    return requests


def epoch_request(cluster, epoch):
    number = cluster.replicas(FOLLOWER).role(T)._number
    return [LEADER, (T, EpochRequest(FOLLOWER, number, EPOCH, epoch))]


def fetch_request(cluster, offset, start=0, heard=None):
    number = cluster.replicas(FOLLOWER).role(T)._number
    return [LEADER, (T, FetchRequest(FOLLOWER, number, EPOCH, offset, start, heard))]


@pytest.mark.parametrize(
    ("epoch", "end_offset", "left", "asked"),
    (
        (4, 9, 7, None),
        (4, 7, 7, None),
        (4, 6, 6, None),
        (2, 9, 5, None),
        (2, 3, 3, None),
        (0, 2, 2, None),
        (3, 4, 5, 2),  # of an epoch that the follower does not have
        (1, 1, 2, 0),
        (-1, -1, 6, None),  # the leader has no epoch up to the requested one
        (-1, 3, 6, None),
        (0, -1, 6, None),
    ),
)
def test_the_log_ends_where_it_diverges(cluster, sent, epoch, end_offset, left, asked):
    """Unless the epoch of the answer is not in the log, the follower then fetches."""
    replicas = cluster.replicas(FOLLOWER)
    cluster.heal()
    assert sent == epoch_request(cluster, 4)
    number = replicas.role(T)._number
    sent.clear()
    replicas.on_epoch_response(T, EpochResponse(number - 1, None, 0, 0))
    assert sent == [], "the answer to an earlier request"
    replicas.on_epoch_response(T, EpochResponse(number, None, epoch, end_offset))
    assert cluster.brokers[FOLLOWER].log(T).log_end_offset == left
    if asked is None:
        assert sent == fetch_request(cluster, left)
    else:
        assert sent == epoch_request(cluster, asked)
        number = replicas.role(T)._number
        sent.clear()
        replicas.on_epoch_response(T, EpochResponse(number, None, asked, 1))
        assert cluster.brokers[FOLLOWER].log(T).log_end_offset == 1
        assert sent == fetch_request(cluster, 1)


def fetching(cluster, sent):
    """Let the follower fetch at its log end, and return a function for the answer."""
    replicas = cluster.replicas(FOLLOWER)
    cluster.heal()
    replicas.on_epoch_response(T, EpochResponse(replicas.role(T)._number, None, 4, 7))
    assert sent[-2:] == fetch_request(cluster, 7)
    sent.clear()

    def answer(*arguments, **fields):
        number = replicas.role(T)._number
        replicas.on_fetch_response(T, FetchResponse(number, *arguments, **fields))

    return answer


@pytest.mark.parametrize(
    ("start", "end", "expected"), ((0, 5, (0, 5)), (0, 7, (0, 7)), (7, 9, (0, 7)), (8, 9, (8, 8)))
)
def test_a_log_outside_of_the_leaders_range_is_moved_into_it(cluster, sent, start, end, expected):
    answer = fetching(cluster, sent)
    answer("OFFSET_OUT_OF_RANGE", log_start_offset=start, log_end_offset=end)
    log = cluster.brokers[FOLLOWER].log(T)
    assert (log.log_start_offset, log.log_end_offset) == expected
    assert sent == fetch_request(cluster, expected[1], expected[0])


def test_the_next_fetch_has_the_offsets_of_the_leader(cluster, sent):
    answer = fetching(cluster, sent)
    log = cluster.brokers[FOLLOWER].log(T)
    answer(high_watermark=9, log_start_offset=3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 7, 7)
    assert sent == fetch_request(cluster, 7, 3, (9, 3))


@pytest.mark.parametrize("request_kind", ("epoch", "fetch"))
def test_a_refused_request_is_sent_again_after_the_backoff(cluster, sent, request_kind):
    replicas = cluster.replicas(FOLLOWER)
    if request_kind == "fetch":
        fetching(cluster, sent)("NOT_LEADER_OR_FOLLOWER")
    else:
        cluster.heal()
        sent.clear()
        number = replicas.role(T)._number
        replicas.on_epoch_response(T, EpochResponse(number, "NOT_LEADER_OR_FOLLOWER", 4, 0))
    cluster.clock.advance(ms=BACKOFF_MS - 1)
    assert sent == []
    cluster.clock.advance(ms=1)
    again = epoch_request(cluster, 4) if request_kind == "epoch" else fetch_request(cluster, 7)
    assert sent == again
    cluster.clock.advance(ms=10 * BACKOFF_MS)
    assert sent == again


def test_a_request_after_the_backoff_is_not_sent_if_another_one_was(cluster, sent):
    fetching(cluster, sent)("NOT_LEADER_OR_FOLLOWER")
    cluster.heal()
    assert sent == fetch_request(cluster, 7)
    cluster.clock.advance(ms=BACKOFF_MS)
    assert len(sent) == 2
