"""Fixtures: a nursery for each module, and silenced warnings, of which recoveries log thousands."""

import logging

import pytest

from tests.processes.lives import Nursery


@pytest.fixture(autouse=True)
def _no_warnings():
    logging.disable(logging.ERROR)  # a disk that fails is called an error
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery
