"""Silence: what each of thousands of recoveries found is a warning of its own."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _no_warnings():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
