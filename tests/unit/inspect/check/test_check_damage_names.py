"""Seeded damage to names, folders and the files that belong to topics; and the issue's own list."""

import json

import pytest

from logstore.inspect.check import CHECKS, INFO, WARNING
from logstore.names import SEGMENT_SUFFIXES
from tests.support.world.damage import EPOCHS, ORIGINS, RECOVERY, TOPICS, DamageTable, Found
from tests.support.world.golden_dirs import ROOT
from tests.unit.inspect.check import (
    test_check_damage_files,
    test_check_damage_indexes,
    test_check_damage_log,
)

TABLE = DamageTable()
row = TABLE.row


# -- leftovers -------------------------------------------------------------------------------------


def leftovers(place, state, check, severity, kinds=SEGMENT_SUFFIXES):
    found = []
    for kind in kinds:
        name = f"golden-0/{place.base:020d}{kind}{state}"
        place.write(name)
        found.append(Found(check, name, None, place.base, severity))
    return sorted(found)


@row("leftover `.cleaned`")
def cleaned_files(place):
    return leftovers(place, ".cleaned", "leftover_cleaned", INFO)


@row("leftover `.deleted`")
def deleted_files(place):
    kinds = (*SEGMENT_SUFFIXES, ".snapshot")
    return leftovers(place, ".deleted", "leftover_deleted", INFO, kinds)


@row("leftover `.tmp`")
def temporary_epoch_checkpoint(place):
    place.write(f"{EPOCHS}.tmp")
    return [Found("leftover_tmp", f"{EPOCHS}.tmp", None, None, INFO)]


@row("leftover `.tmp`")
def temporary_checkpoint(place):
    place.write(f"{RECOVERY}.tmp")
    return [Found("leftover_tmp", f"{RECOVERY}.tmp", None, None, INFO)]


@row("two segments of one base")
def segment_and_its_successor(place):
    """Complete output of a cleaning pass: the next opening replaces the segment by it."""
    return swap(place)


@row("leftover `.swap`")
def swap_in_its_middle(place):
    """The old `.log` is gone, its indexes are not: an opening completes the swap by the names."""
    found = swap(place)
    going = f"{place.log}.deleted"
    place.rename(place.log, going)
    return sorted([*found, Found("leftover_deleted", going, None, place.base, INFO)], key=by_path)


@row("leftover `.swap`")
def swap_at_its_end(place):
    """The new `.log` bears its name, its indexes do not yet."""
    found = swap(place)
    place.rename(f"{place.log}.swap", place.log)
    for name in (place.index, place.time_index):
        place.remove(name)
    return [each for each in found if each.path != f"{place.log}.swap"]


@row("leftover `.swap`")
def swap_of_a_damaged_segment(place):
    """It is verified as what takes the segment's place, under the name that it still has."""
    found = swap(place)
    place.flip(f"{place.log}.swap", place.position + 70)
    return [*found, Found("crc", f"{place.log}.swap", place.position, place.offset)]


@row("leftover `.swap`")
def swap_that_cannot_be_finished(place):
    """Opening refuses such a partition; its files are verified as they are."""
    found = swap(place)
    place.put(f"{place.log}.swap", ">i", place.position + 8, 5)
    return [*found, Found("leftover_swap", f"{place.log}.swap", place.position)]


@row("leftover `.swap`")
def swap_that_is_not_complete(place):
    """With a `.cleaned` next to it, an opening drops it; the segment itself stays and counts."""
    cleaned = f"golden-0/{place.base:020d}.log.cleaned"
    place.write(cleaned)
    place.flip(place.log, place.position + 70)
    left = [*swap(place), Found("leftover_cleaned", cleaned, None, place.base, INFO)]
    return [*sorted(left, key=by_path), Found("crc", place.log, place.position, place.offset)]


def swap(place):
    """Write all files of the site's segment as a cleaning pass writes them, its swap to come."""
    found = []
    for name in sorted(place.fs.list_dir("/data/golden-0")):
        kind = f".{name.partition('.')[2]}"
        if name.startswith(f"{place.base:020d}") and kind in SEGMENT_SUFFIXES:
            place.write(f"golden-0/{name}.swap", place.read(f"golden-0/{name}"))
            found.append(Found("leftover_swap", f"golden-0/{name}.swap", None, place.base, INFO))
    return found


def by_path(found):
    return found.path


@row("leftover `.deleted`", "transactions")
def deletion_in_its_middle(place):
    """The `.log` of the first segment goes first; its indexes go with the next opening."""
    first = min(place.bases())
    name = f"golden-0/{first:020d}"
    place.rename(f"{name}.log", f"{name}.log.deleted")
    kinds = ("index", "timeindex", "txnindex")
    kinds = [kind for kind in kinds if place.fs.exists(f"/data/{name}.{kind}")]
    deleted = Found("leftover_deleted", f"{name}.log.deleted", None, first, INFO)
    return [
        deleted,
        *(Found("orphan_index", f"{name}.{kind}", None, first, INFO) for kind in kinds),
    ]


# -- foreign files ---------------------------------------------------------------------------------


@row("foreign file")
def foreign_file(place):
    place.write("golden-0/x.txt")
    return [Found("foreign_file", "golden-0/x.txt", None, None, INFO)]


@row("foreign file")
def foreign_folder(place):
    place.make_dirs("golden-0/old")
    return [Found("foreign_file", "golden-0/old", None, None, INFO)]


@row("foreign file")
def foreign_suffix(place):
    place.write(f"{place.log}.bak")
    return [Found("foreign_file", f"{place.log}.bak", None, None, INFO)]


@row("foreign file")
def foreign_file_in_the_data_directory(place):
    place.write("x.txt")
    return [Found("foreign_file", "x.txt", None, None, INFO)]


@row("foreign file")
def segment_outside_a_partition(place):
    place.write("00000000000000000000.log")
    return [Found("foreign_file", "00000000000000000000.log", None, None, INFO)]


# -- folders ---------------------------------------------------------------------------------------


def folder_rows(*names):
    for name in names:

        def inflict(place, name=name):
            place.make_dirs(name)
            return [Found("folder_name", name)]

        inflict.__name__ = f"folder {name}"
        row("wrong folder name")(inflict)


folder_rows("other", "ot her-0", "other-", "-0", "other-x", "other-007", f"other-{1 << 31}")


@row("wrong folder name")
def folder_of_no_partition(place):
    """The partition is verified nowhere, and its checkpoints name nothing."""
    place.rename("golden-0", "golden")
    found = [Found("folder_name", "golden")]
    for name in ("log-start-offset-checkpoint", RECOVERY, "replication-offset-checkpoint"):
        offset = 45 if name.startswith("log-start") else int(place.read(name).split()[-1])
        found.append(Found("checkpoint_unknown_partition", name, 4, offset, WARNING))
    order = (RECOVERY, "replication-offset-checkpoint", "log-start-offset-checkpoint")
    found[1:] = sorted(found[1:], key=lambda each: order.index(each.path))
    if place.fs.exists(f"/data/{TOPICS}"):
        found.append(Found("topics_partition", TOPICS, None, None, WARNING))
    return found


@row("wrong folder name")
def folder_to_be_deleted(place):
    name = f"golden-1.{'0' * 32}-delete"
    place.make_dirs(name)
    return [Found("leftover_folder", name, None, None, INFO)]


# -- topics ----------------------------------------------------------------------------------------


def topics_file(partitions, **configs):
    topics = {"golden": {"partitions": partitions, "configs": configs}}
    return json.dumps({"version": 1, "topics": topics}).encode()


@row("")
def topics_file_unreadable(place):
    place.write(TOPICS, b"{")
    return [Found("topics_file", TOPICS)]


@row("")
def topics_file_with_an_unknown_key(place):
    place.write(TOPICS, topics_file([0], foo="bar"))
    return [Found("topics_file", TOPICS)]


@row("")
def stored_partition_without_a_folder(place):
    place.write(TOPICS, topics_file([0, 1]))
    return [Found("topics_partition", TOPICS, None, None, WARNING)]


@row("")
def folder_without_a_stored_partition(place):
    place.write(TOPICS, topics_file([]))
    return [Found("topics_partition", "golden-0", None, None, WARNING)]


@row("")
def metadata_without_an_id(place):
    place.write("golden-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    return [Found("partition_metadata", "golden-0/partition.metadata")]


@row("", "transactions")
def other_topic_id(place):
    """Partition 1 is a copy of partition 0 under another id."""
    for each, letter in (("golden-0", "A"), ("golden-1", "B")):
        place.make_dirs(each)
        for name in place.fs.list_dir("/data/golden-0"):
            place.write(f"{each}/{name}", place.read(f"golden-0/{name}"))
        text = f"version: 0\ntopic_id: {letter * 22}"
        place.write(f"{each}/partition.metadata", text.replace("A" * 22, "A" * 21 + "Q").encode())
    place.write(TOPICS, topics_file([0, 1]))
    return [Found("topic_id", "golden-1/partition.metadata")]


@row("", "transactions")
def topic_id_of_another_topic(place):
    """The folder of a partition was copied under the name of another topic."""
    id_ = "version: 0\ntopic_id: " + "A" * 21 + "Q"
    place.write("golden-0/partition.metadata", id_.encode())
    place.make_dirs("copied-0")
    for name in place.fs.list_dir("/data/golden-0"):
        place.write(f"copied-0/{name}", place.read(f"golden-0/{name}"))
    place.write(TOPICS, topics_file([0]))
    return [Found("shared_topic_id", "golden-0/partition.metadata", None, None, WARNING)]


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("origin", ORIGINS)
def test_damage_is_found_and_nothing_else(name, origin):
    place, expected = TABLE.seed(name, origin)
    assert expected
    assert place.found() == expected
    TABLE.check_values(name, origin, place)


# -- the whole list --------------------------------------------------------------------------------

ISSUE = (
    ("in each header field", "in a record", "in a codec section"),
    ("bad length", "magic", "record count", "torn tail", "zero tail"),
    ("offsets out of order", "overlap of segments", "gap that no cleaning pass explains"),
    ("index unsorted", "out of range", "odd size", "wrong position", "beyond the file"),
    ("time index unsorted", "wrong timestamp"),
    ("bad snapshot CRC", "bad snapshot version", "bad snapshot size"),
    ("epoch file out of order", "epoch file beyond the end"),
    ("checkpoint of wrong version", "checkpoint of wrong count"),
    ("checkpoint of unknown partition", "checkpoint beyond the end"),
    ("leftover `.cleaned`", "leftover `.swap`", "leftover `.deleted`", "leftover `.tmp`"),
    ("two segments of one base", "foreign file", "wrong folder name", "missing `.log`"),
)
"""The damages that `check` was asked to find, as they were asked for."""

TABLES = (
    test_check_damage_log.TABLE,
    test_check_damage_indexes.TABLE,
    test_check_damage_files.TABLE,
    TABLE,
)


def test_every_requested_damage_has_a_row():
    told = {damage.issue for table in TABLES for damage in table.values()} - {""}
    assert told == {words for line in ISSUE for words in line}


def test_every_check_is_in_a_test_and_in_the_docs():
    tests = sorted((ROOT.parents[1] / "unit" / "inspect" / "check").glob("test_check*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [name for name in CHECKS if f'"{name}"' not in text] == []
    docs = (ROOT.parents[2] / "docs" / "CHECKS.md").read_text(encoding="utf-8")
    assert [name for name in CHECKS if f"`{name}`" not in docs] == []
