"""What the page's pure modules return, run by Node.js; skipped where it is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

FRONT = Path(__file__).resolve().parents[3] / "logstore" / "ui" / "front"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")

SCRIPT = """
const [name, called, values] = JSON.parse(process.argv[1]);
const module = await import(name);
console.log(JSON.stringify(values.map((value) => module[called](...value))));
"""


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """Return a function that calls one of a module's with each of some lists of arguments."""
    folder = tmp_path_factory.mktemp("front")
    for path in FRONT.glob("*.js"):
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')

    def call(name, function, *values):
        asked = json.dumps([f"{folder.as_uri()}/{name}", function, values])
        line = [NODE, "--input-type=module", "-e", SCRIPT, asked]
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)

    return call


def test_a_lag_that_is_not_known_is_not_0(call):
    """Of a partition that is not in the directory."""
    assert call("format.js", "formatLag", [None], [0], [12345]) == ["unknown", "0", "12,345"]
    assert call("format.js", "lagInAll", [[0, 1]], [[None, 2]], [[None, None]], [[None, 0]]) == [
        "lag 1 record in all",
        "lag 2 records in all, unknown for 1 partition",
        "lag unknown",
        "lag 0 records in all, unknown for 1 partition",
    ]
