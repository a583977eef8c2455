"""Commands over a data directory in which a pipe stands under a name that they open."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import lines
from tests.support.world.special_files import no_hang

NAMES = (
    "logstore-topics.json",
    "logstore-moves.json",
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "u-0/leader-epoch-checkpoint",
    "u-0/partition.metadata",
    "u-0/00000000000000009999.log",
    "u-0/00000000000000009999.snapshot",
    "u-0/00000000000000000000.index",
    "u-0/00000000000000000000.timeindex",
    "u-0/00000000000000000000.txnindex",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_command_waits_at_a_pipe(run, data_dir, name):
    run("append", "u", "--create", input=lines({"key": "a", "value": "b"}))
    path = data_dir / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with no_hang():
        checked = run("check", "--format", "json", code=1).json
        assert [f["path"] for f in checked["findings"] if f["path"] == str(path)]
        for command in (("inspect", "u"), ("explain",), ("read", "u")):
            told = run(*command, code=1 if name == "logstore-moves.json" else 0)
            assert name != "logstore-topics.json" or "is taken as empty" in told.stderr
        run("roll", "u", code=1 if name in NAMES[:2] else 0)


SMALL_FILES = (
    "logstore-topics.json",
    "cleaner-offset-checkpoint",
    "u-0/leader-epoch-checkpoint",
    "u-0/partition.metadata",
    "u-0/00000000000000000001.snapshot",
)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_check_and_dump_obey_the_limit_of_the_config_file(run, data_dir, tmp_path, name):
    """As the commands do that open logs; not only at the engine's default."""
    run("append", "u", "--create", input=lines({"key": "a", "value": "b"}))
    run("roll", "u")
    config = tmp_path / "server.properties"
    config.write_text("logstore.small.file.max.bytes=1000\n")
    path = data_dir / name
    path.touch()
    with path.open("r+b") as file:
        file.truncate(1001)
    told = f"{path}: 1001 bytes are more than logstore.small.file.max.bytes = 1000"
    checked = run("check", "--config-file", config, "--format", "json", code=1).json
    (found,) = [found for found in checked["findings"] if found["path"] == str(path)]
    assert "1001 bytes are more than" in str(found["found"])
    alone = run("check", path, "--config-file", config, "--format", "json", code=1).json
    assert [each["path"] for each in alone["findings"]] == [str(path)]
    if name.endswith(".snapshot"):
        dumped = run("dump", path, "--config-file", config, code=1)
        assert told in dumped.stderr
