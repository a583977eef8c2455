"""The choice between the two coders of records: one by one in Python, or as columns by a kernel.

Both give the same bytes and the same errors. A kernel is worth its while from some dozens of
records on, and only compiled: run as Python it takes twenty times as long as `records`.
"""

from __future__ import annotations

SMALL_BATCH_RECORDS = 64
"""Up to this many records a kernel gains nothing, and NumPy is not loaded for them."""

LISTED_RECORDS_MAX = 4096
"""Records that are decoded into one list: it takes seventy times a tiny record."""

_LISTED_SECONDS = 2e-6
"""Cost of a record in `records`, decoded or encoded, about."""


def decodes_by_kernel(count: int) -> bool:
    """Tell whether so many records are to be decoded as columns; tells `jit.pays` of the work."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.pays(kernels.decode_records, count * _LISTED_SECONDS)


def encodes_by_kernel(count: int) -> bool:
    """Tell whether so many records are to be encoded as columns; tells `jit.pays` of the work."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.pays(kernels.encode_batches, count * _LISTED_SECONDS)
