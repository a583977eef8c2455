"""The listener and running Kafka brokers: equal responses to equal requests."""

from __future__ import annotations

import pytest

from logstore.coordinator.transactions.state import LAST_EPOCH
from tests.interop.conftest import unavailable
from tests.interop.conversations import (
    CONCURRENT_TRANSACTIONS,
    SETTINGS,
    converse,
    our_broker,
    warm_up,
)
from tests.support.interop.answers import Side
from tests.support.interop.caller import Caller
from tests.support.interop.judge import KAFKA_4, RELEASES, Unavailable
from tests.support.interop.real_broker import RealBroker

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.profile)
def kafka(request, tmp_path_factory):
    """A running broker of each release in turn."""
    try:
        broker = RealBroker.of(request.param, tmp_path_factory.mktemp("kafka"), SETTINGS)
    except Unavailable as error:
        unavailable(error)
    with broker:
        yield request.param, broker


def run_histories(kafka, scratch, seeds, say, transactions=14):
    """Run histories on both; return the numbers."""
    release, broker = kafka
    with our_broker(scratch / "ours") as ours:
        tally, closed = converse(release, broker.bootstrap, ours, seeds, transactions=transactions)
    say(f"{tally}; parted as the closed list has it: {dict(closed.used)}")
    return tally


def test_every_request_is_answered_as_kafka_answers_it(kafka, scratch, say):
    tally = run_histories(kafka, scratch, range(25), say)
    assert tally.histories == 25
    assert len(tally.requests) > 25
    assert len(tally.errors) > 15


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_five_hundred_histories_are_answered_as_kafka_answers_them(kafka, scratch, say):
    assert run_histories(kafka, scratch, range(1000, 1500), say).histories == 500


MOSTLY_TRANSACTIONS = 200

FIELDS = {"transactional_id": "worn", "transaction_timeout_ms": 60_000}
"""Fields of InitProducerId."""


def test_transactions_are_answered_as_kafka_answers_them(kafka, scratch, say):
    """Of both versions with Kafka 4, also of one transactional id."""
    tally = run_histories(kafka, scratch, range(2000, 2040), say, MOSTLY_TRANSACTIONS)
    ends = {version for api, version in tally.versions if api == "EndTxn"}
    assert ends >= ({0, 4, 5} if kafka[0] is KAFKA_4 else {0, 4})
    assert tally.requests["EndTxn"] > 100


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_histories_of_transactions_are_answered_as_kafka_answers_them(
    kafka, scratch, say
):
    seeds = range(3000, 4000)
    assert run_histories(kafka, scratch, seeds, say, MOSTLY_TRANSACTIONS).histories == 1000


def epochs_to_their_end(bootstrap, end_version):
    """Return the responses to a transactional id for its last epochs; ids relative to the first.

    Parameters
    ----------
    end_version : int
        Version of the EndTxn requests that follow; since version 5, they change the epoch.
    """
    warm_up(Side("", bootstrap))
    caller = Caller(bootstrap)

    def epoch_of(answer):
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def init(known=None):
        given = {} if known is None else {"producer_id": known[1], "producer_epoch": known[2]}
        return epoch_of(caller.call("InitProducerId", 4, FIELDS | given))

    first = init()
    epoch = first[2]
    while epoch < LAST_EPOCH - 3:
        for _ in range(min(200, LAST_EPOCH - 3 - epoch)):
            caller.send("InitProducerId", 4, FIELDS)
            epoch += 1
        while (newest := epoch_of(caller.receive()))[2] != epoch:
            assert newest[0] == 0, "a sequential client has no pending request"
    result = [init() for _ in range(3)]
    last = result[-1]
    renewed = init(last)
    result += [renewed, init(last), init(renewed), init(last), init()]
    if end_version >= 5:
        result += ends_of_the_last_epoch(caller, init)
    caller.close()
    return [
        (error, number if number < 0 else number - first[1], epoch)
        for error, number, epoch in result
    ]


def ends_of_the_last_epoch(caller, init):
    """Return the responses to EndTxn in the last epoch, and to their repetition."""

    def end(known, committed):
        fields = {
            "transactional_id": "worn",
            "producer_id": known[1],
            "producer_epoch": known[2],
            "committed": committed,
        }
        while True:
            answer = caller.call("EndTxn", 5, fields)
            if answer.error_code != CONCURRENT_TRANSACTIONS:
                return answer.error_code, answer.producer_id, answer.producer_epoch

    current = init()
    while current[2] < LAST_EPOCH:
        missing = LAST_EPOCH - current[2]
        for _ in range(min(200, missing)):
            caller.send("InitProducerId", 4, FIELDS)
        for _ in range(min(200, missing)):
            newest = caller.receive()
            current = newest.error_code, newest.producer_id, newest.producer_epoch
    following = end(current, committed=False)
    return [
        current,
        following,
        end(current, committed=False),
        end(current, committed=True),
        end(following, committed=True),
        init(current),
        end(following, committed=False),
    ]


@pytest.mark.long
def test_epochs_end_and_ids_follow_as_with_kafka(kafka, scratch, say):
    release, broker = kafka
    end_version = 5 if release is KAFKA_4 else 4
    theirs = epochs_to_their_end(broker.bootstrap, end_version)
    with our_broker(scratch / "ours") as ours:
        assert epochs_to_their_end(ours, end_version) == theirs
    assert (0, 0, LAST_EPOCH) in theirs
    assert (0, 1, 0) in theirs
    say(f"the last epochs of a producer id, and the next responses: {theirs}")
