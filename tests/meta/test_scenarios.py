"""Scenarios and tests name each other: docs/spec/scenarios.md lists the tests of each scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tools import scenario_docs
from tools.scenario_docs import (
    SCENARIO,
    TARGET,
    coverage,
    items,
    numbers_in,
    page,
)
from tools.tracked import texts

if TYPE_CHECKING:
    import pytest

THIS = Path(__file__).name
SCENARIOS = TARGET.read_text(encoding="utf-8")


def test_scenarios_are_numbered_without_gaps() -> None:
    numbers = list(items(SCENARIOS))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 260


def test_each_scenario_lists_the_tests_that_name_it() -> None:
    assert page(SCENARIOS) == SCENARIOS, "run: make docs"


def test_each_scenario_has_a_test() -> None:
    assert [f"S-{number:03}" for number, tests in items(SCENARIOS).items() if not tests] == []


def test_each_scenario_that_is_named_exists() -> None:
    known = items(SCENARIOS).keys()
    unknown = {
        name: sorted(numbers_in(text) - known)
        for name, text in texts().items()
        if numbers_in(text) - known and not name.endswith(THIS)
    }
    assert unknown == {}
    assert coverage().keys() == known


def test_coverage_of_a_small_suite(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text(
        '"""S-001 is not covered by a mention outside of a test."""\n'
        "@mark(ids=['S-002'])\ndef test_ids():\n    pass\n"
        "def test_s003_and_s004_of_two():\n    '''S-002.'''\n"
        "def helper():\n    '''S-005'''\n"
        "def test_by_s006():\n    pass\n"
    )
    assert coverage(tmp_path) == {
        2: ["tests/unit/test_a.py::test_ids", "tests/unit/test_a.py::test_s003_and_s004_of_two"],
        3: ["tests/unit/test_a.py::test_s003_and_s004_of_two"],
        4: ["tests/unit/test_a.py::test_s003_and_s004_of_two"],
        6: ["tests/unit/test_a.py::test_by_s006"],
    }


def test_page_of_scenarios_is_filled_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are replaced, long items are wrapped, everything else stays."""
    monkeypatch.setattr(scenario_docs, "coverage", lambda: {1: ["tests/test_a.py::test_b"]})
    old = f"# T\n\n- **S-001** {'word ' * 30}\n  end.\n  `tests/old.py::test_old`\n\ntext\n"
    wrapped = f"- **S-001** {' '.join(['word'] * 17)}\n  {' '.join(['word'] * 13)} end."
    expected = f"# T\n\n{wrapped}\n  `tests/test_a.py::test_b`\n\ntext\n"
    assert page(old) == expected
    assert page(expected) == expected


def test_a_scenario_is_not_part_of_a_longer_word() -> None:
    assert SCENARIO.findall("S-001, XS-002, S-0031") == ["001"]
