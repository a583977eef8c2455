"""Array types for kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

COPY_BLOCK = 64
"""Number of bytes that `copy_block` copies."""
