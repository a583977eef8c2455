"""Load the batch kernels before they are needed."""

from __future__ import annotations

from functools import partial

import numpy as np

from logstore import jit
from logstore.record import kernels
from logstore.record.columns import (
    BytesColumn,
    decode_section,
    encode_batches,
    encode_section,
    find_bounds,
)
from logstore.runtime.background import run_in_background


def load_in_background() -> None:
    """Load the batch kernels in the background. Until then, plain Python is used.

    This is for listeners with many clients; see `jit.load_in_background`.
    """
    jit.load_in_background(kernels.decode_records, _exercise, partial(run_in_background, "kernels"))


def _exercise() -> None:
    column = BytesColumn.from_list([b"some", None])
    find_bounds(column, column, 2**14, 2)
    times = np.zeros(2, np.int64)
    encode_batches(times, column, column, None, (0, 2))
    section = encode_section(times, column, column)
    decode_section(bytes(section), 2, base_offset=0, base_timestamp=0)
