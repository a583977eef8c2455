"""The folders that the pages of docs/questions look at: copied from a broker, and the same damaged.

`kafka-logs` contains a month of a small shop: `users` is compacted, was cleaned once and has a
tombstone; `orders` is compacted and never was; `clicks` is deleted after a week. As in a copy, no
topic's configuration is there. In `damaged-logs` a byte in the middle of `users-0` is wrong, and
the copy of `orders-0` broke off; neither a checkpoint nor the mark of a clean stop was copied.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from logstore import Broker, VirtualClock

START_MS = 1_706_745_600_000
"""2024-02-01T00:00Z. The story ends four weeks later, and the pages look at it on March 1."""

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
USERS = ("ann", "bob", "carl", "dora", "emil")


def make(folder: Path) -> None:
    """Make both folders."""
    logs = folder / "kafka-logs"
    clock = VirtualClock(START_MS)
    with Broker(logs, clock=clock, seed=1) as broker:
        compact = {"cleanup.policy": "compact", "segment.ms": str(WEEK_MS)}
        broker.create_topic("users", 1, compact)
        broker.create_topic("orders", 1, compact)
        broker.create_topic("clicks", 2, {"segment.ms": str(WEEK_MS)})
        for hour in range(28 * 24):
            _hour(broker, clock.now_ms(), hour)
            if hour == 15 * 24:
                broker.clean("users", force=True)
            clock.advance(hours=1)
    (logs / "logstore-topics.json").unlink()
    damaged = folder / "damaged-logs"
    shutil.copytree(logs, damaged)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (damaged / name).unlink()
    _spoil(sorted((damaged / "users-0").glob("*.log"))[-2])
    last = sorted((damaged / "orders-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-20])


def _hour(broker: Broker, now_ms: int, hour: int) -> None:
    if hour % 6 == 0:
        name = USERS[hour // 6 % len(USERS)]
        if name != "bob" or hour < 20 * 24:
            plan = ("free", "basic", "pro")[hour // 7 % 3]
            value = json.dumps({"name": name, "plan": plan}).encode()
            broker.append("users", key=name.encode(), value=value, timestamp=now_ms)
    if hour == 20 * 24 + 3:
        broker.append("users", key=b"bob", value=None, timestamp=now_ms)
    if hour % 4 == 1:
        number, total = hour // 8, 5 + hour * 7 % 90
        state = "open" if hour % 8 == 1 else "paid"
        value = json.dumps({"order": number, "state": state, "total": total}).encode()
        if state == "open" or number % 5:
            broker.append("orders", key=b"%d" % number, value=value, timestamp=now_ms)
    for click in range(4):
        key = b"crawler" if click else USERS[hour % 5].encode()
        value = json.dumps({"page": f"/{hour * 3 + click}"}).encode()
        broker.append("clicks", key=key, value=value, timestamp=now_ms, partition=click % 2)


def _spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
