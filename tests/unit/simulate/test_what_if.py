"""What if: a directory goes on as it was written, and nothing in it changes."""

import shutil
from types import SimpleNamespace

import pytest

from logstore import Broker
from logstore.errors import CorruptRecordError, InvalidConfigurationError
from logstore.runtime import VirtualClock
from logstore.simulate import fit, parse, run
from logstore.simulate.fitting import fit_recording
from logstore.simulate.recording import record
from logstore.simulate.sweep import sweep
from logstore.types import DAY_MS, TopicPartition
from tests.support.world.messages import exactly

from .conftest import UNIFORM, ZIPF, halves, tree_of

USERS = TopicPartition("users", 0)
SIZES = ("clean_bytes", "dirty_bytes", "uncleanable_bytes", "active_bytes")


def series(outcome):
    tables = (outcome.partitions, outcome.consumers, outcome.passes, outcome.segments)
    return [{name: column.tolist() for name, column in table.arrays().items()} for table in tables]


def since(outcome, start_ms):
    """Sum up the events from a time on, over all partitions."""
    found = SimpleNamespace(appended=0, keys=0, live=0, size=0)
    for partition in (0, 1):
        rows = outcome.partitions.where(topic="users", partition=partition)
        late = rows["time_ms"] >= start_ms
        appended = rows["appended_bytes"][late]
        found.appended += appended[-1] - appended[0]
        found.keys += rows["keys"][late][-1]
        found.live += rows["live_records"][late][-1]
        found.size += sum(rows[name][late][-1] for name in SIZES)
    found.passes = int((outcome.passes["time_ms"] > start_ms).sum())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("distribution", "keys"), (("uniform", UNIFORM), ("zipf", ZIPF)))
def test_the_second_half_is_predicted_from_the_first(distribution, keys, half, tmp_path):
    """Bytes within 5 %, keys and the final size within 10 %, cleanings within two."""
    if distribution == "zipf":
        half = tmp_path / "half"
        run(halves(10, keys), data_dir=half, samples=5)
    whole = halves(20, keys)
    real = since(run(whole, samples=20), whole.start_ms + 10 * DAY_MS)
    plan = fit(str(half), days=10)
    told = since(run(plan, samples=20), plan.start_ms)
    assert told.appended == pytest.approx(real.appended, rel=0.05)
    assert told.keys == pytest.approx(real.keys, rel=0.10)
    assert told.live == pytest.approx(real.live, rel=0.10)
    assert told.size == pytest.approx(real.size, rel=0.15)
    assert abs(told.passes - real.passes) <= 2


def test_the_same_seed_is_the_same_run_in_memory_and_on_disk_and_the_directory_is_retained(
    half, tmp_path
):
    before = tree_of(half)
    found = fit_recording(record(str(half)), days=3)
    again = parse(found.text)  # saved, and read again
    runs = [
        run(found.scenario, samples=12, recording=found.recording),
        run(again, samples=12),
        run(again, samples=12, data_dir=tmp_path / "data"),
    ]
    assert runs[0].digests == runs[1].digests == runs[2].digests
    assert series(runs[0]) == series(runs[1]) == series(runs[2])
    assert run(again.with_seed(2), samples=12).digests != runs[0].digests
    assert tree_of(half) == before


def test_it_begins_with_that_very_state(half):
    plan = fit(str(half), days=0.01)
    outcome = run(plan, samples=1)
    with Broker(half, read_only=True) as broker:
        for number in (0, 1):
            log = broker.log("users", number)
            first = {
                name: column[0]
                for name, column in outcome.partitions.where(
                    partition=number, event="start"
                ).items()
            }
            assert first["log_end_offset"] == log.log_end_offset
            assert first["segments"] == len(log.segments.view)
            home = broker.manager.registry.directory_of(log.topic_partition)
            assert first["first_dirty_offset"] == home.cleaner_offset(log.topic_partition) > 0
            assert sum(first[name] for name in SIZES) == log.size_bytes


def test_without_arrivals_a_cleaning_matches_clean(half, tmp_path):
    text = fit_recording(record(str(half)), days=1).text
    plan = parse(
        text.replace("records_per_day", "records_per_day = 0\n# ")
        + '[[actions]]\nat = "0"\ndo = "roll"\ntopic = "users"\n'
        + '[[actions]]\nat = "0"\ndo = "clean"\ntopic = "users"\n'
    )
    run(plan, samples=1, data_dir=tmp_path / "simulated")
    copy = tmp_path / "copy"
    shutil.copytree(half, copy)
    with Broker(copy, clock=VirtualClock(plan.start_ms)) as broker:
        for number in (0, 1):
            broker.roll(TopicPartition("users", number))
        assert broker.clean("users", force=True).cleaned
    for number in (0, 1):
        logs = sorted((copy / f"users-{number}").glob("*.log"))
        assert [each.name for each in logs] == sorted(
            each.name for each in (tmp_path / "simulated" / f"users-{number}").glob("*.log")
        )
        for each in logs:
            simulated = tmp_path / "simulated" / f"users-{number}" / each.name
            assert simulated.read_bytes() == each.read_bytes()


def test_updates_hit_the_keys_that_are_there(half):
    plan = fit(str(half), days=5)
    outcome = run(plan, samples=3)
    first, last = (sum(outcome.partitions.where(event=event)["keys"]) for event in ("start", "end"))
    assert first > 2_700
    assert last < 1.05 * first


def test_a_partition_alone_is_a_topic_and_its_configuration_is_assumed(half, tmp_path):
    shutil.copytree(half / "users-1", tmp_path / "users-1")
    found = fit_recording(record(str(tmp_path / "users-1")), days=1)
    (topic,) = found.scenario.topics
    assert (topic.name, dict(topic.shares)) == ("users", {1: 1.0})
    assert topic.configs["cleanup.policy"] == "delete"
    assert any("no configuration of topic users is stored" in note for note in found.notes)
    outcome = run(found.scenario, samples=2)
    assert set(outcome.digests) == {"users-1"}
    # Without the cleaner checkpoint, gaps in the offsets show the cleaned range.
    beside = (record(str(half)).topics["users"].arrivals.partition == 1).sum()
    alone = len(found.recording.topics["users"].arrivals.key)
    assert beside <= alone < beside + 200
    given = record(str(tmp_path / "users-1"), configs={"cleanup.policy": "compact"})
    assert given.topics["users"].configs["cleanup.policy"] == "compact"
    assert not any("no configuration" in text for text in given.topics["users"].assumed)


def test_consumers_have_read_what_is_there(half):
    text = fit_recording(record(str(half)), days=1).text
    plan = parse(text + '[[consumers]]\nname = "search"\ntopic = "users"\nlag = "5m"\n')
    outcome = run(plan, samples=4)
    assert outcome.consumers["lag_records"][0] == 0
    assert 0 < outcome.consumers["lag_records"].max() < 2_000


def test_a_crash_finds_new_keys_in_the_log(half):
    text = fit_recording(record(str(half)), days=2).text.replace(
        "new_share = ", "new_share = 0.3 # "
    )
    lines = [
        line.split(" # ")[0] + ", unseen = 0 }" if "new_share" in line else line
        for line in text.splitlines()
    ]
    crash = '[topics.configs]\n"flush.messages" = "1"'
    plan = parse("\n".join(lines).replace("[topics.configs]", crash))
    whole = run(plan, samples=4)
    crashed = run(
        parse("\n".join(lines).replace("[topics.configs]", crash) + '\n[[actions]]\nat = "1d"\n'
              'do = "crash"\n'),
        samples=4,
    )  # fmt: skip
    ends = [outcome.partitions.where(event="end") for outcome in (whole, crashed)]
    assert ends[0]["keys"].tolist() == ends[1]["keys"].tolist()
    assert ends[0]["keys"].sum() > 3_000


def test_damage_is_named_and_no_start(half, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(half, copy)
    log = min((copy / "users-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-30] ^= 0xFF  # in its last batch, behind which others lie
    log.write_bytes(data)
    found = fit_recording(record(str(copy)), days=1)
    assert [damage.path for damage in found.recording.damages] == [str(log)]
    assert f"# damage: {log}" in found.text
    with pytest.raises(
        CorruptRecordError,
        match=exactly(
            "{path}/00000000000000000000.log: 1,417 bytes at position 58560 after "
            "offset 1630 and before offset 1667 are damaged (crc); 1,684 later records "
            "are valid: a simulation cannot start from a damaged log. Use logstore "
            "salvage to copy the valid batches"
        ),
    ):
        run(found.scenario, samples=1)


def test_a_sweep_begins_with_the_directory_each_time(half):
    plan = fit(str(half), days=2)
    found = sweep(plan, {"min.cleanable.dirty.ratio": ["0.05", "0.9"]}, samples=3)
    often, seldom = (each.costs["passes"] for each in found.variants)
    assert often > seldom


def test_a_directory_for_the_logs_that_is_not_empty_is_refused(half, tmp_path):
    (tmp_path / "something").touch()
    with pytest.raises(InvalidConfigurationError) as refused:
        run(fit(str(half), days=1), data_dir=tmp_path)
    text = f"{tmp_path} is not empty; a copy needs a new or empty directory"
    assert str(refused.value) == text
