"""What the page's pure modules return, run by Node.js where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from logstore.cli.show.prose import with_times

FRONT = Path(__file__).resolve().parents[3] / "logstore" / "ui" / "front"
NODE = shutil.which("node")

SCRIPT = """
const [name, called, values] = JSON.parse(process.argv[1]);
const module = await import(name);
console.log(JSON.stringify(values.map((value) => module[called](...value))));
"""


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """Return a function that calls one of a module's with each of some lists of arguments."""
    if NODE is None:
        pytest.skip("Node.js is not installed")
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


TEXTS = (
    "a pass is due by itself at Unix ms 1768521600001",
    "a pass is due by itself at Unix ms 2524608000000",  # after May 2033
    "stamped Unix ms 0 or later, segment.ms 604800000 after its first record",
    "a pass is due now, but it ends at offset 1700605005775 and does not reach them",
    "min.compaction.lag.ms 0, max.compaction.lag.ms 90000, segment.ms 1500",
    "files go file.delete.delay.ms 60000 later; 1234567890123 bytes",
)


def test_texts_have_their_times_as_on_the_command_line(call):
    shown = call("format.js", "withTimes", *([text] for text in TEXTS))
    assert shown == [with_times(text) for text in TEXTS]


def test_only_what_is_marked_as_a_time_is_printed_as_one():
    shown = list(map(with_times, TEXTS))
    assert shown[0].endswith(" at 2026-01-16 00:00:00.001Z")
    assert shown[1].endswith(" at 2050-01-01 00:00:00.000Z")
    assert shown[2].startswith("stamped 1970-01-01 00:00:00.000Z or later, segment.ms 7d")
    assert shown[3] == TEXTS[3]
    assert shown[5] == "files go file.delete.delay.ms 1m later; 1234567890123 bytes"
