"""The records of `__transaction_state` against bytes that Kafka's classes wrote.

The hexadecimal strings are what `TransactionLogKey` and `TransactionLogValue` of Kafka 3.9.2 give
(`MessageUtil.toVersionPrefixedBytes`), the tagged one of 4.4.0; the hashes are Java's.
"""

import contextlib
import dataclasses
import random

import pytest

from logstore.coordinator.records import partition_for
from logstore.coordinator.transactions.state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from logstore.errors import InvalidRecordError, UnsupportedFormatError
from logstore.types import TopicPartition, java_hash

PARTITIONS = frozenset(
    (TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("bé", 2**31 - 1))
)

KEYS = {
    "orders-1": "000000086f72646572732d31",
    "é😀": "00000006c3a9f09f9880",
    "transfer": "000000087472616e73666572",
    "\0x": "000000020078",
}

VALUES = {
    "00000000000000000fa000070000ea6000ffffffff0000018bcfe5687bffffffffffffffff": (
        TransactionMetadata(
            "x", 4000, 7, 60_000, TransactionState.EMPTY, last_update_ms=1_700_000_000_123
        )
    ),
    "00000000000000000fa000070000ea600100000002000161000000020000000000000003000362c3a9"
    "000000017fffffff0000018bcfe569c80000018bcfe569c8": TransactionMetadata(
        "x",
        4000,
        7,
        60_000,
        TransactionState.ONGOING,
        PARTITIONS,
        start_ms=1_700_000_000_456,
        last_update_ms=1_700_000_000_456,
    ),
    "00007fffffffffffffff7ffe000dbba00200000002000161000000020000000000000003000362c3a9"
    "000000017fffffff0000018bcfe56b150000018bcfe569c8": TransactionMetadata(
        "x",
        2**63 - 1,
        32_766,
        900_000,
        TransactionState.PREPARE_COMMIT,
        PARTITIONS,
        start_ms=1_700_000_000_456,
        last_update_ms=1_700_000_000_789,
    ),
    "0000000000000000000000000000000105000000000000018bcfe56be70000018bcfe569c8": (
        TransactionMetadata(
            "x",
            0,
            0,
            1,
            TransactionState.COMPLETE_ABORT,
            start_ms=1_700_000_000_456,
            last_update_ms=1_700_000_000_999,
        )
    ),
}

FLEXIBLE = {
    "00010000000000000fa000070000ea6000000000018bcfe5687bffffffffffffffff00": 0,
    "00010000000000000fa000070000ea6001030261030000000000000003000462c3a9027fffffff00"
    "0000018bcfe569c80000018bcfe569c800": 1,
    "00017fffffffffffffff7ffe000dbba002030261030000000000000003000462c3a9027fffffff00"
    "0000018bcfe56b150000018bcfe569c800": 2,
    "0001000000000000000000000000000105010000018bcfe56be70000018bcfe569c800": 3,
}
"""The same four values in version 1, by their index in `VALUES`."""


@pytest.mark.parametrize(("transactional_id", "expected"), KEYS.items())
def test_keys_are_kafkas(transactional_id, expected):
    assert encode_key(transactional_id).hex() == expected
    assert decode_key(bytes.fromhex(expected)) == transactional_id


@pytest.mark.parametrize(("expected", "metadata"), VALUES.items())
def test_values_of_version_0_are_read(expected, metadata):
    assert decode_value("x", bytes.fromhex(expected)) == metadata


@pytest.mark.parametrize(("value", "place"), FLEXIBLE.items())
def test_values_are_kafkas(value, place):
    metadata = list(VALUES.values())[place]
    assert encode_value(metadata).hex() == value
    assert decode_value("x", bytes.fromhex(value)) == metadata


def test_the_next_epoch_of_later_releases_is_skipped():
    """Kafka 4.4 with previous and next producer id, next epoch, and the client's version."""
    value = bytes.fromhex(
        "000100000000000000057fff0000ea6002020261020000000100000000000000000a0000000000000009"
        "0400080000000000000004010800000000000000060202000203020001"
    )
    assert decode_value("x", value) == TransactionMetadata(
        "x",
        5,
        32_767,
        60_000,
        TransactionState.PREPARE_COMMIT,
        frozenset((TopicPartition("a", 1),)),
        start_ms=9,
        last_update_ms=10,
        previous_producer_id=4,
        next_producer_id=6,
        client_version=TransactionVersion.V2,
    )


def test_tagged_fields_are_kafkas():
    value = (
        "000100000000000000057fff0000ea6002020261020000000100000000000000000a0000000000000009"
        "0300080000000000000004010800000000000000060202" + "0002"
    )
    metadata = decode_value("x", bytes.fromhex(value))
    assert (metadata.previous_producer_id, metadata.next_producer_id) == (4, 6)
    assert metadata.client_version is TransactionVersion.V2
    assert encode_value(metadata).hex() == value


def test_an_unknown_transaction_version_is_refused():
    value = bytes.fromhex(next(iter(FLEXIBLE)))[:-1] + bytes.fromhex("0102020003")
    with pytest.raises(InvalidRecordError, match="transaction version 3"):
        decode_value("x", value)


@pytest.mark.parametrize(
    ("text", "hashed", "partition"),
    (
        ("orders-1", 1234322249, 49),
        ("", 0, 0),
        ("é😀", 1996812, 12),
        ("transfer", 1280882667, 17),
        ("copy-job", -507118235, 35),
        ("polygenelubricants", -(2**31), 0),
    ),
)
def test_the_partition_of_an_id_is_kafkas(text, hashed, partition):
    assert java_hash(text) == hashed
    assert partition_for(text, 50) == partition


def test_a_later_key_is_skipped_and_a_later_value_refused():
    assert decode_key(bytes.fromhex("00010001")) is None
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        decode_value("x", bytes.fromhex("0002") + b"\0" * 40)


@pytest.mark.parametrize("version", (0, 1))
def test_damaged_values_are_refused_and_nothing_else_happens(version):
    """Every prefix and random corruption yields an error for malformed bytes, or another value."""
    values = VALUES if version == 0 else FLEXIBLE
    rng = random.Random(version)
    for text in values:
        whole = bytes.fromhex(text)
        for size in range(len(whole)):
            with pytest.raises(InvalidRecordError):
                decode_value("x", whole[:size])
        for _ in range(500):
            damaged = bytearray(whole)
            damaged[rng.randrange(2, len(whole))] ^= 1 << rng.randrange(8)
            with contextlib.suppress(InvalidRecordError):
                decode_value("x", bytes(damaged))


def test_a_length_of_more_than_five_bytes_is_refused():
    value = bytes.fromhex("0001") + b"\0" * 15 + b"\xff" * 20
    with pytest.raises(InvalidRecordError, match="not a 32-bit varint"):
        decode_value("x", value)


@pytest.mark.parametrize("status", (-1, 6, 7, 8))
def test_a_status_that_is_never_stored_is_refused(status):
    value = bytearray.fromhex(next(iter(VALUES)))
    value[16] = status & 0xFF
    with pytest.raises(InvalidRecordError, match=f"status {status}"):
        decode_value("x", bytes(value))


def test_a_record_without_a_key_is_refused():
    with pytest.raises(InvalidRecordError) as raised:
        decode_key(None)
    assert str(raised.value) == "a record in __transaction_state has no key"


@pytest.mark.parametrize("key", (b"", b"\0", b"\0\0\0\2a", b"\0\0\0\1\xff", b"\0\0\xff\xff"))
def test_damaged_keys_are_refused(key):
    with pytest.raises(InvalidRecordError):
        decode_key(key)


@pytest.mark.parametrize("transactional_id", ("x" * 32_768, "\ud800"))
def test_an_id_that_cannot_be_stored_is_refused(transactional_id):
    with pytest.raises(InvalidRecordError):
        encode_key(transactional_id)
    assert encode_key("x" * 32_767)[2:4] == b"\x7f\xff"


@pytest.mark.parametrize(
    ("state", "kafka_name", "properties", "previous"),
    (
        ("EMPTY", "Empty", "idle", {0, 4, 5}),
        ("ONGOING", "Ongoing", "", {0, 1, 4, 5}),
        ("PREPARE_COMMIT", "PrepareCommit", "prepared commit", {1}),
        ("PREPARE_ABORT", "PrepareAbort", "prepared", {0, 1, 4, 5}),
        ("COMPLETE_COMMIT", "CompleteCommit", "commit complete idle", {2}),
        ("COMPLETE_ABORT", "CompleteAbort", "complete idle", {3}),
        ("DEAD", "Dead", "", set()),
        ("PREPARE_EPOCH_FENCE", "PrepareEpochFence", "", set()),
    ),
)
def test_states(state, kafka_name, properties, previous):
    """With the numbers of the states that each can follow."""
    state = TransactionState[state]
    names = ("prepared", "commit", "complete", "idle")
    assert state.kafka_name == kafka_name
    assert [each for each in names if getattr(state, f"is_{each}")] == properties.split()
    after = TransactionMetadata("x", 1, 0, 1, state, previous_producer_id=1)

    def follows(number):
        try:
            after.check_follows(dataclasses.replace(after, state=TransactionState(number)))
        except AssertionError:
            return False
        return True

    assert {number for number in range(8) if follows(number)} == previous


OPEN = TransactionMetadata(
    "x",
    5,
    7,
    60_000,
    TransactionState.ONGOING,
    PARTITIONS,
    start_ms=9,
    last_update_ms=10,
    previous_producer_id=4,
    client_version=TransactionVersion.V1,
    last_producer_epoch=3,
)
IDLE = dataclasses.replace(OPEN, state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())


@pytest.mark.parametrize("commit", (True, False))
@pytest.mark.parametrize(
    ("before", "version", "changes"),
    (
        (OPEN, 0, {}),
        (OPEN, 1, {}),
        (OPEN, 2, {"producer_epoch": 8, "last_producer_epoch": 7}),
        (IDLE, 2, {"producer_epoch": 8, "last_producer_epoch": 7, "start_ms": 30}),
        (
            dataclasses.replace(OPEN, producer_epoch=32_766),
            2,
            {"producer_epoch": 32_767, "last_producer_epoch": 32_766},
        ),
        (
            dataclasses.replace(OPEN, producer_epoch=32_767),
            2,
            {"producer_epoch": 32_767, "last_producer_epoch": 32_767},
        ),
    ),
)
@pytest.mark.parametrize("next_id", (-1, 6))
def test_a_decision_and_its_completion(before, version, changes, commit, next_id):
    name = "COMMIT" if commit else "ABORT"
    version = TransactionVersion(version)
    prepared = before.prepared(commit=commit, version=version, next_producer_id=next_id, now_ms=30)
    assert prepared == dataclasses.replace(
        before,
        state=TransactionState[f"PREPARE_{name}"],
        client_version=version,
        next_producer_id=next_id,
        **changes,
    )
    producer = (5, prepared.producer_epoch) if next_id < 0 else (6, 0)
    assert prepared.producer == (5, prepared.producer_epoch)
    assert prepared.next_producer == producer
    completed = prepared.completed()
    assert completed == dataclasses.replace(
        prepared,
        state=TransactionState[f"COMPLETE_{name}"],
        producer_id=producer[0],
        producer_epoch=producer[1],
        next_producer_id=-1,
        partitions=frozenset(),
    )
    assert completed.next_producer == producer


def test_producers_of_an_earlier_call():
    """Producers that may bump the epoch, and producers whose transaction has just ended."""
    producers = [(4, 32_765), (4, 32_766), (4, 32_767), (5, 0), (5, 6), (5, 7), (6, 32_766)]

    def chosen(metadata, method):
        producer = ProducerIdAndEpoch
        return [each for each in producers if getattr(metadata, method)(producer(*each))]

    assert chosen(OPEN, "may_belong") == producers[1:6]
    assert chosen(OPEN, "is_before_end") == [(5, 6)]
    replaced = dataclasses.replace(OPEN, producer_epoch=0)
    assert chosen(replaced, "may_belong") == producers[1:6]
    assert chosen(replaced, "is_before_end") == [(4, 32_766)]
    exhausted = [
        dataclasses.replace(OPEN, producer_epoch=each) for each in (32_765, 32_766, 32_767)
    ]
    assert [each.is_exhausted for each in exhausted] == [False, True, True]


def test_states_follow_each_other_as_in_kafka():
    empty = TransactionMetadata("x", 1, 0, 1, TransactionState.EMPTY, previous_producer_id=1)
    ongoing = dataclasses.replace(empty, state=TransactionState.ONGOING, partitions=PARTITIONS)
    prepared = dataclasses.replace(ongoing, state=TransactionState.PREPARE_COMMIT)
    completed = dataclasses.replace(
        empty, state=TransactionState.COMPLETE_COMMIT, partitions=frozenset()
    )
    for before, after in ((None, empty), (empty, ongoing), (ongoing, prepared)):
        after.check_follows(before)
    completed.check_follows(prepared)
    dataclasses.replace(empty, producer_epoch=1).check_follows(completed)
    dataclasses.replace(empty, producer_id=2).check_follows(completed)
    dataclasses.replace(empty, producer_id=0, producer_epoch=32_767).check_follows(None)
    aborting = dataclasses.replace(empty, state=TransactionState.PREPARE_ABORT, producer_epoch=1)
    for before in (empty, completed):
        aborting.check_follows(before)  # version 2 aborts without an open transaction
    exhausted = dataclasses.replace(prepared, producer_epoch=1, next_producer_id=2)
    exhausted.check_follows(ongoing)
    exhausted.completed().check_follows(exhausted)
    for before, after in (
        (None, ongoing),
        (empty, prepared),
        (ongoing, empty),
        (prepared, dataclasses.replace(completed, state=TransactionState.COMPLETE_ABORT)),
        (completed, dataclasses.replace(empty, producer_epoch=2)),
        (completed, dataclasses.replace(empty, producer_id=2, producer_epoch=1)),
        (prepared, dataclasses.replace(completed, producer_id=2)),
        (empty, dataclasses.replace(ongoing, next_producer_id=2)),
        (empty, dataclasses.replace(ongoing, previous_producer_id=2)),
        (ongoing, dataclasses.replace(ongoing, partitions=frozenset())),
        (completed, dataclasses.replace(empty, partitions=PARTITIONS)),
        (
            dataclasses.replace(completed, producer_epoch=1),
            dataclasses.replace(empty, producer_epoch=0),
        ),
        (None, dataclasses.replace(empty, producer_id=-1)),
        (None, dataclasses.replace(empty, producer_epoch=-1)),
        (None, dataclasses.replace(empty, producer_epoch=32_768)),
    ):
        with pytest.raises(AssertionError):
            after.check_follows(before)
