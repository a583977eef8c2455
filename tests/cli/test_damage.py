"""Damaged, torn, overlapping and old logs: commands that read never write."""

import shutil

import pytest

from tests.cli.conftest import GOLDEN, lines, tree_hash
from tests.support.world.builders import batch, log_name
from tests.support.world.damage import partition
from tests.support.world.golden_dirs import tree
from tests.support.world.legacy import compressed_set, message

COMPACT = ("--config", "cleanup.policy=compact")
READING = (
    ("read",),
    ("read", "--latest-per-key"),
    ("read", "--last", "3"),
    ("offsets",),
    ("offsets", "--time", "max-timestamp"),
    ("inspect",),
    ("inspect", "--deep"),
    ("inspect", "--batches"),
    ("inspect", "--records"),
    ("inspect", "--fate", *COMPACT),
    ("explain", *COMPACT),
    ("stats",),
)


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def copied(tmp_path):
    """A directory copied from a broker, with a damaged batch in its third segment."""
    folder = tmp_path / "copy" / "golden-0"
    shutil.copytree(GOLDEN / "segments" / "data" / "golden-0", folder)
    flip(folder / log_name(83), 70)
    return folder


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        pytest.param(arguments, flags, id=" ".join((*arguments, *flags)))
        for flags in ((), ("--as-recovered",))
        for arguments in READING
        if arguments[0] != "stats" or not flags  # which has no such option
    ],
)
def test_commands_that_read_name_the_damage_and_change_nothing(run, copied, arguments, flags):
    before = tree_hash(copied.parent)
    command, *rest = arguments
    found = run(command, copied, *rest, *flags, code=None)
    assert tree_hash(copied.parent) == before
    if flags:
        assert found.code in (0, 1)
        return
    assert found.code == 1
    assert f"{log_name(83)}" in found.stderr + found.stdout


def test_a_broker_would_leave_less_than_there_is(run, copied):
    served = run("read", copied, "--format", "jsonl", code=1)
    recovered = run("read", copied, "--as-recovered", "--format", "jsonl")
    assert [r["offset"] for r in served.jsonl] == [*range(83), *range(86, 300)]
    assert [r["offset"] for r in recovered.jsonl] == list(range(83))
    assert "214 later records are valid" in served.stderr


def test_a_torn_end_is_a_note_and_no_damage(run, tmp_path):
    folder = tmp_path / "copy" / "golden-0"
    shutil.copytree(GOLDEN / "segments" / "data" / "golden-0", folder)
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes() + batch(300)[:40])
    for command in ("read", "offsets", "inspect", "explain"):
        run(command, folder)
    recovery = run("inspect", folder, "--format", "json").json["recovery"]
    assert [finding["action"] for finding in recovery] == ["truncated_tail"]
    assert "40 bytes after the last whole batch" in run("inspect", last).stderr


# -- writing ---------------------------------------------------------------------------------------

WRITING = (
    ("append", "golden"),
    ("clean", "golden", "--force", *COMPACT),
    ("clean", "golden", "--dry-run", *COMPACT),
    ("retain", "golden"),
    ("roll", "golden"),
    ("delete-records", "golden", "--partition", "0", "--before-offset", "5"),
)


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_cut_of_valid_batches_is_refused_and_changes_nothing(run, copied, arguments):
    before = tree_hash(copied)
    refused = run(*arguments, "--data-dir", copied.parent, input=lines({"value": "x"}), code=1)
    assert "lose 85 valid batches with 214 records after it" in refused.stderr
    hint = "; salvage DIR --out DIR keeps them, --accept-data-loss deletes them"
    is_offered = arguments[0] not in ("retain", "delete-records")
    assert refused.stderr.endswith(f" (CORRUPT_MESSAGE){hint if is_offered else ''}\n")
    assert tree_hash(copied) == before


def test_an_accepted_cut_is_made_and_reported(run, copied):
    done = run(
        *("append", "golden", "--accept-data-loss"),
        *("--data-dir", copied.parent),
        input=lines({"value": "x"}),
    )
    assert "214 records after it lost" in done.stderr
    assert "at offset 83" in done.stdout


@pytest.mark.parametrize(("recovery_point", "is_refused"), ((300, False), (84, True), (83, False)))
def test_data_after_the_recovery_point_is_cut_as_a_broker_does(
    run, copied, recovery_point, is_refused
):
    """At 300 the damaged segment is not checked, so it is not truncated."""
    checkpoint = copied.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\ngolden 0 {recovery_point}\n")
    run("roll", "golden", "--data-dir", copied.parent, code=int(is_refused))


def test_partitions_that_a_command_does_not_touch_are_left_and_refuse_nothing(run, copied):
    directory = copied.parent
    before = tree_hash(copied)
    run("append", "other", "--create", "--data-dir", directory, input=lines({"value": "x"}))
    assert tree_hash(copied) == before
    assert not (directory / ".kafka_cleanshutdown").exists(), "it was not closed in good order"


def test_salvage_saves_intact_batches_and_lists_lost_ones(run, copied, tmp_path):
    before = tree_hash(copied)
    report = run("salvage", copied, "--out", tmp_path / "saved", "--format", "json").json
    assert report["saved"] == {"records": 297, "batches": 119, "mended": 0}
    [lost] = report["lost"]
    assert (lost["path"], lost["position"], lost["reason"]) == (
        str(copied / log_name(83)),
        0,
        "crc",
    )
    assert tree_hash(copied) == before
    run("check", tmp_path / "saved")
    kept = run("read", tmp_path / "saved" / "golden-0", "--format", "jsonl").jsonl
    assert [r["offset"] for r in kept] == [*range(83), *range(86, 300)]
    run("append", "golden", "--data-dir", tmp_path / "saved", input=lines({"value": "x"}))
    assert "1 range could not be saved" in run("salvage", copied, "--out", tmp_path / "b").stdout


def test_salvage_refuses_a_place_that_is_taken(run, copied, tmp_path):
    assert "is inside" in run("salvage", copied, "--out", copied.parent / "x", code=2).stderr
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert "not empty" in run("salvage", copied, "--out", tmp_path / "taken", code=2).stderr


# -- leftovers of a swap, old formats, names -------------------------------------------------------


def on_disk(directory, path):
    for name, data in tree(directory.fs).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_all_commands_agree_on_the_leftovers_of_a_finished_swap(run, tmp_path):
    """A copy made during a cleaning pass: the new segment 0, and old ones that it replaced."""
    directory = partition([batch(n, key=b"k%d" % n) for n in (1, 4, 7, 9)])
    for base in (4, 8, 12):
        old = [batch(n, key=b"k%d" % n) for n in range(base, base + 4)]
        directory.write(f"golden-0/{log_name(base)}", b"".join(old))
        for suffix in ("index", "timeindex"):
            directory.write(f"golden-0/{base:020d}.{suffix}")
    data = on_disk(directory, tmp_path / "data")
    # Segment 8 extends beyond its replacement; segment 4 has no other records.
    read = run("read", data / "golden-0", "--format", "jsonl", code=1)
    offsets = [1, 4, 7, 9, 10, 11, 12, 13, 14, 15]
    assert [record["offset"] for record in read.jsonl] == offsets
    found = run("inspect", data / "golden-0", "--format", "json", code=1).json
    assert found["records"] == len(offsets)
    assert [f["action"] for f in found["recovery"]].count("leftover_segment") == 2
    checked = run("check", data, "--format", "json", code=None).json
    assert "leftover_segment" in {each["check"] for each in checked["checks"]}


def test_a_complete_leftover_is_skipped_by_all_commands_and_removed_by_a_cleaning(run, tmp_path):
    kept = [batch(n, key=b"k%d" % n) for n in (1, 4, 7, 9)]
    directory = partition(kept, [batch(n, key=b"k%d" % n) for n in (12, 13)], first=0)
    for name in directory.fs.list_dir("/data/golden-0"):
        if name.startswith(f"{10:020d}"):
            directory.rename(f"golden-0/{name}", f"golden-0/{12:020d}{name[20:]}")
    old = [batch(n, key=b"k%d" % n) for n in range(4, 8)]
    directory.write(f"golden-0/{log_name(4)}", b"".join(old))
    for suffix in ("index", "timeindex"):
        directory.write(f"golden-0/{4:020d}.{suffix}")
    data = on_disk(directory, tmp_path / "data")
    folder = data / "golden-0"
    read = run("read", folder, "--format", "jsonl")
    assert [record["offset"] for record in read.jsonl] == [1, 4, 7, 9, 12, 13]
    found = run("inspect", folder, "--format", "json").json
    assert (found["records"], found["damages"]) == (6, [])
    assert [f["action"] for f in found["recovery"]].count("leftover_segment") == 1
    checked = run("check", data, "--format", "json").json
    assert checked["records"] == 6
    told = {f["check"] for f in checked["findings"] if f["severity"] != "info"}
    assert told == {"leftover_segment", "time_index_last"}  # the indexes here are empty
    force = ("clean", "golden", "--data-dir", data, "--force", *COMPACT, "--format", "json")
    dry, real = run(*force, "--dry-run").json, run(*force).json
    for report in (dry, real):
        assert [part["messages_read"] for part in report["cleaned"]] == [4]
    assert not (folder / log_name(4)).exists()


@pytest.fixture
def old_log(tmp_path):
    """A log of magic 0 and 1, with message sets, and of magic 2 at its end."""
    folder = tmp_path / "copy" / "old-0"
    folder.mkdir(parents=True)
    rows = [(2, b"a", b"1"), (3, b"b", b"2")]
    data = message(0, b"k", b"v", magic=0) + message(1, b"k", None, timestamp=1_000)
    data += compressed_set(rows, timestamp=2_000) + batch(4, 5)
    (folder / log_name(0)).write_bytes(data)
    return folder


def test_old_formats_are_read_and_checked_and_never_written(run, old_log, tmp_path):
    before = tree_hash(old_log)
    found = run("read", old_log, "--format", "jsonl").jsonl
    assert [(r["offset"], r["timestamp"]) for r in found[:4]] == [
        (0, -1),
        (1, 1000),
        (2, 2000),
        (3, 2000),
    ]
    assert [r["value"] for r in found[:4]] == ["v", None, "1", "2"]
    assert run("inspect", old_log, "--deep", "--format", "json").json["records"] == 6
    batches = run("inspect", old_log, "--batches", "--format", "jsonl").jsonl
    assert [(b["magic"], b["compresscodec"]) for b in batches] == [
        (0, "none"),
        (1, "none"),
        (1, "gzip"),
        (2, "none"),
    ]
    findings = run("check", old_log, "--format", "json").json["findings"]
    assert {f["check"] for f in findings if f["severity"] != "warning"} >= {"unsupported_format"}
    out = tmp_path / "old.csv"
    run("export", old_log, "--out", out)
    assert len(out.read_text().splitlines()) == 7
    for command in (("append", "old"), ("roll", "old"), ("clean", "old", "--force", *COMPACT)):
        run(*command, "--data-dir", old_log.parent, input=lines({"value": "x"}), code=1)
    assert tree_hash(old_log) == before


@pytest.mark.parametrize(
    ("name", "shown"),
    (
        ("orders.bak", "orders.bak-0"),
        ("golden-0.old", "golden-0"),
        ("__cluster_metadata-0", "__cluster_metadata-0"),
        ("with blanks", "with_blanks-0"),
    ),
)
def test_a_folder_under_any_name_is_a_partition(run, tmp_path, name, shown):
    folder = tmp_path / "somewhere" / name
    shutil.copytree(GOLDEN / "segments" / "data" / "golden-0", folder)
    before = tree_hash(folder.parent)
    assert f"{shown} " in run("offsets", f"{folder}/").stdout
    assert len(run("read", folder, "--format", "jsonl").jsonl) == 300
    assert run("inspect", folder, "--format", "json").json["records"] == 300
    assert tree_hash(folder.parent) == before


def test_a_folder_that_holds_data_directories_is_all_of_them(run, tmp_path):
    volume = tmp_path / "data-0"
    shutil.copytree(GOLDEN / "segments" / "data", volume / "kafka-log0")
    assert run("offsets", volume, "--format", "json").json["offsets"][0]["offset"] == 300
    assert (
        run("offsets", volume / "kafka-log0", "--format", "json").json["offsets"][0]["offset"]
        == 300
    )


def test_a_single_file_is_read_as_a_log_of_its_own(run, tmp_path):
    path = GOLDEN / "segments" / "data" / "golden-0" / log_name(83)
    loose = tmp_path / "mine.log"
    loose.write_bytes(path.read_bytes())
    for each in (path, loose):
        found = run("read", each, "--format", "jsonl").jsonl
        assert [record["offset"] for record in found] == list(range(83, 126))
        offsets = run("offsets", each, "--time", "earliest", "--format", "json").json["offsets"]
        assert offsets[0]["offset"] == 83
