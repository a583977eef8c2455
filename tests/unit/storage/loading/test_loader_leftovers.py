"""Opening a partition after an interrupted cleaning or split, and with foreign files."""

from logstore.names import file_name
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    abort,
    batch,
    data_batch,
    fill,
    findings_of,
    log_name,
    offsets_in,
)

REPLICA = AppendOrigin.REPLICATION


def cleaned_log(world):
    """Fill three segments and write the result of cleaning the first two: offsets 1 and 4."""
    log = world.log()
    for _ in range(3):
        fill(log, 3, log.log_end_offset)
        log.writer.roll()
    log.close()
    originals = world.files()
    kept = {
        log_name(0): batch(1, timestamp=1001) + batch(4, timestamp=1004),
        file_name(0, ".index"): b"",
        file_name(0, ".timeindex"): (1004).to_bytes(8, "big") + (4).to_bytes(4, "big"),
    }
    return originals, kept


def with_suffix(files, suffix):
    return {n + suffix: data for n, data in files.items()}


DELETED = "it was scheduled for deletion"
UNFINISHED = "it was written by an unfinished cleaning pass"
INCOMPLETE = "its swap is incomplete"
SUPERSEDED = "it is replaced by complete segments"


def expected_findings(names, *, complete):
    """Return the findings of files of which segments 0 and 3 are being replaced."""
    has_new = complete and log_name(0) + ".swap" in names
    found = []
    for name in names:
        if name.endswith(".deleted"):
            found.append(("removed_leftover", name, DELETED))
        elif name.endswith(".cleaned"):
            found.append(("removed_leftover", name, UNFINISHED))
        elif name.endswith(".swap") and not complete:
            found.append(("removed_leftover", name, INCOMPLETE))
        elif name.endswith(".swap"):
            found.append(("finished_swap", name.removesuffix(".swap"), "renamed from .swap"))
        elif has_new and name[:20].isdigit() and int(name[:20]) <= 3:
            found.append(("finished_swap", name, SUPERSEDED))
    return sorted(found)


def test_deleted_and_cleaned_files_are_removed(world):
    originals, cleaned = cleaned_log(world)
    deleted = {file_name(90, kind): b"x" for kind in (".log", ".txnindex", ".snapshot")}
    world.put({**originals, **with_suffix(cleaned, ".cleaned"), **with_suffix(deleted, ".deleted")})
    log = world.log()
    assert sorted(findings_of(log)) == sorted(
        [("removed_leftover", f"{name}.deleted", DELETED) for name in deleted]
        + [("removed_leftover", f"{name}.cleaned", UNFINISHED) for name in cleaned]
    )
    assert offsets_in(log) == list(range(9))
    log.close()
    assert world.files() == originals


def test_each_stage_of_a_swap_ends_before_or_after_it(world):
    """Two segments merged into one, interrupted at each rename of `replace_segments`."""
    originals, cleaned = cleaned_log(world)
    old = {n: d for n, d in originals.items() if n.startswith((f"{0:020d}", f"{3:020d}"))}
    rest = {n: d for n, d in originals.items() if n not in old}
    steps = [(n + ".cleaned", n + ".swap") for n in cleaned]
    steps += [(n, n + ".deleted") for n in old if not n.endswith(".snapshot")]
    steps += [(n + ".swap", n) for n in cleaned]
    files = {**originals, **with_suffix(cleaned, ".cleaned")}
    for done in range(len(steps) + 1):
        if done:
            source, target = steps[done - 1]
            files[target] = files.pop(source)
        world.put(files)
        complete = done >= len(cleaned)
        expected = [1, 4, 6, 7, 8] if complete else list(range(9))
        assert offsets_in(world.log(runtime=world.read_only())) == expected
        assert world.files() == files
        log = world.log()
        assert sorted(findings_of(log)) == expected_findings(files, complete=complete)
        assert offsets_in(log) == expected
        assert [s.base_offset for s in log.segments] == ([0, 6, 9] if complete else [0, 3, 6, 9])
        assert log.log_end_offset == 9
        log.close()
        after = world.files(".log", ".index", ".timeindex")
        kept = {**rest, **cleaned} if complete else originals
        assert after == {n: d for n, d in kept.items() if not n.endswith(("snapshot", "point"))}
        assert world.log().findings == ()


def test_a_swap_file_of_an_unfinished_split_is_dropped(world):
    """A `.swap` at or above the lowest `.cleaned` belongs to an incomplete set."""
    originals, _ = cleaned_log(world)
    split = {log_name(3): batch(3), log_name(0): batch(0)}
    world.put(
        {
            **originals,
            log_name(3) + ".swap": split[log_name(3)],
            log_name(0) + ".cleaned": split[log_name(0)],
        }
    )
    log = world.log()
    assert sorted(findings_of(log)) == [
        ("removed_leftover", log_name(0) + ".cleaned", UNFINISHED),
        ("removed_leftover", log_name(3) + ".swap", INCOMPLETE),
    ]
    assert offsets_in(log) == list(range(9))
    log.close()
    assert world.files() == originals


def test_an_empty_cleaned_segment_takes_the_place_of_its_base(world):
    """Its transaction index must not outlive the segment it belonged to."""
    log = world.log()
    log.writer.append_batches(data_batch(0, 1, 5) + abort(2, 5), REPLICA)
    log.writer.roll()
    fill(log, 2, 3)
    log.close()
    swap = {log_name(0): b"", file_name(0, ".index"): b"", file_name(0, ".timeindex"): b""}
    world.put({**world.files(), **with_suffix(swap, ".swap")})
    log = world.log()
    assert offsets_in(log) == [3, 4]
    assert log.segments.first.size_bytes == 0
    assert file_name(0, ".txnindex") not in world.files()
    log.close()


def test_other_files_are_left_alone(world):
    fill(world.log(), 1)
    strangers = {
        "notes.txt": b"mine",
        "partition.metadata": b"version: 0",
        "x.log": b"?",
        "notes.tmp": b"half",
    }
    for stranger, data in strangers.items():
        world.write(stranger, data)
    log = world.log(clean=False)
    log.close()
    assert strangers.items() <= world.files().items()
