"""The workflow and the hooks call existing Makefile targets and supported Pythons."""

import re
import tomllib
from pathlib import Path

import logstore

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


def test_fragments_of_the_changelog_start_with_the_kind_of_change():
    for path in (ROOT / "changelog.d").glob("*.md"):
        if path.name != "README.md":
            text = path.read_text(encoding="utf-8")
            assert re.match(r"(- )?\*?(Added|Changed|Fixed|Removed)\b", text), path.name


def test_changelog_has_the_release_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(logstore.__version__)} — \d{{4}}-\d\d-\d\d$", text, re.M)


def test_a_tag_is_published_only_after_tests_and_an_approval():
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    targets = re.findall(r"- run: make ([\w-]+)", text)
    assert targets == ["check", "test", "lowest", "release", "release-try", "docs-site"]
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)
    publish = text.partition("\n  publish:\n")[2]
    assert "needs: [build, tests]" in publish
    assert "environment: pypi" in publish, "its reviewers approve a release"
    assert "id-token: write" in publish
    assert "password" not in text
    assert "token:" not in text.replace("id-token: write", "")
