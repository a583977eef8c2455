"""The choice between two record codecs: record by record in Python, or columns in a kernel.

Both give the same results and errors. A kernel is faster for more than a few dozen records, but
only once it is compiled: in plain Python, it takes twenty times as long as `records`.
"""

from __future__ import annotations

SMALL_BATCH_RECORDS = 64
"""Number of records up to which a kernel is not faster. NumPy is then not imported."""

LISTED_RECORDS_MAX = 4096
"""Maximum length of decoded lists, which take seventy times the size of tiny records."""

_LISTED_SECONDS = 2e-6
"""Approximate time to decode or encode a record in `records`."""


def decodes_by_kernel(count: int) -> bool:
    """Return whether to decode with a kernel. Reports the work to `jit.compile_if_worthwhile`."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.compile_if_worthwhile(kernels.decode_records, count * _LISTED_SECONDS)


def encodes_by_kernel(count: int) -> bool:
    """Return whether to encode with a kernel. Reports the work to `jit.compile_if_worthwhile`."""
    if count <= SMALL_BATCH_RECORDS:
        return False
    from logstore import jit
    from logstore.record import kernels

    return jit.compile_if_worthwhile(kernels.encode_batches, count * _LISTED_SECONDS)
