"""Whole outputs of the commands that read, over one directory with a bit of everything.

To accept a change, delete a file of `whole/`, run the test, and review its new contents.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock
from tests.cli.conftest import Run

WHOLE = Path(__file__).with_name("whole")
NOW = "2024-01-09T12:00:00Z"


def build(home: Path) -> None:
    """Write `data`, its copy `before` the cleaning pass, and `broken` with damage."""
    clock = VirtualClock()
    one_partition = {"transaction.state.log.num.partitions": "1"}
    with Broker(home / "data", clock=clock, seed=1, broker_config=one_partition) as broker:
        compact = {
            "cleanup.policy": "compact",
            "segment.bytes": "4000",
            "delete.retention.ms": "1d",
        }
        broker.create_topic("users", 3, compact)
        for number in range(40):
            clock.advance(minutes=7)
            value = b"v%03d" % number * (number % 9) if number % 5 else None
            headers = [("trace", b"%d" % number)] if number % 8 == 0 else ()
            broker.append(
                "users", key=b"k%d" % (number % 7), value=value, headers=headers, partition=2
            )
        broker.roll("users", 2)
        broker.clean("users", force=True)
        clock.advance(days=2)
        codec = {"compression_type": "gzip", "batch_size": 4000, "linger_ms": 1000}
        with broker.producer(**codec) as producer:
            for number in range(30):
                key = b"k%d" % (number % 11) if number % 4 else b"\xff\x00%d" % number
                producer.send("users", b'{"n": %d}' % number, key, partition=2)
        with broker.producer(transactional_id="t") as producer:
            producer.init_transactions()
            for ends in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                producer.send("users", b"in a transaction", b"k1", partition=2)
                ends()
                clock.advance(seconds=3)
        broker.roll("users", 2)
        broker.append("users", key=b"k3", value=None, partition=2)
        broker.append("users", value=b"last", key=b"k0", partition=2)
        deleting = {"retention.ms": "3d", "segment.bytes": "1000", "cleanup.policy": "delete"}
        broker.create_topic("events", 2, deleting)
        for number in range(9):
            clock.advance(hours=11)
            broker.append("events", value=b"long" * 99 + b"%d" % number, partition=1)
        broker.delete_records({("events", 1): 3})
        clock.advance(hours=2)
    shutil.copytree(home / "data", home / "before")
    with Broker(home / "data", clock=clock) as broker:
        broker.clean("users", force=True)
    shutil.copytree(home / "before", home / "broken")
    first = min((home / "broken" / "users-2").glob("*.log"))
    damaged = bytearray(first.read_bytes())
    damaged[100] ^= 1
    first.write_bytes(damaged)
    index = sorted((home / "broken" / "users-2").glob("*.timeindex"))[1]
    index.write_bytes(b"\1" * 12)
    events = home / "broken" / "events-1"
    for kind, tail in (("log", b"\1" * 40), ("timeindex", bytes(24)), ("index", bytes(16))):
        with sorted(events.glob(f"*.{kind}"))[-1].open("ab") as file:
            file.write(tail)
    with min(events.glob("*.timeindex")).open("ab") as file:
        file.write(bytes(12) + b"\2" * 12)
    (events / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    (events / "00000000000000000004.snapshot").write_bytes(b"\0" * 7)
    (home / "broken" / "cleaner-offset-checkpoint").write_text("0\n1\nusers 2 nine\n")


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
