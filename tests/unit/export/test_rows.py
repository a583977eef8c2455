"""Fates of an export's records, matched to the chunks of a pass by offset."""

import numpy as np

from logstore.cleaner.passes.fate import FATES, FateChunk
from logstore.errors import CorruptRecordError, LogStoreError
from logstore.export.rows import NO_FATE, RESTARTS_MAX, Fates

RETAINED, SUPERSEDED = FATES.index("retained"), FATES.index("superseded")


class View:
    """A view of one log, which can always be opened again."""

    def evaluate(self, visit):
        try:
            return visit("log")
        except CorruptRecordError:  # the log is opened again
            return visit("log")


def chunk(*rows):
    offsets, fates, superseded_by = (list(column) for column in zip(*rows, strict=True))
    return FateChunk(
        np.array(offsets, np.int64),
        np.array(fates, np.uint8),
        np.array(superseded_by, np.int64),
        *(np.empty(0, np.int8), b"", np.empty(0, np.int64), np.empty(0, np.int64)),
    )


def rows(*offsets):
    return [(offset, 0, None, None, ()) for offset in offsets]


def found(fates, *offsets):
    codes, superseded_by = fates.of(rows(*offsets))
    return list(zip(codes.tolist(), superseded_by.tolist(), strict=True))


def test_records_find_their_fates_across_chunks_and_gaps():
    chunks = [
        chunk((0, RETAINED, -1), (2, SUPERSEDED, 9), (5, RETAINED, -1)),
        chunk((6, SUPERSEDED, 8), (9, RETAINED, -1)),
    ]
    fates = Fates(View(), lambda log: chunks)
    assert found(fates, 0, 1, 2) == [(RETAINED, -1), (NO_FATE, -1), (SUPERSEDED, 9)]
    assert found(fates) == []
    assert found(fates, 5, 6) == [(RETAINED, -1), (SUPERSEDED, 8)]
    assert found(fates, 7, 9, 11) == [(NO_FATE, -1), (RETAINED, -1), (NO_FATE, -1)]
    assert fates.failure is None


def test_fates_start_again_after_damage():
    error = CorruptRecordError("damaged")

    def start(log):
        starts.append(log)
        yield chunk((0, RETAINED, -1), (1, SUPERSEDED, 3))
        if len(starts) == 1:
            raise error
        yield chunk((2, RETAINED, -1), (3, RETAINED, -1))

    starts = []
    fates = Fates(View(), start)
    assert found(fates, 0, 1, 2, 3) == [
        *((RETAINED, -1), (SUPERSEDED, 3)),
        *((RETAINED, -1), (RETAINED, -1)),
    ]
    assert (starts, fates.failure) == (["log"] * 2, None)


def test_fates_end_at_damage_that_does_not_go_away():
    error = LogStoreError("damaged")

    def start(log):
        starts.append(log)
        yield chunk((0, SUPERSEDED, 7))
        raise error

    starts = []
    fates = Fates(View(), start)
    assert found(fates, 0, 1, 7) == [(SUPERSEDED, 7), (NO_FATE, -1), (NO_FATE, -1)]
    assert fates.failure is error
    assert len(starts) == RESTARTS_MAX + 1
    assert found(fates, 8) == [(NO_FATE, -1)]
