"""The public names of `logstore` and `logstore.broker`, which are loaded when first used."""

import importlib
import subprocess
import sys

import pytest

import logstore
import logstore.broker


@pytest.mark.parametrize("package", (logstore, logstore.broker), ids=lambda p: p.__name__)
def test_every_public_name_is_there_and_no_other(package):
    for name in package.__all__:
        found = getattr(package, name)
        assert found.__name__ == name
        assert getattr(importlib.import_module(found.__module__), name) is found
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


def test_types_errors_and_clocks_come_without_a_broker():
    program = (
        "import sys, logstore\n"
        "logstore.TopicPartition, logstore.CorruptRecordError, logstore.VirtualClock\n"
        "hasattr(logstore, 'Nothing')\n"
        "assert 'logstore.broker' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
