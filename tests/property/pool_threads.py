"""Concurrent clients of all kinds on one broker, and their checks.

Each client repeats one kind of action. A ledger for each partition has the acknowledged records;
readers and the end of the run compare with it.
"""

from __future__ import annotations

import faulthandler
import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore import Broker, TopicPartition
from logstore.errors import (
    KafkaStorageError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from logstore.storage.log import Log, NewRecord
from logstore.storage.log.reader import Isolation

GONE = (UnknownTopicOrPartitionError, KafkaStorageError)
"""Errors of a client whose topic is deleted concurrently."""

SILENCE_SECONDS = 60
"""After so long without a step of one client something is stuck."""


class Acknowledged(NamedTuple):
    """The latest acknowledged record of a key."""

    offset: int
    batch_end: int
    value: bytes | None


@dataclass(eq=False)
class Ledger:
    """The acknowledged records of one partition; each key has one writer.

    Attributes
    ----------
    lock : RLock
        Held by writers around an append, and by who cuts around the cut.
    generation : int
        Counts cuts and deletions.
    is_being_deleted : bool
        A record appended now may be deleted with the old topic, or stay in the new one.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    latest: dict[bytes, Acknowledged] = field(default_factory=dict)
    generation: int = 0
    is_being_deleted: bool = False

    def cut(self, offset: int) -> None:
        """Drop the keys whose latest record is truncated: older ones may have been cleaned."""
        self.generation += 1
        kept = {key: each for key, each in self.latest.items() if each.batch_end < offset}
        self.latest = kept

    def restart(self, *, is_being_deleted: bool) -> None:
        with self.lock:
            self.generation += 1
            self.is_being_deleted = is_being_deleted
            self.latest = {}


class Crew:
    """Clients, their threads, and a watch over them.

    Parameters
    ----------
    broker : Broker
        In threads.
    ledgers : dict of TopicPartition to Ledger
        All partitions.
    doomed : set of str
        Topics that may be truncated and deleted; the others are not.
    """

    def __init__(
        self, broker: Broker, ledgers: dict[TopicPartition, Ledger], doomed: set[str], seed: int
    ) -> None:
        self.broker = broker
        self.ledgers = ledgers
        self.doomed = doomed
        self.seed = seed
        self.is_over = threading.Event()
        self.tally: Counter[str] = Counter()
        self.errors: list[str] = []
        self._beats: dict[str, float] = {}
        self._clients: list[threading.Thread] = []

    def hire(self, name: str, client: Client) -> None:
        """Start a client when `run` is called."""
        self._beats[name] = time.monotonic()
        thread = threading.Thread(target=self._work, args=(name, client), name=name, daemon=True)
        self._clients.append(thread)

    def run(self, seconds: float) -> None:
        """Run all clients for a time; raise the first error, or the stacks of hanging ones."""
        end = time.monotonic() + seconds
        for name in self._beats:
            self._beats[name] = time.monotonic()
        for thread in self._clients:
            thread.start()
        while time.monotonic() < end and not self.errors:
            time.sleep(0.2)
            self._look_for_silence()
        self.is_over.set()
        while any(thread.is_alive() for thread in self._clients):
            time.sleep(0.05)
            self._look_for_silence()
        if self.errors:
            raise AssertionError(self.errors[0])

    def _look_for_silence(self) -> None:
        living = {thread.name for thread in self._clients if thread.is_alive()}
        now = time.monotonic()
        silent = [
            n for n, beat in self._beats.items() if n in living and now - beat > SILENCE_SECONDS
        ]
        if silent:
            with tempfile.TemporaryFile("w+") as stacks:
                faulthandler.dump_traceback(stacks, all_threads=True)
                stacks.seek(0)
                raise AssertionError(f"{silent} are stuck:\n{stacks.read()}")

    def _work(self, name: str, client: Client) -> None:
        rng = random.Random(f"{self.seed} {name}")
        turn = client(self, name, rng)
        while not self.is_over.is_set():
            try:
                turn()
            except BaseException:
                self.errors.append(f"{name}:\n{traceback.format_exc()}")
                self.is_over.set()
                return
            self.tally[name.partition("-")[0]] += 1
            self._beats[name] = time.monotonic()

    def pause(self, seconds: float) -> None:
        self.is_over.wait(seconds)


Client = Callable[[Crew, str, random.Random], Callable[[], None]]


# -- writing ---------------------------------------------------------------------------------


def writer(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Append batches of the writer's own keys to all partitions; a tenth are tombstones."""
    partitions = list(crew.ledgers)
    number = 0

    def turn() -> None:
        nonlocal number
        tp = rng.choice(partitions)
        ledger = crew.ledgers[tp]
        records = []
        for _ in range(rng.choice((1, 3, 20))):
            number += 1
            key = f"{name}/{rng.randrange(40)}".encode()
            value = None if rng.random() < 0.1 else b"%s=%d;" % (key, number) + rng.randbytes(20)
            records.append(NewRecord(key, value))
        with ledger.lock:
            try:
                info = crew.broker.manager.log(tp).writer.append_records(records)
            except GONE:
                assert tp.topic in crew.doomed
                return
            assert info.last_offset - info.first_offset == len(records) - 1
            if not ledger.is_being_deleted:
                for offset, record in enumerate(records, info.first_offset):
                    known = Acknowledged(offset, info.last_offset, record.value)
                    assert ledger.latest.get(record.key, known).offset <= offset
                    ledger.latest[record.key] = known
        crew.pause(0.002)

    return turn


def transactional_writer(topic: str) -> Client:
    """Return a client with transactions over a topic's partitions; half are aborted."""

    def client(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
        producer = crew.broker.producer(transactional_id=name, transaction_timeout_ms=900_000)
        producer.init_transactions()
        partitions = [tp for tp in crew.ledgers if tp.topic == topic]
        number = 0

        def turn() -> None:
            nonlocal number
            producer.begin_transaction()
            sent = []
            for _ in range(rng.choice((1, 5))):
                number += 1
                tp = rng.choice(partitions)
                key = f"{name}/{rng.randrange(20)}".encode()
                value = b"%s=%d;" % (key, number)
                future = producer.send(topic, value, key=key, partition=tp.partition)
                sent.append((tp, key, value, future))
            if rng.random() < 0.5:
                producer.abort_transaction()
                crew.pause(0.01)
                return
            producer.commit_transaction()
            for tp, key, value, future in sent:
                ledger, offset = crew.ledgers[tp], future.get(timeout=60).offset
                with ledger.lock:
                    ledger.latest[key] = Acknowledged(offset, offset, value)
            crew.pause(0.01)

        return turn

    return client


# -- reading ---------------------------------------------------------------------------------


def reader(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Read whole partitions, and compare with records acknowledged before."""
    partitions = list(crew.ledgers)

    def turn() -> None:
        tp = rng.choice(partitions)
        isolation = rng.choice((Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED))
        ledger = crew.ledgers[tp]
        try:
            log = crew.broker.manager.log(tp)
            with ledger.lock:
                generation, known = ledger.generation, dict(ledger.latest)
                stable = log.last_stable_offset
            result = read_all(log, tp, isolation)
        except (*GONE, OffsetOutOfRangeError):
            return
        with ledger.lock:
            if ledger.generation != generation or ledger.is_being_deleted:
                return
            now = dict(ledger.latest)
        crew.tally["comparisons"] += 1
        for key, each in known.items():
            if max(log.log_start_offset, 0) <= each.offset < stable:
                check_key(tp, key, each, result.get(key), now[key])
        crew.pause(0.01)

    return turn


def read_all(
    log: Log, tp: TopicPartition, isolation: Isolation
) -> dict[bytes, tuple[int, bytes | None]]:
    """Return the last record of each key; offsets rise, and no value is there twice."""
    result: dict[bytes, tuple[int, bytes | None]] = {}
    values: set[bytes] = set()
    previous = -1
    for _, record in log.reader.records(log.log_start_offset, isolation=isolation):
        assert record.offset > previous, f"{tp}: {record.offset} after {previous}"
        previous = record.offset
        key, value = record.key, record.value
        assert key is not None
        if value is not None:
            assert value.startswith(key + b"="), f"{tp}: {value!r} is not of {key!r}"
            assert value not in values or log.generation, f"{tp}: {value!r} is there twice"
            values.add(value)
        result[key] = (record.offset, value)
    return result


def check_key(
    tp: TopicPartition,
    key: bytes,
    known: Acknowledged,
    result: tuple[int, bytes | None] | None,
    now: Acknowledged,
) -> None:
    """See that a record or a later one of its key was met, unless the key was deleted."""
    if result is not None and result[0] >= known.offset:
        if result[0] == known.offset:
            assert result[1] == known.value, f"{tp}: {key!r} at {known.offset} has another value"
        return
    assert known.value is None or now.value is None or now.offset > known.offset, (
        f"{tp}: {key!r} at {known.offset} is lost; {result} was met, and the latest is {now}"
    )


# -- cutting, deleting, changing -------------------------------------------------------------


def truncater(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Cut the last records of partitions, or most of them."""
    partitions = [tp for tp in crew.ledgers if tp.topic in crew.doomed]

    def turn() -> None:
        tp = rng.choice(partitions)
        ledger = crew.ledgers[tp]
        with ledger.lock, suppress(*GONE):
            log = crew.broker.manager.log(tp)
            span = log.log_end_offset - log.log_start_offset
            offset = log.log_end_offset - int(span * rng.choice((0.001, 0.1, 0.5)))
            ledger.cut(offset)
            crew.broker.manager.truncate_to(tp, offset)
        crew.pause(0.15)

    return turn


def deleter(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Delete topics and create them again, at once."""

    def turn() -> None:
        topic = rng.choice(sorted(crew.doomed))
        own = [tp for tp in crew.ledgers if tp.topic == topic]
        configs = crew.broker.topic(topic).configs
        for tp in own:
            crew.ledgers[tp].restart(is_being_deleted=True)
        crew.broker.delete_topic(topic)
        crew.broker.create_topic(topic, len(own), configs)
        for tp in own:
            crew.ledgers[tp].restart(is_being_deleted=False)
        crew.pause(rng.choice((0.05, 0.5, 2)))

    return turn


def record_deleter(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Delete the oldest records of partitions whose policy allows it."""

    def turn() -> None:
        tp = rng.choice(list(crew.ledgers))
        with suppress(*GONE, OffsetOutOfRangeError, PolicyViolationError):
            log = crew.broker.manager.log(tp)
            start, end = log.log_start_offset, log.high_watermark
            crew.broker.manager.delete_records(tp, start + int((end - start) * rng.random()))
        crew.pause(0.1)

    return turn


def altering(topics: list[str], *, policies: tuple[str, ...]) -> Client:
    """Return a client that alters topic configurations."""

    def client(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
        choices: dict[str, tuple[object, ...]] = {
            "cleanup.policy": policies,
            "min.cleanable.dirty.ratio": (0, 0.01, 0.5),
            "min.compaction.lag.ms": (0, 0, 300),
            "max.compaction.lag.ms": (2**63 - 1, 500),
            "delete.retention.ms": (0, 100, 10_000),
            "segment.bytes": (8_000, 30_000),
            "file.delete.delay.ms": (0, 100),
        }

        def turn() -> None:
            keys = rng.sample(sorted(choices), 2)
            configs = {key: rng.choice(choices[key]) for key in keys}
            with suppress(UnknownTopicOrPartitionError):
                crew.broker.alter_configs(rng.choice(topics), configs)
            crew.pause(0.1)

        return turn

    return client


def reconfigurer(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Change the pool while it works."""
    choices: dict[str, tuple[object, ...]] = {
        "log.cleaner.threads": (3, 4, 5),
        "log.cleaner.backoff.ms": (1, 10, 50),
        "log.cleaner.io.max.bytes.per.second": (None, 2_000_000),
        "log.cleaner.io.buffer.load.factor": (None, 0.00002),
        "log.cleaner.io.buffer.size": (2_000, 65_536),
    }

    def turn() -> None:
        crew.broker.alter_broker_configs({key: rng.choice(choices[key]) for key in choices})
        crew.pause(rng.choice((0.1, 1, 3)))

    return turn


def keeper(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Keep cleaners from a partition for a while."""

    def turn() -> None:
        tp = rng.choice(list(crew.ledgers))
        crew.broker.cleaner.pause(tp)
        crew.pause(0.05)
        crew.broker.cleaner.resume(tp)
        crew.pause(0.2)

    return turn


def commander(crew: Crew, name: str, rng: random.Random) -> Callable[[], None]:
    """Clean and retain by command, and request reports."""

    def turn() -> None:
        topic = rng.choice(list(crew.ledgers)).topic
        with suppress(*GONE):
            if rng.random() < 0.3:
                crew.broker.clean(topic, force=True, threads=rng.choice((None, 2)))
            elif rng.random() < 0.3:
                crew.broker.retain(topic)
            else:
                crew.broker.explain(topic)
        metrics = crew.broker.metrics()
        assert metrics.dead_thread_count == 0
        assert crew.broker.cleaner.uncleanable() == ()
        assert all(directory.is_online for directory in crew.broker.manager.directories)
        crew.pause(0.05)

    return turn
