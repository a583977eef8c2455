"""Whole outputs of `logstore simulate`, of each kind of run, and the files that each leaves.

To accept a change, delete a file of `whole/`, run the test, and review its new contents.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

WHOLE = Path(__file__).with_name("whole")

SCENARIO = """
title = "two topics"
days = 2
seed = 3
[[topics]]
name = "users"
records = 200
keys.count = 30
deletes.share = 0.1
values.bytes = 100
time.arrival = "poisson"
batches = { min_records = 2, max_records = 8 }
configs = { "cleanup.policy" = "compact", "segment.bytes" = "10KiB", "delete.retention.ms" = "6h" }
[[topics]]
name = "events"
replicas = 2
messages = [{ at = "1h", key = "a", value = "1" }, { at = "30h", key = "b" }]
[[consumers]]
name = "reader"
topic = "users"
lag = "2h"
"""

AXES = ("--sweep", "min.cleanable.dirty.ratio=0.1,0.9", "--sweep", "segment.bytes=6KiB,10KiB")
SEARCH = (
    "--search",
    "min.cleanable.dirty.ratio=0.1..0.9/3",
    "--search",
    "segment.bytes=6KiB,12KiB",
)
COMMANDS: dict[str, tuple[object, ...]] = {
    "simulate": (),
    "simulate-seed-1": ("--seeds", 1, "--days", 1, "--seed", 8, "--replicas", 3),
    "simulate-seeds": ("--seeds", 3),
    "simulate-sweep": AXES,
    "simulate-sweep-seeds": (*AXES[:2], "--seeds", 3),
    "simulate-met": (*SEARCH, "--goal", "oldest <= 40h and bytes <= 1MiB", "--seeds", 2),
    "simulate-missed": (*SEARCH, "--goal", "oldest <= 1m", "--minimize", "written", "--seeds", 2),
}


@pytest.mark.parametrize("output", ("table", "json"))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_simulation_prints_this_and_leaves_these_files(
    name: str, output: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logstore.simulate.files.can_write_parquet", lambda: False)
    if name != "simulate":  # a report takes as long as several runs
        monkeypatch.setattr("logstore.cli.commands.simulate._report", lambda *_, **__: None)
    Path("two.toml").write_text(SCENARIO)
    fixed = ("--samples", 4, "--jobs", 1, "--out", "out")
    done = run("simulate", "two.toml", *fixed, *COMMANDS[name], "--format", output, code=None)
    left = "".join(f"{path.name}\n" for path in sorted(Path("out").glob("*")))
    text = f"{done.stdout}--- {done.code}\n{done.stderr}---\n{left}"
    path = WHOLE / f"{name}.{'txt' if output == 'table' else 'json'}"
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()
