"""Crashes at every operation of a pass over transactions: their outcome does not change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logstore.storage.log import Log
from tests.support.oracles import cleaner_oracle as oracle
from tests.support.world.builders import World
from tests.support.world.cleaning import (
    Producer,
    batches_in,
    committed,
    compacted,
    contents,
    put,
    run_pass,
    txn_entries,
)
from tests.support.world.crashes import crashes_of

CONFIG = {"delete_retention_ms": 1000, "segment_bytes": 400}


def several_groups(world: World) -> None:
    """Build transactions over segments too large to merge: aborted data below, markers above."""
    log = opened(world)
    one, two = Producer(log, 1), Producer(log, 2)
    put(log, (b"a", b"old"), (b"b", b"old"))
    one.send((b"a", b"aborted"), (b"b", b"aborted"))
    two.send((b"b", b"committed"))
    log.writer.roll()
    one.send((b"c", b"aborted" * 20))
    two.send((b"d", b"committed" * 20))
    one.abort()
    log.writer.roll()
    two.commit()
    one.send((b"a", b"committed"))
    one.commit()
    two.send((b"d", b"aborted"))
    two.abort()
    log.writer.roll()
    log.close()


def an_index_that_goes(world: World) -> None:
    """The data were removed in an earlier pass; now the entry is, and with it the index file."""
    log = opened(world)
    one = Producer(log, 1)
    one.send((b"a", b"aborted"))
    one.abort()
    log.writer.roll()
    run_pass(log)
    one.send((b"b", b"committed"))
    one.commit()
    log.writer.roll()
    run_pass(log, 2)
    assert txn_entries(log)
    log.close()


def markers_that_go(world: World) -> None:
    """Build markers past their delete horizon."""
    an_index_that_goes(world)
    log = opened(world)
    run_pass(log, log.active_segment.base_offset)
    assert not txn_entries(log)
    log.close()
    world.clock.advance(ms=1000)


def opened(world: World, *, clean: bool = True) -> Log:
    return compacted(world, clean=clean, **CONFIG)


def latest(log: Log) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in committed(log)}


def known(log: Log) -> list[tuple[int, int, int]]:
    return sorted(
        (entry.producer_id, entry.producer_epoch, entry.last_sequence)
        for entry in log.producer_state.entries()
    )


@pytest.mark.parametrize("stride", (3, pytest.param(1, marks=pytest.mark.long)))
@pytest.mark.parametrize(
    "prepare", (several_groups, an_index_that_goes, markers_that_go), ids=lambda each: each.__name__
)
def test_a_crash_in_a_pass_leaves_every_transaction_as_it_ended(
    prepare: Callable[[World], None], stride: int
) -> None:
    reference: list[tuple] = []
    states = 0
    ends = set()

    def whole(log: Log) -> None:
        if not reference:
            reference.append((latest(log), log.last_stable_offset, known(log)))
        run_pass(log)

    config = {**CONFIG, "cleanup_policy": ("compact",)}
    for what, world in crashes_of(prepare, whole, stride=stride, **config):
        log = opened(world, clean=False)
        assert (latest(log), log.last_stable_offset, known(log)) == reference[0], what
        batches = batches_in(log)
        markers = {
            batch.header.base_offset for batch in batches if oracle.control_type(batch) == "abort"
        }
        entries = txn_entries(log)
        assert {last for _, _, last, _ in entries} <= markers, f"{what}: entries without markers"
        found = [each for each in contents(log) if each[2] is not None and b"aborted" in each[2]]
        for offset, _, _ in found:
            assert any(first <= offset < last for _, first, last, _ in entries), what
        run_pass(log)
        log._check()
        assert (latest(log), known(log)) == (reference[0][0], reference[0][2]), what
        ends.add(tuple(contents(log)))
        states += 1
    assert states * stride > 30
    assert len(ends) == 1, "another pass has the same result from every state"
