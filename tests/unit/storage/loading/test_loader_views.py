"""Every crafted directory: read without a change, repaired with the same result, repaired once.

Also the cost of a start without repairs.
"""

import re
from collections import Counter
from dataclasses import replace

import pytest

from logstore.broker import Broker
from logstore.names import file_name
from logstore.record.layout import HEADER_SIZE_UP_TO_MAGIC
from logstore.runtime import Runtime
from logstore.storage.checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.log.finding import Finding
from tests.support.world.builders import TP, batch, fill, log_name, memory_world, offsets_in
from tests.support.world.crafted import CRAFTED, FOREIGN, SMALL, closed, segment_files, without

every_directory = pytest.mark.parametrize("name", CRAFTED)

BROKER = {"log.index.size.max.bytes": "4000", "log.index.interval.bytes": "0"}

STAYS = {"kept_overflow", "overlapping_segments", "ignored_log_start"}
"""Findings of every start: they are not repaired, or not by opening a partition."""

DAMAGED = {"S-148", "a damaged length in a clean log"}
"""Directories whose records cannot all be read."""


def tree(world):
    """Return contents and modification time of every file."""
    return {
        name: (data, world.fs.stat(world.path(name)).mtime_ms)
        for name, data in world.files().items()
    }


def batches_in(log):
    return [
        batch.data
        for segment in log.segments
        for batch in map(segment.read_batch, segment.batches())
    ]


def view_of(log):
    """Return everything that a user can see of a log."""
    return {
        "findings": log.findings,
        "bounds": (log.log_start_offset, log.log_end_offset, log.recovery_point),
        "stable": (log.high_watermark, log.last_stable_offset),
        "segments": [(s.base_offset, s.size_bytes, s.largest_timestamp) for s in log.segments],
        "indexes": [
            (list(s.offset_index), list(s.time_index), s.txn_index.entries()) for s in log.segments
        ],
        "batches": batches_in(log),
        "epochs": log.epochs.entries,
        "producers": sorted(map(repr, log.producer_state.entries())),
        "snapshots": log.producer_state.snapshot_offsets,
    }


@every_directory
def test_a_read_only_opening_reports_the_same_and_changes_nothing(name, world):
    crafted = CRAFTED[name]()
    crafted.put(world)
    world.clock.advance(days=1)
    before = tree(world)
    looked = view_of(crafted.open(world, world.read_only()))
    assert tree(world) == before
    log = crafted.open(world)
    opened = view_of(log)
    assert looked == opened
    if name not in DAMAGED:
        offsets_in(log)
    log._check()


@every_directory
def test_a_read_only_broker_sees_the_result_of_a_writing_one(name):
    """With the checkpoints and the marker of a data directory; no byte, name or time changes."""
    world = memory_world()
    crafted = CRAFTED[name]()
    crafted.put(world)
    partition, data_dir = TP, world.directory.rpartition("/")[0]
    checkpoint = b"0\n1\n" + f"{partition.topic} {partition.partition} %d\n".encode()
    files = {
        RECOVERY_POINTS: checkpoint % crafted.recovery_point,
        LOG_START_OFFSETS: checkpoint % crafted.log_start_offset,
    }
    if crafted.clean:
        files[CLEAN_SHUTDOWN] = b"{}"
    for each, data in files.items():
        replace(world, directory=data_dir).write(each, data)
    before = {
        path: contents and (contents.read(0, contents.size), contents.mtime_ms)
        for path, contents in world.fs.walk()
    }
    world.clock.advance(days=1)
    options = {"clock": world.clock, "fs": world.fs, "broker_config": BROKER}
    with Broker(data_dir, read_only=True, **options) as broker:
        looked = view_of(broker.log(partition.topic))
    assert before == {
        path: contents and (contents.read(0, contents.size), contents.mtime_ms)
        for path, contents in world.fs.walk()
    }
    with Broker(data_dir, **options) as broker:
        assert view_of(broker.log(partition.topic)) == looked


@every_directory
def test_a_second_start_has_nothing_left_to_do(name, world):
    """After a crash or a clean stop of the first; nor does a third start."""
    crafted = CRAFTED[name]()
    crafted.put(world)
    first = crafted.open(world)
    batches, end_offset = batches_in(first), first.log_end_offset
    first.flush(force=True)
    is_kept = not STAYS.isdisjoint(finding.action for finding in first.findings)
    clean = crafted.clean if is_kept or name in DAMAGED else False
    if clean:
        first.close()
    second = crafted.open(world, clean=clean, recovery_point=first.recovery_point)
    assert {finding.action for finding in second.findings} <= STAYS
    assert batches_in(second) == batches
    assert second.log_end_offset == end_offset
    second.close()
    files = world.files()
    third = crafted.open(world, clean=True, recovery_point=0)
    assert {finding.action for finding in third.findings} <= STAYS
    third.close()
    # At the start of an empty log one start takes a snapshot, the next removes it, as in Kafka.
    at_start = file_name(third.log_start_offset, ".snapshot")
    assert without(world.files(), at_start) == without(files, at_start)


def test_every_kind_of_finding_occurs_and_is_logged(caplog):
    """The findings that `Finding` lists, each with path and reason, as a value and in the log."""
    met = set()
    for craft in CRAFTED.values():
        world = memory_world()
        crafted = craft()
        crafted.put(world)
        caplog.clear()
        log = crafted.open(world)
        messages = [
            r.getMessage() for r in caplog.records if r.name == "logstore.storage.loading.leftovers"
        ]
        assert messages == [f"{f.path}: {f.action}: {f.detail}" for f in log.findings]
        assert all(f.path.startswith(world.directory) and f.detail for f in log.findings)
        met |= {finding.action for finding in log.findings}
    explained = set(re.findall("`(.+?)`", Finding.__doc__)) - {"action", "path", "detail"}
    assert met == explained - {"leftover_segment"}  # which a broker keeps: test_surveyed.py


@every_directory
def test_a_mended_log_can_be_used_on(name, world):
    crafted = CRAFTED[name]()
    crafted.put(world)
    log = crafted.open(world)
    end_offset = log.log_end_offset
    fill(log, 5, end_offset)
    log.writer.roll()
    fill(log, 1, end_offset + 5)
    log.close()
    log = crafted.open(world, clean=True)
    assert [record.offset for _, record in log.reader.records(end_offset)] == list(
        range(end_offset, end_offset + 6)
    )


# -- files that are not the log's --------------------------------------------------------------


@pytest.mark.parametrize("clean", (True, False))
def test_foreign_files_and_directories_are_left_alone(world, clean):
    """Also those whose names resemble segments; Kafka fails at `x.log` and `notes.cleaned`."""
    own = closed(20, **SMALL)
    world.put(own | FOREIGN)
    directories = (
        "lost+found",
        log_name(500),
        file_name(500, ".index"),
        log_name(500) + ".deleted",
        log_name(500) + ".cleaned",
        log_name(500) + ".swap",
    )
    for name in directories:
        world.fs.make_dirs(world.path(name))
        file = world.fs.open(world.path(f"{name}/inside"), create=True)
        file.append([b"mine"])
        file.close()
    log = world.log(clean=clean, **SMALL)
    assert log.findings == ()
    assert offsets_in(log) == list(range(20))
    fill(log, 10, 20)
    log.close()
    for name in directories:
        assert world.fs.list_dir(world.path(name)) == ["inside"]
        world.fs.remove(world.path(f"{name}/inside"))
        world.fs.remove_dir(world.path(name))
    # The engine removes its own partly written file.
    left = FOREIGN.keys() - {"leader-epoch-checkpoint.tmp", "partition.metadata.tmp"}
    assert {n: d for n, d in world.files().items() if n in left} == dict.fromkeys(left, b"?")


# -- offsets in two segments -------------------------------------------------------------------


def test_overlapping_segments_are_kept_and_no_offset_is_served_twice(world):
    """As in Kafka: a reader leaves a segment at its end or at the base of the next one."""
    crafted = CRAFTED["overlapping segments"]()
    for clean in (True, False):
        crafted.put(world)
        log = crafted.open(world, clean=clean)
        overlaps = [f for f in log.findings if f.action == "overlapping_segments"]
        assert [f.path for f in overlaps] == ([] if clean else [world.path(log_name(0))])
        assert offsets_in(log) == list(range(9))
        for start in range(9):
            assert [r.offset for _, r in log.reader.records(start)] == list(range(start, 9))
        log.close()
        assert world.files(".log") == {
            name: data for name, data in crafted.files.items() if name.endswith(".log")
        }


def test_no_offset_is_given_away_twice_where_a_segment_reaches_beyond_the_active_one(world):
    """Kafka's log end would be 7, and the next record would be the second with that offset."""
    crafted = CRAFTED["a segment that reaches beyond the active one"]()
    crafted.put(world)
    log = crafted.open(world)
    assert "overlapping_segments" in {finding.action for finding in log.findings}
    assert [segment.base_offset for segment in log.segments] == [0, 5, 8]
    assert (log.log_end_offset, offsets_in(log)) == (8, list(range(8)))
    fill(log, 1, 8)
    log.close()
    for clean in (True, False):
        log = crafted.open(world, clean=clean)
        assert (log.log_end_offset, offsets_in(log)) == (9, list(range(9)))
        log.close()


# -- the cost of a start -----------------------------------------------------------------------


class CountingFiles:
    """A file system that counts operations by name and the bytes read from each file."""

    def __init__(self, base):
        self._base = base
        self.operations = Counter()
        self.bytes_read = Counter()

    def __getattr__(self, name):
        method = getattr(self._base, name)

        def counted(*arguments, **options):
            self.operations[name] += 1
            result = method(*arguments, **options)
            return CountingFile(self, arguments[0], result) if name == "open" else result

        return counted


class CountingFile:
    def __init__(self, counts, path, base):
        self._counts = counts
        self._path = path
        self._base = base

    def __getattr__(self, name):
        method = getattr(self._base, name)

        def counted(*arguments, **options):
            self._counts.operations[name] += 1
            result = method(*arguments, **options)
            if name == "read":
                self._counts.bytes_read[self._path] += len(result)
            return result

        return counted


def test_a_clean_start_reads_no_contents():
    """Five operations per segment; 17 bytes of each `.log`, and the end of the active one."""
    world = memory_world()
    segments = 1000
    log = world.log(segment_index_bytes=48)
    for offset in range(segments):
        fill(log, 1, offset)
        if offset < segments - 1:
            log.writer.roll()
    log.close()
    counts = {}
    for clean in (True, False):
        fs = CountingFiles(world.fs)
        runtime = Runtime(world.clock, fs, world.runtime.rng)
        log = world.log(clean=clean, recovery_point=0, segment_index_bytes=48, runtime=runtime)
        assert (log.findings, len(log.segments)) == ((), segments)
        counts[clean] = fs
        log.close()
    fs = counts[True]
    assert fs.operations.total() <= 5 * segments + 100
    assert fs.operations["list_dir"] < 10
    assert fs.operations["write_at"] < 10
    active = world.path(log_name(segments - 1))
    for path, size in fs.bytes_read.items():
        if path.endswith(".log") and path != active:
            assert size <= HEADER_SIZE_UP_TO_MAGIC
        elif path.endswith("index"):
            assert path.startswith(active.removesuffix(".log"))
    # Recovery reads everything, but lists the directory no more often.
    assert counts[False].operations["list_dir"] < 10


def test_file_names_show_which_segments_are_below_the_limit(world):
    """Only of a segment far below its successor the end is read."""
    bases = [0, 5, 2**31 + 5, 2**32 + 6, 2**32 + 9]
    files = [segment_files(base, batch(base)) for base in bases]
    world.put({name: data for each in files for name, data in each.items()})
    world.log().close()
    fs = CountingFiles(world.fs)
    log = world.log(runtime=Runtime(world.clock, fs, world.runtime.rng))
    assert log.findings == ()
    read = {
        path
        for path, size in fs.bytes_read.items()
        if path.endswith(".log") and size > HEADER_SIZE_UP_TO_MAGIC
    }
    assert read == {world.path(log_name(base)) for base in (2**31 + 5, 2**32 + 9)}
