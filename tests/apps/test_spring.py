"""Spring for Kafka: a listener whose offsets and records are committed in one transaction.

Some records fail once, and are tried again; some fail always, and go to a dead-letter topic
(`SpringApp.java`). Whatever ends, each order leads to one invoice or to one dead letter.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.apps.brokers import LAYOUTS
from tests.apps.processes import JavaProgram
from tests.apps.traffic import Load, Reader, committed_of, create_topics, ends_of, order

pytestmark = [pytest.mark.apps, pytest.mark.timeout(900)]

FAILS_ALWAYS = 97
"""Each order with a number that this divides is refused by the application."""


def message(number: int) -> tuple[str, str]:
    """Return an order as the application reads it."""
    return order(number).customer, str(number)


@pytest.mark.parametrize("layout", ("one broker", "one by one"))
def test_each_order_leads_to_one_invoice_or_one_dead_letter(
    layout, apps, classes, figures, tmp_path
):
    row = figures("Spring", layout)
    with LAYOUTS[layout](tmp_path / "brokers") as brokers:
        bootstrap = brokers.bootstrap
        create_topics(bootstrap, {"orders": 3, "invoices": 2, "orders-dlt": 3})
        settings = {"bootstrap.servers": bootstrap, "fails.always": str(FAILS_ALWAYS)}
        with (
            Load(bootstrap, "orders", message, per_second=6) as load,
            Reader(bootstrap, ["invoices", "orders-dlt"]) as reader,
            JavaProgram(classes, "apps.SpringApp", tmp_path, "spring", settings) as app,
        ):

            def await_output(count: int) -> None:
                reader.await_output(count, (brokers, app))

            def go_on() -> None:
                await_output(load.count + 25)

            def start() -> None:
                app.start()
                app.wait_for("started")
                go_on()

            start()
            app.kill()
            start()
            app.stop()
            start()
            for _ in brokers.endings():
                go_on()
            for _ in brokers.restarts():
                go_on()
            app.kill()
            for _ in brokers.endings():
                pass
            start()
            sent = load.end()
            await_output(sent)
            app.stop()
            reader.finish()
            row.records_in, row.records_out = sent, len(reader.messages)
            row.restarts, row.kills = app.stops - 1, app.kills
            row.broker_restarts, row.broker_kills = brokers.stops, brokers.kills

        found = Counter((each.topic(), int(each.value())) for each in reader.messages)
        expected = Counter(
            ("invoices" if number % FAILS_ALWAYS else "orders-dlt", number)
            for number in range(sent)
        )
        row.compare("orders", expected, found)
        committed, ends = committed_of(bootstrap, "billing"), ends_of(bootstrap, ["orders"])
        row.compare("committed offsets", ends, {place: committed.get(place) for place in ends})
        brokers.check()
        row.result = "equal"
