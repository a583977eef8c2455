"""kafka-python's integration tests, taken from its source distribution at run time."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree as ET

from tests.support.interop.judge import BUILDS, Unavailable

VERSION = "3.0.12"
FETCH_TIMEOUT_S = 120
TESTS_TIMEOUT_S = 600

GO_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
"""Names of outcomes, by the words of `go test`."""

_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""
"""Replacement of a module that the distribution omits, reduced to use a running broker."""


def fetched() -> Path:
    """Return the folder of the source distribution, fetched the first time.

    Raises
    ------
    Unavailable
        The package index does not give it.
    """
    folder = BUILDS / f"kafka_python-{VERSION}"
    if (folder / "test" / "integration").is_dir():
        return folder
    BUILDS.mkdir(exist_ok=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-binary", ":all:", "--no-deps", "--no-build-isolation", "--dest", str(BUILDS)),
        f"kafka-python=={VERSION}",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable("kafka-python's source did not come in time") from error
    if done.returncode:
        raise Unavailable(f"kafka-python's source is not to be had: {done.stderr.strip()[-300:]}")
    with tarfile.open(BUILDS / f"kafka_python-{VERSION}.tar.gz") as archive:
        archive.extractall(BUILDS, filter="data")
    # Its fixtures require a Kafka of this version before they accept a running one.
    (folder / "servers" / "4.0.0" / "kafka-bin").mkdir(parents=True, exist_ok=True)
    # Otherwise Python imports its own package of this name.
    (folder / "test" / "__init__.py").touch()
    (folder / "test" / "service.py").write_text(_SERVICE)
    return folder


def run(bootstrap: str, report: Path, tests: str = "not sasl and not ssl") -> dict[str, str]:
    """Run the tests that an expression of pytest's `-k` selects; return the outcomes by name.

    A name is `module::test`, and an outcome is `passed`, `failed`, or why it was skipped.

    Raises
    ------
    Unavailable
    """
    source = fetched()
    environment = {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": "4.0.0"}
    arguments = ("-k", tests, "test/integration")
    return run_pytest(sys.executable, source, arguments, environment, report)


def run_pytest(
    python: str | Path,
    source: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    report: Path,
) -> dict[str, str]:
    """Run tests in a foreign directory; return as `run` does. Their output follows the report."""
    command = [
        *(str(python), "-m", "pytest", "-q", "-ra"),
        *("-p", "no:cacheprovider", "--timeout=60", "--timeout-method=signal"),
        *(f"--junit-xml={report}", *arguments),
    ]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    with report.with_suffix(".log").open("wb") as output:
        subprocess.run(
            command,
            cwd=source,
            env={**inherited, "PYTHONPATH": str(source), **environment},
            stdout=output,
            stderr=output,
            timeout=TESTS_TIMEOUT_S,
            check=False,
        )
    return dict(_outcomes(report))


def print_outcomes(
    outcomes: Iterable[tuple[str, str]], reasons: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Print each outcome that is not `passed`, with the reason of a known failure, and the counts.

    What follows a colon in an outcome is not counted apart.
    """
    states = []
    for test, outcome in outcomes:
        states.append(outcome.partition(":")[0])
        if outcome != "passed":
            reason = f": {reasons[test]}" if outcome == "failed" and test in reasons else ""
            print(f"{outcome}  {test}{reason}")
    print(", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))))


def _outcomes(report: Path) -> list[tuple[str, str]]:
    result = []
    for case in ET.parse(report).iter("testcase"):
        state = "passed"
        for kind in ("failure", "error"):
            if case.find(kind) is not None:
                state = "failed"
        skipped = case.find("skipped")
        if skipped is not None:
            state = f"skipped: {skipped.get('message')}"
        place = case.get("classname", "").rpartition(".")[2]
        result.append((f"{place}::{case.get('name')}", state))
    return result
