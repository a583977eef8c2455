"""A process that works on a data directory until it is killed, and reports acknowledgements.

`python -m tests.processes.worker` is a nursery: it imports everything and forks a child for each
line on its standard input. It is single-threaded, so that a fork is safe. A child writes a line
before each change (`will`) and after it (`did`); the nursery reports starts and ends. All share one
pipe, and each line is written atomically, so the lines read when the parent learns of a death are
exactly the acknowledged changes.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from logstore import Broker, TopicPartition
from logstore.clients.producer import Producer
from logstore.clients.results import AlterReplicaLogDirsResult, DeleteRecordsResult
from logstore.errors import KafkaStorageError, LogStoreError
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.runtime import DiskFileSystem
from logstore.storage.log import NewRecord
from tests.processes.failing import FailingFileSystem

SERIAL = "s"
"""Header with a number that is unique to each record of the run."""

TOPICS: dict[str, tuple[int, dict[str, object]]] = {
    "kept": (2, {"cleanup.policy": "compact"}),
    "events": (2, {"cleanup.policy": "delete", "retention.bytes": 60_000}),
    "mixed": (1, {"cleanup.policy": "compact,delete"}),
}
"""Partitions and policies of the topics that live as long as the directory."""

CONFIGS: dict[str, object] = {
    "segment.bytes": 8_000,
    "index.interval.bytes": 500,
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 50,
}

BROKER_CONFIGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "log.index.size.max.bytes": 8_000,
    "log.cleaner.threads": 2,
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
}

PARTITIONS = [TopicPartition(name, n) for name, (count, _) in TOPICS.items() for n in range(count)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SERIALS_A_LIFE = 1_000_000
DISK_FULL = 70
"""Exit code of a child whose disk failed; a child that finishes its steps exits with 0."""


@dataclass(frozen=True)
class Life:
    """The instructions for a child.

    Attributes
    ----------
    number : int
        Its records' numbers begin with it.
    directories : tuple of str
        Data directories.
    steps : int
        After so many (of each thread) it closes its broker and ends.
    background : bool
        Whether housekeeping and cleaners run.
    pause_ms : int
        Between steps.
    file_bytes_max : int
        Size limit of a file (`RLIMIT_FSIZE`); 0 is unlimited.
    failing : int
        The file operation that fails, counted from when the broker is open; 0 for none.
    only_appends : bool
        Whether all steps append, so that a full disk is met by an append.
    """

    number: int
    seed: int
    directories: tuple[str, ...]
    threads: int = 1
    steps: int = 1 << 30
    background: bool = False
    pause_ms: int = 0
    file_bytes_max: int = 0
    failing: int = 0
    only_appends: bool = False


class Sent(NamedTuple):
    """A record in flight: its number, its key, and whether it is a tombstone."""

    serial: int
    key: str
    is_tombstone: bool

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        return ((SERIAL, b"%d" % self.serial),)


class Worker:
    """The steps of one thread, each reported before and after.

    Parameters
    ----------
    report : callable
        Writes a line.
    serials : iterator of int
        Numbers for records, shared by all threads.
    """

    def __init__(
        self,
        broker: Broker,
        life: Life,
        name: str,
        report: Callable[..., None],
        serials: itertools.count[int],
    ) -> None:
        self._broker = broker
        self._life = life
        self._name = name
        self._report = report
        self._serials = serials
        self._rng = random.Random(f"{life.seed} {life.number} {name}")
        self._producer: Producer | None = None
        self._transactional: Producer | None = None
        self._volatile: str | None = None
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (30, self._append),
            (20, self._append_many),
            (10, self._append_batch),
            (15, self._produce),
            (12, self._transact),
        ]
        if life.only_appends:
            return
        self._steps += [
            (4, self._delete_records),
            (5, self._clean),
            (4, self._roll),
            (3, self._flush),
            (3, self._checkpoint),
            (2, self._retain),
            (1, self._change_topics),
        ]
        if len(life.directories) > 1 and life.threads == 1:
            self._steps.append((3, self._move))

    def run(self) -> None:
        weights = [weight for weight, _ in self._steps]
        for _ in range(self._life.steps):
            (_, step) = self._rng.choices(self._steps, weights)[0]
            step()
            if self._life.pause_ms:
                time.sleep(self._life.pause_ms / 1000)

    # -- records -------------------------------------------------------------------------

    def _records(self, count: int) -> list[Sent]:
        matches = []
        for _ in range(count):
            key = f"{self._name}.{self._rng.randrange(30)}"
            matches.append(Sent(next(self._serials), key, self._rng.random() < 0.15))
        return matches

    def _value(self, sent: Sent) -> bytes | None:
        filler = b"x" * self._rng.choice((0, 20, 20, 300))
        return None if sent.is_tombstone else b"%s=%d;" % (sent.key.encode(), sent.serial) + filler

    def _new_records(self, sent: Sequence[Sent]) -> list[NewRecord]:
        return [
            NewRecord(each.key.encode(), self._value(each), None, each.headers()) for each in sent
        ]

    def _some_partition(self) -> TopicPartition:
        return self._rng.choice(PARTITIONS)

    def _will_append(self, tp: TopicPartition, sent: Sequence[Sent]) -> None:
        self._report("will", "append", str(tp), [list(each) for each in sent])

    def _did_append(self, tp: TopicPartition, sent: Sequence[Sent], offsets: list[int]) -> None:
        self._report("did", "append", str(tp), [each.serial for each in sent], offsets)

    def _append(self) -> None:
        tp, sent = self._some_partition(), self._records(1)
        self._will_append(tp, sent)
        (record,) = self._new_records(sent)
        done = self._broker.append(
            tp.topic,
            key=record.key,
            value=record.value,
            partition=tp.partition,
            headers=record.headers,
        )
        self._did_append(tp, sent, [done.offset])

    def _append_many(self) -> None:
        tp, sent = self._some_partition(), self._records(self._rng.choice((2, 5, 20)))
        self._will_append(tp, sent)
        (done,) = self._broker.append_many(
            tp.topic,
            self._new_records(sent),
            partition=tp.partition,
            compression=self._rng.choice(CODECS),
            batch_records=len(sent),
        )
        self._did_append(tp, sent, list(range(done.first_offset, done.last_offset + 1)))

    def _append_batch(self) -> None:
        """Append a finished batch, as a client sends it."""
        tp, sent = self._some_partition(), self._records(self._rng.choice((1, 10)))
        now_ms = self._broker.clock.now_ms()
        batch = build_batch(
            [
                Record(number, now_ms, record.key, record.value, record.headers)
                for number, record in enumerate(self._new_records(sent))
            ],
            codec=Codec.from_name(self._rng.choice(CODECS)),
        )
        self._will_append(tp, sent)
        info = self._broker.log(*tp).writer.append_batches(batch)
        self._did_append(tp, sent, list(range(info.first_offset, info.last_offset + 1)))

    def _produce(self) -> None:
        if self._producer is None:
            self._producer = self._broker.producer(enable_idempotence=True, linger_ms=5)
        tp, sent = self._some_partition(), self._records(self._rng.choice((1, 8)))
        self._will_append(tp, sent)
        futures = [
            self._producer.send(
                tp.topic,
                record.value,
                key=record.key,
                headers=list(record.headers),
                partition=tp.partition,
            )
            for record in self._new_records(sent)
        ]
        self._producer.flush()
        self._did_append(tp, sent, [future.get(timeout=60).offset for future in futures])

    def _transact(self) -> None:
        if self._transactional is None:
            self._transactional = self._broker.producer(transactional_id=f"t-{self._name}")
            self._transactional.init_transactions()
        producer = self._transactional
        places = [self._some_partition() for _ in range(self._rng.choice((1, 3)))]
        sent = [(tp, record) for tp in places for record in self._records(2)]
        commits = self._rng.random() < 0.6
        report = [[str(tp), *record] for tp, record in sent]
        self._report("will", "transaction", self._name, report, commits)
        producer.begin_transaction()
        futures = []
        for tp, record in sent:
            (new,) = self._new_records([record])
            futures.append(
                producer.send(
                    tp.topic,
                    new.value,
                    key=new.key,
                    headers=list(new.headers),
                    partition=tp.partition,
                )
            )
        if commits:
            producer.commit_transaction()
            offsets = [future.get(timeout=60).offset for future in futures]
        else:
            producer.abort_transaction()
            offsets = []
        self._report("did", "transaction", self._name, [r.serial for _, r in sent], offsets)

    # -- deletion and housekeeping -------------------------------------------------------

    def _delete_records(self) -> None:
        tp = self._rng.choice([tp for tp in PARTITIONS if tp.topic != "kept"])
        log = self._broker.log(*tp)
        start = log.log_start_offset
        target = start + int((log.high_watermark - start) * self._rng.random())
        self._report("will", "start", str(tp), target)
        result = self._broker.delete_records({tp: target})[tp]
        raise_storage_error(result)
        if result.error is None:
            self._report("did", "start", str(tp), result.low_watermark)
        elif result.error != "OFFSET_OUT_OF_RANGE":  # another thread deleted more
            raise AssertionError(result)

    def _retain(self) -> None:
        """Apply retention; in the background its deletions are not reported."""
        for tp in PARTITIONS:
            if tp.topic != "kept":
                self._report("will", "start", str(tp), self._broker.log(*tp).log_end_offset)
        self._broker.retain()

    def _clean(self) -> None:
        topic = self._rng.choice(("kept", "mixed"))
        self._report("will", "clean", topic)
        self._broker.clean(topic, force=True, roll=self._rng.random() < 0.5)
        self._report("did", "clean", topic)

    def _roll(self) -> None:
        self._broker.roll(*self._some_partition())

    def _flush(self) -> None:
        self._broker.log(*self._some_partition()).flush()

    def _checkpoint(self) -> None:
        self._broker.manager.checkpoint_recovery_points()
        self._broker.manager.checkpoint_log_starts()

    def _move(self) -> None:
        tp = self._some_partition()
        target = self._rng.choice(self._life.directories)
        self._report("will", "move", str(tp), target)
        result = self._broker.alter_replica_log_dirs({tp: target})[tp]
        raise_storage_error(result)
        assert result.error is None, result
        self._report("did", "move", str(tp), target)

    def _change_topics(self) -> None:
        """Create a topic, or delete the one that was created; its name is never used again."""
        if self._volatile is None:
            name = self._volatile = f"v{next(self._serials)}"
            self._report("will", "create", name)
            self._broker.create_topic(name, 1, CONFIGS)
            self._broker.append(name, key=b"k", value=b"v")
            self._report("did", "create", name)
        else:
            name, self._volatile = self._volatile, None
            self._report("will", "delete", name)
            self._broker.delete_topic(name)
            self._report("did", "delete", name)


def raise_storage_error(result: DeleteRecordsResult | AlterReplicaLogDirsResult) -> None:
    """Let a disk failure end the life where it is raised."""
    if result.error == KafkaStorageError.kafka_error:
        raise KafkaStorageError(str(result))


# -- one life ------------------------------------------------------------------------------


def report(*items: Any) -> None:
    """Write one line, as a whole or not at all."""
    line = json.dumps([os.getpid(), *items], separators=(",", ":")).encode() + b"\n"
    assert len(line) <= 4096, "longer than an atomic write to a pipe"
    os.write(1, line)


def live(life: Life) -> int:
    """Live one life; return the exit code."""
    fs = FailingFileSystem() if life.failing else DiskFileSystem()
    broker = None
    try:
        broker = Broker(
            list(life.directories),
            broker_config=BROKER_CONFIGS,
            background=life.background,
            seed=life.seed,
            fs=fs,
        )
        make_topics(broker)
        if life.file_bytes_max:
            resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_bytes_max,) * 2)
        if isinstance(fs, FailingFileSystem):
            fs.fail_at(life.failing)
        report("open")
        run_threads(broker, life)
        broker.close()
    except (LogStoreError, OSError) as error:
        # Operations on another log or in a transaction raise another error.
        if not isinstance(error, KafkaStorageError | OSError) and (
            broker is None or broker.manager.directories[0].is_online
        ):
            raise
        report("disk", str(error)[:500])
        return DISK_FULL
    return 0


def make_topics(broker: Broker) -> None:
    there = {topic.name for topic in broker.topics()}
    for name, (partitions, configs) in TOPICS.items():
        if name not in there:
            broker.create_topic(name, partitions, CONFIGS | configs)


def run_threads(broker: Broker, life: Life) -> None:
    """Run the workers, the first in this thread; raise the first failure of any."""
    serials = itertools.count(life.number * SERIALS_A_LIFE)
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            Worker(broker, life, name, report, serials).run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(f"w{n}",)) for n in range(1, life.threads)]
    for thread in threads:
        thread.start()
    run("w0")
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# -- the nursery -----------------------------------------------------------------------------


def nursery() -> None:
    """Bring up one child after another. SIGUSR1 prints the stacks of a child's threads."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warm_up()
    for line in sys.stdin:
        given = json.loads(line)
        life = Life(**given | {"directories": tuple(given["directories"])})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = live(life)
            except BaseException:
                text = traceback.format_exc()[-3500:]
                with suppress(OSError):
                    report("failed", text)
            os._exit(code)
        report("born", child)
        _, status = os.waitpid(child, 0)
        report("ended", child, os.waitstatus_to_exitcode(status))


def warm_up() -> None:
    """Load all modules in the nursery that a child needs."""
    with Broker() as broker:
        broker.create_topic("t", 1, CONFIGS | {"cleanup.policy": "compact"})
        with broker.producer(transactional_id="t") as producer:
            producer.init_transactions()
        broker.append_many("t", [(b"%d" % n, b"v") for n in range(300)], compression="zstd")
        broker.clean("t", force=True, roll=True)


if __name__ == "__main__":
    nursery()
