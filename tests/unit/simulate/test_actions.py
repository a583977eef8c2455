"""What operators do, and what befalls a broker, shows in the series."""

import numpy as np
import pytest

from logstore import Broker
from logstore.simulate import parse, run
from logstore.storage.log.reader import Isolation

HOUR_MS = 3_600_000

BASE = """
days = 4
directories = {directories}
[broker]
log.cleaner.backoff.ms = 60000
[[topics]]
name = "t"
records = 3_000
partitions = 2
keys.count = 300
values.bytes = 40
deletes.share = 0.05
batches = {{ min_records = 1, max_records = 20, codec = "{codec}" }}
[topics.configs]
"cleanup.policy" = "compact"
"segment.bytes" = 10_000
"min.cleanable.dirty.ratio" = 0.2
"delete.retention.ms" = "6h"
"file.delete.delay.ms" = "1h"
"""


def live(*actions, samples=96, directories=1, codec="none", more="", **options):
    """Run the scenario; an action is its time, its kind, and its arguments as TOML."""
    text = BASE.format(directories=directories, codec=codec) + more
    for at, kind, words in actions:
        lines = words.replace(", ", "\n")
        text += f'[[actions]]\nat = "{at}"\ndo = "{kind}"\n{lines}\n'
    return run(parse(text), samples=samples, **options)


def hours(outcome, column, partition=0, topic="t"):
    """Return the value of a column at each hour, before the actions of that hour."""
    found = outcome.partitions.where(topic=topic, partition=partition)
    regular = np.isin(found["event"], ("regular", "end"))
    since = (found["time_ms"][regular] - outcome.scenario.start_ms) // HOUR_MS
    return dict(zip(since.tolist(), found[column][regular].tolist(), strict=True))


def pass_hours(outcome, partition=None):
    chosen = {} if partition is None else {"partition": partition}
    found = outcome.passes.where(topic="t", **chosen)
    return (found["time_ms"] - outcome.scenario.start_ms) / HOUR_MS


def test_a_broker_that_is_down_does_nothing_and_what_was_sent_comes_after():
    quiet, outcome = live(), live(("24h", "stop-broker", 'lasts = "12h"'))
    states = hours(outcome, "state")
    assert {hour for hour, state in states.items() if state == "down"} == {*range(25, 37)}
    ends, undisturbed = hours(outcome, "log_end_offset"), hours(quiet, "log_end_offset")
    assert ends[36] == ends[24] == undisturbed[24]
    assert ends[37] == undisturbed[37]
    times = pass_hours(outcome)
    assert not ((times > 24) & (times < 36)).any()
    assert (times > 36).any()
    events = outcome.partitions.where(partition=0, event="state")
    assert events["state"].tolist() == ["down", "online"]
    assert [note for note in outcome.notes if "refused" in note] == []


@pytest.mark.parametrize(("kind", "loses"), (("kill", False), ("crash", True)))
def test_power_takes_what_was_not_flushed_and_a_kill_does_not(kind, loses):
    outcome = live(("49h", kind, ""))
    assert any("unflushed offsets were lost" in note for note in outcome.notes) is loses
    ends = hours(outcome, "log_end_offset")
    assert (ends[50] < ends[48]) is loses
    assert ends[60] > ends[50]


def test_a_topic_that_is_created_later_has_its_records_from_then_on():
    outcome = live(("24h", "create-topic", 'topic = "t"'))
    states, ends = hours(outcome, "state"), hours(outcome, "log_end_offset")
    assert {states[hour] for hour in range(1, 25)} == {"absent"}
    assert {states[hour] for hour in range(25, 97)} == {"online"}
    assert ends[24] == 0 < ends[27]
    assert sum(hours(outcome, "log_end_offset", part)[96] for part in (0, 1)) == 3_000


def test_a_topic_that_is_deleted_weighs_until_its_files_go_and_begins_anew():
    outcome = live(("24h", "delete-topic", 'topic = "t"'), ("48h", "create-topic", 'topic = "t"'))
    states, ends = hours(outcome, "state"), hours(outcome, "log_end_offset")
    assert [states[hour] for hour in (24, 25, 48, 49)] == ["online", "absent", "absent", "online"]
    assert ends[30] == 0 < ends[49]
    deleted = hours(outcome, "deleted_bytes")
    gone = outcome.partitions.where(partition=0, state="absent", event="state")
    weighed = sum(hours(outcome, f"{kind}_bytes")[24] for kind in ("clean", "dirty", "active"))
    assert gone["deleted_bytes"].tolist() == [weighed]
    assert deleted[26] == 0
    appended = hours(outcome, "appended_bytes")
    assert appended[96] > appended[24] == appended[48] > 0
    parts = ("live_records", "dead_records", "tombstones")
    assert hours(outcome, "records")[96] == sum(hours(outcome, part)[96] for part in parts)
    assert any("refused" in note for note in outcome.notes)


@pytest.mark.parametrize("codec", ("none", "lz4"))
def test_a_damaged_batch_makes_a_partition_uncleanable_until_it_is_out_of_the_way(codec):
    outcome = live(
        ("24h", "corrupt", 'topic = "t", partition = 1'),
        ("60h", "retry", 'topic = "t", partition = 1'),
        ("72h", "alter", "topic = 't', configs.'cleanup.policy' = 'compact,delete'"),
        ("72h", "delete-records", 'topic = "t", partition = 1'),
        ("72h", "retry", 'topic = "t", partition = 1'),
        codec=codec,
    )
    states = hours(outcome, "state", 1)
    uncleanable = [hour for hour, state in states.items() if state == "uncleanable"]
    assert 24 <= min(uncleanable) < 48
    assert max(uncleanable) == 72
    assert {*hours(outcome, "state", 0).values()} == {"online"}
    times = pass_hours(outcome, 1)
    assert not ((times > 24) & (times < 72)).any()
    assert (times > 72).any()
    others = pass_hours(outcome, 0)
    assert ((others > 24) & (others < 72)).any()
    ratio = hours(outcome, "cleanable_ratio", 1)
    assert ratio[72] > 0.5
    assert hours(outcome, "log_start_offset", 1)[73] > 0


@pytest.mark.parametrize("kind", ("kill", "crash"))
def test_damage_stays_what_it_is_through_a_restart(kind):
    outcome = live(("24h", "corrupt", 'topic = "t"'), ("49h", kind, ""), codec="lz4")
    assert not any(f"{kind} was refused" in note for note in outcome.notes)
    for part in (0, 1):
        counts = [hours(outcome, name, part)[96] for name in ("records", "live_records", "keys")]
        dead, tombstones = (hours(outcome, n, part)[96] for n in ("dead_records", "tombstones"))
        assert counts[0] == counts[1] + dead + tombstones
        assert min(counts) > 0 <= dead


def test_damage_is_injected_at_the_requested_position():
    outcome = live(
        ("24h", "corrupt", 'topic = "t", offset = 40'),
        ("25h", "corrupt", 'topic = "t", partition = 0, offset = 99999'),
    )
    assert any("t-0: no batch contains offset 99999" in note for note in outcome.notes)


def test_a_directory_that_fails_takes_its_partitions_offline_until_a_restart():
    outcome = live(
        ("24h", "fail-disk", 'operation = "write", directory = 1, lasts = "12h"'),
        ("48h", "kill", ""),
        directories=2,
    )
    states = [hours(outcome, "state", part) for part in (0, 1)]
    (gone,) = [part for part in (0, 1) if "offline" in states[part].values()]
    offline = [hour for hour, state in states[gone].items() if state == "offline"]
    assert 24 <= min(offline) <= 26
    assert max(offline) == 48  # mended at 36, but restarted at 48
    ends, other = hours(outcome, "log_end_offset", gone), hours(outcome, "log_end_offset", 1 - gone)
    assert ends[30] == ends[48]
    assert other[48] > other[30]
    # Its last known numbers are kept, and records sent meanwhile arrive.
    assert hours(outcome, "active_bytes", gone)[48] == hours(outcome, "active_bytes", gone)[30] > 0
    assert ends[96] + other[96] == 3_000
    assert any("Input/output error" in note for note in outcome.notes)


def test_a_slow_disk_makes_passes_late():
    slow = ("0", "fail-disk", 'operation = "read", delay = "5m", lasts = "{}"')
    quick, late = live(), live((*slow[:2], slow[2].format("90h")))
    assert pass_hours(late)[0] > pass_hours(quick)[0] + 5 / 60
    assert late.partitions["oldest_dirty_ms"].max() > quick.partitions["oldest_dirty_ms"].max()


def test_a_throttle_that_is_altered_slows_the_cleaner_from_then_on():
    limit = "{ 'log.cleaner.io.max.bytes.per.second' = '%s' }"
    outcome = live(
        ("24h", "alter", "configs = " + limit % "2"),
        ("72h", "alter", "configs = " + limit % "1000000"),
    )
    loads = hours(outcome, "cleaner_load")
    by_time = [max(loads[hour] for hour in span) for span in (range(1, 25), range(25, 73))]
    # A pass ends before the sleep for its last bytes is over.
    assert by_time[0] == 0.0 < 0.5 < by_time[1] < 2.0
    assert max(loads[hour] for hour in range(80, 97)) < 0.1
    took, times = outcome.passes["duration_ms"], pass_hours(outcome)
    assert took[times < 24].max() == 0
    assert took[(times > 30) & (times < 72)].min() > HOUR_MS


def test_a_clock_that_jumps_ages_what_is_there():
    words = "topic = 't', configs.'cleanup.policy' = 'delete', configs.'retention.ms' = '40h'"
    retention = ("0", "alter", words)
    jump = ("30h", "jump-clock", 'by = "30h", lasts = "5h"')
    quiet, ahead = live(retention), live(retention, jump)
    starts, undisturbed = hours(ahead, "log_start_offset"), hours(quiet, "log_start_offset")
    assert undisturbed[36] == 0 < starts[31]
    assert starts[36] == starts[35] > 0  # removed records do not reappear when the clock moves back
    # Time itself passes as before: as many records arrive, at the same times.
    assert hours(ahead, "log_end_offset") == hours(quiet, "log_end_offset")


def test_partitions_that_are_added_take_their_keys_from_then_on(tmp_path):
    """The last word of a key that moved stays where it was: no pass meets the newer one."""
    transactions = """
    [topics.producers]
    count = 2
    transactional = 1
    transaction_records = 30
    abort_share = 0.3
    """
    outcome = live(
        ("48h", "add-partitions", 'topic = "t", partitions = 4'),
        ("90h", "clean", 'topic = "t"'),
        more=transactions,
        data_dir=tmp_path / "data",
    )
    states = hours(outcome, "state", 3)
    assert [states[hour] for hour in (48, 49)] == ["absent", "online"]
    by_part = [hours(outcome, "log_end_offset", part) for part in range(4)]
    assert by_part[3][48] == 0 < by_part[3][60]
    with Broker(tmp_path / "data", read_only=True) as broker:
        places = {}
        markers = 0
        for part in range(4):
            log = broker.log("t", part)
            assert log.last_stable_offset == log.log_end_offset  # every transaction is ended
            survivors = {}
            for batch in log.reader.batches(0):
                markers += batch.header.is_control
            for _, record in log.reader.records(0, isolation=Isolation.READ_COMMITTED):
                survivors[record.key] = record.value
                places.setdefault(record.key, set()).add(part)
            last = {name: column[-1] for name, column in outcome.partitions.where(
                topic="t", partition=part).items()}  # fmt: skip
            living = sum(value is not None for value in survivors.values())
            assert last["live_records"] == living
    assert markers
    assert max(map(len, places.values())) == 2  # in the old and the new place
    assert sum(each[96] for each in by_part) > 3_000  # all of them, and the markers


def test_any_writer_can_hit_a_full_disk_without_losing_records(tmp_path):
    uncompacted = ("0", "alter", "topic = 't', configs.'cleanup.policy' = 'delete'")
    full = ("24h", "fill-disk", 'lasts = "6h"')
    outcome = live(uncompacted, full, data_dir=tmp_path / "data")
    states = hours(outcome, "state")
    assert states[24] == states[32] == "online"
    assert "offline" in {states[hour] for hour in range(25, 31)}
    assert sum(hours(outcome, "log_end_offset", part)[96] for part in (0, 1)) == 3_000
    assert np.all(np.diff(list(hours(outcome, "appended_bytes").values())) >= 0)
    with Broker(tmp_path / "data", read_only=True) as broker:
        for part in (0, 1):
            ends = {}
            for batch in broker.log("t", part).reader.batches(0):
                header = batch.header
                ends[header.base_sequence] = header.base_sequence + header.last_offset_delta + 1
            missing = {*ends.values()} - {*ends} - {max(ends.values())}
            assert missing == set()  # refused records took no numbers


def test_partitions_that_are_added_after_the_last_record_are_empty():
    outcome = live(
        ("90h", "add-partitions", 'topic = "t", partitions = 3'),
        ("92h", "kill", ""),
        more="[topics.time]\ndays = 3\n",
        samples=4,
    )
    last = outcome.partitions.where(event="end")
    assert last["state"].tolist() == ["online"] * 3
    assert last["records"][2] == last["live_records"][2] == 0
    assert last["live_records"][0] > 0
