"""Ready-made batches."""

from logstore.record.batch import build_batch
from logstore.record.records import Record


def batch_of(count: int) -> bytes:
    """Return a batch whose values are the numbers of its records."""
    records = [Record(n, 1_704_067_200_000, b"k", b"%d" % n, ()) for n in range(count)]
    return build_batch(records)
