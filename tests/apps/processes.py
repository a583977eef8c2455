"""Programs in processes of their own, which a test starts, stops, kills and starts again."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.interop.real_broker import java

STOP_TIMEOUT_S = 60
TIMEOUT_S = 180
"""Upper bound of every wait; a wait that long is a failure."""

_pause = threading.Event()


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Return once a condition holds; raise TimeoutError that names it otherwise."""
    for _ in range(TIMEOUT_S * 20):
        if condition():
            return
        _pause.wait(0.05)
    raise TimeoutError(f"{what}: not within {TIMEOUT_S} s")


class Program:
    """A program whose output is appended to a file, over all of its starts.

    Attributes
    ----------
    starts, stops, kills : int
        How often each happened.
    """

    def __init__(
        self, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._output = output
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        self.starts = self.stops = self.kills = 0
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        """Start the program, which must not be running."""
        assert self._process is None
        self._first = self._output.stat().st_size
        self.starts += 1
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, stdout=file, stderr=file, env=self._environment
            )

    def stop(self) -> None:
        """Send SIGTERM and wait for the program to end."""
        self.stops += 1
        process = self._running()
        process.terminate()
        process.wait(timeout=STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL and wait for the program to end."""
        self.kills += 1
        process = self._running()
        process.kill()
        process.wait(timeout=STOP_TIMEOUT_S)
        self._process = None

    def output(self) -> str:
        """Return the output of all starts."""
        return self._output.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until the output of the latest start contains a text."""

        def found() -> bool:
            output = self._output.read_bytes()[self._first :]
            assert self._running().poll() is None, self.describe()
            return text.encode() in output

        wait_for(found, f"{text!r} in {self._output.name}")

    def ensure_running(self) -> None:
        """Raise AssertionError with the end of the output if the program has ended by itself."""
        if self._process is not None:
            assert self._process.poll() is None, self.describe()

    def describe(self) -> str:
        """Return the end of the output, for messages."""
        return f"{self._output}:\n{self.output()[-3000:]}"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self._output.name} is not running"
        return self._process


class JavaProgram(Program):
    """A Java program that reads a properties file.

    Parameters
    ----------
    class_path, main : str
    home : Path
        Gets the properties and the output.
    name : str
        Of both files.
    settings : mapping
        The properties.
    """

    def __init__(
        self, class_path: str, main: str, home: Path, name: str, settings: Mapping[str, str]
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        path = write_properties(home / f"{name}.properties", settings)
        super().__init__(java(class_path, main, str(path)), home / f"{name}.out")


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a Java properties file, and return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
