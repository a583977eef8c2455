"""Generated blocks: the same bytes for a seed, and the distributions that were asked for."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.partitioner import murmur2
from logstore.workload import draws
from logstore.workload.blocks import (
    MALFORMED_VERSION,
    NO_TRANSACTION,
    NO_VERSION,
    VERSION,
    build_block,
    repartition_block,
)
from logstore.workload.presets import PRESETS
from logstore.workload.spec import BLOCK_RECORDS, Spec, from_mapping
from tests.support.world.generated import blocks_of, preset

SMALL = {"count": 1_000, "distribution": "uniform"}


def spec_of(**tables) -> Spec:
    return from_mapping({"records": 20_000, "keys": SMALL, **tables})


def digest(block) -> str:
    """Hash everything that a block holds."""
    hashed = hashlib.sha256()
    for each in fields(block):
        if each.name == "key_number":  # which the key says
            continue
        column = getattr(block, each.name)
        for array in column if isinstance(column, tuple) else (column,):
            hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


@pytest.mark.parametrize("name", PRESETS)
def test_blocks_know_nothing_of_those_before_them(name: str) -> None:
    spec = preset(name, records=2 * BLOCK_RECORDS + 4_000)
    in_order = [digest(block) for block in blocks_of(spec)]
    assert in_order == [digest(build_block(spec, number)) for number in (2, 1, 0)][::-1]
    assert in_order[0] != in_order[1]


def test_any_split_of_the_blocks_gives_the_same_bytes() -> None:
    spec = spec_of(records=6 * BLOCK_RECORDS + 77, values={"bytes": 1}, producers={"count": 2})
    whole = [digest(block) for block in blocks_of(spec)]
    assert len(set(whole)) == spec.blocks == 7
    for splits in (2, 3, 16):
        cuts = [7 * part // splits for part in range(splits + 1)]
        for part in reversed(range(splits)):
            numbers = range(cuts[part], cuts[part + 1])
            made = [digest(block) for block in blocks_of(spec, numbers)]
            assert made == whole[numbers.start : numbers.stop]


def test_the_bytes_of_a_seed_match_every_release() -> None:
    spec = preset("adversarial", records=3_000, seed=42)
    assert digest(build_block(spec, 0)) == GOLDEN


GOLDEN = "664b60a7d8293b448b61259a751d36b39a21129be2f7b2562210430c0e5c3629"


def test_seeds_and_blocks_differ() -> None:
    one, other = (spec_of(seed=seed, records=2 * BLOCK_RECORDS) for seed in (1, 2))
    digests = {digest(build_block(spec, number)) for spec in (one, other) for number in (0, 1)}
    assert len(digests) == 4
    with pytest.raises(IndexError, match="block 2 of 2"):
        build_block(one, 2)


def test_one_feature_leaves_the_draws_of_the_others_alone() -> None:
    plain = build_block(spec_of(), 0)
    more = build_block(
        spec_of(
            deletes={"share": 0.2},
            versions={"header": "v", "late_share": 0.3},
            producers={"count": 3, "transactional": 2},
        ),
        0,
    )
    by_event = [block.key[np.argsort(block.event)] for block in (plain, more)]
    assert np.array_equal(*by_event)


@given(st.binary(min_size=1, max_size=40))
def test_murmur2_is_kafkas(key: bytes) -> None:
    keys = np.frombuffer(key * 3, dtype=np.uint8).reshape(3, len(key))
    assert draws.murmur2(keys).tolist() == [murmur2(key)] * 3


@given(
    producers=st.integers(1, 5),
    transactional=st.integers(0, 5),
    transaction_records=st.integers(1, 40),
    low=st.integers(1, 20),
    more=st.integers(0, 20),
    partitions=st.integers(1, 4),
    records=st.integers(1, 500),
    seed=st.integers(0, 2**64 - 1),
)
def test_batches_and_transactions_hold_together(
    producers, transactional, transaction_records, low, more, partitions, records, seed
) -> None:
    spec = spec_of(
        records=records,
        partitions=partitions,
        seed=seed,
        producers={
            "count": producers,
            "transactional": min(transactional, producers),
            "transaction_records": transaction_records,
            "abort_share": 0.5 if transactional else 0.0,
        },
        batches={"min_records": low, "max_records": low + more},
    )
    block = build_block(spec, 0)
    assert sorted(block.event.tolist()) == list(range(records))
    assert (np.diff(block.appended) >= 0).all()
    keys = [murmur2(key.tobytes()) & 0x7FFFFFFF for key in block.key]
    assert block.partition.tolist() == [key % partitions for key in keys]

    batches: dict = {}
    for row in range(records):
        of = (block.partition[row], block.producer[row], block.transaction[row])
        assert batches.setdefault(block.batch[row], of) == of
    assert (np.diff(block.batch) >= 0).all()
    assert np.bincount(block.batch).max() <= low + more

    outside = block.transaction == NO_TRANSACTION
    assert (outside == (block.producer >= spec.producers.transactional)).all()
    assert not block.aborted[outside].any()
    wrote: dict = {}
    for row in np.flatnonzero(~outside):
        wrote.setdefault(block.transaction[row], []).append(row)
    ends = block.markers
    assert (np.diff(ends.after) >= 0).all()
    told = set()
    for after, partition, producer, transaction, commit, _ in zip(*ends, strict=True):
        rows = wrote[transaction]
        assert len(rows) <= transaction_records
        assert (after, producer) == (rows[-1], block.producer[rows[0]])
        assert {bool(aborted) for aborted in block.aborted[rows]} == {not commit}
        told.add((transaction, partition))
    assert told == {
        (block.transaction[row], block.partition[row]) for row in np.flatnonzero(~outside)
    }
    # A producer has one transaction at a time: the next begins with a later event.
    for producer in range(spec.producers.transactional):
        mine = [rows for rows in wrote.values() if block.producer[rows[0]] == producer]
        spans = sorted((block.event[rows].min(), block.event[rows].max()) for rows in mine)
        assert all(one[1] < other[0] for one, other in pairwise(spans))


def test_two_producers_race() -> None:
    """KIP-280: of two updates of a key the later version can arrive first."""
    spec = spec_of(versions={"header": "v"}, producers={"count": 2}, keys={**SMALL, "count": 50})
    block = build_block(spec, 0)
    assert np.array_equal(block.version, block.event + 1)
    newest = np.zeros(50, dtype=np.int64)
    overtaken = 0
    for number, version in zip(block.key[:, -2:] @ [10, 1] - 48 * 11, block.version, strict=True):
        overtaken += version < newest[number]
        newest[number] = max(newest[number], version)
    assert overtaken > 100
    alone = build_block(
        spec_of(producers={"count": 1}, batches={"max_records": 1, "min_records": 1}), 0
    )
    assert np.array_equal(alone.event, alone.sequence)


def test_zipf_follows_its_law() -> None:
    block = build_block(
        spec_of(
            records=BLOCK_RECORDS, keys={"count": 1_000, "distribution": "zipf", "exponent": 1.0}
        ),
        0,
    )
    counts = np.bincount(block.key[:, -3:].astype(np.int64) @ [100, 10, 1] - 48 * 111)
    harmonic = (1 / np.arange(1, 1001)).sum()
    for rank in (1, 2, 3, 10, 50):
        expected = BLOCK_RECORDS / harmonic / rank
        assert abs(counts[rank - 1] - expected) < 5 * expected**0.5


def test_uniform_keys_are_even() -> None:
    block = build_block(spec_of(records=BLOCK_RECORDS, keys={**SMALL, "count": 100}), 0)
    counts = np.bincount(block.key[:, -2:].astype(np.int64) @ [10, 1] - 48 * 11)
    assert len(counts) == 100
    assert (abs(counts - BLOCK_RECORDS / 100) < 5 * (BLOCK_RECORDS / 100) ** 0.5).all()


def test_the_hot_set_moves_over_all_keys_and_expired_keys_are_deleted_once() -> None:
    keys = {"count": 2_000, "distribution": "moving-hot-set", "hot_keys": 100, "hot_share": 1.0}
    block = build_block(spec_of(keys=keys, deletes={"on_expiry": True}), 0)
    number = (block.key[:, -4:].astype(np.int64) @ [1000, 100, 10, 1]) - 48 * 1111
    start = block.event * 2_000 // 20_000
    ahead = (number - start) % 2_000
    assert (ahead[~block.tombstone] < 100).all()
    assert (ahead[block.tombstone] == 1_999).all(), "the key that just left"
    assert sorted(number[block.tombstone]) == list(range(1_999))
    mixed = build_block(spec_of(keys={**keys, "hot_share": 0.5}), 0)
    number = (mixed.key[:, -4:].astype(np.int64) @ [1000, 100, 10, 1]) - 48 * 1111
    inside = ((number - mixed.event * 2_000 // 20_000) % 2_000 < 100).mean()
    assert abs(inside - (0.5 + 0.5 * 100 / 2_000)) < 0.02


def test_deletes_come_at_their_share_and_after_their_event() -> None:
    block = build_block(spec_of(deletes={"share": 0.1}), 0)
    assert abs(block.tombstone.mean() - 0.1) < 0.01
    cdc = build_block(spec_of(deletes={"share": 0.1, "with_event": True}), 0)
    order = np.argsort(cdc.event)
    gone = np.flatnonzero(cdc.tombstone[order])
    assert 0.08 < len(gone) / len(cdc) < 0.1
    assert np.array_equal(cdc.key[order][gone], cdc.key[order][gone - 1])
    assert not cdc.tombstone[order][gone - 1].any()


@pytest.mark.parametrize(("share", "least"), ((0.1, 0.08), (0.5, 0.3), (1.0, 0.49)))
def test_a_tombstone_never_overtakes_its_event(share: float, least: float) -> None:
    """Both come from one producer, so in one order, however many there are at work."""
    block = build_block(
        spec_of(deletes={"share": share, "with_event": True}, producers={"count": 5}), 0
    )
    gone = np.flatnonzero(block.tombstone)
    assert least < len(gone) / len(block) <= 0.5
    place = np.empty(len(block), np.int64)
    place[block.event] = np.arange(len(block))
    before = place[block.event[gone] - 1]
    assert (before < gone).all()
    assert np.array_equal(block.key[before], block.key[gone])
    assert np.array_equal(block.producer[before], block.producer[gone])


@pytest.mark.parametrize(
    ("values", "mean"),
    (
        ({"bytes": 30}, 30),
        ({"sizes": "uniform", "min_bytes": 10, "max_bytes": 20}, 15),
        (
            {"sizes": "lognormal", "bytes": 50, "sigma": 0.5, "max_bytes": 5_000},
            50 * 2.718281828**0.125,
        ),
        ({"sizes": "fixed", "bytes": 0}, 0),
    ),
)
def test_values_have_the_requested_sizes(values, mean) -> None:
    block = build_block(spec_of(values=values), 0)
    sizes = np.diff(block.value.ends)
    assert abs(sizes.mean() - mean) <= mean * 0.02
    assert len(block.value.data) == sizes.sum()
    assert [len(block.value[row]) for row in range(10)] == sizes[:10].tolist()
    low, high = values.get("min_bytes", 0), values.get("max_bytes", 30)
    assert low <= sizes.min() <= sizes.max() <= high
    deleted = build_block(spec_of(values=values, deletes={"share": 0.5}), 0)
    assert not np.diff(deleted.value.ends)[deleted.tombstone].any()


def test_words_compress_and_random_bytes_do_not() -> None:
    import zlib

    ratio = {}
    for content in ("words", "random"):
        data = build_block(spec_of(values={"content": content}), 0).value.data.tobytes()
        ratio[content] = len(zlib.compress(data, 1)) / len(data)
    assert ratio["words"] < 0.6 < 0.99 < ratio["random"]


def test_timestamps_lag_and_versions_are_late_missing_and_malformed() -> None:
    spec = spec_of(
        time={"late_share": 0.2, "late_ms": 5_000, "days": 3.0, "daily_swing": 0.8},
        versions={"header": "v", "late_share": 0.25, "late_records": 40, "missing_share": 0.1,
                  "malformed_share": 0.05},
    )  # fmt: skip
    block = build_block(spec, 0)
    lag = draws.arrival_ms(spec, block.number, block.event) - block.timestamp
    assert (lag.min(), lag.max()) <= (0, 5_000)
    assert abs((lag > 0).mean() - 0.2) < 0.02
    forms = np.bincount(block.version_form, minlength=3) / len(block)
    assert np.allclose(
        forms[[NO_VERSION, VERSION, MALFORMED_VERSION]], [0.1, 0.85, 0.05], atol=0.01
    )
    stated = block.version_form != NO_VERSION
    behind = (block.event + 1 - block.version)[stated]
    assert (behind.min(), behind.max()) == (0, 40)
    assert abs((behind > 0).mean() - 0.25) < 0.02
    values = block.version_values()
    for row in range(200):
        sound = int(block.version[row]).to_bytes(8, "big", signed=True)
        assert values[row] == (b"", sound, sound[3:])[block.version_form[row]]


def test_records_arrive_over_the_days_and_mostly_at_noon() -> None:
    spec = spec_of(time={"days": 10.0, "daily_swing": 0.8})
    arrival = draws.arrival_ms(spec, 0, np.arange(20_000))
    assert arrival[0] == spec.time.start_ms
    assert (np.diff(arrival) >= 0).all()
    assert 0 < spec.time.start_ms + 10 * 86_400_000 - arrival[-1] < 86_400_000
    hours = np.bincount((arrival % 86_400_000) // 3_600_000, minlength=24)
    assert hours.argmax() in (11, 12)
    assert hours[[0, 23]].sum() * 5 < hours[[11, 12]].sum()


@pytest.mark.parametrize("arrival", ("even", "poisson"))
def test_arrivals_never_fall_and_stay_in_their_days(arrival):
    time = {"days": 2.0, "arrival": arrival, "daily_swing": 0.5, "profile": [1, 0, 3]}
    spec = spec_of(records=2 * BLOCK_RECORDS, time=time | {"burst_share": 0.5})
    blocks = [np.arange(BLOCK_RECORDS) + number * BLOCK_RECORDS for number in (0, 1)]
    arrivals = np.concatenate([draws.arrival_ms(spec, n, each) for n, each in enumerate(blocks)])
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[0] >= spec.time.start_ms
    assert arrivals[-1] < spec.time.start_ms + 2 * 86_400_000


def test_a_poisson_process_is_as_uneven_as_chance():
    spec = spec_of(records=BLOCK_RECORDS, time={"days": 1.0, "arrival": "poisson"})
    arrivals = draws.arrival_ms(spec, 0, np.arange(BLOCK_RECORDS)) - spec.time.start_ms
    counts = np.bincount(arrivals // 60_000, minlength=1440)
    assert 0.8 < counts.var() / counts.mean() < 1.2  # 1 for Poisson, near 0 for even arrivals


def test_a_profile_gives_the_share_of_each_part():
    spec = spec_of(records=8_000, time={"days": 4.0, "profile": [1, 0, 2, 1]})
    arrivals = draws.arrival_ms(spec, 0, np.arange(8_000)) - spec.time.start_ms
    assert np.bincount(arrivals // 86_400_000).tolist() == [2_000, 0, 4_000, 2_000]


def test_bursts_take_their_share_in_their_time():
    time = {"days": 1.0, "burst_share": 0.75, "burst_every_ms": 3_600_000, "burst_ms": 60_000}
    spec = spec_of(records=24_000, time=time)
    arrivals = draws.arrival_ms(spec, 0, np.arange(24_000)) - spec.time.start_ms
    in_bursts = (arrivals % 3_600_000 < 60_000).sum()
    assert abs(in_bursts - 18_000) <= 24


def test_keys_contain_their_numbers():
    spec = spec_of(keys={"count": 12_345, "prefix": "k-"})
    numbers = np.array([0, 7, 12_344])
    assert (
        draws.parse_key_numbers(spec, draws.key_bytes(spec, numbers)).tolist() == numbers.tolist()
    )


@given(share=st.floats(0, 1), partitions=st.integers(3, 6), seed=st.integers(0, 99))
def test_the_rest_of_a_block_goes_to_where_its_keys_belong(share, partitions, seed) -> None:
    producers = {
        "count": 3, "transactional": 2, "transaction_records": 20, "abort_share": 0.3,
    }  # fmt: skip
    spec = spec_of(
        records=600, partitions=2, seed=seed, producers=producers,
        batches={"min_records": 1, "max_records": 30}, values={"sizes": "uniform"},
    )  # fmt: skip
    block = build_block(spec, 0)
    after_ms = int(np.quantile(block.appended, share))
    rest = repartition_block(block, after_ms, partitions)
    left = {int(event): row for row, event in enumerate(block.event)}
    left = {event: row for event, row in left.items() if block.appended[row] > after_ms}
    assert sorted(rest.event.tolist()) == sorted(left)
    for row, event in enumerate(rest.event.tolist()):
        assert rest.value[row] == block.value[left[event]]
        assert rest.key[row].tobytes() == block.key[left[event]].tobytes()
    assert (rest.partition == draws.partitions_of(rest.key, partitions)).all()
    assert (np.diff(rest.sequence) > 0).all()
    # A batch is of one partition, and its records are neighbours.
    pairs = list(zip(rest.batch.tolist(), rest.partition.tolist(), strict=True))
    assert len({*pairs}) == len({batch for batch, _ in pairs})
    assert (np.diff(rest.batch) >= 0).all()
    # Each transaction that continues is ended once in each partition that it wrote to, later.
    wrote = {*zip(rest.transaction.tolist(), rest.partition.tolist(), strict=True)}
    sent = block.appended <= after_ms
    wrote |= {*zip(block.transaction[sent].tolist(), block.partition[sent].tolist(), strict=True)}
    open_now = {*rest.transaction.tolist()} - {NO_TRANSACTION}
    ends = list(
        zip(rest.markers.transaction.tolist(), rest.markers.partition.tolist(), strict=True)
    )
    assert sorted(ends) == sorted(pair for pair in wrote if pair[0] in open_now)
    for transaction, after in zip(rest.markers.transaction, rest.markers.after, strict=True):
        assert after == rest.sequence[rest.transaction == transaction].max()
