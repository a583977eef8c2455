"""Lines of the group `growth`, at their smallest sizes."""

import pytest

from logstore.bench.measuring import Sample
from logstore.bench.micro import growth
from logstore.bench.micro.logs import MIB
from logstore.bench.micro.setting import Setting
from logstore.bench.report.result import Figures
from logstore.broker import Broker


@pytest.fixture
def commands(monkeypatch):
    """Return the commands that were measured; each takes 1 s of CPU."""
    made = []

    def process(command, environment):
        def run():
            made.append(command)
            return Sample(1.0, 2.0)

        return run

    monkeypatch.setattr(growth, "process", process)
    return made


@pytest.mark.parametrize("axis", growth.AXES, ids=lambda axis: axis.name)
def test_each_axis_measures_its_tasks(tmp_path, commands, axis):
    setting = Setting(tmp_path, total_bytes=MIB, repeats=1, warmups=0, has_peers=False)
    jobs = {job.names: job for job in growth.jobs()}
    tasks, count = axis.tasks, axis.sizes[0]
    name = axis.name.replace(", ", "-").replace(" ", "-")
    names = tuple(f"growth/{name}-{task}-{count}" for task in tasks)
    lines = list(jobs[names].run(setting))
    assert [line.name for line in lines] == list(names)
    assert [line.facts for line in lines] == [
        {"axis": axis.name, "task": task, "size": count} for task in tasks
    ]
    assert all(line.here.median > 0 for line in lines)
    if axis.name == "partitions":
        assert [each[len(growth.PROGRAM)] for each in commands] == ["explain", "inspect"] * 2
        explain = lines[1]
        assert (explain.title, explain.unit, explain.here) == (
            *("explain, 1 partitions", "ms", Figures([1000.0], [2000.0])),
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("axis", "count", "expected"),
    (
        ("segments", 3, (1, 4, 15, {b"%d" % key for key in range(15)}, 0)),
        ("keys", 250, (1, 2, 250, {b"%d" % key for key in range(250)}, 0)),
        ("producers", 3, (1, 2, 3, {b"0", b"1", b"2"}, 3)),
    ),
)
def test_logs_have_the_size_of_the_axis(tmp_path, monkeypatch, axis, count, expected):
    monkeypatch.setattr(growth, "CHUNK", 100)
    seen = []

    def look(home, *_):
        with Broker(home, read_only=True) as broker:
            records = list(broker.read(growth.TOPIC))
            log = broker.log(growth.TOPIC, 0)
            seen.append(
                (
                    len(broker.partitions()),
                    len(list(home.rglob("*.log"))),
                    len(records),
                    {record.key for record in records},
                    len(log.producer_state.active_producers()),
                )
            )
        return Sample(1.0, 1.0)

    for name in ("_open", "_read", "_clean"):
        monkeypatch.setattr(growth, name, look)
    setting = Setting(tmp_path, repeats=1)
    (found,) = [each for each in growth.AXES if each.name == axis]
    list(found.measure(setting, count, tmp_path / "data"))
    assert seen == [expected] * len(seen)
    assert seen
