"""The pytest plugin, in pytest runs of its own."""

import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock
from logstore.jit import policy
from logstore.testing import plugin
from logstore.testing.describing import described

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path):
    """Return a function that writes a module of tests and lets pytest run it."""

    def run(code, *arguments, ini="", plugin=True, **variables):
        (tmp_path / "test_it.py").write_text(code, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}", encoding="utf-8")
        # As in a user's shell: without this suite's variables and without other plugins.
        own = ("LOGSTORE_", "PYTEST_", "COV_", "HYPOTHESIS_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"),
                *(("-p", "logstore.testing.plugin") if plugin else ()),
                *arguments,
            ],
            cwd=tmp_path,
            env=inherited
            | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            | {name.upper(): value for name, value in variables.items()},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


FIXTURES = """
import gc
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from logstore import Broker, IllegalStateError, VirtualClock

brokers = []


def test_memory(logstore_broker, logstore_clock):
    assert logstore_broker.clock is logstore_clock
    assert logstore_clock.now_ms() == VirtualClock().now_ms()
    assert [d.path for d in logstore_broker.manager.directories] == ["/memory"]
    logstore_broker.create_topic("t")
    logstore_clock.advance(days=1)
    brokers.append(logstore_broker)


def test_another_one(logstore_broker, logstore_clock):
    assert logstore_broker.topics() == []
    assert logstore_clock.now_ms() == VirtualClock().now_ms()
    with pytest.raises(IllegalStateError):
        brokers[0].topics()


def test_on_disk(logstore_broker, logstore_data_dir):
    logstore_broker.create_topic("t")
    assert (logstore_data_dir / "t-0").is_dir()
    logstore_broker.close()
    with Broker(logstore_data_dir) as again:
        assert [topic.name for topic in again.topics()] == ["t"]


def test_dir_alone(logstore_data_dir):
    assert not logstore_data_dir.exists()


@pytest.mark.logstore(broker_config={"log.retention.ms": 5, "log.segment.bytes": 4096}, start=0)
class TestMarked:
    @pytest.mark.logstore(broker_config={"log.retention.ms": "6"}, storage="disk")
    def test_nearest_counts(self, logstore_broker):
        logstore_broker.create_topic("t")
        configs = logstore_broker.describe_configs("t")
        assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("6", "4096")
        assert configs["max.message.bytes"].value == "77777"
        assert logstore_broker.clock.now_ms() == 0
        assert Path(logstore_broker.log("t").directory).is_dir()


@pytest.mark.logstore(start=datetime(2030, 1, 1, tzinfo=timezone.utc), background=True)
def test_background(logstore_broker):
    assert logstore_broker.pool
    assert logstore_broker.clock.now_ms() == 1893456000000


@pytest.mark.parametrize("time", (0, 1))
def test_chance_is_repeatable(logstore_broker, time):
    brokers.append(logstore_broker.manager.runtime.rng.getrandbits(64))
    assert brokers[-1] == brokers[-1 - time]
"""


def test_fixtures_and_marker(run):
    done = run(FIXTURES, "--strict-markers", ini="logstore_broker_config = message.max.bytes=77777")
    assert done.returncode == 0, done.stdout
    assert " 8 passed" in done.stdout


WHERE = """
def test_where(logstore_broker):
    logstore_broker.create_topic("t")
    print("at", logstore_broker.log("t").directory, logstore_broker.clock.now_ms())
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "expected"),
    (
        (("--logstore-storage=disk",), "", r"at \S+/logstore-data/t-0 1704067200000\n"),
        ((), "logstore_storage = disk\nlogstore_start = 2024-06-01T00:00Z", r"data/t-0 17172000"),
        (("--logstore-storage=memory",), "logstore_storage = disk", r"at /memory/t-0 "),
    ),
)
def test_storage_and_start_of_a_whole_run(run, arguments, ini, expected):
    done = run(WHERE, "-s", *arguments, ini=ini)
    assert done.returncode == 0, done.stdout
    assert re.search(expected, done.stdout)


REFUSED = """
import pytest

@pytest.mark.logstore(strage="disk")
def test_name(logstore_broker): pass

@pytest.mark.logstore("disk")
def test_position(logstore_broker): pass

@pytest.mark.logstore(storage="tape")
def test_value(logstore_broker): pass

@pytest.mark.logstore(storage="memory")
def test_both(logstore_broker, logstore_data_dir): pass
"""


def test_partitions_without_the_marker_are_named(run):
    done = run(REFUSED, "-rE")
    for message in (
        "logstore: the marker logstore has no option 'strage'; did you mean 'storage'?",
        "logstore: the marker logstore takes keyword arguments only, not 'disk'",
        "logstore: storage must be memory or disk, not 'tape'",
        "logstore: storage 'memory' conflicts with the fixture logstore_data_dir",
    ):
        assert message in done.stdout
    assert " 4 errors" in done.stdout
    done = run(WHERE, ini="logstore_broker_config = log.retention.ms: 5")
    assert "expected key=value, got 'log.retention.ms: 5'" in done.stdout


FAILING = """
import pytest

def test_fails(logstore_broker):
    logstore_broker.create_topic("users", configs={"cleanup.policy": "compact"})
    logstore_broker.append("users", key=b"1", value=b"ann")
    assert 0

@pytest.fixture
def filled(logstore_broker):
    logstore_broker.create_topic("half-made")
    raise ValueError

def test_fails_earlier(filled):
    pass

def test_passes(logstore_broker):
    logstore_broker.create_topic("fine")

@pytest.mark.xfail(reason="known", strict=True)
def test_fails_as_expected(logstore_broker):
    logstore_broker.create_topic("expected")
    assert 0

def test_closed(logstore_broker):
    logstore_broker.close()
    assert 0
"""


def test_a_failing_test_shows_its_broker(run):
    done = run(FAILING, "-rA")
    sections = re.findall(r"-+ logstore broker -+\n(.*?)(?=\n[_=-]{5})", done.stdout, re.DOTALL)
    assert len(sections) == 3, done.stdout
    joined = "\n".join(sections)
    assert "topic users cleanup.policy=compact" in joined
    assert "offset 0: key b'1', value b'ann'" in joined
    assert "topic half-made" in joined
    assert "was closed" in joined
    assert "topic fine" not in joined
    assert "topic expected" not in joined


def test_a_run_that_does_not_use_it_loads_nothing(run):
    code = (
        "import sys\n"
        "def test_nothing():\n"
        "    loaded = {n for n in sys.modules if n.startswith(('logstore', 'numpy', 'numba'))}\n"
        "    known = {'logstore', 'logstore.lazy', 'logstore.testing', 'logstore.testing.plugin'}\n"
        "    assert loaded == known\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stdout


def test_the_core_needs_no_pytest():
    program = (
        "import sys\n"
        "sys.modules['pytest'] = sys.modules['_pytest'] = None\n"
        "import logstore, logstore.testing\n"
        "from logstore.testing import *\n"
        "with logstore.Broker() as broker:\n"
        "    broker.create_topic('t')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


# --- kernels -----------------------------------------------------------------------------------

WARMUP = "logstore_warmup = true"

WARM = """
from logstore.jit import policy

def test_small(logstore_broker):
    assert policy.MODE == policy.COMPILED

def test_other():
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")
def test_kernels_are_ready_before_the_first_test_with_a_broker(run):
    """The limit of a test is below what loading takes, let alone compiling."""
    done = run(WARM, "-p", "pytest_timeout", "--timeout=0.2", ini=WARMUP)
    assert done.returncode == 0, done.stdout
    cold = "from logstore.jit import policy\ndef test_it(): assert policy.MODE == policy.AUTO\n"
    for code, options in (
        (cold, {"ini": WARMUP}),  # without a broker
        (WARM.replace("COMPILED", "PYTHON"), {"ini": WARMUP, "logstore_kernels": "python"}),
    ):
        done = run(code, **options)
        assert done.returncode == 0, done.stdout


def test_nothing_is_compiled_or_loaded_by_default(run, tmp_path):
    code = """
import sys

def test_small(logstore_broker):
    logstore_broker.create_topic("t", 1, {"cleanup.policy": "compact"})
    for number in range(500):
        logstore_broker.append("t", key=b"%d" % (number % 10), value=b"x")
    logstore_broker.clean("t", force=True, roll=True)
    assert len(list(logstore_broker.read("t"))) == 10
    assert "numba" not in sys.modules
"""
    cache = tmp_path / "kernels"
    cache.mkdir()
    done = run(code, numba_cache_dir=str(cache))
    assert done.returncode == 0, done.stdout
    assert not list(cache.iterdir())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_workers_share_the_compiling_and_no_limit_runs_meanwhile(run, tmp_path):
    """Half a minute of work before kernels are compiled, and a second for each test."""
    cache = tmp_path / "kernels"
    code = WARM + "".join(f"\ndef test_{n}(logstore_broker): pass\n" for n in range(6))
    plugins = ("-p", "pytest_timeout", "-p", "xdist", "--timeout=1", "-n", "2")
    done = run(code, *plugins, ini=WARMUP, numba_cache_dir=str(cache))
    assert done.returncode == 0, done.stdout
    compiled = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.nb[ic]")}
    assert compiled
    assert run(code, *plugins, ini=WARMUP, numba_cache_dir=str(cache)).returncode == 0
    assert compiled == {path.name: path.stat().st_mtime_ns for path in cache.glob("*.nb[ic]")}


# --- the state as text ------------------------------------------------------------------------


def test_description_of_a_broker():
    with Broker(clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("payments")
        for number in range(6):
            broker.append("orders", key=None, value=b"%d" % number * 90, partition=0)
        broker.append("orders", key=b"k", value=None, partition=1)
        consumer = broker.consumer("orders", group_id="billing", auto_offset_reset="earliest")
        consumer.poll()
        consumer.commit()
        producer = broker.producer(transactional_id="pay-1")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("payments", b"open")
        broker.fail("fetch", error="NOT_LEADER_OR_FOLLOWER", topic="nothing")
        before = broker.clock.now_ms()
        text = described(broker)
        assert broker.clock.now_ms() == before
    lines = text.splitlines()
    assert lines[0].endswith(" at 2024-01-01T00:00:00.000Z (1704067200000 ms)")
    assert lines[1] == "topic orders"
    assert re.fullmatch(r"  orders-0: offsets 0 to 6, 1 segment, \d+ bytes", lines[2])
    assert lines[3].startswith(f"    offset 2: key None, value b'{'2' * 58}… (90 bytes)")
    assert "    offset 0: key b'k', a tombstone" in lines
    assert "  payments-0: offsets 0 to 1, open transaction from 0, 1 segment, " in text
    start = lines.index("group billing: Stable, 1 member")
    assert lines[start + 1 : start + 4] == [
        "  orders-0 committed 6 of 6",
        "  orders-1 committed 1 of 1",
        "transaction pay-1: Ongoing on payments-0",
    ]
    assert lines[-1].startswith("fault <fail('fetch', topic='nothing'")


def test_the_description_of_an_unreadable_file_gives_the_reason(monkeypatch):
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        broker.groups  # noqa: B018  # is there, and fails
        monkeypatch.setattr(broker.groups, "list_groups", lambda: 1 / 0)
        text = described(broker)
    assert "topic t" in text
    assert "(groups: ZeroDivisionError: division by zero)" in text


SERVERS = """
from contextlib import closing
from datetime import timedelta
from kafka import KafkaProducer


def test_server(logstore_server, logstore_broker, logstore_clock):
    stamped = []
    address = logstore_server.bootstrap
    with closing(KafkaProducer(bootstrap_servers=address, enable_idempotence=False)) as producer:
        for value in (b"x", b"y"):
            producer.send("t", value).get(20)
            stamped.append(logstore_clock.now_ms())
            logstore_clock.advance(timedelta(days=400))
    found = list(logstore_broker.read("t"))
    assert [record.value for record in found] == [b"x", b"y"]
    for record, now_ms in zip(found, stamped):
        assert abs(record.timestamp - now_ms) < 3_600_000
    assert "Produce" in [request.api for request in logstore_server.requests]


def test_a_consumer_in_the_process_waits_no_longer_than_its_timeout(
    logstore_server, logstore_broker
):
    logstore_broker.create_topic("t")
    consumer = logstore_broker.consumer("t", group_id="g", auto_offset_reset="earliest")
    assert consumer.poll(timeout_ms=20) == {}


def test_factory(logstore_server_factory, logstore_broker):
    own = logstore_server_factory(broker_config={"log.retention.ms": "5"}, auto_create=False)
    shared = [logstore_server_factory(logstore_broker) for _ in range(2)]
    assert len({each.port for each in [own, *shared]}) == 3


def test_factory_takes_one_of_both(logstore_server_factory, logstore_broker):
    logstore_server_factory(logstore_broker, {"log.retention.ms": "5"})
"""


def test_servers_for_clients(run):
    done = run(SERVERS, "-W", "ignore::DeprecationWarning")
    assert "3 passed" in done.stdout, done.stdout
    assert "takes either a broker or a broker_config, not both" in done.stdout
    assert "1 failed" in done.stdout


def test_clients_that_outlive_their_server_are_silent(caplog):
    """kafka-python's threads fill a report with ECONNREFUSED if a test leaves a client open."""
    log = logging.getLogger("kafka.net.manager")
    goes_on, is_over = threading.Event(), threading.Event()

    def connect():
        log.error("while it serves")
        is_over.set()
        assert goes_on.wait(60)
        log.error("ECONNREFUSED")

    with plugin._suppress_client_logs():
        client = threading.Thread(target=connect, name="kafka-python-producer-1-network-thread")
        client.start()
        assert is_over.wait(60)
    goes_on.set()
    client.join(60)
    log.error("of another client")
    assert caplog.messages == ["while it serves", "of another client"]
