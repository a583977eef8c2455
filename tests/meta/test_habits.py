"""The workflow and the hooks call existing Makefile targets and supported Pythons."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = (ROOT / ".github/workflows/checks.yml").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_workflow_runs_targets_that_there_are_on_every_python_that_is_named():
    targets = re.findall(r"- run: make (\S+)", WORKFLOW)
    assert targets == ["check", "test", "interop"]
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = re.findall(r":: Python :: (3\.\d+)", "\n".join(classifiers))
    (matrix,) = re.findall(r"python: \[(.*)\]", WORKFLOW)
    assert re.findall(r'"(.*?)"', matrix) == named


def test_hooks_are_the_fast_half_of_make_check():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    check = MAKEFILE.partition("\ncheck:")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    commands = re.findall(r"entry: (.*)", hooks)
    assert len(commands) == check.count(".venv/bin/")
    for command in commands:
        assert command in check, command
