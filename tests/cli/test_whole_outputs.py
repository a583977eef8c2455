"""Whole outputs of the commands that read, over one directory with a bit of everything.

To accept a change, delete a file of `whole/`, run the test, and review its new contents.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.world.everything import NOW, build

WHOLE = Path(__file__).with_name("whole")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    build(home)
    return home


COMMANDS = {
    "inspect": ("before", "inspect"),
    "inspect-deep": ("before", "inspect", "users", "--partition", "2", "--deep"),
    "inspect-exact": ("before", "inspect", "--exact", "--summary"),
    "inspect-batches": ("before", "inspect", "users", "--partition", "2", "--batches"),
    "inspect-records": ("before", "inspect", "users", "--partition", "2", "--records"),
    "inspect-fate": ("before", "inspect", "users", "--partition", "2", "--fate"),
    "inspect-fate-forced": (
        "data",
        "inspect",
        "users",
        "--partition",
        "2",
        "--fate",
        "--roll",
        "--force",
    ),
    "inspect-sorted": ("data", "inspect", "--summary", "--sort", "ratio"),
    "stats": ("before", "stats", "users"),
    "stats-cleaned": ("data", "stats", "users", "--partition", "2", "--top", "3"),
    "stats-all": ("before", "stats"),
    "explain": ("before", "explain"),
    "explain-exact": ("data", "explain", "--exact"),
    "explain-key": ("before", "explain", "users", "--partition", "2", "--key", "k3"),
    "explain-quick": ("before", "explain", "users", "--quick"),
    "explain-lags": (
        *("before", "explain", "users", "--config", "min.compaction.lag.ms=20d"),
        *("--config", "max.compaction.lag.ms=30d", "--config", "min.cleanable.dirty.ratio=0.99"),
    ),
    "erasure": ("before", "erasure", "users", "--key", "k0"),
    "erasure-cleaned": ("data", "erasure", "users", "--key", "k3"),
    "erasure-both": (
        *("before", "erasure", "users", "--key", "k1", "--config", "cleanup.policy=compact,delete"),
        *("--config", "retention.ms=20d", "--config", "retention.bytes=100"),
    ),
    "erasure-gone": ("data", "erasure", "users", "--key", "never"),
    "diff": ("before", "diff", "before/users-2", "data/users-2"),
    "diff-all": ("before", "diff", "before/users-2", "data/users-2", "--all"),
    "diff-back": ("before", "diff", "data/users-2", "before/users-2", "--summary"),
    "check": ("before", "check"),
    "check-broken": ("broken", "check"),
    "inspect-broken": ("broken", "inspect"),
    "inspect-broken-deep": ("broken", "inspect", "--deep", "--summary"),
    "stats-broken": ("broken", "stats", "users"),
    "explain-broken": ("broken", "explain"),
    "erasure-broken": ("broken", "erasure", "users", "--key", "k1"),
    "salvage-broken": ("broken", "salvage", "--out", "out-FORMAT"),
    "read": ("before", "read", "users", "--partition", "2"),
    "read-committed": (
        "before",
        "read",
        "users",
        "--partition",
        "2",
        "--isolation",
        "read_committed",
        "--from",
        "70",
    ),
    "read-latest": ("before", "read", "users", "--latest-per-key"),
    "read-last": ("before", "read", "events", "--last", "2"),
    "offsets": ("before", "offsets", "users", "--time", "2024-01-03"),
    "describe": ("before", "topic", "describe", "users"),
    "list": ("before", "topic", "list"),
}


@pytest.mark.parametrize("output", ("table", "json"))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_this(
    name: str, output: str, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, *arguments = COMMANDS[name]
    # Relative paths, because columns are as wide as the paths in them.
    monkeypatch.chdir(home)
    given = [each.replace("FORMAT", output) for each in arguments]
    shared = ("--data-dir", directory, "--now", NOW, "--format", output)
    done = run(*given, *shared, code=None)
    text = f"{done.stdout}--- {done.code}\n{done.stderr}"
    text = re.sub(r'("(?:index|clean|seconds)_(?:ms|s)": )\d+', r"\g<1>0", text)  # measured
    path = WHOLE / f"{name}.{'txt' if output == 'table' else 'json'}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()
