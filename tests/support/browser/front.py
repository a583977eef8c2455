"""Run the page's modules in Node.js: one process for many cases, without a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

FRONT = Path(__file__).resolve().parents[3] / "logstore" / "ui" / "front"
PROGRAM = Path(__file__).with_name("front.mjs")


def find_node() -> str | None:
    """Return the path of Node.js: the system's, or the one inside the package playwright."""
    result = shutil.which("node")
    if result is not None:
        return result
    try:
        from playwright._impl._driver import compute_driver_executable
    except ImportError:
        return None
    packaged = Path(compute_driver_executable()[0])
    return str(packaged) if packaged.exists() else None


class ModuleError(Exception):
    """JavaScript code failed; the message has its stack."""


class Front:
    """A Node.js process that has imported the page's modules.

    Parameters
    ----------
    node : str
        Path of the program.
    copy : Path
        An empty directory, to which the modules are copied.
    timezone : str
        Time zone of the process.
    """

    def __init__(self, node: str, copy: Path, *, timezone: str = "UTC") -> None:
        self._process = subprocess.Popen(
            [node, str(PROGRAM), str(FRONT), str(copy)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "TZ": timezone},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, code: str, argument: object = None) -> Any:
        """Call a JavaScript function with a new `World` and an argument; return its result.

        Raises
        ------
        ModuleError
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "argument": argument}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Node.js ended with {self._process.wait(60)}"
        answer = json.loads(line)
        if "error" in answer:
            raise ModuleError(answer["error"])
        return answer["result"]

    def call(self, module: str, function: str, *calls: tuple[object, ...]) -> list[Any]:
        """Call a function of a module with each list of arguments; return the results."""
        code = """async (world, [module, name, calls]) => {
            const called = (await world.load(module))[name];
            return calls.map((each) => called(...each));
        }"""
        results: list[Any] = self.run(code, [module, function, [list(each) for each in calls]])
        return results
