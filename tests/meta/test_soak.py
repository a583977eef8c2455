"""The runner of `make soak`: its counts, its table, and a part that counts nothing."""

import sys

import pytest

from tests.soak import endless, run
from tools import soak_docs


@pytest.mark.parametrize(
    ("output", "counts"),
    (
        ("x\n{'kills': 3, 'records': 17}; .\n1 passed", {"kills": 3, "records": 17}),
        ("seed 4: {'commands': 2}; {'kills': 1, 'a set'}", {"commands": 2}),
        ("{'a', 'b'}", {}),
        ("12 executions: {'ok': 9}\nno failures", {"executions": 12}),
        ("nothing", {}),
    ),
)
def test_counts_are_those_of_the_last_dictionary(output, counts):
    assert run.counts_of(output) == counts


@pytest.mark.parametrize(
    ("program", "problem"),
    (
        ("print({'steps': 3})", ""),
        ("print({'steps': 0})", "no steps"),
        ("print({'other': 1})", "no steps"),
        ("raise SystemExit(4)", "exit code 4"),
    ),
)
def test_a_part_fails_if_its_process_fails_or_it_counts_nothing(
    program, problem, tmp_path, monkeypatch
):
    (tmp_path / "part.py").write_text(program)
    part = run.Part(
        "a part", 1, f"{tmp_path}/part.py {{seed}}", {"MINUTES": "{minutes}"}, ("steps",)
    )
    monkeypatch.setitem(run.PARTS, "mine", part)
    monkeypatch.setattr(run, "OUTPUT", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    row = run.run_part("mine", 0.5, 7)
    assert row["problem"] == problem
    assert row["again"] == f"PYTHONHASHSEED=0 MINUTES=0.500 python {tmp_path}/part.py 7"
    assert ("FAILED" in run.line(row)) is bool(problem)


def test_a_run_with_a_failed_part_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "part.py").write_text("print({'steps': 0})")
    part = run.Part("a part", 1, f"{tmp_path}/part.py", {}, ("steps",))
    monkeypatch.setitem(run.PARTS, "mine", part)
    for name in ("OUTPUT", "RESULTS"):
        monkeypatch.setattr(run, name, tmp_path / name)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run", "mine", "--minutes", "0.01", "--seed", "1", "--store"])
    assert run.main() == 1
    assert "verdict: 1 of 1 parts failed" in capsys.readouterr().out
    monkeypatch.setattr(soak_docs, "RESULTS", tmp_path / "RESULTS")
    (result,) = soak_docs.results()
    section = soak_docs.section([result, result])
    assert "| mine | a part |" in section
    assert "failed: no steps" in section
    assert section.count(result["date"]) == 2
    assert "| sum |" in section


def test_every_part_names_a_profile_that_exists():
    for part in run.PARTS.values():
        words = part.command.split()
        if "tests.soak.endless" in words:
            assert words[words.index("tests.soak.endless") + 1] in {*endless.PARTS, "flat"}
        elif "pytest" in words:
            path, _, test = words[-1].partition("::")
            assert f"def {test}(" in (run.ROOT / path).read_text(encoding="utf-8")
