"""The JVM that this process started for Spark, with an ear for its last words.

PySpark has one JVM a process, and does not notice when it is gone: each later call is refused, each
with a stack of its own. What the JVM writes to its standard error goes on to ours as it comes; the
last of it is kept, so that an error can say why the JVM died.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from logstore.errors import LogStoreError

WORDS_BYTES_MAX = 4096
"""So much of what the JVM said last is kept."""

DYING_SECONDS_MAX = 10
"""A broken connection is the first that is seen of a JVM that dies; its exit code comes later."""

_STDERR = 2
_BROKEN = (Py4JNetworkError, ConnectionError, EOFError)


class SparkDiedError(LogStoreError):
    """The JVM ended in the midst of its work; the message has its exit code and last words."""

    exit_code = 3


class _Ear(threading.Thread):
    """Hands a pipe's bytes on to standard error, and keeps the last of them."""

    def __init__(self) -> None:
        super().__init__(name="logstore-spark-stderr", daemon=True)
        self._reader, self.writer = os.pipe()
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def run(self) -> None:
        with suppress(OSError):
            while chunk := os.read(self._reader, WORDS_BYTES_MAX):
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._chunks[0]) >= WORDS_BYTES_MAX:
                    self._size -= len(self._chunks.popleft())
                with suppress(OSError):  # nobody listens to ours
                    os.write(_STDERR, chunk)
        os.close(self._reader)

    def words(self) -> str:
        """Return the last lines, as soon as all of them are here."""
        self.join(1)
        text = b"".join(self._chunks)[-WORDS_BYTES_MAX:].decode(errors="replace")
        lines = (line.strip(" #\r") for line in text.splitlines())
        return " | ".join(filter(None, lines))


_ears: dict[int, _Ear] = {}
"""By the process id of the JVM."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, as the first session would.

    Raises
    ------
    SparkDiedError
        It did not come up.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAll([*settings.items()])
    ear = _Ear()
    ear.start()
    try:
        try:
            gateway = launch_gateway(conf, {"stderr": ear.writer})
        finally:
            os.close(ear.writer)
    except PySparkRuntimeError as error:
        raise SparkDiedError(f"Spark's JVM died as it started{_said(ear)}") from error
    _ears[gateway.proc.pid] = ear
    SparkContext._ensure_initialized(gateway=gateway)


def jvm_death(error: BaseException | None = None) -> SparkDiedError | None:
    """Return what there is to say if the JVM that this process started is dead, else None.

    Parameters
    ----------
    error : BaseException, optional
        What came of talking to it: where it tells of a broken connection, the JVM gets a while to
        end.
    """
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    if _is_broken(error):
        with suppress(subprocess.TimeoutExpired):
            process.wait(DYING_SECONDS_MAX)
    code = process.poll()
    if code is None:
        return None
    return SparkDiedError(f"Spark's JVM died: {_ending(code)}{_said(_ears.get(process.pid))}")


def _is_broken(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, _BROKEN):
        error = error.__cause__ or error.__context__
    return error is not None


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"


def _said(ear: _Ear | None) -> str:
    words = "" if ear is None else ear.words()
    return f"; it said last: {words}" if words else "; it said nothing"
