"""Verdicts against what `clean --out` then does, over five directories.

An exact value equals the freed bytes. A bound is never below them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logstore import Broker, VirtualClock
from logstore.analysis import verdict as verdicts
from logstore.analysis.verdict import STATES, Removal
from logstore.cli.main import main
from logstore.cli.times import parse_time
from logstore.reasons.formats import format_size
from logstore.runtime import FixedWallClock
from tests.support.world.operator_directories import (
    COMPACT,
    damaged,
    interrupted,
    never_cleaned,
    partial_copy,
    partly_clean,
    rolled,
)
from tests.support.world.page import Asked

NOW = ("--now", "2024-01-05T00:00:00Z")
DIRECTORIES = (never_cleaned, partly_clean, partial_copy, damaged, interrupted)

EXPECTED = {
    never_cleaned: {"waiting", "due", "not_compacted", "nothing_to_do"},
    partly_clean: {"waiting", "due"},
    partial_copy: {"waiting", "due", "unknown"},
    damaged: {"damaged", "due"},
    interrupted: {"due", "waiting"},
}


class Directory:
    """A directory, the verdicts on it, and the results of cleaning copies of it."""

    def __init__(self, run: Callable[..., Any], path: Path, copies: Path) -> None:
        self._run = run
        self._path = path
        self._copies = copies

    def run(self, *arguments: str, output: str = "json") -> Any:
        code = None  # 1 if there is damage
        return self._run(*arguments, "--data-dir", self._path, *NOW, "--format", output, code=code)

    def verdicts(self, *arguments: str) -> dict[str, dict[str, Any]]:
        found = self.run(*arguments).json
        summary = found["summary"]
        items = found["partitions"]
        states = [item["verdict"]["state"] for item in items]
        assert [summary[state] for state in STATES] == [states.count(state) for state in STATES]
        return {f"{item['topic']}-{item['partition']}": item["verdict"] for item in items}

    def verdicts_of_page(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Yield the verdicts in the page's list: from batch headers, then from dry runs."""
        clock = FixedWallClock(parse_time(NOW[1], lambda: 0))
        with (
            Broker(self._path, read_only=True, on_damage="pass_over", clock=clock) as broker,
            Asked(broker) as page,
        ):
            for tp in broker.partitions():
                broker.log(tp)
            yield self._rows(page)
            for tp in broker.partitions():
                page.get(f"/api/partitions/{tp.topic}/{tp.partition}/verdict")
            yield self._rows(page)

    def _rows(self, page: Asked) -> dict[str, dict[str, Any]]:
        rows = page.get("/api/partitions")["partitions"]
        return {f"{row['topic']}-{row['partition']}": row["verdict"] for row in rows}

    @cached_property
    def sizes(self) -> dict[str, int]:
        items = self.run("stats").json["partitions"]
        return {f"{item['topic']}-{item['partition']}": item["bytes"] for item in items}

    def freed(self, name: str, *flags: str) -> tuple[int, int]:
        """Clean a copy of a partition, and return the freed bytes and records."""
        copy = self._copies / f"{name}{''.join(flags)}"
        topic, _, partition = name.rpartition("-")
        done = self.run("clean", topic, "--partition", partition, *flags, "--out", str(copy))
        if not done.stdout:
            return 0, 0  # refused
        passes = done.json["cleaned"]
        freed = sum(each["bytes_read"] - each["bytes_written"] for each in passes)
        left = sum(file.stat().st_size for file in (copy / name).glob("*.log"))
        assert left == self.sizes[name] - freed
        records = sum(each["messages_read"] - each["messages_written"] for each in passes)
        return freed, records


def check(directory: Directory, expected: set[str]) -> None:
    views = [
        directory.verdicts("inspect"),
        directory.verdicts("inspect", "--exact"),
        directory.verdicts("inspect", "--deep"),
        directory.verdicts("explain", "--quick"),
        directory.verdicts("explain"),
        directory.verdicts("explain", "--exact"),
        *directory.verdicts_of_page(),
        directory.verdicts("stats"),
    ]
    exact = views[-1]
    assert {verdict["state"] for verdict in exact.values()} >= expected
    for name, last in exact.items():
        if last["state"] in ("not_compacted", "unknown"):
            assert directory.freed(name) == (0, 0)
            continue
        force = () if last["state"] in ("due", "damaged") else ("--force",)
        freed, records = directory.freed(name, *force)
        after_roll, _ = directory.freed(name, *force, "--roll")
        for view in views:
            verdict = view[name]
            values = ("frees_bytes", "frees_records", "frees_bytes_if_rolled")
            if verdict["exact"]:
                found = tuple(verdict[value] for value in values)
                rolled = after_roll if found[2] is not None else None
                assert found == (freed, records, rolled), (name, verdict)
            else:
                assert [verdict[value] for value in values] == [None] * 3
            assert verdict["frees_bytes_at_most"] >= freed, (name, verdict)
            assert verdict["frees_bytes_if_rolled_at_most"] >= after_roll, (name, verdict)
        assert last["exact"] is (last["state"] != "damaged")
        check_first_lines(directory, name, last)


def check_first_lines(directory: Directory, name: str, verdict: dict[str, Any]) -> None:
    topic, _, partition = name.rpartition("-")
    for command in ("inspect", "explain", "stats"):
        option = () if command == "stats" else ("--exact",)
        shown = directory.run(command, topic, "--partition", partition, *option, output="table")
        text = " ".join(shown.stdout.split("helps:")[0].split())
        assert text.startswith(f"{name} {verdict['state'].replace('_', ' ')}: "), text
        if verdict["exact"] and verdict["frees_bytes"]:
            assert f"frees {format_size(verdict['frees_bytes'])} of " in text


@pytest.mark.parametrize("build", DIRECTORIES, ids=lambda build: build.__name__)
def test_verdicts_hold_against_the_cleaning_of_a_copy(
    run: Callable[..., Any], tmp_path: Path, build: Callable[[Path], None]
) -> None:
    build(tmp_path / "kafka-logs")
    copies = tmp_path / "copies"
    copies.mkdir()
    check(Directory(run, tmp_path / "kafka-logs", copies), EXPECTED[build])


def test_a_wrong_exact_value_fails(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_cleaned(tmp_path / "kafka-logs")
    copies = tmp_path / "copies"
    copies.mkdir()

    def wrong(bytes_: int, records: int, bytes_if_rolled: int | None) -> Removal:
        return Removal(bytes_ + bool(bytes_), records, bytes_if_rolled)

    monkeypatch.setattr(verdicts, "Removal", wrong)
    with pytest.raises(AssertionError, match="closed-0"):
        check(Directory(run, tmp_path / "kafka-logs", copies), EXPECTED[never_cleaned])


@pytest.mark.parametrize("width", (80, 100))
@pytest.mark.parametrize("command", (("inspect", "--deep"), ("explain",), ("stats",)))
def test_the_output_fits_the_terminal(command: tuple[str, ...], width: int, tmp_path: Path) -> None:
    for part in ("a", "b"):
        topic = f"{part}-{'long-topic-name-' * 3}"
        with Broker(tmp_path / "data", clock=VirtualClock()) as broker:
            broker.create_topic(topic, configs=COMPACT)
            rolled(broker, topic, 300, keys=99)
    (tmp_path / "data" / "logstore-topics.json").unlink()
    runner = CliRunner(env={"COLUMNS": str(width)})
    found = runner.invoke(main, [*command, str(tmp_path / "data"), *NOW])
    assert found.exit_code == 0
    assert [line for line in found.stdout.splitlines() if len(line) > width] == []
