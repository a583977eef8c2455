"""Spark's Python daemon with the oracle's modules in it, so that the workers it forks have them.

Spark starts it where the session is ours (`spark.python.daemon.module`). A worker would otherwise
import NumPy, Arrow and numba, and load the kernels, each for itself.
"""

import sys

import numpy as np
from pyspark import daemon

WORKER = "pyspark.worker"
"""The module of those who run tasks; others look data sources up, or plan."""


def prepare() -> None:
    """Import what tasks need, and load the kernels they run."""
    import pyspark.worker  # noqa: F401  # it is what a fork runs

    import logstore.spark.oracle.scan  # noqa: F401  # what tasks are unpickled with
    from logstore import jit
    from logstore.record.columns import decode_section
    from logstore.spark.datasource.kernels import digest_strings

    jit.compile_always()
    decode_section(b"", 0, 0, 0)
    none = np.empty(0, np.int64)
    digest_strings(np.empty(0, np.uint8), none, none, none)


if __name__ == "__main__":
    if WORKER in sys.argv:
        prepare()
    daemon.manager()
