"""The JVM that this process starts for Spark, and why it died.

PySpark has one JVM per process and does not notice when it dies: every later call fails with its
own stack trace. The JVM's standard error is forwarded, and its last output is retained, so that an
error can include the reason.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from logstore.errors import LogStoreError

KEPT_BYTES_MAX = 4096
"""Number of bytes to retain of the JVM's output."""

JVM_EXIT_SECONDS_MAX = 10
"""Time to wait for the exit code after the connection to the JVM broke."""

_STDERR = 2
_BROKEN = (Py4JNetworkError, ConnectionError, EOFError)


class SparkDiedError(LogStoreError):
    """The JVM died. The message contains its exit code and last output."""

    exit_code = 3


class _StderrForwarder(threading.Thread):
    """A thread that copies a pipe to standard error and retains the last bytes."""

    def __init__(self) -> None:
        super().__init__(name="logstore-spark-stderr", daemon=True)
        self._reader, self.writer = os.pipe()
        self._kept = b""

    def run(self) -> None:
        with suppress(OSError):
            while chunk := os.read(self._reader, KEPT_BYTES_MAX):
                self._kept = (self._kept + chunk)[-KEPT_BYTES_MAX:]
                with suppress(OSError):  # standard error is closed
                    os.write(_STDERR, chunk)
        os.close(self._reader)

    def last_lines(self) -> str:
        """Wait up to a second for the end of the output, and return its last lines."""
        self.join(1)
        text = self._kept.decode(errors="replace")
        lines = (line.strip(" #\r") for line in text.splitlines())
        return " | ".join(filter(None, lines))


_forwarders: dict[int, _StderrForwarder] = {}
"""Forwarders by JVM process id."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM for the first session of this process.

    Raises
    ------
    SparkDiedError
        The JVM did not start.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAll([*settings.items()])
    forwarder = _StderrForwarder()
    forwarder.start()
    try:
        try:
            gateway = launch_gateway(conf, {"stderr": forwarder.writer})
        finally:
            os.close(forwarder.writer)
    except PySparkRuntimeError as error:
        raise SparkDiedError(f"Spark's JVM did not start{_last_output(forwarder)}") from error
    _forwarders[gateway.proc.pid] = forwarder
    SparkContext._ensure_initialized(gateway=gateway)


def jvm_death(error: BaseException | None = None) -> SparkDiedError | None:
    """Return an error if the JVM started by this process is dead, otherwise None.

    Parameters
    ----------
    error : BaseException, optional
        Error of a call to the JVM. If its connection broke, wait up to `JVM_EXIT_SECONDS_MAX` for
        the JVM to exit.
    """
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    if _is_broken(error):
        with suppress(subprocess.TimeoutExpired):
            process.wait(JVM_EXIT_SECONDS_MAX)
    code = process.poll()
    if code is None:
        return None
    output = _last_output(_forwarders.get(process.pid))
    return SparkDiedError(f"Spark's JVM died: {_describe_exit(code)}{output}")


def _is_broken(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, _BROKEN):
        error = error.__cause__ or error.__context__
    return error is not None


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"


def _last_output(forwarder: _StderrForwarder | None) -> str:
    lines = "" if forwarder is None else forwarder.last_lines()
    return f"; last output: {lines}" if lines else "; no output"
