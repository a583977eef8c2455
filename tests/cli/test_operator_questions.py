"""Eight questions of an operator, answered and compared with the effect of `clean --out`.

The answers are the first lines of `inspect`, `explain` and `stats`, their JSON, and the list of the
page, over five directories. An exact value equals the bytes that are then freed; a bound is
never below them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from logstore import Broker
from logstore.cli.main import main
from logstore.cli.times import parse_time
from logstore.runtime import FixedWallClock
from tests.support.world.operator_directories import (
    damaged,
    healthy,
    never_cleaned,
    own_topics,
    partial_copy,
)
from tests.support.world.page import Asked

NOW = "2024-01-05T00:00:00Z"
EXACT = ("inspect --exact", "explain --exact", "stats")
COMMANDS = ("inspect", "explain", *EXACT)
UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2}
SIZE = r"([\d.,]+ [KM]?i?B)"

PLANTED = {"in-closed-0", "in-open-0", "intact-0"}
"""The damaged partitions."""

Verdict = dict[str, Any]


class Freed(NamedTuple):
    """The effect of cleaning a copy: zeros if it was refused."""

    code: int
    bytes: int
    records: int


@dataclass
class Directory:
    """A directory with the answers about its partitions, and the effects of cleaning copies."""

    name: str
    path: Path
    copies: Path
    views: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    cleanings: dict[tuple[str, ...], Freed] = field(default_factory=dict)

    def run(self, *arguments: object) -> tuple[int, str]:
        line = [*map(str, arguments), "--data-dir", str(self.path), "--now", NOW]
        done = CliRunner(env={"COLUMNS": "200"}).invoke(main, line)
        return done.exit_code, done.stdout

    def first_line(self, command: str, name: str) -> str:
        """The first line about a partition, without the lines about notes and what helps."""
        topic, _, partition = name.rpartition("-")
        shown = self.run(*command.split(), topic, "--partition", partition)[1]
        return " ".join(re.split(r"\n  \S+: ", shown)[0].split("\n\n")[0].split())

    def clean(self, *arguments: str) -> Freed:
        """Clean a copy, once for each command."""
        if arguments not in self.cleanings:
            copy = self.copies / str(len(self.cleanings))
            code, shown = self.run("clean", *arguments, "--out", copy, "--format", "json")
            passes = json.loads(shown)["cleaned"] if shown else []
            self.cleanings[arguments] = Freed(
                code,
                sum(each["bytes_read"] - each["bytes_written"] for each in passes),
                sum(each["messages_read"] - each["messages_written"] for each in passes),
            )
        return self.cleanings[arguments]

    def clean_one(self, name: str, *flags: str) -> Freed:
        """Clean a partition as its verdict means it: forced, if no pass is due."""
        topic, _, partition = name.rpartition("-")
        force = () if self.exact[name]["state"] in ("due", "damaged") else ("--force",)
        return self.clean(topic, "--partition", partition, *force, *flags)

    @property
    def exact(self) -> dict[str, Verdict]:
        return self.views["stats"]

    def each(self, *states: str) -> Iterator[tuple[str, list[Verdict]]]:
        """Yield the partitions in a state, with all answers about each."""
        for name, verdict in self.exact.items():
            if verdict["state"] in states:
                yield name, [view[name] for view in self.views.values()]


def answered(build: Callable[[Path], None], root: Path) -> Directory:
    directory = Directory(build.__name__, root / "kafka-logs", root / "copies")
    directory.copies.mkdir(parents=True)
    build(directory.path)
    for view in ("inspect", "inspect --exact", "explain", "stats"):
        found = json.loads(directory.run(*view.split(), "--format", "json")[1])
        directory.summaries[view] = found["summary"]
        directory.views[view] = {
            f"{item['topic']}-{item['partition']}": item["verdict"]
            for item in found["partitions"]
            if item["verdict"]["state"] != "nothing_to_do" or item["verdict"]["frees_bytes_at_most"]
        }
    clock = FixedWallClock(parse_time(NOW, lambda: 0))
    with (
        Broker(directory.path, read_only=True, on_damage="pass_over", clock=clock) as broker,
        Asked(broker) as page,
    ):
        wanted = directory.views["stats"]
        for tp in broker.partitions():
            broker.log(tp)
        for view in ("the list", "the list after reading"):
            found = page.get("/api/partitions?sort=frees&count=1000")
            directory.summaries[view] = found["summary"]
            rows = {f"{row['topic']}-{row['partition']}": row for row in found["partitions"]}
            directory.views[view] = {name: rows[name]["verdict"] for name in wanted}
            for tp in broker.partitions():
                page.get(f"/api/partitions/{tp.topic}/{tp.partition}/verdict")
    return directory


def damaged_in_records(path: Path) -> None:
    """Damage headers, and in another partition a record, which only a full read finds."""
    damaged(path)
    with (path / "intact-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(75)
        file.write(b"\xff")


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Directory]:
    builders = (damaged_in_records, partial_copy, never_cleaned, own_topics, healthy)
    return [answered(build, tmp_path_factory.mktemp(build.__name__)) for build in builders]


def size_of(text: str) -> tuple[float, float]:
    """Return the bounds of the numbers that are written as a size such as `1.4 KiB`."""
    number, unit = text.replace(",", "").split()
    half = 0.05 if "." in number else 0
    return (float(number) - half) * UNITS[unit], (float(number) + half) * UNITS[unit]


def check_words(line: str, pattern: str, freed: int) -> None:
    """Compare the size in a line with the freed bytes; `at most` is a bound."""
    found = re.search(pattern.replace("SIZE", SIZE), line)
    if found is None:
        return
    least, most = size_of(found[1])
    assert most >= freed, (line, freed)
    if "at most" not in found[0]:
        assert least <= freed, (line, freed)


@pytest.mark.slow
def test_1_which_partitions_are_damaged(directories: list[Directory]) -> None:
    for directory in directories:
        planted = PLANTED if directory.name == "damaged_in_records" else set()
        for view, verdicts in directory.views.items():
            found = {name for name, each in verdicts.items() if each["state"] == "damaged"}
            is_read = view not in ("inspect", "the list")
            assert found <= planted, (directory.name, view)
            assert is_read or "intact-0" not in found
            assert not is_read or found == planted
            assert directory.summaries[view]["damaged"] == len(found)
            for name in planted - found:  # only headers were read, and the answer says so
                assert (verdicts[name]["examined"], verdicts[name]["exact"]) == ("headers", False)
                assert directory.summaries[view]["headers_only"] > 0
        for name in planted:
            assert directory.first_line("explain", name).startswith(f"{name} damaged: ")
            assert directory.clean_one(name) == Freed(1, 0, 0)


def test_2_how_many_bytes_a_cleaning_frees_now(directories: list[Directory]) -> None:
    for directory in directories:
        for name, verdicts in directory.each("due", "waiting", "damaged"):
            freed = directory.clean_one(name).bytes
            for verdict in verdicts:
                assert verdict["frees_bytes"] == (freed if verdict["exact"] else None)
                assert verdict["frees_bytes_at_most"] >= freed
            for command in COMMANDS:
                line = directory.first_line(command, name)
                check_words(line, r"frees (?:at most )?SIZE of", freed)


def test_3_how_many_records_it_removes(directories: list[Directory]) -> None:
    for directory in directories:
        for name, verdicts in directory.each("due", "waiting", "damaged"):
            removed = directory.clean_one(name).records
            for verdict in verdicts:
                assert verdict["frees_records"] == (removed if verdict["exact"] else None)
            for command in COMMANDS:
                found = re.search(r", ([\d,]+) records?;", directory.first_line(command, name))
                assert found is None or int(found[1].replace(",", "")) == removed


def test_4_how_many_bytes_if_the_active_segment_were_rolled(directories: list[Directory]) -> None:
    for directory in directories:
        for name, verdicts in directory.each("due", "waiting", "damaged"):
            freed = directory.clean_one(name, "--roll").bytes
            for verdict in verdicts:
                assert verdict["frees_bytes_if_rolled"] == (freed if verdict["exact"] else None)
                assert verdict["frees_bytes_if_rolled_at_most"] >= freed
            for command in COMMANDS:
                line = directory.first_line(command, name)
                check_words(line, r"; (?:at most )?SIZE if the active segment is rolled", freed)


def test_5_why_cleaning_is_not_due(directories: list[Directory]) -> None:
    """Without a forced pass, exactly the partitions that are due are cleaned."""
    for directory in directories:
        for name, verdict in directory.exact.items():
            topic, _, partition = name.rpartition("-")
            freed = directory.clean(topic, "--partition", partition).bytes
            if verdict["state"] == "due":
                assert freed == verdict["frees_bytes"]
            elif verdict["state"] != "damaged":
                assert freed == 0
            if verdict["state"] in ("waiting", "unknown"):
                for command in EXACT:
                    assert verdict["reason"]["text"] in directory.first_line(command, name)


def test_6_since_when(directories: list[Directory]) -> None:
    for directory in directories:
        for name, verdicts in directory.each("due", "waiting"):
            topic, _, partition = name.rpartition("-")
            batches = directory.run(
                *("inspect", topic, "--partition", partition, "--batches", "--format", "jsonl")
            )[1]
            oldest = min(json.loads(line)["maxTimestamp"] for line in batches.splitlines())
            codes = {verdict["reason"]["code"] for verdict in verdicts}
            is_clean = "verdict.only_forced" in codes
            assert {verdict["since_ms"] for verdict in verdicts} == {None if is_clean else oldest}
            age = "4d"  # from the start of the story to NOW
            for command in COMMANDS:
                assert (f"dirty for {age}" in directory.first_line(command, name)) is not is_clean


def test_7_which_command_helps(directories: list[Directory]) -> None:
    """Each recommended `clean` frees, on a copy, the bytes of the verdict."""
    is_offered = False
    for directory in directories:
        for name, verdict in directory.exact.items():
            for line in verdict["helps"]:
                program, *arguments = shlex.split(line)
                if program != "logstore" or arguments[0] != "clean":
                    continue
                is_offered = True
                rolls = "--roll" in arguments
                value = verdict["frees_bytes_if_rolled" if rolls else "frees_bytes"]
                assert directory.clean(*arguments[1:]).bytes == value, (name, line)
    assert is_offered


def test_8_what_the_whole_directory_would_free(directories: list[Directory]) -> None:
    for directory in directories:
        due = dict(directory.each("due"))
        freed = sum(directory.clean_one(name).bytes for name in due)
        unreachable = [name for name, _ in directory.each("damaged")]
        if not unreachable:
            assert directory.clean().bytes == freed
        for view, summary in directory.summaries.items():
            if summary["frees_bytes"] is not None:
                assert summary["frees_bytes"] == freed, (directory.name, view)
            assert summary["frees_bytes_at_most"] >= freed, (directory.name, view)
            states = [each["state"] for each in directory.views[view].values()]
            assert summary["due"] == states.count("due")
        line = directory.run("inspect", "--exact")[1].partition("\n\n")[0]
        check_words(" ".join(line.split()), r"due \(free (?:at most )?SIZE of", freed)
