"""Hypothesis strategies for records and damaged bytes, and a plain reader of columns."""

from __future__ import annotations

import hypothesis.strategies as st

from logstore.record.records import Record
from logstore.types import INT32_MAX

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)

# Near zero, near the varint size steps, and anything at all.
timestamps = st.one_of(
    st.integers(-70, 70), st.integers(1_700_000_000_000, 1_700_000_100_000), INT64
)
nullable_bytes = st.one_of(st.none(), st.binary(max_size=12), st.integers(50, 300).map(bytes))
header_names = st.one_of(
    st.text(max_size=4),
    st.binary(max_size=4).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
headers = st.lists(st.tuples(header_names, nullable_bytes), max_size=3).map(tuple)


@st.composite
def record_lists(draw, min_size=0, max_size=12, dense=False):
    """Records with ascending offsets from a base, and the base: `(base_offset, records)`."""
    base = draw(st.integers(0, 2**40))
    count = draw(st.integers(min_size, max_size))
    if dense:
        first = draw(st.sampled_from([0, 1, 63, 64, 8191]))
        deltas = list(range(first, first + count))
    else:
        deltas = sorted(
            draw(
                st.sets(
                    st.one_of(st.integers(0, 100), st.integers(0, INT32_MAX)),
                    min_size=count,
                    max_size=count,
                )
            )
        )
    records = [
        Record(
            base + delta,
            draw(timestamps),
            draw(nullable_bytes),
            draw(nullable_bytes),
            draw(headers),
        )
        for delta in deltas
    ]
    return base, records


@st.composite
def damaged(draw, data):
    """`data` after one to three byte changes, removals, insertions or cuts."""
    raw = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["set", "flip", "remove", "insert", "cut", "extend"]))
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        value = draw(st.one_of(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]), st.integers(0, 255)))
        if kind == "insert":
            raw.insert(at, value)
        elif kind == "extend":
            raw.append(value)
        elif not raw:
            continue
        elif kind == "set":
            raw[at] = value
        elif kind == "flip":
            raw[at] ^= 1 << value % 8
        elif kind == "remove":
            del raw[at]
        else:
            del raw[at:]
    return bytes(raw)
