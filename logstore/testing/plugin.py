"""The pytest plugin, which provides each test with a new broker on a virtual clock.

pytest loads the plugin in every run through its entry point. Until a test uses a fixture, the
plugin only imports pytest.
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
"""The fixtures that open a broker.

With `logstore_warmup`, kernels are loaded before the first such test.
"""

STORAGES = ("memory", "disk")

_BROKER: pytest.StashKey[Broker[VirtualClock]] = pytest.StashKey()
"""The open broker of a test."""

_DEFAULTS: dict[str, Any] = {
    "storage": None,
    "start": None,
    "seed": 0,
    "background": False,
    "broker_config": {},
}
"""The options of the marker.

If an option is None, the command line or the ini file determines it.
"""

_INI: tuple[tuple[str, str, Any, str], ...] = (
    ("logstore_storage", "string", "", "storage of brokers: memory (default) or disk"),
    ("logstore_start", "string", "", "start time of logstore_clock (ISO 8601)"),
    (
        "logstore_broker_config",
        "linelist",
        [],
        "broker settings as in server.properties, one key=value per line",
    ),
    ("logstore_warmup", "bool", False, "compile all kernels before the first test with a broker"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the command line option and the ini keys."""
    group = parser.getgroup("logstore", "brokers of kafka-logstore")
    group.addoption(
        "--logstore-storage",
        choices=STORAGES,
        help="storage of logstore_broker; a marker overrides it (default: memory)",
    )
    for name, kind, default, about in _INI:
        parser.addini(name, about, type=kind, default=default)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(storage='memory', start=None, seed=0, background=False, broker_config={{}}):"
        " options of the broker and clock of this test (kafka-logstore)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compile all kernels before tests run, outside their time limits.

    Parallel workers share the compilation.
    """
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
    """Add the state of the broker to the report of a failed test."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    broker = item.stash.get(_BROKER, None)
    if report.failed and broker is not None:
        from logstore.testing.describing import described

        report.sections.append(("logstore broker", described(broker)))


# --- fixtures ----------------------------------------------------------------------------------


@pytest.fixture
def logstore_clock(request: pytest.FixtureRequest) -> VirtualClock:
    """Return a stopped virtual clock, at the marker's start time or 2024-01-01."""
    from datetime import datetime

    from logstore.runtime import VirtualClock

    start = _options(request)["start"]
    if start is None:
        start = request.config.getini("logstore_start") or VirtualClock().now_ms()
    return VirtualClock(datetime.fromisoformat(start) if isinstance(start, str) else start)


@pytest.fixture
def logstore_data_dir(tmp_path: Path) -> Path:
    """Return the data directory of `logstore_broker`, which is then stored on disk."""
    return tmp_path / "logstore-data"


@pytest.fixture
def logstore_broker(
    request: pytest.FixtureRequest, logstore_clock: VirtualClock
) -> Iterator[Broker[VirtualClock]]:
    """Open a new broker on `logstore_clock`, which is closed after the test.

    The broker is in memory, unless the test also uses `logstore_data_dir`, or the marker, the
    command line or the ini file selects the disk.
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
    """Serve `logstore_broker` to Kafka clients at the address `logstore_server.bootstrap`.

    Record timestamps are shifted by the difference between `logstore_clock` and the system clock,
    so that records age with the virtual clock.
    """
    with _suppress_client_logs(), logstore_broker.listen(restamp=True) as listener:
        yield listener


@pytest.fixture
def logstore_server_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Listener]]:
    """Return a function that opens additional listeners, which are closed after the test.

    The function takes `broker` and the arguments of `Broker.listen`. Without `broker`, each
    listener gets a new in-memory broker on the system clock, configured with `broker_config`.
    """
    from logstore.broker import Broker

    with _suppress_client_logs(), ExitStack() as opened:

        def serve(
            broker: Broker[Any] | None = None,
            broker_config: Mapping[str, object] | None = None,
            **options: Any,
        ) -> Listener:
            if broker is None:
                configs = _options(request)["broker_config"] | dict(broker_config or {})
                broker = opened.enter_context(Broker(broker_config=configs))
            elif broker_config is not None:
                _refuse(
                    "logstore_server_factory takes either a broker or a broker_config, not both"
                )
            return opened.enter_context(broker.listen(**options))

        yield serve


@contextmanager
def _suppress_client_logs() -> Iterator[None]:
    """Drop log messages of kafka-python clients whose server was closed.

    Such clients try to reconnect and would fill the report with ECONNREFUSED errors.
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
        _refuse(f"storage must be {' or '.join(STORAGES)}, not {storage!r}")
    if storage == "disk":
        path: Path = request.getfixturevalue("logstore_data_dir")
        return path
    if wants_dir:
        _refuse("storage 'memory' conflicts with the fixture logstore_data_dir")
    return None


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Merge the options of a test's markers. The closest marker wins; broker configs are merged."""
    options = dict(_DEFAULTS)
    configs = dict(_property(line) for line in request.config.getini("logstore_broker_config"))
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            _refuse(f"the marker {MARKER} takes keyword arguments only, not {marker.args[0]!r}")
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
        _refuse(f"logstore_broker_config: expected key=value, got {line!r}")
    return key.strip(), value.strip()


def _refuse(why: str) -> NoReturn:
    pytest.fail(f"logstore: {why}", pytrace=False)
