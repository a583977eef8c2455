"""Commands of `logstore workload` in a separate process, several on one JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For a few rows: plans as large as the oracle's take longer to compile than to interpret."""

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Options for small jobs, which end before the second compiler pays off. Without it the code cache
would have 48 MiB, which the plans of some hundred tests fill; then the JVM dies."""

_SCRIPT = """
import contextlib, io, json, sys
from logstore.cli.main import main
results = []
for arguments in json.loads(sys.argv[1]):
    code, out = 0, io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(["workload", *arguments], prog_name="logstore")
        except SystemExit as leaving:
            code = leaving.code or 0
    results.append((code, out.getvalue()))
print(json.dumps(results))
"""


def environ_without_java(folder: Path) -> dict[str, str]:
    """Return an environment that leads to every program of this machine but Java.

    Parameters
    ----------
    folder : Path
        Gets a link to each program; not there yet.
    """
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program.absolute())
    environ = {**os.environ, "PATH": str(folder)}
    environ.pop("JAVA_HOME", None)
    return environ


class Ran(NamedTuple):
    """Result of commands: exit code and standard output of each, standard error of all."""

    codes: list[int]
    outputs: list[str]
    errors: str


def submitting_interpreted(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which sessions start `INTERPRETED`."""
    confs = " ".join(f"--conf {key}={value}" for key, value in INTERPRETED.items())
    return {**environ, "PYSPARK_SUBMIT_ARGS": f"{confs} pyspark-shell"}


def run_commands(
    *commands: Sequence[object], environ: Mapping[str, str] | None = None, seconds: float = 240
) -> Ran:
    """Run commands one after another in one new process; each starts with `generate`, …"""
    environ = submitting_interpreted(os.environ if environ is None else environ)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _SCRIPT,
            json.dumps([[str(each) for each in command] for command in commands]),
        ],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return Ran([code for code, _ in report], [out for _, out in report], done.stderr)
