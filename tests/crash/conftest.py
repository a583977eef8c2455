"""Silence the warnings that each of thousands of recoveries logs."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _no_warnings():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
