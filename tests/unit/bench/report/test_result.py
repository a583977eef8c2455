"""Results: figures, ratios, verdicts, and a file whose shape later readers rely on."""

import json

import pytest

from logstore.bench.report import result as results
from logstore.bench.report.goals import Goal
from logstore.bench.report.result import Figures, Line, Result, read_result


def line(name="clean/100B-12", here=(800,), peer=(100,), *, rising=True):
    return Line(
        name=name,
        title="a title",
        unit="MB/s",
        higher_is_better=rising,
        here=Figures(list(here), list(here)),
        peer=None if peer is None else Figures(list(peer), list(peer)),
        peer_name="Kafka",
        facts={"records": 3},
    )


def test_median_and_spread():
    figures = Figures([10.0, 30.0, 20.0])
    assert figures.median == 20
    assert figures.spread == 1
    assert Figures([1.0, 3.0]).median == 2


def test_a_ratio_is_a_multiple_of_the_baseline():
    assert line(here=(300,), peer=(100,)).ratio == 3
    assert line(here=(20,), peer=(100,), rising=False).ratio == 5
    assert line(peer=None).ratio is None
    assert line(here=(300,), peer=(100,)).wall_ratio == 3


@pytest.mark.parametrize(
    ("goal", "here", "peer", "rising", "verdict"),
    (
        (Goal(2, 3), 199, 100, True, "missed"),
        (Goal(2, 3), 200, 100, True, "reached"),
        (Goal(2, 3), 199.999, 100, True, "reached"),  # it is shown as 2
        (Goal(2, 3), 300, 100, True, "stretch"),
        (Goal(2, 3), 300, None, True, "unjudged"),
        (Goal(2, 3), 50, 100, False, "reached"),
        (Goal(8, 4, is_ratio=False), 9, None, False, "missed"),
        (Goal(8, 4, is_ratio=False), 8, None, False, "reached"),
        (Goal(8, 4, is_ratio=False), 4, None, False, "stretch"),
        (Goal(8, is_ratio=False), 1, None, False, "reached"),
        (Goal(0.3, 0.5, is_ratio=False), 0.5, None, True, "stretch"),
        (None, 1, 1, True, "unjudged"),
    ),
)
def test_verdict(monkeypatch, goal, here, peer, rising, verdict):
    monkeypatch.setattr(results, "GOALS", {} if goal is None else {"x/y": goal})
    judged = line("x/y", (here,), None if peer is None else (peer,), rising=rising)
    assert judged.verdict == verdict


def sample_result():
    return Result(
        made_at="2026-01-02T03:04:05+00:00",
        kind="quick",
        seconds=12.34,
        machine={"processor": "p", "cores": 2},
        versions={"python": "3"},
        load=[0.1, 0.2],
        lines=[line(), line("api/append", (3,), None, rising=False)],
    )


def test_a_result_is_read_as_it_was_written(tmp_path):
    result = sample_result()
    result.write(tmp_path / "below" / "r.json")
    again = read_result(tmp_path / "below" / "r.json")
    assert again.as_json() == result.as_json()
    assert again.lines == result.lines


def test_shape_of_the_file_matches_version_1():
    stored = sample_result().as_json()
    assert stored["schema"] == results.SCHEMA_VERSION == 1
    assert list(stored) == (
        ["schema", "made_at", "kind", "seconds", "machine", "versions", "load", "lines"]
    )
    with_peer = stored["lines"][0]
    members = "name title unit higher_is_better here peer peer_name ratio wall_ratio goal verdict"
    assert list(with_peer) == [*members.split(), "facts"]
    assert list(with_peer["here"]) == ["median", "spread", "judged", "wall"]
    assert list(with_peer["goal"]) == ["least", "stretch", "is_ratio"]
    assert json.loads(json.dumps(stored)) == stored


def test_a_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"schema": 2}')
    with pytest.raises(ValueError, match="schema 2, expected 1"):
        read_result(path)
