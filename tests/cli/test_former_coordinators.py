"""Directories of clusters with former coordinators are read without a migration."""

from __future__ import annotations

import pytest

from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.cli.conftest import tree_hash
from tests.support.world.former_coordinators import unpack

COMMANDS = ("inspect", "check", "explain")
FOLDERS = ("broker-0", "broker-1", "broker-2", "coordinator")

BOUNDS = {
    "complete": {
        (GROUP_OFFSETS_TOPIC, 0): (3, 3),
        (GROUP_OFFSETS_TOPIC, 1): (6, 6),
        (TRANSACTION_STATE_TOPIC, 0): (15, 15),
        (TRANSACTION_STATE_TOPIC, 1): (5, 5),
    },
    "open": {
        (GROUP_OFFSETS_TOPIC, 0): (3, 3),
        (GROUP_OFFSETS_TOPIC, 1): (7, 6),
        (TRANSACTION_STATE_TOPIC, 0): (18, 18),
        (TRANSACTION_STATE_TOPIC, 1): (5, 5),
    },
    "fault": {  # without markers in `__consumer_offsets`
        (GROUP_OFFSETS_TOPIC, 0): (2, 1),
        (GROUP_OFFSETS_TOPIC, 1): (3, 0),
        (TRANSACTION_STATE_TOPIC, 0): (12, 12),
        (TRANSACTION_STATE_TOPIC, 1): (4, 4),
    },
}
"""Log end and last stable offset of each partition of the former coordinators."""

RECORDS = {name: sum(end for end, _ in bounds.values()) for name, bounds in BOUNDS.items()}


@pytest.fixture(params=("writable", "read-only"))
def directories(request, tmp_path, monkeypatch):
    """The three directories; a read-only one refuses every change, unless root makes it."""
    path = unpack(tmp_path, monkeypatch)
    everything = [path, *path.rglob("*")]
    if request.param == "read-only":
        for each in everything:
            each.chmod(each.stat().st_mode & ~0o222)
    yield path
    for each in everything:
        each.chmod(each.stat().st_mode | 0o200)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_unmigrated_directory_is_read_and_left_unchanged(run, directories, name):
    cluster = directories / name
    before = tree_hash(cluster)
    bounds = {
        (each["topic"], each["partition"]): (each["log_end_offset"], each["last_stable_offset"])
        for each in run("inspect", "--data-dir", cluster / "coordinator", "--format", "json").json[
            "partitions"
        ]
    }
    assert bounds == BOUNDS[name]
    checked = run("check", cluster / "coordinator", "--format", "json").json
    assert (checked["findings"], checked["records"]) == ([], RECORDS[name])
    explained = run("explain", "--data-dir", cluster / "coordinator", "--format", "json").json
    stable = {
        (each["topic"], each["partition"]): gate["value"]
        for each in explained["partitions"]
        for gate in each["gates"]
        if gate["gate"] == "last_stable_offset"
    }
    assert stable == {tp: stable_offset for tp, (_, stable_offset) in BOUNDS[name].items()}
    for folder in FOLDERS:
        for command in COMMANDS:
            run(command, "--data-dir", cluster / folder)
    assert tree_hash(cluster) == before


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_cluster_directory_message_names_the_location_of_groups(
    run, directories, name, command
):
    cluster = directories / name
    before = tree_hash(cluster)
    message = run(command, "--data-dir", cluster, code=2).stderr
    assert f"{cluster} is the directory of a cluster" in message
    assert f"__consumer_offsets and __transaction_state are in {cluster}/coordinator" in message
    assert tree_hash(cluster) == before
