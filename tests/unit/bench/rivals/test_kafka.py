"""Where Kafka's classes cannot run, lines say so and are measured all the same."""

import pytest

from logstore.bench.micro.setting import Setting
from logstore.bench.rivals import kafka
from logstore.bench.rivals.kafka import KafkaPeer, Unavailable


def test_a_missing_jdk_is_reported(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"not on the PATH: java, javac, mvn"):
        KafkaPeer()


def test_an_installation_has_no_peer(monkeypatch, tmp_path):
    monkeypatch.setattr(kafka, "ROOT", tmp_path)
    with pytest.raises(Unavailable, match="built from a checkout's tests/interop"):
        KafkaPeer()


def test_a_setting_asks_once_and_keeps_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    said = []
    setting = Setting(tmp_path, report=said.append)
    assert setting.kafka() is None
    assert setting.kafka() is None
    assert setting.kafka_name.startswith("Kafka's classes did not run: not on the PATH: java")
    assert said == ["starting Kafka's classes on a JVM"]
    assert setting.kafka_versions == {}
    setting.close()
