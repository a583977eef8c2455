"""What a diff of two copies tells is what the cleaning between them did, as was rehearsed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore import TopicPartition
from logstore.broker.diff import PartitionDiff
from logstore.broker.view import PartitionView
from tests.property.test_explain import configs, replayed, steps

TP = TopicPartition("t", 0)


@given(steps, configs, st.booleans(), st.booleans())
def test_a_dry_run_the_real_run_and_the_diff_are_one(history, config, force, roll):
    before, after = replayed(history, config), replayed(history, config)
    foreseen = list(before.fates("t", force=force, roll=roll))
    rehearsed = before.clean("t", force=force, roll=roll, dry_run=True)
    done = after.clean("t", force=force, roll=roll)
    diff = PartitionDiff(PartitionView(before, TP), PartitionView(after, TP))
    told = list(diff)
    assert diff.is_explained, diff.counts
    assert diff.counts.total() == len(told) == len(foreseen)
    if not done.cleaned:
        assert {each.fate for each in told} <= {"retained", "below_log_start"}
        assert not rehearsed.cleaned
        return
    if len(done.cleaned) > 1:
        return  # the rehearsal tells of the first one alone
    untouched = ("active", "not_yet_cleanable")
    assert told == [
        each._replace(fate="retained") if each.fate in untouched else each for each in foreseen
    ]
    assert dict(rehearsed.cleaned[0].fates) == dict(done.cleaned[0].fates)
    if after.log("t").log_start_offset == before.log("t").segments.first.base_offset == 0:
        for fate, count in done.cleaned[0].fates.items():
            assert fate == "retained" or diff.counts[fate] == count, fate
