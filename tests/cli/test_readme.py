"""The commands and code in the README and in the first page of the docs run as printed."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import question_pages, question_story

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from logstore.cli.main import main; main()"
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "docs/START.md").read_text(encoding="utf-8")


def block(page: str, language: str, containing: str) -> str:
    """Return the fenced block of a language that contains a phrase."""
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return found


def test_command_line_tour(tmp_path):
    lines = block(START, "console", "topic create").replace("\\\n", "")
    script = "\n".join(line.removeprefix("$ ") for line in lines.splitlines() if line)
    script = script.replace("logstore ", f"{sys.executable} -c '{PROGRAM}' ")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"value": "anna"' in done.stdout
    assert "superseded 2" in done.stdout
    assert "0 → 3" in done.stdout
    assert "1 segment would be deleted" in done.stdout


def test_commands_on_a_copied_partition(tmp_path):
    golden = ROOT / "logstore/cli/demo/data/kafka-3.9/before/golden-0"
    shutil.copytree(golden, tmp_path / "copied/orders-3")
    shell = question_pages.Shell(tmp_path)
    for step in question_pages.steps(block(START, "console", "./copied/orders-3")):
        shell.run(step.command)
        assert shell.run("echo $?") == "0\n", step.command
    assert (tmp_path / "cleaned/orders-3").is_dir()


def test_readme_is_short_and_every_block_is_one_of_those_that_are_tested():
    assert README.count("\n") <= 120
    languages = re.findall(r"^```(\w+)\n", README, re.MULTILINE)
    assert languages == ["console", "python", "console", "console", "console"]
    assert README.count("```") == 2 * len(languages)


@pytest.mark.parametrize("containing", ("test_users.py", "logstore explain"))
def test_commands_of_the_readme_print_the_documented_output(containing, tmp_path):
    """The Python block, as `test_users.py`, is run by the first command."""
    question_story.make(tmp_path)
    code = block(README, "python", "def test_")
    (tmp_path / "test_users.py").write_text(code, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nlogstore_warmup = false\n", encoding="utf-8")
    shown = f"```console\n{block(README, 'console', containing)}```"
    assert question_pages.written(shown, tmp_path) == shown


def test_readme_installs_this_distribution_and_names_its_extras():
    """`python -m tools.try_release` runs the installation, before each release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert block(README, "console", "pip install") == f"$ pip install {project['name']}\n"
    section = README.partition("\n## Extras\n")[2].partition("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)[1:]
        for name in re.findall(r"`(\w+)`", row)
    }
    assert named == set(project["optional-dependencies"])


def test_readme_has_the_commands_of_contributors():
    commands = re.findall(r"^\$ make (\w+)", block(README, "console", "make"), re.MULTILINE)
    assert commands == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
    assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_each_cell_of_the_comparison_has_a_source():
    section = README.partition("\n## Compared with\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]
    assert len(rows) == 6
    targets = dict(re.findall(r"^\[(\w+)\]: (\S+)$", README, re.MULTILINE))
    used = set()
    for row in rows:
        cells = row.split("|")[1:]
        assert len(cells) == 6
        for cell in cells:
            sources = re.findall(r"\]\[(\w+)\]", cell)
            assert sources, cell
            used |= set(sources)
    assert used <= set(targets)
    for target in targets.values():
        assert target.startswith("https://") or (ROOT / target.partition("#")[0]).exists()
