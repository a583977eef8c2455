"""`logstore serve`: a process that says where it is, serves, and stops when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from logstore import Broker
from logstore.messages.types import MetadataRequest, ProduceRequest
from tests.support.world.builders import batch
from tests.support.world.wire import Client, Listening

PROGRAM = [sys.executable, "-m", "logstore", "serve", "--listen", "127.0.0.1:0"]


@contextmanager
def serving(*arguments):
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOGSTORE_VERIFY": "0"},
        # The suite may run in the background, where Ctrl-C is not heeded.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process, Listening(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def produce_of(topic):
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(0))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


@pytest.mark.parametrize(
    ("number", "code"), ((signal.SIGTERM, 0), (signal.SIGINT, 130)), ids=("term", "ctrl-c")
)
def test_it_serves_a_data_directory_until_it_is_told_to_stop(tmp_path, number, code):
    topics = ("--topic", "users:3:cleanup.policy=compact:segment.ms=1d", "--topic", "plain")
    with serving("--data-dir", tmp_path / "data", *topics) as (process, address):
        with Client(address) as client:
            answer = client.ask(MetadataRequest(topics=None), 9)
            found = {topic.name: len(topic.partitions) for topic in answer.topics}
            assert found == {"users": 3, "plain": 1}
            assert client.ask(produce_of("plain"), 9).responses[0].partition_responses[0]
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors.strip()) == (code, "", "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Broker(tmp_path / "data", read_only=True) as broker:
        assert [record.value for record in broker.read("plain")] == [b"v0"]
        configs = {"cleanup.policy": "compact", "segment.ms": "86400000"}
        assert dict(broker.topic("users").configs) == configs
    with serving("--data-dir", tmp_path / "data", *topics) as (process, address):
        with Client(address) as client:
            client.ask(MetadataRequest(topics=None), 9)
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert "topic users is there already, with 3 partitions" in errors
        assert process.returncode == 0


def test_in_memory_it_leaves_nothing_behind(tmp_path):
    with serving("--memory", "--data-dir", tmp_path / "data") as (process, address):
        with Client(address) as client:
            topics = [MetadataRequest.MetadataRequestTopic(name="new")]
            assert client.ask(MetadataRequest(topics=topics), 9).topics[0].error_code == 0
        process.terminate()
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--listen", "nowhere"), "'nowhere' is not HOST:PORT"),
        (("--listen", "127.0.0.1:0", "--topic", "t:0"), "is not NAME:PARTITIONS:K=V"),
        (("--listen", "127.0.0.1:0", "--topic", "t:x"), "is not NAME:PARTITIONS:K=V"),
        (("--listen", "127.0.0.1:0", "--topic", "t:1:key"), "'key' is not KEY=VALUE"),
        (("--listen", "no.such.host.invalid:0"), "cannot listen on no.such.host.invalid:0"),
        (("--listen", "127.0.0.1:0", "--topic", "t:1:no.such=1"), "unknown topic configuration"),
    ),
)
def test_what_cannot_be_served_is_refused_by_name(run, arguments, message):
    outcome = run("serve", "--memory", *arguments, code=2)
    assert message in outcome.stderr
    assert outcome.stdout == ""
