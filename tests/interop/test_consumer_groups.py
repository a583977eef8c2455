"""Consumer groups of KIP-848: the answers of a running Kafka 4.3.1, and Java's consumer."""

import os

import pytest

from tests.interop import consumer_conversations
from tests.interop.conftest import unavailable
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

SEEDS = 40
LONG_SEEDS = int(os.environ.get("LOGSTORE_CONSUMER_CONVERSATIONS", "500"))


def compare(seeds, tmp_path):
    try:
        return consumer_conversations.run(seeds, tmp_path)
    except Unavailable as error:
        unavailable(error)


def test_conversations_are_answered_as_kafka_answers_them(tmp_path):
    tally = compare(range(SEEDS), tmp_path)
    answers = {answer for _, answer in tally}
    assert {
        "NONE",
        "INVALID_REQUEST",
        "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
        "UNSUPPORTED_ASSIGNOR",
        "INVALID_REGULAR_EXPRESSION",
        "GROUP_ID_NOT_FOUND",
        "['STALE_MEMBER_EPOCH']",
    } <= answers


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_conversations(tmp_path):
    compare(range(SEEDS, SEEDS + LONG_SEEDS), tmp_path)
