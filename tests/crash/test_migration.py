"""The migration of former coordinators, killed at changes of a file."""

import pytest

from tests.support.world.former_coordinators import run_killed, unpack


@pytest.fixture
def directories(tmp_path, monkeypatch):
    return unpack(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "first"),
    (
        ("complete", 1),
        pytest.param("open", 17, marks=pytest.mark.slow),
        pytest.param("fault", 33, marks=pytest.mark.slow),
    ),
)
def test_a_killed_migration_starts_over(directories, monkeypatch, name, first):
    assert run_killed(directories / name, monkeypatch, range(first, 1000, 48)) > 5


@pytest.mark.long
@pytest.mark.parametrize("name", ("complete", "open", "fault"))
def test_a_migration_killed_at_each_change_starts_over(directories, monkeypatch, name):
    assert run_killed(directories / name, monkeypatch, range(1, 1000)) > 150
