"""Streams and Spring with coordinators that are killed in each state of a transaction.

`traps.Traps` stops the coordinator in the state until its broker is killed. The broker starts again
after some progress of the application. `LOGSTORE_APPS_KILLS` is the number of kills in each state.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.apps import test_spring as spring
from tests.apps import test_streams as streams
from tests.apps.brokers import OneByOne
from tests.apps.figures import Figures
from tests.apps.processes import JavaProgram
from tests.apps.traffic import (
    Load,
    Reader,
    committed_of,
    create_topics,
    ends_of,
    open_partitions,
    order,
)
from tests.apps.traps import STATES

COUNT = int(os.environ.get("LOGSTORE_APPS_KILLS", "2"))

pytestmark = [pytest.mark.apps, pytest.mark.timeout(600 + 150 * COUNT)]

IDLE_STATES = {"Empty", "CompleteCommit", "CompleteAbort"}


def say(line: str) -> None:
    """Print a line, for `pytest -s`."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def kill_in_each_state(
    brokers: OneByOne, group: str, go_on: Callable[[], None], row: Figures
) -> None:
    """Kill and restart coordinators, `COUNT` times in each state, and note the counts."""
    counts: Counter[str] = Counter()
    longest = 0.0
    for _ in range(COUNT):
        for state in STATES:
            killed, details = brokers.kill_coordinator(state, group)
            counts[state] += 1
            since = time.monotonic()
            go_on()
            after = [round(time.monotonic() - since, 1)]
            brokers.restart(killed)
            after.append(round(time.monotonic() - since, 1))
            go_on()
            after.append(round(time.monotonic() - since, 1))
            longest = max(longest, after[0], after[2] - after[1])
            say(f"{state}: {details}; brokers {killed}; output, restarted, output: {after} s")
    row.note = ", ".join(f"{state} {counts[state]}" for state in STATES)
    row.note += f"; output after {longest:.0f} s at most"
    assert counts == dict.fromkeys(STATES, COUNT)


def check_that_all_is_committed(brokers: OneByOne, row: Figures, group: str) -> None:
    """Check that no transaction is open, and that the group has read its input to the end."""
    bootstrap = brokers.bootstrap
    assert brokers.transaction_states() <= IDLE_STATES
    assert not open_partitions(bootstrap)
    committed, ends = committed_of(bootstrap, group), ends_of(bootstrap, ["orders"])
    row.compare("committed offsets", ends, {place: committed.get(place) for place in ends})
    brokers.check()
    row.result = f"equal; {row.note}"


def test_streams(apps, classes, figures, tmp_path):
    row = figures("Streams", "coordinators killed")
    with OneByOne(tmp_path / "brokers") as brokers:
        bootstrap = brokers.bootstrap
        create_topics(bootstrap, {"orders": streams.PARTITIONS, "totals": 2, "counts": 3})
        create_topics(bootstrap, {"regions": 1}, {"cleanup.policy": "compact"})
        with (
            Load(bootstrap, "orders", streams.message, per_second=60) as load,
            Reader(bootstrap, ["totals", "counts"]) as reader,
            streams.Instance(classes, tmp_path, "one", bootstrap) as one,
            streams.Instance(classes, tmp_path, "two", bootstrap) as two,
        ):

            def await_output(count: int) -> None:
                reader.await_output(count, (brokers, one, two), ("totals", "counts"))

            def go_on() -> None:
                await_output(load.count + 20)

            one.start()
            two.start()
            go_on()
            kill_in_each_state(brokers, streams.APPLICATION, go_on, row)
            sent = load.end()
            await_output(sent)
            one.stop()
            two.stop()
            reader.finish()
            printed = (one.output() + two.output()).splitlines()
            assert not [line for line in printed if line.startswith("error ")]
            row.records_in, row.records_out = sent, len(reader.messages)
            row.broker_kills = brokers.kills

        orders = [order(number) for number in range(sent)]
        row.compare("totals", streams.totals_of(orders), reader.by_key("totals"))
        row.compare("counts", streams.counts_of(orders), reader.by_key("counts"))
        with Reader(bootstrap, ["regions"]) as tables:
            tables.finish()
            found = {region: values[-1] for region, values in tables.by_key("regions").items()}
        row.compare("regions", streams.regions_of(orders), found)
        check_that_all_is_committed(brokers, row, streams.APPLICATION)


def test_spring_app(apps, classes, figures, tmp_path):
    row = figures("Spring", "coordinators killed")
    with OneByOne(tmp_path / "brokers") as brokers:
        bootstrap = brokers.bootstrap
        create_topics(bootstrap, {"orders": 3, "invoices": 2, "orders-dlt": 3})
        refused = spring.FAILS_ALWAYS
        settings = {"bootstrap.servers": bootstrap, "fails.always": str(refused)}
        with (
            Load(bootstrap, "orders", spring.message, per_second=6) as load,
            Reader(bootstrap, ["invoices", "orders-dlt"]) as reader,
            JavaProgram(classes, "apps.SpringApp", tmp_path, "spring", settings) as app,
        ):

            def await_output(count: int) -> None:
                reader.await_output(count, (brokers, app))

            def go_on() -> None:
                await_output(load.count + 5)

            app.start()
            go_on()
            kill_in_each_state(brokers, "billing", go_on, row)
            sent = load.end()
            await_output(sent)
            app.stop()
            reader.finish()
            row.records_in, row.records_out = sent, len(reader.messages)
            row.broker_kills = brokers.kills

        invoices: dict[str, list[str]] = {}
        for number in range(sent):
            if number % refused:
                invoices.setdefault(order(number).customer, []).append(str(number))
        row.compare("invoices", invoices, reader.by_key("invoices"))
        letters = {str(number): 1 for number in range(0, sent, refused)}
        found = Counter(
            each.value().decode() for each in reader.messages if each.topic() == "orders-dlt"
        )
        row.compare("dead letters", letters, found)
        check_that_all_is_committed(brokers, row, "billing")
