"""Parts of `make soak` that have no profile of their own: `python -m tests.soak.endless PART`.

Each part repeats a story with one seed after another until its time is over, and prints its counts
as a dictionary on the last line. A failure names the seed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import hypothesis
import kafka
from hypothesis.stateful import run_state_machine_as_test

from logstore import Broker, LogStoreError
from logstore.broker.warmup import warm_up
from tests.property import cluster_simulation, coordinator_simulation
from tests.property.log_machine import LogMachine
from tests.property.test_log_model import LONG_HISTORIES

ROOT = Path(__file__).resolve().parents[2]


# --- virtual time -------------------------------------------------------------------------------


def clusters(seed: int) -> Counter[str]:
    """Run a random cluster in virtual time: kills, power loss, cut links, skewed clocks, moves."""
    return cluster_simulation.run_and_shrink(seed).tally + Counter(clusters=1)


def coordinators(seed: int) -> Counter[str]:
    """Run a random cluster with groups and transactions in virtual time."""
    tally = cluster_simulation.run_and_shrink(seed, coordinator_simulation.Simulation).tally
    return tally + Counter(clusters=1)


def power(seed: int) -> Counter[str]:
    """Run random histories of a log that loses power, compared with a list of records.

    `LOGSTORE_MACHINE_SEED` of tests/property/test_log_model.py shrinks a failed one.
    """
    LogMachine.tally.clear()
    seeded = hypothesis.seed(seed)(type("LogMachine", (LogMachine,), {}))
    once = hypothesis.settings(LONG_HISTORIES, phases=[hypothesis.Phase.generate])
    run_state_machine_as_test(seeded, settings=once)
    return Counter(LogMachine.tally)


# --- killed servers -----------------------------------------------------------------------------

KILLS_A_DIRECTORY = 5
SERVER_SECONDS = 60


class Server:
    """`logstore serve` on a data directory."""

    def __init__(self, folder: Path, brokers: int) -> None:
        self._errors = (folder.parent / "serve.txt").open("a")
        command = [sys.executable, "-m", "logstore", "serve", "--data-dir", str(folder)]
        command += ["--listen", "127.0.0.1:0", "--topic", "soak:3"]
        if brokers > 1:
            command += ["--brokers", str(brokers)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().strip()
        assert self.bootstrap, "the server did not start"

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
        self._errors.close()


class Writers:
    """Three clients that write until the server is killed: idempotent, transactional, in Python.

    Attributes
    ----------
    stored : set of bytes
        Values whose write, or whose transaction, was acknowledged.
    aborted : set of bytes
        Values of transactions whose abort was acknowledged.
    """

    def __init__(self, bootstrap: str, life: int) -> None:
        self._bootstrap, self._life = bootstrap, life
        self._is_over = threading.Event()
        self.stored: set[bytes] = set()
        self.aborted: set[bytes] = set()
        parts = (self._idempotent, self._transactional, self._in_python)
        self._threads = [threading.Thread(target=self._write, args=(part,)) for part in parts]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until every client has done its work at least once."""
        limit = time.monotonic() + SERVER_SECONDS
        while time.monotonic() < limit:
            done = {value.split(b"-")[1] for value in self.stored.copy()}
            if self.aborted and len(done) == len(self._threads):
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop all clients; requests without a response remain open questions."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, part: Callable[[Callable[[], bytes]], None]) -> None:
        numbers = iter(range(1 << 30))
        try:
            part(lambda: f"{self._life}-{part.__name__}-{next(numbers)}".encode())
        except (confluent_kafka.KafkaException, kafka.errors.KafkaError, AssertionError):
            if not self._is_over.is_set():
                self._is_over.wait(SERVER_SECONDS)  # the server is about to be killed

    def _settings(self, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self._bootstrap,
            "message.timeout.ms": 5000,
            "log_level": 0,
            "error_cb": lambda _: None,
            **more,
        }

    def _idempotent(self, value: Callable[[], bytes]) -> None:
        producer = confluent_kafka.Producer(self._settings(**{"enable.idempotence": True}))

        def done(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                self.stored.add(message.value())

        while not self._is_over.is_set():
            for _ in range(20):
                producer.produce("soak", value(), key=os.urandom(1), on_delivery=done)
            producer.poll(0.01)
        producer.flush(0.1)

    def _transactional(self, value: Callable[[], bytes]) -> None:
        settings = {"transactional.id": "soak", "transaction.timeout.ms": 5000}
        producer = confluent_kafka.Producer(self._settings(**settings))
        producer.init_transactions(10)
        for number in itertools.count():
            if self._is_over.is_set():
                return
            producer.begin_transaction()
            values = {value() for _ in range(5)}
            for each in values:
                producer.produce("soak", each, key=each[-1:])
            if number % 3 == 0:
                # An abort drops the records that were not sent yet.
                assert producer.flush(5) == 0, "the server was killed"
                producer.abort_transaction(5)
                self.aborted |= values
            else:
                producer.commit_transaction(5)
                self.stored |= values

    def _in_python(self, value: Callable[[], bytes]) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._bootstrap.split(","), acks="all")
        try:
            while not self._is_over.is_set():
                sent = [value() for _ in range(5)]
                futures = [producer.send("soak", each) for each in sent]
                for each, future in zip(sent, futures, strict=True):
                    future.get(timeout=5)
                    self.stored.add(each)
        finally:
            producer.close(timeout=0)


def read_all(bootstrap: str) -> Counter[bytes]:
    """Return how often a `read_committed` consumer reads each value."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verify",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
            "error_cb": lambda _: None,
        }
    )
    found: Counter[bytes] = Counter()
    try:
        for number in range(3):
            partition = confluent_kafka.TopicPartition("soak", number)
            _, end = consumer.get_watermark_offsets(partition, timeout=SERVER_SECONDS)
            consumer.assign([confluent_kafka.TopicPartition("soak", number, 0)])
            limit = time.monotonic() + SERVER_SECONDS
            while consumer.position([partition])[0].offset < end and time.monotonic() < limit:
                for message in consumer.consume(500, timeout=0.5):
                    assert message.error() is None, message.error()
                    found[message.value()] += 1
                limit = limit if time.monotonic() < limit else 0
            position = consumer.position([partition])[0].offset
            assert position >= end, f"partition {number}: read to {position} of {end}"
    finally:
        consumer.close()
    return found


def served(seed: int, brokers: int = 1) -> Counter[str]:
    """Kill `logstore serve` under three clients, and compare the records after a restart."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name) / "data"
        stored: set[bytes] = set()
        aborted: set[bytes] = set()
        for life in range(KILLS_A_DIRECTORY):
            server = Server(folder, brokers)
            writers = Writers(server.bootstrap, life)
            writers.wait()
            time.sleep(2 * rng.random())
            server.kill()
            writers.stop()
            stored |= writers.stored
            aborted |= writers.aborted
            tally["kills"] += 1
        server = Server(folder, brokers)
        try:
            # A transaction that the last kill interrupted is aborted first.
            settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "soak"}
            confluent_kafka.Producer(settings).init_transactions(SERVER_SECONDS)
            found = read_all(server.bootstrap)
        finally:
            server.kill()
        lost = stored - set(found)
        twice = {value for value, count in found.items() if count > 1 and value in stored}
        assert not lost, f"{len(lost)} of {len(stored)} acknowledged values are lost: {min(lost)!r}"
        assert not twice, f"{len(twice)} values were stored twice: {min(twice)!r}"
        assert not aborted & set(found), "values of aborted transactions are committed"
        tally["acknowledged"] += len(stored)
        tally["read"] += found.total()
        tally["aborted"] += len(aborted)
    return tally


def cluster_served(seed: int) -> Counter[str]:
    """Kill a cluster of three brokers, all at once."""
    return served(seed, brokers=3)


# --- memory and descriptors ---------------------------------------------------------------------

RECORDS = 2000
ROUNDS = 8
"""The least number of rounds, whatever the minutes."""

GROWTH_MIB = 8
"""Growth of memory after the first quarter that counts as a leak."""

GROWTH_OBJECTS = 100
"""The same of Python objects, which repeat closely."""


class Flat:
    """A broker on disk that is filled, read, cleaned and emptied again and again."""

    def __init__(self) -> None:
        warm_up()  # otherwise compiled code counts as growth
        self._folder = Path(tempfile.mkdtemp(prefix="soak-"))
        self._samples: list[tuple[int, int, int]] = []

    def __call__(self, seed: int) -> Counter[str]:
        """Open a broker, work, close it, and sample memory, descriptors and objects."""
        rng = random.Random(seed)
        tally: Counter[str] = Counter(brokers=1)
        with Broker(self._folder, background=True) as broker:
            if not broker.topics():
                broker.create_topic("soak", configs={"cleanup.policy": "compact"})
            for _ in range(3):
                pairs = [(b"%d" % rng.randrange(100), bytes(100)) for _ in range(RECORDS)]
                broker.append_many("soak", pairs)
                tally["records"] += RECORDS
                tally["read"] += sum(1 for _ in broker.read("soak"))
                with_retry(lambda: broker.clean("soak", force=True, roll=True))
                tally["cleaned"] += 1
            with broker.listen() as listener:
                client = confluent_kafka.Producer(
                    {"bootstrap.servers": listener.bootstrap, "log_level": 0}
                )
                client.produce("soak", b"x", key=b"1")
                client.flush(10)
                del client
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = len(list(Path("/proc/self/fd").iterdir()))
        self._samples.append((pages * resource.getpagesize(), files, len(gc.get_objects())))
        return tally

    def close(self) -> Counter[str]:
        """Compare the last quarter with the second."""
        shutil.rmtree(self._folder)
        quarter = max(1, len(self._samples) // 4)
        start, end = self._samples[quarter : 2 * quarter], self._samples[-quarter:]
        before, after = (list(map(min, zip(*each, strict=True))) for each in (start, end))
        memory, files, objects = zip(before, after, strict=True)
        mib = [size >> 20 for size in memory]
        assert mib[1] - mib[0] <= GROWTH_MIB, f"memory grew: {mib} MiB"
        assert files[1] <= files[0], f"descriptors grew: {files}"
        assert objects[1] - objects[0] <= GROWTH_OBJECTS, f"objects grew: {objects}"
        return Counter({"MiB at start": mib[0], "MiB at end": mib[1], "files": files[1]})


def with_retry(call: Callable[[], object]) -> None:
    """Call again if a background cleaner has the partition."""
    for _ in range(100):
        try:
            call()
        except LogStoreError:
            time.sleep(0.05)
        else:
            return
    call()


# --- the command --------------------------------------------------------------------------------

PARTS: dict[str, Callable[[int], Counter[str]]] = {
    "clusters": clusters,
    "coordinators": coordinators,
    "power": power,
    "served": served,
    "cluster-served": cluster_served,
}


def main() -> None:
    """Repeat a part for some minutes, and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=(*PARTS, "flat"))
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    flat = Flat() if options.part == "flat" else SimpleNamespace(close=Counter)
    story = PARTS.get(options.part, flat)
    tally: Counter[str] = Counter()
    end = time.monotonic() + 60 * options.minutes
    seed = options.seed
    least = ROUNDS if options.part == "flat" else 1
    while time.monotonic() < end or seed < options.seed + least:
        try:
            tally += story(seed)
        except BaseException as error:
            again = f"python -m tests.soak.endless {options.part} --minutes 0 --seed {seed}"
            error.add_note(f"{again}; {dict(tally)}")
            raise
        seed += 1
    tally += flat.close()
    print(dict(sorted(tally.items())))


if __name__ == "__main__":
    main()
