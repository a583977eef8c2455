"""Every kept input and a few thousand seeded mutations through every fuzz target.

The long profile is `make fuzz`; its findings are in `corpus/` and are repeated here.
"""

from __future__ import annotations

import logging
from itertools import islice

import pytest

from logstore.jit import policy
from tests.fuzz import campaign, distil
from tests.fuzz.campaign import TARGETS, Findings, corpus_of, mutants
from tests.fuzz.contract import Target
from tests.fuzz.run import compiled_modules

MUTATIONS_PER_WEIGHT = 25


@pytest.fixture(autouse=True)
def quiet():
    """Damage is logged as it is mended; here there is too much of it."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_sound_inputs_meet_the_contract(name: str) -> None:
    for data in TARGETS[name].seeds():
        TARGETS[name].run(data)


KEPT = [(name, file) for name in TARGETS for file in corpus_of(name)]


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_kept_input_meets_the_contract(name: str, file: str) -> None:
    TARGETS[name].run(corpus_of(name)[file])


@pytest.mark.parametrize("name", TARGETS)
def test_seeded_mutations_meet_the_contract(name: str) -> None:
    target = TARGETS[name]
    for data in islice(mutants(name, "smoke"), MUTATIONS_PER_WEIGHT * target.weight):
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"{name} on {data.hex()}")
            raise


def test_the_same_seed_gives_the_same_mutants() -> None:
    for name in TARGETS:
        first, again = mutants(name, 5), mutants(name, 5)
        assert [next(first) for _ in range(40)] == [next(again) for _ in range(40)]


def test_no_kernel_gets_the_counters_of_the_coverage() -> None:
    """They cannot be compiled, so that not one input of a long run would be tried."""
    kernels = {each.__module__ for group in policy.groups.values() for each in group.kernels}
    targets_run = {
        name
        for name in kernels
        if name.startswith("logstore.") and not name.startswith("logstore.bench.")
    }
    assert any(name.startswith("logstore.cleaner.kernels.") for name in targets_run)
    assert targets_run <= set(compiled_modules())


def test_every_kept_input_belongs_to_a_target() -> None:
    folders = {path.name for path in campaign.CORPUS.iterdir()}
    assert folders <= set(TARGETS)


def test_a_failure_is_counted_kept_and_made_small(monkeypatch, tmp_path) -> None:
    def fails_at_ab(data: bytes) -> str:
        if b"ab" in data:
            raise ZeroDivisionError
        return "ok"

    monkeypatch.setitem(TARGETS, "broken", Target(fails_at_ab, "text", lambda: [b""], 1))
    monkeypatch.setattr(campaign, "CRASHES", tmp_path)
    findings = Findings("broken")
    for data in (b"x" * 9 + b"ab" + b"y" * 7, b"fine", b"xxab"):
        findings.execute(data)
    assert findings.outcomes == {"FAILED": 2, "ok": 1}
    findings.minimise()
    assert list(findings.failures.values()) == [b"ab"]
    assert [path.read_bytes() for path in findings.save()] == [b"ab"]


def test_an_input_that_reaches_further_is_kept(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(distil, "CORPUS", tmp_path)
    monkeypatch.setattr(campaign, "CORPUS", tmp_path)
    odd = b'{"version": 99, "topics": {}}'
    assert distil.distil("topics", [odd, odd, TARGETS["topics"].seeds()[1]]) == 1
    assert [path.read_bytes() for path in (tmp_path / "topics").iterdir()] == [odd]
