"""Committing, aborting and restarting producers under cleaning: no committed data is lost or
doubled."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.oracles.transaction_model import (
    CODECS,
    PRODUCERS,
    RETENTION_MS,
    TransactionModel,
)

segment_sizes = st.sampled_from([400, 900, 100_000])
seeds = st.integers(0, 2**32 - 1)
rarely = st.sampled_from([False, False, False, True])
fields = {
    "number": st.sampled_from(PRODUCERS),
    "batch": st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
            st.one_of(st.none(), st.just(b"v"), st.binary(max_size=4)),
        ),
        min_size=1,
        max_size=4,
    ),
    "codec": st.sampled_from(CODECS),
    "plain": rarely,
    "is_commit": st.booleans(),
    "fence": rarely,
    "even_without_data": rarely,
}
"""Arguments of the model's steps."""


def step(name: str, *names: str) -> st.SearchStrategy:
    return st.tuples(st.just(name), st.fixed_dictionaries({each: fields[each] for each in names}))


actions = st.one_of(
    step("send", "number", "batch", "codec", "plain"),
    step("end", "number", "is_commit", "fence", "even_without_data"),
    step("write_plainly", "batch", "codec"),
)


class CleanedTransactions(RuleBasedStateMachine):
    """The model, driven step by step by Hypothesis."""

    @initialize(seed=st.integers(0, 3), segment_bytes=segment_sizes)
    def open(self, seed: int, segment_bytes: int) -> None:
        self.model = TransactionModel(seed, segment_bytes)

    @rule(steps=st.lists(actions, min_size=3, max_size=12), leaves_active=rarely)
    def work(self, steps: list, leaves_active: bool) -> None:
        for name, arguments in steps:
            self.model.act(name, arguments)
        if not leaves_active:
            self.model.roll()

    @rule(seed=seeds)
    def live(self, seed: int) -> None:
        self.model.live(random.Random(seed))

    @rule(ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.model.wait(ms)

    @rule()
    def forget_idle_producers(self) -> None:
        self.model.forget_idle_producers()

    @precondition(lambda self: self.model.log.size_bytes)
    @rule(slots=st.sampled_from([2, 4, 8, 1000]))
    def clean(self, slots: int) -> None:
        self.model.clean(slots)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.model.restart(clean=clean)

    @precondition(lambda self: self.model.log.size_bytes)
    @rule(slots=st.sampled_from([3, 1000]), steps=st.integers(1, 30))
    def crash(self, slots: int, steps: int) -> None:
        self.model.crash(slots, steps)

    @invariant()
    def holds(self) -> None:
        self.model.check()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.check_recovery()


TestCleanedTransactions = CleanedTransactions.TestCase
# Each example is a life of many passes. The fourth example of the CI profile detects each of eleven
# faults planted in the cleaner's `transactions.py`, as do the lives below.
TestCleanedTransactions.settings = settings(max_examples=max(1, settings().max_examples // 20))


# The first three lives detect the planted faults that they detect at all.
@settings(max_examples=max(1, settings().max_examples // 20))
@given(seed=seeds, segment_bytes=segment_sizes)
def test_lives_of_three_producers(seed: int, segment_bytes: int) -> None:
    """Sixteen passes each, restarts and crashes between them."""
    rng = random.Random(seed)
    model = TransactionModel(0, segment_bytes)
    for _ in range(4):
        model.live(rng)
        match rng.randrange(4):
            case 0:
                model.restart(clean=True)
            case 1:
                model.restart(clean=False)
            case 2:
                model.crash(rng.choice([3, 1000]), rng.randint(1, 30))
            case 3 if rng.random() < 0.3:
                model.forget_idle_producers()
        model.check()
    model.check_recovery()
