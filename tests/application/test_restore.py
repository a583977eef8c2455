"""Loops of docs/RECIPES.md that read a topic to its end, with every client and layout."""

import ast
import asyncio
import re
from contextlib import closing
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from logstore import Broker, Cluster, VirtualClock
from tests.support.world.replicated import TP, ReplicatedLog

PAGE = Path(__file__).resolve().parents[2] / "docs" / "RECIPES.md"

QUIET_MS = 500
"""Far above the fetch wait of these consumers, which is 20 ms."""


def loops():
    """Return the functions named `restore` of the page, in its order."""
    text = PAGE.read_text(encoding="utf-8").partition("## Read a topic to its end")[2]
    text = text.partition("\n## ")[0]
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        tree = ast.parse(code)
        tree.body = [
            each
            for each in tree.body
            if isinstance(each, ast.Import | ast.ImportFrom)
            or getattr(each, "name", None) == "restore"
        ]
        names = {}
        exec(compile(tree, PAGE.name, "exec"), names)
        yield names["restore"]


with_positions, with_aiokafka, with_confluent = loops()


def in_process(world, level, _):
    return with_positions(world.broker.consumer(isolation_level=level), TP.topic, QUIET_MS)


def kafka_python(_, level, bootstrap):
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=level, fetch_max_wait_ms=20
        )
    ) as consumer:
        return with_positions(consumer, TP.topic, QUIET_MS)


def aiokafka_s(_, level, bootstrap):
    async def restored():
        async with aiokafka.AIOKafkaConsumer(
            TP.topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level=level,
            fetch_max_wait_ms=20,
        ) as consumer:
            return await with_aiokafka(consumer, QUIET_MS)

    return asyncio.run(restored())


def confluent(_, level, bootstrap):
    configs = {
        "bootstrap.servers": bootstrap,
        "group.id": "restore",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": level,
        "fetch.wait.max.ms": 20,
    }
    with closing(confluent_kafka.Consumer(configs)) as consumer:
        return with_confluent(consumer, TP.topic, QUIET_MS / 1000)


def fill(world, shape):
    """Append the keys 0 and 1, and other records after them."""
    if shape == "hole within the last batch":
        world.batch(0, (0, 1), 4)
    else:
        world.batch(0, (0, 1), 1)
        world.bare_end(5)
    world.settle()


LAYOUTS = (
    ("memory", "read_uncommitted"),
    ("memory", "read_committed"),
    ("disk", "read_committed"),
    ("cluster of 1", "read_committed"),
    ("cluster of 3", "read_uncommitted"),
    ("cluster of 3", "read_committed"),
)


@pytest.fixture
def world(request, tmp_path):
    """Return the log, and a function that makes its owner listen."""
    layout = request.param
    if layout.startswith("cluster"):
        with Cluster(brokers=int(layout.split()[2])) as cluster:
            yield ReplicatedLog(cluster, list(cluster.brokers.values())), cluster.listen
    else:
        directory = tmp_path / "data" if layout == "disk" else None
        configs = {"offsets.topic.num.partitions": 1}
        with Broker(directory, clock=VirtualClock(), broker_config=configs) as broker:
            yield ReplicatedLog(broker, [broker]), broker.listen


@pytest.mark.parametrize(
    "shape",
    ("hole within the last batch", pytest.param("bare end", marks=pytest.mark.slow)),
)
@pytest.mark.parametrize("client", (in_process, kafka_python, aiokafka_s, confluent))
@pytest.mark.parametrize(("world", "level"), LAYOUTS, indirect=["world"])
def test_a_restore_ends(world, level, client, shape):
    log, listen = world
    fill(log, shape)
    bootstrap = None if client is in_process else listen().bootstrap
    assert client(log, level, bootstrap).keys() == {b"0", b"1"}


def test_a_restore_that_reaches_no_broker_fails():
    """An empty poll is not the end of the topic if the broker does not respond afterwards."""
    with Broker(clock=VirtualClock()) as broker:
        log = ReplicatedLog(broker, [broker])
        fill(log, "bare end")
        listener = broker.listen()

        class Consumer(kafka.KafkaConsumer):
            def poll(self, *args, **kwargs):
                polled = super().poll(*args, **kwargs)
                if not polled:
                    listener.close()
                return polled

        with (
            closing(
                Consumer(
                    bootstrap_servers=listener.bootstrap,
                    request_timeout_ms=500,
                    fetch_max_wait_ms=20,
                )
            ) as consumer,
            pytest.raises(kafka.errors.KafkaError),
        ):
            with_positions(consumer, TP.topic, QUIET_MS)
