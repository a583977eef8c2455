"""Install the wheel of `dist/` into empty environments outside the checkout, and try it.

    python -m tools.try_release                       # with this Python
    python -m tools.try_release python3.12 python3.13 # with others

For each Python it prints the seconds from `pip install` to the first passed test and to the first
`explain` of a log directory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.release import DIST, ROOT, version


def readme_block(language: str, containing: str) -> str:
    """Return the block of the README that contains a phrase."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (result,) = [block for block in blocks if containing in block]
    return result


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as a user would: without settings of this checkout."""
    kept = {"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, "NUMBA_CACHE_DIR": str(cwd / "numba")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def tried(python: str, wheel: Path, folder: Path) -> str:
    """Return the figures of one Python, with an empty environment in a folder."""
    environment = folder / "environment"
    run(python, "-m", "venv", environment, cwd=folder)
    (folder / "test_first.py").write_text(readme_block("python", "def test_"), encoding="utf-8")
    shutil.copytree(ROOT / "logstore/cli/demo/data/kafka-3.9/before", folder / "copied")
    program = environment / "bin"
    name = run(program / "python", "--version", cwd=folder).strip()

    start = time.monotonic()
    run(program / "pip", "install", "--quiet", wheel, "pytest", cwd=folder)
    installed = time.monotonic()
    test = run(program / "python", "-m", "pytest", "-q", "test_first.py", cwd=folder)
    tested = time.monotonic()
    command = ("explain", "copied/golden-0", "--config", "cleanup.policy=compact")
    explained = run(program / "logstore", *command, cwd=folder)
    end = time.monotonic()

    shown = run(program / "logstore", "--version", cwd=folder)
    assert version() in shown, shown
    assert "Usage" in run(program / "logstore", "--help", cwd=folder)
    assert "1 passed" in test, test
    assert "golden-0" in explained, explained
    first_test, first_explain = tested - start, end - tested + installed - start
    return (
        f"{name}: install {installed - start:.1f} s; from install to the first passed test "
        f"{first_test:.1f} s, to the first explain {first_explain:.1f} s"
    )


def main(pythons: list[str]) -> None:
    """Try the wheel with each Python."""
    (wheel,) = DIST.glob("*.whl")
    for python in pythons or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            print(tried(python, wheel, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
