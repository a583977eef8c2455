"""What `logstore simulate` prints: whole texts, for one seed, several seeds, and a sweep.

To accept a change, delete a file of `shown/`, run the test, and review its new contents.
"""

from pathlib import Path

import pytest

from logstore.cli.commands.simulate_show import show_run, show_sweep
from logstore.simulate import parse, run
from logstore.simulate.spread import run_seeds
from logstore.simulate.sweep import sweep

SHOWN = Path(__file__).with_name("shown")

SCENARIO = """
title = "two days"
days = 2
[[topics]]
name = "users"
records = 120
keys.count = 12
deletes.share = 0.2
values.bytes = 100
time.arrival = "poisson"
batches = { min_records = 2, max_records = 4 }
configs = { "cleanup.policy" = "compact", "segment.bytes" = "8KiB", "delete.retention.ms" = "3h" }
"""
AXES = {"segment.bytes": ["5KiB", "9KiB"], "min.cleanable.dirty.ratio": ["0.1", "0.9"]}


def one_seed():
    show_run(run(parse(SCENARIO), samples=40))


def three_seeds():
    show_run(*run_seeds(parse(SCENARIO), 3, samples=40))


def a_sweep():
    show_sweep(sweep(parse(SCENARIO), AXES, samples=5))


def a_sweep_of_seeds():
    show_sweep(sweep(parse(SCENARIO), AXES, samples=5, seeds=2))


@pytest.mark.parametrize("show", (one_seed, three_seeds, a_sweep, a_sweep_of_seeds))
@pytest.mark.parametrize("width", (80, 140))
def test_a_result_is_printed_as_this_text(capsys, monkeypatch, show, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show()
    printed = capsys.readouterr()
    text = printed.out + printed.err
    path = SHOWN / f"{show.__name__}-{width}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert text == path.read_text(encoding="utf-8")
