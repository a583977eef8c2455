"""A broker in memory with a listener, and a connection to it, for tests that ask for no more."""

import pytest

from logstore import Broker
from tests.support.world.wire import Client


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def listener(broker):
    with broker.listen() as listener:
        yield listener


@pytest.fixture
def client(listener):
    with Client(listener) as client:
        yield client
