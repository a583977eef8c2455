"""Each client at a listener: every action, with all versions and with the fewest.

The programs all run before the first test, some concurrently; a test reads its part.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.interop.agreeing import agree
from tests.interop.conftest import unavailable
from tests.interop.directories import Written
from tests.support.interop.foreign_clients import ABSENT, CLIENTS
from tests.support.interop.judge import KAFKA_3, KAFKA_4, Unavailable, fast_scratch
from tests.support.interop.sweep import ACTIONS, EXPECTED, LEFT, TABLES, TOPICS, SweepResult, sweeps

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def swept():
    """Return a function that returns the result of a sweep."""
    home = Path(tempfile.mkdtemp(prefix="interop-", dir=fast_scratch()))
    results = sweeps(CLIENTS, home)

    def of(client: str, table: str) -> SweepResult:
        result = results[client, table]
        if isinstance(result, Unavailable):
            unavailable(result)
        return result

    yield of
    shutil.rmtree(home)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("client", [each.name for each in CLIENTS])
def test_client_and_broker_have_seen_the_same(client, table, action, swept):
    result = swept(client, table)
    report = result.reports.get(action, {"failed": "its program has ended before"})
    if (client, action) in ABSENT:
        assert report == {"absent": ABSENT[client, action]}
        return
    assert report == {"seen": EXPECTED[action]}, result.said
    assert result.left[action] == LEFT[action]


@pytest.mark.parametrize(
    ("table", "judge"),
    (("recommended", KAFKA_3), ("minimum", KAFKA_4)),
    indirect=["judge"],
    ids=TABLES,
)
@pytest.mark.parametrize("client", [each.name for each in CLIENTS])
def test_kafkas_classes_open_the_directory_as_this_engine_does(
    client, table, swept, judge, scratch, row
):
    result = swept(client, table)
    row("directories after other people's clients", judge)
    for topic in (*TOPICS, "__consumer_offsets", "__transaction_state"):
        written = Written(result.path, {}, int(time.time() * 1000), topic)
        assert agree(judge, written, scratch) == []
