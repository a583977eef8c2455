"""The public names of `logstore` and `logstore.broker`, which are loaded when first used."""

import importlib
import inspect
import re
import subprocess
import sys
import typing

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


def test_types_errors_and_clocks_load_without_a_broker():
    program = (
        "import sys, logstore\n"
        "logstore.TopicPartition, logstore.CorruptRecordError, logstore.VirtualClock\n"
        "hasattr(logstore, 'Nothing')\n"
        "assert 'logstore.broker' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_broker_in_memory_imports_no_unused_module():
    """How a disk forgets is needed at once, but neither crashes by plan nor users."""
    program = (
        "import sys\n"
        "from logstore import Broker\n"
        "with Broker() as broker:\n"
        "    broker.create_topic('t')\n"
        "    broker.append('t', key=b'k', value=b'v')\n"
        "rooms = 'logstore.security', 'logstore.jit', 'logstore.cleaner', 'logstore.wire'\n"
        "rooms += 'logstore.faults.crash', 'logstore.faults.faultfs', 'numpy', 'asyncio'\n"
        "print(*(name for name in sys.modules if name.startswith(rooms)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == []


def test_return_types_of_public_methods_are_public():
    """Named in the annotations of a broker's and a producer's own methods."""
    inner = {"Log", "LogCleanerManager", "CleanerPool"}  # of the engine, for those who look inside
    for kind in (logstore.Broker, logstore.Producer):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                returned = inspect.signature(method).return_annotation or ""
                types = {t for t in re.findall(r"\b[A-Z]\w+", returned) if not hasattr(typing, t)}
                assert types - inner - {"None"} <= set(logstore.__all__), name
