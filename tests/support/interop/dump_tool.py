"""Kafka's dump tool, and its output for some golden files (tests/data/kafka-3.9/dump).

`python -m tests.support.interop.dump_tool` records the output again. Files are named relative to
tests/data/kafka-3.9; absolute paths in the output are replaced by `DIR`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.interop.judge import KAFKA_3, build
from tests.support.world.golden_dirs import ROOT

RECORDED = ROOT / "dump"
WORKING_DIR = "DIR"
MAIN_CLASS = "kafka.tools.DumpLogSegments"


class ToolOutput(NamedTuple):
    """Output of a call of the tool, with `DIR` for its directory."""

    output: str
    reports: str
    exit_code: int


def cases() -> dict[str, tuple[list[str], list[str]]]:
    """Return name → (flags, files) of the recorded calls."""
    stored = json.loads((RECORDED / "cases.json").read_text())
    return {name: (case["flags"], case["files"]) for name, case in stored.items()}


def kafka_dump(flags: Sequence[str], files: Sequence[str], directory: Path = ROOT) -> ToolOutput:
    """Run Kafka's tool in a directory.

    Raises
    ------
    tests.support.interop.judge.Unavailable
    """
    judge = build(KAFKA_3)
    classes = judge[judge.index("-cp") + 1]
    java = ("java", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-cp", classes, MAIN_CLASS)
    done = subprocess.run(
        [*java, *flags, "--files", ",".join(files)],
        cwd=directory,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
    )
    reports = done.stderr.decode().replace(str(directory), WORKING_DIR)
    return ToolOutput(done.stdout.decode(), reports, done.returncode)


def record() -> None:
    """Record the output of the tool for every case."""
    for name, (flags, files) in cases().items():
        reply = kafka_dump(flags, files)
        assert reply.exit_code == 0, reply.reports
        (RECORDED / f"{name}.out").write_bytes(reply.output.encode())
        (RECORDED / f"{name}.err").write_bytes(reply.reports.encode())
        sys.stdout.write(f"{name}: {len(reply.output)} and {len(reply.reports)} bytes\n")


if __name__ == "__main__":
    record()
