"""Fitting: unknown values get a default, which is reported; the result is a scenario."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from logstore import Broker
from logstore.errors import InvalidConfigurationError, KafkaStorageError
from logstore.runtime import VirtualClock
from logstore.simulate import fitting, parse, run
from logstore.simulate.fitting import _TopicFitter, fit_recording
from logstore.simulate.population import KnownPopulation
from logstore.simulate.recording import Arrivals, KeyTable, Rates, record
from logstore.simulate.scenario import KnownKeys
from logstore.types import DAY_MS, HOUR_MS
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
def test_values_that_cannot_be_fitted_get_a_reported_default(
    rows, configs, notes, per_day, tmp_path
):
    found = fit_recording(record(directory(tmp_path / "data", rows, configs)), days=1)
    for text in notes:
        assert any(text in note for note in found.notes), found.notes
    assert found.scenario.tree["topics"][0]["records_per_day"] == pytest.approx(per_day, rel=0.02)
    assert parse(found.text) == found.scenario
    assert run(parse(found.text), samples=2).digests.keys() == {"t-0"}


def test_a_timestamp_in_the_future_is_not_a_start(tmp_path):
    path = directory(tmp_path / "data", [(b"k", b"v", 32_503_680_000_000)])
    found = fit_recording(record(path), days=1)
    assert found.scenario.start_ms < 32_503_680_000_000
    assert any("is in the future" in note for note in found.notes)
    assert fit_recording(record(path), now_ms=START_MS).scenario.start_ms == START_MS


@pytest.mark.slow
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


def test_new_keys_belong_to_recorded_partitions(tmp_path):
    """The partitions of a recording need not begin at 0."""
    home = Path(directory(tmp_path / "data", [(b"a", b"v", START_MS)]))
    copied = (home / "t-0").rename(tmp_path / "t-3")
    found = record(str(copied)).topics["t"]
    population = KnownPopulation(found, KnownKeys(new_share=1.0), {}, Spec(records=100))
    numbers = np.arange(found.keys.count, found.keys.count + 20)
    assert set(population.partitions(numbers).tolist()) == {3}


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
def test_contradictions_are_refused(text, told):
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
    with pytest.raises(KafkaStorageError) as damaged:
        record(path, ["t", "damaged"])
    assert [*found.left_out] == [f"topic 'damaged' is left out: {damaged.value}"]
    assert str(damaged.value) == f"damaged-0 cannot be opened: {segment} is a folder"


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("sizes", "table"),
    (
        (ints(-1, -1), {"sizes": "fixed", "bytes": 0}),
        (ints(-1, 7, 7), {"sizes": "fixed", "bytes": 7}),
        (ints(*range(10, 210)), {"sizes": "uniform", "min_bytes": 10, "max_bytes": 209}),
        (
            np.rint(np.exp(np.linspace(2, 8, 300))).astype(np.int64),
            {"sizes": "lognormal", "bytes": 162, "sigma": 1.74, "min_bytes": 7, "max_bytes": 2981},
        ),
        (
            ints(0, 0, 0, 1, 50),
            {"sizes": "lognormal", "bytes": 3, "sigma": 1.56, "min_bytes": 0, "max_bytes": 50},
        ),
        (ints(1, 1_000_000, 2_000_000, 5, 5, 5, 5), {"sizes": "fixed", "bytes": 16_384}),
    ),
)
def test_sizes_of_values_fit_the_closest_distribution(sizes, table):
    assert fitting._values(sizes) == table


@pytest.mark.parametrize(
    ("share", "records", "keys", "unseen"),
    (
        (0.0, 100, 10, 0),
        (0.5, 100, 50, 0),  # the growth is linear
        (0.1, 1_000, 400, 171),
        (0.01, 1_000, 900, 14),
        (0.2, 10, 1, 2),
    ),
)
def test_unseen_keys_grow_like_a_power_law(share, records, keys, unseen):
    assert fitting._unseen_keys(share, records, keys) == unseen


def test_the_deviation_of_chaos_estimate():
    assert fitting._chao_deviation(3, 0) == np.inf
    assert fitting._chao_deviation(4, 2) == pytest.approx(28**0.5)
    assert fitting._chao_deviation(0, 5) == 0.0


def test_shares_of_records_with_keys_become_shares_of_all_records():
    table = {"new_share": 0.123456, "quiet_share": 0.5, "unseen": 7, "discount": 0.5}
    assert fitting._scale_shares(table, 0.8) == {
        "new_share": 0.09876, "quiet_share": 0.4, "unseen": 7, "discount": 0.5,
    }  # fmt: skip


def arrivals_of(keys, is_first, step_ms=1_000):
    """Return arrivals of one partition."""
    count = len(keys)
    none = np.zeros(count, np.int64)
    times = START_MS + step_ms * np.arange(count)
    return Arrivals(times, none, none, np.array(keys), none + 10, np.array(is_first, np.bool_))


def topic_of(arrivals, held, count, records):
    """Return a recording with these arrivals, and batches before them."""
    keys = [b"%d" % number for number in range(held)] + [None] * (count - held)
    table = KeyTable(ints(*range(count)), ints(*range(count)), np.zeros(count, np.int64), keys)
    times = np.concatenate(([START_MS - DAY_MS], arrivals.time_ms))
    rows = np.concatenate(([records], np.ones(len(arrivals.key), np.int64)))
    return SimpleNamespace(
        keys=table, arrivals=arrivals, rates=Rates(times, np.zeros_like(times), rows)
    )


CANDIDATES = (
    # Keys 0 to 3 are written often, 4 and 5 twice, 6 to 9 once; 5, 8 and 9 are new.
    [0, 1, 2, 3] * 4 + [4, 5, 0, 6, 1, 7, 4, 5, 2, 8, 3, 9],
    [False] * 17 + [True] + [False] * 7 + [True, False, True],
)


@pytest.mark.parametrize(
    ("held", "records", "closed", "growing"),
    (
        (10, 0, {"new_share": 0.1429, "unseen": 4, "quiet_share": 0.0, "discount": 0.5}, 9),
        (16, 0, {"new_share": 0.04286, "unseen": 1, "quiet_share": 0.1, "discount": 0.5}, 2),
        (90, 900, {"new_share": 0.04286, "unseen": 92, "quiet_share": 0.1, "discount": 0.5}, 92),
    ),
)
def test_candidates_of_keys(held, records, closed, growing):
    arrivals = arrivals_of(*CANDIDATES)
    found = fitting._key_candidates(arrivals, topic_of(arrivals, held, held, records))
    opened = {"new_share": 0.2222, "quiet_share": 0.2222}
    assert found == [
        closed,
        {**closed, "unseen": growing},
        {**opened, "discount": 0.5},
        *({**opened, "recent": 16} for _ in range(3)),
    ]


def test_candidates_of_keys_that_are_all_written_once_or_often():
    arrivals = arrivals_of([*range(100)], [True] * 100)
    once, _, opened, *recent = fitting._key_candidates(arrivals, topic_of(arrivals, 100, 100, 0))
    assert once == {"new_share": 1.0, "unseen": 4_950, "quiet_share": 0.0, "discount": 0.999}
    assert opened == {"new_share": 1.0, "quiet_share": 0.0, "discount": 0.999}
    assert [each["recent"] for each in recent] == [50, 16, 16]
    arrivals = arrivals_of([0, 1] * 50, [False] * 100)
    often = fitting._key_candidates(arrivals, topic_of(arrivals, 2, 2, 0))[0]
    assert often == {"new_share": 0.0, "unseen": 1, "quiet_share": 0.0, "discount": 0.0}


def hourly(hours, records, begin_ms=4 * DAY_MS, per_hour=10):
    """Return rates with some batches in each hour, from a Monday on by default."""
    times = begin_ms + np.arange(hours * per_hour) * (HOUR_MS // per_hour)
    rows = np.array([records((time // HOUR_MS) % 24) for time in times.tolist()], np.int64)
    return Rates(times, np.zeros_like(times), rows)


def test_a_profile_needs_days_batches_and_a_difference_between_hours():
    begin = 4 * DAY_MS
    busy = hourly(48, lambda hour: 30 if hour < 6 else 3)
    weights = [3.1] * 5 + [2.82] + [0.31] * 17 + [0.434]  # interpolated between batches
    daily = {"profile": weights, "profile_days": 1.0}
    assert fitting._profile(busy, begin, begin + 2 * DAY_MS) == daily
    assert fitting._profile(busy, begin, begin + 2 * DAY_MS - 1) == {}
    even = hourly(48, lambda hour: 10)
    assert fitting._profile(even, begin, begin + 2 * DAY_MS) == {}
    few = hourly(48, lambda hour: 2 if hour < 6 else 1)  # 25 records for each hour of the profile
    assert fitting._profile(few, begin, begin + 2 * DAY_MS) == {}
    rare = hourly(48, lambda hour: 300 if hour < 6 else 3, per_hour=1)
    assert fitting._profile(rare, begin, begin + 2 * DAY_MS) == {}


def test_a_weekly_profile_begins_on_monday():
    begin = 6 * DAY_MS  # a Wednesday
    rates = hourly(14 * 24, lambda hour: 10, begin)
    weekday = (rates.time_ms // DAY_MS - 4) % 7
    rates = rates._replace(records=np.where(weekday == 5, 70, rates.records))  # Saturday
    found = fitting._profile(rates, begin, begin + 14 * DAY_MS)
    assert found["profile_days"] == 7.0
    by_day = np.array(found["profile"]).reshape(7, 24).mean(axis=1)
    assert by_day.round(2).tolist() == [0.54, 0.54, 0.54, 0.54, 0.55, 3.76, 0.54]


def test_records_between_times_are_interpolated_in_each_partition():
    rates = Rates(ints(0, 10, 10, 30, 5, 25), ints(0, 0, 0, 0, 1, 1), ints(5, 4, 3, 8, 2, 6))
    found = fitting._records_between(rates, ints(0, 10, 20, 40))
    assert found.tolist() == [10.5, 7.0, 5.5]


@pytest.mark.parametrize(
    ("value", "text"),
    (
        ({"a": 1, "b": "x"}, '{ a = 1, b = "x" }'),
        ([1, 2.0], "[1, 2.0]"),
        ('é"', '"é\\""'),
        (1e14, "100000000000000.0"),
        (1e22, "1e+22"),
        (-0.5, "-0.5"),
        (True, "true"),
        (3, "3"),
    ),
)
def test_a_value_in_toml(value, text):
    assert fitting._toml_value(value) == text


def test_a_scenario_starts_at_the_newest_timestamp_or_at_the_system_time(monkeypatch):
    monkeypatch.setattr(fitting, "SystemClock", lambda: SimpleNamespace(now_ms=lambda: 5_000))

    def start(*stamps, now_ms=None):
        notes = []
        topics = {str(n): SimpleNamespace(newest_ms=stamp) for n, stamp in enumerate(stamps)}
        return fitting._start_ms(SimpleNamespace(topics=topics), now_ms, notes), notes

    assert start(None, 4_000, 5_000) == (5_000, [])
    assert start(None, 3_000) == (3_000, [])
    assert start(6_000, now_ms=7) == (7, [])
    no_time = "no record has a timestamp: the scenario starts at the system time"
    assert start(None) == (5_000, [no_time])
    assert start(1, 5_001) == (5_000, [
        "the newest timestamp, 1970-01-01T00:00:05.001Z, is in the future: the scenario starts at "
        "the system time"
    ])  # fmt: skip


def test_times_in_the_future_count_as_the_start(tmp_path):
    rows = [(b"%d" % n, b"v", START_MS + n * 60_000) for n in range(120)]
    found = record(directory(tmp_path / "data", rows)).topics["t"]
    notes = []
    cut = fitting._without_future(found, START_MS + 100 * 60_000, notes)
    assert notes == ["t: 19 records are newer than the start and count as of it"]
    for rows in (cut.arrivals, cut.batches, cut.rates):
        assert rows.time_ms.tolist() == [START_MS + min(n, 100) * 60_000 for n in range(120)]
    assert fitting._without_future(found, START_MS + 119 * 60_000, notes).arrivals.time_ms[-1]
    assert len(notes) == 1


def test_the_relative_error_of_a_check():
    assert fitting.Check("t", "keys", 6, 4).error == 0.5
    assert fitting.Check("t", "keys", 3, 4).error == -0.25
    assert fitting.Check("t", "keys", 3, 0).error == 0.0


def test_batches_are_bounded_by_the_limits_of_the_topic(tmp_path):
    rng = np.random.default_rng(7)
    sizes = np.clip(np.exp(rng.normal(7, 1.0, 300)), 20, 9_000).astype(int).tolist()
    rows = [(b"%d" % (n % 50), b"x" * size, START_MS + n * 600_000)
            for n, size in enumerate(sizes)]  # fmt: skip
    configs = {**COMPACT, "max.message.bytes": "10000"}
    found = fit_recording(record(directory(tmp_path / "data", rows, configs)), days=1)
    (topic,) = found.scenario.tree["topics"]
    assert topic["values"] == {
        "sizes": "lognormal", "bytes": 957, "sigma": 0.922, "min_bytes": 42, "max_bytes": 5_702,
    }  # fmt: skip
    assert topic["batches"] == {"min_records": 1, "max_records": 1, "codec": "none"}
    assert found.notes == (
        "t: 2.0% of the values are larger than 5702 bytes, the limit for 1 records in a batch: "
        "they are simulated with that size",
    )


@pytest.mark.parametrize(
    ("days_ago", "shares"),
    (
        ((1, 2, 27.9), {"0": 0.5, "3": 0.5}),
        ((1, 29, 27), {"0": 0.25, "3": 0.75}),
        ((28, 29, 30), {"0": 0.5, "3": 0.5}),  # all of them, because no record is recent
        ((28, 1, 29), {"0": 1.0, "3": 0.0}),
    ),
)
def test_recent_records_decide_about_the_shares_of_partitions(days_ago, shares):
    fitting = object.__new__(_TopicFitter)
    fitting.until_ms = 100 * DAY_MS
    rates = SimpleNamespace(
        time_ms=np.array([fitting.until_ms - round(ago * DAY_MS) for ago in days_ago]),
        partition=np.array([0, 0, 3]),
        records=np.array([1, 2, 3]),
    )
    fitting.topic = SimpleNamespace(rates=rates, partitions=(0, 3))
    assert fitting._shares() == shares
    rates.records[:] = 0
    assert fitting._shares() == {}
