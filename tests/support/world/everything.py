"""A data directory with a bit of everything, a copy before cleaning, and a damaged one."""

from __future__ import annotations

import shutil
from pathlib import Path

from logstore import Broker, VirtualClock

NOW_MS = 1_704_801_600_000
NOW = "2024-01-09T12:00:00Z"


def build(home: Path) -> None:
    """Write `data`, its copy `before` the cleaning pass, and `broken` with damage."""
    clock = VirtualClock()
    one_partition = {"transaction.state.log.num.partitions": "1"}
    with Broker(home / "data", clock=clock, seed=1, broker_config=one_partition) as broker:
        compact = {
            "cleanup.policy": "compact",
            "segment.bytes": "4000",
            "delete.retention.ms": "1d",
        }
        broker.create_topic("users", 3, compact)
        for number in range(40):
            clock.advance(minutes=7)
            value = b"v%03d" % number * (number % 9) if number % 5 else None
            headers = [("trace", b"%d" % number)] if number % 8 == 0 else ()
            broker.append(
                "users", key=b"k%d" % (number % 7), value=value, headers=headers, partition=2
            )
        broker.roll("users", 2)
        broker.clean("users", force=True)
        clock.advance(days=2)
        codec = {"compression_type": "gzip", "batch_size": 4000, "linger_ms": 1000}
        with broker.producer(**codec) as producer:
            for number in range(30):
                key = b"k%d" % (number % 11) if number % 4 else b"\xff\x00%d" % number
                producer.send("users", b'{"n": %d}' % number, key, partition=2)
        with broker.producer(transactional_id="t") as producer:
            producer.init_transactions()
            for ends in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                producer.send("users", b"in a transaction", b"k1", partition=2)
                ends()
                clock.advance(seconds=3)
        broker.roll("users", 2)
        broker.append("users", key=b"k3", value=None, partition=2)
        broker.append("users", value=b"last", key=b"k0", partition=2)
        deleting = {"retention.ms": "3d", "segment.bytes": "1000", "cleanup.policy": "delete"}
        broker.create_topic("events", 2, deleting)
        for number in range(9):
            clock.advance(hours=11)
            broker.append("events", value=b"long" * 99 + b"%d" % number, partition=1)
        broker.delete_records({("events", 1): 3})
        clock.advance(hours=2)
    shutil.copytree(home / "data", home / "before")
    with Broker(home / "data", clock=clock) as broker:
        broker.clean("users", force=True)
    shutil.copytree(home / "before", home / "broken")
    first = min((home / "broken" / "users-2").glob("*.log"))
    damaged = bytearray(first.read_bytes())
    damaged[100] ^= 1
    first.write_bytes(damaged)
    index = sorted((home / "broken" / "users-2").glob("*.timeindex"))[1]
    index.write_bytes(b"\1" * 12)
    events = home / "broken" / "events-1"
    for kind, tail in (("log", b"\1" * 40), ("timeindex", bytes(24)), ("index", bytes(16))):
        with sorted(events.glob(f"*.{kind}"))[-1].open("ab") as file:
            file.write(tail)
    with min(events.glob("*.timeindex")).open("ab") as file:
        file.write(bytes(12) + b"\2" * 12)
    (events / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    (events / "00000000000000000004.snapshot").write_bytes(b"\0" * 7)
    (home / "broken" / "cleaner-offset-checkpoint").write_text("0\n1\nusers 2 nine\n")
