"""The stories of `deletions` without a crash, and on disks that lie: the judge must find out."""

import pytest

from logstore.errors import KafkaStorageError
from logstore.storage.log import NewRecord
from logstore.testing import FaultyFileSystem
from tests.crash import deletions
from tests.crash.harness import DROPPED, KEPT, enumerate_crashes, files, run
from tests.crash.journal import DATA_DIR, Journal, open_broker
from tests.crash.judge import check_broker
from tests.crash.session import Session
from tests.support.world.crashes import Profile

every_story = pytest.mark.parametrize(
    "story", deletions.ALL, ids=[story.__name__ for story in deletions.ALL]
)


def left_over(fs):
    return [path for path in files(fs.crash(KEPT)) if path.endswith((".deleted", "-delete"))]


@every_story
def test_nothing_that_was_deleted_outlives_its_delay(story):
    journal = Journal()
    fs = FaultyFileSystem(journal.clock)
    session = Session(fs, journal)
    story(session)
    session.delete_expired_files()
    assert left_over(fs) == []
    check_broker(session.broker, journal, journal)


@every_story
def test_a_clean_stop_leaves_nothing_to_delete_and_a_start_nothing_to_mend(story):
    fs, journal = run(story)
    disk = FaultyFileSystem(journal.clock, fs.crash(KEPT))
    open_broker(disk, journal.clock).close()
    again = FaultyFileSystem(journal.clock, disk.crash(KEPT))
    assert left_over(again) == []
    broker = open_broker(again, journal.clock)
    check_broker(broker, journal, journal)
    assert all(not broker.manager.log(tp).findings for tp in broker.partitions())


def test_a_log_start_that_a_start_found_lasts_beyond_the_next_crash():
    """Of the two checkpoints one was written; the records below are nowhere but in memory."""
    journal = Journal()
    fs = FaultyFileSystem(journal.clock)
    broker = open_broker(fs, journal.clock)
    broker.create_topic("t")
    log = broker.log("t")
    log.writer.append_records([NewRecord(b"k", b"v")] * 3)
    fs.fail("truncate", error="ENOSPC", nth=1, suffix="recovery-point-offset-checkpoint.tmp")
    with pytest.raises(KafkaStorageError):
        broker.manager.delete_records(log.topic_partition, 3)
    broker.close()
    log = open_broker(fs, journal.clock).log("t")
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    for mode in (DROPPED, KEPT):
        log = open_broker(FaultyFileSystem(journal.clock, fs.crash(mode)), journal.clock).log("t")
        assert (log.log_start_offset, log.log_end_offset) == (3, 3), mode


@pytest.mark.parametrize(
    ("story", "ignored", "told"),
    (
        (deletions.retain_by_time, "/t-0", "the log starts at"),
        (deletions.truncate_across_segments, "/t-0", "was not written there"),
        (deletions.truncate_inside_a_batch, f"/t-0/{3:020}.log", "was not written there"),
        (deletions.truncate_below_the_log_start, "", "checkpoint_beyond_end"),
        (deletions.delete_records, "", "the log starts at"),
        (deletions.delete_topics, "", "is another one"),
    ),
)
def test_a_sync_that_does_nothing_is_found_out(story, ignored, told, monkeypatch):
    """From where the story begins, the disk forgets what is synced of one directory or file."""
    sync_dir, sync_file = FaultyFileSystem.sync_dir, FaultyFileSystem.sync_file
    begin, lazy = Session.begin, set()

    def lazy_sync_dir(fs, path):
        if fs not in lazy or path != DATA_DIR + ignored:
            sync_dir(fs, path)

    def lazy_sync_file(fs, node, base):
        if fs not in lazy or node.path != DATA_DIR + ignored:
            sync_file(fs, node, base)

    def begin_to_lie(session):
        lazy.add(session.fs)
        begin(session)

    monkeypatch.setattr(FaultyFileSystem, "sync_dir", lazy_sync_dir)
    monkeypatch.setattr(FaultyFileSystem, "sync_file", lazy_sync_file)
    monkeypatch.setattr(Session, "begin", begin_to_lie)
    with pytest.raises(AssertionError, match=f"crash at .*{told}"):
        enumerate_crashes(story, Profile(stride=2, cuts=1))
