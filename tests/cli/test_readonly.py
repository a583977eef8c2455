"""Commands that read change nothing: the tree's hash, including times, stays the same."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.conftest import sound, torn_tail, tree_hash

COMMANDS = (
    ("topic", "list"),
    ("topic", "describe", "golden"),
    ("read", "golden"),
    ("read", "golden", "--isolation", "read_committed", "--format", "jsonl"),
    ("read", "golden", "--latest-per-key"),
    ("read", "golden", "--from", "@1700000000000", "--max-records", "3"),
    ("retain", "--dry-run"),
    ("retain", "golden", "--dry-run", "--now", "2035-01-01", "--format", "json"),
    ("offsets", "golden"),
    ("offsets", "golden", "--time", "earliest"),
    ("offsets", "golden", "--time", "max-timestamp"),
    ("offsets", "golden", "--time", "1700000000000"),
    ("inspect",),
    ("inspect", "golden", "--deep", "--format", "json"),
    ("inspect", "golden", "--batches"),
    ("inspect", "golden", "--records"),
    ("inspect", "{dir}/golden-0", "--deep"),
    ("inspect", "{dir}/golden-0/00000000000000000000.log"),
    ("inspect", "golden", "--fate"),
    ("explain",),
    ("explain", "{dir}/golden-0", "--config", "cleanup.policy=compact", "--format", "json"),
    ("stats", "golden"),
    ("erasure", "golden", "--key", "key-1", "--now", "2035-01-01"),
    ("erasure", "{dir}/golden-0", "--key", "key-1", "--config", "cleanup.policy=compact,delete"),
    ("stats", "{dir}/golden-0", "--format", "json"),
    ("diff", "{dir}/golden-0", "{dir}/golden-0", "--all"),
    ("inspect", "{dir}/golden-0", "--fate", "--config", "cleanup.policy=compact"),
    ("read", "golden", "--last", "3", "--format", "csv"),
    ("inspect", "--sort", "lag"),
    ("export", "golden", "--out", "{out}.parquet"),
    ("export", "{dir}/golden-0", "--out", "{out}.jsonl", "--roll"),
    ("clean", "--force", "--roll", "--out", "{out}", "--config", "cleanup.policy=compact"),
)


def missing_indexes(directory):
    first = sorted((directory / "golden-0").glob("*.log"))[0]
    first.with_suffix(".index").unlink()
    first.with_suffix(".timeindex").unlink()


def leftovers(directory):
    """An interrupted cleaning with a complete `.swap`, and other leftover files."""
    first, *_ = sorted((directory / "golden-0").glob("*.log"))
    shutil.copy(first, f"{first}.swap")
    for name in (f"{7:020}.log.deleted", f"{first.name}.deleted", f"{900:020}.log.cleaned"):
        (directory / "golden-0" / name).write_bytes(b"left behind")
    (directory / "golden-0" / f"{5000:020}.index").write_bytes(b"")


def no_checkpoints(directory):
    for path in directory.glob("*checkpoint"):
        path.unlink()
    for path in (directory / "golden-0").glob("*.snapshot"):
        path.unlink()


@pytest.mark.parametrize("damage", (sound, torn_tail, missing_indexes, leftovers, no_checkpoints))
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_tree_is_the_same_after(run, golden, tmp_path, command, damage):
    case = "transactions" if damage is not leftovers else "segments"
    directory = golden(case)
    damage(directory)
    before = tree_hash(directory)
    places = {"dir": directory, "out": tmp_path / "out"}
    code = None if command[0] == "erasure" else 0  # 1 where it is found
    run(*(part.format(**places) for part in command), "--data-dir", directory, code=code)
    assert tree_hash(directory) == before


def test_missing_directory_is_not_created(run, data_dir):
    reading = (
        *(("topic", "list"), ("read", "t"), ("inspect",), ("inspect", "t")),
        *(("offsets", "t"), ("retain", "--dry-run")),
    )
    writing = (
        *(("append", "t"), ("roll", "t"), ("clean",), ("clean", "t", "--force"), ("retain",)),
        *(("topic", "alter", "t", "--set", "segment.ms=1"), ("topic", "delete", "t")),
        ("delete-records", "t", "--before-offset", "1"),
    )
    for command in (*reading, *writing):
        assert "does not exist" in run(*command, input="", code=2).stderr
    assert not data_dir.exists()
