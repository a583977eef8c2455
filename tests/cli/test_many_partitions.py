"""Commands over many partitions: streaming output, a progress bar, no failure hides others."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from logstore import Broker
from logstore.analysis import summary as inspecting
from tests.cli.test_process import PROGRAM


@pytest.fixture
def partitions(data_dir):
    """Twelve partitions with a record each."""
    with Broker(data_dir) as broker:
        broker.create_topic("t", 12, {"cleanup.policy": "compact"})
        for number in range(12):
            broker.append("t", value=b"v", key=b"k", partition=number)


@pytest.fixture
def unreadable(data_dir, partitions):
    """The third of them cannot be opened."""
    path = data_dir / "t-2" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[16] = 1
    path.write_bytes(data)


def written() -> str:
    """Return the output so far."""
    sys.stdout.buffer.flush()
    return sys.stdout.buffer.getvalue().decode()


@pytest.mark.parametrize("output", ("table", "json", "jsonl"))
def test_explain_shows_each_partition_before_it_looks_at_the_next_but_one(
    run, partitions, monkeypatch, output
):
    seen = []
    explain = Broker.explain

    def watched(self, topic, partition, **options):
        seen.append(written())
        return explain(self, topic, partition, **options)

    monkeypatch.setattr(Broker, "explain", watched)
    whole = run("explain", "--format", output).stdout
    assert len(seen) == 12
    assert seen[0] == ""
    name = "t-0 " if output == "table" else '"partition": 0'
    assert name in seen[1]
    assert all(whole.startswith(part) for part in seen)
    assert len(set(seen)) > 3, "further ones follow in growing chunks"


@pytest.mark.parametrize("output", ("json", "jsonl"))
def test_inspect_prints_each_partition_as_soon_as_it_is_read(run, partitions, monkeypatch, output):
    seen = []
    inspect_partition = inspecting.inspect_partition

    def watched(*arguments, **options):
        seen.append(written())
        return inspect_partition(*arguments, **options)

    monkeypatch.setattr(inspecting, "inspect_partition", watched)
    run("inspect", "--format", output)
    assert '"partition": 0' in seen[1]


def test_a_partition_that_is_damaged_is_among_the_others_that_are_explained(run, unreadable):
    done = run("explain", code=1)
    assert [f"t-{n} " in done.stdout for n in range(12)] == [True] * 12
    items = run("explain", "--format", "json", code=1).json["partitions"]
    assert [len(item["damages"]) for item in items] == [int(n == 2) for n in range(12)]


@pytest.mark.parametrize(
    ("arguments", "task"),
    (
        (("explain",), "explaining"),
        (("inspect",), "inspecting"),
        (("retain", "--dry-run"), "deciding"),
        (("clean", "--dry-run"), "opening"),
    ),
)
def test_a_terminal_shows_a_bar_while_the_output_goes_to_a_file(
    run, partitions, data_dir, tmp_path, arguments, task
):
    """The file receives exactly the output."""
    master, slave = pty.openpty()
    environment = {**os.environ, "LOGSTORE_DATA_DIR": str(data_dir), "TERM": "xterm-256color"}
    with (tmp_path / "out").open("wb") as file:
        process = subprocess.Popen(
            [*PROGRAM, *arguments, "--format", "json", "--now", "2030-01-01"],
            stdout=file, stderr=slave, env=environment,
        )  # fmt: skip
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(master)
    assert process.wait(60) == 0, shown
    assert task in shown.decode()
    assert "11/12" in shown.decode()
    whole = run(*arguments, "--format", "json", "--now", "2030-01-01").stdout
    assert (tmp_path / "out").read_text() == whole
    assert json.loads(whole)


@pytest.mark.parametrize(
    ("topics", "sentence"),
    (
        ("abc", None),
        (
            "aabcde",
            "6 empty partitions with nothing to do: 2 of a, 1 of b, 1 of c, 1 of d, 1 of e; --all"
            " lists them",
        ),
        (
            "aabcdefg",
            "8 empty partitions with nothing to do: 2 of a, 1 of b, 1 of c, 1 of d, 1 of e and"
            " others of 2 topics; --all lists them",
        ),
    ),
)
@pytest.mark.parametrize("command", ("inspect", "explain"))
def test_empty_partitions_are_counted_by_topic(run, data_dir, topics, sentence, command):
    with Broker(data_dir) as broker:
        for topic in dict.fromkeys(topics):
            broker.create_topic(topic, topics.count(topic))
        broker.create_topic("full")
        broker.append("full", value=b"v")

    def listed(*options):
        lines = run(command, *options).stdout.splitlines()
        shown = {line.split()[0] for line in lines if re.match(r"[a-z]+-[0-9]\b", line)}
        return shown, " ".join(" ".join(lines).split())

    whole = {"full-0"} | {f"{each}-{n}" for each in topics for n in range(topics.count(each))}
    shown, text = listed()
    assert shown == (whole if sentence is None else {"full-0"})
    assert text.count("with nothing to do") == text.count(str(sentence)) == (sentence is not None)
    shown, text = listed("--all")
    assert (shown, "with nothing to do" in text) == (whole, False)
