"""Two data directories: random histories of topics before and after arbitrary cleanings.

Topics are filled over virtual days: late timestamps, versions, tombstones, aborted and open
transactions, some cleaned in between so that there are holes, horizons and a checkpoint. Then the
directory is copied. From then on, without appends, the engine cleans, forced or not, in one pass or
many, while days pass, segments roll, and retention and delete-records delete from the front.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from logstore import Broker, TopicPartition, VirtualClock
from logstore.record.varint import encode_varint

HEADER = "v"
DAY_MS = 86_400_000

BY_STRATEGY = {
    "offset": {},
    "timestamp": {"compaction.strategy": "timestamp"},
    "header": {"compaction.strategy": "header", "compaction.strategy.header": HEADER},
    "varlong": {
        "compaction.strategy": "header",
        "compaction.strategy.header": HEADER,
        "logstore.compaction.strategy.header.encoding": "varlong",
    },
}
"""A topic's configuration for each strategy."""


@dataclass(frozen=True)
class Cleanings:
    """The directories, the times of the first and the last cleaning pass, and the actions taken."""

    before: Path
    after: Path
    since_ms: int
    now_ms: int
    told: dict[str, list[str]]


def random_cleanings(
    root: Path,
    seed: int,
    strategies: dict[str, int],
    *,
    records: int = 120,
    map_keys: int | None = None,
    live: bool = False,
    forced: bool = True,
    configs: dict[str, str] | None = None,
) -> Cleanings:
    """Make the directories.

    Parameters
    ----------
    strategies : dict
        How many topics of each of `BY_STRATEGY`.
    map_keys : int, optional
        Approximate capacity of the cleaner's map, in keys.
    live : bool
        Copy the directories while they are open: they were not closed cleanly.
    forced : bool
        Whether some cleanings heed no lag.
    """
    rng = random.Random(seed)
    data, before = root / "data", root / "before"
    clock = VirtualClock()
    broker_config = {"log.cleaner.delete.retention.ms": str(2 * DAY_MS)}
    if map_keys is not None:
        share = map_keys * 24 / (1 << 20)
        broker_config |= {
            "log.cleaner.dedupe.buffer.size": str((1 << 20) + 24),
            "log.cleaner.io.buffer.load.factor": str(share),
        }
    topics = [f"{name}-{n}" for name, count in strategies.items() for n in range(count)]
    told: dict[str, list[str]] = {topic: [] for topic in topics}
    broker = Broker(data, clock=clock, broker_config=broker_config, seed=seed)
    for topic in topics:
        policy = rng.choice(("compact", "compact", "compact,delete"))
        own = {"cleanup.policy": policy, "delete.retention.ms": str(2 * DAY_MS)}
        if policy == "compact,delete":
            own["retention.ms"] = str(rng.randrange(1, 6) * DAY_MS)
        broker.create_topic(
            topic, configs={**own, **BY_STRATEGY[topic.split("-")[0]], **(configs or {})}
        )
    for _ in range(rng.randrange(2, 5)):
        for topic in topics:
            fill(broker, topic, rng, rng.randrange(records // 3))
            if rng.random() < 0.7:
                broker.roll(topic)
            if rng.random() < 0.4:
                broker.clean(topic, force=forced)
        clock.advance(days=rng.random() * 2)
    if not live:
        broker.close()
    shutil.copytree(data, before)
    if not live:
        broker = Broker(data, clock=clock, broker_config=broker_config, seed=seed)
    since_ms = clock.now_ms()
    for at in range(rng.randrange(1, 4)):
        if at:
            clock.advance(days=rng.random() * 3)
        for topic in topics:
            told[topic] += _work_on(broker, topic, rng, forced=forced)
    now_ms = clock.now_ms()
    after = data
    if live:  # closing ends transactions, which is an append
        after = root / "after"
        shutil.copytree(data, after)
    broker.close()
    return Cleanings(before, after, since_ms, now_ms, told)


def fill(broker: Broker, topic: str, rng: random.Random, count: int, partition: int = 0) -> None:
    """Append records, partly in transactions that are committed, aborted or left open."""
    with_transactions = rng.random() < 0.4
    while count > 0:
        size = rng.randrange(1, 6)
        count -= size
        records = [_record(broker, rng) for _ in range(size)]
        if not with_transactions or rng.random() < 0.5:
            broker.append_many(topic, records, partition=partition)
            continue
        producer = broker.producer(transactional_id=f"{topic}-{rng.randrange(3)}")
        producer.init_transactions()
        producer.begin_transaction()
        for key, value, timestamp, headers in records:
            producer.send(
                topic,
                value=value,
                key=key,
                partition=partition,
                timestamp_ms=timestamp,
                headers=[each for each in headers if each[1] is not None],
            )
        producer.flush()
        if rng.random() < 0.5:
            producer.abort_transaction()
        elif rng.random() < 0.97:
            producer.commit_transaction()


def _record(broker: Broker, rng: random.Random) -> tuple:
    key = b"k%d" % min(rng.randrange(30), rng.randrange(30))
    value = None if rng.random() < 0.3 else b"%x" % rng.getrandbits(rng.randrange(1, 400))
    timestamp = broker.clock.now_ms() - rng.choice((0, 0, rng.randrange(DAY_MS)))
    return key, value, timestamp, _headers(rng)


def _headers(rng: random.Random) -> list[tuple[str, bytes | None]]:
    version = rng.randrange(-20, 60)
    long, varlong = version.to_bytes(8, "big", signed=True), encode_varint(version)
    return rng.choice(
        (
            [],
            [(HEADER, None)],
            [(HEADER, long)],
            [(HEADER, varlong)],
            [(HEADER, varlong + b"\0")],
            [(HEADER, long), ("other", b"x")],
            [(HEADER, long), (HEADER, varlong)],
            [(HEADER, varlong), (HEADER, long)],
        )
    )


def _work_on(broker: Broker, topic: str, rng: random.Random, *, forced: bool) -> list[str]:
    """Take a few actions on a topic that append nothing; return their names."""
    log = broker.log(topic)
    told = []
    for _ in range(rng.randrange(4)):
        what = rng.choice(("clean", "clean", "force", "force", "roll", "delete", "retain"))
        if what == "clean" or (what == "force" and not forced):
            broker.clean(topic)
        elif what == "force":
            broker.clean(topic, force=True, roll=rng.random() < 0.5)
        elif what == "roll":
            broker.roll(topic)
        elif what == "retain":
            broker.retain(topic)
        elif rng.random() < 0.3 and log.high_watermark > log.log_start_offset:
            offset = rng.randrange(log.log_start_offset, log.high_watermark)
            result = broker.delete_records({TopicPartition(topic, 0): offset})
            what += f" {result}"
        told.append(what)
    return told
