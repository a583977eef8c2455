"""Notices list each warning about a copied directory once, and none of the page itself."""

import logging

import pytest

from logstore.ui.notices import NOTICES_MAX, Notices


@pytest.fixture
def notices():
    notices = Notices()
    notices.attach()
    yield notices
    notices.detach()


def test_distinct_warnings_are_collected_in_order(notices, caplog):
    caplog.set_level(logging.DEBUG, "logstore")
    for name, level, text in (
        ("logstore.storage", logging.WARNING, "two\n  lines of %s"),
        ("logstore.storage", logging.ERROR, "an error of %s"),
        ("logstore.manager", logging.WARNING, "two lines of %s"),
        ("logstore.storage", logging.INFO, "a message of %s"),
        ("logstore.ui.api_request", logging.ERROR, "a defect of %s"),
    ):
        logging.getLogger(name).log(level, text, "t-0")
    assert notices.texts() == ["two lines of t-0", "an error of t-0"]
    notices.detach()
    logging.getLogger("logstore").warning("later")
    assert len(notices.texts()) == 2


def test_warnings_are_bounded(notices):
    for number in range(NOTICES_MAX + 2):
        logging.getLogger("logstore.storage").warning("%d", number)
    assert notices.texts() == [str(number) for number in range(NOTICES_MAX)]
