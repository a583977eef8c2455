"""The test recipes of docs/WIRE.md for Go and Node.js run as printed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.conftest import unavailable
from tests.support.interop.foreign_clients import (
    GO_MODULES,
    PROGRAMS,
    ROOT,
    ensure_go_modules,
    node_modules,
)
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

TIMEOUT_S = 300


def example(language: str) -> str:
    """Return the page's one block of code in a language."""
    page = (ROOT / "docs" / "WIRE.md").read_text(encoding="utf-8")
    (result,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return result


def run(command: list[str], cwd: Path, **environment: str) -> str:
    """Run a test with this program on its PATH; return its output."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_go_recipe_works(tmp_path):
    module = GO_MODULES["sweep"]
    try:
        ensure_go_modules(module)
    except Unavailable as error:
        unavailable(error)
    for name in ("go.mod", "go.sum"):
        shutil.copy(module / name, tmp_path)
    (tmp_path / "users_test.go").write_text(example("go"))
    output = run(["go", "test", "-v", "."], tmp_path)
    assert "--- PASS: TestUserIsStored" in output


def test_node_recipe_works(tmp_path):
    try:
        packages = node_modules(PROGRAMS / "node")
    except Unavailable as error:
        unavailable(error)
    (tmp_path / "users.test.js").write_text(example("js"))
    output = run(["node", "--test", "users.test.js"], tmp_path, NODE_PATH=str(packages))
    assert re.search(r"^\S+ pass 1$", output, re.MULTILINE), output
