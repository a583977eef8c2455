"""Producers, transactions and their snapshots (storage-format §9; group K of the scenarios)."""

import itertools

import pytest

from logstore.errors import CorruptSnapshotError, InvalidTxnStateError
from logstore.record import layout
from logstore.record.control import ControlType, EndTxnMarker
from logstore.record.header import BatchHeader, increment_sequence
from logstore.runtime import MemoryFileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.producers.entry import BatchMetadata, CompletedTxn, LastRecord, ProducerEntry
from logstore.storage.producers.snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from logstore.storage.producers.state import ProducerStateManager
from logstore.types import AbortedTxn, TopicPartition
from tests.support.world.messages import exactly

NOW = 1_700_000_000_000
DAY = 86_400_000
F1 = bytes.fromhex(
    "0001fedf4e50000000020000000000000001000200000001000000000000000200000003ffffffffffffffff"
    "000000030000000000000064000000000000000b000cffffffffffffffffffffffff00000000000000000001"
    "e2400000000dffffffffffffffff"
)
F1_ENTRIES = [
    SnapshotEntry(1, 2, 1, 2, 3, -1, 3, 100),
    SnapshotEntry(11, 12, -1, -1, 0, 123456, 13, -1),
]


@pytest.fixture
def fs():
    fs = MemoryFileSystem()
    fs.make_dirs("t-0")
    return fs


@pytest.fixture
def state(fs):
    return new_state(fs)


def new_state(fs):
    return ProducerStateManager(fs, "t-0", TopicPartition("t", 0))


def header(first, last, pid, *, epoch=0, sequence=-1, attributes=0, timestamp=NOW, count=None):
    return BatchHeader(
        base_offset=first,
        batch_length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - first,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=last - first + 1 if count is None else count,
    )


def put(state, first, last, pid, *, txn=False, **fields):
    attributes = layout.TRANSACTIONAL_BIT if txn else 0
    state.update_from_batch(header(first, last, pid, attributes=attributes, **fields))
    state.map_end_offset = last + 1
    state._check()


def end(state, offset, pid, kind=ControlType.COMMIT, *, coordinator_epoch=0, **fields):
    attributes = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    marker_header = header(offset, offset, pid, attributes=attributes, **fields)
    completed = state.update_from_batch(marker_header, EndTxnMarker(kind, coordinator_epoch))
    state.map_end_offset = offset + 1
    state._check()
    return completed


def abort(state, offset, pid, **fields):
    return end(state, offset, pid, ControlType.ABORT, **fields)


# --- batches --------------------------------------------------------------------------------------


def test_batches_without_a_producer_change_nothing(state):
    put(state, 0, 4, -1)
    assert state.is_empty
    assert state.active_producers() == {}


def test_a_data_batch_is_remembered(state):
    put(state, 3, 6, 7, epoch=2, sequence=10, timestamp=5)
    entry = state.entry(7)
    assert list(entry.batches) == [BatchMetadata(13, 6, 3, 5)]
    assert (entry.batches[0].first_sequence, entry.batches[0].first_offset) == (10, 3)
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp) == (2, -1, 5)
    assert state.active_producers() == {7: LastRecord(2, 6)}
    assert (state.last_data_offset(7), state.last_data_offset(8)) == (6, -1)
    assert state.entry(8) is None
    assert [e.producer_id for e in state.entries()] == [7]
    assert not state.is_empty


def test_five_batches_are_remembered_and_the_oldest_is_dropped(state):
    for offset in range(7):
        put(state, offset, offset, 1, sequence=offset)
    assert [b.last_sequence for b in state.entry(1).batches] == [2, 3, 4, 5, 6]


def test_another_epoch_clears_the_batches(state, caplog):
    put(state, 0, 0, 1, epoch=5, sequence=0)
    put(state, 1, 1, 1, epoch=6, sequence=0)
    assert [b.last_offset for b in state.entry(1).batches] == [1]
    assert not caplog.records
    # Batches in the log are facts: a lower epoch is applied, and logged.
    put(state, 2, 2, 1, epoch=4, sequence=9)
    assert state.active_producers() == {1: (4, 2)}
    assert "epoch 4, below 6" in caplog.text


def test_sequences_may_wrap_within_a_batch(state):
    """Scenario 111, in part through replication."""
    put(state, 0, 11, 1, sequence=2147483640)
    assert state.entry(1).last_sequence == increment_sequence(2147483640, 11) == 3
    assert state.entry(1).batches[-1].first_sequence == 2147483640


def test_a_batch_thinned_by_compaction_counts_as_before(state):
    """Scenarios 114 and 115, in part: its header keeps last offset, sequences and epoch."""
    put(state, 0, 3, 1, sequence=4, epoch=9, count=2)
    put(state, 4, 9, 2, sequence=0, epoch=9, count=0)
    assert list(state.entry(1).batches) == [BatchMetadata(7, 3, 3, NOW)]
    assert list(state.entry(2).batches) == [BatchMetadata(5, 9, 5, NOW)]


def test_a_batch_without_sequences_still_moves_the_offset(state):
    put(state, 0, 2, 1, txn=True)
    assert state.entry(1).last_sequence == -1
    assert state.entry(1).batches[-1].first_sequence == -1
    assert state.last_data_offset(1) == 2


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_opens_at_its_first_batch_and_ends_at_its_marker(state):
    put(state, 5, 6, 1, txn=True)
    put(state, 7, 9, 1, txn=True)
    assert state.entry(1).current_txn_first_offset == 5
    assert state.first_undecided_offset() == 5
    completed = end(state, 10, 1, coordinator_epoch=3, timestamp=NOW + 1)
    assert completed == CompletedTxn(1, 5, 10, is_aborted=False)
    assert state.first_undecided_offset() is None
    entry = state.entry(1)
    assert entry.current_txn_first_offset is None
    assert (entry.coordinator_epoch, entry.last_timestamp) == (3, NOW + 1)
    assert state.last_data_offset(1) == 9, "a marker is not data"


def test_first_unstable_offset_over_two_transactions(state):
    """S-116: it moves on once the high watermark has passed the marker."""
    put(state, 0, 2, 1, txn=True)
    put(state, 3, 5, -1)
    put(state, 6, 8, 2, txn=True)
    abort(state, 9, 1)
    assert state.first_unstable_offset(9) == 0
    assert state.first_unstable_offset(10) == 6
    state.on_high_watermark_updated(10)
    end(state, 10, 2)
    assert state.first_unstable_offset(10) == 6
    state.on_high_watermark_updated(11)
    assert state.first_unstable_offset(11) is None


def test_a_committed_transaction_stays_unstable_until_the_high_watermark_passes(state):
    """S-117."""
    put(state, 0, 0, 1, txn=True)
    end(state, 1, 1)
    for high_watermark in (0, 1):
        state.on_high_watermark_updated(high_watermark)
        assert state.first_unstable_offset(high_watermark) == 0
    assert not state.is_empty
    state.on_high_watermark_updated(2)
    assert state.first_unstable_offset(2) is None


def test_the_log_lts(state):
    """Scenario 118, in part: index entries as the leader's appends make them."""
    index = []

    def apply_abort(offset, pid):
        completed = abort(state, offset, pid)
        index.append(completed.to_aborted_txn(state.last_stable_offset_after(completed)))

    put(state, 0, 4, 1, txn=True)
    put(state, 8, 9, 2, txn=True)
    put(state, 10, 13, 1, txn=True)
    put(state, 14, 16, 3, txn=True)
    put(state, 19, 28, 1, txn=True)
    apply_abort(29, 1)
    put(state, 30, 35, 2, txn=True)
    put(state, 36, 38, 4, txn=True)
    put(state, 49, 57, 3, txn=True)
    end(state, 58, 3)
    put(state, 59, 66, 4, txn=True)
    put(state, 67, 73, 2, txn=True)
    apply_abort(74, 2)
    put(state, 85, 88, 4, txn=True)
    end(state, 89, 4)
    assert index == [AbortedTxn(1, 0, 29, 8), AbortedTxn(2, 8, 74, 36)]
    assert [state.first_unstable_offset(hw) for hw in (30, 75, 90)] == [8, 36, None]
    for high_watermark in (30, 75, 90):
        expected = state.first_unstable_offset(high_watermark)
        state.on_high_watermark_updated(high_watermark)
        assert state.first_unstable_offset(high_watermark) == expected


def test_last_stable_offset_without_another_open_transaction(state):
    put(state, 0, 0, 1, txn=True)
    assert state.last_stable_offset_after(abort(state, 1, 1)) == 2


def test_a_marker_without_data_completes_nothing(state):
    """Scenarios 112 and 119, in part: it only sets the epochs, and is not a known batch."""
    assert abort(state, 0, 1, epoch=3, coordinator_epoch=2) is None
    assert state.active_producers() == {1: LastRecord(3, -1)}
    assert state.entry(1).last_sequence == -1
    put(state, 1, 1, 1, epoch=3, sequence=0, txn=True)
    assert abort(state, 2, 1, epoch=3, coordinator_epoch=2) == CompletedTxn(1, 1, 2, True)
    assert abort(state, 3, 1, epoch=3, coordinator_epoch=2) is None


def test_a_marker_of_a_higher_epoch_clears_the_batches(state):
    put(state, 0, 0, 1, epoch=3, sequence=0, txn=True)
    end(state, 1, 1, epoch=4)
    assert state.active_producers() == {1: (4, -1)}


def test_coordinator_epochs_that_go_back_are_followed(state, caplog):
    """Scenarios 119 and 142, in part: in replication and recovery the last marker counts."""
    caplog.set_level("INFO")
    end(state, 0, 1, coordinator_epoch=2)
    end(state, 1, 1, coordinator_epoch=1)
    assert state.entry(1).coordinator_epoch == 1
    assert "coordinator epoch 1, below 2" in caplog.text


def test_control_batches_without_a_marker_are_ignored(state):
    """Another kind, or emptied by compaction."""
    put(state, 0, 0, 1, txn=True)
    control = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    assert state.update_from_batch(header(1, 1, 1, attributes=control, count=0), None) is None
    assert state.update_from_batch(header(2, 2, 5, attributes=control), None) is None
    assert state.first_undecided_offset() == 0
    assert state.entry(5) is None


def test_an_emptied_marker_makes_its_producer_known_without_an_epoch(state):
    """As in Kafka's snapshots; any epoch and sequence may follow, and it expires at once."""
    control = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    emptied = header(3, 3, 5, epoch=2, attributes=control, count=0)
    assert state.update_from_batch(emptied, None) is None
    assert state.entry(5) == ProducerEntry(5)
    assert state.active_producers() == {5: (-1, -1)}
    assert state.validate(header(4, 4, 5, epoch=0, sequence=7)) is None
    assert state.remove_expired(NOW) == 1
    put(state, 4, 4, 5, epoch=1, sequence=7)
    assert state.update_from_batch(emptied, None) is None
    assert state.active_producers() == {5: (1, 4)}


def test_data_outside_an_open_transaction_is_refused_and_changes_nothing(state):
    """S-120."""
    put(state, 0, 0, 1, sequence=0, txn=True)
    batch = header(1, 1, 1, sequence=1, epoch=1)
    for refuse in (state.validate, state.update_from_batch):
        with pytest.raises(InvalidTxnStateError, match=r"t-0: producer 1 .* from offset 0 is open"):
            refuse(batch)
    assert state.active_producers() == {1: (0, 0)}
    state.validate(header(1, 1, 2))
    end(state, 1, 1)
    state.validate(batch)


def test_the_first_offset_of_a_batch_can_be_given(state):
    """A replica may know it better than the header of a thinned batch."""
    attributes = layout.TRANSACTIONAL_BIT
    state.update_from_batch(header(4, 9, 1, sequence=0, attributes=attributes), first_offset=6)
    assert state.first_undecided_offset() == 6
    assert list(state.entry(1).batches) == [BatchMetadata(5, 9, 3, NOW)]


# --- expiry ---------------------------------------------------------------------------------------


def test_idle_producers_expire_unless_their_transaction_is_open(state):
    put(state, 0, 0, 1, timestamp=NOW)
    put(state, 1, 1, 2, timestamp=NOW, txn=True)
    put(state, 2, 2, 3, timestamp=NOW + 1)
    assert state.remove_expired(NOW + DAY - 1) == 0
    assert state.remove_expired(NOW + DAY) == 1
    assert sorted(state.active_producers()) == [2, 3]
    state._check()


def test_a_log_start_below_the_newest_snapshot_needs_no_other_snapshot(fs, state):
    put(state, 0, 0, 1)
    assert state.take_snapshot() == "t-0/00000000000000000001.snapshot"
    state.on_log_start_offset_incremented(0)
    assert state.take_snapshot() is None


def test_expired_producers_of_a_snapshot_are_not_loaded(fs, state):
    put(state, 0, 0, 1, timestamp=NOW)
    put(state, 1, 1, 2, timestamp=NOW, txn=True)
    put(state, 2, 2, 3, timestamp=NOW + 1)
    state.take_snapshot()
    loaded = new_state(fs)
    loaded.truncate_and_reload(0, 3, NOW + DAY)
    assert sorted(loaded.active_producers()) == [2, 3]


# --- snapshot bytes -------------------------------------------------------------------------------


def test_golden_snapshot_encodes_and_decodes():
    """S-113: vector F1, in either order."""
    assert encode_snapshot(F1_ENTRIES) == F1
    assert decode_snapshot(F1) == F1_ENTRIES
    backwards = encode_snapshot(reversed(F1_ENTRIES))
    assert backwards != F1
    assert decode_snapshot(backwards) == F1_ENTRIES[::-1]
    assert decode_snapshot(encode_snapshot([])) == []


def test_the_manager_loads_and_writes_the_golden_snapshot(fs, state):
    """S-113."""
    write(fs, 200, F1)
    state = new_state(fs)
    state.truncate_and_reload(0, 200, 123457)
    state._check()
    assert state.first_unstable_offset(200) == 100
    assert state.active_producers() == {1: (2, 2), 11: (12, -1)}
    both, only_11 = {1: (2, 2), 11: (12, -1)}, {11: (12, -1)}
    parts = ((0, 2), (2, 3), (3, 9))
    assert [state.active_producers(*part) for part in parts] == [only_11, both, only_11]
    assert list(state.entry(1).batches) == [BatchMetadata(1, 2, 3, -1)]
    assert not state.entry(11).batches
    state.map_end_offset = 201
    assert state.take_snapshot() == "t-0/00000000000000000201.snapshot"
    assert read_bytes(fs, "t-0/00000000000000000201.snapshot") == F1


@pytest.mark.parametrize(
    ("bit", "message"),
    (
        (0, "somewhere at position 0: unknown snapshot version -32767"),
        (15, "somewhere at position 0: unknown snapshot version 0"),
        (20, ("somewhere at position 2: stored CRC 4141829712 differs from computed 4276047440")),
        (47, ("somewhere at position 2: stored CRC 4276047441 differs from computed 4276047440")),
        (60, ("somewhere at position 2: stored CRC 4276047440 differs from computed 2713212648")),
        (100, ("somewhere at position 2: stored CRC 4276047440 differs from computed 929995460")),
        (
            len(F1) * 8 - 1,
            ("somewhere at position 2: stored CRC 4276047440 differs from computed 213175635"),
        ),
    ),
)
def test_every_flipped_bit_is_noticed(bit, message):
    damaged = bytearray(F1)
    damaged[bit // 8] ^= 0x80 >> bit % 8
    with pytest.raises(CorruptSnapshotError, match=exactly(message)):
        decode_snapshot(bytes(damaged), "somewhere")


@pytest.mark.parametrize(
    ("size", "message"),
    (
        (0, "0 bytes are too few for a snapshot"),
        (9, "9 bytes are too few for a snapshot"),
        (10, "stored CRC 4276047440 differs from computed 2841393968"),
        (len(F1) - 1, "stored CRC 4276047440 differs from computed 3668059889"),
    ),
)
def test_short_snapshots_are_damaged(size, message):
    with pytest.raises(CorruptSnapshotError, match=exactly(message)):
        decode_snapshot(F1[:size])


def test_a_count_that_does_not_fit_is_noticed_despite_a_right_crc():
    from logstore.record.crc32c import crc32c

    body = (3).to_bytes(4, "big") + F1[10:]
    with pytest.raises(CorruptSnapshotError, match="3 entries do not occupy exactly"):
        decode_snapshot(F1[:2] + crc32c(body).to_bytes(4, "big") + body)


# --- snapshot files -------------------------------------------------------------------------------


def write(fs, offset, data=None):
    file = fs.open(f"t-0/{offset:020d}.snapshot", create=True)
    file.append([encode_snapshot([]) if data is None else data])
    file.close()


def on_disk(fs):
    return [int(name.partition(".")[0]) for name in fs.list_dir("t-0") if name.endswith("snapshot")]


def test_a_snapshot_is_taken_once_for_an_offset_and_never_at_zero(fs, state):
    """Scenario 122, in part."""
    assert state.take_snapshot() is None
    put(state, 0, 0, 1)
    assert state.take_snapshot(sync=False) is not None
    assert state.take_snapshot() is None
    put(state, 1, 1, 1)
    assert state.take_snapshot() is not None
    assert state.snapshot_offsets == on_disk(fs) == [1, 2]
    assert state.latest_snapshot_offset == 2


def test_truncation_goes_back_to_the_newest_snapshot_in_range(fs):
    """Scenario 100, in part."""
    for log_end, newest, stand in ((2, 2, 2), (1, 1, 1), (0, None, 0)):
        state = new_state(fs)
        state.truncate_fully_and_start_at(0)
        for offset in range(3):
            put(state, offset, offset, 1, sequence=offset)
            state.take_snapshot()
        state.truncate_and_reload(0, log_end, NOW)
        assert state.latest_snapshot_offset == newest
        assert state.map_end_offset == stand
        assert state.last_data_offset(1) == log_end - 1


def test_truncation_below_an_open_transaction_forgets_it(fs, state):
    """Scenario 104, in part: open from 3; removed by truncation to 2, kept by truncation to 4."""
    put(state, 0, 1, 2)
    state.take_snapshot()
    put(state, 2, 2, 2)
    put(state, 3, 3, 1, txn=True)
    state.take_snapshot()
    put(state, 4, 4, 1, txn=True)
    state.truncate_and_reload(0, 4, NOW)
    assert state.first_unstable_offset(4) == 3
    state.truncate_and_reload(0, 2, NOW)
    assert state.first_unstable_offset(2) is None
    state._check()


def test_reloading_is_deterministic_and_replay_completes_it(fs, state):
    """A snapshot in the middle and a replay give the state of a full replay."""
    steps = [(0, 1, 1), (2, 2, 2), (3, 5, 1), (6, 6, 3)]
    for first, last, pid in steps[:2]:
        put(state, first, last, pid, txn=pid == 2, sequence=0)
    state.take_snapshot()
    for first, last, pid in steps[2:]:
        put(state, first, last, pid, sequence=2)
    reloaded = new_state(fs)
    reloaded.truncate_and_reload(0, 7, NOW)
    assert reloaded.map_end_offset == 3
    for first, last, pid in steps[2:]:
        put(reloaded, first, last, pid, sequence=2)
    assert [e.to_snapshot() for e in reloaded.entries()] == [
        e.to_snapshot() for e in state.entries()
    ]
    assert reloaded.first_unstable_offset(7) == state.first_unstable_offset(7) == 2


def test_open_transactions_of_a_snapshot_are_sorted_by_their_first_offset(fs):
    write(
        fs,
        50,
        encode_snapshot(
            SnapshotEntry(pid, 0, 0, 40, 0, NOW, 0, first)
            for pid, first in ((1, 30), (2, 10), (3, 20))
        ),
    )
    state = new_state(fs)
    state.truncate_and_reload(0, 50, NOW)
    state._check()
    assert state.first_undecided_offset() == 10
    assert state.last_stable_offset_after(abort(state, 50, 2)) == 20


def test_damaged_snapshots_are_deleted_and_an_older_one_is_used(fs, caplog):
    """S-113."""
    write(fs, 101, F1)
    write(fs, 102, F1[:-1])
    write(fs, 103, b"\0\2" + F1[2:])
    state = new_state(fs)
    state.truncate_and_reload(0, 103, NOW)
    assert on_disk(fs) == state.snapshot_offsets == [101]
    assert state.map_end_offset == 101
    assert 1 in state.active_producers()
    assert caplog.text.count("snapshot deleted") == 2
    write(fs, 101, b"trailing rubbish")
    state.truncate_and_reload(0, 0, NOW)
    assert on_disk(fs) == []


@pytest.mark.parametrize(
    "entries",
    (
        [F1_ENTRIES[0], F1_ENTRIES[0]._replace(current_txn_first_offset=-1)],
        [F1_ENTRIES[0], F1_ENTRIES[1]._replace(current_txn_first_offset=100)],
        [F1_ENTRIES[1]._replace(producer_id=-1)],
        [F1_ENTRIES[0]._replace(last_offset=101)],
        [F1_ENTRIES[0]._replace(current_txn_first_offset=101)],
    ),
    ids=("producer twice", "two transactions", "negative", "offset beyond", "transaction beyond"),
)
def test_a_snapshot_that_no_log_leads_to_is_damaged(fs, entries):
    write(fs, 101, encode_snapshot(entries))
    state = new_state(fs)
    state.truncate_and_reload(0, 101, NOW)
    assert on_disk(fs) == []
    assert state.is_empty


def test_without_a_readable_snapshot_the_state_is_empty_at_the_log_start(fs):
    write(fs, 9, b"")
    state = new_state(fs)
    state.truncate_and_reload(4, 9, NOW)
    assert (state.map_end_offset, state.is_empty, on_disk(fs)) == (4, True, [])
    assert state.take_snapshot() is None, "nothing changed since the log start"


def test_snapshots_out_of_the_logs_bounds_are_deleted(fs):
    for offset in (3, 4, 5, 8, 9):
        write(fs, offset)
    state = new_state(fs)
    state.truncate_and_reload(4, 8, NOW)
    assert on_disk(fs) == state.snapshot_offsets == [5, 8]
    assert state.map_end_offset == 8


def test_a_state_at_the_log_end_is_kept(fs, state):
    put(state, 0, 0, 1, txn=True)
    end(state, 1, 1)
    state.take_snapshot()
    put(state, 2, 2, 1)
    state.truncate_and_reload(2, 3, NOW)
    assert on_disk(fs) == []
    assert state.last_data_offset(1) == 2
    assert state.first_unstable_offset(0) is None
    assert state.take_snapshot() is not None


def test_raising_the_log_start_retains_producers(state):
    put(state, 0, 0, 1)
    state.on_log_start_offset_incremented(10)
    assert state.map_end_offset == 10
    assert state.last_data_offset(1) == 0
    assert state.take_snapshot() is None


def test_a_fresh_start_deletes_everything(fs, state):
    put(state, 0, 0, 1, txn=True)
    state.take_snapshot()
    state.truncate_fully_and_start_at(30)
    assert (state.is_empty, state.map_end_offset, on_disk(fs)) == (True, 30, [])
    assert state.first_unstable_offset(0) is None
    assert state.take_snapshot() == "t-0/00000000000000000030.snapshot"


def test_deleting_and_marking_snapshots(fs, state):
    for offset in (5, 7):
        write(fs, offset)
    state = new_state(fs)
    state.delete_snapshot(5)
    assert state.mark_snapshot_deleted(7) == "t-0/00000000000000000007.snapshot.deleted"
    assert fs.list_dir("t-0") == ["00000000000000000007.snapshot.deleted"]
    assert state.snapshot_offsets == []
    state.delete_snapshot(5)
    assert state.mark_snapshot_deleted(7) is None


@pytest.mark.parametrize(
    ("bases", "kept"),
    (
        ((0, 3, 6), [3, 6, 9]),
        ((0, 3), [3, 9]),
        ((0, 3, 10), [3]),
        ((0, 9), [9]),
        ((), [9]),
    ),
)
def test_straggler_snapshots_go_but_the_one_above_all_segments(fs, state, bases, kept):
    """storage-format §9.3; the directory is read again."""
    for offset in (1, 3, 5, 6, 8, 9):
        write(fs, offset)
    state.remove_straggler_snapshots(bases)
    assert on_disk(fs) == state.snapshot_offsets == kept


def test_other_names_are_not_snapshots(fs):
    for name in ("5.snapshot", "00000000000000000005.snapshot.deleted", "00000000000000000005.log"):
        fs.open(f"t-0/{name}", create=True).close()
    assert new_state(fs).snapshot_offsets == []


def test_histories_of_three_producers_agree_with_a_plain_model(fs):
    """Every interleaving of a few transactional steps: the LSO by definition."""
    steps = [(1, "data"), (2, "data"), (1, "end"), (2, "end"), (3, "data"), (1, "data")]
    for order in itertools.permutations(steps):
        state = new_state(fs)
        txns = []
        for offset, (pid, step) in enumerate(order):
            open_txn = next((t for t in txns if t[0] == pid and t[2] is None), None)
            if step == "data":
                put(state, offset, offset, pid, txn=True)
                if open_txn is None:
                    txns.append([pid, offset, None])
            else:
                end(state, offset, pid)
                if open_txn is not None:
                    open_txn[2] = offset
        for high_watermark in range(len(order) + 1):
            unstable = [t[1] for t in txns if t[2] is None or t[2] >= high_watermark]
            assert state.first_unstable_offset(high_watermark) == min(unstable, default=None)
