"""Small stories in which partitions change their data directory.

What the judge (`tests.crash.judge`) demands besides: a partition is in one directory, where the
last move that was acknowledged brought it, or on either side of one that was cut short; its cleaner
checkpoint and its log start are those it had; and a start leaves nothing half moved.
"""

from __future__ import annotations

from logstore.runtime import make_dirs_durably
from tests.crash.journal import DATA_DIR, OTHER_DIR
from tests.crash.session import Session


def two_directories(session: Session, **configs: object) -> None:
    """Make the second directory and a topic in the first one."""
    make_dirs_durably(session.fs, OTHER_DIR)
    session.create_topic("t", **configs)


def move_once(session: Session) -> None:
    """What was not flushed is, by the move; the next records are written in the new place."""
    two_directories(session)
    session.append((b"a", b"1"), (b"b", b"1"))
    session.begin()
    session.append((b"a", b"not flushed"))
    session.move(OTHER_DIR)
    session.append((b"a", b"3"))
    session.flush()
    session.append((b"a", b"lost, perhaps"))


def move_there_and_back(session: Session) -> None:
    """A cleaned log with a dirty end, moved twice while another topic stays where it is."""
    two_directories(session, cleanup_policy="compact", segment_bytes=4000)
    session.create_topic("u")
    session.append((b"k", b"v"), topic="u")
    session.append((b"a", b"1"), (b"b", b"1"))
    session.roll()
    session.append((b"a", b"2"), (b"c", b"2"))
    session.roll()
    session.clean()
    session.append((b"a", b"dirty"))
    session.begin()
    session.move(OTHER_DIR)
    session.append((b"b", b"there"))
    session.move(DATA_DIR)
    session.append((b"b", b"back"))
    session.close()


def move_between_stops(session: Session) -> None:
    """A clean stop behind the move, and one more; the log start goes along."""
    two_directories(session)
    session.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    session.append((b"d", b"1"))
    session.delete_records(2)
    session.close()
    session.append((b"e", b"1"))
    session.begin()
    session.move(OTHER_DIR)
    session.delete_records(3)
    session.close()
    session.append((b"f", b"1"))
    session.move(DATA_DIR)
    session.close()


def move_and_delete(session: Session) -> None:
    """A topic that was moved goes, and another one of its name comes."""
    two_directories(session)
    session.append((b"a", b"1"))
    session.roll()
    session.append((b"a", b"2"))
    session.begin()
    session.move(OTHER_DIR)
    session.delete_topic("t")
    session.create_topic("t")
    session.append((b"a", b"of another topic"))
    session.flush()
    session.delete_expired_files()


ALL = [move_once, move_there_and_back, move_between_stops, move_and_delete]
