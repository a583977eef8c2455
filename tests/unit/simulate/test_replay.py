"""Topics that arrive as they were recorded."""

import json
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from click.testing import CliRunner

from logstore import Broker
from logstore.cli.main import main
from logstore.errors import InvalidConfigurationError
from logstore.simulate import parse, replay, run
from logstore.simulate.replay import Replay
from tests.support.world.messages import exactly

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
    """Return time after the start, key and whether it is a delete, for each record in the logs."""
    run(scenario, samples=3, data_dir=tmp_path / "data")
    found = []
    with Broker(tmp_path / "data", read_only=True) as broker:
        for part in (0, 1):
            for _, record in broker.log("t", part).reader.records(0):
                since = record.timestamp - scenario.start_ms
                found.append((since, record.key[-1:].decode(), record.value is None))
    return sorted(found)


def test_each_record_arrives_at_its_time_about_its_key(tmp_path):
    found = arrivals(tmp_path, scenario_of(tmp_path, CSV))
    minutes = [(ms / MINUTE_MS, key) for ms, key, _ in found]
    assert minutes == [*[(0, "0")] * 2, *[(10, "0")] * 3, (10, "1"), (25, "2")]


def test_records_arrive_at_their_time_and_not_when_a_batch_is_full(tmp_path):
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


def test_records_after_the_end_are_not_sent(tmp_path):
    assert scenario_of(tmp_path, CSV, days=0.01).topics[0].workload.records == 6
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "the replay file '{path}/times.csv' has no record before the end of the scenario"
        ),
    ):
        scenario_of(tmp_path, CSV, days=0)


def test_arrivals_without_keys_use_the_keys_of_the_workload(tmp_path):
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
def test_an_exported_topic_is_simulated_again(tmp_path, suffix):
    """Keys, deletes and times; late records have the times of their predecessors."""

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
        ("tim,records\n1,1\n", "{path}/times.csv has no column time; its columns: tim, records"),
        ("time,records\n1,1\n2,x\n", "{path}/times.csv, line 3: records 'x' is not an integer"),
        ("time,records\n1,-1\n", "{path}/times.csv, line 2: records '-1' is below 0"),
        (
            "time\n1\nyesterday\n",
            (
                "{path}/times.csv, line 3: time 'yesterday' is neither ms, ISO 8601, nor a "
                "duration such as 90m"
            ),
        ),
        ("time\n-5\n", "{path}/times.csv, line 2: time '-5' is before 1970"),
        (
            "time\n1m\n1700000000000\n",
            (
                "{path}/times.csv, line 3: time '1700000000000' is of another kind than the "
                "times above: use either durations after the start (90m) or timestamps in all"
                " rows"
            ),
        ),
        (
            "time,records\n1\n",
            "{path}/times.csv, line 2: the number of columns differs from the first line",
        ),
        (
            "time,records\n1,2,3\n",
            "{path}/times.csv, line 2: the number of columns differs from the first line",
        ),
        ("time,key\n1,a\n2,\\N\n", "{path}/times.csv: some records have a key, others do not"),
        ("time\n", "{path}/times.csv has no records"),
        ("", "{path}/times.csv has no column time; its columns: none"),
    ),
)
def test_errors_in_a_file_are_reported_by_line(tmp_path, text, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        scenario_of(tmp_path, text)


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"words": ", lop = true"}, "unknown key topics.t.replay.lop; the nearest is 'loop'"),
        (
            {"words": ', loop = true, period = "5m"'},
            (
                "replay.period 5m is shorter than '{path}/times.csv', which ends 1500000 ms "
                "after its start"
            ),
        ),
        ({"words": ", stretch = 0"}, "topics.t.replay.stretch 0.0 is below 1e-06"),
        (
            {"more": "records = 5"},
            (
                "topics.t.records conflicts with the replay file '{path}/times.csv', which "
                "determines it"
            ),
        ),
        (
            {"more": "keys.count = 5"},
            (
                "topics.t.keys.count conflicts with the replay file '{path}/times.csv', "
                "which determines it"
            ),
        ),
        (
            {"more": "time.daily_swing = 0.5"},
            (
                "topics.t.time.daily_swing conflicts with the replay file "
                "'{path}/times.csv', which determines it"
            ),
        ),
        ({"more": "messages = []"}, "topic 't' has both messages and a replay"),
        (
            {"name": "times.txt"},
            ("unknown format of replay file '{path}/times.txt': expected .csv, .toml, .parquet"),
        ),
        (
            {"name": "t.toml", "text": "[[rows]]\ntime = '1'\nkeys = 'a'"},
            "{path}/t.toml, rows[0]: unknown key keys; the nearest is 'key'",
        ),
        ({"name": "t.toml", "text": "rows = 3"}, "{path}/t.toml needs [[rows]], each with a time"),
        (
            {"name": "t.parquet"},
            (
                "{path}/t.parquet is not a Parquet file: Parquet magic bytes not found in "
                "footer. Either the file is corrupted or this is not a parquet file."
            ),
        ),
    ),
)
def test_errors_of_a_replay_are_reported(tmp_path, options, message):
    options = {"text": CSV, **options}
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
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


def replay_of(tmp_path, text, name="r.csv", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Replay(file=str(path), **options)


@pytest.mark.parametrize(
    ("text", "options", "at_ms", "lag_ms", "keys", "deletes", "period_ms"),
    (
        ("time\n1000\n4000\n", {}, [0, 3_000], [0, 0], None, None, 0),
        ("time\n1s\n4s\n", {}, [1_000, 4_000], [0, 0], None, None, 0),
        ("time\n0\n4s\n", {"loop": True}, [0, 4_000], [0, 0], None, None, 6_000),
        ("time\n0\n", {"loop": True}, [0], [0], None, None, 1),
        ("time\n0\n4s\n", {"loop": True, "period": "5s"}, [0, 4_000], [0, 0], None, None, 5_000),
        ("time\n0\n4s\n", {"loop": True, "period": "10s", "stretch": 0.5}, [0, 2_000], [0, 0],
         None, None, 5_000),
        ("time\n2s\n5s\n3s\n", {"stretch": 2.0}, [4_000, 10_000, 10_000], [0, 0, 2_000], None,
         None, 0),
        ("timestamp,key,value\n5,a,1\n6,b,\\N\n7,a,\\N\n", {}, [0, 1, 2], [0, 0, 0],
         [0, 1, 0], [False, True, True], 0),
        ("time,records,key\n0,2,x\n1,0,z\n1,1,y\n", {}, [0, 0, 1], [0, 0, 0], [0, 0, 2], None,
         0),
        ("timestamp,time\n9,1s\n", {}, [1_000], [0], None, None, 0),
    ),
)  # fmt: skip
def test_a_file_has_these_arrivals(
    tmp_path, text, options, at_ms, lag_ms, keys, deletes, period_ms
):
    found = replay_of(tmp_path, text, **options).read()
    assert found.at_ms.tolist() == at_ms
    assert found.lag_ms.tolist() == lag_ms
    assert (None if found.key is None else found.key.tolist()) == keys
    assert (None if found.tombstone is None else found.tombstone.tolist()) == deletes
    assert found.period_ms == period_ms


@pytest.mark.parametrize(
    ("value", "time"),
    (
        (5, (5, False)),
        (0, (0, False)),
        (" 17 ", (17, False)),
        ("90m", (5_400_000, True)),
        ("2024-05-01", (1_714_521_600_000, False)),
        ("2024-05-01T00:00:00.25", (1_714_521_600_250, False)),
        (" 2024-05-01T02:00:00+02:00", (1_714_521_600_000, False)),
        (datetime(2024, 5, 1), (1_714_521_600_000, False)),
        (datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-1))), (1_714_525_200_000, False)),
    ),
)
def test_times_of_several_kinds(value, time):
    assert replay._time(value) == time


@pytest.mark.parametrize(
    ("value", "message"),
    (
        (True, "time True is neither ms, ISO 8601, nor a duration such as 90m"),
        (None, "time None is neither ms, ISO 8601, nor a duration such as 90m"),
        (1.5, "time 1.5 is neither ms, ISO 8601, nor a duration such as 90m"),
        (-1, "time -1 is before 1970"),
        ("-1", "time '-1' is before 1970"),
        ("1969-12-31T23:59:59.999", "time '1969-12-31T23:59:59.999' is before 1970"),
    ),
)
def test_times_of_no_kind(value, message):
    with pytest.raises(ValueError) as refusal:  # its whole text is compared
        replay._time(value)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("row", "parsed"),
    (
        ({"t": 5}, (5, 1, None, False)),
        ({"t": 5, "records": 0, "key": ""}, (5, 0, "", False)),
        ({"t": 5, "key": None, "key_base64": "YQ=="}, (5, 1, "YQ==", False)),
        ({"t": 5, "key": "k", "key_base64": "YQ=="}, (5, 1, "k", False)),
        ({"t": 5, "value": None}, (5, 1, None, True)),
        ({"t": 5, "value": None, "value_base64": "YQ=="}, (5, 1, None, False)),
        ({"t": 5, "value": "", "delete": True}, (5, 1, None, True)),
        ({"t": 5, "delete": "true"}, (5, 1, None, False)),
        ({"t": 5, "control": "commit"}, None),
        ({"t": 5, "control": None}, (5, 1, None, False)),
    ),
)
def test_rows_of_an_exported_topic(row, parsed):
    expected = [] if parsed is None else [("row 1", *parsed)]
    assert [tuple(each) for each in replay._row("row 1", row, "t")] == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    (
        ("r.csv", "a,b\n1,1\n", "{} has no column time; its columns: a, b"),
        ("r.csv", "", "{} has no column time; its columns: none"),
        ("r.csv", "time\n", "{} has no records"),
        ("r.csv", "time,records\n1,0\n", "{} has no records"),
        ("r.csv", "time,records\n1,1\n2,x\n", "{}, line 3: records 'x' is not an integer"),
        ("r.csv", "time,records\n1,-1\n", "{}, line 2: records '-1' is below 0"),
        ("r.csv", "time,records\n1,268435457\n", "{}, line 2: more than 268435456 records"),
        ("r.csv", "time\n0\n1m\n5\n",
         "{}, line 4: time '5' is of another kind than the times above: use either durations after "
         "the start (90m) or timestamps in all rows"),
        ("r.csv", "time\n5\n1m\n",
         "{}, line 3: time '1m' is of another kind than the times above: use either durations "
         "after the start (90m) or timestamps in all rows"),
        ("r.csv", "time,records\n1\n",
         "{}, line 2: the number of columns differs from the first line"),
        ("r.csv", "time\n1,2\n", "{}, line 2: the number of columns differs from the first line"),
        ("r.csv", "time,key\n1,\\N\n2,a\n", "{}: some records have a key, others do not"),
        ("r.csv", b"time\n\xff\n",
         "{} is not valid CSV: 'utf-8' codec can't decode byte 0xff in position 5: invalid start "
         "byte"),
        ("r.toml", b"\xff",
         "{} is not valid TOML: 'utf-8' codec can't decode byte 0xff in position 0: invalid start "
         "byte"),
        ("r.toml", "rows = [3]", "{} needs [[rows]], each with a time"),
        ("r.toml", "rows = { time = 3 }", "{} needs [[rows]], each with a time"),
        ("r.toml", "[[rows]]\ntime = 1\n[[rows]]\ntime = 1\nkeys = 2",
         "{}, rows[1]: unknown key keys; the nearest is 'key'"),
        ("r.toml", "[[rows]]\nkey = 'a'",
         "{}, rows[0]: time None is neither ms, ISO 8601, nor a duration such as 90m"),
        ("r.cvs", "",
         "unknown format of replay file '{}': expected .csv, .toml, .parquet; the nearest is "
         "'.csv'"),
    ),
)  # fmt: skip
def test_an_invalid_file_is_refused_with_its_reason(tmp_path, name, text, message):
    with pytest.raises(InvalidConfigurationError) as refusal:
        replay_of(tmp_path, text, name).read()
    assert str(refusal.value) == message.format(tmp_path / name)


def test_a_period_is_longer_than_its_file(tmp_path):
    file = replay_of(tmp_path, "time\n0\n5s\n", loop=True, period="5s")
    with pytest.raises(InvalidConfigurationError) as refusal:
        file.read()
    assert str(refusal.value) == (
        f"replay.period 5s is shorter than {file.file!r}, which ends 5000 ms after its start"
    )
    assert replay_of(tmp_path, "time\n0\n5s\n", period="5s").read().period_ms == 0
    with pytest.raises(InvalidConfigurationError, match=r"^p\.file is required: the path of the"):
        replay.read_replay({"loop": True}, "p.")


@pytest.mark.parametrize(
    ("more", "name"),
    (
        ("records = 5", "records"),
        ("time.days = 1", "time.days"),
        ("keys.count = 5", "keys.count"),
        ("deletes.share = 0.5", "deletes"),
    ),
)
def test_a_key_that_the_file_determines_is_refused(tmp_path, more, name):
    text = "time,key,value\n0,a,x\n1,a,\\N\n"
    with pytest.raises(InvalidConfigurationError) as refusal:
        scenario_of(tmp_path, text, more=more)
    assert str(refusal.value) == (
        f"topics.t.{name} conflicts with the replay file {str(tmp_path / 'times.csv')!r}, which "
        "determines it"
    )


def test_keys_that_the_file_does_not_determine_are_kept(tmp_path):
    more = "keys.prefix = 'p'\ntime.start = '2024-05-01'\ndeletes.share = 0.5"
    topic = scenario_of(tmp_path, "time,key\n0,a\n0,b\n1,a\n", more=more).topics[0]
    workload = topic.workload
    assert (workload.records, workload.keys.count, workload.keys.prefix) == (3, 2, "p")
    assert (workload.keys.distribution, workload.deletes.share) == ("uniform", 0.5)
    assert workload.time.start_ms == 1_714_521_600_000
    assert topic.recorded.key.tolist() == [0, 1, 0]
