"""Orders of the list of partitions, ties included."""

from dataclasses import replace

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.verdict import Verdict
from logstore.reasons import Reason
from logstore.ui.partitions import SORTS, Row
from tests.support.world.page import Asked

COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def page():
    clock = VirtualClock()
    with Broker(clock=clock, seed=1) as broker:
        broker.create_topic("alone", 1)
        broker.create_topic("due", 2, COMPACT)
        broker.create_topic("late", 1, {**COMPACT, "max.compaction.lag.ms": "1h"})
        broker.create_topic("young", 1, {**COMPACT, "min.compaction.lag.ms": "9d"})
        for number in range(6):
            broker.append("due", key=b"k%d" % (number % 2), value=b"v" * number, partition=1)
            broker.append("late", key=b"k", value=b"v")
        broker.roll("due", 1)
        broker.roll("late")
        clock.advance(hours=3)
        for topic in ("due", "late", "young"):
            for number in range(2):
                broker.append(topic, key=b"k%d" % number, value=b"v" * 90, partition=0)
        broker.roll("young")
        broker.append("alone", value=b"v" * 1000)
        with Asked(broker) as page:
            page.get("/api/partitions")
            yield page


ORDERS = {
    "bytes": ("due-0 young-0 due-1 late-0 alone-0", "alone-0 late-0 due-1 due-0 young-0"),
    "ratio": ("alone-0 due-0 young-0 due-1 late-0", "due-1 late-0 due-0 young-0 alone-0"),
    "dirty": ("alone-0 due-0 young-0 late-0 due-1", "due-1 late-0 due-0 young-0 alone-0"),
    "delay": ("alone-0 due-0 due-1 young-0 late-0", "late-0 due-0 due-1 young-0 alone-0"),
    "uncleanable": ("alone-0 due-0 due-1 late-0 young-0", "alone-0 due-0 due-1 late-0 young-0"),
    "segments": ("alone-0 due-0 due-1 late-0 young-0", "due-1 late-0 young-0 alone-0 due-0"),
    "urgency": ("alone-0 due-0 young-0 late-0 due-1", "due-1 late-0 young-0 due-0 alone-0"),
    "frees": ("alone-0 due-0 young-0 late-0 due-1", "due-1 late-0 young-0 due-0 alone-0"),
    "rolled": ("alone-0 due-0 young-0 due-1 late-0", "late-0 due-1 due-0 young-0 alone-0"),
    "damage": ("alone-0 due-0 young-0 late-0 due-1", "due-1 late-0 young-0 due-0 alone-0"),
    "name": ("alone-0 due-0 due-1 late-0 young-0", "young-0 late-0 due-1 due-0 alone-0"),
}
"""Ascending and descending; equal ones are in the order of their names."""


@pytest.mark.parametrize("descending", (0, 1))
@pytest.mark.parametrize("sort", SORTS)
def test_partitions_are_sorted_by(page, sort, descending):
    target = f"/api/partitions?sort={sort}&descending={descending}"
    rows = page.get(target)["partitions"]
    names = " ".join(f"{row['topic']}-{row['partition']}" for row in rows)
    assert names == ORDERS[sort][descending]
    assert page.get(f"{target}&first=1&count=2")["partitions"] == rows[1:3]


def test_damage_and_possible_losses_are_the_most_urgent():
    def row(partition, verdict):
        return Row(TopicPartition("t", partition), None, 9, 1, "compact", 0, 0.5, verdict=verdict)

    large = replace(Verdict.unmeasured(9), state="due", frees_bytes_at_most=9)
    small = replace(large, frees_bytes_at_most=1)
    lossy = replace(small, notes=(Reason.of("note.missing_offsets"),))
    failed = replace(small, state="uncleanable")
    damaged = replace(small, state="damaged")
    rows = [row(n, each) for n, each in enumerate((damaged, failed, lossy, large, small, None))]
    mixed = [rows[at] for at in (4, 0, 5, 2, 3, 1)]
    assert sorted(mixed, key=SORTS["urgency"], reverse=True) == rows
