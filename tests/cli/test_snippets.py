"""Every Python snippet of README and docs is what a strict type checker accepts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

CONFIG = """\
[mypy]
strict = true
python_version = 3.11
mypy_path = {root}
explicit_package_bases = true
[mypy-logstore.*,cleaner.*,bench.*,pyspark.*]
follow_imports = silent
"""


def modules() -> dict[str, str]:
    """Return the pages' snippets as modules; one that imports nothing goes on with the one before.

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


def test_snippets_are_found():
    names = [name.rpartition("_")[0] for name in modules()]
    assert (names.count("readme"), names.count("workloads")) == (3, 1)


@pytest.mark.slow
def test_snippets_pass_mypy_strict(tmp_path):
    for name, code in modules().items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(CONFIG.format(root=ROOT), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", "mypy.ini"),
            *("--cache-dir", str(ROOT / ".mypy_cache" / "snippets"), "--no-error-summary", "."),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
