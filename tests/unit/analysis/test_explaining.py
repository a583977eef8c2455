"""Explanations: damage closes the gate of a cleaning pass only if the cleaning pass reads it."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock


@pytest.mark.parametrize(("is_closed", "binding"), ((True, "uncleanable"), (False, None)))
def test_damage_stops_the_cleaning_that_reads_it(is_closed: bool, binding: str | None) -> None:
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        for value in (b"1", b"2"):
            broker.append("t", key=b"a", value=value)
            broker.append("t", key=b"a", value=value)
            broker.roll("t")
        broker.append("t", key=b"a", value=b"3")
        log = broker.log("t")
        segment = log.segments.first if is_closed else log.active_segment
        broker.runtime.fs.open(segment.log_path, create=True).write_at([b"\xff"], 66)
        [found] = broker.explain("t").partitions
        assert (found.binding, found.will_clean) == (binding, not is_closed)
        assert len(found.damages) == 1
        assert found.tombstones is None
        assert (found.first_pass is None) is is_closed
        [quick] = broker.explain("t", quick=True).partitions
        assert (quick.binding, quick.damages, quick.first_pass) == (None, (), None)
        assert quick.assumed[-1] == "every batch is assumed to be valid: --quick reads no records"
