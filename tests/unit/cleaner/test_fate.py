"""The fate of each record in the next cleaning pass, computed in advance."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.passes.fate import FATES, list_fates
from logstore.cleaner.selection import cleanable_state
from logstore.cleaner.stats import FATE_NAMES
from logstore.errors import CorruptRecordError
from logstore.record.batch import seal_batch
from logstore.record.codecs import Codec
from logstore.record.crc32c import crc32c
from logstore.record.records import Record, encode_records
from logstore.record.walk import walk_buffer
from logstore.runtime import MemoryFileSystem
from tests.support.world.builders import disk_world, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    Producer,
    compacted,
    drive,
    map_of,
    offsets_in,
    put,
    put_each,
    run_pass,
)
from tests.unit.cleaner.test_golden_pairs import (
    CASES,
    DATA,
    cleaner_config,
    copy_of,
    manifest,
    open_broker,
)

HOUR_MS = 3_600_000
GONE = frozenset(FATE_NAMES) - {"retained"}


def new_broker(**options: object) -> Broker:
    clock = VirtualClock()
    return Broker(clock=clock, fs=MemoryFileSystem(clock), seed=3, **options)


def topic(broker: Broker, **configs: object) -> None:
    texts = {"cleanup_policy": "compact", "file_delete_delay_ms": 0} | configs
    broker.create_topic("t", 1, {key.replace("_", "."): v for key, v in texts.items()})


def append(broker: Broker, *pairs: tuple) -> None:
    broker.append_many("t", pairs, partition=0, batch_records=2)


def told(broker: Broker, **options: bool) -> list[tuple[int, bytes | None, str, int | None]]:
    """Return (offset, key, fate, superseded by) of every record."""
    return [tuple(each)[:4] for each in broker.fates("t", **options)]


def fates(broker: Broker, **options: bool) -> list[str]:
    return [each.fate for each in broker.fates("t", **options)]


# --- the fates of a pass ----------------------------------------------------------------------


def test_superseded_records_name_the_one_that_takes_their_place() -> None:
    with new_broker() as broker:
        topic(broker)
        append(broker, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"", b"1"), (b"a", None))
        broker.roll("t")
        assert told(broker) == [
            (0, b"a", "superseded", 4),
            (1, b"b", "retained", None),
            (2, b"a", "superseded", 4),
            (3, b"", "retained", None),
            (4, b"a", "retained", None),
        ]


@pytest.mark.parametrize("compression", ("gzip", "snappy", "lz4", "zstd"))
def test_compressed_batches_are_listed_record_by_record(compression: str) -> None:
    with new_broker() as broker:
        topic(broker)
        pairs = [(b"key-%d" % (number % 3), b"v" * 50) for number in range(7)]
        broker.append_many("t", pairs, compression=compression)
        broker.roll("t")
        listed = told(broker)
        assert [key for _, key, _, _ in listed] == [key for key, _ in pairs]
        assert [by for *_, by in listed] == [6, 4, 5, 6, None, None, None]


def test_keys_below_the_checkpoint_are_superseded_by_dirty_ones() -> None:
    with new_broker() as broker:
        topic(broker)
        append(broker, (b"a", b"1"), (b"b", b"1"))
        broker.roll("t")
        broker.clean("t", force=True)
        append(broker, (b"b", b"2"), (b"c", b"1"))
        broker.roll("t")
        assert told(broker) == [
            (0, b"a", "retained", None),
            (1, b"b", "superseded", 2),
            (2, b"b", "retained", None),
            (3, b"c", "retained", None),
        ]


@pytest.mark.parametrize("compression", ("none", "lz4"))
def test_with_versions_the_winner_may_have_a_lower_offset(compression: str) -> None:
    """In the dirty section, and across the checkpoint; the last record stays, superseded."""
    with new_broker() as broker:
        topic(broker, compaction_strategy="timestamp")
        now_ms = broker.clock.now_ms()
        newest, late, later = now_ms, now_ms - 2, now_ms - 1
        broker.append_many(
            "t",
            [(b"a", b"1", newest), (b"b", b"1", later), (b"a", b"2", late), (b"c", b"1", newest)],
            compression=compression,
        )
        broker.roll("t")
        expected = [
            (0, b"a", "retained", None),
            (1, b"b", "retained", None),
            (2, b"a", "superseded", 0),
            (3, b"c", "retained", None),
        ]
        assert told(broker) == expected
        broker.clean("t", force=True)
        broker.append_many(
            "t",
            [(b"a", b"3", later), (b"b", b"2", newest), (b"c", None, late), (b"a", b"4", late)],
            compression=compression,
        )
        expected.pop(2)
        active = [(4, b"a"), (5, b"b"), (6, b"c"), (7, b"a")]
        assert told(broker) == [*expected, *((*pair, "active", None) for pair in active)]
        assert told(broker, roll=True) == [
            (0, b"a", "retained", None),
            (1, b"b", "superseded", 5),
            (3, b"c", "retained", None),
            (4, b"a", "superseded", 0),
            (5, b"b", "retained", None),
            (6, b"c", "superseded", 3),
            (7, b"a", "retained", None),
        ]


def test_a_tombstone_expires_at_its_horizon_and_not_before() -> None:
    with new_broker() as broker:
        topic(broker, delete_retention_ms=HOUR_MS)
        append(broker, (b"a", None), (b"b", b"1"))
        broker.roll("t")
        broker.clean("t", force=True)  # gives the batch its horizon
        assert fates(broker) == ["retained", "retained"]
        broker.clock.advance(ms=HOUR_MS - 1)
        assert fates(broker) == ["retained", "retained"]
        broker.clock.advance(ms=1)
        assert fates(broker) == ["tombstone_expired", "retained"]


def test_records_without_a_key_go_with_null_key() -> None:
    with new_broker() as broker:
        topic(broker, cleanup_policy="delete")
        append(broker, (None, b"1"), (b"a", b"1"))
        broker.roll("t")
        broker.alter_configs("t", {"cleanup.policy": "compact"})
        assert told(broker) == [(0, None, "null_key", None), (1, b"a", "retained", None)]


def test_transactions() -> None:
    log = compacted(memory_world())
    one, two = Producer(log, 1), Producer(log, 2)
    one.send((b"a", b"1"), (b"b", b"1"))
    two.send((b"a", b"2"))
    one.abort()
    two.commit()
    put(log, (b"a", b"3"))
    log.writer.roll()
    listed = listing(log)
    assert [fate for _, fate, _, _ in listed] == [
        *("aborted", "aborted", "superseded"),
        *("retained", "retained", "retained"),
    ]
    assert [by for _, _, by, _ in listed] == [-1, -1, 5, -1, -1, -1]
    assert [control for *_, control in listed] == [-1, -1, -1, 0, 1, -1]


def test_a_marker_without_data_expires_at_its_horizon() -> None:
    log = compacted(memory_world(), delete_retention_ms=HOUR_MS)
    Producer(log, 1).commit()
    put(log, (b"a", b"1"))
    log.writer.roll()
    run_pass(log)  # gives the marker its horizon
    log.runtime.clock.advance(ms=HOUR_MS - 1)
    assert [fate for _, fate, _, _ in listing(log)] == ["retained", "retained"]
    log.runtime.clock.advance(ms=1)
    assert [fate for _, fate, _, _ in listing(log)] == ["control_expired", "retained"]


def listing(
    log, config=ALL_KEYS, *, first_dirty: int | None = None
) -> list[tuple[int, str, int, int]]:
    """Return (offset, fate, superseded by, control) of every record from the log start on."""
    state = cleanable_state(log, first_dirty, log.runtime.clock.now_ms())
    return [
        (offset, FATES[fate], by, control)
        for chunk in list_fates(log, config, state)
        for offset, fate, by, control in zip(
            *(column.tolist() for column in chunk[:4]), strict=True
        )
    ]


def test_control_records_show_their_type_instead_of_a_key() -> None:
    with new_broker() as broker:
        topic(broker)
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=b"a", value=b"1")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", key=b"a", value=b"2")
        producer.commit_transaction()
        broker.roll("t")
        assert [(each.key, each.control) for each in broker.fates("t")] == [
            (b"a", None),
            (None, "abort"),
            (b"a", None),
            (None, "commit"),
        ]


# --- records outside a pass -------------------------------------------------------------------


def test_the_active_segment_waits_for_its_roll() -> None:
    with new_broker() as broker:
        topic(broker)
        append(broker, (b"a", b"1"), (b"a", b"2"))
        assert fates(broker) == ["active", "active"]
        assert fates(broker, roll=True) == ["superseded", "retained"]
        broker.roll("t")
        append(broker, (b"a", b"3"))
        assert fates(broker) == ["superseded", "retained", "active"]


def test_a_checkpoint_within_the_active_segment_hides_no_record() -> None:
    log = compacted(memory_world())
    put_each(log, (b"a", b"1"), (b"a", b"2"))
    log.writer.roll()
    put_each(log, (b"a", b"3"), (b"a", b"4"))
    assert [(offset, fate) for offset, fate, _, _ in listing(log, first_dirty=3)] == [
        (0, "retained"),
        (1, "retained"),
        (2, "active"),
        (3, "active"),
    ]


def test_segments_within_the_compaction_lag_are_not_yet_cleanable() -> None:
    with new_broker() as broker:
        topic(broker, min_compaction_lag_ms=HOUR_MS)
        for number in range(3):
            append(broker, (b"a", b"%d" % number))
            broker.roll("t")
            broker.clock.advance(ms=HOUR_MS // 2)
        append(broker, (b"a", b"3"))
        # The lag of offset 1 is over, the lag of offset 2 is not.
        assert fates(broker) == ["superseded", "retained", "not_yet_cleanable", "active"]
        assert fates(broker, force=True) == ["superseded", "superseded", "retained", "active"]


def test_an_open_transaction_protects_its_segment_and_later_ones() -> None:
    log = compacted(memory_world())
    put_each(log, (b"a", b"1"), (b"a", b"2"))
    log.writer.roll()
    Producer(log, 1).send((b"a", b"3"))
    log.writer.roll()
    put_each(log, (b"a", b"4"))
    assert [fate for _, fate, _, _ in listing(log)] == [
        *("superseded", "retained", "not_yet_cleanable", "active")
    ]


def test_below_the_log_start_nothing_matters_any_more() -> None:
    with new_broker() as broker:
        topic(broker, cleanup_policy="compact,delete")
        append(broker, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"1"))
        broker.roll("t")
        broker.manager.delete_records(broker.partitions("t")[0], 1)
        assert told(broker) == [
            (0, b"a", "below_log_start", None),
            (1, b"a", "superseded", 2),
            (2, b"a", "retained", None),
            (3, b"b", "retained", None),
        ]


def test_a_topic_that_is_not_compacted_keeps_its_records() -> None:
    with new_broker() as broker:
        topic(broker, cleanup_policy="delete")
        append(broker, (b"a", b"1"), (b"a", b"2"))
        broker.roll("t")
        append(broker, (b"a", b"3"))
        found = broker.fates("t")
        assert [each.fate for each in found] == ["retained", "retained", "active"]
        assert not found.is_compacted
        assert found.stats is None


def test_fates_are_listed_even_if_no_pass_is_due() -> None:
    with new_broker() as broker:
        topic(broker, min_cleanable_dirty_ratio="1.0")
        append(broker, (b"a", b"1"), (b"a", b"2"))
        broker.roll("t")
        found = broker.fates("t")
        assert found.decision.binding.gate == "dirty_ratio"
        assert [each.fate for each in found] == ["superseded", "retained"]
        assert broker.clean("t").cleaned == ()


def test_an_idle_segment_that_is_overdue_is_looked_at_as_rolled() -> None:
    """As `clean` does (KIP-354)."""
    with new_broker() as broker:
        topic(broker, max_compaction_lag_ms=HOUR_MS)
        append(broker, (b"a", b"1"), (b"a", b"2"))
        assert fates(broker) == ["active", "active"]
        broker.clock.advance(ms=HOUR_MS + 1)
        assert fates(broker) == ["superseded", "retained"]
        (stats,) = broker.clean("t", dry_run=True).cleaned
        assert (stats.fates["superseded"], stats.fates["retained"]) == (1, 1)


# --- passes that stop early, and large logs ---------------------------------------------------


def test_beyond_the_end_of_a_full_map_this_pass_retains_everything() -> None:
    log = compacted(memory_world())
    for _ in range(2):
        put_each(log, *((b"k%d" % number, b"v") for number in range(5)))
        log.writer.roll()
    config = map_of(4, 1.0)
    # The map takes k0 to k3; this pass ignores records after offset 3.
    assert [fate for _, fate, _, _ in listing(log, config)] == ["retained"] * 10
    assert drive(list_fates(log, config, cleanable_state(log, None, 0))).end_offset == 4


def test_the_winner_is_the_last_one_that_the_map_knows() -> None:
    log = compacted(memory_world())
    put_each(log, (b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a", b"3"), (b"c", b"1"))
    log.writer.roll()
    listed = listing(log, map_of(2, 1.0))
    assert [(fate, by) for _, fate, by, _ in listed] == [
        ("superseded", 1),
        ("retained", -1),
        ("retained", -1),
        ("retained", -1),
        ("retained", -1),
    ]


def test_fates_are_listed_chunk_by_chunk() -> None:
    """Memory depends on the I/O buffer, not on the log."""
    log = compacted(memory_world())
    put_each(log, *((b"k%d" % (number % 7), b"v" * 20) for number in range(100)))
    log.writer.roll()
    put_each(log, *((b"k", b"v" * 20) for _ in range(20)))
    config = map_of(1000, io_buffer_bytes=1000)
    chunks = list(list_fates(log, config, cleanable_state(log, None, 0)))
    assert max(len(chunk.offsets) for chunk in chunks) <= 1000 // 80
    assert [int(offset) for chunk in chunks for offset in chunk.offsets] == list(range(120))


def test_a_partition_can_be_listed_again_and_given_up_half_way() -> None:
    with new_broker() as broker:
        topic(broker)
        append(broker, *((b"a", b"%d" % number) for number in range(9)))
        broker.roll("t")
        found = broker.fates("t")
        first = next(iter(found))
        assert (first.fate, first.superseded_by, found.stats) == ("superseded", 8, None)
        assert len(list(found)) == len(list(found)) == 9
        assert found.stats.fates["superseded"] == 8
        assert broker.clean("t", force=True).cleaned[0].fates["superseded"] == 8


# --- no side effects --------------------------------------------------------------------------


def test_nothing_is_written(tmp_path) -> None:
    world = disk_world(tmp_path)
    log = compacted(world, segment_bytes=500)
    put_each(log, *((b"k%d" % (number % 7), b"v" * 20) for number in range(100)))
    state = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(tmp_path)}
    assert len(listing(log)) == 100
    assert state == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(tmp_path)}


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_a_cleaning_matches_the_listed_fates() -> None:
    log = compacted(memory_world())
    put_each(log, *((b"k%d" % (number % 7), b"v") for number in range(30)))
    log.writer.roll()
    kept = [offset for offset, fate, _, _ in listing(log) if fate == "retained"]
    run_pass(log)
    assert offsets_in(log) == kept


@pytest.mark.parametrize("case", CASES)
def test_listed_fates_match_kafkas_cleaning(case: str, tmp_path) -> None:
    """Directories before and after a pass of Kafka's cleaner."""
    expected = manifest(case)
    with open_broker(case, copy_of(case, tmp_path)) as broker:
        log = broker.log("golden")
        state = cleanable_state(log, None, expected["cleaning_time_ms"])._replace(
            first_dirty_offset=expected["first_dirty_offset"],
            upper_bound_offset=expected["upper_bound_offset"],
        )
        kept = [
            offset
            for chunk in list_fates(log, cleaner_config(case), state)
            for offset, fate in zip(chunk.offsets.tolist(), chunk.fates.tolist(), strict=True)
            if FATES[fate] not in GONE
        ]
    after = sorted((DATA / case / "after" / "data" / "golden-0").glob("*.log"))
    left = [
        record.offset
        for path in after
        for batch in walk_buffer(path.read_bytes())
        for record in batch.records()
    ]
    assert kept == left


def test_damage_is_refused_as_a_cleaning_refuses_it(tmp_path) -> None:
    with Broker(tmp_path / "data", clock=VirtualClock()) as broker:
        topic(broker)
        append(broker, (b"a", b"1"), (b"a", b"2"))
        broker.roll("t")
    path = next((tmp_path / "data" / "t-0").glob("*0.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with (
        Broker(tmp_path / "data", clock=VirtualClock(), read_only=True) as broker,
        pytest.raises(CorruptRecordError) as refused,
    ):
        list(broker.fates("t"))
    assert refused.value.path == str(path)


def sealed(section: bytes, offset: int, codec: Codec = Codec.NONE, **header: object) -> bytes:
    """Return a batch of one record with the given section and a correct CRC."""
    facts = {"last_offset_delta": 0, "record_count": 1, "base_timestamp": 5, "max_timestamp": 5}
    data = seal_batch(section, base_offset=offset, partition_leader_epoch=0, **facts | header)
    return data[:22] + bytes([data[22] | codec]) + data[23:] if codec else data


def damaged(offset: int, what: str) -> bytes:
    """Return a batch at `offset` that a reader refuses."""
    record = encode_records([Record(offset, 5, b"k", b"v")], offset, 5)
    match what:
        case "crc":
            data = bytearray(sealed(record, offset))
            data[-1] ^= 1
            return bytes(data)
        case "magic":
            data = bytearray(sealed(record, offset))
            data[16] = 7
            return bytes(data)
        case "compression":
            data = bytearray(sealed(record, offset, Codec.LZ4))
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
            return bytes(data)
        case "count":
            return sealed(record, offset, record_count=50, last_offset_delta=50)
        case "record":
            return sealed(b"\x7f" + record[1:], offset)
        case "place":
            return sealed(record, offset - 2)
        case _:
            return sealed(record, offset, is_control=True, producer_id=1, producer_epoch=0)


@pytest.mark.parametrize(
    "what", ("crc", "magic", "compression", "count", "record", "place", "control")
)
@pytest.mark.parametrize("ahead", (0, 3))
def test_records_before_the_damage_are_listed_first(what: str, ahead: int) -> None:
    """All records are in one chunk, in a segment that no pass rewrites."""
    log = compacted(memory_world())
    put_each(log, *((b"k", b"v%d" % at) for at in range(ahead + 2)))
    segment = log.segments.first
    ends = [at.end_position for at in segment.batches(0)]
    tail = segment.file.read(ends[ahead], ends[-1] - ends[ahead])
    start = ends[ahead - 1] if ahead else 0
    segment.file.truncate(start)
    segment.file.append([damaged(ahead, what), tail])
    segment.size_bytes = segment.file.size()
    told: list[int] = []
    with pytest.raises(CorruptRecordError) as refused:
        told.extend(
            offset
            for chunk in list_fates(log, ALL_KEYS, cleanable_state(log, None, 0))
            for offset in chunk.offsets.tolist()
        )
    assert told == list(range(ahead))
    assert refused.value.position == start


def test_aborted_records_that_cannot_be_parsed_are_damage() -> None:
    """A pass drops them without parsing; listing their fates parses them."""
    log = compacted(memory_world())
    producer = Producer(log, 1)
    producer.send((b"key", b"v"))
    producer.abort()
    log.writer.roll()
    segment = log.segments.first
    data = bytearray(segment.file.read(0, segment.size_bytes))
    data[61] = 0x7F  # the record's length
    segment.file.write_at([data], 0)
    with pytest.raises(CorruptRecordError):
        listing(log)


@pytest.mark.parametrize("strategy", ("timestamp", "header"))
def test_under_versions_an_earlier_record_may_win(strategy: str) -> None:
    """By timestamp or by header the first record of `a` survives."""
    with new_broker() as broker:
        topic(broker, compaction_strategy=strategy, compaction_strategy_header="v")
        for key, version in ((b"a", 300), (b"b", 100), (b"a", 200), (b"b", 150), (b"c", 1)):
            header = ("v", version.to_bytes(8, "big"))
            broker.append(
                "t", value=b"x", key=key, timestamp=version, headers=[header], partition=0
            )
        broker.roll("t")
        assert told(broker) == [
            (0, b"a", "retained", None),
            (1, b"b", "superseded", 3),
            (2, b"a", "superseded", 0),
            (3, b"b", "retained", None),
            (4, b"c", "retained", None),
        ]
        stats = broker.clean("t", dry_run=True, force=True).cleaned[0]
        assert (stats.fates["superseded"], stats.fates["retained"]) == (2, 3)
