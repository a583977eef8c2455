"""Topics that arrive as they were recorded."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from logstore import Broker
from logstore.cli.main import main
from logstore.errors import InvalidConfigurationError
from logstore.simulate import parse, run

MINUTE_MS = 60_000

SCENARIO = """
days = {days}
[[topics]]
name = "t"
partitions = 2
{more}
replay = {{ file = "{file}"{words} }}
configs = {{ "cleanup.policy" = "compact", "segment.bytes" = 100_000 }}
"""

CSV = "time,records,key\n0,2,a\n10m,1,b\n10m,3,a\n25m,1,c\n"


def scenario_of(tmp_path, text, *, name="times.csv", words="", more="", days=1):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return parse(SCENARIO.format(file=name, words=words, more=more, days=days), tmp_path)


def arrivals(tmp_path, scenario):
    """Return moment after the start, key and whether it is a delete, of what lies in the logs."""
    run(scenario, samples=3, data_dir=tmp_path / "data")
    found = []
    with Broker(tmp_path / "data", read_only=True) as broker:
        for part in (0, 1):
            for _, record in broker.log("t", part).reader.records(0):
                since = record.timestamp - scenario.start_ms
                found.append((since, record.key[-1:].decode(), record.value is None))
    return sorted(found)


def test_each_record_arrives_at_its_moment_about_its_key(tmp_path):
    found = arrivals(tmp_path, scenario_of(tmp_path, CSV))
    minutes = [(ms / MINUTE_MS, key) for ms, key, _ in found]
    assert minutes == [*[(0, "0")] * 2, *[(10, "0")] * 3, (10, "1"), (25, "2")]


def test_it_arrives_when_it_says_and_not_when_a_batch_is_full(tmp_path):
    outcome = run(scenario_of(tmp_path, CSV), samples=288)  # one each 5 minutes
    by_part = [outcome.partitions.where(partition=part, event="regular") for part in (0, 1)]
    ends = sum(found["log_end_offset"] for found in by_part)
    assert ends[:6].tolist() == [2, 6, 6, 6, 7, 7]


def test_it_is_stretched_and_looped_until_the_end(tmp_path):
    words = ', loop = true, period = "8h", stretch = 1.5'
    found = arrivals(tmp_path, scenario_of(tmp_path, CSV, words=words))
    hours = [ms / 60 / MINUTE_MS for ms, key, _ in found if key == "2"]
    assert hours == [0.625, 12.625]
    assert len(found) == 14
    quick = scenario_of(tmp_path, CSV, words=", loop = true, stretch = 0.1", days=0.01)
    assert quick.topics[0].workload.records > 14


def test_what_comes_after_the_end_does_not_come(tmp_path):
    assert scenario_of(tmp_path, CSV, days=0.01).topics[0].workload.records == 6
    with pytest.raises(InvalidConfigurationError, match="has no record before the end"):
        scenario_of(tmp_path, CSV, days=0)


def test_what_has_no_keys_takes_them_from_the_workload(tmp_path):
    scenario = scenario_of(
        tmp_path, "time,records\n2024-05-01,50\n2024-05-01T12:00:00Z,50\n", more="keys.count = 7"
    )
    assert scenario.topics[0].workload.records == 100
    found = arrivals(tmp_path, scenario)
    assert {ms for ms, _, _ in found} == {0, 720 * MINUTE_MS}
    assert 1 < len({key for _, key, _ in found}) <= 7


def test_toml_and_deletes(tmp_path):
    rows = [{"time": "1m", "key": "a"}, {"time": "2m", "key": "a", "delete": True}]
    lines = "".join(f"[[rows]]\n{_toml(row)}" for row in rows)
    found = arrivals(tmp_path, scenario_of(tmp_path, lines, name="times.toml"))
    assert found == [(MINUTE_MS, "0", False), (2 * MINUTE_MS, "0", True)]


def _toml(row):
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in row.items())


@pytest.mark.parametrize("suffix", (".csv", ".parquet"))
def test_an_exported_topic_comes_again(tmp_path, suffix):
    """Keys, deletes and times, with those that came late, at the moments of those before them."""

    source = tmp_path / "source"
    with Broker(source) as broker:
        broker.create_topic("orders", configs={"message.timestamp.before.max.ms": str(10**12)})
        start = 1_700_000_000_000
        for after_s, key, value in ((0, b"x", b"1"), (60, b"y", b"1"), (30, b"x", None)):
            broker.append("orders", key=key, value=value, timestamp=start + 1000 * after_s)
    file = tmp_path / f"orders{suffix}"
    arguments = ("export", "orders", "--data-dir", str(source), "--out", str(file))
    assert CliRunner().invoke(main, arguments).exit_code == 0
    scenario = parse(SCENARIO.format(file=file.name, words="", more="", days=1), tmp_path)
    recorded = scenario.topics[0].recorded
    assert recorded.at_ms.tolist() == [0, 60_000, 60_000]
    assert recorded.lag_ms.tolist() == [0, 0, 30_000]
    assert recorded.key.tolist() == [0, 1, 0]
    assert arrivals(tmp_path, scenario) == [
        (0, "0", False), (30_000, "0", True), (60_000, "1", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("tim,records\n1,1\n", "has no column time; its columns: tim, records"),
        ("time,records\n1,1\n2,x\n", "line 3: records 'x' is not an integer"),
        ("time,records\n1,-1\n", "line 2: records '-1' is below 0"),
        ("time\n1\nyesterday\n", "line 3: time 'yesterday' is neither ms"),
        ("time\n-5\n", "line 2: time '-5' is before 1970"),
        ("time\n1m\n1700000000000\n", "line 3: time '1700000000000' is of another kind"),
        ("time,records\n1\n", "line 2: the number of columns differs"),
        ("time,records\n1,2,3\n", "line 2: the number of columns differs"),
        ("time,key\n1,a\n2,\\N\n", "some records have a key, others do not"),
        ("time\n", "has no records"),
        ("", "has no column time"),
    ),
)
def test_what_is_wrong_in_a_file_is_told_by_line(tmp_path, text, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        scenario_of(tmp_path, text)


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"words": ", lop = true"}, "replay.lop; the nearest is 'loop'"),
        ({"words": ', loop = true, period = "5m"'}, "period 5m is shorter than"),
        ({"words": ", stretch = 0"}, "stretch 0.0 is below"),
        ({"more": "records = 5"}, "topics.t.records conflicts with the replay file"),
        ({"more": "keys.count = 5"}, "topics.t.keys.count conflicts with the replay file"),
        (
            {"more": "time.daily_swing = 0.5"},
            "topics.t.time.daily_swing conflicts with the replay file",
        ),
        ({"more": "messages = []"}, "has both messages and a replay"),
        ({"name": "times.txt"}, r"unknown format of replay file .*times\.txt': expected \.csv"),
        ({"name": "t.toml", "text": "[[rows]]\ntime = '1'\nkeys = 'a'"}, "nearest is 'key'"),
        ({"name": "t.toml", "text": "rows = 3"}, r"needs \[\[rows\]\]"),
        ({"name": "t.parquet"}, "is not a Parquet file"),
    ),
)
def test_what_is_wrong_about_a_replay_is_told(tmp_path, options, message):
    options = {"text": CSV, **options}
    with pytest.raises(InvalidConfigurationError, match=message):
        scenario_of(tmp_path, options.pop("text"), **options)


def test_a_file_that_is_missing_is_named():
    with pytest.raises(InvalidConfigurationError, match=r"nowhere\.csv' cannot be read: No such"):
        parse(SCENARIO.format(file="nowhere.csv", words="", more="", days=1))


def test_a_replay_is_the_same_however_often_it_runs(tmp_path):
    rows = "".join(f"{n * 30_000},{n % 3},k{n % 17}\n" for n in range(300))
    scenario = scenario_of(tmp_path, "time,records,key\n" + rows, words=", loop = true")
    one, other = (run(scenario.with_seed(5), samples=5) for _ in range(2))
    assert one.digests == other.digests
    assert np.array_equal(one.partitions["log_end_offset"], other.partitions["log_end_offset"])
