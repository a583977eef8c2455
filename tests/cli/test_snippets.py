"""Every Python snippet of README and docs type-checks strictly and prints its stated output."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def modules() -> dict[str, str]:
    """Return the snippets as modules; one without imports continues the previous one.

    Line n of a module is line n of its page, so that an error names the place.
    """
    found: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        name = ""
        for number, match in enumerate(re.finditer(r"```python\n(.*?)```", text, re.DOTALL)):
            code = match[1]
            if "import " in code or not name:
                name = f"{page.stem.lower().replace('-', '_')}_{number}"
                found[name] = ""
            line = text.count("\n", 0, match.start(1))
            found[name] += "\n" * (line - found[name].count("\n")) + code
    return found


MODULES = modules()
RUN = [name for name in MODULES if not name.startswith("workloads_")]
"""Snippets that do not need Spark."""

BYTE_CODE = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Environment variables without which a new process would compile all modules again."""


def shown_output(code: str) -> str:
    """Return the output stated in comments after and below the prints of a module."""
    lines = code.splitlines()
    shown = []
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    for call in sorted(prints, key=lambda call: call.lineno):
        assert call.end_lineno is not None
        behind = lines[call.end_lineno - 1].encode()[call.end_col_offset :].decode().strip()
        shown += [behind.removeprefix("# ")] if behind else []
        for line in lines[call.end_lineno :]:
            if not line.strip().startswith("# "):
                break
            shown.append(line.strip().removeprefix("# "))
    return "".join(f"{line}\n" for line in shown)


def test_snippets_are_found():
    pages = {page.stem for page in PAGES if "```python" in page.read_text(encoding="utf-8")}
    assert {page.lower().replace("-", "_") for page in pages} == {
        name.rpartition("_")[0] for name in MODULES
    }


@pytest.mark.parametrize("name", [name for name in RUN if "def test_" not in MODULES[name]])
def test_snippets_print_the_output_in_their_comments(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(MODULES[name], f"{name}.py", "exec"), {"__name__": name})
    output, shown = capsys.readouterr().out, shown_output(MODULES[name])
    if not re.fullmatch(re.escape(shown).replace("…", ".*"), output):
        assert output == shown
    if name.startswith("readme_"):
        assert list(tmp_path.iterdir()) == [], "a broker without data_dir writes no file"


@pytest.mark.slow
def test_snippets_that_are_tests_pass(tmp_path):
    """All at once: each run of pytest takes a second."""
    for name in RUN:
        if "def test_" in MODULES[name]:
            (tmp_path / f"test_{name}.py").write_text(MODULES[name], encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"),
            # kafka-python reads its schemas so
            *("-W", "ignore:read_text is deprecated:DeprecationWarning"),
            *("-W", "ignore:open_text is deprecated:DeprecationWarning"),
            *("-p", "logstore.testing.plugin", "."),
        ],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name in BYTE_CODE},
            "PYTHONPATH": str(ROOT),
            "PATH": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("test_*.py"))) > 1


@pytest.mark.slow
def test_snippets_pass_mypy_strict(tmp_path):
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        # With the project's settings, so that mypy's cache applies.
        [sys.executable, "-m", "mypy", "--no-error-summary", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
