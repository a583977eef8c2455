"""Curves: bounded, and a stretch of the same takes two points."""

from logstore import Broker, VirtualClock
from logstore.ui import history as history_module
from logstore.ui.history import POINTS_MAX, Curve, History


def test_a_stretch_of_the_same_has_two_ends():
    curve = Curve()
    for at_ms, value in ((0, 5), (10, 5), (20, 5), (30, 7), (40, 7)):
        curve.note(at_ms, value)
    assert curve.points() == [(0, 5), (20, 5), (30, 7), (40, 7)]


def test_a_time_has_one_value_and_a_clock_may_be_put_back():
    curve = Curve()
    for at_ms, value in ((0, 5), (10, 6), (10, 7), (20, 8), (5, 9)):
        curve.note(at_ms, value)
    assert curve.points() == [(0, 5), (5, 9)]


def test_a_curve_is_bounded_and_reaches_back_to_its_beginning():
    curve = Curve()
    for at_ms in range(5 * POINTS_MAX):
        curve.note(at_ms, at_ms % 2)
        assert len(curve.points()) <= POINTS_MAX
    assert curve.points()[0][0] == 0
    assert curve.points()[-1][0] == 5 * POINTS_MAX - 1


def test_partition_curves_start_on_request_and_are_bounded(monkeypatch):
    assert history_module.PARTITIONS_MAX == 256
    monkeypatch.setattr(history_module, "PARTITIONS_MAX", 3)
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("users", 4, {"cleanup.policy": "compact"})
        history = History(broker)
        partitions = broker.partitions("users")
        history.curves_of(partitions[0])
        broker.append("users", key=b"a", value=b"b", partition=0)
        broker.clock.advance(seconds=5)
        history.sample()
        size = history.curves_of(partitions[0])["size"]
        assert size["unit"] == "bytes"
        assert [value for _, value in size["points"]] == [0, 70]
        for tp in partitions[1:]:
            history.curves_of(tp)
        assert len(history.curves_of(partitions[0])["size"]["points"]) == 1  # restarted


def test_every_requested_partition_is_sampled_and_the_least_recent_is_evicted(monkeypatch):
    monkeypatch.setattr(history_module, "PARTITIONS_MAX", 2)
    with Broker(clock=VirtualClock(0)) as broker:
        configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1h"}
        broker.create_topic("users", 3, configs)
        history = History(broker)
        first, second, third = broker.partitions("users")

        def sizes(tp):
            return history.curves_of(tp)["size"]["points"]

        assert sizes(first) == sizes(second) == [(0, 0)]
        for hour in (1, 2):
            for tp in (first, second):
                broker.append("users", key=b"a", value=b"b", partition=tp.partition)
            broker.clock.advance(hours=1)
            history.sample()
            assert broker.clock.now_ms() == hour * 3_600_000
        both = [(0, 0), (3_600_000, 70), (7_200_000, 140)]
        assert sizes(second) == sizes(first) == both
        assert sizes(third) == [(7_200_000, 0)]  # evicts the second
        assert sizes(first) == both
        broker.delete_topic("users")
        broker.clock.advance(hours=1)
        history.sample()
        assert sizes(first) == both


def test_the_curve_of_bytes_read_includes_the_map_and_its_seed(broker):
    """A pass reads the dirty section for its map; under a version strategy the clean one too."""
    history = History(broker)
    broker.alter_configs("users", {"compaction.strategy": "timestamp"})
    passes = broker.clean("users", force=True, roll=True).cleaned
    older_ms = broker.clock.now_ms() - 1000  # so that a record in the clean section may survive
    broker.append("users", key=b"k1", value=b"later", timestamp=older_ms)
    passes += broker.clean("users", force=True, roll=True).cleaned
    for stats in passes:
        history.note_pass(stats, broker.clock.now_ms())
    parts = [
        sum(getattr(stats, name) for stats in passes)
        for name in ("bytes_read", "map_bytes_read", "seed_bytes_read")
    ]
    assert all(parts)
    curves = history.curves()
    assert curves["cleaner-bytes-read"]["points"][-1][1] == sum(parts)
    written = sum(stats.bytes_written for stats in passes)
    assert curves["cleaner-bytes-written"]["points"][-1][1] == written
