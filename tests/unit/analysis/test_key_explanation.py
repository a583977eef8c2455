"""Explanations of keys: the records in the log and the steps until they are removed."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock

T = 1_700_000_000_000
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "5000"}


def explained(configs: dict[str, str], fill, key: bytes = b"a") -> tuple[list, list]:
    """Return the records and the steps of a key; times are from now."""
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", configs=configs)
        fill(broker)
        [item] = broker.explain("t", key=key).partitions
        now_ms = broker.clock.now_ms()
        assert item.key.key == key
        assert item.key.now_ms == now_ms
        steps = [(step.code, dict(step.values)) for step in item.key.steps]
        assert item.key.to_json()["steps"] == [step.text for step in item.key.steps]
        return [tuple(record)[:-1] for record in item.key.records], steps


def put(*values: bytes | None, roll: bool = False, clean: bool = False):
    def fill(broker) -> None:
        for value in values:
            broker.append("t", key=b"a", value=value)
            broker.clock.advance(ms=10)
        if roll:
            broker.roll("t")
        if clean:
            broker.clean("t", force=True)
            broker.clock.advance(ms=100)

    return fill


STAMPED_LATER = ("key.stamped_later", {"offset": 1, "delete_retention_ms": 5000})
REMOVED_LATER = ("key.removed_later", {})
NO_PASS = ("key.no_pass", {})


def active(base_offset: int, size_bytes: int) -> tuple:
    values = {"base_offset": base_offset, "dirty_offset": base_offset, "size_bytes": size_bytes}
    return ("cause.in_active_segment", values)


CASES = {
    "none": (COMPACT, put(), [], [("key.no_record", {})]),
    "live": (
        COMPACT,
        put(b"1", b"2"),
        [
            (0, T, "superseded", 0, "active", None, T + 20, None),
            (1, T + 10, "live", 0, "active", None, None, None),
        ],
        [("key.live", {"offset": 1}), NO_PASS, active(0, 140)],
    ),
    "tombstone": (
        COMPACT,
        put(b"1", None),
        [
            (0, T, "superseded", 0, "active", None, T + 20, None),
            (1, T + 10, "tombstone", 0, "active", None, T + 5020, None),
        ],
        [NO_PASS, active(0, 139), STAMPED_LATER, REMOVED_LATER],
    ),
    "closed": (
        COMPACT,
        put(b"1", None, roll=True),
        [
            (0, T, "superseded", 0, "dirty", None, T + 20, T + 75_020),
            (1, T + 10, "tombstone", 0, "dirty", None, T + 5020, None),
        ],
        [("pass.due", {}), STAMPED_LATER, REMOVED_LATER],
    ),
    "cleaned": (
        COMPACT,
        put(b"1", None, roll=True, clean=True),
        [(1, T + 10, "tombstone", 0, "clean", T + 5020, T + 5020, None)],
        [
            NO_PASS,
            ("cause.all_clean", {}),
            ("key.horizon", {"offset": 1, "at_ms": T + 5020}),
        ],
    ),
    "lag": (
        COMPACT | {"min.compaction.lag.ms": "7000"},
        put(b"1", None, roll=True),
        [
            (0, T, "superseded", 0, "uncleanable", None, T + 7010, T + 82_010),
            (1, T + 10, "tombstone", 0, "uncleanable", None, T + 12_010, None),
        ],
        [("pass.due_later", {"at_ms": T + 7010}), STAMPED_LATER, REMOVED_LATER],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_records_and_the_steps(name: str) -> None:
    """Also while files of the last cleaning pass, with the same records, await their removal."""
    configs, fill, records, steps = CASES[name]
    assert explained(configs, fill) == (records, steps)
