"""Fixtures of judges, and counts of their verdicts.

Every test names its row of the compatibility table; the counts are written to
`target/results.json`, from which `python -m tests.interop.compatibility` builds the table.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.interop.judge import (
    BUILDS,
    KAFKA_3,
    KAFKA_4,
    RELEASES,
    REQUIRED,
    Judge,
    Release,
    Unavailable,
    fast_scratch,
)

RESULTS = BUILDS / "results.json"

_rows_of_test: pytest.StashKey[list[tuple[str, str, int]]] = pytest.StashKey()
_counts: dict[tuple[str, str, str], int] = Counter()
_tests: dict[str, set[str]] = {}
_notes: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow time for Maven to download a release for its first test."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def judges() -> Iterator[dict[Release, Judge]]:
    """Running judges, each started at first use."""
    running: dict[Release, Judge] = {}
    yield running
    for judge in running.values():
        judge.close()


def _start(running: dict[Release, Judge], release: Release) -> Judge:
    if release not in running:
        try:
            running[release] = Judge.start(release)
        except Unavailable as error:
            unavailable(error)
    return running[release]


def unavailable(error: Unavailable) -> NoReturn:
    """Skip a test without Kafka's classes, or fail it if they are required."""
    if REQUIRED:
        pytest.fail(f"LOGSTORE_INTEROP_REQUIRED=1, but: {error}")
    pytest.skip(str(error))


@pytest.fixture(params=RELEASES, ids=lambda release: release.profile)
def judge(request: pytest.FixtureRequest, judges: dict[Release, Judge]) -> Judge:
    """Kafka 3 and Kafka 4, one after the other."""
    return _start(judges, request.param)


@pytest.fixture
def kafka3(judges: dict[Release, Judge]) -> Judge:
    """The release for comparisons to the byte."""
    return _start(judges, KAFKA_3)


@pytest.fixture
def kafka4(judges: dict[Release, Judge]) -> Judge:
    """The newest release of the next major version."""
    return _start(judges, KAFKA_4)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory, in memory where possible, removed after the test."""
    path = Path(tempfile.mkdtemp(prefix="interop-", dir=fast_scratch()))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def row(request: pytest.FixtureRequest):
    """Return a function that records this test's row and the number of judged items."""

    def note(name: str, judge: Judge, count: int = 1) -> None:
        rows = request.node.stash.setdefault(_rows_of_test, [])
        rows.append((name, judge.kafka_version, count))

    return note


@pytest.fixture(scope="session")
def say():
    """Return a function that adds a line to the summary at the end."""
    return _notes.append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if report.when == "call" and not report.skipped:
        outcome = "passed" if report.passed else "failed"
        for name, version, count in item.stash.get(_rows_of_test, []):
            _counts[name, version, outcome] += count
            _tests.setdefault(name, set()).add(item.location[0])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _counts:
        return
    results: dict[str, dict] = {}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text())
    for name, version in {key[:2] for key in _counts}:
        results.setdefault(name, {})[version] = {
            outcome: _counts.get((name, version, outcome), 0) for outcome in ("passed", "failed")
        }
        results[name]["tests"] = sorted(_tests[name])
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _counts and not _notes:
        return
    terminalreporter.section("Kafka's judgement")
    for version in sorted({key[1] for key in _counts}):
        for name in sorted({key[0] for key in _counts if key[1] == version}):
            passed = _counts.get((name, version, "passed"), 0)
            failed = _counts.get((name, version, "failed"), 0)
            terminalreporter.write_line(f"Kafka {version}: {name}: {passed} agree, {failed} do not")
    for line in _notes:
        terminalreporter.write_line(line)
