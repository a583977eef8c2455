"""The migration of former coordinators, killed at every third change of a file."""

import pytest

from tests.support.world.former_coordinators import run_killed, unpack


@pytest.fixture
def directories(tmp_path, monkeypatch):
    return unpack(tmp_path, monkeypatch)


@pytest.mark.parametrize(("name", "first"), (("complete", 1), ("open", 2), ("fault", 3)))
def test_a_killed_migration_starts_over(directories, monkeypatch, name, first):
    """Together, the directories cover every number."""
    assert run_killed(directories / name, monkeypatch, range(first, 1000, 3)) > 50
