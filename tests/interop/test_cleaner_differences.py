"""The closed list of the cleaner: what Kafka's does otherwise than this engine's, seen in Kafka.

Each test shows one entry of docs/COMPATIBILITY.md on both sides. If a test fails, that page is
wrong: Kafka or this engine does something else by now.
"""

import base64
import shutil

import pytest

from logstore.cleaner.config import CleanerConfig
from logstore.record.batch import build_batch
from logstore.record.control import ControlType, EndTxnMarker, build_end_txn_batch
from logstore.record.records import Record
from logstore.record.walk import walk_buffer
from tests.interop.stories import START_MS
from tests.support.interop import engine

pytestmark = pytest.mark.interop

TOPIC = "cleaned"
RETENTION_MS = 1000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "100000",
    "index.interval.bytes": "0",
    "delete.retention.ms": str(RETENTION_MS),
}
ROLL = {"op": "roll"}
PRODUCER = 5
OTHER = 6


def _lead(batch, origin="client"):
    return {
        "op": "lead",
        "origin": origin,
        "batches": base64.b64encode(batch).decode(),
        "epoch": 0,
    }


def _put(key, value):
    return _lead(build_batch([Record(0, START_MS, key, value)]))


def _send(key, value, sequence=0, producer_id=PRODUCER):
    """Append in a transaction."""
    return _lead(
        build_batch(
            [Record(0, START_MS, key, value)],
            producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            is_transactional=True,
        )
    )  # fmt: skip


def _end(kind, epoch=0):
    marker = EndTxnMarker(kind, 0)
    return _lead(build_end_txn_batch(PRODUCER, epoch, marker, START_MS).data, "coordinator")


def _clean(judge, scratch, operations, turns, slots=1000):
    """Fill a log, and clean copies of it; return the directories, Kafka's first."""
    folders = scratch / "kafka", scratch / "ours"
    kafka, ours = folders
    engine.write(ours, TOPIC, CONFIG, START_MS, operations)
    shutil.copytree(ours, kafka)
    judge.ask(
        "clean", kafka, TOPIC, config=CONFIG, now=START_MS, dedupe_bytes=24 * slots,
        load_factor=1.0, turns=turns,
    )  # fmt: skip
    cleaner = CleanerConfig(dedupe_buffer_bytes=24 * slots, load_factor=1.0)
    engine.clean_in_turns(ours, TOPIC, CONFIG, START_MS, cleaner, turns)
    return folders


def _batches(folder):
    for path in sorted((folder / f"{TOPIC}-0").glob("*.log")):
        yield from walk_buffer(path.read_bytes())


def _values(folder, key):
    return [
        (record.offset, record.value)
        for batch in _batches(folder)
        for record in batch.records()
        if record.key == key and not batch.header.is_control
    ]


def test_a_deleted_key_comes_back_in_kafka(judge, scratch):
    """The map is full after two keys, behind an abort and before a tombstone of its producer.

    The second pass begins there. Kafka takes the tombstone for a part of the aborted transaction
    and does not map it; the third pass drops it, and the value it deleted is still there.
    """
    operations = [
        _put(b"k", b"v"),
        _send(b"x", b"aborted"),
        _end(ControlType.ABORT),
        _put(b"a", b"1"),
        _send(b"k", None, sequence=1),
        _end(ControlType.COMMIT),
        ROLL,
    ]
    later = [_put(b"z", b"1"), ROLL, {"op": "advance", "ms": RETENTION_MS}]
    found = {}
    for passes, turns in enumerate(([[], []], [[], [], later]), 2):
        folders = _clean(judge, scratch / str(passes), operations, turns, slots=2)
        found[passes] = [_values(folder, b"k") for folder in folders]
    assert found == {2: [[(0, b"v"), (4, None)], [(4, None)]], 3: [[(0, b"v")], []]}


def test_kafka_4_drops_an_emptied_batch_at_the_end_of_a_round(judge, scratch):
    """It would keep it only at the high watermark; 3.9.2 and this engine keep every such header."""
    operations = [
        _put(b"k", b"v"),
        _send(b"x", b"aborted"),
        ROLL,
        _end(ControlType.ABORT, epoch=1),
        _send(b"y", b"open", producer_id=OTHER),
    ]
    headers = [
        [each.header for each in _batches(folder)]
        for folder in _clean(judge, scratch, operations, [[ROLL]])
    ]
    kept = [[each.base_offset for each in found if not each.record_count] for found in headers]
    assert kept == [[] if judge.kafka_version.startswith("4.") else [1], [1]]
