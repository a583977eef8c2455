"""The project's static checks, run as tests so that no change lands without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_gate(*command: str, remedy: str) -> None:
    """Run `python command` at the root; on failure show its output and the remedy."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{done.stdout}{done.stderr}\n{remedy}", pytrace=False)


def test_ruff_finds_nothing() -> None:
    run_gate("-m", "ruff", "check", "--output-format=concise", ".", remedy="See: make lint")


def test_code_is_formatted() -> None:
    run_gate("-m", "ruff", "format", "--check", ".", remedy="Run: make format")


@pytest.mark.slow
def test_types_hold_strictly() -> None:
    run_gate("-m", "mypy", remedy="See: make mypy")


def test_imports_follow_the_layers() -> None:
    # import-linter has no __main__; its console script calls this.
    call = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    run_gate("-c", call, "--no-logo", "--no-cache", remedy="See: make lint, pyproject.toml")
