"""Every command counts the same records as committed: those that a `READ_COMMITTED` reader gets.

One history has a committed, an aborted and an open transaction, the first two across segments, the
last of a producer that committed before, and records behind it.
"""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from logstore import Broker, Cluster, TopicPartition, VirtualClock
from logstore.analysis.committed import CommittedData
from logstore.analysis.diff import PartitionDiff
from logstore.analysis.summary import inspect_partition
from logstore.analysis.view import PartitionView
from logstore.cli.main import main
from logstore.storage.log.reader import Isolation
from logstore.types import AppendOrigin
from tests.support.world.cleaning import Producer

TP = TopicPartition("t", 0)
COMPACT = {"cleanup.policy": "compact"}

TABLE = {b"a": b"committed", b"b": b"committed", b"c": b"committed", b"d": b"plain"}
STATES = {
    0: "committed",  # a=plain
    1: "committed",  # a=committed, 2 in the next segment
    2: "committed",  # b=committed
    4: "aborted",  # a=aborted, c=aborted
    5: "aborted",
    6: "aborted",  # b deleted, in the next segment
    8: "committed",  # c=committed, of the producer of 11
    10: "committed",  # d=plain
    11: "open_transaction",  # c deleted, a=open
    12: "open_transaction",
    13: "unstable",  # d deleted, by no transaction
    14: "unstable",  # e=behind, of a committed transaction
    16: "aborted",  # d=aborted
}
MARKERS = (3, 7, 9, 15, 17)


def write(log):
    """Append the history to a log."""
    first, second, third = (Producer(log, number) for number in (1, 2, 3))
    plain = Producer(log, 4)
    plain.send((b"a", b"plain"), transactional=False)
    first.send((b"a", b"committed"))
    log.writer.roll()
    first.send((b"b", b"committed"))
    first.commit()
    second.send((b"a", b"aborted"), (b"c", b"aborted"))
    log.writer.roll()
    second.send((b"b", None))
    second.abort()
    third.send((b"c", b"committed"))
    third.commit()
    plain.send((b"d", b"plain"), transactional=False)
    third.send((b"c", None), (b"a", b"open"))
    log.writer.roll()
    plain.send((b"d", None), transactional=False)
    first.send((b"e", b"behind"))
    first.commit()
    second.send((b"d", b"aborted"))
    second.abort()


@pytest.fixture(params=("memory", "disk", "cluster of 1", "cluster of 3"))
def broker(request, tmp_path):
    """A broker with the history, alone or a partition's leader."""
    if not request.param.startswith("cluster"):
        data_dir = tmp_path / "data" if request.param == "disk" else None
        with Broker(data_dir, clock=VirtualClock()) as broker:
            broker.create_topic("t", configs=COMPACT)
            write(broker.log(TP))
            yield broker
        return
    with Cluster(brokers=int(request.param[-1]), clock=VirtualClock()) as cluster:
        replicas = int(request.param[-1])
        cluster.create_topic("t", replication_factor=replicas, configs=COMPACT)
        log = cluster.leader_log(TP)
        write(log)
        cluster.run_until(lambda: log.high_watermark == log.log_end_offset, timeout=60_000)
        yield cluster.brokers[cluster.leader(TP)]


def test_the_states_match_a_reader_of_committed_data(broker):
    log = broker.log(TP)
    committed = CommittedData(log)
    states = {
        record.offset: committed.state_of(batch.header)
        for batch, record in log.reader.records(0, isolation=Isolation.LOG_END)
    }
    assert states == STATES
    read = {each.offset for each in broker.read(TP, isolation="read_committed")}
    assert read == {offset for offset, state in STATES.items() if state == "committed"}


def test_a_committed_record_behind_an_open_transaction_is_not_of_its_producers_next_one():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs=COMPACT)
        log = broker.log(TP)
        first, second = Producer(log, 1), Producer(log, 2)
        first.send((b"a", b"open"))
        second.send((b"b", b"committed"))
        second.commit()
        second.send((b"b", b"open"))
        states = {place.offset: place.state for place in broker.erasure("t", b"b").places}
        assert states == {1: "unstable", 3: "open_transaction"}
        first.commit()
        states = {place.offset: place.state for place in broker.erasure("t", b"b").places}
        assert states == {1: "live", 3: "open_transaction"}


def test_records_that_are_not_replicated_are_not_committed():
    """A transaction counts once its marker is below the high watermark."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs=COMPACT)
        log = broker.log(TP)
        producer = Producer(log, 1)
        producer.send((b"a", b"1"))
        log.offsets.freeze_high_watermark()
        producer.commit()
        [(batch, _)] = log.reader.records(0, isolation=Isolation.LOG_END)
        assert CommittedData(log).state_of(batch.header) == "unstable"
        log.offsets.set_high_watermark(2)
        assert CommittedData(log).state_of(batch.header) == "committed"


def test_table_stats_and_inspect_count_committed_records(broker):
    assert broker.table("t") == TABLE
    stats = broker.stats(TP)
    assert (stats.live_keys, stats.live_records, stats.tombstones) == (4, 4, 0)
    assert stats.dead == {
        "superseded": 1,
        "tombstone": 0,
        "aborted": 4,
        "open_transaction": 2,
        "unstable": 2,
        "control": len(MARKERS),
        "below_log_start": 0,
    }
    assert stats.live_records + stats.dead_records == stats.records
    summary = inspect_partition(broker, TP, deep=True)
    assert (summary.live_keys, summary.tombstones) == (4, 0)


def test_erasure_and_explain_give_each_record_its_commit_state(broker):
    states = {}
    explained = {}
    for key in (b"a", b"b", b"c", b"d", b"e"):
        states |= {place.offset: place.state for place in broker.erasure("t", key).places}
        [partition] = broker.explain("t", key=key).partitions
        explained |= {record.offset: record.state for record in partition.key.records}
    live = {0: "superseded", 1: "live", 2: "live", 8: "live", 10: "live"}
    assert states == explained == {**STATES, **live}


def test_no_uncommitted_record_supersedes_another(broker):
    """In the fates, and in the cleaning pass that they foretell."""
    committed = {offset for offset, state in STATES.items() if state == "committed"}
    fates = list(broker.fates("t", force=True, roll=True))
    assert {each.offset for each in fates if each.fate == "superseded"} == {0}
    assert {each.superseded_by for each in fates} <= {None, *committed}
    broker.clean("t", force=True, roll=True)
    assert broker.table("t") == TABLE
    assert broker.stats(TP).live_records == 4


# -- diff --------------------------------------------------------------------------------------


def copied(source, *, without=(), ends=(), clean=False):
    """A broker with a copy of a log, without some batches, and with transactions ended."""
    broker = Broker(clock=VirtualClock())
    broker.create_topic("t", configs=COMPACT)
    log = broker.log(TP)
    for batch in source.reader.batches(0, isolation=Isolation.LOG_END):
        if batch.header.base_offset not in without:
            log.writer.append_batches(batch.data, AppendOrigin.REPLICATION)
    for producer_id, commit in ends:
        log.writer.append_end_txn_marker(producer_id, 0, 0, commit=commit)
    if clean:
        broker.clean("t", force=True, roll=True)
    return broker


def fates_between(before, after):
    """Return the fates that are not `retained` or `added`, by offset, and the whole diff."""
    diff = PartitionDiff(PartitionView(before, TP), PartitionView(after, TP))
    fates = {each.offset: (each.fate, each.superseded_by) for each in diff}
    kept = ("retained", "added")
    return {offset: fate for offset, fate in fates.items() if fate[0] not in kept}, diff


def test_diff_reports_a_committed_record_as_lost_that_no_committed_one_supersedes(broker):
    with closing(copied(broker.log(TP), without=(0, 8, 10))) as after:
        fates, diff = fates_between(broker, after)
    assert fates == {0: ("superseded", 1), 8: ("lost", None), 10: ("lost", None)}
    assert not diff.is_explained


@pytest.mark.parametrize(("batch", "lost"), ((11, (11, 12)), (13, (13,)), (14, (14,))))
def test_diff_reports_a_record_as_lost_that_is_not_committed_yet(broker, batch, lost):
    with closing(copied(broker.log(TP), without=(batch,))) as after:
        fates, diff = fates_between(broker, after)
    assert fates == dict.fromkeys(lost, ("lost", None))
    assert not diff.is_explained


@pytest.mark.parametrize(
    ("commit", "expected"),
    (
        (True, {0: 12, 1: 12, 8: 11, 10: 13}),
        (False, {0: 1, 10: 13, 11: "aborted", 12: "aborted"}),
    ),
)
@pytest.mark.parametrize("has_next", (False, True))
def test_diff_knows_from_the_second_copy_how_a_transaction_ended(
    broker, commit, expected, has_next
):
    """It was open when the first copy was made, and all its data may be gone from the second.

    The first marker counts: the producer's next transaction may end in another way.
    """
    ends = [(3, commit), (3, not commit)] if has_next else [(3, commit)]
    with closing(copied(broker.log(TP), ends=ends, clean=True)) as after:
        fates, diff = fates_between(broker, after)
    found = {offset: by if fate == "superseded" else fate for offset, (fate, by) in fates.items()}
    aborted = dict.fromkeys((4, 5, 6, 16), "aborted")
    assert {**found, **dict.fromkeys(MARKERS)} == {**expected, **aborted, **dict.fromkeys(MARKERS)}
    assert diff.is_explained


def test_diff_lets_an_appended_record_supersede():
    """It was appended and cleaned between the two copies."""
    with Broker(clock=VirtualClock()) as before:
        before.create_topic("t", configs=COMPACT)
        before.append("t", key=b"a", value=b"1")
        with closing(copied(before.log(TP))) as after:
            after.append("t", key=b"a", value=b"2")
            after.clean("t", force=True, roll=True)
            fates, diff = fates_between(before, after)
        assert fates == {0: ("superseded", 1)}
        assert diff.is_explained


# -- the commands ------------------------------------------------------------------------------


@pytest.fixture
def output(tmp_path, capsys):
    """Run a command on a directory with the history; return its JSON."""
    from click.testing import CliRunner

    data_dir = tmp_path / "data"
    broker = Broker(data_dir, clock=VirtualClock())
    broker.create_topic("t", configs=COMPACT)
    write(broker.log(TP))
    broker.log(TP).flush(force=True)
    broker._kill()

    def call(*args):
        found = CliRunner().invoke(main, [*args, "--data-dir", str(data_dir), "--format", "jsonl"])
        assert found.exit_code == 0, found.output
        return [json.loads(line) for line in found.stdout.splitlines()]

    return call


def test_commands_on_a_directory_count_committed_records(output, tmp_path):
    rows = output("read", "t", "--latest-per-key")
    assert {row["key"].encode(): row["value"].encode() for row in rows} == TABLE
    rows = output("read", "t", "--latest-per-key", "--isolation", "read_uncommitted")
    assert [row["offset"] for row in rows] == [12, 14, 16]
    assert {row["offset"] for row in output("read", "t")} == set(STATES)
    [found] = output("inspect", "t", "--deep")
    assert (found["live_keys"], found["tombstones"]) == (4, 0)
    [found] = output("stats", "t")
    assert (found["live_keys"], found["dead"]["superseded"]) == (4, 1)
    output("export", "t", "--out", str(tmp_path / "t.jsonl"))
    exported = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert {row["superseded_by"] for row in exported} <= {None, 1}
