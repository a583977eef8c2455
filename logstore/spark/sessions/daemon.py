"""Spark's Python daemon, with the oracle's modules preloaded.

Sessions created by this package set `spark.python.daemon.module` to this module. Otherwise every
forked worker would import NumPy, Arrow and numba and load the kernels again.
"""

import sys

import numpy as np
from pyspark import daemon

WORKER = "pyspark.worker"
"""Module of workers that run tasks. Other workers look up data sources or plan."""


def prepare() -> None:
    """Import the modules and load the kernels that tasks need."""
    import pyspark.worker  # noqa: F401  # runs in each fork

    import logstore.spark.oracle.scan  # noqa: F401  # needed to unpickle tasks
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
