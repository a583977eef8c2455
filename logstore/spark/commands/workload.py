"""`logstore workload`: the commands that need Spark; registered as an entry point.

Nothing here imports PySpark before a command runs, so that `--help` answers at once.
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
"""The JVM's heap by default: a quarter of the machine's memory, between these."""

SHUFFLE_PARTITIONS = 16
"""Tasks of a shuffle on one machine; a cluster's settings come with `spark-submit`."""

HEAP_BYTES_MIN = 512 << 20
"""Spark does not start with less."""

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
            "Make a topic of keyed records, and the same rows as Parquet.",
        ),
        "verify": (
            "logstore.spark.commands.verify:verify",
            "Prove a cleaning right, or show what is wrong with it.",
        ),
        "run": (
            "logstore.spark.commands.run:run",
            "Generate, clean a copy and verify it, with the speed of each stage.",
        ),
    },
    examples=[
        "logstore workload generate user-accounts --set records=1000000 --data-dir before",
        "logstore clean user-accounts --force --data-dir before --out after",
        "logstore workload verify --before before --after after",
    ],
)
def workload() -> None:
    """Generate keyed workloads and verify cleanings independently, with PySpark.

    Runs on every core of this machine, or on a cluster where spark-submit starts it. Needs the
    extra `spark`; brings its own Java if the machine has none.
    """


class SparkOptions(NamedTuple):
    """Options for running Spark.

    Attributes
    ----------
    master : str or None
        By default what `spark-submit` said, else every core of this machine.
    driver_memory : str
        Heap of the JVM, as `2g`.
    """

    master: str | None
    driver_memory: str

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """Run a session; it is stopped in the end.

        Raises
        ------
        InvalidConfigurationError
            PySpark is not installed.
        JavaNotFoundError
            No Java works.
        SparkDiedError
            The JVM ended before we did; with what it said last.
        """
        if importlib.util.find_spec("pyspark") is None:
            raise InvalidConfigurationError(
                "workloads need PySpark, which is not installed: "
                "pip install 'kafka-logstore[spark]'"
            )
        from logstore.spark.commands.watching import SparkProgress
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
            # Of a task, in what Spark tells of it.
            cause = own_error(str(error)) or missing_module(str(error))
            if cause is None:
                raise
            raise cause from error
        finally:
            stop_session(spark)

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine."""
        if self.master is None:
            return "PYSPARK_GATEWAY_PORT" not in os.environ
        return self.master.startswith("local")


def own_error(text: str) -> LogStoreError | None:
    """Return the error of ours that Spark reports with the traceback of a worker, if it is one."""
    found = _OWN_ERROR.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, errors.LogStoreError):
        return None
    told = errors.LogStoreError(message)
    told.kafka_error, told.exit_code = kind.kafka_error, kind.exit_code
    return told


def missing_module(text: str) -> LogStoreError | None:
    """Return what to do where the Python of Spark's workers lacks what we need."""
    found = _MISSING.search(text)
    if found is None:
        return None
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    return InvalidConfigurationError(
        f"Spark's workers run {python}, which has no module {found[1]}: let PYSPARK_PYTHON name "
        "the Python in which kafka-logstore is installed, on every node"
    )


def _heap(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from logstore.config.units import parse_loose_size

    if not _HEAP.fullmatch(value.lower()):
        raise click.BadParameter(f"{value!r} is no size such as 512m or 4g", ctx, param)
    if parse_loose_size(value) < HEAP_BYTES_MIN:
        raise click.BadParameter(f"{value} is below {HEAP_BYTES_MIN >> 20}m, the least", ctx, param)
    return value


def _master(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MASTER.match(value):
        raise click.BadParameter(
            f"{value!r} is none of local, local[N], local[*], spark://HOST:PORT, yarn, k8s://URL",
            ctx,
            param,
        )
    return value


def spark_options(function: _F) -> _F:
    """Add the options that become its `SparkOptions` to a command."""
    for option in (
        click.option(
            "--driver-memory",
            default=default_heap,
            callback=_heap,
            metavar="SIZE",
            help="Heap of the Java process, as 4g. Default: a quarter of the machine's memory, "
            f"from {HEAP_GIB_MIN}g to {HEAP_GIB_MAX}g.",
        ),
        click.option(
            "--master",
            callback=_master,
            metavar="URL",
            help="Where Spark runs: local[N], spark://HOST:PORT … Default: what spark-submit "
            "says, else local[*].",
        ),
    ):
        function = option(function)
    return function


def default_heap() -> str:
    """Return a heap for this machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{min(max(total // HEAP_SHARE, HEAP_GIB_MIN), HEAP_GIB_MAX)}g"
