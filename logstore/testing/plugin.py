"""The pytest plugin: a fresh broker a test, in memory or on the disk, with time in hand.

pytest loads it by its entry point in every run where the package is installed. So it imports
nothing but pytest until a test asks for one of its fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from logstore.broker import Broker
    from logstore.runtime import VirtualClock
    from logstore.wire.listener import Listener

MARKER = "logstore"

FIXTURES = frozenset({"logstore_broker", "logstore_server", "logstore_server_factory"})
"""Those with a broker, whose kernels are made ready before the first test."""

STORAGES = ("memory", "disk")

_BROKER: pytest.StashKey[Broker[VirtualClock]] = pytest.StashKey()
"""The broker of a test, while it is open."""

_DEFAULTS: dict[str, Any] = {
    "storage": None,
    "start": None,
    "seed": 0,
    "background": False,
    "broker_config": {},
}
"""What the marker takes; the command line or the ini file says where nothing stands here."""

_INI: tuple[tuple[str, str, Any, str], ...] = (
    ("logstore_storage", "string", "", "where brokers have their files: memory (default) or disk"),
    ("logstore_start", "string", "", "ISO 8601 time at which logstore_clock starts"),
    (
        "logstore_broker_config",
        "linelist",
        [],
        "key=value of Kafka's server.properties, one a line",
    ),
    ("logstore_warmup", "bool", True, "make kernels ready before the first test that has a broker"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option and the keys of the ini file."""
    group = parser.getgroup("logstore", "brokers of kafka-logstore")
    group.addoption(
        "--logstore-storage",
        choices=STORAGES,
        help="where logstore_broker has its files, unless a marker says (default: memory)",
    )
    for name, kind, default, about in _INI:
        parser.addini(name, about, type=kind, default=default)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(storage='memory', start=None, seed=0, background=False, broker_config={{}}):"
        " the broker and the clock of this test (kafka-logstore)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Make kernels ready, where no test's time limit runs; parallel workers share the work."""
    config = session.config
    if config.getoption("collectonly") or not config.getini("logstore_warmup"):
        return
    if not any(FIXTURES & set(getattr(item, "fixturenames", ())) for item in session.items):
        return
    from logstore.broker.warmup import warm_up
    from logstore.runtime import SystemClock

    timer = SystemClock()
    started_ms = timer.monotonic_ms()
    warm_up()
    seconds = (timer.monotonic_ms() - started_ms) / 1000
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and seconds > 3:
        reporter.write_line(
            f"logstore: kernels ready after {seconds:.0f} s (compiled once a machine)"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the state of its broker to the report of a test that failed."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    broker = item.stash.get(_BROKER, None)
    if report.failed and broker is not None:
        from logstore.testing.describing import described

        report.sections.append(("logstore broker", described(broker)))


# --- fixtures ----------------------------------------------------------------------------------


@pytest.fixture
def logstore_clock(request: pytest.FixtureRequest) -> VirtualClock:
    """Return virtual time, which stands until it is moved: at the marker's start or 2024-01-01."""
    from datetime import datetime

    from logstore.runtime import VirtualClock

    start = _options(request)["start"]
    if start is None:
        start = request.config.getini("logstore_start") or VirtualClock().now_ms()
    return VirtualClock(datetime.fromisoformat(start) if isinstance(start, str) else start)


@pytest.fixture
def logstore_data_dir(tmp_path: Path) -> Path:
    """Return a directory on the disk, not there yet, in which `logstore_broker` has its files."""
    return tmp_path / "logstore-data"


@pytest.fixture
def logstore_broker(
    request: pytest.FixtureRequest, logstore_clock: VirtualClock
) -> Iterator[Broker[VirtualClock]]:
    """Open a fresh broker on `logstore_clock`, in memory by default; it is closed after the test.

    It is on the disk if the test has `logstore_data_dir` too, or the marker, the command line or
    the ini file says so.
    """
    from logstore.broker import Broker

    options = _options(request)
    broker = Broker(
        _data_dir(request, options["storage"]),
        clock=logstore_clock,
        broker_config=options["broker_config"],
        seed=options["seed"],
        background=options["background"],
    )
    with broker:
        request.node.stash[_BROKER] = broker
        try:
            yield broker
        finally:
            del request.node.stash[_BROKER]


@pytest.fixture
def logstore_server(logstore_broker: Broker[VirtualClock]) -> Iterator[Listener]:
    """Serve Kafka's clients from `logstore_broker`: `logstore_server.bootstrap` is its address.

    Records get the time added that `logstore_clock` is ahead of the clients' clock, or behind it,
    so that they grow old as the clock is moved.
    """
    with _silent_afterwards(), logstore_broker.listen(restamp=True) as listener:
        yield listener


@pytest.fixture
def logstore_server_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Listener]]:
    """Return a function that opens further listeners, closed after the test.

    It takes what `Broker.listen` takes, and `broker`; without it each has a fresh broker in memory
    on the machine's time, of which `broker_config` is the configuration.
    """
    from logstore.broker import Broker

    with _silent_afterwards(), ExitStack() as opened:

        def serve(
            broker: Broker[Any] | None = None,
            broker_config: Mapping[str, object] | None = None,
            **options: Any,
        ) -> Listener:
            if broker is None:
                configs = _options(request)["broker_config"] | dict(broker_config or {})
                broker = opened.enter_context(Broker(broker_config=configs))
            elif broker_config is not None:
                _refuse("logstore_server_factory takes a broker or its broker_config, not both")
            return opened.enter_context(broker.listen(**options))

        yield serve


@contextmanager
def _silent_afterwards() -> Iterator[None]:
    """Drop what kafka-python logs in threads of clients that outlive their server.

    A client that a test left open goes on to connect, and would fill reports with ECONNREFUSED.
    """
    import logging
    import threading
    from weakref import WeakSet

    before = set(threading.enumerate())
    yield
    left = WeakSet(set(threading.enumerate()) - before)
    if not left:
        return

    def is_shown(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in left

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("kafka."):
            logging.getLogger(name).addFilter(is_shown)


def _data_dir(request: pytest.FixtureRequest, storage: str | None) -> Path | None:
    wants_dir = "logstore_data_dir" in request.fixturenames
    config = request.config
    storage = (
        storage
        or ("disk" if wants_dir else None)
        or config.getoption("logstore_storage")
        or config.getini("logstore_storage")
        or "memory"
    )
    if storage not in STORAGES:
        _refuse(f"storage is {' or '.join(STORAGES)}, not {storage!r}")
    if storage == "disk":
        path: Path = request.getfixturevalue("logstore_data_dir")
        return path
    if wants_dir:
        _refuse("a test with logstore_data_dir has its broker on the disk, not in memory")
    return None


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the markers of a test say: the nearest first, broker configs laid over others."""
    options = dict(_DEFAULTS)
    configs = dict(_property(line) for line in request.config.getini("logstore_broker_config"))
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            _refuse(f"the marker {MARKER} takes its options by name, not {marker.args[0]!r}")
        for name in marker.kwargs:
            if name not in _DEFAULTS:
                nearest = get_close_matches(name, _DEFAULTS, 1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                _refuse(f"the marker {MARKER} has no option {name!r}{hint}")
        options |= marker.kwargs
        configs |= marker.kwargs.get("broker_config", {})
    options["broker_config"] = configs
    return options


def _property(line: str) -> tuple[str, str]:
    key, equals, value = line.partition("=")
    if not equals:
        _refuse(f"logstore_broker_config has lines key=value, not {line!r}")
    return key.strip(), value.strip()


def _refuse(why: str) -> NoReturn:
    pytest.fail(f"logstore: {why}", pytrace=False)
