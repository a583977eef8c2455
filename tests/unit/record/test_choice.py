"""Which of the two coders takes how many records, and that all who code ask the same."""

import pytest

from logstore import Broker, VirtualClock
from logstore.inspect.check.batches import verify_batch
from logstore.jit import policy
from logstore.record import kernels
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.choice import (
    LISTED_RECORDS_MAX,
    SMALL_BATCH_RECORDS,
    decodes_by_kernel,
    encodes_by_kernel,
)
from logstore.record.records import Record

COUNT = SMALL_BATCH_RECORDS + 1


@pytest.fixture
def without_compiler(monkeypatch):
    monkeypatch.setattr(policy, "MODE", policy.PYTHON)
    monkeypatch.setattr(kernels.encode_batches.group, "is_compiled", False)


@pytest.mark.parametrize("chooses", (decodes_by_kernel, encodes_by_kernel))
def test_small_batches_never_go_by_kernel_and_large_ones_if_it_is_compiled(chooses, monkeypatch):
    monkeypatch.setattr(kernels.encode_batches.group, "is_compiled", True)
    assert [chooses(count) for count in (-1, 0, SMALL_BATCH_RECORDS, COUNT)] == [
        False,
        False,
        False,
        True,
    ]


def test_without_a_compiler_no_kernel_is_used(without_compiler):
    """Too many records for one list are decoded into several, one after another."""
    assert not decodes_by_kernel(LISTED_RECORDS_MAX + 1)
    assert not encodes_by_kernel(LISTED_RECORDS_MAX + 1)


def test_no_kernel_runs_as_python_for_batches_that_a_list_holds(without_compiler, monkeypatch):
    """It would take twenty times as long. Appended, produced, from a client, read and checked."""
    for kernel in (kernels.encode_batches, kernels.find_bounds, kernels.decode_records):
        monkeypatch.setattr(kernel, "_run", lambda *_: pytest.fail("a kernel ran as Python"))
    records = [Record(row, row, b"k", b"v", (("h", b"1"),)) for row in range(COUNT)]
    batch = build_batch(records)
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        broker.append_many("t", [(b"k", b"v")] * COUNT)
        broker.append_batches("t", batch)
        with broker.producer(batch_size=10**6, linger_ms=9, enable_idempotence=True) as producer:
            for _ in range(COUNT):
                producer.send("t", key=b"k", value=b"v")
        assert len(list(broker.read("t"))) == 3 * COUNT
    assert not list(verify_batch(RecordBatch(batch), 10**6))
