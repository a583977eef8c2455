"""The progress bar of commands that run Spark, fed by Spark's status tracker."""

import threading
from collections import namedtuple
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError

from logstore.spark.commands import progress as progress_module
from logstore.spark.commands.progress import SparkProgress
from logstore.spark.commands.workload import SparkOptions

Stage = namedtuple("Stage", ("numTasks", "numCompletedTasks"))


class Tracker:
    def __init__(self, *looks):
        self._looks = iter(looks)
        self.stages = {}
        self.is_asked = threading.Event()

    def getActiveStageIds(self):
        self.is_asked.set()
        look = next(self._looks, {})
        if look is None:
            raise Py4JNetworkError("gone")
        self.stages = look
        return list(look)

    def getStageInfo(self, stage):
        return self.stages[stage]


class Bar:
    def __init__(self, visible=True):
        self.visible = visible
        self.shown = []
        self.is_ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_ended = True

    def update(self, task, done, total, detail=""):
        self.shown.append((task, done, total))


def test_tasks_of_all_stages_are_counted():
    bar = Bar()
    tracker = Tracker(
        {},
        {0: Stage(4, 1)},
        {0: Stage(4, 3), 1: Stage(2, 0)},
        {1: Stage(2, 1), 2: None},  # Spark has forgotten the last one
        {},
    )
    progress = SparkProgress("generate t", tracker, bar)
    for _ in range(5):
        progress.refresh()
    assert bar.shown == [("generate t", *each) for each in ((1, 4), (3, 6), (5, 6), (6, 6))]


def test_nothing_is_shown_before_a_stage_and_stages_that_end_stay_complete():
    bar = Bar()
    tracker = Tracker({}, {3: None}, {0: Stage(4, 1)}, {}, {5: Stage(6, 0)})
    progress = SparkProgress("run t", tracker, bar)
    seen = []
    for _ in range(5):
        progress.refresh()
        seen.append(list(bar.shown))
        bar.shown.clear()
    assert seen == [[], [], *([("run t", *each)] for each in ((1, 4), (4, 4), (4, 10)))]


def test_a_thread_looks_while_the_command_runs(monkeypatch):
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.001)
    bar, tracker = Bar(), Tracker({0: Stage(4, 1)}, None)
    with SparkProgress("verify", tracker, bar):
        assert tracker.is_asked.wait(60)
    assert bar.is_ended
    assert bar.shown in ([("verify", 1, 4)], [])


def test_no_progress_is_computed_without_a_terminal():
    bar, tracker = Bar(visible=False), Tracker()
    with SparkProgress("verify", tracker, bar):
        pass
    assert not tracker.is_asked.is_set()


@pytest.mark.slow
def test_a_command_shows_the_projects_bar_and_not_sparks(spark, monkeypatch):
    """Spark's bar writes over the terminal, and names stages that mean nothing to a user."""
    given, looks = [], []
    sessions = "logstore.spark.sessions.session"
    monkeypatch.setattr(
        f"{sessions}.spark_session", lambda name, **options: given.append(options) or spark
    )
    monkeypatch.setattr(f"{sessions}.stop_session", lambda session: None)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(SparkProgress, "refresh", lambda self: looks.append(self._name))
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.001)
    with SparkOptions(None, "1g").session("generate t") as session:
        assert session.range(3).count() == 3
    assert set(looks) == {"generate t"}
    assert "progress" not in given[0], "off by default"


@pytest.mark.parametrize(
    ("master", "submitted", "partitions"),
    (
        (None, False, 16),
        (None, True, None),
        ("local[3]", True, 16),
        ("yarn", False, None),
    ),
)
def test_a_command_has_one_session_and_ends_it(monkeypatch, master, submitted, partitions):
    sessions = "logstore.spark.sessions.session"
    tracker = Tracker()
    session = namedtuple("Session", "sparkContext")(
        namedtuple("Context", "statusTracker")(lambda: tracker)
    )
    given = []

    @contextmanager
    def progress(*arguments):
        given.append(arguments)
        yield
        given.append("end of progress")

    monkeypatch.setattr(progress_module, "SparkProgress", progress)
    monkeypatch.setattr(
        f"{sessions}.spark_session",
        lambda *names, **options: given.append((names, options)) or session,
    )
    monkeypatch.setattr(f"{sessions}.stop_session", given.append)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    expected = {"master": master, "driver_memory": "2g", "shuffle_partitions": partitions}
    with SparkOptions(master, "2g").session("run t") as spark:
        assert spark is session
        assert given == [(("run t",), expected), ("run t", tracker)]
    assert given[2:] == ["end of progress", session]
