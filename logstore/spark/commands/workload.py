"""The `logstore workload` command group, registered as an entry point.

PySpark is not imported before a command runs, so that `--help` is fast.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from logstore import errors
from logstore.cli.options import Group
from logstore.errors import InvalidConfigurationError, LogStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_SHARE = 4
HEAP_GIB_MIN, HEAP_GIB_MAX = 1, 6
"""Limits of the default JVM heap, which is a quarter of the physical memory."""

SHUFFLE_PARTITIONS = 16
"""Number of shuffle tasks on one machine. `spark-submit` configures it for clusters."""

HEAP_BYTES_MIN = 512 << 20
"""Smallest heap with which Spark starts."""

_HEAP = re.compile(r"\d+[mgt]")
_MASTER = re.compile(
    r"local(\[(\d+|\*)(, *\d+)?\])?$|local-cluster\[|spark://[^/]+:\d+|yarn$|k8s://."
)

_OWN_ERROR = re.compile(r"^logstore\.errors\.(\w+): (.*)$", re.MULTILINE)

_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)

_F = TypeVar("_F", bound=Callable[..., Any])


@click.command(
    "workload",
    cls=Group,
    lazy={
        "generate": (
            "logstore.spark.commands.generate:generate",
            "Generate a topic of keyed records, and the same rows as Parquet.",
        ),
        "verify": (
            "logstore.spark.commands.verify:verify",
            "Verify that a cleaning pass was correct, and list violations.",
        ),
        "run": (
            "logstore.spark.commands.run:run",
            "Generate a workload, clean a copy and verify it; print the speed of each stage.",
        ),
    },
    examples=[
        "logstore workload generate user-accounts --set records=1000000 --data-dir before",
        "logstore clean user-accounts --force --data-dir before --out after",
        "logstore workload verify --before before --after after",
    ],
)
def workload() -> None:
    """Generate keyed workloads, and verify cleaned logs independently, with PySpark.

    Uses all cores of this machine, or a cluster if started with spark-submit. Requires the `spark`
    extra, which includes a Java runtime.
    """


class SparkOptions(NamedTuple):
    """Options of commands that run Spark.

    Attributes
    ----------
    master : str or None
        Master URL. None means the master of `spark-submit` or, failing that, all local cores.
    driver_memory : str
        JVM heap size, such as `2g`.
    """

    master: str | None
    driver_memory: str

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """Start a session and stop it at the end of the block.

        Raises
        ------
        InvalidConfigurationError
            PySpark is not installed.
        JavaNotFoundError
            No usable Java was found.
        SparkDiedError
            The JVM died. The message contains its last output.
        """
        if importlib.util.find_spec("pyspark") is None:
            raise InvalidConfigurationError(
                "workloads need PySpark, which is not installed: "
                "pip install 'kafka-logstore[spark]'"
            )
        from logstore.spark.commands.progress import SparkProgress
        from logstore.spark.sessions.jvm import jvm_death
        from logstore.spark.sessions.session import (
            spark_session,
            stop_session,
            was_interrupted,
        )

        spark = spark_session(
            name,
            master=self.master,
            driver_memory=self.driver_memory,
            shuffle_partitions=SHUFFLE_PARTITIONS if self.is_local else None,
        )
        try:
            with SparkProgress(name, spark.sparkContext.statusTracker()):
                yield spark
        except errors.LogStoreError:
            raise
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            death = jvm_death(error)
            if death is not None:
                raise death from error
            # The message contains the traceback of the failed task.
            cause = logstore_error_in(str(error)) or missing_module(str(error))
            if cause is None:
                raise
            raise cause from error
        finally:
            stop_session(spark)

    @property
    def is_local(self) -> bool:
        """Whether Spark only runs on this machine."""
        if self.master is None:
            return "PYSPARK_GATEWAY_PORT" not in os.environ
        return self.master.startswith("local")


def logstore_error_in(text: str) -> LogStoreError | None:
    """Return the `LogStoreError` in a worker's traceback, or None if there is none."""
    matches = _OWN_ERROR.findall(text)
    if not matches:
        return None
    name, message = matches[-1]
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, errors.LogStoreError):
        return None
    error = errors.LogStoreError(message)
    error.kafka_error, error.exit_code = kind.kafka_error, kind.exit_code
    return error


def missing_module(text: str) -> LogStoreError | None:
    """Return the error for a module missing in the workers' Python, or None if none is."""
    match = _MISSING.search(text)
    if match is None:
        return None
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    return InvalidConfigurationError(
        f"Spark's workers run {python}, which has no module {match[1]}: set PYSPARK_PYTHON to a "
        "Python in which kafka-logstore is installed on every node"
    )


def _heap(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from logstore.config.units import parse_loose_size

    if not _HEAP.fullmatch(value.lower()):
        raise click.BadParameter(f"{value!r} is not a size such as 512m or 4g", ctx, param)
    if parse_loose_size(value) < HEAP_BYTES_MIN:
        minimum = f"{HEAP_BYTES_MIN >> 20}m"
        raise click.BadParameter(f"{value} is below the minimum of {minimum}", ctx, param)
    return value


def _master(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MASTER.match(value):
        raise click.BadParameter(
            f"{value!r} is not one of local, local[N], local[*], spark://HOST:PORT, yarn, "
            "k8s://URL",
            ctx,
            param,
        )
    return value


def spark_options(function: _F) -> _F:
    """Add the options of `SparkOptions` to a command."""
    for option in (
        click.option(
            "--driver-memory",
            default=default_heap,
            callback=_heap,
            metavar="SIZE",
            help="Heap of the Java process, such as 4g. [default: a quarter of the machine's "
            f"memory, from {HEAP_GIB_MIN}g to {HEAP_GIB_MAX}g]",
        ),
        click.option(
            "--master",
            callback=_master,
            metavar="URL",
            help="Spark master: local[N], spark://HOST:PORT … [default: the master of "
            "spark-submit, else local[*]]",
        ),
    ):
        function = option(function)
    return function


def default_heap() -> str:
    """Return the default heap size for this machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{min(max(total // HEAP_SHARE, HEAP_GIB_MIN), HEAP_GIB_MAX)}g"
