"""Logs to be cleaned: the shape that was asked for, the same bytes for a seed."""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from logstore.bench.micro.logs import CLEANED_AT_MS, MIB, TOPIC, LogShape, key_count, make_log
from logstore.broker import Broker
from logstore.runtime import FixedWallClock
from logstore.storage.log.reader import Isolation

SMALL = LogShape(100, 0.2, 10, total_bytes=MIB)


def opened(path):
    return Broker(path, clock=FixedWallClock(CLEANED_AT_MS), read_only=True)


def digest(path):
    files = sorted(path.rglob("*.log"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@pytest.mark.parametrize("survivors", (0.02, 0.1, 0.5, 0.9))
def test_share_of_survivors_matches_the_shape(survivors):
    records = 200_000
    keys = key_count(records, survivors)
    random = np.random.Generator(np.random.Philox(1))
    ranks = (keys * random.random(records) ** 2).astype(np.int64)
    assert len(np.unique(ranks)) / records == pytest.approx(survivors, rel=0.02)


def test_a_seed_gives_the_same_bytes_and_another_others(tmp_path):
    for name, shape in {"a": SMALL, "b": SMALL, "c": replace(SMALL, seed=2)}.items():
        make_log(shape, tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a") != digest(tmp_path / "c")


@pytest.mark.parametrize("batch_records", (1, 10))
def test_a_log_matches_its_shape(tmp_path, batch_records):
    shape = replace(SMALL, batch_records=batch_records, partitions=2)
    size = make_log(shape, tmp_path / "log")
    assert size == pytest.approx(2 * MIB, rel=0.15)
    with opened(tmp_path / "log") as broker:
        for number in range(2):
            log = broker.log(TOPIC, number)
            assert len(log.segments.view) > 3
            assert log.active_segment.size_bytes < 100
            records = list(broker.read(TOPIC, number))
            assert len(records) == shape.records + 1
            assert len({record.key for record in records}) / len(records) == pytest.approx(
                0.2, rel=0.1
            )
        batches = sum(1 for _ in broker.log(TOPIC).reader.batches(0))
    assert (shape.records + 1) / batches == pytest.approx(batch_records, rel=0.1)


def test_a_mixed_log_has_headers_tombstones_transactions_and_keys_of_many_sizes(tmp_path):
    make_log(replace(SMALL, mixed=True), tmp_path / "log")
    with opened(tmp_path / "log") as broker:
        batches = list(broker.log(TOPIC).reader.batches(0, isolation=Isolation.LOG_END))
        records = [
            record for batch in batches if not batch.header.is_control for record in batch.records()
        ]
    sizes = Counter(len(record.key) for record in records)
    assert (min(sizes), max(sizes)) == (4, 64)
    assert sum(record.value is None for record in records) / len(records) == pytest.approx(
        0.05, abs=0.02
    )
    data = [batch.header for batch in batches if not batch.header.is_control]
    share = sum(header.is_transactional for header in data) / len(data)
    assert share == pytest.approx(0.1, abs=0.03)
    assert {len(record.headers) for record in records} == {0, 1, 2}
    assert any(batch.header.is_control for batch in batches)


def test_a_clean_tail_has_each_key_once_and_the_dirty_section_begins_a_segment(tmp_path):
    shape = replace(SMALL, clean_tail=10)
    make_log(shape, tmp_path / "log")
    with opened(tmp_path / "log") as broker:
        records = list(broker.read(TOPIC))
        log = broker.log(TOPIC)
        assert shape.clean_records in [segment.base_offset for segment in log.segments.view]
        (summary,) = broker.explain(TOPIC).partitions
    clean, dirty = records[: shape.clean_records], records[shape.clean_records :]
    assert len({record.key for record in clean}) == len(clean)
    assert len(clean) / len(dirty) == pytest.approx(10, rel=0.02)
    assert summary.cleanable_ratio == pytest.approx(1 / 11, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ("gzip", "snappy", "lz4", "zstd"))
def test_a_compressed_log_is_smaller(tmp_path, codec):
    plain = make_log(SMALL, tmp_path / "plain")
    assert make_log(replace(SMALL, codec=codec), tmp_path / codec) < 0.8 * plain
    with opened(tmp_path / codec) as broker:
        assert sum(1 for _ in broker.read(TOPIC)) == SMALL.records + 1


def test_versions_are_in_the_headers_where_the_strategy_looks_for_them(tmp_path):
    make_log(replace(SMALL, strategy="header"), tmp_path / "log")
    with opened(tmp_path / "log") as broker:
        config = broker.describe_configs(TOPIC)
        assert config["compaction.strategy"].value == "header"
        record = next(iter(broker.read(TOPIC)))
        assert record.headers == ((config["compaction.strategy.header"].value, record_version(0)),)


def record_version(offset):
    return (offset ^ 5).to_bytes(8, "big")
