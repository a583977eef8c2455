"""Logs with holes: each shape matches its name, in memory, on disk, and after other shapes."""

from pathlib import Path

import pytest

from logstore import Broker, ShiftedClock, VirtualClock
from logstore.record.codecs import Codec
from logstore.testing import holes
from tests.support.world.messages import exactly


def headers(broker, partition=0):
    log = broker.log("holes", partition)
    return [batch.header for segment in log.segments for batch in batches(segment)]


def batches(segment):
    return [segment.read_batch(at) for at in segment.batches()]


def has_shape(shape, broker, found):
    """Return whether a log that was filled with one shape has it."""
    log = broker.log("holes")
    all_headers = headers(broker)
    if shape == "trailing_hole":
        return max(found.offsets) < found.log_end_offset - 1
    if shape == "last_offset_gone":
        return all_headers[0].last_offset not in found.offsets
    if shape == "empty_batch":
        (empty,) = (h for h in all_headers if h.record_count == 0)
        return empty.producer_id >= 0
    if shape == "segment_gap":
        first, second = log.segments.view[:2]
        end, start = batches(first)[-1].header, batches(second)[0].header
        return end.last_offset < second.base_offset - 1 and start.base_offset > second.base_offset
    if shape == "control_batches":
        return all(header.is_control for header in all_headers) and len(all_headers) > 1
    if shape == "delete_horizon":
        (horizon,) = (h for h in all_headers if h.delete_horizon_ms is not None)
        return 0 < horizon.record_count <= horizon.last_offset - horizon.base_offset
    if shape == "compressed":
        holey = [
            batch.codec
            for segment in log.segments
            for batch in batches(segment)
            if batch.header.record_count <= batch.header.last_offset - batch.header.base_offset
        ]
        return holey == [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
    if shape == "start_in_hole":
        start = found.log_start_offset
        return start not in found.offsets and all_headers[0].base_offset < start
    if shape == "aborted_end":
        return max(found.offsets) > max(found.committed_offsets)
    if shape == "bare_end":
        return all_headers[-1].last_offset < found.log_end_offset - 1
    assert shape == "nothing_left"
    return found.offsets == () and found.log_end_offset > 0


@pytest.mark.parametrize("shape", holes.SHAPES)
def test_shape_matches_its_definition(shape, tmp_path):
    with Broker(clock=VirtualClock(), seed=0) as broker:
        found = holes.fill(broker, shape)
        assert has_shape(shape, broker, found), headers(broker)
        assert found == holes.read_offsets(broker)
    made = holes.make(shape, tmp_path / "made")
    assert made == found
    with Broker(tmp_path / "made", clock=VirtualClock()) as again:
        assert has_shape(shape, again, made)
        assert holes.read_offsets(again) == made


def test_one_shape_after_another_in_one_topic():
    """Earlier ones keep their holes, and a topic's segment.bytes is as it was."""
    with Broker(clock=VirtualClock(), seed=0) as broker:
        configs = {**holes.CONFIGS, "segment.bytes": "100000"}
        broker.create_topic("holes", partitions=2, configs=configs)
        for shape in holes.SHAPES:
            found = holes.fill(broker, shape, partition=1)
        assert dict(broker.topic("holes").configs) == configs
        assert broker.log("holes").log_end_offset == 0
        assert len(found.offsets) < found.log_end_offset - found.log_start_offset
        kept = [header for header in headers(broker, 1) if not header.record_count]
        assert kept, "the empty batch of the first"


def test_a_clock_for_clients_of_their_own_time_will_do():
    with Broker(clock=ShiftedClock(), seed=0) as broker:
        assert has_shape("trailing_hole", broker, holes.fill(broker, "trailing_hole"))


def test_same_seed_same_files(tmp_path):
    for name in ("one", "two"):
        holes.make("control_batches", tmp_path / name, seed=4)
    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in files(tmp_path / name)}
        for name in ("one", "two")
    )
    assert one == two


def files(path: Path):
    return [each for each in path.rglob("*") if each.is_file()]


def test_a_shape_that_there_is_not():
    with Broker(clock=VirtualClock()) as broker:
        with pytest.raises(
            ValueError,
            match=exactly(
                "unknown shape 'trailing' of a log with holes: trailing_hole, "
                "last_offset_gone, empty_batch, segment_gap, control_batches, "
                "delete_horizon, compressed, start_in_hole, aborted_end, bare_end, "
                "nothing_left"
            ),
        ):
            holes.fill(broker, "trailing")
        assert broker.topics() == []
