"""The gauges as Prometheus' own parser reads them."""

from prometheus_client.parser import text_string_to_metric_families

from logstore import Broker, VirtualClock
from logstore.broker import prometheus
from logstore.broker.prometheus import _LOGS, prometheus_text


def scraped(broker):
    """Return every sample by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(prometheus_text(broker))
        for sample in family.samples
    }


def test_cleaners_and_logs_under_kafkas_names():
    broker = Broker(clock=VirtualClock(), background=True)
    broker.create_topic("users", 2, {"cleanup.policy": "compact"})
    for number in range(20):
        broker.append("users", value=b"v", key=b"k%d" % (number % 4), partition=1)
    broker.roll("users", 1)
    broker.clock.advance(ms=15_000)
    samples = scraped(broker)
    ours = broker.metrics()
    assert samples["kafka_log_logcleaner_cleaner_recopy_percent", ()] == 20
    assert ours.cleaner_recopy_percent == 20
    assert samples["kafka_log_logcleaner_deadthreadcount", ()] == 0
    here = (("logDirectory", "/memory"),)
    assert samples["kafka_log_logcleanermanager_uncleanable_bytes", here] == 0
    users = (("partition", "1"), ("topic", "users"))
    log = broker.log("users", 1)
    assert samples["kafka_log_log_size", users] == log.size_bytes
    assert samples["kafka_log_log_logendoffset", users] == 20
    assert samples["kafka_log_log_numlogsegments", users] == 2
    assert ("kafka_log_log_size", (("partition", "0"), ("topic", "users"))) in samples


def test_every_gauge_of_the_cleaner_is_there():
    broker = Broker(clock=VirtualClock())
    names = {name for name, _ in scraped(broker)}
    cleaner = {name for name in names if "logcleaner" in name}
    assert len(cleaner) == len(broker.metrics().to_json())


def test_a_log_that_is_deleted_meanwhile_is_left_out(monkeypatch):
    """Between the list of the logs and a look at one of them."""
    broker = Broker(clock=VirtualClock())
    for topic in ("gone", "stays"):
        broker.create_topic(topic)
        broker.append(topic, value=b"v", key=b"k")
    logs = list(broker.manager.registry.open_logs())
    assert len(logs) == 2
    broker.delete_topic("gone")
    monkeypatch.setattr(broker.manager.registry, "open_logs", lambda: logs)
    topics = [
        (name, dict(labels)["topic"])
        for name, labels in scraped(broker)
        if name.startswith("kafka_log_log_")
    ]
    assert topics == [(name, "stays") for name, _, _ in _LOGS]


def test_a_log_that_is_deleted_while_it_is_measured_is_left_out_of_every_gauge(monkeypatch):
    broker = Broker(clock=VirtualClock())
    broker.create_topic("gone")

    def deleting(log):
        broker.delete_topic("gone")
        return 7

    name, text, _ = _LOGS[-1]
    monkeypatch.setattr(prometheus, "_LOGS", (*_LOGS[:-1], (name, text, deleting)))
    assert not [name for name, _ in scraped(broker) if name.startswith("kafka_log_log_")]
