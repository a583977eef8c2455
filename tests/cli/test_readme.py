"""The commands and code in the README run as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from logstore.cli.main import main; main()"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    """Return the fenced block of a language that contains a phrase."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return found


def test_command_line_tour(tmp_path):
    lines = block("console", "topic create").replace("\\\n", "")
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
