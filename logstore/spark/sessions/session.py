"""The one builder of Spark sessions: Java, workers' Python, settings, and silence."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import logstore
from logstore.spark.datasource.source import LogstoreDataSource
from logstore.spark.sessions.java import find_java, temporary_java_home
from logstore.spark.sessions.jvm import start_jvm

ROOT = Path(logstore.__file__).resolve().parents[1]
"""The path that workers need to import `logstore`."""

ARROW_ROWS = 65_536
"""Rows of an Arrow batch that the JVM hands to Python."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The JVM's accounting of bytes row by row costs seven times what writing does.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.ui.enabled": "false",
}

COMPILE_LATER = tuple(
    f"-XX:Tier4{name}={count}"
    for name, count in (
        ("InvocationThreshold", 50_000),
        ("MinInvocationThreshold", 6_000),
        ("CompileThreshold", 150_000),
        ("BackEdgeThreshold", 400_000),
    )
)
"""Ten times the JVM's own thresholds: a command's JVM is young, and its second compiler took more
time for plans that run once than all tasks together. What runs for minutes is compiled by it still.
"""

COLLECTOR = "-XX:+UseParallelGC"
"""Collects while nothing else runs. The JVM's own choice works beside the tasks, so that they pause
less, which nobody waits for here, and takes more time for it."""

DAEMON = "logstore.spark.sessions.daemon"
"""The daemon that forks Python workers on this machine."""

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex
# Else it tells that it sets a level of its own.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A task that fails says so here, and again, with its stack, in the exception that Python raises.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.codegen.name = org.apache.spark.sql.execution.python
logger.codegen.level = off
"""


def spark_session(
    name: str = "logstore",
    *,
    master: str | None = None,
    driver_memory: str | None = None,
    shuffle_partitions: int | None = None,
    progress: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session, with the data source `logstore` registered.

    Parameters
    ----------
    master : str, optional
        By default what `spark-submit` said, else every core of this machine.
    driver_memory : str, optional
        Heap of a JVM that this call starts, as `2g`.
    shuffle_partitions : int, optional
        Tasks of a shuffle; Spark's default of 200 is meant for clusters.
    progress : bool
        Let Spark draw its progress bar on stderr.
    settings : mapping, optional
        Spark's own keys; they win over all of the above.

    Raises
    ------
    JavaNotFoundError
        No JVM runs yet and no Java was found for one.
    SparkDiedError
        The JVM did not come up.

    Notes
    -----
    Settings of the JVM (memory, Java, log) hold only if this call starts it; a session that is
    there already is given with the other settings changed.
    """
    settings = {
        **SETTINGS,
        "spark.ui.showConsoleProgress": str(progress).lower(),
        **_submitted(),
        **_asked_for(driver_memory, shuffle_partitions),
        **(settings or {}),
    }
    _tell_python_to_workers(settings)
    starts_jvm = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if starts_jvm:
        _set_up_jvm(settings)
        master = master or settings.get("spark.master") or "local[*]"
    settings["spark.app.name"] = name
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            # Nobody else needs to reach the driver, and a host name may not resolve.
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
            settings.setdefault("spark.python.daemon.module", DAEMON)
    with _python_interrupts():
        if starts_jvm:
            with _java_home():
                start_jvm(settings)
        spark = SparkSession.builder.config(map=settings).getOrCreate()
    try:
        spark.dataSource.register(LogstoreDataSource)
    except AnalysisException as error:
        # Spark has found the package `pyspark_logstore` by itself; it cannot see a checkout.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def stop_session(spark: SparkSession) -> None:
    """Stop a session, whatever it is doing; the JVM's log stays off.

    Jobs that run, as when Ctrl-C was pressed, are cancelled; what Spark would log of the tasks
    that lose their executor, stack by stack, nobody can use.
    """
    # A JVM that died did so under a job, whose error says it: `jvm`.
    with suppress(Py4JError, OSError):
        spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def was_interrupted(error: BaseException | None) -> bool:
    """Tell whether an error came up while a `KeyboardInterrupt` was on its way.

    PySpark speaks to the JVM on the way out of `collect`, over a connection that is then broken.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def _java_home() -> Iterator[None]:
    """Set JAVA_HOME for the JVM that is about to start, and for nothing else."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(temporary_java_home(find_java()))
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


@contextmanager
def _python_interrupts() -> Iterator[None]:
    """Keep what Ctrl-C does, which PySpark would change.

    Its handler asks the JVM to cancel jobs, over the connection on which the main thread waits for
    an answer: that fails, breaks the connection, and shows as three stacks. A `KeyboardInterrupt`
    leaves through the caller, whose `stop()` cancels the jobs over a new connection.
    """
    # It logs what it raises as well, stack by stack: by its own loggers and by the root's.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Pass over the stacks that py4j logs of exceptions which it raises as well."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _submitted() -> dict[str, str]:
    """Return what `spark-submit` was told: it wins over our defaults.

    The JVM is its, so that the log can be turned down only from here on.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return {"spark.log.level": "ERROR", **dict(SparkConf().getAll())}


def _asked_for(driver_memory: str | None, shuffle_partitions: int | None) -> dict[str, str]:
    found = {}
    if driver_memory is not None:
        found["spark.driver.memory"] = driver_memory
    if shuffle_partitions is not None:
        found["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    return found


def _tell_python_to_workers(settings: dict[str, str]) -> None:
    """Let workers, and the planners of data sources, run this Python and find our modules.

    Left to itself Spark starts the `python3` of PATH, which need not be the one of this process.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    places = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    path = os.pathsep.join(dict.fromkeys(places))
    os.environ["PYTHONPATH"] = path
    settings.setdefault("spark.executorEnv.PYTHONPATH", path)


def _set_up_jvm(settings: dict[str, str]) -> None:
    """Keep Spark's log to errors, from its first line on, and let none of them come twice.

    What the caller asks of the JVM comes last, and so wins.
    """
    # It would print as JSON what is raised as an exception anyway.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    directory = Path(tempfile.mkdtemp(prefix="logstore-log4j-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "log4j2.properties"
    file.write_text(_LOG4J, encoding="utf-8")
    options = [
        f"-Dlog4j2.configurationFile={file.as_uri()}",
        "-XX:+DisplayVMOutputToStderr",  # standard output has our results, not the JVM's complaints
        *COMPILE_LATER,
    ]
    if given := settings.get("spark.driver.extraJavaOptions"):
        options.append(given)
    if not re.search(r"-XX:\+Use\w+GC\b", given or ""):  # the JVM takes no second one
        options.append(COLLECTOR)
    settings["spark.driver.extraJavaOptions"] = " ".join(options)
