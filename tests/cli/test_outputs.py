"""The whole output of commands on one small directory, compared with `expected/NAME.txt`.

`python -m tests.cli.test_outputs` writes these files again; read the difference before committing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore import Broker, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.cli.main import main

EXPECTED = Path(__file__).with_name("expected")
NOW = ("--now", "1704100000000")
USERS = "cleanup.policy=compact"

COMMANDS = {
    "inspect": ["inspect", "inspect --deep", "inspect --summary --sort size", "inspect events"],
    "inspect-one": [
        "inspect users --partition 0",
        "inspect users --partition 0 --deep",
        "inspect damaged/users-0",
    ],
    "inspect-narrow": ["COLUMNS=80 inspect", "COLUMNS=80 inspect users --partition 0"],
    "inspect-batches": ["inspect users --batches", "inspect damaged/users-0 --batches"],
    "inspect-records": [
        "inspect users --records",
        "inspect data/users-0/00000000000000000006.log --records",
        "inspect __consumer_offsets --records",
    ],
    "inspect-fate": [
        "inspect users --partition 0 --fate",
        "inspect users --fate",
        "inspect events --partition 1 --fate",
        f"inspect damaged/users-0 --fate --config {USERS}",
        "inspect users --partition 0 --fate --format json",
    ],
    "stats": ["stats users --top 2", "stats", "stats damaged/users-0 --format json"],
    "explain": [
        "explain users",
        "explain users --partition 0 --key k1",
        "explain events --partition 1",
        "explain users --config min.cleanable.dirty.ratio=0.99",
        "explain users --partition 0 --format json",
    ],
    "clean": [
        "clean users --dry-run",
        "clean users --force --roll --dry-run",
        "clean users --dry-run --format json",
        "clean users --force --roll --out cleaned",
        "clean users",
        "clean users",
        "clean users --force --roll --format json",
    ],
    "retain": [
        "retain --dry-run",
        "retain events --dry-run --format json",
        "retain events",
        "delete-records events --partition 0 --before-offset 1 --format json",
    ],
    "check": ["check data", "check damaged", "check damaged --format json"],
    "dump": ["dump data/users-0/00000000000000000000.log"],
    "erasure": ["erasure users --key k1", "erasure users --key k1 --format json"],
    "offsets": [
        "offsets users",
        "offsets users --time 2024-01-01T00:30:00Z",
        "offsets users --format json",
    ],
    "diff": [
        "diff data/users-0 damaged/users-0",
        "diff data/users-0 damaged/users-0 --format json",
    ],
    "read": [
        "read users --partition 0",
        "read damaged/users-0 --max-records 3",
        "read users --format jsonl --isolation read_committed",
        "COLUMNS=60 read events",
    ],
    "salvage": [
        "salvage damaged --out saved",
        "salvage damaged --out saved2 --format json",
        "salvage data --out saved3",
    ],
    "topic": [
        "topic list",
        "topic describe users",
        "topic describe events --format json",
        "topic alter events --set retention.ms=1d",
        "topic delete events",
    ],
    "append": [
        "append events new.jsonl --partition 0",
        "append events new.jsonl --partition 0 --skip-invalid",
        "append events new.jsonl --partition 0 --skip-invalid --format jsonl",
        "append events new.jsonl --partition 1 --skip-invalid --format json",
        "append events empty.jsonl",
        "roll events --partition 1",
        "roll users --partition 0 --format json",
        "topic create fresh --partitions 2 --config retention.ms=1h",
        "topic create fresh",
        "broker alter --set log.retention.ms=1d",
    ],
    "retain-early": [
        "retain --dry-run --now 2024-01-01T04:45:00Z",
        "retain users --dry-run --config cleanup.policy=delete --config retention.ms=7h",
        "retain events --partition 1 --now 2024-01-01T03:00:00Z --format jsonl",
        "retain events --partition 1 --now 2024-01-01T03:00:00Z",
        "delete-records events --partition 1 --before-offset 5",
        "delete-records events --partition 0 --before-offset -1",
        "delete-records users --partition 0 --before-offset 5",
    ],
    "refusals": [
        "inspect data --records --fate",
        "inspect data/users-0/00000000000000000000.log --summary",
        "inspect data/users-0/00000000000000000000.log --fate",
        "inspect data/users-0 --partition 0",
        "inspect users --sumary",
        "inspect nothing",
        "inspect ./nothing",
        "inspect data/meta.properties",
        "erasure data --key k1",
        "erasure users",
        "erasure users --key nobody",
        "clean ./data",
        "retain ./data",
        "salvage data --out data/inside",
        "export users --out users.txt",
        "read users --partition 7",
    ],
    "csv": [
        "inspect --format csv",
        "inspect events --batches --format csv",
        "offsets --format csv",
        "check damaged --format csv",
        "stats users --format csv",
        "read events --max-records 2 --format csv",
    ],
    "export": [
        "export users --out users.csv",
        "export users --out users.jsonl --format json",
        "export damaged/users-0 --out damaged.csv",
    ],
}


def build(root: Path) -> None:
    """Write `data`, and a copy `damaged` with a flipped byte in a batch."""
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    clock = VirtualClock()
    with Broker(root / "data", clock=clock, seed=1, broker_config=config) as broker:
        compact = {"cleanup.policy": "compact", "max.compaction.lag.ms": "12h"}
        broker.create_topic("users", 2, compact)
        broker.create_topic("events", 2, {"retention.ms": "4h", "segment.bytes": "600"})
        for number in range(18):
            value = None if number % 5 == 4 else b'{"n": %d}' % number
            broker.append("users", key=b"k%d" % (number % 4), value=value, partition=0)
            broker.append("events", value=b"event %d " % number * 9, partition=number % 2)
            broker.clock.advance(minutes=7)
            if number % 6 == 5:
                broker.roll("users", 0)
        producer = broker.producer(transactional_id="tx")
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("users", b"\xff\x00", key=b"k1", partition=0, headers=[("h", b"1")])
            producer.flush()
            end()
        broker.append("events", value=b"no key\x1b[2J", partition=1, headers=[("a", None)])
        broker.append("users", key=b"z", value=b"v" * 150, partition=1)
        admin = broker.admin()
        admin.alter_group_offsets("g", {TopicPartition("events", 1): OffsetAndMetadata(3, "m")})
        broker.append("users", key=b"last", value=b"active", partition=0)
    shutil.copytree(root / "data", root / "damaged")
    path = root / "damaged" / "users-0" / f"{6:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    good, bad = '{"key": "a", "value": "b"}', '{"key": "a"}'
    (root / "new.jsonl").write_text("\n".join((good, good, bad, "no json", good)))
    (root / "empty.jsonl").write_text("\n")


def output_of(root: Path, lines: list[str]) -> str:
    """Run commands in a directory of `build`; return their output without what varies."""
    before = Path.cwd()
    os.chdir(root)
    parts = []
    try:
        for line in lines:
            columns, _, words = line.rpartition("COLUMNS=")[2].partition(" ")
            is_bounded = line.startswith("COLUMNS=")
            env = {"LOGSTORE_DATA_DIR": "data", "COLUMNS": columns if is_bounded else None}
            arguments = shlex.split(words if is_bounded else line)
            arguments += [] if "--now" in arguments else NOW
            result = CliRunner(env=env).invoke(main, arguments)
            parts.append(f"$ {line}\n{result.stdout}")
            parts += [f"2> {each}\n" for each in result.stderr.splitlines()]
            parts.append(f"exit code {result.exit_code}\n\n")
    finally:
        os.chdir(before)
    text = "".join(parts).replace(str(root), "ROOT")
    text = re.sub(r'("(?:index|clean)_ms"): \d+', r"\1: 0", text)
    text = re.sub(r'("id"): "[\w-]{22}"', r'\1: "ID"', text)
    text = re.sub("──+", "──", text)  # as wide as the longest time below
    return re.sub(r"\b\d+(\.\d+)? (ms|s)$", "TIME", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    build(root)
    return root


@pytest.mark.parametrize("name", COMMANDS)
def test_the_whole_output(built: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    expected = (EXPECTED / f"{name}.txt").read_text("utf-8")
    assert output_of(tmp_path, COMMANDS[name]) == expected


if __name__ == "__main__":
    for chosen in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder).resolve())
            found = output_of(Path(folder).resolve(), COMMANDS[chosen])
        (EXPECTED / f"{chosen}.txt").write_text(found, "utf-8")
