"""The directory of a broker with everything that an operator meets, as a copy on another machine.

`users` is due and has a binary key; `sessions` has not rolled yet; `orders` is damaged, `payments`
lacks a segment, `audit` is cleaned; `clicks` is deleted by age, `both` is compacted too; a topic
without a stored configuration, and a hundred partitions of internal topics, nearly all empty.
"""

from __future__ import annotations

import json
from pathlib import Path

from logstore import Broker, VirtualClock

START_MS = 1_709_251_200_000
"""2024-03-01T00:00Z."""

DAYS = 12
NOW_MS = START_MS + DAYS * 86_400_000
BINARY_KEY = bytes([0, 255, 1])
NAMES = ("ann", "bob", "carl", "dora", "emil", "fay", "gus", "hal")
COMPACT = {"cleanup.policy": "compact", "segment.ms": "1d"}
CONFIGS = {
    "users": {**COMPACT, "max.compaction.lag.ms": "7d", "delete.retention.ms": "1d"},
    "sessions": {"cleanup.policy": "compact", "segment.ms": "30d"},
    "orders": COMPACT,
    "payments": COMPACT,
    "audit": COMPACT,
    "clicks": {"retention.ms": "3d", "segment.ms": "1d"},
    "both": {"cleanup.policy": "compact,delete", "retention.ms": "5d", "segment.ms": "1d"},
    "copied-from-another-cluster": COMPACT,
}


def build(path: Path) -> None:
    """Create the directory."""
    with Broker(path, clock=VirtualClock(START_MS), seed=1) as broker:
        for name in ("__consumer_offsets", "__transaction_state"):
            broker.create_topic(name, partitions=50, configs={"cleanup.policy": "compact"})
        for name, configs in CONFIGS.items():
            broker.create_topic(name, partitions=2 if name == "users" else 1, configs=configs)
        for day in range(DAYS):
            _append_day(broker, day)
            if day == 10:
                broker.clean("audit", force=True, roll=True)
            broker.clock.advance(days=1)
        with broker.consumer("users", group_id="search-index") as consumer:
            consumer.poll(timeout_ms=0)
            consumer.commit()
    _forget(path, "copied-from-another-cluster")
    _damage(sorted((path / "orders-0").glob("*.log"))[3])
    lost = sorted((path / "payments-0").glob("*.log"))[4].stem
    for file in (path / "payments-0").glob(f"{lost}.*"):
        file.unlink()


def _append_day(broker: Broker[VirtualClock], day: int) -> None:
    for topic in CONFIGS:
        for number in range(40):
            name = NAMES[(number * 7 + day) % len(NAMES)]
            value = json.dumps({"id": 9_007_199_254_740_993 + number, "name": name, "day": day})
            headers = [("trace", b"t-%d" % number)] if number % 10 == 0 else []
            if topic == "audit":
                name, value = f"{day}-{number}", f"{name} logged in"
            gone = topic == "users" and day == 6 and name == "bob"
            broker.append(
                topic,
                key=name.encode(),
                value=None if gone else value.encode(),
                headers=headers,
                partition=number % 2 if topic == "users" else 0,
            )
    broker.append("users", key=BINARY_KEY, value=b"\xfe" * 40, partition=0)


def _forget(path: Path, topic: str) -> None:
    """Remove the stored configuration of a topic."""
    file = path / "logstore-topics.json"
    stored = json.loads(file.read_text())
    topics = stored["topics"]
    stored["topics"] = (
        {name: each for name, each in topics.items() if name != topic}
        if isinstance(topics, dict)
        else [each for each in topics if each["name"] != topic]
    )
    file.write_text(json.dumps(stored))


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
