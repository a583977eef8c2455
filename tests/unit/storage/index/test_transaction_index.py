from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptIndexError, InvalidOffsetError
from logstore.storage.index import TransactionIndex
from logstore.testing import FaultyFileSystem
from logstore.types import AbortedTxn
from tests.support.world.messages import exactly

BASE = 0
NAME = "00000000000000000000.txnindex"
TXNS = [
    AbortedTxn(0, 0, 10, 2),
    AbortedTxn(1, 5, 15, 16),
    AbortedTxn(2, 18, 35, 25),
    AbortedTxn(3, 32, 50, 40),
]


def make_index(place, base_offset=BASE, name=NAME, writable=True):
    fs, directory = place
    return TransactionIndex(fs, f"{directory}/{name}", base_offset, writable=writable)


def filled(place) -> TransactionIndex:
    index = make_index(place)
    for txn in TXNS:
        index.append(txn)
    return index


def test_s037_truncate_to_and_reset(place):
    """S-037: entries that end at or above the offset are removed, and the file shrinks."""
    fs, _ = place
    index = filled(place)
    index.truncate_to(51)
    assert index.entries() == TXNS
    index.truncate_to(50)
    assert index.entries() == TXNS[:3]
    assert fs.stat(index.path).size == 3 * 34
    index._check()
    index.reset()
    assert index.entries() == []
    assert index.is_empty
    assert fs.stat(index.path).size == 0
    index._check()


def test_s037_nothing_but_an_append_creates_the_file(place):
    """S-037: other operations create no .txnindex."""
    fs, directory = place
    index = make_index(place)
    assert index.is_empty
    assert index.entries() == []
    assert index.collect_aborted_txns(0, 100) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    index.flush()
    index.rename_to(f"{directory}/renamed")
    assert not index.delete_if_exists()
    index.close()
    assert fs.list_dir(directory) == []

    index = make_index(place)
    index.append(TXNS[0])
    assert fs.list_dir(directory) == [NAME]


def test_s038_sanity_check_last_offset_below_base(place):
    """S-038: an entry that ends below the segment's base is corruption."""
    filled(place).close()
    make_index(place, base_offset=10).sanity_check()
    index = make_index(place, base_offset=100)
    with pytest.raises(CorruptIndexError) as caught:
        index.sanity_check()
    assert (caught.value.path, caught.value.position) == (index.path, 0)
    assert (caught.value.expected, caught.value.found) == (100, 10)
    with pytest.raises(CorruptIndexError) as caught:
        make_index(place, base_offset=20).sanity_check()
    assert caught.value.position == 0


@pytest.mark.parametrize(
    ("txn", "check"),
    (
        (AbortedTxn(-1, 31, 35, 36), "producer id"),
        (AbortedTxn(1, 31, 25, 26), "last offset"),
        (AbortedTxn(1, 31, 40, 41), "last offset"),
        (AbortedTxn(1, -1, 35, 36), "first offset"),
        (AbortedTxn(1, 35, 35, 36), "first offset"),
        (AbortedTxn(1, 31, 35, -1), "last stable offset"),
        (AbortedTxn(1, 31, 35, 37), "last stable offset"),
    ),
)
def test_sanity_check_of_impossible_entries(place, txn, check):
    """An invalid entry after valid ones; the segment ends at 40."""
    fs, _ = place
    index = make_index(place)
    index.append(AbortedTxn(7, 20, 30, 31))
    index.append(AbortedTxn(8, 0, 39, 20))
    index.sanity_check(40)
    index.close()
    fs.open(index.path, write=True).write_at([index.ENTRY.pack(0, *txn)], 34)
    index = make_index(place)
    with pytest.raises(
        CorruptIndexError, match=f"^{index.path} at position 34: {check} "
    ) as caught:
        index.sanity_check(40)
    assert (caught.value.position, caught.value.check) == (34, check)


def test_the_last_transaction(place):
    index = make_index(place)
    assert index.last_txn is None
    index = filled(place)
    assert index.last_txn == TXNS[-1]


def test_s038_sanity_check_unknown_version(place):
    """S-038: version 1 is corruption, for the check and for every reader."""
    fs, _ = place
    index = filled(place)
    index.close()
    fs.open(index.path, write=True).write_at([b"\0\1"], 34)
    index = make_index(place)
    with pytest.raises(CorruptIndexError) as caught:
        index.sanity_check()
    assert (caught.value.position, caught.value.expected, caught.value.found) == (34, 0, 1)
    with pytest.raises(CorruptIndexError):
        index.entries()
    with pytest.raises(CorruptIndexError):
        index.collect_aborted_txns(0, 100)


def test_golden_f2_bytes(place):
    fs, _ = place
    index = make_index(place)
    txn = AbortedTxn(producer_id=4000, first_offset=8, last_offset=10, last_stable_offset=11)
    index.append(txn)
    index.close()
    assert fs.open(index.path).read(0, 100) == bytes.fromhex(
        "00000000000000000fa00000000000000008000000000000000a000000000000000b"
    )
    assert make_index(place).entries() == [txn]


def test_several_are_added_as_one_after_another(place):
    """In one write; out-of-order entries add nothing, and no entries create no file."""
    fs, _ = place
    index = make_index(place)
    index.extend([])
    assert not fs.exists(index.path)
    index.extend(TXNS[:1])
    for refused in ([TXNS[1], TXNS[1]], [TXNS[2], TXNS[1]], [TXNS[0], TXNS[1]]):
        with pytest.raises(InvalidOffsetError, match="is not above the previous one"):
            index.extend(refused)
        assert index.entries() == TXNS[:1]
    index.extend(TXNS[1:])
    assert index.entries() == TXNS
    assert index.last_txn == TXNS[-1]
    index._check()


def test_last_offset_must_rise(place):
    index = filled(place)
    for last_offset in (50, 49):
        with pytest.raises(InvalidOffsetError):
            index.append(AbortedTxn(4, 45, last_offset, 51))
    index.truncate_to(50)
    index.append(AbortedTxn(4, 45, 49, 51))
    index.close()
    index = make_index(place)
    with pytest.raises(
        InvalidOffsetError,
        match=exactly(
            "{path}/00000000000000000000.txnindex: last offset 49 of a transaction "
            "is not above the previous one, 49"
        ),
    ):
        index.append(AbortedTxn(4, 45, 49, 51))
    index.append(AbortedTxn(4, 45, 50, 51))
    assert len(index.entries()) == 5


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "slots", "is_complete"),
    (
        (0, 100, (0, 1, 2, 3), False),
        (0, 32, (0, 1, 2), True),
        (0, 35, (0, 1, 2, 3), True),
        (10, 35, (0, 1, 2, 3), True),
        (11, 35, (1, 2, 3), True),
        (16, 17, (), True),
        (20, 41, (2, 3), False),
        (51, 60, (), False),
        (16, 16, (), True),
    ),
)
def test_collect_aborted_txns(place, fetch_offset, upper_bound_offset, slots, is_complete):
    index = filled(place)
    found = index.collect_aborted_txns(fetch_offset, upper_bound_offset)
    assert found == ([TXNS[slot] for slot in slots], is_complete)


def test_bytes_of_no_whole_entry_are_ignored_and_overwritten(place):
    fs, directory = place
    fs.open(f"{directory}/{NAME}", create=True).write_at([b"torn"], 0)
    index = make_index(place)
    with pytest.raises(CorruptIndexError, match="length 4 is not a multiple") as caught:
        index.sanity_check()
    assert (caught.value.position, caught.value.expected, caught.value.found) == (0, 0, 4)
    assert index.is_empty
    index.append(TXNS[0])
    assert index.entries() == TXNS[:1]
    assert fs.stat(index.path).size == 34


def test_read_only_index_refuses_changes(place):
    filled(place).close()
    index = make_index(place, writable=False)
    assert index.entries() == TXNS
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000000.txnindex: index is read-only")
    ):
        index.append(AbortedTxn(9, 60, 70, 71))
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000000.txnindex: index is read-only")
    ):
        index.reset()


def test_rename_and_delete(place):
    fs, directory = place
    index = filled(place)
    index.rename_to(f"{directory}/{NAME}.deleted")
    index.flush()
    assert index.entries() == TXNS
    assert fs.list_dir(directory) == [f"{NAME}.deleted"]
    assert index.delete_if_exists()
    assert fs.list_dir(directory) == []
    with pytest.raises(
        ValueError, match=exactly("{path}/00000000000000000000.txnindex.deleted: index is closed")
    ):
        index.append(AbortedTxn(9, 60, 70, 71))


@st.composite
def aborted_txns(draw) -> list[AbortedTxn]:
    """Return transactions as in a partition: at most the marker is stable after it."""
    txns = []
    last_offset = BASE
    for step in draw(st.lists(st.integers(1, 6), max_size=200)):
        last_offset += step
        first_offset = draw(st.integers(max(BASE, last_offset - 20), last_offset))
        stable = draw(st.integers(first_offset, last_offset + 1))
        txns.append(AbortedTxn(draw(st.integers(0, 9)), first_offset, last_offset, stable))
    return txns


@given(
    txns=aborted_txns(),
    ranges=st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 60)), max_size=20),
    cut=st.integers(0, 1200),
)
@settings(deadline=None)
def test_equals_a_list(make_place, txns, ranges, cut):
    """Against the plain scan of storage-format §7.4, before and after a cut and a reopen."""
    place = make_place()
    index = make_index(place)
    for txn in txns:
        index.append(txn)

    def verify(model: list[AbortedTxn]) -> None:
        index._check()
        assert index.entries() == model
        assert index.is_empty == (not model)
        for fetch_offset, size in ranges:
            end = fetch_offset + size
            found, is_complete = [], False
            for txn in model:
                if txn.last_offset >= fetch_offset and txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:
                    is_complete = True
                    break
            assert index.collect_aborted_txns(fetch_offset, end) == (found, is_complete)

    verify(txns)
    index.truncate_to(cut)
    kept = [txn for txn in txns if txn.last_offset < cut]
    verify(kept)
    index.close()
    index = make_index(place)
    verify(kept)


def test_flushed_entries_survive_a_crash():
    """Only the index records that data below the recovery point were aborted."""
    fs = FaultyFileSystem()
    fs.make_dirs("/d")
    index = filled((fs, "/d"))
    index.flush()
    index.append(AbortedTxn(4, 51, 60, 51))
    fs.sync_dir("/d")
    fs.sync_dir("/")
    left = fs.crash()
    assert make_index((left, "/d"), writable=False).entries() == TXNS
