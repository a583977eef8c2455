"""The files of a generated topic: the blocks' records, in the engine's form, in virtual time."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import Broker
from logstore.errors import InvalidTimestampError
from logstore.inspect.check import Checker
from logstore.runtime import DiskFileSystem, Runtime, VirtualClock, random_source
from logstore.spark.datasource.commit import create_log
from logstore.storage.checkpoint.topic_id import read_partition_metadata
from logstore.storage.producers.snapshot import SnapshotFiles
from logstore.types import TopicPartition, decode_topic_id
from logstore.workload import blocks
from logstore.workload import spec as specs
from logstore.workload.parcels import COMMIT, DATA, ENTRY, build_parcels
from logstore.workload.presets import PRESETS
from logstore.workload.spec import Spec, from_mapping
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.generated import (
    all_parcels,
    blocks_of,
    digest,
    make_topic,
    preset,
    tree,
    wanted,
)

DAY_MS = 86_400_000
SMALL_SEGMENTS = {"segment.bytes": 65_536, "index.interval.bytes": 1_000}
EVERYTHING = {
    "records": 3_000,
    "partitions": 3,
    "keys": {"count": 300, "distribution": "uniform"},
    "values": {"sizes": "uniform", "min_bytes": 0, "max_bytes": 80},
    "deletes": {"share": 0.1},
    "time": {"days": 20.0, "late_share": 0.2},
    "versions": {"header": "v", "late_share": 0.2, "missing_share": 0.1, "malformed_share": 0.1},
    "producers": {"count": 5, "transactional": 3, "transaction_records": 20, "abort_share": 0.4},
    "batches": {"min_records": 1, "max_records": 90, "codec": "lz4"},
    "configs": SMALL_SEGMENTS,
}


def everything(**changes) -> Spec:
    return from_mapping({**EVERYTHING, **changes})


def small(name: str) -> Spec:
    """Return a preset of few records; sessions must be fewer, too."""
    records = 600 if name == "adversarial" else 2_000
    keys = {"count": 500, "hot_keys": 50} if name == "session-store" else {"count": 250}
    return preset(name, records=records, partitions=3, keys=keys)


def end_ms(spec: Spec) -> int:
    return spec.time.start_ms + round(spec.time.days * DAY_MS)


def contents(files: dict[str, tuple[bytes, int]]) -> dict[str, bytes]:
    return {name: data for name, (data, _) in files.items()}


def found(path, spec: Spec) -> dict[int, list]:
    """Return the contents of each partition in the form of `wanted`, without append times."""
    with Broker(path, read_only=True) as broker:
        return {
            number: [
                (
                    batch.header.producer_id,
                    batch.header.is_transactional,
                    batch.header.is_control,
                    tuple((r.key, r.value, r.timestamp, r.headers) for r in batch.records()),
                )
                for batch in broker.log(spec.topic, number).reader.batches(0)
            ]
            for number in range(spec.partitions)
        }


def without_times(batches: dict[int, list]) -> dict[int, list]:
    return {
        number: [(each.producer, each.transactional, each.control, each.records) for each in own]
        for number, own in batches.items()
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_files_hold_what_its_blocks_say(tmp_path, name) -> None:
    spec = small(name)
    made = make_topic(spec, tmp_path)
    assert found(tmp_path, spec) == without_times(wanted(spec))
    assert sum(each.records for each in made) == spec.records
    with Broker(tmp_path, read_only=True) as broker:
        assert dict(broker.topic(spec.topic).configs) == spec.topic_configs
        for each in made:
            log = broker.log(spec.topic, each.written.partition)
            headers = [batch.header for batch in log.reader.batches(0)]
            assert each.markers == sum(header.is_control for header in headers)
            assert each.batches == len(headers) - each.markers
            assert each.bytes == log.size_bytes == sum(header.size_bytes for header in headers)
            codecs = {header.codec_id for header in headers if not header.is_control}
            assert len(codecs) == 1
            assert (codecs == {0}) == (spec.batches.codec == "none")


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_topic_is_sound_opens_without_recovery_and_is_cleaned(tmp_path, name) -> None:
    spec = small(name)
    make_topic(spec, tmp_path)
    assert list(Checker(DiskFileSystem()).path(str(tmp_path))) == []
    before = tree(tmp_path)
    with Broker(tmp_path, clock=VirtualClock(end_ms(spec))) as broker:
        logs = [broker.log(spec.topic, number) for number in range(spec.partitions)]
        assert [log.findings for log in logs] == [()] * 3
        assert [log.recovery_point for log in logs] == [log.log_end_offset for log in logs]
        topic = broker.topic(spec.topic)
        ids = [read_partition_metadata(DiskFileSystem(), str(log.directory)) for log in logs]
        assert ids == [decode_topic_id(topic.id)] * 3
    # The active segment's indexes were opened and trimmed again, which changes their times.
    assert contents(tree(tmp_path)) == contents(before)
    now = VirtualClock(end_ms(spec) + 10 * DAY_MS)
    with Broker(tmp_path, clock=now) as broker:
        report = broker.clean(spec.topic, force=True, roll=True)
        assert not report.not_cleaned
        assert len(report.passes_needed) == 3
        left = sum(1 for n in range(3) for _ in broker.log(spec.topic, n).reader.records(0))
    assert 0 < left < spec.records
    assert list(Checker(DiskFileSystem()).path(str(tmp_path))) == []


@pytest.mark.parametrize(
    ("producers", "configs"),
    (
        (EVERYTHING["producers"], SMALL_SEGMENTS),
        ({"count": 3}, SMALL_SEGMENTS),
        ({"count": 3}, {"segment.ms": 3 * DAY_MS, "segment.jitter.ms": DAY_MS}),
        ({"count": 3}, {"segment.index.bytes": 400, "index.interval.bytes": 0}),
        ({"count": 3}, {"segment.index.bytes": 400, "index.interval.bytes": 500}),
        ({"count": 40, "transactional": 30, "transaction_records": 5}, SMALL_SEGMENTS),
    ),
)
def test_a_broker_would_have_written_the_same_files(tmp_path, producers, configs) -> None:
    """Each batch is appended alone like a client's, each marker like the coordinator's."""
    batches = {"min_records": 1, "max_records": 20}
    spec = everything(producers=producers, configs=configs, batches=batches)
    make_topic(spec, tmp_path / "made")
    (tmp_path / "again").mkdir()
    for number in range(spec.partitions):
        with Broker(tmp_path / "made", read_only=True) as broker:
            batches = list(broker.log(spec.topic, number).reader.batches(0))
        clock = VirtualClock(spec.time.start_ms)
        rng = random_source(spec.seed * spec.partitions + number)
        runtime = Runtime(clock, DiskFileSystem(clock), rng)
        tp = TopicPartition(spec.topic, number)
        log = create_log(runtime, f"{tmp_path}/again/{tp}", tp, spec.topic_configs)
        entries = [
            entry
            for parcel in all_parcels(spec)
            if parcel.partition == number
            for entry in np.frombuffer(parcel.entries, ENTRY).tolist()
        ]
        next_check = spec.time.start_ms + 600_000
        for (kind, producer, _, at_ms), batch in zip(entries, batches, strict=True):
            while next_check <= at_ms:
                clock.set_ms(next_check)
                log.producer_state.remove_expired(next_check)
                next_check += 600_000
            clock.set_ms(at_ms)
            if kind == DATA:
                info = log.writer.append_batches(
                    with_offset_and_epoch(batch.data, 0, -1), leader_epoch=0
                )
                assert not info.is_duplicate
            else:
                log.writer.append_end_txn_marker(producer, 0, 0, commit=kind == COMMIT)
        log.close()
    assert tree(tmp_path / "again") == tree(tmp_path / "made")
    assert len(list(tmp_path.glob("made/*/*.log"))) > 2 * spec.partitions


@pytest.mark.slow
@settings(max_examples=40)
@given(
    records=st.integers(1, 250),
    partitions=st.integers(1, 4),
    seed=st.integers(0, 2**64 - 1),
    producers=st.integers(1, 5),
    transactional=st.integers(0, 5),
    transaction_records=st.integers(1, 40),
    idempotent=st.booleans(),
    low=st.integers(1, 20),
    more=st.integers(0, 60),
    codec=st.sampled_from(("none", "gzip", "snappy", "lz4", "zstd")),
    header=st.sampled_from(("", "v", "é" * 80)),
    value_bytes=st.integers(0, 300),
    days=st.sampled_from((0.0, 0.001, 3.0, 400.0)),
    segment_bytes=st.integers(60_000, 70_000),
)
def test_files_match_the_blocks_for_any_workload(
    records, partitions, seed, producers, transactional, transaction_records, idempotent, low,
    more, codec, header, value_bytes, days, segment_bytes,
) -> None:  # fmt: skip
    spec = from_mapping(
        {
            "records": records,
            "partitions": partitions,
            "seed": seed,
            "keys": {"count": 9, "distribution": "uniform", "prefix": ""},
            "values": {"bytes": value_bytes},
            "deletes": {"share": 0.3},
            "time": {"days": days, "late_share": 0.3},
            "versions": {"header": header, **({"malformed_share": 0.3} if header else {})},
            "producers": {
                "count": producers,
                "transactional": min(transactional, producers),
                "transaction_records": transaction_records,
                "abort_share": 0.5 if transactional else 0.0,
                "idempotent": idempotent,
            },
            "batches": {"min_records": low, "max_records": low + more, "codec": codec},
            "configs": {"segment.bytes": segment_bytes},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        make_topic(spec, path)
        expected = {
            number: [
                batch if idempotent or batch[1] else (-1, *batch[1:])  # of no known producer
                for batch in own
            ]
            for number, own in without_times(wanted(spec)).items()
        }
        assert found(path, spec) == expected
        assert list(Checker(DiskFileSystem()).path(folder)) == []


def test_sequences_of_a_producer_continue_in_each_partition_across_blocks(
    tmp_path, monkeypatch
) -> None:
    small_blocks(monkeypatch, 1_000)
    spec = everything()
    assert spec.blocks == 3
    make_topic(spec, tmp_path)
    with Broker(tmp_path, read_only=True) as broker:
        for number in range(spec.partitions):
            log = broker.log(spec.topic, number)
            data = [b.header for b in log.reader.batches(0) if not b.header.is_control]
            for producer in range(5):
                own = [header for header in data if header.producer_id == producer]
                assert own[0].base_sequence == 0
                assert all(a.last_sequence + 1 == b.base_sequence for a, b in pairwise(own))
                assert {header.producer_epoch for header in own} == {0}
                assert {header.partition_leader_epoch for header in own} == {0}


def small_blocks(monkeypatch, records: int) -> None:
    for module in (blocks, specs):
        monkeypatch.setattr(module, "BLOCK_RECORDS", records)


def test_producers_that_are_not_idempotent_leave_no_name(tmp_path) -> None:
    spec = everything(producers={"count": 3, "transactional": 1, "idempotent": False})
    make_topic(spec, tmp_path)
    with Broker(tmp_path, read_only=True) as broker:
        headers = [b.header for n in range(3) for b in broker.log(spec.topic, n).reader.batches(0)]
    plain = [header for header in headers if not header.is_transactional]
    assert {(h.producer_id, h.producer_epoch, h.base_sequence) for h in plain} == {(-1, -1, -1)}
    assert {h.producer_id for h in headers if h.is_transactional} == {0}


def test_no_later_producer_gets_an_id_of_the_workloads(tmp_path) -> None:
    spec = everything(producers={"count": 900})
    make_topic(spec, tmp_path)
    # All of them have expired by now: the log does not contain them.
    with Broker(tmp_path, clock=VirtualClock(end_ms(spec) + 1_000 * DAY_MS)) as broker:
        producer = broker.producer(enable_idempotence=True)
        producer.send(spec.topic, key=b"k", value=b"v").get()
        producer.close()
        ids = {
            b.header.producer_id
            for n in range(3)
            for b in broker.log(spec.topic, n).reader.batches(0)
        }
    assert sorted(ids)[-1] >= 900
    assert sorted(ids)[-2] < 900


def test_committed_readers_do_not_see_what_was_aborted(tmp_path) -> None:
    spec = everything()
    make_topic(spec, tmp_path)
    kept = [
        block.key[row].tobytes()
        for block in blocks_of(spec)
        for row in np.flatnonzero(~block.aborted)
    ]
    assert 0 < len(kept) < 0.9 * spec.records
    with Broker(tmp_path, read_only=True) as broker:
        read = [
            r.key for n in range(3) for r in broker.read(spec.topic, n, isolation="read_committed")
        ]
        assert sorted(read) == sorted(kept)
        logs = [broker.log(spec.topic, n) for n in range(3)]
        assert [log.last_stable_offset for log in logs] == [log.log_end_offset for log in logs]
    assert any(path.stat().st_size for path in tmp_path.rglob("*.txnindex"))


def test_segments_roll_and_files_are_dated_by_the_virtual_days(tmp_path) -> None:
    spec = everything(configs={"segment.ms": 2 * DAY_MS, "segment.jitter.ms": DAY_MS})
    make_topic(spec, tmp_path)
    batches = wanted(spec)
    with Broker(tmp_path, read_only=True) as broker:
        for number in range(spec.partitions):
            log = broker.log(spec.topic, number)
            assert 10 < len(log.segments.view) < 24, "20 days, a segment each one to two"
            places = [batch.header.base_offset for batch in log.reader.batches(0)]
            for segment in log.segments.view[:-1]:
                following = log.segments.higher(segment.base_offset)
                last = batches[number][places.index(following.base_offset) - 1]
                assert segment.last_modified_ms == last.appended
            assert log.active_segment.last_modified_ms == batches[number][-1].appended


def test_a_topic_of_log_append_time_has_the_times_of_arrival(tmp_path) -> None:
    spec = everything(configs={**SMALL_SEGMENTS, "message.timestamp.type": "LogAppendTime"})
    make_topic(spec, tmp_path)
    batches = wanted(spec)
    with Broker(tmp_path, read_only=True) as broker:
        for number, own in batches.items():
            stored = list(broker.log(spec.topic, number).reader.batches(0))
            assert [b.header.max_timestamp for b in stored] == [each.appended for each in own]
            assert {int(b.header.timestamp_type) for b in stored} == {1}


def test_a_topics_own_codec_overrules_the_producers(tmp_path) -> None:
    spec = everything(configs={"compression.type": "zstd"})
    make_topic(spec, tmp_path)
    with Broker(tmp_path, read_only=True) as broker:
        stored = [b for b in broker.log(spec.topic, 0).reader.batches(0) if not b.header.is_control]
    assert {batch.codec.name for batch in stored} == {"ZSTD"}


def test_silent_producers_are_forgotten_as_a_broker_forgets_them(tmp_path) -> None:
    """In 30 days 12 producers send 60 records: most were silent for the last day."""
    spec = from_mapping(
        {"records": 60, "partitions": 1, "keys": {"count": 10}, "time": {"days": 30},
         "producers": {"count": 12}, "batches": {"min_records": 1, "max_records": 1}}
    )  # fmt: skip
    make_topic(spec, tmp_path)
    block = blocks.build_block(spec, 0)
    tp = TopicPartition(spec.topic, 0)
    files = SnapshotFiles(DiskFileSystem(), str(tmp_path / str(tp)))
    known = {entry.producer_id for entry in files.read(files.latest_offset)}
    last = int(block.appended[-1])
    recent = block.producer[block.timestamp > last - DAY_MS]
    assert set(recent.tolist()) == known
    assert 0 < len(known) < 6


def test_partitions_without_a_record_are_there(tmp_path) -> None:
    spec = from_mapping({"records": 50, "partitions": 7, "keys": {"count": 2}})
    made = make_topic(spec, tmp_path)
    assert [each.written.partition for each in made] == list(range(7))
    assert sum(each.records > 0 for each in made) <= 2
    assert list(Checker(DiskFileSystem()).path(str(tmp_path))) == []
    with Broker(tmp_path, read_only=True) as broker:
        assert broker.topic(spec.topic).partitions == tuple(range(7))


def test_where_parcels_are_cut_makes_no_difference(tmp_path, monkeypatch) -> None:
    small_blocks(monkeypatch, 1_000)
    spec = everything()
    for name, size in (("whole", 8 << 20), ("cut", 5_000)):
        make_topic(spec, tmp_path / name, size)
    assert len(all_parcels(spec, 5_000)) > 3 * len(all_parcels(spec))
    assert tree(tmp_path / "cut") == tree(tmp_path / "whole")


def test_a_batch_that_the_topics_configuration_refuses_is_refused(tmp_path) -> None:
    spec = everything(configs={"message.timestamp.before.max.ms": 1_000})
    with pytest.raises(InvalidTimestampError):
        list(build_parcels(spec, 0))


GOLDEN = "b404532754c9639eff4451499e17edf07ed287d84fd226cb6eb26d0a2369f168"


def test_the_files_of_a_seed_match_every_release(tmp_path) -> None:
    spec = everything(seed=280, batches={"min_records": 1, "max_records": 90})
    make_topic(spec, tmp_path)
    assert digest(tmp_path) == GOLDEN
