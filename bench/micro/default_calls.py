"""Lines for calls as users make them: default arguments, new objects, garbage collection.

`broker_calls` measures the best case of the same calls.
"""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

from logstore.bench.measuring import Run, Sample, Stopwatch, run_interleaved
from logstore.bench.micro.figures import MS, NS, US, costs, speeds, wall_only
from logstore.bench.micro.logs import KIB, MIB, LogShape, make_log
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.micro.starting import PROGRAM, as_installed, process, worker
from logstore.bench.report.result import Line
from logstore.broker import Broker
from logstore.cluster import Cluster

TOPIC = "bench"
SINGLE_RECORDS = 20_000
MANY_RECORDS = 100_000
FIRST_RECORDS = 1_000_000
PARTITIONS = 1000
READ_PARTITIONS = 200
SEGMENTS = 7

TEST_MODULE = """
def test_of_a_user(logstore_broker):
    logstore_broker.create_topic("users", configs={"cleanup.policy": "compact"})
    for number in range(1000):
        logstore_broker.append("users", key=b"%d" % (number % 10), value=b"value")
    logstore_broker.clean("users", force=True, roll=True)
    assert len(list(logstore_broker.read("users"))) == 10
"""


def _new_records(count: int) -> list[tuple[bytes, bytes]]:
    """Return records that do not share objects."""
    return [(b"key-%012d" % number, b"%0100d" % number) for number in range(count)]


def _send(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(SINGLE_RECORDS)

    def run() -> Sample:
        records = _new_records(count)
        with Broker() as broker:
            broker.create_topic(TOPIC)
            with broker.producer() as producer, Stopwatch() as watch:
                for key, value in records:
                    producer.send(TOPIC, value, key)
        return watch.sample

    yield Line(
        name="defaults/send",
        title="producer.send, linger_ms=0, idempotent",
        unit="µs/record",
        higher_is_better=False,
        here=costs(count, setting.samples(run), US),
        facts={"records": count, "has_collection": gc.isenabled()},
    )


def _append_many(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(MANY_RECORDS)

    def run() -> Sample:
        records = _new_records(count)
        with Broker() as broker:
            broker.create_topic(TOPIC)
            with Stopwatch() as watch:
                broker.append_many(TOPIC, records)
        return watch.sample

    yield Line(
        name="defaults/append_many",
        title="Broker.append_many, distinct keys and values",
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, setting.samples(run), NS),
        facts={"records": count, "has_collection": gc.isenabled()},
    )


def _create_topic(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(PARTITIONS)
    title = f"create_topic with {count:,} partitions on disk, fsyncs included, wall time"
    yield _creation(setting, "create-topic", title, Broker, count)


def _create_cluster_topic(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(PARTITIONS) // 5
    title = f"Cluster.create_topic with {count:,} partitions of 3 replicas on disk, wall time"
    start = partial(Cluster, 3)
    yield _creation(setting, "create-cluster-topic", title, start, count, replication_factor=3)


def _creation(
    setting: Setting,
    name: str,
    title: str,
    start: Callable[..., Any],
    count: int,
    **options: int,
) -> Line:
    """Measure how a broker or cluster creates a topic with `count` partitions."""
    data_dir = setting.scratch / "default-topics"

    def run() -> Sample:
        shutil.rmtree(data_dir, ignore_errors=True)
        with start(data_dir=data_dir) as started, Stopwatch() as watch:
            started.create_topic(TOPIC, count, **options)
        return watch.sample

    samples = setting.samples(run)
    shutil.rmtree(data_dir, ignore_errors=True)
    return Line(
        name=f"defaults/{name}",
        title=title,
        unit="ms",
        higher_is_better=False,
        here=wall_only(costs(1, samples, MS)),
        facts={"cpu_ms": [round(each.cpu_s * MS) for each in samples]},
    )


def _stats(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(SINGLE_RECORDS)
    with Broker() as broker:
        broker.create_topic(TOPIC)
        for key, value in _new_records(count):
            broker.append(TOPIC, key=key, value=value)

        def run() -> Sample:
            with Stopwatch() as watch:
                broker.stats(TOPIC)
            return watch.sample

        samples = setting.samples(run)
    yield Line(
        name="defaults/stats",
        title="Broker.stats, one-record batches, the verdict included",
        unit="µs/record",
        higher_is_better=False,
        here=costs(count, samples, US),
        facts={"records": count},
    )


def _command(setting: Setting, *, arguments: tuple[str, ...]) -> Iterator[Line]:
    """Measure a command on many partitions with few records, without compiled kernels."""
    count = setting.share_of(READ_PARTITIONS)
    data_dir = setting.scratch / "default-partitions"
    with Broker(data_dir) as broker:
        broker.create_topic(TOPIC, count, configs={"cleanup.policy": "compact"})
        for partition in range(count):
            for _ in range(SEGMENTS):
                broker.append_many(TOPIC, _new_records(5), partition=partition)
                broker.roll(TOPIC, partition)
    with as_installed(setting) as environment, TemporaryDirectory(dir=setting.scratch) as kernels:
        command = (*PROGRAM, *arguments, "--data-dir", str(data_dir), "--format", "json")
        run = process(command, {**environment, "NUMBA_CACHE_DIR": kernels})
        samples = run_interleaved({"here": run}, repeats=setting.repeats, warmups=1)["here"]
    shutil.rmtree(data_dir)
    yield Line(
        name=f"defaults/{arguments[-1].strip('-')}",
        title=f"logstore {' '.join(arguments)} of {count:,} partitions with {SEGMENTS} segments,"
        " process start to exit, no kernels",
        unit="ms/partition",
        higher_is_better=False,
        here=costs(count, samples, MS),
    )


def _check(setting: Setting) -> Iterator[Line]:
    """Measure `check` of a log, compared with reading its files."""
    home = setting.scratch / "default-check"
    log_bytes = make_log(LogShape(KIB, 0.5, 16, total_bytes=setting.total_bytes), home)
    paths = sorted(home.rglob("*.log"))

    def read() -> Sample:
        with Stopwatch() as watch:
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    while file.read(MIB):
                        pass
        return watch.sample

    yield _processed(setting, "check", ("check", str(home)), log_bytes, read, "a plain read")
    shutil.rmtree(home)


def _export(setting: Setting) -> Iterator[Line]:
    """Measure `export` to Parquet, compared with pyarrow writing the same table from memory."""
    if find_spec("pyarrow") is None:
        return
    from pyarrow import parquet

    home, out = setting.scratch / "default-export", setting.scratch / "default-export.parquet"
    shape = LogShape(KIB, 0.5, 16, total_bytes=setting.total_bytes // 4)
    log_bytes = make_log(shape, home)
    arguments = ("export", "--data-dir", str(home), "--out", str(out), "--overwrite")
    process((*PROGRAM, *arguments))()
    table = parquet.read_table(out)

    def write() -> Sample:
        with Stopwatch() as watch:
            parquet.write_table(table, out, compression="zstd")
        return watch.sample

    yield _processed(setting, "export", arguments, log_bytes, write, "pyarrow alone")
    out.unlink()
    shutil.rmtree(home)


def _processed(
    setting: Setting,
    name: str,
    arguments: tuple[str, ...],
    log_bytes: int,
    peer: Run,
    peer_name: str,
) -> Line:
    """Measure a command that reads a log, compared with the least that it has to do."""
    with as_installed(setting) as environment:
        run = process((*PROGRAM, *arguments), environment)
        samples = run_interleaved({"here": run, "peer": peer}, repeats=setting.repeats, warmups=1)
    return Line(
        name=f"defaults/{name}",
        title=f"logstore {name}, process start to exit, vs. {peer_name}",
        unit="MB/s",
        higher_is_better=True,
        here=speeds(log_bytes, samples["here"]),
        peer=speeds(log_bytes, samples["peer"]),
        peer_name=peer_name,
        facts={"log_bytes": log_bytes},
    )


def _pytest(setting: Setting, *, is_cold: bool) -> Iterator[Line]:
    if find_spec("pytest") is None:
        return
    home = setting.scratch / "default-tests"
    home.mkdir()
    (home / "test_of_a_user.py").write_text(TEST_MODULE, encoding="utf-8")
    (home / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    plugins = ("-p", "no:cacheprovider", "-p", "logstore.testing.plugin")
    command = (sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(home), str(home))

    def measure(repeats: int, warmups: int) -> list[Sample]:
        with as_installed(setting) as environment, TemporaryDirectory(dir=home) as kernels:
            alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NUMBA_CACHE_DIR": kernels}
            run = process(command, {**environment, **alone})
            return run_interleaved({"here": run}, repeats=repeats, warmups=warmups)["here"]

    samples = []
    if is_cold:
        for _ in range(setting.repeats):  # each in a new environment
            samples += measure(1, 0)
    else:
        samples = measure(setting.repeats, 1)
    yield Line(
        name=f"defaults/pytest-{'first' if is_cold else 'again'}",
        title="a test with the pytest plugin, process start to exit, "
        + ("no kernels and no byte code" if is_cold else "later runs"),
        unit="s",
        higher_is_better=False,
        here=costs(1, samples, 1),
    )
    shutil.rmtree(home)


def _first_million(setting: Setting) -> Iterator[Line]:
    count = setting.share_of(FIRST_RECORDS)
    data_dir = setting.scratch / "default-million"
    samples = []
    for _ in range(max(1, setting.repeats - 1)):
        with Broker(data_dir) as broker:
            broker.create_topic(TOPIC, configs={"cleanup.policy": "compact"})
            broker.append_many(
                TOPIC,
                [(b"%d" % (number % (count // 10)), b"%0100d" % number) for number in range(count)],
            )
        cache = setting.scratch / "cache"
        answer = worker("first_pass", str(data_dir), environment={"NUMBA_CACHE_DIR": str(cache)})
        samples.append(Sample(answer["cpu_s"], answer["wall_s"]))
        shutil.rmtree(cache, ignore_errors=True)
        shutil.rmtree(data_dir)
    yield Line(
        name="defaults/first-cleaning",
        title=f"first cleaning pass over {count:,} records, without compiled kernels",
        unit="s",
        higher_is_better=False,
        here=costs(1, samples, 1),
        facts={"records": count},
    )


def jobs() -> Iterator[Job]:
    """Yield a job for each call."""
    calls: dict[str, Callable[[Setting], Iterator[Line]]] = {
        "defaults/send": _send,
        "defaults/append_many": _append_many,
        "defaults/create-topic": _create_topic,
        "defaults/create-cluster-topic": _create_cluster_topic,
        "defaults/stats": _stats,
        "defaults/explain": partial(_command, arguments=("explain",)),
        "defaults/inspect": partial(_command, arguments=("inspect",)),
        "defaults/dry-run": partial(_command, arguments=("clean", "--dry-run")),
        "defaults/check": _check,
        "defaults/export": _export,
        "defaults/pytest-first": partial(_pytest, is_cold=True),
        "defaults/pytest-again": partial(_pytest, is_cold=False),
        "defaults/first-cleaning": _first_million,
    }
    for name, measure in calls.items():
        yield Job((name,), True, measure)
