"""Selecting, passing and checkpointing over the logs of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner.errors import CleaningAbortedError
from logstore.cleaner.stats import CleanerStats
from logstore.cleaner.strategy import Strategy
from logstore.errors import InvalidConfigurationError, KafkaStorageError
from logstore.runtime import MemoryFileSystem
from logstore.types import AppendOrigin
from tests.support.world.brokers import cleaner_checkpoint, fill
from tests.support.world.builders import bases_of, batch
from tests.support.world.cleaning import contents, drive, map_of, offsets_in
from tests.support.world.messages import exactly

USERS = TopicPartition("users", 0)
CHECKPOINT = "/memory/cleaner-offset-checkpoint"
HOUR_MS = 3_600_000


def new_broker(**options: object) -> Broker:
    clock = VirtualClock()
    return Broker(clock=clock, fs=MemoryFileSystem(clock), seed=3, **options)


def topic(broker: Broker, name: str = "users", **configs: object) -> None:
    texts = {"cleanup_policy": "compact", "file_delete_delay_ms": 0} | configs
    broker.create_topic(name, 1, {key.replace("_", "."): v for key, v in texts.items()})


def write_checkpoint(broker: Broker, offsets: dict[TopicPartition, int]) -> None:
    broker.manager.directories[0].checkpoint("cleaner-offset-checkpoint").write(offsets)


def reasons(report: object) -> dict[str, str]:
    return {each.topic: each.reason for each in report.not_cleaned}


# --- checkpoint -------------------------------------------------------------------------------


def test_a_pass_stores_its_end_offset() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    (stats,) = broker.clean("users").cleaned
    assert (stats.first_dirty_offset, stats.end_offset) == (0, 20)
    assert cleaner_checkpoint(broker) == {USERS: 20}
    fill(broker, count=7)
    (stats,) = broker.clean("users", force=True).cleaned
    assert (stats.first_dirty_offset, stats.end_offset) == (20, 27)
    assert cleaner_checkpoint(broker) == {USERS: 27}


def test_a_pass_reads_segments_that_are_deleted_after_it_began() -> None:
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    with Broker(clock=clock, fs=fs) as broker:
        topic(broker, segment_bytes=300, cleanup_policy="compact,delete")
        fill(broker)
    with Broker(clock=clock, fs=fs) as broker:  # which has opened no file of a segment yet
        log = broker.log("users")
        steps = broker.cleaner.run_pass(log, broker.cleaner.chooser.state_of(log))
        next(steps)
        log.delete_records(9)
        deleted = [name for name in fs.list_dir(log.directory) if name.endswith(".log.deleted")]
        assert deleted == [f"{offset:020d}.log.deleted" for offset in (0, 4)]
        for name in deleted:
            fs.remove(f"{log.directory}/{name}")
        stats = drive(steps)
        assert (stats.map_messages_read, stats.segments_before, stats.end_offset) == (20, 3, 20)
        assert offsets_in(log) == [15, 16, 17, 18, 19]


def test_other_partitions_entries_stay_and_unknown_ones_go() -> None:
    broker = new_broker()
    topic(broker)
    topic(broker, "other")
    fill(broker)
    fill(broker, "other")
    write_checkpoint(broker, {TopicPartition("other", 0): 9, TopicPartition("gone", 3): 4})
    broker.clean("users")
    assert cleaner_checkpoint(broker) == {USERS: 20, TopicPartition("other", 0): 9}


def test_a_damaged_checkpoint_counts_as_none() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    file = broker.runtime.fs.open(CHECKPOINT, create=True)
    file.write_at([b"0\nnonsense\n"], 0)
    file.close()
    assert broker.cleaner.checkpoints.of(USERS) is None
    assert broker.cleaner.chooser.state_of(broker.log("users")).first_dirty_offset == 0
    broker.clean("users")
    assert cleaner_checkpoint(broker) == {USERS: 20}


@pytest.mark.parametrize("force", (False, True))
def test_s204_s205_a_checkpoint_outside_the_log_is_replaced_even_if_nothing_is_cleaned(
    force: bool,
) -> None:
    broker = new_broker()
    topic(broker)
    broker.append("users", value=b"v", key=b"k", partition=0)
    write_checkpoint(broker, {USERS: 500})
    assert reasons(broker.clean("users", force=force)) == {"users": "active_segment"}
    assert cleaner_checkpoint(broker) == {USERS: 0}


def test_a_log_of_another_policy_keeps_its_checkpoint() -> None:
    broker = new_broker()
    topic(broker, cleanup_policy="delete")
    fill(broker)
    write_checkpoint(broker, {USERS: 500})
    assert reasons(broker.clean("users")) == {"users": "policy"}
    assert cleaner_checkpoint(broker) == {USERS: 500}


# --- passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("force", (False, True))
def test_partial_passes_repeat_until_done(force: bool) -> None:
    broker = new_broker()
    topic(broker, min_cleanable_dirty_ratio=0)
    fill(broker, count=60, keys=12)
    broker.cleaner.config = map_of(10, 0.5)
    report = broker.clean("users", force=force)
    assert [stats.end_offset for stats in report.cleaned][-1] == 60
    assert len(report.cleaned) >= 3
    assert [stats.pass_number for stats in report.cleaned] == [*range(1, len(report.cleaned) + 1)]
    assert report.to_json()["passes_needed"] == {"users-0": len(report.cleaned)}
    assert offsets_in(broker.log("users")) == list(range(48, 60))
    assert cleaner_checkpoint(broker) == {USERS: 60}


def test_without_force_passes_end_when_the_ratio_is_reached() -> None:
    broker = new_broker()
    topic(broker, min_cleanable_dirty_ratio=0.9)
    fill(broker, count=60, keys=60)
    broker.cleaner.config = map_of(20, 0.5)
    report = broker.clean("users")
    assert [stats.end_offset for stats in report.cleaned] == [10]
    assert report.not_cleaned == ()
    assert reasons(broker.clean("users")) == {"users": "dirty_ratio"}


def test_a_forced_clean_of_an_empty_dirty_range_rewrites_once() -> None:
    broker = new_broker()
    topic(broker, delete_retention_ms=1000)
    fill(broker)
    broker.append("users", value=None, key=b"k0", partition=0)
    broker.roll("users", 0)
    assert len(broker.clean("users", force=True).cleaned) == 1
    log = broker.log("users")
    assert contents(log)[-1] == (20, b"k0", None)
    assert reasons(broker.clean("users")) == {"users": "active_segment"}
    broker.clock.advance(seconds=2)
    (stats,) = broker.clean("users", force=True).cleaned
    assert (stats.first_dirty_offset, stats.end_offset) == (21, 21)
    assert offsets_in(log) == [16, 17, 18, 19]
    assert cleaner_checkpoint(broker) == {USERS: 21}


def test_a_forced_clean_never_touches_the_active_segment() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    for _ in range(5):
        broker.append("users", value=b"v", key=b"k0", partition=0)
    log = broker.log("users")
    active = log.active_segment
    write_checkpoint(broker, {USERS: 23})
    broker.clean("users", force=True)
    assert log.active_segment is active
    assert offsets_in(log)[-5:] == [20, 21, 22, 23, 24]
    assert cleaner_checkpoint(broker) == {USERS: 23}


def test_roll_first_cleans_everything_written_so_far() -> None:
    broker = new_broker()
    topic(broker)
    for number in range(4):
        broker.append("users", value=b"v%d" % number, key=b"k", partition=0)
    report = broker.clean("users", force=True, roll=True)
    assert [stats.end_offset for stats in report.cleaned] == [4]
    assert offsets_in(broker.log("users")) == [3]
    before = bases_of(broker.log("users"))
    broker.clean("users", force=True, roll=True)
    assert bases_of(broker.log("users")) == before, "an empty active segment is not rolled"


def test_a_log_that_is_refused_is_not_rolled_either() -> None:
    broker = new_broker(broker_config={"log.cleaner.enable": False})
    topic(broker)
    topic(broker, "events", cleanup_policy="delete")
    for name in ("users", "events"):
        broker.append(name, value=b"v", key=b"k", partition=0)
    report = broker.clean(roll=True)
    assert reasons(report) == {"users": "cleaner_disabled", "events": "policy"}
    assert bases_of(broker.log("users")) == bases_of(broker.log("events")) == [0]


def test_the_most_urgent_log_is_first() -> None:
    broker = new_broker()
    for name in ("few", "many", "some"):
        topic(broker, name, min_cleanable_dirty_ratio=0.01)
        fill(broker, name)
    broker.clean()
    for name, count in (("few", 3), ("many", 30), ("some", 10)):
        fill(broker, name, count=count)
    report = broker.clean()
    assert [stats.topic_partition.topic for stats in report.cleaned] == ["many", "some", "few"]


@pytest.mark.parametrize("exact", (False, True))
def test_s211_overdue_before_dirty(exact: bool) -> None:
    broker = new_broker(broker_config={"logstore.kafka.exact": exact})
    topic(broker, "overdue", max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.99)
    topic(broker, "dirty", min_cleanable_dirty_ratio=0.1)
    for name in ("overdue", "dirty"):
        fill(broker, name)
    broker.clean(force=True)
    fill(broker, "overdue", count=1)
    fill(broker, "dirty", count=30)
    broker.clock.advance(hours=2)
    names = [stats.topic_partition.topic for stats in broker.clean().cleaned]
    assert names == (["dirty", "overdue"] if exact else ["overdue", "dirty"])


@pytest.mark.parametrize("exact", (False, True))
def test_an_idle_active_segment_is_rolled_once_its_data_is_overdue(exact: bool) -> None:
    """KIP-354; Kafka rolls only on an append, so it never cleans such data."""
    broker = new_broker(broker_config={"logstore.kafka.exact": exact})
    topic(broker, max_compaction_lag_ms=HOUR_MS)
    for _ in range(3):
        broker.append("users", value=b"v", key=b"k", partition=0)
    broker.clock.advance(ms=HOUR_MS)
    assert reasons(broker.clean()) == {"users": "active_segment"}
    assert bases_of(broker.log("users")) == [0]
    broker.clock.advance(ms=1)
    report = broker.clean()
    if exact:
        assert reasons(report) == {"users": "active_segment"}
        assert bases_of(broker.log("users")) == [0]
    else:
        assert [stats.end_offset for stats in report.cleaned] == [3]
        assert offsets_in(broker.log("users")) == [2]


def test_each_topic_is_cleaned_by_its_own_strategy() -> None:
    broker = new_broker()
    topic(broker)
    topic(broker, "timed", compaction_strategy="timestamp")
    topic(broker, "nameless", compaction_strategy="header", compaction_strategy_header="")
    for name in ("users", "timed", "nameless"):
        for timestamp in (3, 9, 5):
            broker.append(name, value=b"v", key=b"k", timestamp=timestamp)
        broker.append(name, value=b"v", key=b"other")
        broker.roll(name)
    strategies = {s.topic_partition.topic: s.strategy for s in broker.clean().cleaned}
    assert strategies == {"users": "offset", "timed": "timestamp", "nameless": "offset"}
    kept = {name: offsets_in(broker.log(name)) for name in strategies}
    assert kept == {"users": [2, 3], "timed": [1, 3], "nameless": [2, 3]}


def test_a_map_too_small_for_a_strategy_stops_the_command_and_changes_nothing() -> None:
    """A map of offsets needs one key, a map of versions two (cleaner §13.5.1)."""
    broker = new_broker()
    topic(broker, compaction_strategy="timestamp")
    fill(broker)
    broker.cleaner.config = map_of(2)
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 48 bytes, "
            "filled to log.cleaner.io.buffer.load.factor 0.9, has no room for two keys, "
            "which compaction by version needs: no progress is possible"
        ),
    ):
        broker.clean()
    assert cleaner_checkpoint(broker) == {}
    broker.alter_configs("users", {"compaction.strategy": "offset"})
    assert len(broker.clean(force=True).cleaned) == 20


# --- failures ---------------------------------------------------------------------------------


def damage(broker: Broker, position: int = 100) -> None:
    file = broker.runtime.fs.open("/memory/users-0/00000000000000000000.log", write=True)
    byte = file.read(position, 1)[0]
    file.write_at([bytes([byte ^ 0x40])], position)
    file.close()


@pytest.mark.parametrize("force", (False, True))
def test_a_corrupt_batch_makes_a_partition_uncleanable_and_no_other(force: bool) -> None:
    broker = new_broker()
    topic(broker)
    topic(broker, "other")
    fill(broker)
    fill(broker, "other")
    broker.append("users", value=b"later", key=b"k", partition=0)
    damage(broker)
    report = broker.clean(force=force)
    assert [stats.topic_partition.topic for stats in report.cleaned] == ["other"]
    assert reasons(report) == {"users": "uncleanable"}
    (failed,) = report.not_cleaned
    assert "00000000000000000000.log" in failed.text
    assert cleaner_checkpoint(broker) == {USERS: 0, TopicPartition("other", 0): 20}
    assert [r.value for r in broker.read("users", 0, offset=20)] == [b"later"]
    broker.append("users", value=b"still", key=b"k", partition=0)
    assert [r.value for r in broker.read("users", 0, offset=20)] == [b"later", b"still"]


def test_an_uncleanable_partition_is_left_alone_until_it_is_opened_again() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    damage(broker)
    assert reasons(broker.clean("users")) == {"users": "uncleanable"}
    damage(broker)  # a second flip of the same bit repairs it
    for force in (False, True):
        assert reasons(broker.clean("users", force=force)) == {"users": "uncleanable"}
    broker.close()
    again = Broker(clock=broker.clock, fs=broker.runtime.fs)
    assert len(again.clean("users").cleaned) == 1


def test_damage_in_the_clean_section_fails_the_rewrite() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    broker.clean("users")
    fill(broker)
    damage(broker, 70)
    assert reasons(broker.clean("users", force=True)) == {"users": "uncleanable"}
    assert cleaner_checkpoint(broker) == {USERS: 20}
    assert any(name.endswith(".cleaned") for name in broker.runtime.fs.list_dir("/memory/users-0"))
    broker.close()
    Broker(clock=broker.clock, fs=broker.runtime.fs).log("users")
    assert not [n for n in broker.runtime.fs.list_dir("/memory/users-0") if "cleaned" in n]


def test_a_failing_disk_is_a_storage_error_and_moves_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    first = broker.log("users").segments.first

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(first.file), "read_into", fail)
    with pytest.raises(KafkaStorageError, match="users-0: cannot clean"):
        broker.clean("users")
    assert cleaner_checkpoint(broker) == {}


@pytest.mark.parametrize("error", (CleaningAbortedError, KeyboardInterrupt, ValueError))
def test_an_error_of_a_listener_ends_the_pass_like_a_stop(error: type[BaseException]) -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)

    def listen(tp: TopicPartition, progress: object) -> None:
        assert tp == USERS
        if progress.phase == "rewrite":
            raise error

    with pytest.raises(error) as caught:
        broker.clean("users", progress=listen)
    assert caught.tb is not None, "the traceback keeps the pass alive unless it was ended"
    assert not [n for n in broker.runtime.fs.list_dir("/memory/users-0") if "cleaned" in n]
    assert offsets_in(broker.log("users")) == list(range(20))
    assert cleaner_checkpoint(broker) == {USERS: 0}, "the first dirty offset, unchanged"
    assert len(broker.clean("users").cleaned) == 1


def test_a_hundred_logs_are_measured_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = new_broker()
    broker.create_topic("users", 100, {"cleanup.policy": "compact"})
    for number in range(100):
        broker.append("users", value=b"v", key=b"k", partition=number)
        broker.roll("users", number)
    cleaner = broker.cleaner.chooser
    measured = []
    decision_of = cleaner.decision_of
    monkeypatch.setattr(
        cleaner, "decision_of", lambda log, **o: measured.append(log) or decision_of(log, **o)
    )
    assert len(broker.clean().cleaned) == 100
    assert len(measured) == 200


# --- segments that must be split first --------------------------------------------------------


def overflowed_broker() -> Broker:
    """Return a broker whose log has a closed segment with an offset 2^31 above its base.

    Such a segment is split when a log is opened, so this one is changed on disk afterwards.
    """
    broker = new_broker()
    topic(broker)
    for value in (b"1", b"2"):
        broker.append("users", value=value, key=b"k", partition=0)
    log = broker.log("users")
    log.writer.append_batches(batch(2**40, key=b"far"), AppendOrigin.REPLICATION)
    path = "/memory/users-0/00000000000000000000.log"
    file = broker.runtime.fs.open(path, write=True)
    file.write_at([(2**31).to_bytes(8, "big")], log.segments.first.size_bytes // 2)
    file.close()
    return broker


def test_s225_a_segment_that_overflows_is_split_and_the_checkpoint_is_retained() -> None:
    broker = overflowed_broker()
    log, manager = broker.log("users"), broker.cleaner
    result = manager.clean(log, manager.chooser.state_of(log))
    assert result is None, "no gate was closed, and nothing was cleaned"
    assert bases_of(log) == [0, 2**31, 2**40]
    assert offsets_in(log) == [0, 2**31, 2**40]
    assert cleaner_checkpoint(broker) == {USERS: 0}
    assert manager.states.of(USERS) is None
    broker.close()


@pytest.mark.parametrize("force", (False, True))
def test_a_command_continues_after_a_split(force: bool) -> None:
    broker = overflowed_broker()
    report = broker.clean("users", force=force)
    assert [stats.end_offset for stats in report.cleaned] == [2**40]
    assert report.not_cleaned == ()
    assert offsets_in(broker.log("users")) == [2**31, 2**40]
    assert cleaner_checkpoint(broker) == {USERS: 2**40}


def test_a_dry_run_reports_that_a_split_is_needed_first() -> None:
    broker = overflowed_broker()
    (left,) = broker.clean("users", force=True, dry_run=True).not_cleaned
    assert left.reason == "uncleanable"
    assert bases_of(broker.log("users")) == [0, 2**40]


def test_s225_the_end_is_stored_even_inside_a_segment() -> None:
    broker = new_broker()
    topic(broker, min_cleanable_dirty_ratio=0.99)
    fill(broker, count=10, keys=10)
    broker.cleaner.config = map_of(10, 0.5)
    log, manager = broker.log("users"), broker.cleaner
    result = manager.clean(log, manager.chooser.state_of(log))
    assert isinstance(result, CleanerStats)
    assert result.end_offset == 5
    assert cleaner_checkpoint(broker) == {USERS: 5}
    assert bases_of(log) == [0, 10]


# --- several threads --------------------------------------------------------------------------


@pytest.mark.parametrize("force", (False, True))
def test_threads_of_a_command_give_what_one_gives(tmp_path: Path, force: bool) -> None:
    reports = []
    for threads in (1, 3):
        with Broker(tmp_path / str(threads), seed=3) as broker:
            broker.create_topic("users", 5, {"cleanup.policy": "compact"})
            for number in range(5):
                for count in range(50):
                    value, key = b"v%d" % count, b"k%d" % (count % (3 + number))
                    broker.append("users", value=value, key=key, partition=number, timestamp=count)
                broker.roll("users", number)
            report = broker.clean("users", force=force, threads=threads)
            assert [each.reason for each in report.not_cleaned] == []
            kept = [[r.offset for r in broker.read("users", number)] for number in range(5)]
            reports.append((sorted(p.topic_partition for p in report.cleaned), kept))
    assert reports[0] == reports[1]
    assert [len(each) for each in reports[0][1]] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("threads", "shares"), ((None, 1), (1, 1), (4, 4)))
def test_threads_share_the_memory_in_passes_too(
    monkeypatch: pytest.MonkeyPatch, threads: int | None, shares: int
) -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    configs = []

    def run_pass(*arguments: object, config: object, **options: object) -> object:
        configs.append(config)
        return original(*arguments, config=config, **options)

    original = broker.cleaner.run_pass
    monkeypatch.setattr(broker.cleaner, "run_pass", run_pass)
    whole = broker.cleaner.config
    reports = [
        broker.clean("users", force=True, threads=threads, dry_run=dry) for dry in (True, False)
    ]
    assert [report.dry_run for report in reports] == [True, False]
    assert configs == [broker.cleaner.config_for(threads)] * 2
    assert whole.dedupe_buffer_bytes // configs[0].dedupe_buffer_bytes == shares


def test_a_new_partition_of_the_same_name_is_not_uncleanable() -> None:
    broker = new_broker()
    topic(broker)
    fill(broker)
    damage(broker)
    assert reasons(broker.clean("users")) == {"users": "uncleanable"}
    assert [each.topic_partition for each in broker.cleaner.uncleanable()] == [USERS]
    broker.delete_topic("users")
    assert broker.cleaner.uncleanable() == ()
    topic(broker)
    fill(broker)
    assert len(broker.clean("users").cleaned) == 1


def test_too_many_threads_for_the_memory_are_refused() -> None:
    broker = new_broker()
    topic(broker)
    with pytest.raises(InvalidConfigurationError, match="128 cleaner threads"):
        broker.clean("users", threads=128)


@pytest.mark.parametrize("ends", ("well", "damaged"))
def test_a_dry_run_stores_no_checkpoint(ends: str) -> None:
    """Also in a broker that is open for writing."""
    broker = new_broker()
    topic(broker)
    fill(broker)
    if ends == "damaged":
        file = broker.runtime.fs.open("/memory/users-0/00000000000000000000.log", write=True)
        file.write_at([b"\xff"], 70)
        file.close()
    report = broker.clean(dry_run=True)
    assert [len(report.cleaned), len(report.not_cleaned)] == ([1, 0] if ends == "well" else [0, 1])
    assert cleaner_checkpoint(broker) == {}
    assert broker.cleaner.uncleanable() == ()
    assert broker.cleaner.states.of(USERS) is None


# --- how many passes --------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "taken"), (("offset", 0), ("timestamp", 1)))
def test_a_bound_of_passes_counts_the_entry_of_the_clean_sections_last_record(
    strategy: str, taken: int
) -> None:
    """With versions that record takes an entry, so a full map of keys needs another pass."""
    broker = new_broker()
    topic(broker, compaction_strategy=strategy)
    cleaner = broker.cleaner
    most = cleaner.config.max_keys_of(Strategy(strategy)) - taken
    state = cleaner.chooser.state_of(broker.log("users"))
    for dirty, passes in ((0, 0), (1, 1), (most, 1), (most + 1, 2), (2 * most, 2)):
        found = state._replace(first_dirty_offset=7, upper_bound_offset=7 + dirty)
        assert cleaner.passes_bound(broker.log("users"), found) == passes, dirty
