"""The closed list: differences between Kafka and this engine, shown in Kafka itself.

Each test shows one entry of docs/COMPATIBILITY.md on both sides. If a test fails, that page is
wrong: the behavior of Kafka or of this engine has changed.
"""

import base64
import os

import pytest

from logstore.errors import CorruptRecordError
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.storage.producers.state import PRODUCER_ID_EXPIRATION_MS
from tests.interop.leftovers import file, log_start_beyond, overflowed
from tests.interop.living import encoded
from tests.interop.partings import CONTRADICTION
from tests.interop.stories import START_MS
from tests.interop.test_judge import agree
from tests.support.interop.judge import JudgeError
from tests.support.interop.live import TOPIC, KafkaLive, Left, OurLive
from tests.support.interop.view import view_of
from tests.support.world.builders import abort, batch, commit, data_batch

pytestmark = pytest.mark.interop

CONFIG = {
    "cleanup.policy": "delete",
    "segment.bytes": "1000",
    "index.interval.bytes": "0",
    "segment.index.bytes": "240",
    "file.delete.delay.ms": "60000",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


@pytest.fixture
def pair(judge, scratch):
    """Both engines with an open empty log, each in its own directory."""
    lives = KafkaLive(judge, scratch / "kafka"), OurLive(scratch / "ours")
    for live in lives:
        live.open(CONFIG, START_MS, Left())
    return lives


def _append(live, size=100, epoch=0):
    batch = build_batch([Record(0, START_MS, b"k", b"v" * size)])
    return live.apply({"op": "append", "batches": base64.b64encode(batch).decode(), "epoch": epoch})


def _produce(live, sequence, size):
    batch = build_batch(
        [Record(0, START_MS, b"k", b"v" * size)],
        producer_id=5, producer_epoch=0, base_sequence=sequence,
    )  # fmt: skip
    return live.apply({"op": "append", "batches": encoded(batch), "epoch": 0})


def _replicate(live, batches):
    return live.apply({"op": "replicate", "batches": encoded(batches), "epoch": 0})


def _folder(live):
    return live.data_dir / f"{TOPIC}-0"


def _names(live, pattern):
    return sorted(path.name for path in _folder(live).glob(pattern))


def _reopen(live, config=CONFIG, left=None):
    live.close(abandon=False)
    return live.open(config, START_MS, left or Left(True, 0, 0))


def test_a_refused_append_leaves_its_epoch_behind_in_kafka(pair):
    states = [_append(live, size=2000, epoch=7) for live in pair]
    assert [state["refused"] for state in states] == ["RecordBatchTooLargeException"] * 2
    assert [state["epochs"] for state in states] == [[[7, 0]], []]


def test_kafka_indexes_transactions_that_begin_after_the_marker_in_the_same_append(pair):
    """In the same append; Kafka's recovery writes the same index as this engine does at once."""
    batches = data_batch(0, 1, 5) + abort(2, 5) + data_batch(8, 9, 6)
    entries = []
    for live in pair:
        encoded = base64.b64encode(batches).decode()
        live.apply({"op": "replicate", "batches": encoded, "epoch": 0})
        entries.append(int.from_bytes(file(_folder(live), 0, ".txnindex").read_bytes()[26:34]))
    assert entries == [8, 3]


def test_closing_leaves_deleted_files_behind_in_kafka(pair):
    for live in pair:
        for _ in range(20):
            _append(live)
        live.apply({"op": "delete_records", "offset": 19})
        assert _names(live, "*.log.deleted")
        live.close(abandon=False)
    assert [bool(_names(live, "*.deleted")) for live in pair] == [True, False]


def test_kafka_delays_the_deletion_of_files_that_loading_drops(pair):
    """Here it is removed at once, durably, before the damaged segment is cut."""
    dropped = []
    for live in pair:
        for _ in range(20):
            _append(live)
        live.close(abandon=False)
        os.truncate(file(_folder(live), 0, ".log"), 100)
        state = live.open(CONFIG, START_MS, Left(clean=False))
        assert [base for base, _ in state["segments"]] == [0]
        dropped.append(bool(_names(live, "*.log.deleted")))
    assert dropped == [True, False]


@pytest.mark.parametrize("operation", ({"op": "roll"}, {"op": "truncate_fully", "offset": 0}))
def test_kafka_puts_a_segment_in_the_place_of_one_of_the_same_base(pair, operation):
    deleted = []
    for live in pair:
        if operation["op"] != "roll":
            _append(live)
        assert live.apply(operation)["segments"] == [[0, 0]]
        deleted.append(_names(live, "*.log.deleted"))
    assert deleted == [[f"{0:020}.log.deleted"], []]


def test_kafka_writes_the_producers_of_a_snapshot_in_the_order_of_a_hash_table(pair):
    batches = b"".join(
        data_batch(offset, offset, producer_id) for offset, producer_id in enumerate((40, 7, 19))
    )
    orders = []
    for live in pair:
        encoded = base64.b64encode(batches).decode()
        live.apply({"op": "replicate", "batches": encoded, "epoch": 0})
        live.apply({"op": "roll"})
        data = file(_folder(live), 3, ".snapshot").read_bytes()
        orders.append([int.from_bytes(data[at : at + 8]) for at in range(10, len(data), 46)])
    assert orders[0] == [19, 7, 40]
    assert orders[1] == [40, 7, 19]


def test_a_refused_or_repeated_append_rolls_kafkas_log(pair):
    """Here it changes nothing: no segment, no snapshot."""
    segments = []
    for live in pair:
        first, again = (_produce(live, 0, size) for size in (700, 700))
        assert (first["result"][:2], again["result"][:2]) == ([0, 0], [0, 0])
        refused = _produce(live, 5, 700)
        assert refused["error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        segments.append([[base for base, _ in each["segments"]] for each in (again, refused)])
    assert segments == [[[0, 1], [0, 1]], [[0], [0]]]


def test_a_producer_that_returns_to_an_epoch_within_one_append_in_kafka(pair):
    """Its batches of before count again; here another epoch in between ends them for good."""
    known = []
    for live in pair:
        _replicate(live, data_batch(0, 1, 5))
        state = _replicate(live, abort(2, 5, epoch=1) + abort(3, 5))
        known.append([entry["batches"] for entry in state["producers"]])
    assert known == [[[[1, 1, 1, 1000]]], [[]]]


def test_a_producer_that_returns_to_an_epoch_within_a_replayed_segment(pair):
    """Kafka replays a whole segment at once; its state while running was different."""
    before, after = [], []
    for live in pair:
        _replicate(live, data_batch(0, 1, 5))
        live.apply({"op": "roll"})
        _replicate(live, abort(2, 5, epoch=1))
        state = _replicate(live, data_batch(3, 3, 5, sequence=9))
        before.append(state["producers"][0]["batches"])
        live.close(abandon=False)
        file(_folder(live), 4, ".snapshot").unlink()
        state = live.open(CONFIG, START_MS, Left(True, 4, 0))
        after.append(state["producers"][0]["batches"])
    assert before == [[[9, 3, 0, 1000]]] * 2
    assert after == [[[1, 1, 1, 1000], [9, 3, 0, 1000]], [[9, 3, 0, 1000]]]


def test_kafka_does_not_replay_a_truncated_log_if_it_knows_no_producer(pair):
    """The transaction whose marker was truncated is open, but only here."""
    result = []
    for live in pair:
        for batches in (data_batch(0, 1, 5), commit(2, 5)):
            _replicate(live, batches)
        live.apply({"op": "advance", "ms": PRODUCER_ID_EXPIRATION_MS})
        live.apply({"op": "expire"})
        state = live.apply({"op": "truncate_to", "offset": 2})
        result.append((state["last_stable_offset"], len(state["producers"])))
    assert result == [(2, 0), (0, 1)]


def test_both_refuse_a_log_that_contradicts_itself(pair):
    """Without snapshots a clean start forgets an open transaction; then its producer may err."""
    kafka, ours = pair
    for live in pair:
        live.close(abandon=False)
        folder = _folder(live)
        file(folder, 0, ".log").write_bytes(
            data_batch(0, 1, 5) + batch(2, producer_id=5, producer_epoch=0, base_sequence=2)
        )
        for path in folder.glob("*.snapshot"):
            path.unlink()
    with pytest.raises(JudgeError, match=CONTRADICTION):
        kafka.open(CONFIG, START_MS, Left(False))
    with pytest.raises(CorruptRecordError, match="outside a transaction") as caught:
        ours.open(CONFIG, START_MS, Left(False))
    assert caught.value.check == "transaction_state"


def test_kafka_loses_the_largest_timestamp_of_a_truncated_log_after_a_start(pair):
    """If no entry of the time index remains: it searches for the largest only if it has one."""
    closed = []
    for live in pair:
        for offset, timestamp in enumerate((1000, 2000)):
            _replicate(live, batch(offset, timestamp=timestamp))
        _reopen(live, left=Left(True, 2, 0))
        live.apply({"op": "truncate_to", "offset": 1})
        live.apply({"op": "roll"})
        closed.append(file(_folder(live), 0, ".timeindex").read_bytes())
    assert closed == [b"", (1000).to_bytes(8) + bytes(4)]


def test_kafka_answers_the_log_end_where_a_transaction_is_open_and_nothing_follows(kafka3, scratch):
    """3.9.2 searches for the batch at the log start, which a truncation removed."""
    result = []
    for live in (KafkaLive(kafka3, scratch / "kafka"), OurLive(scratch / "ours")):
        live.open(CONFIG, START_MS, Left())
        for batches in (data_batch(0, 1, 5), batch(2, 5)):
            _replicate(live, batches)
        live.apply({"op": "truncate_to", "offset": 5})
        state = live.apply({"op": "increment_log_start", "offset": 3})
        result.append((state["last_stable_offset"], state["log_end_offset"]))
    assert result == [(5, 5), (3, 5)]


def test_another_version_in_the_transaction_index(pair):
    """3.9.2 reads half of the field, 4.4.0 fails the directory, this engine rebuilds the index."""
    kafka, ours = pair
    batches = base64.b64encode(data_batch(0, 1, 5) + abort(2, 5)).decode()
    for live in pair:
        live.apply({"op": "replicate", "batches": batches, "epoch": 0})
        live.close(abandon=False)
        index = file(_folder(live), 0, ".txnindex")
        index.write_bytes(b"\0\1" + index.read_bytes()[2:])
    if kafka.judge.kafka_version.startswith("3."):
        kafka.open(CONFIG, START_MS, Left())
        assert file(_folder(kafka), 0, ".txnindex").read_bytes()[:2] == b"\0\1"
    else:
        with pytest.raises(JudgeError, match="Unexpected aborted transaction version 1"):
            kafka.open(CONFIG, START_MS, Left())
    ours.open(CONFIG, START_MS, Left())
    assert file(_folder(ours), 0, ".txnindex").read_bytes()[:2] == b"\0\0"


def test_kafka_cannot_open_a_log_whose_index_became_too_small(pair):
    kafka, ours = pair
    smaller = CONFIG | {"segment.index.bytes": "24"}
    for live in pair:
        for _ in range(5):
            _append(live)
    with pytest.raises(JudgeError, match="newPosition > limit"):
        _reopen(kafka, smaller)
    assert _reopen(ours, smaller)["log_end_offset"] == 5


def test_kafka_cannot_open_a_log_with_a_damaged_epoch_checkpoint(pair):
    kafka, ours = pair
    for live in pair:
        _append(live)
        live.close(abandon=False)
        (_folder(live) / "leader-epoch-checkpoint").write_text("0\n7\n0 0\n")
    with pytest.raises(JudgeError, match="leader-epoch-checkpoint"):
        kafka.open(CONFIG, START_MS, Left())
    assert ours.open(CONFIG, START_MS, Left())["epochs"] == []


def test_kafka_keeps_entries_beyond_the_end_of_an_open_index(pair):
    """Truncated entries stay in the file; here the file is zero after its entries."""
    tails = []
    for live in pair:
        for _ in range(4):
            _append(live)
        live.apply({"op": "truncate_to", "offset": 2})
        index = file(_folder(live), 0, ".index").read_bytes()
        assert len(index) == 240
        tails.append(any(index[8:]))
    assert tails == [True, False]


def test_kafka_makes_the_index_of_a_swap_that_has_none(pair):
    """An empty index that looks full and is never replaced; here it is built from the data."""
    sizes = []
    for live in pair:
        for _ in range(12):
            _append(live)
        live.close(abandon=False)
        folder = _folder(live)
        file(folder, 0, ".index").unlink()
        for kind in (".log", ".timeindex"):
            file(folder, 0, kind).rename(file(folder, 0, kind, ".swap"))
        live.open(CONFIG, START_MS, Left())
        data = file(folder, 0, ".index").read_bytes()
        sizes.append((len(data), any(data)))
    assert sizes[0] == (240, False)
    assert sizes[1] == (4 * 8, True)


def test_kafka_empties_a_log_whose_checkpointed_start_it_never_reached(judge, scratch):
    written = log_start_beyond(scratch / "log", 1000)
    theirs = judge.ask(
        "judge", written.path, written.topic, config=written.config, now=written.now_ms, dump=False
    )
    ours = view_of(written.path, scratch, written.topic, written.config, written.now_ms)
    end = ours["log_end_offset"]
    assert (theirs["log_start_offset"], theirs["log_end_offset"]) == (end + 1000, end + 1000)
    assert [segment["base_offset"] for segment in theirs["segments"]] == [end + 1000]
    assert ours["log_start_offset"] == ours["segments"][0]["base_offset"] == 0
    assert len(ours["records"]) == end > 0


def test_kafka_splits_no_overflowed_segment_after_a_clean_stop(judge, scratch):
    written = overflowed(scratch / "log", 0, 2**31 + 5, indexed=True, clean=True)
    result = agree(judge, written, scratch)
    assert any(line.startswith("files") for line in result)


def test_kafka_keeps_an_overflowed_segment_that_it_splits_while_loading_it(judge, scratch):
    """If its first batch is above its base: Kafka searches for it among the loaded segments."""
    written = overflowed(scratch / "log", 7, 2**31 + 9, indexed=False, clean=True)
    theirs = judge.ask(
        "judge", written.path, written.topic, config=written.config, dump=False, records=False
    )
    ours = view_of(
        written.path, scratch, written.topic, written.config, written.now_ms, records=False
    )
    bases = [[segment["base_offset"] for segment in view["segments"]] for view in (theirs, ours)]
    assert bases == [[0, 7, 2**31 + 9], [7, 2**31 + 9]]


def test_kafka_4_reads_committed_records_up_to_below_the_log_start(kafka4, scratch):
    """The log start is inside a batch of an open transaction: 4.4.0 uses the batch's base."""
    kafka, ours = KafkaLive(kafka4, scratch / "kafka"), OurLive(scratch / "ours")
    encoded = base64.b64encode(data_batch(0, 5, 5)).decode()
    result = []
    for live in (kafka, ours):
        live.open(CONFIG, START_MS, Left())
        live.apply({"op": "replicate", "batches": encoded, "epoch": 0})
        state = live.apply({"op": "increment_log_start", "offset": 3})
        result.append(state["last_stable_offset"])
    assert result[1] == 3
    assert kafka.unbounded["last_stable_offset"] == 0
