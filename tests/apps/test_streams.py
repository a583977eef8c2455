"""Kafka Streams with `exactly_once_v2`: each record counts once, whichever process is killed.

The application has state: two aggregates, two repartition topics, three changelogs
(`StreamsApp.java`). The committed output has one record for each order and aggregate, so its
values must be those of a model one by one: a record that is processed twice, or lost, or a store
that is restored wrongly shows as a gap or a repetition.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.apps.brokers import LAYOUTS
from tests.apps.processes import JavaProgram
from tests.apps.traffic import (
    Load,
    Order,
    Reader,
    committed_of,
    create_topics,
    ends_of,
    order,
)

pytestmark = [pytest.mark.apps, pytest.mark.timeout(900)]

PARTITIONS = 4
APPLICATION = "shop"

SETTINGS = {
    "application.id": APPLICATION,
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "100",
    "num.stream.threads": "2",
    "num.standby.replicas": "1",
    "replication.factor": "-1",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
    "reconnect.backoff.max.ms": "500",
    # Streams ends with INVALID_TXN_STATE if it commits a transaction that has timed out. Its
    # default of 10 s is too short for a broker that fails while the machine is busy.
    "producer.transaction.timeout.ms": "30000",
    # Every update is written, so that the output can be compared one by one.
    "statestore.cache.max.bytes": "0",
    # Changelogs are cleaned while the application runs.
    "topic.segment.ms": "3000",
    "topic.min.cleanable.dirty.ratio": "0.01",
    "topic.delete.retention.ms": "1000",
}


class Instance(JavaProgram):
    """An instance of the application, with local state that outlives it."""

    def __init__(self, class_path: str, home: Path, name: str, bootstrap: str) -> None:
        self._state = home / f"{name}-state"
        settings = {**SETTINGS, "bootstrap.servers": bootstrap, "state.dir": str(self._state)}
        super().__init__(class_path, "apps.StreamsApp", home, name, settings)

    def start(self) -> None:
        """Start, and return once all tasks run."""
        super().start()
        self.wait_for("state RUNNING")

    def lose_state(self) -> None:
        """Remove the local state: it must be restored from the changelogs."""
        shutil.rmtree(self._state)


def totals_of(orders: Iterable[Order]) -> dict[str, list[str]]:
    """Return the sum of each customer after each order."""
    totals: dict[str, list[str]] = defaultdict(lambda: ["0"])
    for each in orders:
        totals[each.customer].append(str(int(totals[each.customer][-1]) + each.amount))
    return {customer: sums[1:] for customer, sums in totals.items()}


def counts_of(orders: Iterable[Order]) -> dict[str, list[str]]:
    """Return the count of each item after each order."""
    ordered = Counter(each.item for each in orders)
    return {item: [str(n) for n in range(1, count + 1)] for item, count in ordered.items()}


def regions_of(orders: Iterable[Order]) -> dict[str, str]:
    """Return the sum of each region at the end."""
    sums: Counter[str] = Counter()
    for each in orders:
        sums[each.region] += each.amount
    return {region: str(total) for region, total in sums.items()}


def message(number: int) -> tuple[str, str]:
    """Return an order as the application reads it."""
    each = order(number)
    return each.customer, f"{each.item} {each.amount}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_committed_output_matches_the_model(layout, apps, classes, figures, tmp_path):
    row = figures("Streams", layout)
    with LAYOUTS[layout](tmp_path / "brokers") as brokers:
        bootstrap = brokers.bootstrap
        create_topics(bootstrap, {"orders": PARTITIONS, "totals": 2, "counts": 3})
        create_topics(bootstrap, {"regions": 1}, {"cleanup.policy": "compact"})
        with (
            Load(bootstrap, "orders", message) as load,
            Reader(bootstrap, ["totals", "counts"]) as reader,
            Instance(classes, tmp_path, "one", bootstrap) as one,
            Instance(classes, tmp_path, "two", bootstrap) as two,
        ):

            def go_on() -> None:
                """Let more orders be sent and processed."""
                await_output(load.count + 200)

            def await_output(count: int) -> None:
                reader.await_output(count, (brokers, one, two), ("totals", "counts"))

            one.start()
            go_on()
            two.start()
            go_on()
            one.kill()
            go_on()
            one.start()
            go_on()
            for _ in brokers.endings():
                go_on()
            two.stop()
            two.lose_state()
            go_on()
            two.start()
            go_on()
            for _ in brokers.restarts():
                go_on()
            one.kill()
            two.kill()
            for _ in brokers.endings():
                pass
            one.lose_state()
            one.start()
            two.start()
            go_on()

            sent = load.end()
            await_output(sent)
            one.stop()
            two.stop()
            reader.finish()
            printed = (one.output() + two.output()).splitlines()
            assert not [line for line in printed if line.startswith("error ")]
            row.records_in, row.records_out = sent, len(reader.messages)
            row.restarts, row.kills = one.stops + two.stops - 2, one.kills + two.kills
            row.broker_restarts, row.broker_kills = brokers.stops, brokers.kills

        orders = [order(number) for number in range(sent)]
        row.compare("totals", totals_of(orders), reader.by_key("totals"))
        row.compare("counts", counts_of(orders), reader.by_key("counts"))
        with Reader(bootstrap, ["regions"]) as tables:
            tables.finish()
            found = {region: values[-1] for region, values in tables.by_key("regions").items()}
        row.compare("regions", regions_of(orders), found)
        committed = committed_of(bootstrap, APPLICATION)
        ends = ends_of(bootstrap, ["orders"])
        row.compare("committed offsets", ends, {place: committed.get(place) for place in ends})
        brokers.check()
        row.result = "equal"
