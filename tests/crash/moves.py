"""Scenarios in which partitions move to another data directory.

The judge (`tests.crash.judge`) also requires: a partition is in one directory, the target of the
last acknowledged move or either side of an interrupted one; its cleaner checkpoint and log start
are unchanged; and a start leaves no partial move.
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
    """Move unflushed data, which the move flushes; append to the new location."""
    two_directories(session)
    session.append((b"a", b"1"), (b"b", b"1"))
    session.begin()
    session.append((b"a", b"not flushed"))
    session.move(OTHER_DIR)
    session.append((b"a", b"3"))
    session.flush()
    session.append((b"a", b"lost, perhaps"))


def move_there_and_back(session: Session) -> None:
    """Move a cleaned log with a dirty end twice, while another topic stays."""
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
    """Stop cleanly after the move, and once more; the log start moves along."""
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
    """Delete a moved topic and create another of its name."""
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
