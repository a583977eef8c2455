"""Every command refuses the directory of a cluster, and names the directory to use."""

from __future__ import annotations

import pytest

from logstore import Cluster, VirtualClock
from tests.cli.conftest import lines
from tests.support.world.special_files import files_below

COMMANDS = (
    "append broker --create",
    "append users --create",
    "topic list",
    "topic describe broker",
    "topic create users",
    "topic alter broker --set retention.ms=1",
    "topic delete broker",
    "broker describe",
    "broker alter --set log.retention.ms=1",
    "read broker",
    "roll broker",
    "clean",
    "clean --force --roll",
    "clean broker --dry-run",
    "explain",
    "explain broker",
    "retain",
    "retain --dry-run",
    "delete-records broker --before-offset 1",
    "offsets broker",
    "inspect",
    "inspect broker",
    "inspect {dir}",
    "stats",
    "stats {dir}",
    "diff {dir} {dir}",
    "erasure broker --key k",
    "check",
    "check {dir}",
    "salvage --out {out}",
    "salvage {dir} --out {out}",
    "export broker --out {out}.csv",
    "simulate --from {dir} --out {out}",
    "serve --listen 127.0.0.1:0",
    "ui",
    "ui {dir}",
)


@pytest.fixture
def cluster_dir(data_dir):
    with Cluster(2, clock=VirtualClock(), data_dir=data_dir) as cluster:
        cluster.create_topic("users", replication_factor=2)
        cluster.append("users", key=b"k", value=b"1")
    return data_dir


def test_each_command_refuses_it(run, cluster_dir, tmp_path):
    before = files_below(cluster_dir)
    for command in COMMANDS:
        arguments = command.format(dir=cluster_dir, out=tmp_path / "out").split()
        outcome = run(*arguments, code=2, input=lines({"key": "a", "value": "b"}))
        expected = f"{cluster_dir} is the directory of a cluster"
        assert expected in outcome.stderr, (command, outcome)
        assert f"(--data-dir {cluster_dir}/broker-0)" in outcome.stderr
        assert f"(logstore serve --brokers 2 --data-dir {cluster_dir})" in outcome.stderr
    assert files_below(cluster_dir) == before
    assert not (tmp_path / "out").exists()


def test_the_directory_of_one_broker_is_read_and_checked(run, cluster_dir):
    broker = cluster_dir / "broker-0"
    assert "users" in run("topic", "list", "--data-dir", broker).stdout
    assert "nothing found" in run("check", broker).stdout
    assert "users" in run("inspect", broker).stdout
