"""A standalone Spark cluster on loopback, from the pyspark package: a master and its workers.

Every process has a mark in its environment, by which all of them, including Python workers of
executors, are found and ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark

from logstore.spark.sessions.java import find_java, wrap_java
from tests.support.world.workload_commands import INTERPRETED, JVM_OPTIONS, ROOT

SPARK_HOME = Path(pyspark.__file__).parent
MARK = "LOGSTORE_TEST_CLUSTER"

START_SECONDS_MAX = 60
END_SECONDS_MAX = 10

_FAST_START = f"{JVM_OPTIONS} -XX:+UseSerialGC"

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker \S+ with (\d+) cores")


class Submitted(NamedTuple):
    """The result of a job of `spark-submit`."""

    code: int
    output: str
    errors: str


class Cluster:
    """A running cluster.

    Attributes
    ----------
    url : str
        `spark://…`, of the master.
    folder : Path
        Logs, and the work directories of the workers.
    events : Path
        Has the event log of each job, named by its application.
    """

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.events.mkdir()
        self.environ = environ
        self.url = ""
        self._processes: list[subprocess.Popen] = []

    def start(self, workers: int) -> None:
        """Start everything, and wait until the master knows its workers."""
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = self._launch("master", "org.apache.spark.deploy.master.Master", *own)
        self.url = self._wait_for(log, _MASTER_URL, 1)[0]
        for number in range(workers):
            work = self.folder / f"work-{number}"
            self._launch(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *own,
                "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url,
            )  # fmt: skip
        self._wait_for(log, _REGISTERED, workers)

    def submit(self, script: Path, *arguments: str, seconds: float = 300) -> Submitted:
        """Run a job to its end, its driver in a process of this machine.

        It waits for all workers; otherwise the first might do all of a small job.
        """
        confs = {
            "spark.driver.extraJavaOptions": _FAST_START,
            "spark.executor.extraJavaOptions": _FAST_START,
            **INTERPRETED,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": self.events.as_uri(),
        }
        options = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
        done = subprocess.run(
            [
                str(SPARK_HOME / "bin" / "spark-submit"),
                *("--master", self.url, *options, str(script), *arguments),
            ],
            check=False,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
        return Submitted(done.returncode, done.stdout, done.stderr)

    def stop(self) -> None:
        """End every process with the mark, by force if necessary."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + END_SECONDS_MAX
        while (left := self.members()) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(END_SECONDS_MAX)

    def members(self) -> list[int]:
        """Return the processes with the mark."""
        mark = f"{MARK}={self.environ[MARK]}".encode()
        result = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    result.append(int(entry.name))
        return result

    def _launch(self, name: str, *command: str) -> Path:
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(
                    [str(SPARK_HOME / "bin" / "spark-class"), *command],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=self.environ,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )
        return log

    def _wait_for(self, log: Path, pattern: re.Pattern[str], count: int) -> list[str]:
        deadline = time.monotonic() + START_SECONDS_MAX
        while len(result := pattern.findall(log.read_text(errors="replace"))) < count:
            removed = [process for process in self._processes if process.poll() is not None]
            if removed or time.monotonic() > deadline:
                logs = "\n".join(each.read_text() for each in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"the cluster did not start:\n{logs}")
            time.sleep(0.05)
        return result

    def _reap(self) -> None:
        for process in self._processes:
            process.poll()


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster of workers with one core each; all of its processes and files are removed.

    Raises
    ------
    JavaNotFoundError
        There is no Java.
    """
    folder.mkdir(parents=True)
    environ = {
        **os.environ,
        MARK: uuid.uuid4().hex,
        "JAVA_HOME": str(wrap_java(find_java(), folder / "java")),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _FAST_START,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_CONF_DIR"):
        environ.pop(name, None)
    cluster = Cluster(folder, environ)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
