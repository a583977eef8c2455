"""The pool in threads on a disk, with all kinds of clients: no loss, duplicates or leaks."""

import gc
import logging
import os
import random
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from logstore import Broker, SystemClock, TopicPartition
from logstore.inspect.check.directory import Checker
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.storage.log.reader import Isolation
from tests.property.pool_threads import (
    Crew,
    Ledger,
    altering,
    commander,
    deleter,
    keeper,
    read_all,
    reader,
    reconfigurer,
    record_deleter,
    transactional_writer,
    truncater,
    writer,
)
from tests.support.world.pool_world import SUFFIXES, files_of_log

MINUTES = float(os.environ.get("LOGSTORE_POOL_MINUTES", "10"))

BROKER = {
    "log.cleaner.threads": 4,
    "log.cleaner.backoff.ms": 5,
    "log.cleaner.io.buffer.size": 16_000,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 300,
    "log.flush.start.offset.checkpoint.interval.ms": 300,
}

TOPIC = {
    "segment.bytes": 20_000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 500,
    "file.delete.delay.ms": 50,
}

POLICIES = {
    "kept": "compact",
    "mixed": "compact,delete",
    "events": "delete",
    "doomed": "compact",
}


@pytest.fixture
def errors():
    """Collect the errors in the program's log.

    Warnings are many, and keeping them would keep the logs that they refer to.
    """
    result = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: result.append(handler.format(record))
    logging.getLogger().addHandler(handler)
    logging.disable(logging.WARNING)
    yield result
    logging.disable(logging.NOTSET)
    logging.getLogger().removeHandler(handler)


def descriptors() -> dict[int, str]:
    """Return the open descriptors of the process, with their files' current or former names."""
    gc.collect()
    result = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            result[int(each.name)] = str(each.readlink())
    return result


def engine_threads() -> set[threading.Thread]:
    """Return the engine's threads themselves: names change with the task, and have no order."""
    return {each for each in threading.enumerate() if each.name.startswith("logstore-")}


def compare(broker: Broker, ledgers: dict[TopicPartition, Ledger]) -> None:
    """Check that the latest value of each key is the last acknowledged one, after all clients
    ended."""
    for tp, ledger in ledgers.items():
        log = broker.manager.log(tp)
        result = read_all(log, tp, Isolation.READ_COMMITTED)
        for key, known in ledger.latest.items():
            if known.offset < log.log_start_offset:
                continue
            if known.value is None:
                assert result.get(key, (known.offset, None)) == (known.offset, None), (tp, key)
            else:
                assert result.get(key) == (known.offset, known.value), (tp, key)


def settle(broker: Broker, partitions: list[TopicPartition]) -> None:
    """Let the pool finish due work and remove replaced files."""
    broker.alter_broker_configs(
        {"log.cleaner.io.max.bytes.per.second": None, "log.cleaner.io.buffer.load.factor": None}
    )
    for topic in broker.topics():
        if "compact" in topic.configs.get("cleanup.policy", "") and topic.name in POLICIES:
            changes = {"min.cleanable.dirty.ratio": 0, "min.compaction.lag.ms": 0}
            broker.alter_configs(topic.name, changes | {"file.delete.delay.ms": 0})
    for tp in partitions:
        broker.manager.log(tp).writer.roll()
    deadline = time.monotonic() + 120
    while not is_settled(broker, partitions):
        assert time.monotonic() < deadline, "it is never clean"
        time.sleep(0.05)


def is_settled(broker: Broker, partitions: list[TopicPartition]) -> bool:
    if broker.cleaner.states._states or any(
        log._deletions for log in broker.manager.registry.open_logs()
    ):
        return False
    for tp in partitions:
        log = broker.manager.log(tp)
        if log.config.compact:
            clean = max(broker.cleaner.checkpoints.of(tp) or 0, log.log_start_offset)
            dirty = log.segments.between(clean, log.active_segment.base_offset)
            if any(segment.size_bytes for segment in dirty):
                return False
    return True


def run_crew(directory: Path, counts: dict[str, int], seconds: float, errors: list[str]) -> Crew:
    broker = Broker(directory, clock=SystemClock(), background=True, broker_config=BROKER)
    ledgers: dict[TopicPartition, Ledger] = {}
    for name, count in counts.items():
        configs = TOPIC | {"cleanup.policy": POLICIES[name]}
        if name == "events":
            configs["retention.bytes"] = 300_000
        broker.create_topic(name, count, configs)
        ledgers |= {TopicPartition(name, number): Ledger() for number in range(count)}
    crew = Crew(broker, ledgers, {"doomed"}, random.SystemRandom().getrandbits(32))
    broker.pool.pass_ended.subscribe(lambda stats: crew.tally.update(passes=1))
    for number in range(4):
        crew.hire(f"writer-{number}", writer)
    for number in range(3):
        crew.hire(f"reader-{number}", reader)
    crew.hire("transactions", transactional_writer("kept"))
    for client in (truncater, deleter, record_deleter, reconfigurer, keeper, commander):
        crew.hire(client.__name__, client)
    crew.hire("altering-0", altering(["kept", "mixed"], policies=("compact", "compact,delete")))
    crew.hire("altering-1", altering(["doomed"], policies=("compact", "compact,delete", "delete")))
    try:
        crew.run(seconds)
    except AssertionError as error:
        error.add_note("".join(errors))
        raise
    settle(broker, list(ledgers))
    compare(broker, ledgers)
    for tp in ledgers:
        left = [each.name for each in (directory / str(tp)).iterdir()]
        assert not [name for name in left if name.endswith(SUFFIXES)], tp
    return crew


def run_and_look(
    directory: Path, counts: dict[str, int], seconds: float, errors: list[str]
) -> Crew:
    """Run clients; then check for lost records, open files and running threads."""
    before, threads_before = descriptors(), engine_threads()
    crew = run_crew(directory, counts, seconds, errors)
    broker, ledgers = crew.broker, crew.ledgers
    opened = descriptors()
    in_use = {
        file._descriptor
        for log in broker.manager.registry.open_logs()
        for file in files_of_log(log)
    }
    extra = [path for number, path in opened.items() if number not in before.keys() | in_use]
    # Checkpoints are still written periodically; the partitions are idle.
    assert [path for path in extra if Path(path).parent != directory] == []
    broker.close()
    for thread in engine_threads() - threads_before:
        thread.join(10)  # a thread that ran out of tasks may still be ending
    assert engine_threads() <= threads_before
    assert descriptors() == before
    rows = Checker(ReadOnlyFileSystem(DiskFileSystem())).data_dirs([str(directory)])
    assert [row for row in rows if row.severity == "error"] == []
    with Broker(directory, read_only=True) as again:
        compare(again, ledgers)
    assert errors == []
    return crew


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_crew_for_seconds(tmp_path, errors):
    counts = {"kept": 1, "mixed": 1, "events": 1, "doomed": 1}
    crew = run_and_look(tmp_path / "data", counts, 1, errors)
    assert crew.tally["comparisons"]
    assert crew.tally["passes"]


@pytest.mark.long
@pytest.mark.timeout(0)
def test_four_threads_on_sixteen_partitions_for_ten_minutes(tmp_path, errors, capsys):
    """`LOGSTORE_POOL_MINUTES` of wall time."""
    counts = {"kept": 6, "mixed": 4, "events": 2, "doomed": 4}
    crew = run_and_look(tmp_path / "data", counts, 60 * MINUTES, errors)
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(sorted(crew.tally.items()))}; ")
