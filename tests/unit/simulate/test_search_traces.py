"""Searches of small grids whose costs are formulas: every run in order, and the whole result.

To accept a change, delete `searches.json`, run the test, and review its new contents.
"""

import itertools
import json
from pathlib import Path

import pytest

from logstore.cli.commands.simulate_show import show_found
from logstore.errors import InvalidConfigurationError
from logstore.simulate.goals import parse_goal
from logstore.simulate.quantities import QUANTITIES, quantity
from logstore.simulate.search import COMBINATIONS_MAX, Search

TRACES = Path(__file__).with_name("searches.json")
X, Y = "log.cleaner.threads", "min.cleanable.dirty.ratio"


def axis(count, step=1.0):
    return [f"{number * step:g}" for number in range(1, count + 1)]


def costs(peak, written, oldest=0.0):
    bounded = {"bytes_peak": peak, "oldest_dirty_max_ms": oldest}
    return {**dict.fromkeys(QUANTITIES, 0.0), **bounded, quantity("written").cost: written}


def line(x, seed):
    """Larger values of x need less space; the least is written at x = 4."""
    return costs(12 - x + 0.1 * (seed % 5), (x - 4) ** 2 + 1 + 0.01 * seed)


def plane(x, y, seed):
    """The seeds differ: the best place by the first seed is not the best by all."""
    noise = 0.5 * ((seed * 7 + int(x) * 3) % 5)
    return costs(30 - 3 * x - 20 * y + noise, x * x + 10 * (1 - y) + noise, 1000 * x * y)


def stubborn(x, seed):
    """Meets the goal with the seeds of the search, and with few of the others if x is small."""
    return costs(9 if seed < 100 or x > 4 or (seed + int(x)) % 7 else 11, x)


def hopeless(x, y, seed):
    return costs(20 + abs(x - 3) + 5 * y + seed % 2, x)


def words(policy, x, seed):
    return costs(15 - 6 * (policy == "lz4") - x, x + seed % 3)


def four(a, b, c, d, seed):
    return costs(a + b + c + d, 100 - a * b - c * d + seed % 2)


def rough(x, y, seed):
    """Costs without any order, many of them equal."""
    number = int(x) * 7919 + int(10 * y) * 104729 + seed * 1299709
    number = number * 2654435761 >> 7 & 0xFFFF
    return costs(6 + number % 5, 40 + number // 16 % 4, number // 256 % 6 * 1000)


def close(x, seed):
    """Many places cost about the same, each with its own noise."""
    noise = (seed * 37 + int(x) * 61) % 11 / 10
    return costs(5 + (x > 9) * (seed % 3 == 0) * 6, 100 + abs(x - 6) / 4 + noise)


def cliff(x, y, seed):
    """Below the cliff everything is cheap, and misses the goal by the same."""
    return costs(14 if x * y < 2 else 9, x + 10 * y + seed / 10)


STORIES = {
    "line": ({X: axis(9)}, line, ["bytes <= 10"]),
    "plane": ({X: axis(6), Y: axis(5, 0.2)}, plane, ["bytes <= 15", "oldest < 4s"]),
    "stubborn": ({X: axis(5)}, stubborn, ["bytes <= 10"]),
    "never holds": ({X: axis(4)}, stubborn, ["bytes <= 10"]),
    "hopeless": ({X: axis(5), Y: axis(3, 0.3)}, hopeless, ["bytes <= 10"]),
    "words": ({"compression.type": ["none", "lz4", "zstd"], X: axis(5)}, words, ["bytes < 7"]),
    "rough": ({X: axis(9), Y: axis(6, 0.1)}, rough, ["bytes <= 9", "oldest <= 5s"]),
    "rough and strict": ({X: axis(9), Y: axis(6, 0.1)}, rough, ["bytes <= 9", "oldest < 5s"]),
    "close": ({X: axis(12)}, close, ["bytes < 10"]),
    "cliff": ({X: axis(9), Y: axis(9, 0.1)}, cliff, ["bytes <= 9"]),
    "four axes": (
        {name: axis(3) for name in (X, Y, "segment.ms", "segment.bytes")},
        four,
        ["bytes <= 8 and oldest <= 0"],
    ),
}


SEEDS = {"rough": 7, "close": 5}


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", STORIES)
def test_a_search_runs_these_combinations_and_returns_this_result(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    axes, formula, goal = STORIES[name]
    asked = []

    def evaluate(jobs):
        asked.append([" ".join((*settings.values(), f"#{seed}")) for settings, seed in jobs])
        return [formula(*map(number, settings.values()), seed) for settings, seed in jobs]

    seeds, others = list(range(1, SEEDS.get(name, 4) + 1)), itertools.count(100)
    found = Search(axes, parse_goal(goal), quantity("written"), seeds, others, evaluate).find()
    show_found(found)
    result = {
        "asked": asked,
        "is_met": found.is_met,
        "runs": [found.runs, found.held_runs, found.sweep_runs, found.held_count()],
        "held_seeds": found.best.held_seeds,
        "described": [found.describe(each) for each in found.candidates],
        "nearest": [
            [list(each.settings.values()) for each in found.nearest_of_front(count)]
            for count in (1, 2, 3)
        ],
        "shown": capsys.readouterr().out.splitlines(),
    }
    stored = json.loads(TRACES.read_text(encoding="utf-8")) if TRACES.exists() else {}
    if name not in stored:
        stored[name] = result
        text = json.dumps(stored, indent=0, ensure_ascii=False)
        TRACES.write_text(f"{text}\n", encoding="utf-8")
        pytest.fail(f"{name} was missing in {TRACES}: review the new file")
    assert result == stored[name]


@pytest.mark.parametrize("axes", ({}, {X: []}, {X: ["1"], Y: []}))
def test_a_search_needs_values(axes):
    with pytest.raises(InvalidConfigurationError, match=r"^a search needs settings with values$"):
        Search(axes, parse_goal(["bytes < 1"]), quantity("written"), [1], iter(()), list)


def test_a_grid_may_have_a_million_combinations_with_any_number_of_seeds():
    goal, written = parse_goal(["bytes < 1"]), quantity("written")
    largest = {X: ["1"] * 1000, Y: ["1"] * (COMBINATIONS_MAX // 1000)}
    search = Search(largest, goal, written, [1, 2, 3], iter(()), list)
    assert search.sweep_runs == 3 * COMBINATIONS_MAX
    with pytest.raises(
        InvalidConfigurationError, match=r"^the settings have more than 1,000,000 combinations$"
    ):
        Search({**largest, Y: ["1"] * 1001}, goal, written, [1, 2, 3], iter(()), list)
