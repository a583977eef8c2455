"""Progress bars: the texts of each step, and the conditions under which a bar is shown."""

from types import SimpleNamespace

import pytest

from logstore.cli.show import progress
from logstore.cli.show.progress import FINISHED_SHOWN_MAX, ProgressBar, dry_run_bars, watched


class Terminal:
    """A terminal that records the events of a bar."""

    def __init__(self, unit):
        self.unit, self.events, self.tasks = unit, [], []

    def start(self):
        self.events.append("start")

    def stop(self):
        self.events.append("stop")

    def add_task(self, task, *, total, detail):
        self.events.append(("add", task, total, detail))
        self.tasks.append(SimpleNamespace(id=len(self.tasks), total=total))
        return len(self.tasks) - 1

    def update(self, number, **values):
        self.events.append(("update", number, values))
        self.tasks[number].total = values.get("total", self.tasks[number].total)

    def remove_task(self, number):
        self.events.append(("remove", number))


def streams(*are_terminals):
    stderr, stdout = (SimpleNamespace(isatty=lambda is_one=each: is_one) for each in are_terminals)
    return SimpleNamespace(stderr=stderr, stdout=stdout)


@pytest.fixture
def shown(monkeypatch):
    """Return the terminals that were used; standard error is one."""
    shown = []

    def begin(unit):
        shown.append(Terminal(unit))
        return shown[-1]

    monkeypatch.setattr(progress, "_new_progress", begin)
    monkeypatch.setattr(progress, "sys", streams(True, True))
    return shown


@pytest.mark.parametrize("has_stderr", (True, False))
@pytest.mark.parametrize("has_stdout", (True, False))
@pytest.mark.parametrize("with_output", (True, False))
def test_a_bar_needs_a_terminal_without_results(
    shown, monkeypatch, has_stderr, has_stdout, with_output
):
    monkeypatch.setattr(progress, "sys", streams(has_stderr, has_stdout))
    with ProgressBar(with_output=with_output) as bar:
        assert bar.visible == (has_stderr and not (with_output and has_stdout))
        bar.update("task", 1, 2)
    assert len(shown) == bar.visible


def test_a_task_begins_with_its_first_step_and_ends_with_its_total(shown):
    with ProgressBar() as bar:
        bar.finish("a")
        assert shown == []
        bar.update("a", 0, None, "first")
        bar.update("b", 1, 10)
        bar.update("a", 5, 8, "second")
        bar.finish("a")
        bar.finish("a")
        bar.update("a", 1, 3)
    [terminal] = shown
    assert terminal.unit == progress.BYTES
    assert terminal.events == [
        "start",
        ("add", "a", None, "first"),
        ("update", 0, {"completed": 0, "total": None, "detail": "first"}),
        ("add", "b", 10, ""),
        ("update", 1, {"completed": 1, "total": 10, "detail": ""}),
        ("update", 0, {"completed": 5, "total": 8, "detail": "second"}),
        ("update", 0, {"completed": 8}),
        ("add", "a", 3, ""),
        ("update", 2, {"completed": 1, "total": 3, "detail": ""}),
        "stop",
    ]


def test_the_last_finished_tasks_stay(shown):
    with ProgressBar("partitions") as bar:
        for number in range(FINISHED_SHOWN_MAX + 3):
            bar.update(str(number), 0, 1)
            bar.finish(str(number))
            removed = [each[1] for each in shown[0].events if each[0] == "remove"]
            assert removed == [*range(max(0, number + 1 - FINISHED_SHOWN_MAX))]
    assert shown[0].unit == "partitions"


def test_items_are_not_counted_among_their_results(shown):
    assert [*watched(["t-0", "t-1"], "reading", with_output=True)] == ["t-0", "t-1"]
    assert shown == []
    assert [*watched(["t-0", "t-1"], "reading")] == ["t-0", "t-1"]
    assert [each.unit for each in shown] == ["partitions"]


@pytest.mark.parametrize("count", (0, 1, 3))
def test_several_items_are_counted_as_they_are_taken(shown, count):
    items = [f"t-{number}" for number in range(count)]
    assert [*watched(items, "reading", "files")] == items
    if count < 2:
        assert shown == []
        return
    [terminal] = shown
    assert terminal.unit == "files"
    assert terminal.events[0:2] == ["start", ("add", "reading", 3, "t-0")]
    assert terminal.events[2:] == [
        *(
            ("update", 0, {"completed": number, "total": 3, "detail": f"t-{number}"})
            for number in range(3)
        ),
        "stop",
    ]


def test_a_dry_run_shows_its_phases_if_that_is_wanted(shown, monkeypatch):
    step = SimpleNamespace(bytes_done=4, bytes_total=9, phase="index")
    with dry_run_bars(False) as listener:
        assert listener is None
    with dry_run_bars(True) as listener:
        listener("t-0", step)
    assert shown[0].events == [
        "start",
        ("add", "dry run of t-0", 9, "index"),
        ("update", 0, {"completed": 4, "total": 9, "detail": "index"}),
        "stop",
    ]
    with dry_run_bars(True, with_output=True) as listener:
        assert listener is None


@pytest.mark.parametrize(
    ("unit", "text"),
    (
        (progress.BYTES, "copying|3.0/9.0 MiB||0:00:00|users-0"),
        ("partitions", "copying|3145728/9437184|partitions|0:00:00|users-0"),
    ),
)
def test_a_bar_has_these_columns(unit, text):
    bar = progress._new_progress(unit)
    number = bar.add_task("copying", total=9 << 20, detail="users-0", start=False)
    bar.update(number, completed=3 << 20)
    columns = [str(column(bar.tasks[0])) for column in bar.columns]
    assert columns[1].startswith("<")  # the bar itself
    found = "|".join([columns[0], *columns[2:]]).replace("-:--:--", "0:00:00")
    assert found == text
    assert bar.columns[1].bar_width == 30
    assert (bar.console.stderr, bar.live.transient) == (True, True)
    assert (bar.live._redirect_stdout, bar.live._redirect_stderr) == (False, True)
