"""Random histories of fetch sessions (KIP-227), compared with a running Kafka 4.3.1.

20 histories for each run and 300 in the long profile.
"""

from collections import Counter

import pytest

from logstore import Broker
from tests.interop.conftest import unavailable
from tests.interop.fetch_histories import History
from tests.support.interop.judge import Unavailable
from tests.support.interop.real_broker import RealBroker, kafka_4_3

pytestmark = pytest.mark.interop

SETTINGS = {
    "log.roll.ms": "86400000",
    "log.cleaner.enable": "false",
    "max.incremental.fetch.session.cache.slots": "1000",
    "log.segment.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        broker = RealBroker(kafka_4_3(), tmp_path_factory.mktemp("kafka"), SETTINGS)
    except Unavailable as error:
        unavailable(error)
    with broker:
        yield broker


def compare(kafka, seeds, say):
    counts, versions = Counter(), Counter()
    with Broker() as broker, broker.listen(auto_create=False) as listener:
        for seed in seeds:
            history = History((kafka.bootstrap, listener.bootstrap), seed)
            history.run()
            counts += history.counts
            versions += history.versions
    say(f"{dict(counts)}, versions of Fetch {dict(sorted(versions.items()))}")
    assert counts["NONE"] > counts["FETCH_SESSION_ID_NOT_FOUND"] > 0
    return counts


def test_sessions_are_answered_as_kafka_answers_them(kafka, say):
    compare(kafka, range(20), say)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_three_hundred_histories_of_sessions(kafka, say):
    counts = compare(kafka, range(1000, 1300), say)
    assert all(
        counts[name] > 0
        for name in (
            "INVALID_FETCH_SESSION_EPOCH",
            "FETCH_SESSION_TOPIC_ID_ERROR",
            "UNKNOWN_TOPIC_ID",
            "INCONSISTENT_TOPIC_ID",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "OFFSET_OUT_OF_RANGE",
        )
    )
