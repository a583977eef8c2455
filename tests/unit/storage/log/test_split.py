"""Splitting one segment: the new segments, and failures."""

import errno

import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import CorruptRecordError, SegmentOverflowError, UnsupportedFormatError
from logstore.names import file_name
from logstore.runtime import Runtime
from logstore.storage.log.split import split_segment
from logstore.storage.segment import LogSegment, LogSegments
from logstore.types import AbortedTxn
from tests.support.world.builders import MIB, append, batch, log_name, old_message
from tests.support.world.crafted import FAR, segment_files, suffixed
from tests.support.world.faulty import FaultyFileSystem

CONFIG = LogConfig(segment_index_bytes=1000, index_interval_bytes=0)


def opened(world, *bases, runtime=None):
    """Open the segments with these base offsets."""
    segments = LogSegments()
    for base in bases:
        segments.add(LogSegment(runtime or world.runtime, world.directory, base, CONFIG))
    return segments


def split(world, segments, base=0, **options):
    segment = segments.get(base)
    new = split_segment(
        options.pop("runtime", world.runtime),
        world.directory,
        segments,
        segment,
        CONFIG,
        **options,
    )
    segment.close_handlers()
    return new


def test_new_segments_are_as_if_the_batches_had_been_appended_to_them(world):
    """Including indexes; the old one is renamed to `.deleted`."""
    batches = [batch(3, 4), batch(9), batch(FAR + 2), batch(FAR + 3), batch(FAR + 7, FAR + 8)]
    for base, own in ((3, batches[:3]), (FAR + 3, batches[3:])):
        segment = world.segment(base, segment_index_bytes=1000, index_interval_bytes=0)
        for each in own:
            append(segment, each)
        segment.on_become_inactive()
        segment.close()
    expected = world.files()
    old = segment_files(1, *batches)
    world.put(old)
    world.fs.set_mtime(world.path(log_name(1)), 4_000)
    segments = opened(world, 1)
    new = split(world, segments, 1)
    assert segments.view == tuple(new)
    assert [(segment.base_offset, segment.suffix) for segment in new] == [(3, ""), (FAR + 3, "")]
    assert world.files() == expected | suffixed(old, ".deleted")
    for name in expected:
        assert world.fs.stat(world.path(name)).mtime_ms == 4_000
    assert [segment.max_timestamp_so_far.timestamp for segment in new] == [1000, 1000]


def test_a_batch_larger_than_a_piece_that_is_copied_at_once(world):
    sizes = (100, 3 * MIB, MIB // 2, MIB // 2, 10)
    offsets = (0, 1, FAR + 1, FAR + 2, FAR + 3)
    batches = [batch(o, value=bytes(size)) for o, size in zip(offsets, sizes, strict=True)]
    world.put(segment_files(0, *batches))
    new = split(world, opened(world, 0))
    assert [segment.size_bytes for segment in new] == [
        sum(map(len, batches[:2])),
        sum(map(len, batches[2:])),
    ]
    assert [segment.read_batch(at).data for segment in new for at in segment.batches()] == batches


def test_aborted_transactions_are_indexed_in_the_segment_of_their_marker(world):
    """A transaction below the first batch has neither data nor marker any more."""
    world.put(segment_files(0, batch(5), batch(6), batch(FAR + 9)))
    segments = opened(world, 0)
    txns = [AbortedTxn(1, 0, 3, 4), AbortedTxn(2, 4, 6, 7), AbortedTxn(3, 5, FAR + 9, FAR + 10)]
    for txn in txns:
        segments.first.txn_index.append(txn)
    new = split(world, segments)
    assert [segment.txn_index.entries() for segment in new] == [[txns[1]], [txns[2]]]


def test_a_log_of_other_segments_keeps_them(world):
    files = segment_files(0, batch(0)) | segment_files(7, batch(7), batch(FAR + 9))
    world.put(files | segment_files(FAR + 10, batch(FAR + 10)))
    segments = opened(world, 0, 7, FAR + 10)
    split(world, segments, 7)
    assert [segment.base_offset for segment in segments] == [0, 7, FAR + 9, FAR + 10]


def test_leftovers_of_an_earlier_attempt_are_not_part_of_the_new_segments(world):
    files = segment_files(0, batch(0), batch(FAR))
    stale = {file_name(0, kind): b"\x01" * 96 for kind in (".log", ".index", ".txnindex")}
    world.put(files | suffixed(stale, ".cleaned"))
    new = split(world, opened(world, 0))
    assert [segment.size_bytes for segment in new] == [len(batch(0)), len(batch(FAR))]
    assert (new[0].offset_index.entries, new[0].txn_index.is_empty) == (0, True)


@pytest.mark.parametrize(
    ("data", "error"),
    (
        (batch(0) + batch(FAR - 1), ValueError),
        (b"", ValueError),
        (batch(0) + batch(FAR) + batch(FAR + 1)[:-1], CorruptRecordError),
        (batch(0) + batch(FAR) + bytes(100), CorruptRecordError),
        (batch(0) + batch(2**40) + batch(1), CorruptRecordError),
        (batch(0) + batch(FAR) + batch(FAR), CorruptRecordError),
        (batch(0) + batch(FAR) + batch(5 * FAR), SegmentOverflowError),
    ),
    ids=("fits", "empty", "torn", "zeros", "falls", "twice", "into the next"),
)
def test_a_segment_that_cannot_be_split_is_left_unchanged(world, data, error):
    files = segment_files(0, data) | segment_files(5 * FAR, batch(5 * FAR))
    world.put(files)
    segments = opened(world, 0, 5 * FAR)
    with pytest.raises(error):
        split(world, segments)
    assert [segment.base_offset for segment in segments] == [0, 5 * FAR]
    assert world.files() == files


def test_an_old_format_behind_the_first_batch_is_refused(world):
    files = segment_files(0, batch(0), batch(FAR), old_message(1, FAR + 1))
    world.put(files)
    with pytest.raises(UnsupportedFormatError):
        split(world, opened(world, 0))
    assert world.files() == files


def test_the_first_failure_of_a_split_is_raised_if_its_cleanup_fails_too(world):
    """The cleanup fails with another error, which does not replace the first."""
    world.put(segment_files(0, batch(0), batch(1), batch(FAR), batch(FAR + 1)))
    removed = []

    class Refusing(FaultyFileSystem):
        def remove(self, path):
            removed.append(path)
            raise PermissionError(errno.EPERM, "not permitted", path)

    fs = Refusing(world.fs, lambda name, path: name == "set_mtime" and path.endswith(".cleaned"))
    runtime = Runtime(world.clock, fs, world.runtime.rng)
    segments = opened(world, 0, runtime=runtime)
    with pytest.raises(OSError) as caught:
        split(world, segments, runtime=runtime)
    assert (caught.value.errno, bool(removed)) == (errno.EIO, True)


@pytest.mark.parametrize("operation", ("open", "write", "truncate", "sync", "set_mtime"))
def test_a_split_that_fails_leaves_the_segment_and_nothing_else(world, operation):
    """For failures while the new files are written; the next load finishes or undoes a swap."""
    files = segment_files(0, batch(0), batch(1), batch(FAR), batch(FAR + 1))
    world.put(files)
    failed = []

    def rule(name, path):
        if name == operation and path.endswith(".cleaned") and f"{FAR:020d}" in path:
            failed.append(path)
        return bool(failed) and name != "remove"

    fs = FaultyFileSystem(world.fs, rule)
    runtime = Runtime(world.clock, fs, world.runtime.rng)
    segments = opened(world, 0, runtime=runtime)
    with pytest.raises(OSError) as caught:
        split(world, segments, runtime=runtime)
    assert caught.value.errno == errno.EIO
    assert [segment.base_offset for segment in segments] == [0]
    assert world.files() == files
