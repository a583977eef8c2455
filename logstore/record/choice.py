"""The choice between two codecs of records: one by one in Python, or as columns by a kernel.

Both have the same results and errors. A kernel is faster from some dozens of records on, and only
if compiled: as plain Python it takes twenty times as long as `records`.
"""

from __future__ import annotations

SMALL_BATCH_RECORDS = 64
"""Up to this many records a kernel is not faster, and NumPy is not imported."""

LISTED_RECORDS_MAX = 4096
"""Most records in one decoded list, which takes seventy times the size of tiny records."""

_LISTED_SECONDS = 2e-6
"""Approximate cost of decoding or encoding a record in `records`."""


def decodes_by_kernel(count: int) -> bool:
    """Return whether to decode `count` records by a kernel; counts the work for `jit.pays`."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.pays(kernels.decode_records, count * _LISTED_SECONDS)


def encodes_by_kernel(count: int) -> bool:
    """Return whether to encode `count` records by a kernel; counts the work for `jit.pays`."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.pays(kernels.encode_batches, count * _LISTED_SECONDS)
