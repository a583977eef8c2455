"""Previews predict the effect of settings that are applied later."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import Broker, TopicPartition, VirtualClock

MINUTE_MS = 60_000

configs = st.fixed_dictionaries(
    {},
    optional={
        "cleanup.policy": st.sampled_from(("compact", "delete", "compact,delete")),
        "min.cleanable.dirty.ratio": st.sampled_from(("0", "0.3", "0.9")),
        "min.compaction.lag.ms": st.sampled_from(("0", "120000", "600000")),
        "max.compaction.lag.ms": st.sampled_from(("600000", "1200000")),
        "delete.retention.ms": st.sampled_from(("0", "300000", "86400000")),
        "retention.ms": st.sampled_from(("-1", "300000", "1200000")),
        "retention.bytes": st.sampled_from(("-1", "0", "900")),
        "segment.bytes": st.sampled_from(("300", "5000")),
        "compaction.strategy": st.sampled_from(("offset", "timestamp")),
    },
)
steps = st.lists(
    st.tuples(
        st.integers(0, 3),  # the key, 3 for none
        st.booleans(),  # whether it has a value
        st.integers(0, 4),  # minutes before it
        st.sampled_from(("append", "append", "append", "zipped", "roll", "clean")),
    ),
    min_size=1,
    max_size=40,
)


def history(taken) -> Broker[VirtualClock]:
    broker = Broker(clock=VirtualClock(), seed=1)
    broker.create_topic("t", configs={"cleanup.policy": "compact,delete", "segment.bytes": "400"})
    for key, has_value, minutes, what in taken:
        broker.clock.advance(minutes=minutes)
        if what == "roll":
            broker.roll("t")
        elif what == "clean":
            broker.clean("t", force=True)
        else:
            value = b"v" * 40 if has_value or key == 3 else None
            broker.append(
                "t",
                value=value,
                key=b"k%d" % key,
                timestamp=broker.clock.now_ms() - key * MINUTE_MS,
                compression="gzip" if what == "zipped" else "none",
            )
    return broker


def timeless(stats):
    """Return the numbers of a pass except the map's, which has a clock of its own."""
    return None if stats is None else replace(stats, index_ms=0, clean_ms=0)


def files(broker):
    return [
        (each.base_offset, each.size_bytes, each.file.read(0, each.size_bytes))
        for each in broker.log("t").segments
    ]


def altered(broker, given, unset):
    then = broker.fork()
    then.alter_configs("t", given, unset=unset)
    return then


@settings(max_examples=20)
@example([(0, True, 0, "roll")], {}, set())  # nothing there, so nothing keeps a tombstone
@given(steps, configs, st.sets(st.sampled_from(("cleanup.policy", "segment.bytes"))))
def test_a_preview_equals_the_result(taken, given_configs, unset):
    unset = sorted(unset - given_configs.keys())
    with history(taken) as broker:
        before, stored = files(broker), broker.topic("t")
        reported = broker.preview("t", set=given_configs, unset=unset)
        assert (files(broker), broker.topic("t")) == (before, stored)
        (partition,) = reported.partitions
        assert partition.unread is None
        after = partition.after.explanation
        quick = broker.preview("t", set=given_configs, unset=unset, quick=True).partitions[0]

        with altered(broker, given_configs, unset) as then:
            assert {each.key for each in reported.changed} == {
                key
                for key, value in then.describe_configs("t").items()
                if value[:2] != broker.describe_configs("t")[key][:2]
            }
            (explained,) = then.explain("t").partitions
            assert replace(explained, verdict=None) == after
            (explained,) = then.explain("t", quick=True).partitions
            assert quick.after.explanation.gates == explained.gates
            assert then.retain("t", dry_run=True).decisions[0].removed == (
                partition.after.retention.removed
            )
            report = then.clean("t")
            first = report.cleaned[0] if report.cleaned else None
            assert timeless(first) == timeless(after.first_pass)
            if first is not None:
                assert report.passes_needed[TopicPartition("t", 0)] >= after.passes_needed
                freed = first.bytes_read - first.bytes_written
                if len(report.cleaned) == 1:
                    assert sum(each[1] for each in files(then)) == partition.size_bytes - freed

        if partition.after.later_pass is not None:
            assert after.first_pass is None
            with altered(broker, given_configs, unset) as then:
                report = then.clean("t", force=True, roll=True)
                assert timeless(report.cleaned[0]) == timeless(partition.after.later_pass)

        with altered(broker, given_configs, unset) as then, broker.fork() as now:
            now.retain("t")
            then.retain("t")
            assert reported.loss.records == max(0, visible(now) - visible(then))


def visible(broker) -> int:
    return sum(1 for _ in broker.read("t"))


@settings(max_examples=20)
@given(steps, st.integers(-1, 45))
def test_a_predicted_loss_equals_the_records_that_readers_miss(taken, before_offset):
    from logstore.analysis.losses import lost_by_delete_records, lost_with

    with history(taken) as broker:
        log = broker.log("t")
        records = list(broker.read("t"))
        whole = lost_with([log])
        assert whole.records == len(records)
        if records:
            (part,) = whole.parts
            assert (part.first_timestamp, part.last_timestamp) == (
                min(record.timestamp for record in records),
                max(record.timestamp for record in records),
            )
        offset = min(before_offset, log.high_watermark)
        loss = lost_by_delete_records(log, offset)
        broker.delete_records({TopicPartition("t", 0): offset})
        left = list(broker.read("t"))
        removed = [record.offset for record in records if record not in left]
        assert loss.records == len(removed)
        assert bool(loss) == bool(removed)
