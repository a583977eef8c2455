"""Workload files: defaults, presets, and errors that suggest the nearest name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

from logstore.errors import InvalidConfigurationError
from logstore.workload.parcels import ENTRY, build_parcels
from logstore.workload.presets import PRESETS
from logstore.workload.spec import BLOCK_RECORDS, Spec, parse
from tests.support.world.generated import preset
from tests.support.world.messages import exactly


def test_an_empty_file_is_the_default() -> None:
    assert parse("") == Spec()


def test_file_content_is_read_as_written() -> None:
    spec = parse(
        """
        topic = "users"
        records = 1_000
        seed = 18446744073709551615
        [keys]
        count = 11
        distribution = "moving-hot-set"
        hot_keys = 3
        sweeps = 2
        [time]
        start = 2024-02-29T12:00:00+02:00
        days = 2
        [producers]
        count = 3
        transactional = 2
        """
    )
    assert (spec.topic, spec.records, spec.partitions) == ("users", 1_000, 8)
    assert spec.seed == 2**64 - 1
    assert (spec.keys.digits, spec.keys.sweeps) == (2, 2.0)
    assert spec.time.start_ms == 1_709_200_800_000
    assert spec.producers.transactional == 2
    assert spec.blocks == 1


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_workload(name: str) -> None:
    assert preset(name).topic == name
    assert preset(name, records=2 * BLOCK_RECORDS + 1).blocks == 3


def test_a_file_wins_over_its_preset_key_by_key() -> None:
    spec = parse('preset = "cdc-table"\n[versions]\nlate_share = 0.5\n[values]\nbytes = 10')
    assert (spec.versions.header, spec.versions.late_share) == ("lsn", 0.5)
    assert (spec.values.bytes, spec.values.sigma) == (10, 0.8)
    assert {
        name: table for name, table in asdict(spec).items() if name not in ("versions", "values")
    } == {
        name: table
        for name, table in asdict(preset("cdc-table")).items()
        if name not in ("versions", "values")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("recrods = 1", "unknown key recrods; the nearest is 'records'"),
        ("[key]", "unknown key key; the nearest is 'keys'"),
        (
            "[keys]\ndistributon = 'zipf'",
            "unknown key keys.distributon; the nearest is 'distribution'",
        ),
        (
            "[keys]\ndistribution = 'zpif'",
            (
                "keys.distribution 'zpif' is not one of zipf, uniform, moving-hot-set; the "
                "nearest is 'zipf'"
            ),
        ),
        (
            "preset = 'cdc'",
            (
                "unknown preset 'cdc'; presets are user-accounts, consumer-offsets, "
                "cdc-table, iot-last-value, session-store, adversarial; the nearest is "
                "'cdc-table'"
            ),
        ),
        (
            "preset = 5",
            (
                "unknown preset 5; presets are user-accounts, consumer-offsets, cdc-table, "
                "iot-last-value, session-store, adversarial"
            ),
        ),
        ("keys = 5", "keys must be a table, not 5"),
        ("preset = 'cdc-table'\nkeys = 5", "keys must be a table, not 5"),
        ("records = 0", "records 0 is below 1"),
        ("records = true", "records must be an integer, not True"),
        ("records = 1.5", "records must be an integer, not 1.5"),
        ("topic = 1", "topic must be a string, not 1"),
        ("topic = ''", "the topic name is empty"),
        ("seed = 18446744073709551616", "seed 18446744073709551616 is above 18446744073709551615"),
        ("[deletes]\nshare = 1.5", "deletes.share 1.5 is above 1.0"),
        ("[deletes]\nshare = nan", "deletes.share nan is not a finite number"),
        ("[deletes]\nshare = 'x'", "deletes.share must be a number, not 'x'"),
        ("[deletes]\nwith_event = 1", "deletes.with_event must be true or false, not 1"),
        (
            "[deletes]\non_expiry = true",
            "deletes.on_expiry needs keys.distribution 'moving-hot-set'",
        ),
        (
            "preset = 'session-store'\nrecords = 99_999",
            (
                "deletes.on_expiry deletes keys.count x keys.sweeps = 100000 keys, which "
                "exceeds the number of records (99999)"
            ),
        ),
        (
            "[keys]\ncount = 50_000_001",
            "keys.count 50000001 is above 50000000, the maximum for zipf",
        ),
        (
            "[keys]\ncount = 5\ndistribution = 'moving-hot-set'",
            "keys.hot_keys 1000 is above keys.count 5",
        ),
        (
            "[values]\nsizes = 'uniform'\nmin_bytes = 9\nmax_bytes = 8",
            "values.min_bytes 9 is above values.max_bytes 8",
        ),
        ("[values]\nbytes = 20_000", "values are 20000 bytes on average, above 16384"),
        (
            "[versions]\nlate_share = 0.1",
            "versions.late_share, missing_share and malformed_share need versions.header",
        ),
        (
            "[versions]\nheader = 'v'\nmissing_share = 0.6\nmalformed_share = 0.6",
            "the sum of versions.missing_share and versions.malformed_share is above 1",
        ),
        ("[producers]\ntransactional = 2", "producers.transactional 2 is above producers.count 1"),
        (
            "[producers]\nabort_share = 0.1",
            "producers.abort_share 0.1 needs producers.transactional above 0",
        ),
        (
            "[keys]\ndistribution = 'uniform'\nexponent = 1",
            ("keys.exponent 1 has no effect with keys.distribution 'uniform': it needs 'zipf'"),
        ),
        (
            "[keys]\nhot_keys = 9",
            (
                "keys.hot_keys 9 has no effect with keys.distribution 'zipf': it needs "
                "'moving-hot-set'"
            ),
        ),
        (
            "[values]\nsigma = 2",
            "values.sigma 2 has no effect with values.sizes 'fixed': it needs 'lognormal'",
        ),
        (
            "[configs]\n'cleanup.policy' = 'delete'",
            "configs cleanup.policy 'delete' does not include compact",
        ),
        (
            "[batches]\nmin_records = 101",
            "batches.min_records 101 is above batches.max_records 100",
        ),
        (
            "[batches]\ncodec = 'zst'",
            (
                "batches.codec 'zst' is not one of none, gzip, snappy, lz4, zstd; the nearest"
                " is 'zstd'"
            ),
        ),
        (
            "[time]\nstart = 'noon'",
            "time.start 'noon' is not an ISO 8601 time: Invalid isoformat string: 'noon'",
        ),
        (
            "[time]\nstart = '1970-01-01'\nlate_share = 0.1",
            (
                "time.start '1970-01-01' minus time.late_ms is before 1970: Kafka refuses "
                "negative timestamps"
            ),
        ),
        ("a = = b", "the workload is not TOML: Invalid value (at line 1, column 5)"),
        ("configs = 5", "configs must be a table, not 5"),
        (
            "[configs]\n'segment.byte' = 1",
            "unknown topic configuration 'segment.byte'; the nearest is 'segment.bytes'",
        ),
        (
            "[configs]\nsegment.byte = 1",
            "unknown topic configuration 'segment.byte'; the nearest is 'segment.bytes'",
        ),
        (
            "[configs]\n'segment.bytes' = 'x'",
            ("segment.bytes = 'x' is not allowed: it must be a 32-bit integer of at least 14"),
        ),
        (
            "[configs]\n'max.compaction.lag.ms' = 1\n'min.compaction.lag.ms' = 2",
            (
                "max.compaction.lag.ms = 1 must not be below min.compaction.lag.ms = 2: both "
                "are the topic's own"
            ),
        ),
        (
            "[configs]\n'max.message.bytes' = 9000",
            (
                "a batch of batches.max_records 100 may take 18467 bytes, above "
                "max.message.bytes 9000: raise max.message.bytes, or use fewer or smaller "
                "records"
            ),
        ),
        (
            "[configs]\n'segment.bytes' = 9000",
            (
                "a batch of batches.max_records 100 may take 18467 bytes, above segment.bytes"
                " 9000: raise segment.bytes, or use fewer or smaller records"
            ),
        ),
        (
            "[values]\nbytes = 16000\n[batches]\nmax_records = 20000\n",
            (
                "a batch of batches.max_records 20000 may take 323350719 bytes, above "
                "logstore.decompression.max.bytes 268435456: raise "
                "logstore.decompression.max.bytes, or use fewer or smaller records"
            ),
        ),
    ),
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        parse(text)


def test_configurations_use_kafkas_keys_and_override_the_preset() -> None:
    assert Spec().configs == parse("").configs == {"cleanup.policy": "compact"}
    spec = parse(
        """
        preset = "session-store"
        [configs]
        "retention.ms" = 5
        "cleanup.policy" = ["compact"]
        segment.ms = 70
        preallocate = true
        """
    )
    expected = {
        **preset("session-store").configs,
        "retention.ms": "5",
        "cleanup.policy": "compact",
        "segment.ms": "70",
        "preallocate": "true",
    }
    assert spec.configs == expected
    more = spec.with_configs({"segment.ms": 71, "retention.bytes": "6"})
    assert more.configs == expected | {"segment.ms": "71", "retention.bytes": "6"}
    assert preset("session-store", configs={"segment.ms": 3}).configs["segment.ms"] == "3"
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("unknown topic configuration 'segment.mss'; the nearest is 'segment.ms'"),
    ):
        spec.with_configs({"segment.mss": 1})


def test_a_topic_has_room_for_its_largest_batch() -> None:
    spec = parse("[values]\nbytes = 10_000\n[batches]\nmax_records = 100")
    assert spec.largest_batch_bytes < 1_048_588
    assert spec.topic_configs == spec.configs
    spec = parse("[values]\nbytes = 10_000\n[batches]\nmax_records = 200")
    room = str(spec.largest_batch_bytes)
    assert spec.topic_configs == {**spec.configs, "max.message.bytes": room}
    own = spec.with_configs({"max.message.bytes": 5_000_000})
    assert own.topic_configs["max.message.bytes"] == "5000000"


@pytest.mark.parametrize("codec", ("none", "gzip", "snappy", "lz4", "zstd"))
def test_no_batch_is_larger_than_the_largest(codec: str) -> None:
    """Of random bytes, which every codec makes larger, all of the largest size."""
    spec = parse(
        f"""
        records = 1_000
        partitions = 1
        values = {{bytes = 5_000, content = "random"}}
        batches = {{min_records = 500, max_records = 500, codec = "{codec}"}}
        """
    )
    sizes = [np.frombuffer(each.entries, ENTRY)["size"].max() for each in build_parcels(spec, 0)]
    assert 500 * 5_000 < max(sizes) < spec.largest_batch_bytes


def test_parsing_needs_neither_spark_nor_numpy() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['numpy'] = None\n"
        "from logstore.workload.spec import parse\n"
        "print(parse('records = 5').records)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"


def test_a_start_may_be_a_date_of_toml() -> None:
    assert parse("[time]\nstart = 2024-01-02").time.start_ms == 1_704_153_600_000
    assert parse("[time]\nstart = 1970-01-01").time.start_ms == 0
