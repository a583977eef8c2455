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
        is_fatal = name in NAMES[:2]
        for command in (("inspect", "u"), ("explain",), ("read", "u"), ("roll", "u")):
            run(*command, code=1 if is_fatal else 0)
