"""The broker of the application's stories."""

import pytest

from tests.application.stories import orders_topics


@pytest.fixture
def broker(logstore_broker):
    """A broker with the application's topics, whose orders are durable when acknowledged."""
    orders_topics(logstore_broker)
    return logstore_broker
