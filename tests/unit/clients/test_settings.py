"""Keyword settings and fault names as types: complete, and checked by mypy and pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from logstore.clients import consumer_config, producer_config
from logstore.clients.settings import (
    AdminSettings,
    ConsumerSettings,
    NetworkSettings,
    ProducerSettings,
)
from logstore.faults import names, rules
from logstore.wire.settings import ListenerOptions, ListenerSettings
from logstore.wire.versions import SERVED
from tools import fault_names

ROOT = Path(__file__).resolve().parents[3]

RIGHT = """\
import errno
from datetime import timedelta
from logstore import Broker, VirtualClock
from logstore.errors import KafkaStorageError

with Broker(clock=VirtualClock()) as broker:
    broker.producer(linger_ms=5, acks="all", compression_type="zstd", bootstrap_servers="x:1")
    broker.consumer("t", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=10)
    broker.admin(client_id="a", request_timeout_ms=10)
    broker.fail("append", error="NOT_LEADER_OR_FOLLOWER", times=2)
    broker.fail("append", error=KafkaStorageError, delay=timedelta(seconds=1))
    broker.fail("fsync", error=errno.ENOSPC)
    with broker.listen() as server:
        server.fail("Produce", error="REQUEST_TIMED_OUT")
"""

MISUSES = (
    'broker.consumer("t", grup_id="g")',
    'broker.consumer("t", auto_offset_reset="newest")',
    'broker.consumer("t", isolation_level="committed")',
    "broker.producer(linger=5)",
    'broker.producer(compression_type="brotli")',
    "broker.producer(transactional_id=7)",
    'broker.admin(client="a")',
    'broker.fail("appends", error="NOT_LEADER_OR_FOLLOWER")',
    'broker.fail("append", error="NOT_LEADER")',
    'broker.listen().fail("Produces", error="REQUEST_TIMED_OUT")',
)


def keys(settings: Any) -> set[str]:
    return {*settings.__required_keys__, *settings.__optional_keys__}


def test_every_setting_has_a_type() -> None:
    assert keys(ProducerSettings) > producer_config.DEFAULTS.keys()
    assert keys(ConsumerSettings) > consumer_config.DEFAULTS.keys()
    others = {"client_id", "metrics_enabled", "request_timeout_ms", "retry_backoff_ms"}
    assert keys(AdminSettings) == keys(NetworkSettings) | others
    assert len(keys(NetworkSettings)) == 39
    assert keys(ListenerOptions) == {each.name for each in fields(ListenerSettings) if each.init}


def test_every_name_of_a_fault_has_a_type() -> None:
    kinds = (*rules.REQUEST_KINDS, *rules.DISK_KINDS)
    assert set(get_args(names.FaultKind)) == {kind.name for kind in kinds}
    assert set(get_args(names.KafkaError)) == rules.KAFKA_ERRORS
    assert set(get_args(names.DiskError)) < rules.DISK_ERRORS
    assert set(get_args(names.ServedApi)) == set(SERVED)
    assert fault_names.TARGET.read_text(encoding="utf-8") == fault_names.text(), "run: make docs"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    opening = ("from logstore import Broker", "", "broker = Broker()")
    (tmp_path / "misuses.py").write_text("\n".join((*opening, *MISUSES, "")))
    (tmp_path / "right.py").write_text(RIGHT)
    return tmp_path


WRONG = set(range(4, 4 + len(MISUSES)))
"""Numbers of the lines with a misuse."""


@pytest.mark.slow
def test_mypy_finds_each_misuse(program: Path) -> None:
    done = subprocess.run(
        [
            # With the project's settings, so that mypy's cache applies.
            *(sys.executable, "-m", "mypy", "--output", "json"),
            *map(str, sorted(program.glob("*.py"))),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    errors = [each for each in found if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in errors} == {"misuses.py"}, done.stdout
    assert {each["line"] for each in errors} == WRONG, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_finds_each_misuse(program: Path) -> None:
    configuration = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (program / "pyrightconfig.json").write_text(json.dumps(configuration))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=program,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in errors} == {"misuses.py"}, done.stdout
    assert {each["range"]["start"]["line"] + 1 for each in errors} == WRONG, done.stdout
