"""The driver of `make mutants`, on a small project of its own."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.mutants import run as driver
from tests.mutants.faults import faults_of

MODULE = """
def clamp(value: int | None, low: int, high: int) -> int:
    if value < low:
        return low
    while value > high:
        value = high
    return value


def unused(value):
    return value + 1


STEPS = (10, 20)


class Walk:
    @property
    def steps(self):
        return len(STEPS) * 3
"""

TESTS = """
from toy.numbers import Walk, clamp


def test_low():
    assert clamp(1, 2, 5) == 2


def test_high():
    assert clamp(9, 2, 5) == 5
    assert clamp(3, 2, 5) == 3


def test_steps():
    assert Walk().steps == 6
"""


def planted(source, lines=range(1000)):
    return {(fault.line, str(fault)) for fault in faults_of(textwrap.dedent(source), lines)}


@pytest.mark.parametrize(
    ("source", "faults"),
    (
        ("a < b", {"< → <="}),
        ("a is not b", {"is not → is"}),
        ("a not in b", {"not in → in"}),
        ("x = a and b", {"and → or", "a and b → (a)", "a and b → (b)"}),
        (
            "x = a or b or c",
            {
                "or → and",
                "a or b or c → ((b) or (c))",
                "a or b or c → ((a) or (c))",
                "a or b or c → ((a) or (b))",
            },
        ),
        ("x = min(a, b)", {"min → max"}),
        ("x = any(a)", {"any → all"}),
        ("x = a.min(b)", set()),
        ("x = a if b < c else d", {"< → <=", "a if b < c else d → (a)", "a if b < c else d → (d)"}),
        ("x = a_ms / 1000", {"1000 → 1001", "a_ms / 1000 → (a_ms)"}),
        ("x = a / 3", {"3 → 4"}),
        ("x = f(a=b)", {"a=b → **{}"}),
        ("try: x = a\nexcept E: return", {"return → raise"}),
        ("def f(a): a = b", {"a = b → pass"}),
        ("def f(): a = b; a = c", {"a = c → pass"}),
        ("f(10)", {"10 → 11", "f(10) → pass"}),
        ("f(x, clean=True)", {"True → False", "clean=True → **{}", "f(x, clean=True) → pass"}),
        ("a.b = c", {"a.b = c → pass"}),
        ("a += 1", {"+= → -=", "1 → 2", "a += 1 → pass"}),
        ("raise E", {"raise E → pass"}),
        ("if not a: pass", {"not a → (a)"}),
        ("if a(): pass", {"a() → (not a())"}),
        ("with lock: x = a", {"lock → __import__('contextlib').nullcontext()"}),
        ("x = -a", set()),
        ("for a in b: pass", set()),
        ("x = [a for a in b if a in c]", {"in → not in", "a in c → True"}),
        ("def f(a: int | None) -> int | None: return a", set()),
        ("import a", set()),
        ("logger.info('%d', 5)", set()),
        ("x = 'ä' < b", {"< → <="}),
    ),
)
def test_mutations_of_a_line(source, faults):
    assert {str(fault) for fault in faults_of(source, {1, 2})} == faults


def test_a_planted_fault_changes_its_place_alone():
    source = "x = 'ä'\nif a < b:\n    f(1)\n"
    texts = {fault.plant(source) for fault in faults_of(source, {2, 3})}
    assert texts == {
        "x = 'ä'\nif a <= b:\n    f(1)\n",
        "x = 'ä'\nif a < b:\n    f(2)\n",
        "x = 'ä'\nif a < b:\n    pass\n",
    }


@pytest.fixture
def project(tmp_path):
    """A package of which all lines are new since the first commit."""

    def git(*arguments):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(
            ["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    git("init")
    git("commit", "--allow-empty", "-m", "nothing")
    for name, text in (
        ("toy/__init__.py", ""),
        ("toy/numbers.py", MODULE),
        ("tests/test_numbers.py", TESTS),
        ("pyproject.toml", "[tool.pytest.ini_options]\npythonpath = ['.']\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git("add", ".")
    git("commit", "-m", "all")
    return tmp_path


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_surviving_mutants_are_listed(project, capfd, monkeypatch):
    monkeypatch.setattr(driver, "START_SECONDS", 8)
    (project / "tests" / "mutants").mkdir()
    (project / driver.REASONS).write_text(
        "# why\n\ntoy/numbers.py ¦ return value + 1 ¦ + → - ¦ nobody calls it\n"
    )
    before = {path: path.read_bytes() for path in project.rglob("*.py")}
    options = ["--root", str(project), "--base", "HEAD~1", "--sources", "toy", "--tests", "tests"]
    assert driver.main([*options, "--jobs", "2"]) == 1
    told = capfd.readouterr().out.splitlines()
    verdicts = ("survived", "untested", "answered")
    assert [line.partition(" (")[0] for line in told if line.startswith(verdicts)] == [
        "survived  toy/numbers.py:3:13: < → <=",
        "answered  toy/numbers.py:11:17: + → -: nobody calls it",
        "untested  toy/numbers.py:11:19: 1 → 2",
        "survived  toy/numbers.py:14:9: 10 → 11",
        "survived  toy/numbers.py:14:13: 20 → 21",
    ]
    assert told[-1] == "1 answered, 2 found, 2 hung, 3 survived, 1 untested"
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before


def test_links_to_folders_are_copied_as_links(project, tmp_path_factory):
    """The folder of the cleaner is a package of the engine by such a link."""
    (project / "linked").symlink_to("toy")
    copy = tmp_path_factory.mktemp("copy")
    driver.copy_tree(project, copy)
    assert (copy / "linked").readlink() == Path("toy")
    assert (copy / "linked" / "numbers.py").read_text() == MODULE


@pytest.mark.slow
def test_each_reason_matches_a_fault_that_can_be_planted():
    """Code moves, and a reason whose line is gone would answer nothing."""
    root = Path(__file__).parents[2]
    by_path: dict[str, list[tuple[str, str]]] = {}
    for path, text, fault in driver.reasons(root / driver.REASONS):
        by_path.setdefault(path, []).append((text, fault))
    for path, reasons in by_path.items():
        source = (root / path).read_text(encoding="utf-8")
        lines = [line.strip() for line in source.splitlines()]
        wanted = {text for text, _ in reasons}
        numbers = {n for n, line in enumerate(lines, 1) if line in wanted}
        found = {(lines[each.line - 1], str(each)) for each in faults_of(source, numbers)}
        assert set(reasons) <= found, path
