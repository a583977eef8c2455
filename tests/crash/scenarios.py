"""Scenarios that the harness crashes at every operation; each drives a session on an empty disk."""

from __future__ import annotations

from tests.crash.session import Session

KEYS = [b"a", b"b", b"c", b"d"]


def value(number: int) -> bytes:
    return b"v%d" % number


def create_topic(session: Session) -> None:
    """Three partitions on a disk on which not even the data directory exists."""
    session.create_topic("t", partitions=2, cleanup_policy="compact")
    session.append((b"k", b"v"))
    session.create_topic("u")
    session.append((b"k", b"v"), topic="u")
    session.flush("u")


def append_and_roll(session: Session) -> None:
    """Segments of 400 bytes: a roll by size every few batches."""
    session.create_topic("t")
    session.begin()
    for number in range(12):
        session.append(*[(KEYS[number % 4], value(n)) for n in range(number % 3 + 1)])


def flush(session: Session) -> None:
    """Flushes between appends, at a roll, and twice without anything new."""
    session.create_topic("t")
    session.append((b"a", b"1"))
    session.begin()
    session.flush()
    session.append((b"b", b"2"))
    session.append((b"c", b"3"))
    session.flush()
    session.roll()
    session.flush()
    session.append((b"d", b"4"))
    session.roll()
    session.append((b"e", b"5"))
    session.flush()
    session.append((b"f", b"6"))


def flush_every_message(session: Session) -> None:
    """`flush.messages` of 1: whatever is acknowledged is durable."""
    session.create_topic("t", flush_messages=1)
    session.begin()
    for number in range(8):
        session.append((KEYS[number % 4], value(number)), (b"x", b"y" * 30))
    session.roll()
    session.append((b"z", b"z"))


def close(session: Session) -> None:
    """A clean stop with data in several segments, and the next start."""
    session.create_topic("t")
    for number in range(6):
        session.append((KEYS[number % 4], value(number)))
    session.begin()
    session.append((b"a", b"last"))
    session.close()
    session.append((b"b", b"first after the start"))
    session.roll()
    session.append((b"c", b"second"))
    session.close()


def close_while_idle(session: Session) -> None:
    """Starts and stops with few or no operations in between."""
    session.create_topic("t")
    session.append((b"a", b"1"), (b"b", b"2"))
    session.close()
    session.begin()
    session.roll()
    session.close()
    session.append((b"a", b"3"))
    session.close()
    session.close()


def prepare_segments(session: Session, segments: int) -> None:
    """Write segments of four records in which each rewrites most of the one before."""
    for number in range(segments):
        session.append((KEYS[number % 4], value(number)), (b"k%d" % number, b"only once"))
        session.append((b"e", value(number)), (b"gone", None if number % 2 else b"there"))
        session.roll()
    session.append((b"active", b"segment"))


def clean_many_into_one(session: Session) -> None:
    """Three segments become one."""
    session.create_topic("t", cleanup_policy="compact", segment_bytes=4000)
    prepare_segments(session, 3)
    session.begin()
    session.clean()


def clean_each_single(session: Session) -> None:
    """Three segments too large to merge: a swap each."""
    session.create_topic("t", cleanup_policy="compact", segment_bytes=300)
    prepare_segments(session, 3)
    session.begin()
    session.clean()


def clean_to_nothing(session: Session) -> None:
    """Segments without surviving records, between others."""
    session.create_topic("t", cleanup_policy="compact", segment_bytes=4000)
    for number in range(3):
        session.append((b"a", value(number)))
        session.append((b"b", value(number)))
        session.roll()
    session.append((b"a", b"new"))
    session.begin()
    session.clean()


def clean_twice(session: Session) -> None:
    """A second pass over the result of the first and newer records; tombstones expire."""
    session.create_topic(
        "t", cleanup_policy="compact", segment_bytes=4000, delete_retention_ms=1000
    )
    prepare_segments(session, 2)
    session.clean()
    session.journal.clock.advance(seconds=10)
    session.append((b"a", b"again"))
    session.begin()
    session.roll()
    session.clean()
    session.journal.clock.advance(seconds=10)
    session.append((b"b", b"again"))
    session.roll()
    session.clean()
    session.journal.clock.advance(minutes=5)
    session.append((b"active", b"segment"))
    session.close()


def clean_in_groups(session: Session) -> None:
    """Groups of two segments, swapped one after the other, of which tombstones expire."""
    session.create_topic("t", cleanup_policy="compact", segment_bytes=600, delete_retention_ms=1000)
    prepare_segments(session, 4)
    session.clean()
    session.journal.clock.advance(seconds=10)
    session.append((b"a", b"again"), (b"b", b"again"))
    session.roll()
    session.append((b"c", None), (b"e", b"again"))
    session.roll()
    session.begin()
    session.clean()


def clean_and_close(session: Session) -> None:
    """A clean stop while `.deleted` files wait for their removal."""
    session.create_topic("t", cleanup_policy="compact", segment_bytes=4000)
    prepare_segments(session, 2)
    session.clean()
    session.begin()
    session.append((b"a", b"after"))
    session.close()


def write_checkpoints(session: Session) -> None:
    """Two stops in a row: checkpoints and the marker replace each other."""
    session.create_topic("t")
    session.create_topic("u")
    session.append((b"a", b"1"))
    session.append((b"a", b"1"), topic="u")
    session.close()
    session.append((b"a", b"2"))
    session.begin()
    session.close()
    session.append((b"b", b"2"), topic="u")
    session.close()


ALL = [
    create_topic,
    append_and_roll,
    flush,
    flush_every_message,
    close,
    close_while_idle,
    clean_many_into_one,
    clean_each_single,
    clean_to_nothing,
    clean_twice,
    clean_in_groups,
    clean_and_close,
    write_checkpoints,
]
