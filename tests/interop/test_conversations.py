"""The listener beside running Kafka brokers: the same requests, the same answers."""

from __future__ import annotations

import pytest

from tests.interop.conftest import unavailable
from tests.interop.conversations import SETTINGS, converse, our_broker
from tests.support.interop.judge import RELEASES, Unavailable
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


def told(kafka, scratch, seeds, say):
    """Tell histories to both; return what was told."""
    release, broker = kafka
    with our_broker(scratch / "ours") as ours:
        tally, closed = converse(release, broker.bootstrap, ours, seeds)
    say(f"{tally}; parted as the closed list has it: {dict(closed.used)}")
    return tally


def test_every_request_is_answered_as_kafka_answers_it(kafka, scratch, say):
    tally = told(kafka, scratch, range(25), say)
    assert tally.histories == 25
    assert len(tally.requests) > 25
    assert len(tally.errors) > 15


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_five_hundred_histories_are_answered_as_kafka_answers_them(kafka, scratch, say):
    assert told(kafka, scratch, range(1000, 1500), say).histories == 500
