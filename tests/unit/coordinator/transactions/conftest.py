"""A fixture with a broker and its coordinator, for tests of transactions."""

from collections.abc import Iterator

import pytest

from tests.support.world.transactions import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench in memory, with a topic of three partitions."""
    bench = Bench()
    bench.broker.create_topic("t", 3)
    yield bench
    bench.broker.close()
