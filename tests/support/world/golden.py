"""Golden vectors: bytes that Kafka's classes wrote (storage-format §17, cleaner §14).

G* are record batches, F* other files, E* the states of the worked cleaning examples. The leader
epoch is -1 and the timestamp type CreateTime unless noted.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.record.records import Record

G1 = bytes.fromhex(
    "00000000000000000000005cffffffff021322e9a800000000000200000000000003e80000000000"
    "0003edffffffffffffffffffffffffffff0000000314000000046b310476310010000a02046b3201"
    "002c00130401047633040268100000000000000007026e01"
)
"""Base 0: (1000, k1, v1), (1005, k2, null), (990, null, v3, headers h = i64 7 and n = null)."""

G2_GZIP = bytes.fromhex(
    "000000000000000000000059ffffffff02106a7e5000010000000100000000000003e80000000000"
    "0003edffffffffffffffffffffffffffff000000021f8b08000000000000ff1361606060c9366429"
    "33641060e06262c93662640000be61dd5f14000000"
)
"""Gzip: (1000, k1, v1), (1005, k2, null)."""

G2_SNAPPY = bytes.fromhex(
    "00000000000000000000005bffffffff02f228aa1100020000000100000000000003e80000000000"
    "0003edffffffffffffffffffffffffffff0000000282534e41505059000000000100000001000000"
    "16144c14000000046b310476310010000a02046b320100"
)
"""The records of `G2_GZIP` in snappy."""

G2_LZ4 = bytes.fromhex(
    "000000000000000000000054ffffffff02659cbbb600030000000100000000000003e80000000000"
    "0003edffffffffffffffffffffffffffff0000000204224d186040821400008014000000046b3104"
    "76310010000a02046b32010000000000"
)
"""The records of `G2_GZIP` in lz4."""

G2_ZSTD = bytes.fromhex(
    "000000000000000000000051ffffffff02d127c77500040000000100000000000003e80000000000"
    "0003edffffffffffffffffffffffffffff0000000228b52ffd0058a0000014000000046b31047631"
    "0010000a02046b320100010000"
)
"""The records of `G2_GZIP` in zstd."""

G3 = bytes.fromhex(
    "000000000000002a0000003a0000000302b9b267a30000000000000000018bcfe5687b0000018bcf"
    "e5687b0000000000000fa000070000000b00000001100000000261026200"
)
"""Idempotent: base 42, leader epoch 3, pid 4000, epoch 7, sequence 11, (1700000000123, a, b)."""

G4 = bytes.fromhex(
    "000000000000002a0000003a00000003027ecfc1120010000000000000018bcfe5687b0000018bcf"
    "e5687b0000000000000fa000070000000b00000001100000000261026200"
)
"""The same batch, transactional."""

G5 = bytes.fromhex(
    "000000000000002b000000420000000302dd1158140030000000000000018bcfe569f40000018bcf"
    "e569f40000000000000fa00007ffffffff000000012000000008000000010c00000000000900"
)
"""COMMIT marker at 43, timestamp 1700000000500, coordinator epoch 9, producer of `G3`."""

G6 = bytes.fromhex(
    "000000000000002b000000420000000302292f8e5c0030000000000000018bcfe569f40000018bcf"
    "e569f40000000000000fa00007ffffffff000000012000000008000000000c00000000000900"
)
"""ABORT marker with the same fields."""

G7 = bytes.fromhex(
    "0000000000000003000000310000012502da1e685b000000000003ffffffffffffffff0000018bcf"
    "e56800000000000000001700050000000a00000000"
)
"""Empty batch 3 to 6: pid 23, epoch 5, sequence 10, leader epoch 293, max 1700000000000."""

G8 = bytes.fromhex(
    "00000000000000000000003bffffffff028b2ed9b200400000000100000000000013ec0000000000"
    "0003edffffffffffffffffffffffffffff000000011200fd3f02046b320100"
)
"""Tombstone k2 of the `G2_GZIP` records, uncompressed, with delete horizon 5100."""

G9 = bytes.fromhex(
    "00000000000000000000003a00000000026f607a7300080000000000000000000000050000018bcf"
    "e56800ffffffffffffffffffffffffffff00000001100000000261023100"
)
"""(5, a, 1), stamped in place with LogAppendTime at 1700000000000."""

F1 = bytes.fromhex(
    "0001fedf4e50000000020000000000000001000200000001000000000000000200000003ffffffff"
    "ffffffff000000030000000000000064000000000000000b000cffffffffffffffffffffffff0000"
    "0000000000000001e2400000000dffffffffffffffff"
)
"""Producer snapshot: pid 1 (epoch 2, coordinator 3, timestamp -1, transaction from 100, last
sequence 1, last offset 2, delta 3) and pid 11 (epoch 12, coordinator 13, timestamp 123456, no
batch, no transaction)."""

F2 = bytes.fromhex("00000000000000000fa00000000000000008000000000000000a000000000000000b")
"""Transaction index entry: pid 4000, first 8, last 10, last stable offset 11."""

F3 = bytes.fromhex("0000000500001000")
"""Offset index entry of a segment with base 50: offset 55 at position 4096."""

F4 = bytes.fromhex("0000018bcfe5680000000005")
"""Time index entry of a segment with base 50: timestamp 1700000000000 at offset 55."""

F6 = b"0\n1\nfoo 0 5\n"
"""Offset checkpoint of {foo-0: 5}."""

F7 = b'{"version":0,"brokerEpoch":-1}'
"""Clean-shutdown file, broker epoch unknown."""

F8 = b"version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg"
"""partition.metadata of the UUID whose halves are 1 and 2."""

BATCHES = {
    "G1": G1,
    "G2g": G2_GZIP,
    "G2s": G2_SNAPPY,
    "G2l": G2_LZ4,
    "G2z": G2_ZSTD,
    "G3": G3,
    "G4": G4,
    "G5": G5,
    "G6": G6,
    "G7": G7,
    "G8": G8,
    "G9": G9,
}
"""All batches by the names that the specification gives them."""

G1_RECORDS = (
    Record(0, 1000, b"k1", b"v1"),
    Record(1, 1005, b"k2", None),
    Record(2, 990, None, b"v3", (("h", bytes.fromhex("0000000000000007")), ("n", None))),
)
G2_RECORDS = G1_RECORDS[:2]
G3_RECORDS = (Record(42, 1700000000123, b"a", b"b"),)
G8_RECORDS = (Record(1, 1005, b"k2", None),)
G9_RECORDS = (Record(0, 5, b"a", b"1"),)
"""Records of G9 as created, before the stamp."""


class SegmentFiles(NamedTuple):
    """The files of a closed segment; an empty transaction index is b""."""

    log: bytes
    index: bytes
    timeindex: bytes
    txnindex: bytes = b""


E1_INPUT = SegmentFiles(
    log=bytes.fromhex(
        "00000000000000000000004300000000024e37fce20000000000010000018bcfe568000000018bcf"
        "e56801ffffffffffffffffffffffffffff0000000210000000026102300010000202026202300000"
        "00000000000002000000420000000002460635200000000000010000018bcfe568020000018bcfe5"
        "6803ffffffffffffffffffffffffffff000000020e00000002610100100002020262023100000000"
        "00000000040000003a0000000002d619cebd0000000000000000018bcfe568040000018bcfe56804"
        "ffffffffffffffffffffffffffff00000001100000000263023100"
    ),
    index=bytes.fromhex("000000030000004f000000040000009d"),
    timeindex=bytes.fromhex("0000018bcfe56803000000030000018bcfe5680400000004"),
)
"""B1 [a=0, b=0] at 0-1, B2 [a=null, b=1] at 2-3, B3 [c=1] at 4; timestamps T to T+4."""

E1_PASS_1 = SegmentFiles(
    log=bytes.fromhex(
        "0000000000000002000000440000000002d23631d50040000000010000018bcfe56bf20000018bcf"
        "e56803ffffffffffffffffffffffffffff000000021000df0f00026101001200dd0f020262023100"
        "00000000000000040000003a0000000002d619cebd0000000000000000018bcfe568040000018bcf"
        "e56804ffffffffffffffffffffffffffff00000001100000000263023100"
    ),
    index=b"",
    timeindex=bytes.fromhex("0000018bcfe5680400000004"),
)
"""At now T+10: B1 is removed, B2 has horizon T+1010."""

E1_PASS_2 = SegmentFiles(
    log=bytes.fromhex(
        "00000000000000020000003b00000000026741c5500040000000010000018bcfe56bf20000018bcf"
        "e56803ffffffffffffffffffffffffffff000000011200dd0f020262023100000000000000000400"
        "00003a0000000002d619cebd0000000000000000018bcfe568040000018bcfe56804ffffffffffff"
        "ffffffffffffffff00000001100000000263023100"
    ),
    index=b"",
    timeindex=bytes.fromhex("0000018bcfe5680400000004"),
)
"""At now T+1010: the tombstone is removed, its horizon stays."""

E2_INPUT = SegmentFiles(
    log=bytes.fromhex(
        "00000000000000000000004300000000027d7caddf0010000000010000018bcfe568000000018bcf"
        "e568010000000000000fa00007000000000000000210000000026102300010000202026202300000"
        "00000000000002000000420000000002df2899760030000000000000018bcfe568020000018bcfe5"
        "68020000000000000fa00007ffffffff000000012000000008000000000c00000000000900000000"
        "00000000030000003a00000000022d22c6160000000000000000018bcfe568030000018bcfe56803"
        "ffffffffffffffffffffffffffff00000001100000000263023100"
    ),
    index=bytes.fromhex("000000020000004f000000030000009d"),
    timeindex=bytes.fromhex("0000018bcfe56802000000020000018bcfe5680300000003"),
    txnindex=bytes.fromhex("00000000000000000fa0000000000000000000000000000000020000000000000003"),
)
"""Pid 4000 epoch 7: transactional [a=0, b=0] at 0-1, abort marker at 2; c=1 at 3."""

E2_PASS_1 = SegmentFiles(
    log=bytes.fromhex(
        "00000000000000000000003100000000028ffe9af4001000000001ffffffffffffffff0000018bcf"
        "e568010000000000000fa0000700000000000000000000000000000002000000420000000002df28"
        "99760030000000000000018bcfe568020000018bcfe568020000000000000fa00007ffffffff0000"
        "00012000000008000000000c0000000000090000000000000000030000003a00000000022d22c616"
        "0000000000000000018bcfe568030000018bcfe56803ffffffffffffffffffffffffffff00000001"
        "100000000263023100"
    ),
    index=b"",
    timeindex=bytes.fromhex("0000018bcfe5680300000003"),
    txnindex=bytes.fromhex("00000000000000000fa0000000000000000000000000000000020000000000000003"),
)
"""At now T+10: the data batch is emptied but kept as its producer's last."""

E_TIMESTAMP = 1700000000000
"""T of the worked examples."""
