"""The applications as fixtures, and the table of figures at the end."""

from collections.abc import Callable, Iterator

import pytest

from tests.apps.building import RELEASES, Apps, class_path
from tests.apps.figures import Figures, table
from tests.interop.conftest import unavailable
from tests.support.interop.judge import Unavailable

_rows: list[Figures] = []


@pytest.fixture(params=RELEASES, ids=lambda apps: apps.kafka_version)
def apps(request: pytest.FixtureRequest) -> Apps:
    """The applications with Kafka 3's libraries, and with Kafka 4's."""
    return request.param


@pytest.fixture
def classes(apps: Apps) -> str:
    """The class path of the applications."""
    try:
        return class_path(apps)
    except Unavailable as error:
        unavailable(error)


@pytest.fixture
def figures(apps: Apps) -> Iterator[Callable[[str, str], Figures]]:
    """Return a function that begins a row of the table."""
    begun: list[Figures] = []

    def begin(application: str, brokers: str) -> Figures:
        begun.append(Figures(application, apps.kafka_version, brokers))
        return begun[-1]

    yield begin
    for row in begun:
        row.end()
    _rows.extend(begun)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _rows:
        terminalreporter.section("applications")
        for line in table(_rows):
            terminalreporter.write_line(line)
