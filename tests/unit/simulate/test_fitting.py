"""Fitting: what cannot be known takes a default, and is said; what is said is a scenario."""

import numpy as np
import pytest

from logstore import Broker
from logstore.errors import InvalidConfigurationError, KafkaStorageError
from logstore.runtime import VirtualClock
from logstore.simulate import parse, run
from logstore.simulate.fitting import fit_recording
from logstore.simulate.population import KnownPopulation
from logstore.simulate.recording import record
from logstore.simulate.scenario import KnownKeys
from logstore.workload.spec import Spec

START_MS = VirtualClock().now_ms()
COMPACT = {"cleanup.policy": "compact"}


def directory(path, rows, configs=COMPACT):
    """Write a topic of one partition; a row is (key, value, timestamp)."""
    with Broker(path, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs=configs)
        for key, value, timestamp in rows:
            broker.append("t", key=key, value=value, timestamp=timestamp)
    return str(path)


@pytest.mark.parametrize(
    ("rows", "configs", "notes", "per_day"),
    (
        ([], COMPACT, ["the topic is empty: no records are simulated", "100 bytes"], 0),
        (
            [(b"k", b"v", START_MS)],
            COMPACT,
            ["all records are from 0 minutes", "1 uncleaned records are too few"],
            1,
        ),
        (
            [(b"%d" % (n % 7), b"v", START_MS) for n in range(120)],
            COMPACT,
            [
                "all records are from 0 minutes, too few to estimate a daily rate: "
                "120 records per day"
            ],
            120,
        ),
        (
            [(None, b"v" * n, START_MS + n * 3_600_000) for n in range(1, 120)],
            {"cleanup.policy": "delete"},
            ["no record has a key"],
            24,
        ),
    ),
    ids=("nothing", "one record", "all at once", "no keys"),
)
def test_what_cannot_be_fitted_is_said_and_takes_a_default(rows, configs, notes, per_day, tmp_path):
    found = fit_recording(record(directory(tmp_path / "data", rows, configs)), days=1)
    for text in notes:
        assert any(text in note for note in found.notes), found.notes
    assert found.scenario.tree["topics"][0]["records_per_day"] == pytest.approx(per_day, rel=0.02)
    assert parse(found.text) == found.scenario
    assert run(parse(found.text), samples=2).digests.keys() == {"t-0"}


def test_a_timestamp_in_the_future_is_no_start(tmp_path):
    path = directory(tmp_path / "data", [(b"k", b"v", 32_503_680_000_000)])
    found = fit_recording(record(path), days=1)
    assert found.scenario.start_ms < 32_503_680_000_000
    assert any("is in the future" in note for note in found.notes)
    assert fit_recording(record(path), now_ms=START_MS).scenario.start_ms == START_MS


def test_values_codecs_deletes_and_lateness_are_those_that_came(tmp_path):
    rng = np.random.default_rng(1)
    rows = []
    for n in range(400):
        size = int(np.clip(np.exp(rng.normal(5, 0.4)), 20, 900))
        late = 7_200_000 if n % 4 == 3 else 0
        value = None if n % 10 == 9 else b"x" * size
        rows.append((b"%d" % (n * 7 % 90), value, START_MS + n * 600_000 - late))
    configs = {**COMPACT, "compression.type": "zstd"}
    found = fit_recording(record(directory(tmp_path / "data", rows, configs)), days=1)
    (topic,) = found.scenario.tree["topics"]
    assert topic["records_per_day"] == pytest.approx(144, rel=0.02)
    assert topic["deletes"]["share"] == pytest.approx(0.1, abs=0.01)
    assert topic["values"]["sizes"] == "lognormal"
    assert topic["values"]["bytes"] == pytest.approx(148, rel=0.15)
    assert topic["values"]["sigma"] == pytest.approx(0.4, rel=0.15)
    assert topic["batches"] == {"min_records": 1, "max_records": 1, "codec": "zstd"}
    assert topic["time"]["late_share"] == pytest.approx(0.25, abs=0.01)
    assert 6_000_000 < topic["time"]["late_ms"] <= 7_200_000


def test_keys_beyond_the_bound_are_known_but_not_written(tmp_path):
    rows = [(b"%d" % n, b"v", START_MS + n * 60_000) for n in range(300)]
    path = directory(tmp_path / "data", rows)
    found = record(path, keys_max=50, arrivals_max=100)
    keys = found.topics["t"].keys
    assert (keys.count, keys.held) == (300, 50)
    notes = fit_recording(found).notes
    assert any("only the 50 last written of 300 keys are written again" in note for note in notes)


@pytest.mark.parametrize("recent", (0, 20))
def test_a_population_knows_its_keys_again(recent, tmp_path):
    rows = [(b"%d" % (n % 40), b"v", START_MS + n * 60_000) for n in range(200)]
    found = record(directory(tmp_path / "data", rows)).topics["t"]
    words = KnownKeys(new_share=0.2, recent=recent)
    population = KnownPopulation(found, words, {}, Spec(records=5_000))
    numbers = population.numbers(0, np.arange(5_000))
    new = numbers >= found.keys.count
    assert (numbers >= 0).all()
    assert new.mean() == pytest.approx(0.2, abs=0.02) if not recent else new.mean() > 0.5

    class Block:
        key_number = numbers

    column = population.column(Block())
    assert population.numbers_in(0, column).tolist() == numbers.tolist()
    assert len({column[row] for row in range(5_000)}) == len(np.unique(numbers))


TOPIC = 'from = "x"\n[[topics]]\nname = "t"\ncontinued = true\n'


@pytest.mark.parametrize(
    ("text", "told"),
    (
        ('[[topics]]\nname = "t"\ncontinued = true', "but the scenario has no from"),
        ('from = "x"\n[[topics]]\nname = "t"\nrecords = 0', "no topic has continued = true"),
        (TOPIC + "partitions = 2", "a continued topic keeps the partitions that it has"),
        (TOPIC + "keys.new_shares = 1", "nearest is 'new_share'"),
        (
            TOPIC + "keys = { new_share = 0.6, quiet_share = 0.6 }",
            "the sum of new_share, quiet_share and null_share is above 1",
        ),
        (TOPIC + "partition_shares = { a = 1 }", "must map partition numbers to shares"),
        (TOPIC + "partition_shares = { 0 = 0 }", "all shares in topics.t.partition_shares are 0"),
        (TOPIC + "records = 1\nrecords_per_day = 1", "use one of them"),
        (TOPIC + 'configs = { "cleanup.policy" = "compact" }\nkeys.null_share = 0.1', "null_share"),
        (TOPIC + '[[actions]]\ndo = "add-partitions"\ntopic = "t"\npartitions = 3', "is continued"),
        ("directories = 2\n" + TOPIC, "has 1 data directory, not 2"),
    ),
)
def test_what_contradicts_itself_is_refused(text, told):
    with pytest.raises(InvalidConfigurationError, match=told):
        parse(text)


def test_a_topic_that_cannot_be_opened_is_left_out_unless_it_is_named(tmp_path):
    path = directory(tmp_path / "data", [(b"k", b"v", START_MS)])
    with Broker(path, clock=VirtualClock()) as broker:
        broker.create_topic("damaged")
    segment = tmp_path / "data" / "damaged-0" / f"{0:020d}.log"
    segment.unlink()
    segment.mkdir()
    found = record(path)
    assert found.topics.keys() == {"t"}
    assert [text[:30] for text in found.left_out] == ["topic 'damaged' is left out: d"]
    with pytest.raises(KafkaStorageError, match="damaged-0"):
        record(path, ["t", "damaged"])
