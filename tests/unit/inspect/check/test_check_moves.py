"""The verifier's findings about interrupted moves, and about the file that records them."""

import pytest

from logstore.errors import CorruptCheckpointError
from logstore.inspect.check import INFO, Checker
from logstore.manager.directories.move_notes import MOVES_FILE, read_moves
from tests.support.world.brokers import write_file
from tests.unit.manager.directories import test_half_moves
from tests.unit.manager.directories.test_half_moves import interrupted

place = test_half_moves.place


@pytest.mark.parametrize(
    "text",
    (
        b"",
        b"{",
        b"[]",
        b'{"version": 2, "moves": {}}',
        b'{"version": 1, "moves": []}',
        b'{"version": 1, "moves": {"a-0": {"target": "/x"}}}',
        b'{"version": 1, "moves": {"a-0": {"target": "/x", "folder": 5, "undone": false}}}',
        b'{"version": 1, "moves": {"a": {"target": "/x", "folder": "f", "undone": false}}}',
        b'{"version": 1, "moves": {"a-00": {"target": "/x", "folder": "f", "undone": false}}}',
    ),
)
def test_a_damaged_file_fails_the_start_and_is_reported_by_the_verifier(place, text):
    place.filled().close()
    path = f"{place.here}/{MOVES_FILE}"
    file = place.fs.open(path, create=True)
    file.append([text])
    file.close()
    with pytest.raises(CorruptCheckpointError, match=MOVES_FILE):
        place.open()
    for found in (Checker(place.fs).data_dirs([place.here]), Checker(place.fs).path(path)):
        assert [(each.check, each.path) for each in found] == [("moves_file", path)]


def test_an_unknown_version_names_the_file_and_both_versions(place):
    place.filled().close()
    write_file(place.fs, f"{place.here}/{MOVES_FILE}", b'{"version": 2, "moves": {}}')
    with pytest.raises(CorruptCheckpointError) as refused:
        read_moves(place.fs, place.here, 1000)
    error = refused.value
    assert (error.path, error.check, error.expected, error.found) == (
        f"{place.here}/{MOVES_FILE}",
        "version",
        1,
        2,
    )


def test_the_verifier_distinguishes_a_leftover_folder_from_a_duplicate(place):
    interrupted(place, "rename", "/here/a-0")
    found = Checker(place.fs).data_dirs([place.here, place.there])
    told = [(each.path, each.severity) for each in found if each.check == "leftover_folder"]
    assert told == [(f"{place.here}/a-0", INFO)]
