"""Losses: offsets, records, bytes and times that an operation removes, and their sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logstore import Broker, VirtualClock
from logstore.analysis import losses
from logstore.analysis.losses import Loss, LostRecords, lost_between
from logstore.record.batch import build_batch
from logstore.record.header import BatchHeader
from logstore.record.records import Record
from tests.support.world.builders import batch, commit, data_batch, log_name, memory_world

BATCHES = (
    batch(0, 2, timestamp=(30, 10, 20)),
    data_batch(3, 4, 7, timestamp=50),
    commit(5, 7, timestamp=99),
    batch(6, 8, timestamp=40),
)
S0, S1, _, S3 = map(len, BATCHES)


def log_of(*segments: list[bytes]):
    """Return a log of these segments."""
    world = memory_world()
    for batches in segments:
        first = BatchHeader.unpack_from(batches[0]).base_offset
        world.write(log_name(first), b"".join(batches))
    return world.log(clean=False)


def part(first: int, last: int, records: int, size: int, oldest, newest, counted=True) -> Loss:
    return Loss((LostRecords("t", 0, first, last, records, size, oldest, newest, counted),))


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    (
        (0, 9, part(0, 8, 8, S0 + S1 + S3, 30, 50)),
        (-5, 99, part(0, 8, 8, S0 + S1 + S3, 30, 50)),
        (0, 3, part(0, 2, 3, S0, 30, 30)),
        (1, 2, part(1, 1, 1, S0, 30, 30)),
        (2, 4, part(2, 3, 2, S0 + S1, 30, 50)),
        (3, 5, part(3, 4, 2, S1, 50, 50)),
        (4, 8, part(4, 7, 3, S1 + S3, 40, 50)),
        (5, 6, Loss()),
        (5, 7, part(6, 6, 1, S3, 40, 40)),
        (3, 3, Loss()),
        (4, 3, Loss()),
        (9, 99, Loss()),
    ),
)
def test_the_records_of_a_range(start: int, end: int, wanted: Loss) -> None:
    log = log_of(list(BATCHES))
    assert lost_between(log, start, end) == wanted
    two = log_of(list(BATCHES[:3]), [BATCHES[3]])
    assert lost_between(two, start, end) == wanted


def test_a_delete_horizon_is_not_a_time_of_records() -> None:
    cleaned = build_batch(
        [Record(0, 70, b"k", None)], partition_leader_epoch=0, delete_horizon_ms=500
    )
    log = log_of([cleaned, batch(1, timestamp=-1)])
    assert lost_between(log, 0, 1) == part(0, 0, 1, len(cleaned), 70, 70)
    assert lost_between(log, 1, 2) == part(1, 1, 1, len(batch(1, timestamp=-1)), None, None)


def test_a_large_log_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(list(BATCHES[:3]), [BATCHES[3]])
    sizes = [segment.size_bytes for segment in log.segments]
    monkeypatch.setattr(losses, "COUNTED_BYTES_MAX", sum(sizes))
    assert lost_between(log, 1, 8) == part(1, 7, 6, S0 + S1 + S3, 30, 50)
    monkeypatch.setattr(losses, "COUNTED_BYTES_MAX", sum(sizes) - 1)
    assert lost_between(log, 1, 8) == part(1, 7, 7, sum(sizes), 30, 99, False)
    assert lost_between(log, 6, 8) == part(6, 7, 2, S3, 40, 40)
    bare = log_of([batch(0, timestamp=-1)])
    monkeypatch.setattr(losses, "COUNTED_BYTES_MAX", 0)
    size = bare.size_bytes
    assert lost_between(bare, 0, 1) == part(0, 0, 1, size, None, None, False)


def test_damaged_data_is_measured() -> None:
    log = log_of(list(BATCHES[:2]))
    log.runtime.fs.open(log.active_segment.log_path, create=True).write_at([b"\xff"], S0 + 16)
    assert lost_between(log, 0, 5) == part(0, 4, 5, S0 + S1, 30, 50, False)


MANY = [LostRecords(name, 1, 0, 4, 5, 1000, 7, 9, True) for name in "abcde"]
TAIL = " that can still be read would be permanently removed: "


@pytest.mark.parametrize(
    ("parts", "unnamed", "text"),
    (
        ([], "", "nothing is lost"),
        (MANY[:1], "", f"5 records in 1,000 bytes{TAIL}offsets 0 to 4 of a-1"),
        (
            [MANY[0]._replace(records=1, is_counted=False, size_bytes=9)],
            "",
            f"up to 1 record in 9 bytes{TAIL}offsets 0 to 4 of a-1",
        ),
        (
            MANY[:3],
            "",
            f"15 records in 3,000 bytes{TAIL}offsets 0 to 4 of a-1, offsets 0 to 4 of b-1,"
            " offsets 0 to 4 of c-1",
        ),
        (
            MANY[:4],
            "",
            f"20 records in 4,000 bytes{TAIL}offsets 0 to 4 of a-1, offsets 0 to 4 of b-1,"
            " offsets 0 to 4 of c-1 and 1 more partition",
        ),
        (
            MANY,
            "",
            f"25 records in 5,000 bytes{TAIL}offsets 0 to 4 of a-1, offsets 0 to 4 of b-1,"
            " offsets 0 to 4 of c-1 and 2 more partitions",
        ),
        (
            MANY[:3],
            "b",
            f"15 records in 3,000 bytes{TAIL}offsets 0 to 4 of a-1, offsets 0 to 4 of c-1 and 1"
            " more partition",
        ),
        (MANY[:2], "ab", f"10 records in 2,000 bytes{TAIL}of 2 partitions"),
        (MANY[:1], "a", f"5 records in 1,000 bytes{TAIL}of 1 partition"),
        (
            [LostRecords("x", 2, -1, -1, 0, 7, None, None, False)],
            "",
            f"records in 7 bytes{TAIL}all of x-2, which cannot be opened",
        ),
        (
            [LostRecords("x", 2, -1, -1, 0, 7, None, None, False), MANY[0]],
            "",
            f"at least 5 records in 1,007 bytes{TAIL}all of x-2, which cannot be opened, offsets 0"
            " to 4 of a-1",
        ),
    ),
)
def test_the_sentence(parts: list[LostRecords], unnamed: str, text: str) -> None:
    loss = Loss(tuple(parts)).visible_to(lambda topic: topic not in unnamed)
    assert loss.text == text
    assert bool(loss) is bool(parts)


def test_the_json_lists_a_hundred_partitions() -> None:
    parts = [LostRecords("t", at, 0, 4, 5, 10, 100 - at, 200 + at, at != 7) for at in range(102)]
    hidden = LostRecords("u", 0, 0, 4, 5, 10, None, None, True)
    loss = Loss.of_all([Loss(tuple(parts)), Loss(), Loss((hidden,))])
    shown = loss.visible_to(lambda topic: topic == "t").to_json()
    assert shown.pop("text").startswith("up to 515 records in 1,030 bytes")
    assert shown == {
        "records": 515,
        "is_counted": False,
        "bytes": 1030,
        "from_ms": -1,
        "to_ms": 301,
        "partitions": [each._asdict() for each in parts[:100]],
        "left_out": 3,
    }
    empty = Loss((hidden,)).to_json()
    assert (empty["from_ms"], empty["to_ms"], empty["left_out"]) == (None, None, 0)


def test_the_losses_of_operations() -> None:
    with Broker(clock=VirtualClock(1000)) as broker:
        broker.create_topic("t", configs={"retention.ms": "100"})
        for _ in range(3):
            broker.append("t", key=b"k", value=b"v")
            broker.roll("t")
        log = broker.log("t")
        broker.delete_records({log.topic_partition: 1})
        size = log.segments.floor(1).size_bytes

        def lost(first: int, last: int) -> Loss:
            count = last - first + 1
            return part(first, last, count, count * size, 1000, 1000)

        assert losses.lost_by_delete_records(log, -1) == lost(1, 2)
        assert losses.lost_by_delete_records(log, 2) == lost(1, 1)
        assert losses.lost_by_delete_records(log, 99) == lost(1, 2)
        assert losses.lost_by_delete_records(log, 1) == Loss()
        assert losses.lost_with([log, log]) == Loss.of_all([lost(1, 2)] * 2)
        now = log.retention_decision()
        broker.clock.advance(ms=101)
        then = log.retention_decision()
        assert losses.lost_by_retention(log, then) == lost(1, 2)
        assert losses.lost_by_retention(log, then, beyond=now) == lost(1, 2)
        shorter = replace(then, segments=then.segments[:1])
        assert losses.lost_by_retention(log, then, beyond=shorter) == lost(2, 2)
        assert losses.lost_by_retention(log, then, beyond=then) == Loss()
        assert losses.lost_by_retention(log, replace(then, segments=())) == Loss()


def test_a_log_that_cannot_be_opened_is_measured_by_its_files() -> None:
    with Broker(clock=VirtualClock(1000)) as broker:
        broker.create_topic("t", 2)
        broker.append("t", key=b"k", value=b"v", partition=1)
        size = broker.log("t", 1).size_bytes
        wanted = LostRecords("t", 1, -1, -1, 0, size, None, None, False)
        tp = broker.log("t", 1).topic_partition
        assert losses.lost_unread(broker.manager, tp) == Loss((wanted,))
        assert losses.lost_unread(broker.manager, tp._replace(partition=0)) == Loss()


def test_a_forced_cleaning_loses_what_the_lag_protects() -> None:
    with Broker(clock=VirtualClock(1000)) as broker:
        broker.create_topic(
            "t", configs={"cleanup.policy": "compact", "min.compaction.lag.ms": "5000"}
        )
        log = broker.log("t")
        for key in (b"a", b"a", b"b", b"b"):
            broker.append("t", key=key, value=b"v")
            broker.roll("t")
            broker.clock.advance(ms=1000)
        size = log.segments.floor(0).size_bytes

        def lost() -> Loss:
            return losses.lost_by_forced_cleaning(broker.cleaner, log, roll=False)

        assert lost() == part(0, 3, 2, 2 * size, 1000, 4000)
        broker.clock.advance(ms=3000)
        assert lost() == part(0, 3, 1, size, 1000, 4000)
        broker.clock.advance(ms=1000)
        assert lost() == Loss()
        broker.append("t", key=b"b", value=b"v")
        assert lost() == Loss()
        rolled = losses.lost_by_forced_cleaning(broker.cleaner, log, roll=True)
        assert rolled == part(0, 4, 1, size, 1000, 9000)
