import os

import pytest

from logstore import Broker, VirtualClock
from tests.support.browser.front import Front, find_node
from tests.support.world.page import Asked


@pytest.fixture(scope="session")
def node():
    """Path of Node.js. Tests that need it skip if there is none, and fail if `CI` is set."""
    found = find_node()
    if found is None:
        reason = "Node.js is neither on the PATH nor inside the package playwright"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return found


@pytest.fixture(scope="session")
def front(node, tmp_path_factory):
    """The page's modules in one Node.js process for all tests."""
    with Front(node, tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture
def broker():
    """Two topics on a virtual clock; `users` has a closed dirty segment and an open one."""
    with Broker(clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("users", 1, {"cleanup.policy": "compact"})
        broker.create_topic("events", 2, {"retention.ms": "1h"})
        for number in range(10):
            value = b"x" if number % 4 else None
            broker.append("users", key=b"k%d" % (number % 3), value=value)
        broker.roll("users")
        broker.append("users", key=b"k0", value=b"last")
        broker.append("events", value=b"long" * 500, partition=1)
        yield broker


@pytest.fixture
def page(broker):
    with Asked(broker) as page:
        yield page
