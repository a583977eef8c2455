"""Scenarios that delete records and topics; the harness crashes them at every operation.

The judge (`tests.crash.judge`) demands of each: flushed records that were not deleted are in the
log; records below an acknowledged log start or truncated ones never reappear; an interrupted step
is done in part and nothing else has changed; a second start changes nothing; no `.deleted` file or
directory outlives its delay.
"""

from __future__ import annotations

from tests.crash.session import Session


def value(number: int) -> bytes:
    return b"v%d" % number


def fill(session: Session, segments: int, *, seconds: int = 0, topic: str = "t") -> None:
    """Write closed segments of three records in two batches; time passes after each."""
    for number in range(segments):
        session.append((b"a", value(number)), (b"b", value(number)), topic=topic)
        session.append((b"c", value(number)), topic=topic)
        session.roll(topic)
        session.journal.clock.advance(seconds=seconds)


def retain_by_time(session: Session) -> None:
    """Two segments of four are old enough; later the next one is, and the files go."""
    session.create_topic("t", retention_ms=25_000)
    fill(session, 3, seconds=10)
    session.append((b"a", b"young"))
    session.begin()
    session.retain(removes=1)
    session.append((b"b", b"younger"))
    session.journal.clock.advance(seconds=10)
    session.retain(removes=1)
    session.delete_expired_files()
    session.flush()
    session.close()


def retain_everything(session: Session) -> None:
    """Delete all segments, including the active one: the log rolls and continues at its end."""
    session.create_topic("t", retention_ms=1000)
    fill(session, 1)
    session.append((b"a", b"not flushed"))
    session.begin()
    session.journal.clock.advance(seconds=5)
    session.retain(removes=2)
    session.append((b"a", b"after"))
    session.flush()
    session.journal.clock.advance(seconds=5)
    session.retain(removes=1)
    session.close()
    session.append((b"a", b"after the start"))


def retain_without_epochs(session: Session) -> None:
    """Delete all of a copied log without a leader epoch file; a start rebuilds the file."""
    session.create_topic("t", retention_ms=1000)
    fill(session, 1)
    session.append((b"a", b"active"))
    session.close()
    session.fs.remove("/disk/data/t-0/leader-epoch-checkpoint")
    session.fs.sync_dir("/disk/data/t-0")
    session.journal.clock.advance(seconds=5)
    session.begin()
    session.retain(removes=2)
    session.append((b"a", b"after"))
    session.flush()
    session.roll()
    session.append((b"b", b"after"))


def roll_while_empty(session: Session) -> None:
    """An active segment without a record is replaced: the offsets before it are not given again."""
    session.create_topic("t", retention_ms=1000)
    fill(session, 1)
    session.journal.clock.advance(seconds=5)
    session.roll()
    session.retain(removes=1)
    session.begin()
    session.roll()
    session.roll()
    session.append((b"a", b"after"))
    session.truncate_fully(8)
    session.roll()


def retain_by_size(session: Session) -> None:
    """Delete two segments by size; then append until the next one is deleted."""
    session.create_topic("t", retention_bytes=200)
    fill(session, 3)
    session.append((b"a", b"active"))
    session.begin()
    session.retain(removes=2)
    session.append((b"b", b"active"))
    session.retain(removes=0)
    session.checkpoint()
    session.roll()
    session.append((b"a", b"x" * 100), (b"b", b"b"))
    session.retain(removes=1)
    session.flush()


def delete_records(session: Session) -> None:
    """Delete below an offset in a batch, then below a later one; retention deletes the rest."""
    session.create_topic("t", retention_ms=20_000)
    fill(session, 3, seconds=1)
    session.append((b"a", b"active"), (b"b", b"active"))
    session.begin()
    session.delete_records(1)
    session.append((b"c", b"active"))
    session.delete_records(7)
    session.journal.clock.advance(seconds=30)
    session.retain(removes=2)
    session.append((b"d", b"active"))
    session.flush()
    session.close()


def delete_all_records(session: Session) -> None:
    """Delete up to the high watermark with nothing flushed; offsets continue from there."""
    session.create_topic("t")
    session.append((b"a", b"1"), (b"b", b"1"))
    session.begin()
    session.append((b"a", b"2"))
    session.delete_records(-1)
    session.append((b"b", b"2"), (b"c", b"2"))
    session.append((b"d", b"2"))
    session.flush()
    session.delete_records(4)
    session.close()
    session.append((b"e", b"3"))


def truncate_inside_a_batch(session: Session) -> None:
    """Truncate a batch, which is removed whole; append and flush others from that offset on."""
    session.create_topic("t")
    fill(session, 1)
    session.append((b"a", b"old"), (b"b", b"old"), (b"c", b"old"))
    session.append((b"d", b"old"))
    session.flush()
    session.checkpoint()
    session.begin()
    session.truncate(5)
    session.append((b"a", b"new"), (b"b", b"new"))
    session.append((b"c", b"new"))
    session.flush()
    session.truncate(6)
    session.close()
    session.append((b"d", b"new"))


def truncate_across_segments(session: Session) -> None:
    """Truncate to the base of a segment, then below another; append longer and shorter data."""
    session.create_topic("t")
    fill(session, 4)
    session.append((b"a", b"old, active"))
    session.begin()
    session.truncate(6)
    session.append((b"x", b"in the place of a, b, c"))
    session.append((b"y", b"y"))
    session.flush()
    session.roll()
    session.append((b"z", b"z"))
    session.truncate(2)
    session.append((b"new", b"from 2 on"), (b"new too", b"3"))
    session.roll()
    session.delete_expired_files()


def truncate_below_the_log_start(session: Session) -> None:
    """Records appended between the new end and the old log start must be visible."""
    session.create_topic("t")
    fill(session, 2)
    session.append((b"a", b"active"))
    session.delete_records(5)
    session.begin()
    session.truncate(4)
    session.append((b"b", b"new"))
    session.flush()
    session.truncate(1)
    session.append((b"c", b"newer"))
    session.append((b"d", b"newer"))
    session.flush()


def truncate_fully(session: Session) -> None:
    """Truncate fully to a later offset, then an earlier one, as a lagging or diverged replica."""
    session.create_topic("t")
    fill(session, 2)
    session.append((b"a", b"active"))
    session.begin()
    session.truncate_fully(20)
    session.append((b"b", b"new"), (b"c", b"new"))
    session.flush()
    session.truncate_fully(3)
    session.append((b"d", b"newer"))
    session.flush()
    session.close()


def restart_after_truncation(session: Session) -> None:
    """Stop cleanly and start between a truncation and the next append."""
    session.create_topic("t")
    fill(session, 2)
    session.append((b"a", b"old"), (b"b", b"old"))
    session.begin()
    session.truncate(4)
    session.close()
    session.append((b"a", b"new"))
    session.close()
    session.append((b"b", b"new"))
    session.flush()


def clean_and_delete(session: Session) -> None:
    """Policy compact,delete: a cleaned log loses its start, by request and by age."""
    session.create_topic(
        "t", cleanup_policy="compact,delete", segment_bytes=4000, retention_ms=20_000
    )
    fill(session, 3)
    session.clean()
    session.append((b"a", b"after"))
    session.begin()
    session.delete_records(7)
    session.journal.clock.advance(seconds=30)
    session.append((b"b", b"young"))
    session.retain(removes=1)
    session.roll()
    session.append((b"c", b"young"))
    session.delete_records(10)
    session.flush()


def delete_topics(session: Session) -> None:
    """Delete a topic of two partitions, create another of its name, remove the old files."""
    session.create_topic("t", partitions=2)
    session.create_topic("u")
    fill(session, 1)
    session.append((b"k", b"v"), topic="u")
    session.delete_records(2)
    session.flush("u")
    session.close()
    session.begin()
    session.delete_topic("t")
    session.create_topic("t", retention_ms=5)
    session.append((b"a", b"of another topic"))
    session.flush()
    session.delete_expired_files()
    session.close()


def delete_a_topic_before_the_stop(session: Session) -> None:
    """A clean stop removes the directories at once; after an unclean one the start does."""
    session.create_topic("t")
    session.create_topic("u")
    session.append((b"k", b"v"), topic="u")
    fill(session, 1)
    session.begin()
    session.delete_topic("t")
    session.append((b"k", b"w"), topic="u")
    session.close()
    session.append((b"k", b"x"), topic="u")
    session.delete_topic("u")


ALL = [
    retain_by_time,
    retain_everything,
    retain_without_epochs,
    roll_while_empty,
    retain_by_size,
    delete_records,
    delete_all_records,
    truncate_inside_a_batch,
    truncate_across_segments,
    truncate_below_the_log_start,
    truncate_fully,
    restart_after_truncation,
    clean_and_delete,
    delete_topics,
    delete_a_topic_before_the_stop,
]
