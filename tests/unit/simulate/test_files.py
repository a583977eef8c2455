"""Result files of small outcomes, byte by byte."""

from types import SimpleNamespace

import numpy as np
import pytest

from logstore.simulate import files
from logstore.simulate.outcome import Table
from logstore.simulate.search import Candidate
from logstore.simulate.spread import Curve, SeedRun, Spread

SERIES = ("partitions", "segments", "passes", "consumers")
EVERY_NAME = {
    *("report.html", "sweep.csv", "search.csv", "seeds.csv", "spread.csv"),
    *(f"{name}.{kind}" for name in SERIES for kind in ("csv", "parquet")),
}


def outcome(**rows):
    tables = {}
    for name in SERIES:
        tables[name] = Table(("time_ms", name))
        for number in range(rows.get(name, 0)):
            tables[name].add(time_ms=10 + number, **{name: f"v{number}"})
    return SimpleNamespace(**tables)


def contents(directory):
    return {path.name: path.read_bytes().decode() for path in directory.iterdir()}


@pytest.fixture(autouse=True)
def without_parquet(monkeypatch):
    monkeypatch.setattr(files, "can_write_parquet", lambda: False)


def test_a_series_of_one_row_is_written_and_an_empty_one_is_not(tmp_path):
    written = files.save(tmp_path, outcome(passes=1, consumers=2))
    assert written == [tmp_path / "passes.csv", tmp_path / "consumers.csv"]
    assert contents(tmp_path) == {
        "passes.csv": "time_ms,passes\n10,v0\n",
        "consumers.csv": "time_ms,consumers\n10,v0\n11,v1\n",
    }


def test_files_that_a_run_did_not_write_are_removed(tmp_path):
    for name in (*EVERY_NAME, "seeds.txt"):
        (tmp_path / name).write_text("stale")
    assert files.save(tmp_path, outcome(), report="é") == [tmp_path / "report.html"]
    assert contents(tmp_path) == {"report.html": "é", "seeds.txt": "stale"}


def test_parquet_files_follow_their_csv(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(files, "can_write_parquet", lambda: True)
    written = files.save(tmp_path, outcome(segments=1, passes=2))
    assert [path.name for path in written] == [
        *("segments.csv", "segments.parquet", "passes.csv", "passes.parquet")
    ]
    table = parquet.read_table(tmp_path / "passes.parquet")
    assert table.to_pydict() == {"time_ms": [10, 11], "passes": ["v0", "v1"]}
    assert parquet.read_metadata(written[1]).row_group(0).column(0).compression == "ZSTD"


def test_several_seeds_have_a_row_each_and_bands_of_what_all_topics_have_together(tmp_path):
    def seed_run(seed, peak, written, own):
        values = {(None, "bytes"): peak, (None, "written"): written, ("t", "bytes"): own}
        curves = {
            key: Curve(np.array([value, 2.0 * value]), 0.0, 0.0) for key, value in values.items()
        }
        return SeedRun(seed, {"bytes_peak": peak, "passes": written}, curves)

    runs = [seed_run(7, 100, 3, 50), seed_run(9, 300, 1, 60)]
    spread = Spread(np.array([5, 6]), runs)
    written = files.save(tmp_path, outcome(), spread=spread)
    assert written == [tmp_path / "seeds.csv", tmp_path / "spread.csv"]
    assert contents(tmp_path) == {
        "seeds.csv": "seed,bytes_peak,passes\n7,100,3\n9,300,1\n",
        "spread.csv": "time_ms,column,p5,p50,p95\n"
        "5,bytes,110.0,200.0,290.0\n6,bytes,220.0,400.0,580.0\n"
        "5,written,1.1,2.0,2.9\n6,written,2.2,4.0,5.8\n",
    }


def test_a_search_has_a_row_for_each_run_also_with_other_seeds(tmp_path):
    one = Candidate(
        {"x": "1"}, {1: {"cost": 5}, 2: {"cost": 6}}, [100, 101], [{"cost": 7}, {"cost": 8}]
    )
    other = Candidate({"x": "2"}, {1: {"cost": 9}})
    found = SimpleNamespace(best=other, candidates=[one, other])
    assert files.save(tmp_path, outcome(), found=found) == [tmp_path / "search.csv"]
    assert contents(tmp_path) == {
        "search.csv": "x,seed,cost\n1,1,5\n1,2,6\n1,100,7\n1,101,8\n2,1,9\n"
    }


def test_a_failure_names_the_directory_and_removes_the_drafts(tmp_path, monkeypatch):
    (tmp_path / "passes.csv").write_text("earlier")

    def full(table, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_csv", full)
    with pytest.raises(OSError) as failed:
        files.save(tmp_path, outcome(passes=1))
    error = failed.value
    assert (error.errno, error.strerror, error.filename) == (
        28,
        "cannot write the results: No space left on device",
        str(tmp_path),
    )
    assert contents(tmp_path) == {"passes.csv": "earlier"}
