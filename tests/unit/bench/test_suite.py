"""The whole harness at sizes that take seconds: every line of the set is measured."""

import json
import re
from pathlib import Path

import pytest

from logstore.bench import suite
from logstore.bench.micro.setting import Setting
from logstore.bench.report.goals import GOALS
from logstore.bench.report.terminal import table_lines
from logstore.jit import policy
from tests.support.bench.clock import StepClock

TINY = 1 << 17
APART = {
    *("start/first-cleaning", "threads/2", "threads/cold-2", "memory/256MiB"),
    *("defaults/pytest-first", "defaults/pytest-again", "defaults/first-cleaning"),
    *("defaults/explain", "defaults/inspect", "defaults/dry-run", "defaults/check"),
    "defaults/export",
}
"""Excluded: lines that compile kernels again, or start processes; see `micro/test_lines.py`."""

EXPECTED = Path(__file__).with_name("lines.json")
"""Every other quick line as one JSON object a line, by the clock of `StepClock`."""

UNSTABLE = {"mapping_ms", "rewriting_ms", "cpu_ms", "log_bytes", "written_bytes"}
"""Facts that depend on the machine, or on the version of a codec."""


def tiny(tmp_path, **options):
    return Setting(tmp_path, total_bytes=TINY, repeats=1, warmups=0, has_peers=False, **options)


def all_names():
    return [name for job in suite.all_jobs() for name in job.names]


@pytest.mark.slow
@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="a million puts, in Python")
def test_every_quick_line_is_measured_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("logstore.bench.measuring.time", StepClock())
    jobs = [job for job in suite.select_jobs((), full=False) if APART.isdisjoint(job.names)]
    said = []
    result = suite.run(jobs, tiny(tmp_path, report=said.append), kind="quick")
    assert [line.name for line in result.lines] == [name for job in jobs for name in job.names]
    assert all(line.here.median > 0 for line in result.lines)
    shown = "\n".join(table_lines(result))
    for line in result.lines:
        assert re.search(rf"^{re.escape(line.name)} ", shown, re.MULTILINE)
        assert any(text.startswith(f"{line.name}: ") for text in said)
    assert "no peer: peers were excluded" in shown
    assert list(tmp_path.iterdir()) == []
    expected = [json.loads(text) for text in EXPECTED.read_text(encoding="utf-8").splitlines()]
    assert [reduced(line) for line in result.lines] == expected


def reduced(line):
    """Return the JSON object of a line without what depends on the machine."""
    item = line.as_json()
    facts = {name: value for name, value in item["facts"].items() if name not in UNSTABLE}
    peer = None if item["peer"] is None else item["peer"]["judged"]
    here = [item["here"]["judged"], item["here"]["wall"]]
    if line.name.startswith(("start/", "codec/")):
        here = peer = None
    names = ("name", "title", "unit", "higher_is_better")
    peer_name = re.sub(r" [0-9.]+$", "", item["peer_name"] or "")
    return [*(item[name] for name in names), here, peer, peer_name, facts]


def test_names_of_lines_are_unique_and_every_goal_belongs_to_one():
    names = all_names()
    assert len(set(names)) == len(names)
    assert set(GOALS) - set(names) == set()


def test_patterns_choose_lines():
    chosen = suite.select_jobs(["clean/1KiB*", "api/read"], full=False)
    assert [job.names for job in chosen] == [("clean/1KiB-15",), ("clean/1KiB-2",), ("api/read",)]
    with pytest.raises(
        LookupError, match=r"no line matches 'clean/2KiB'; the lines are: clean/100B-12, "
    ):
        suite.select_jobs(["clean/2KiB"], full=False)


def test_quick_lines_are_part_of_all():
    quick = [name for job in suite.select_jobs((), full=False) for name in job.names]
    assert set(quick) <= {name for job in suite.select_jobs((), full=True) for name in job.names}
    assert {name.partition("/")[0] for name in quick} == {
        *("clean", "codec", "mixed", "threads", "memory", "api", "coding", "map"),
        *("start", "idle", "limits", "crc", "kernels", "share", "defaults"),
    }
