"""What all tests of the cleaner need."""

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def wrapping_integers() -> Iterator[None]:
    """Let NumPy's scalars wrap in silence, as compiled code does, where kernels run as Python."""
    with np.errstate(over="ignore"):
        yield
