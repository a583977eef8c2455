"""Whole results, compared with files in `expected/`.

A missing file is written, and its test fails. Delete the file after an intended change
and review the new one.
"""

import itertools
from base64 import b64decode
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from logstore import Broker
from logstore.record.columns import BytesColumn
from logstore.runtime import VirtualClock
from logstore.simulate import files, pages, parse, report, run
from logstore.simulate import scenario as scenarios
from logstore.simulate.actions import Action
from logstore.simulate.fitting import fit_recording
from logstore.simulate.goals import parse_goal
from logstore.simulate.population import KnownPopulation
from logstore.simulate.quantities import QUANTITIES, quantity
from logstore.simulate.recording import record
from logstore.simulate.replay import Replay
from logstore.simulate.scenario import Consumer, KnownKeys, Message
from logstore.simulate.search import Search
from logstore.simulate.spread import run_seeds
from logstore.simulate.sweep import sweep
from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.spec import Spec

START_MS = VirtualClock().now_ms()
EXPECTED = Path(__file__).parent / "expected"


def compare(name, text):
    """Compare a text with a file, line by line."""
    path = EXPECTED / name
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: it is written, review it")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def shown(value):
    """Format a value with 12 significant digits; the last ones depend on the processor."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def lines_of(columns):
    """Return a line for each column."""
    return [f"{name}: {' '.join(map(shown, column.tolist()))}" for name, column in columns.items()]


def tables_of(outcome):
    return {
        "partitions": outcome.partitions,
        "consumers": outcome.consumers,
        "passes": outcome.passes,
        "segments": outcome.segments,
    }


@pytest.fixture(scope="module")
def operations():
    text = (EXPECTED / "operations.toml").read_text(encoding="utf-8")
    return run(parse(text), samples=10)


def test_every_kind_of_action_has_its_effect_on_each_series(operations):
    lines = [*operations.notes, ""]
    lines += [f"{name}: {digest}" for name, digest in operations.digests.items()]
    for name, table in tables_of(operations).items():
        rows = zip(*table.arrays().values(), strict=True)
        lines += ["", name, ", ".join(table.columns)]
        lines += [", ".join(shown(value.item()) for value in row) for row in rows]
    compare("operations.txt", "\n".join(lines))


def test_the_series_of_all_partitions_and_the_costs(operations):
    lines = []
    for topic in (None, "t", "versions", "script"):
        lines += [f"topic {topic}", *lines_of(operations.over_time(topic))]
        lines += [f"{name} = {shown(cost)}" for name, cost in operations.costs(topic).items()]
    compare("over_time.txt", "\n".join(lines))


PLOTTED = """
title = "Plots"
about = "One topic with each kind of segment, one without."
days = 4
seed = 8
[broker]
"log.cleaner.threads" = 2
"log.cleaner.backoff.ms" = 600_000
[[topics]]
name = "t"
records = 800
keys.count = 100
deletes.share = 0.2
batches = { min_records = 1, max_records = 20 }
[topics.configs]
"cleanup.policy" = "compact"
"segment.bytes" = 10_000
"delete.retention.ms" = "6h"
"min.compaction.lag.ms" = "9h"
[[topics]]
name = "quiet"
configs = { "retention.ms" = "1d", "cleanup.policy" = "delete" }
messages = [ { at = "0", key = "a", value = "1" }, { at = "13h", key = "b", value = "2" } ]
[[consumers]]
name = "reader"
topic = "t"
lag = "1h"
[[consumers]]
name = "sleeper"
topic = "t"
lag = "2d"
[[actions]]
at = "2d"
do = "alter"
configs = { "log.cleaner.io.max.bytes.per.second" = 5_000 }
[[actions]]
at = "3d"
do = "alter"
topic = "t"
configs = { "max.compaction.lag.ms" = "10h" }
"""


def simple(value):
    """Convert the values of a figure to JSON's types."""
    if isinstance(value, np.ndarray):
        return [simple(each) for each in value.tolist()]
    if isinstance(value, dict):
        return {name: simple(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [simple(each) for each in value]
    if isinstance(value, bool | int | str | type(None)):
        return value
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def brief(value):
    """Convert the values of a figure like `simple`, and arrays of numbers to their `summary`."""
    if isinstance(value, dict) and "bdata" in value:
        value = np.frombuffer(b64decode(value["bdata"]), value["dtype"])
        return summary(np.round(100 * np.nan_to_num(value)))
    if isinstance(value, np.ndarray) and len(value) > 8:
        return summary(value)
    return {k: brief(v) for k, v in value.items()} if isinstance(value, dict) else simple(value)


def lines_of_report(monkeypatch, convert, *results, **more):
    """Return the title and the parts of a report as lines, with figures as their traces."""
    page = []
    monkeypatch.setattr(pages, "render", lambda title, parts, library: page.extend((title, parts)))
    monkeypatch.setattr(
        report,
        "_plot",
        lambda figure, name, title, words: pages.figure(name, title, words, figure.to_dict()),
    )
    report.page(*results, **more)
    title, parts = page
    lines = [title]

    def write(parts, indent=""):
        for part in parts:
            drawing = part.get("drawing", {})
            below = part.get("parts", ())
            words = {k: v for k, v in part.items() if k not in ("drawing", "parts")}
            lines.append(f"{indent}{convert(words)}")
            write(below, f"{indent}  ")
            lines.extend(f"{indent}  {convert(trace)}" for trace in drawing.get("data", ()))
            layout = drawing.get("layout", {})
            if layout:
                own = {k: v for k, v in layout.items() if k != "template"}
                lines.append(f"{indent}  {convert(own)}")

    write(parts)
    return lines


@pytest.fixture(scope="module")
def plotted():
    """A run and a sweep."""
    scenario = parse(PLOTTED)
    axes = {"min.cleanable.dirty.ratio": ["0.2", "0.9"], "segment.ms": ["1h"]}
    return run(scenario, samples=12), sweep(scenario, axes, samples=3)


def test_the_report_has_these_texts_tables_and_curves(plotted, monkeypatch):
    lines = lines_of_report(monkeypatch, simple, *plotted)
    compare("report.txt", "\n".join(lines))


def found_by(axes, goal, costs):
    """Return the result of a search over combinations with these costs by two numbers and seed."""

    def evaluate(jobs):
        return [
            dict.fromkeys(QUANTITIES, 0.0) | costs(*map(float, settings.values()), seed)
            for settings, seed in jobs
        ]

    minimize = quantity("oldest")
    return Search(axes, parse_goal(goal), minimize, [1, 2], itertools.count(100), evaluate).find()


def test_the_report_of_several_seeds_and_of_searches(monkeypatch):
    text = PLOTTED.replace("days = 4", "days = 2").replace("800", "300").partition("[[actions]]")[0]
    one_topic = parse(text.partition('[[topics]]\nname = "quiet"')[0])
    outcome, spread = run_seeds(one_topic, 3, samples=4)
    grid = {"log.cleaner.threads": ["1", "2", "3"], "min.cleanable.dirty.ratio": ["0.25", "0.75"]}
    met = found_by(
        grid,
        ["bytes <= 3KiB and oldest < 20d"],
        lambda x, y, seed: {
            "bytes_peak": 1000 * x + seed,
            "oldest_dirty_max_ms": DAY_MS * (9 - x + y),
        },
    )
    missed = found_by(
        grid,
        ["written <= 2", "tombstone <= 1d"],
        lambda x, y, seed: {
            "write_amplification": x + y,
            "tombstone_age_max_ms": DAY_MS * (1 + seed % 2 + y),
            "oldest_dirty_max_ms": DAY_MS / x,
        },
    )
    swept = sweep(one_topic, {"min.cleanable.dirty.ratio": ["0.2", "0.9"]}, samples=3, seeds=2)
    lines = lines_of_report(monkeypatch, brief, outcome, swept, spread=spread, found=met)
    monkeypatch.setattr(report, "_curves", lambda run, spread: ())
    lines += lines_of_report(monkeypatch, brief, outcome, found=missed)
    compare("report_of_seeds.txt", "\n".join(lines))


def test_the_files_of_a_run_and_a_sweep(plotted, tmp_path):
    outcome, swept = plotted
    (tmp_path / "partitions.parquet").write_text("stale")
    (tmp_path / "report.html").write_text("stale")
    (tmp_path / "other.csv").write_text("kept")
    written = files.save(tmp_path, outcome, sweep=swept)
    kinds = ("csv", "parquet") if files.can_write_parquet() else ("csv",)
    names = [f"{name}.{kind}" for name in ("partitions", "segments", "passes", "consumers")
             for kind in kinds]  # fmt: skip
    assert [str(path.relative_to(tmp_path)) for path in written] == [*names, "sweep.csv"]
    assert {path.name for path in tmp_path.iterdir()} == {*names, "sweep.csv", "other.csv"}
    for name, table in tables_of(outcome).items():
        head, *rows = (tmp_path / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        assert head.split(",") == list(table.columns)
        columns = [[str(value) for value in column.tolist()] for column in table.arrays().values()]
        assert [tuple(row.split(",")) for row in rows] == list(zip(*columns, strict=True))
    variants = [[*each.settings.values(), *each.costs.values(), each in swept.front()]
                for each in swept.variants]  # fmt: skip
    head = [*swept.variants[0].settings, *swept.variants[0].costs, "not_beaten"]
    text = "".join(f"{','.join(map(str, row))}\n" for row in (head, *variants))
    assert (tmp_path / "sweep.csv").read_text(encoding="utf-8") == text
    assert files.save(tmp_path, outcome, report="<p>")[-1] == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text() == "<p>"
    assert {path.name for path in tmp_path.iterdir()} == {*names, "report.html", "other.csv"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A directory with topics of several kinds."""
    path = tmp_path_factory.mktemp("recorded") / "data"
    scenario = parse((EXPECTED / "recorded.toml").read_text(encoding="utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)  # takes most of the time
        run(scenario, data_dir=path, samples=2)
    with Broker(path, clock=VirtualClock()) as broker:
        for number in range(60):
            key = None if number % 3 else b"k-%d" % number
            at_ms = START_MS + 2 * DAY_MS + number * 300_000
            broker.append("events", key=key, value=b"v" * number, timestamp=at_ms)
    return path


def recorded_fit(recorded, **options):
    """Return the text of a fit, and the arrays of its recording."""
    found = record(str(recorded), **options)
    lines = fit_recording(found, days=2, now_ms=NOW_MS, seed=4).text.splitlines()
    for name, topic in found.topics.items():
        lines += ["", f"# {name}"]
        lines += [f"# {key} = {getattr(topic, key)}" for key in SCALARS]
        for rows in (topic.rates, topic.batches, topic.arrivals):
            lines += [f"# {column} {summary(getattr(rows, column))}" for column in rows._fields]
        keys = topic.keys
        lines.append(f"# keys {keys.count} {keys.held} {summary(keys.sizes)} {summary(keys.data)}")
        lines.append(f"# partitions of keys {summary(keys.partition)}")
    return "\n".join(lines).replace(str(recorded), "DIRECTORY") + "\n"


CONTINUED = """
[[consumers]]
name = "c"
topic = "versions"
lag = "1h"
[[actions]]
at = "2h"
do = "delete-records"
topic = "versions"
partition = 1
before = 300
[[actions]]
at = "5h"
do = "crash"
"""
NOW_MS = START_MS + 3 * DAY_MS
SCALARS = ("partitions", "newest_ms", "is_cleaned", "newest_version", "next_producer_id",
           "left_out", "assumed")  # fmt: skip


def summary(column):
    """Return the length, the sum, a sum weighted by position, and the first values of an array."""
    weights = np.arange(1, len(column) + 1)
    values = column.astype(np.int64)
    return f"{len(column)} {values.sum()} {(values * weights).sum()} {values[:6].tolist()}"


@pytest.mark.slow
def test_recordings_and_fits_of_topics_of_several_kinds(recorded):
    compare("recorded_fit.toml", recorded_fit(recorded))


def test_recordings_within_limits_of_keys_and_arrivals(recorded):
    compare("limited_fit.toml", recorded_fit(recorded, keys_max=40, arrivals_max=150))


def test_a_recorded_directory_is_continued(recorded):
    text = (
        recorded_fit(recorded).replace("days = 2", "days = 0.4").replace("DIRECTORY", str(recorded))
    )
    text += CONTINUED
    outcome = run(parse(text), samples=3)
    lines = [f"{name}: {digest}" for name, digest in outcome.digests.items()]
    for name, table in tables_of(outcome).items():
        lines += ["", name, *lines_of(table.arrays())]
    compare("continued.txt", "\n".join(lines))


@pytest.mark.parametrize(
    "table",
    (
        KnownKeys,
        Action,
        Consumer,
        Message,
        Replay,
        scenarios._Top,
        scenarios._Copies,
        scenarios._Rate,
        scenarios._Scripted,
    ),
)
def test_the_keys_of_a_scenario_have_these_defaults_and_bounds(table):
    lines = []
    for row in fields(table):
        allowed = row.metadata.get("allowed")
        lines.append(f"{row.name} = {'-' if row.default is MISSING else repr(row.default)}")
        if allowed is not None:
            lines.append(f"  {allowed.doc} | {allowed.low} to {allowed.high} | {allowed.choice} | "
                         f"{allowed.is_span}")  # fmt: skip
    compare(f"{table.__name__.strip('_').lower()}_keys.txt", "\n".join(lines))


def test_the_keys_of_a_recorded_topic_are_drawn_like_this(recorded):
    found = record(str(recorded), keys_max=150)
    lines = []
    for name, words in (
        ("versions", None),
        ("versions", KnownKeys()),
        ("versions", KnownKeys(new_share=0.2, quiet_share=0.3, null_share=0.1, discount=0.5)),
        ("versions", KnownKeys(new_share=0.3, unseen=50, prefix="key")),
        ("versions", KnownKeys(new_share=0.1, null_share=0.05, recent=8)),
        ("events", KnownKeys(quiet_share=0.5, recent=30)),
        ("empty", KnownKeys(recent=5)),
        ("empty", KnownKeys(new_share=0.2)),
    ):
        topic = found.topics[name]
        shares = {0: 0.2, 2: 0.7} if name == "versions" else {}
        spec = Spec(seed=9, records=1_000, keys=specs.Keys(count=170))
        population = KnownPopulation(topic, words, shares, spec)
        lines += ["", f"{name} {words}"]
        for block in (0, 1):
            numbers = population.numbers(block, np.arange(block * 300, block * 300 + 300))
            column = population.column(SimpleNamespace(key_number=numbers))
            lines.append(f"numbers {' '.join(map(str, numbers.tolist()))}")
            partitions = population.partitions(numbers)
            lines.append(f"partitions {''.join(map(str, partitions.tolist()))}")
            lines.append(f"bytes {summary(column.sizes)} {summary(column.data)}")
            for partition in topic.partitions:
                here = np.flatnonzero(partitions == partition)
                own = population.numbers_in(
                    partition, BytesColumn(column.data, column.starts[here], column.sizes[here])
                )
                written = (numbers[here] < topic.keys.held) | (numbers[here] >= topic.keys.count)
                assert own[written].tolist() == numbers[here][written].tolist()
    compare("population.txt", "\n".join(lines))
