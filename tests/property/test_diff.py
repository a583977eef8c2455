"""The diff of two copies equals the cleaning pass between them, and its dry run."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import TopicPartition
from logstore.analysis.diff import PartitionDiff
from logstore.analysis.view import PartitionView
from tests.property.test_explain import COMPACT, configs, replayed, steps

TP = TopicPartition("t", 0)
ABORTED = [("append", 1, False), ("transaction", 1, False), ("end", 1, False), ("append", 2, False)]
SUPERSEDED_LATER = [
    *(("append", 1, True), ("roll", 0, False), ("clean", 0, True), ("pass", 600, False)),
    ("append", 1, False),
]
"""A tombstone that expires, while a newer record of its key is still in the active segment."""


@settings(max_examples=40)
@given(steps, configs, st.booleans(), st.booleans())
@example(ABORTED, COMPACT, True, True)
@example(SUPERSEDED_LATER, COMPACT | {"delete.retention.ms": 500}, True, False)
def test_a_dry_run_the_real_run_and_the_diff_are_one(history, config, force, roll):
    before, after = replayed(history, config), replayed(history, config)
    foreseen = list(before.fates("t", force=force, roll=roll))
    dry_run = before.clean("t", force=force, roll=roll, dry_run=True)
    done = after.clean("t", force=force, roll=roll)
    diff = PartitionDiff(PartitionView(before, TP), PartitionView(after, TP))
    report = list(diff)
    assert diff.is_explained, diff.counts
    assert diff.counts.total() == len(report) == len(foreseen)
    if not done.cleaned:
        assert {each.fate for each in report} <= {"retained", "below_log_start"}
        assert not dry_run.cleaned
        return
    if len(done.cleaned) > 1:
        return  # the dry run reports only the first one
    untouched = ("active", "not_yet_cleanable")
    assert report == [
        each._replace(fate="retained") if each.fate in untouched else each for each in foreseen
    ]
    assert dict(dry_run.cleaned[0].fates) == dict(done.cleaned[0].fates)
    if after.log("t").log_start_offset == before.log("t").segments.first.base_offset == 0:
        for fate, count in done.cleaned[0].fates.items():
            assert fate == "retained" or diff.counts[fate] == count, fate
