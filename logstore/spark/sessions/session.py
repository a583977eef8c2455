"""Create Spark sessions: Java, the workers' Python, settings and logging."""

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
"""Directory from which workers import `logstore`."""

ARROW_ROWS = 65_536
"""Number of rows per Arrow batch from the JVM to Python."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Counting bytes per row takes the JVM seven times as long as writing them.
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
"""Ten times the JVM's default thresholds. For plans that run once, the C2 compiler took more time
than all tasks of a short command. It still compiles code that runs for minutes.
"""

COLLECTOR = "-XX:+UseParallelGC"
"""The stop-the-world collector. The default collector is concurrent: its shorter pauses do not
matter here, and it takes more time in total."""

DAEMON = "logstore.spark.sessions.daemon"
"""Daemon that forks Python workers on this machine."""

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex
# Otherwise it logs that it sets its own level.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# The exception in Python has the errors of failed tasks too.
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
    """Return a session with the `logstore` data source registered.

    Parameters
    ----------
    master : str, optional
        Master URL. [default: the master of `spark-submit` or, failing that, all local cores]
    driver_memory : str, optional
        JVM heap size, such as `2g`.
    shuffle_partitions : int, optional
        Number of shuffle tasks. Spark's default of 200 is meant for clusters.
    progress : bool
        Whether to show Spark's progress bar on standard error.
    settings : mapping, optional
        Spark properties, which override the other parameters.

    Raises
    ------
    JavaNotFoundError
        No usable Java was found to start a JVM.
    SparkDiedError
        The JVM did not start.

    Notes
    -----
    JVM settings (memory, Java, logging) only apply if this call starts the JVM. Other settings also
    change an existing session.
    """
    settings = {
        **SETTINGS,
        "spark.ui.showConsoleProgress": str(progress).lower(),
        **_submitted_settings(),
        **_settings_of(driver_memory, shuffle_partitions),
        **(settings or {}),
    }
    _set_worker_python(settings)
    starts_jvm = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if starts_jvm:
        _set_up_jvm(settings)
        master = master or settings.get("spark.master") or "local[*]"
    settings["spark.app.name"] = name
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            # Only this machine connects to the driver, and its host name might not resolve.
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
        # Spark finds an installed `pyspark_logstore`, but not a checkout.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def stop_session(spark: SparkSession) -> None:
    """Stop a session, cancel its jobs and turn off the JVM log.

    Otherwise, Spark would log a stack trace for every task that loses its executor.
    """
    # If the JVM died, the job's error reports this (see `jvm`).
    with suppress(Py4JError, OSError):
        spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether an error was raised while a `KeyboardInterrupt` propagated.

    While `collect` unwinds, PySpark calls the JVM over a connection that is then broken.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def _java_home() -> Iterator[None]:
    """Set JAVA_HOME within the block, to start the JVM."""
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
    """Preserve Python's Ctrl-C handler, which PySpark would replace.

    PySpark's handler sends a cancel request over the connection on which the main thread awaits a
    response, which breaks the connection and prints three stack traces. With Python's handler, a
    `KeyboardInterrupt` propagates, and `stop_session` cancels the jobs over a new connection.
    """
    # py4j also logs the exceptions it raises, to its own loggers and the root logger.
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
    """Filter out log records of py4j, which duplicate its exceptions."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _submitted_settings() -> dict[str, str]:
    """Return the settings of `spark-submit`, which override the defaults.

    `spark-submit` starts the JVM first, so its log level can only be lowered later.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return {"spark.log.level": "ERROR", **dict(SparkConf().getAll())}


def _settings_of(driver_memory: str | None, shuffle_partitions: int | None) -> dict[str, str]:
    settings = {}
    if driver_memory is not None:
        settings["spark.driver.memory"] = driver_memory
    if shuffle_partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    return settings


def _set_worker_python(settings: dict[str, str]) -> None:
    """Make workers and data source planners use this Python and find `logstore`.

    By default, Spark starts the `python3` in PATH, which may be a different Python.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    folders = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    path = os.pathsep.join(dict.fromkeys(folders))
    os.environ["PYTHONPATH"] = path
    settings.setdefault("spark.executorEnv.PYTHONPATH", path)


def _set_up_jvm(settings: dict[str, str]) -> None:
    """Set JVM options for logging (errors only, no duplicates), compiler and collector.

    The caller's options come last and thus take precedence.
    """
    # This logger prints the query context of exceptions as JSON.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    directory = Path(tempfile.mkdtemp(prefix="logstore-log4j-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "log4j2.properties"
    file.write_text(_LOG4J, encoding="utf-8")
    options = [
        f"-Dlog4j2.configurationFile={file.as_uri()}",
        "-XX:+DisplayVMOutputToStderr",  # standard output is for results
        *COMPILE_LATER,
    ]
    if given := settings.get("spark.driver.extraJavaOptions"):
        options.append(given)
    if not re.search(r"-XX:\+Use\w+GC\b", given or ""):  # the JVM rejects a second collector
        options.append(COLLECTOR)
    settings["spark.driver.extraJavaOptions"] = " ".join(options)
