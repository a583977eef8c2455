"""Compression framing: scenarios S-015 to S-021, then damage, bombs, levels and properties."""

import concurrent.futures
import functools
import gzip
import io
import random
import subprocess
import sys
import tracemalloc
import zlib
from array import array
from pathlib import Path

import cramjam
import lz4.block
import lz4.frame
import pytest
import xxhash
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptRecordError, InvalidConfigurationError
from logstore.record import codecs
from logstore.record.codecs import Codec, compress, decompress

KIB = 1024
MIB = 1024 * KIB
COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
by_codec = pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.kafka_name)

# (1000, k1, v1) and (1005, k2, null) as they lie in an uncompressed batch.
TWO_RECORDS = bytes.fromhex("14000000046b310476310010000a02046b320100")
BATCH_HEADER_SIZE = 61

GOLDEN_BATCHES = {
    Codec.GZIP: "000000000000000000000059ffffffff02106a7e5000010000000100000000000003e800000000"
    "000003edffffffffffffffffffffffffffff000000021f8b08000000000000ff1361606060c936642933641060e062"
    "62c93662640000be61dd5f14000000",
    Codec.SNAPPY: "00000000000000000000005bffffffff02f228aa1100020000000100000000000003e8000000000"
    "00003edffffffffffffffffffffffffffff0000000282534e4150505900000000010000000100000016144c1400000"
    "0046b310476310010000a02046b320100",
    Codec.LZ4: "000000000000000000000054ffffffff02659cbbb600030000000100000000000003e80000000000000"
    "3edffffffffffffffffffffffffffff0000000204224d186040821400008014000000046b310476310010000a02046"
    "b32010000000000",
    Codec.ZSTD: "000000000000000000000051ffffffff02d127c77500040000000100000000000003e800000000000"
    "003edffffffffffffffffffffffffffff0000000228b52ffd0058a0000014000000046b310476310010000a02046b3"
    "20100010000",
}
GOLDEN_STREAMS = (
    (Codec.SNAPPY, b"", "82534e41505059000000000100000001"),
    (Codec.LZ4, b"\1\2\3", "04224d186040820300008001020300000000"),
    (Codec.ZSTD, b"\1\2\3", "28b52ffd0058180000010203010000"),
    (Codec.GZIP, b"\1\2\3", "1f8b08000000000000ff63646206001d80bc5503000000"),
)
WRITTEN_PREFIX = {
    Codec.GZIP: "1f8b08000000000000ff",
    Codec.SNAPPY: "82534e41505059000000000100000001",
    Codec.LZ4: "04224d18604082",
    Codec.ZSTD: "28b52ffd0058",
}


def refuse(codec: Codec, data: bytes, limit: int = codecs.DEFAULT_LIMIT) -> CorruptRecordError:
    """Return the error with which `data` is refused."""
    with pytest.raises(CorruptRecordError) as caught:
        decompress(codec, data, limit=limit)
    assert caught.value.check
    return caught.value


def content(kind: str, size: int, seed: int = 0) -> bytes:
    if kind == "zeros":
        return bytes(size)
    if kind == "noise":
        return random.Random(seed).randbytes(size)
    line = f"key-{seed} value with some text, ".encode()
    return (line * (size // len(line) + 1))[:size]


# --- the scenarios ------------------------------------------------------------------------------


@by_codec
def test_s015_golden_batches_decode_and_survive_re_encoding(codec):
    """S-015: G2g, G2s, G2l, G2z hold the records of the uncompressed form."""
    section = bytes.fromhex(GOLDEN_BATCHES[codec])[BATCH_HEADER_SIZE:]
    assert decompress(codec, section) == TWO_RECORDS
    again = compress(codec, TWO_RECORDS)
    assert decompress(codec, again) == TWO_RECORDS
    assert again.hex().startswith(WRITTEN_PREFIX[codec])


@pytest.mark.parametrize(
    ("codec", "expected", "stream"),
    GOLDEN_STREAMS,
    ids=[c.kafka_name for c, _, _ in GOLDEN_STREAMS],
)
def test_s015_bare_golden_streams_decode(codec, expected, stream):
    """S-015: the bare streams of the reference decode too."""
    assert decompress(codec, bytes.fromhex(stream)) == expected


def test_s016_raw_snappy_block_without_header_decodes():
    """S-016: one raw block, of more and of fewer bytes than a xerial header has."""
    for plain in (content("text", 5000), b"short"):
        raw = bytes(cramjam.snappy.compress_raw(plain))
        assert decompress(Codec.SNAPPY, raw) == plain


def test_s016_short_input_without_header_is_a_decode_error():
    """S-016: 10 bytes without a xerial header are read as a raw block, then refused."""
    assert refuse(Codec.SNAPPY, b"\x0a" + bytes(range(0xF0, 0xF9))).check == "snappy_block"
    assert refuse(Codec.SNAPPY, codecs.XERIAL_MAGIC + b"\0\0").check == "snappy_declared_length"
    assert refuse(Codec.SNAPPY, b"").check == "snappy_block"


def test_s017_concatenated_xerial_streams_are_one():
    """S-017: a header where a block length is expected starts the next stream."""
    first, second = content("text", 70_000, 1), content("noise", 40_000, 2)
    empty = compress(Codec.SNAPPY, b"")
    streams = [compress(Codec.SNAPPY, first), empty, compress(Codec.SNAPPY, second), empty]
    assert decompress(Codec.SNAPPY, b"".join(streams)) == first + second


def test_s018_snappy_blocks_hold_at_most_32_kib():
    """S-018: 100 KiB make at least 4 blocks with big-endian lengths."""
    plain = content("text", 100 * KIB)
    stream = io.BytesIO(compress(Codec.SNAPPY, plain))
    assert stream.read(16) == codecs.XERIAL_HEADER
    blocks = []
    while word := stream.read(4):
        block = stream.read(int.from_bytes(word, "big"))
        blocks.append(bytes(cramjam.snappy.decompress_raw(block)))
    assert len(blocks) >= 4
    assert max(map(len, blocks)) <= 32 * KIB
    assert b"".join(blocks) == plain


def lz4_frame(
    *blocks: bytes,
    flags: int = 0x60,
    descriptor: int = 0x40,
    content_size: bytes = b"",
    header_checksum: int | None = None,
    block_checksum_error: int = 0,
    tail: bytes = bytes(4),
) -> bytes:
    """Build a frame of the given plain blocks, compressed unless the flags say otherwise."""
    header = bytes((flags, descriptor)) + content_size
    if header_checksum is None:
        header_checksum = xxhash.xxh32_intdigest(header) >> 8 & 0xFF
    parts = [codecs.LZ4_MAGIC, header, bytes((header_checksum,))]
    for plain in blocks:
        block = lz4.block.compress(plain, store_size=False)
        parts += (len(block).to_bytes(4, "little"), block)
        if flags & 0x10:
            checksum = xxhash.xxh32_intdigest(block) ^ block_checksum_error
            parts.append(checksum.to_bytes(4, "little"))
    return b"".join((*parts, tail))


PLAIN = content("text", 3000)


def test_s019_lz4_linked_blocks_are_refused():
    """S-019: block independence bit 0, as hand-made and as the library writes by default."""
    assert refuse(Codec.LZ4, lz4_frame(PLAIN, flags=0x40)).check == "lz4_block_independence"
    linked = lz4.frame.compress(content("text", 200 * KIB))
    assert refuse(Codec.LZ4, linked).check == "lz4_block_independence"


def test_s019_lz4_wrong_header_checksum_is_refused():
    """S-019: one wrong byte HC; Kafka's old mistake (hashing the magic too) as well."""
    error = refuse(Codec.LZ4, lz4_frame(PLAIN, header_checksum=0x83))
    assert (error.check, error.expected, error.found) == ("lz4_header_checksum", 0x82, 0x83)
    old = xxhash.xxh32_intdigest(codecs.LZ4_MAGIC + b"\x60\x40") >> 8 & 0xFF
    assert refuse(Codec.LZ4, lz4_frame(PLAIN, header_checksum=old)).check == "lz4_header_checksum"


def test_s019_lz4_content_size_is_skipped():
    """S-019: present and accepted, right or wrong."""
    for size in (len(PLAIN), 7, 2**64 - 1):
        frame = lz4_frame(PLAIN, flags=0x68, content_size=size.to_bytes(8, "little"))
        assert decompress(Codec.LZ4, frame) == PLAIN


def test_s019_lz4_block_checksum_is_verified():
    """S-019: accepted when right, refused when wrong."""
    assert decompress(Codec.LZ4, lz4_frame(PLAIN, b"x", flags=0x70)) == PLAIN + b"x"
    wrong = lz4_frame(PLAIN, b"x", flags=0x70, block_checksum_error=1)
    assert refuse(Codec.LZ4, wrong).check == "lz4_block_checksum"


def test_s019_lz4_content_checksum_is_not_verified():
    """S-019: four bytes must follow the end mark, whatever they are."""
    for checksum in (xxhash.xxh32(PLAIN).digest()[::-1], b"\xde\xad\xbe\xef"):
        frame = lz4_frame(PLAIN, flags=0x64, tail=bytes(4) + checksum)
        assert decompress(Codec.LZ4, frame) == PLAIN
    assert refuse(Codec.LZ4, frame[:-1]).check == "lz4_truncated"


def test_s020_zstd_without_content_size_and_of_two_frames_decode():
    """S-020: content size absent, present, and frames one after another."""
    first, second = content("text", 300_000, 1), content("noise", 1000, 2)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(first)
    sized = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compress(second)
    skippable = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"aside"
    assert decompress(Codec.ZSTD, unsized) == first
    assert decompress(Codec.ZSTD, unsized + sized) == first + second
    assert decompress(Codec.ZSTD, skippable + sized + skippable + unsized) == second + first


def test_s021_gzip_with_file_name_and_two_members_decodes():
    """S-021: a name in the first header, then another member."""
    first, second = content("text", 100_000, 1), content("noise", 1000, 2)
    named = io.BytesIO()
    with gzip.GzipFile("records.bin", "wb", fileobj=named, mtime=1) as member:
        member.write(first)
    assert named.getvalue()[3] & 0x08
    both = named.getvalue() + compress(Codec.GZIP, second)
    assert decompress(Codec.GZIP, both) == first + second
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 3 + both) == first + second


# --- names and ids ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", (MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 7))
def test_few_bytes_of_gzip_may_hold_many(size):
    """The rest of the last chunk is returned in more than one step."""
    for plain in (bytes(size), content("text", 1000, 1) * (size // 1000)):
        assert decompress(Codec.GZIP, gzip.compress(plain, 9)) == plain


def test_codec_ids_and_names_are_kafkas():
    names = {codec.value: codec.kafka_name for codec in Codec}
    assert names == {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    assert all(Codec.from_name(codec.kafka_name) is codec for codec in Codec)


@pytest.mark.parametrize("number", (5, 6, 7, -1))
def test_unknown_codec_id_is_corrupt(number):
    with pytest.raises(CorruptRecordError, match="unknown compression type id") as caught:
        Codec(number)
    assert (caught.value.found, caught.value.args[0]) == (
        number,
        f"unknown compression type id: {number}",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    (
        (
            "uncompressed",
            ("unknown compression name: uncompressed (known: none, gzip, snappy, lz4, zstd)"),
        ),
        ("producer", ("unknown compression name: producer (known: none, gzip, snappy, lz4, zstd)")),
        ("GZIP", "unknown compression name: GZIP (known: none, gzip, snappy, lz4, zstd)"),
        ("", "unknown compression name:  (known: none, gzip, snappy, lz4, zstd)"),
    ),
)
def test_unknown_codec_name_is_refused(name, text):
    with pytest.raises(InvalidConfigurationError) as refused:
        Codec.from_name(name)
    assert str(refused.value) == text


# --- writing ------------------------------------------------------------------------------------


@by_codec
@pytest.mark.parametrize("size", (0, 1, 32 * KIB + 1, 64 * KIB + 1, MIB))
def test_independent_readers_accept_what_is_written(codec, size):
    plain = content("text", size)
    written = compress(codec, plain)
    assert written.hex().startswith(WRITTEN_PREFIX[codec])
    if codec is Codec.GZIP:
        assert gzip.decompress(written) == plain
    elif codec is Codec.LZ4:
        assert lz4.frame.decompress(written) == plain
        info = lz4.frame.get_frame_info(written)
        assert not info["content_checksum"]
        assert not info["block_checksum"]
        assert info["content_size"] == 0
    elif codec is Codec.ZSTD:
        assert zstandard.get_frame_parameters(written).has_checksum is False
        assert zstandard.ZstdDecompressor().stream_reader(written).read() == plain


def test_lz4_block_that_does_not_shrink_is_stored():
    plain = content("noise", 64 * KIB)
    written = compress(Codec.LZ4, plain)
    assert written[7:11] == (64 * KIB | 0x8000_0000).to_bytes(4, "little")
    assert written[11:] == plain + bytes(4)


@pytest.mark.parametrize(
    ("codec", "level"),
    (
        *((Codec.GZIP, level) for level in (-1, 1, 9)),
        *((Codec.LZ4, level) for level in (1, 2, 9, 12, 17)),
        *((Codec.ZSTD, level) for level in (-131_072, -1, 0, 1, 3, 9)),
    ),
)
def test_every_level_keeps_the_framing(codec, level):
    plain = content("text", 100 * KIB) + content("noise", 1000)
    written = compress(codec, plain, level)
    # The window, zstd's sixth byte, follows from the level.
    prefix = WRITTEN_PREFIX[codec][: 10 if codec is Codec.ZSTD else None]
    assert written.hex().startswith(prefix)
    assert decompress(codec, written) == plain


def test_default_levels_are_kafkas():
    plain = content("text", 50_000) + content("noise", 1000)
    for codec, level in ((Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)):
        assert compress(codec, plain) == compress(codec, plain, level)


@pytest.mark.parametrize(
    ("codec", "level", "text"),
    (
        (Codec.NONE, 1, "none has no compression levels, found 1"),
        (Codec.GZIP, 0, "gzip compression level must be -1 or 1 to 9, found 0"),
        (Codec.GZIP, 10, "gzip compression level must be -1 or 1 to 9, found 10"),
        (Codec.GZIP, -2, "gzip compression level must be -1 or 1 to 9, found -2"),
        (Codec.SNAPPY, 1, "snappy has no compression levels, found 1"),
        (Codec.LZ4, 0, "lz4 compression level must be 1 to 17, found 0"),
        (Codec.LZ4, 18, "lz4 compression level must be 1 to 17, found 18"),
        (Codec.ZSTD, 23, "zstd compression level must be -131072 to 22, found 23"),
        (Codec.ZSTD, -131_073, "zstd compression level must be -131072 to 22, found -131073"),
    ),
)
def test_level_out_of_range_is_refused(codec, level, text):
    with pytest.raises(InvalidConfigurationError) as refused:
        compress(codec, b"abc", level)
    assert str(refused.value) == text


# --- buffers, threads, imports ------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.kafka_name)
def test_any_buffer_is_taken(codec):
    plain = content("text", 1000)
    written = compress(codec, plain)
    padded = memoryview(b"ab" + plain + b"yz")[2:-2]
    for form in (
        bytearray(plain),
        padded,
        memoryview(array("B", plain)),
        memoryview(plain).cast("b"),
    ):
        assert compress(codec, form) == written
    around = memoryview(bytearray(b"ab" + written + b"yz"))[2:-2]
    for form in (bytearray(written), around, memoryview(written).cast("b")):
        assert bytes(decompress(codec, form)) == plain


def test_no_codec_copies_nothing():
    plain = b"records"
    assert compress(Codec.NONE, plain) is plain
    assert decompress(Codec.NONE, plain) is plain
    view = memoryview(plain)
    assert decompress(Codec.NONE, view, limit=1) is view
    array_of_bytes = bytearray(plain)
    decompressed = decompress(Codec.NONE, array_of_bytes)
    assert isinstance(decompressed, memoryview)
    assert decompressed.obj is array_of_bytes


@by_codec
def test_threads_do_not_disturb_each_other(codec):
    plains = [content("text", 50_000 + seed, seed) for seed in range(40)]

    def round_trip(plain):
        return decompress(codec, compress(codec, plain)) == plain

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, plains))


def test_import_loads_no_compression_library():
    program = (
        "import sys, logstore.record.codecs;"
        "print(*{'lz4', 'zstandard', 'cramjam', 'xxhash'} & set(sys.modules))"
    )
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "check", "text"),
    (
        (b"", "lz4_truncated", "lz4 data ends inside a frame header that starts at byte 0"),
        (
            b"\x04\x22\x4d\x18\x60\x40",
            "lz4_truncated",
            "lz4 data ends inside a frame header that starts at byte 0",
        ),
        (b"\x05" + lz4_frame(PLAIN)[1:], "lz4_magic", "not an lz4 frame"),
        (lz4_frame(PLAIN, flags=0x20), "lz4_version", "lz4 frame of another version"),
        (lz4_frame(PLAIN, flags=0xA0), "lz4_version", "lz4 frame of another version"),
        (lz4_frame(PLAIN, flags=0x61), "lz4_flags", "lz4 reserved flags are set"),
        (lz4_frame(PLAIN, flags=0x62), "lz4_flags", "lz4 reserved flags are set"),
        (
            lz4_frame(PLAIN, descriptor=0x30),
            "lz4_block_descriptor",
            "lz4 block descriptor is not one of 40, 50, 60, 70",
        ),
        (
            lz4_frame(PLAIN, descriptor=0x41),
            "lz4_block_descriptor",
            "lz4 block descriptor is not one of 40, 50, 60, 70",
        ),
        (
            lz4_frame(PLAIN, descriptor=0xC0),
            "lz4_block_descriptor",
            "lz4 block descriptor is not one of 40, 50, 60, 70",
        ),
        (
            lz4_frame(flags=0x68, content_size=bytes(8))[:14],
            "lz4_truncated",
            "lz4 data ends inside a frame header that starts at byte 0",
        ),
        (
            lz4_frame(PLAIN, tail=b""),
            "lz4_truncated",
            "lz4 data ends inside a block length that starts at byte 61",
        ),
        (
            lz4_frame(PLAIN, tail=bytes(3)),
            "lz4_truncated",
            "lz4 data ends inside a block length that starts at byte 61",
        ),
        (
            lz4_frame(tail=(64 * KIB + 1).to_bytes(4, "little")),
            "lz4_block_length",
            "lz4 block at byte 7 is longer than the frame's 65536",
        ),
        (
            lz4_frame(tail=b"\x05\0\0\0\xff\xff"),
            "lz4_truncated",
            "lz4 data ends inside a block that starts at byte 7",
        ),
        (
            lz4_frame(tail=b"\x02\0\0\0\xf0\xff\0\0\0\0"),
            "lz4_block",
            (
                "lz4 block at byte 7 is damaged: Decompression failed: corrupt input or "
                "insufficient space in destination buffer. Error code: 2"
            ),
        ),
        (
            lz4_frame(content("zeros", 64 * KIB + 1)),
            "lz4_block",
            (
                "lz4 block at byte 7 is damaged: Decompression failed: corrupt input or "
                "insufficient space in destination buffer. Error code: 262"
            ),
        ),
    ),
)
def test_damaged_lz4_is_refused(frame, check, text):
    error = refuse(Codec.LZ4, frame)
    assert error.check == check
    assert str(error) == text


@pytest.mark.parametrize("descriptor", (0x40, 0x50, 0x60, 0x70))
def test_lz4_block_sizes_up_to_4_mib_are_read(descriptor):
    block = content("text", 1 << (descriptor >> 3) + 8)
    frame = lz4_frame(block, b"x", descriptor=descriptor)
    assert decompress(Codec.LZ4, frame) == block + b"x"


def test_lz4_reading_ends_at_the_end_mark():
    """Kafka's reader takes one frame and leaves the rest; a stored block of 0 bytes ends it too."""
    assert decompress(Codec.LZ4, lz4_frame(PLAIN) + lz4_frame(PLAIN)) == PLAIN
    assert decompress(Codec.LZ4, lz4_frame(PLAIN, tail=b"\0\0\0\x80")) == PLAIN


@pytest.mark.parametrize(
    ("stream", "check", "text"),
    (
        (
            codecs.XERIAL_HEADER + b"\0\0\0",
            "snappy_truncated",
            "snappy data ends inside a block length that starts at byte 16",
        ),
        (
            codecs.XERIAL_HEADER + b"\0\0\0\x05\x03\x08ab",
            "snappy_truncated",
            "snappy data ends inside a block that starts at byte 16",
        ),
        (
            codecs.XERIAL_HEADER + b"\xff\xff\xff\xff",
            "snappy_block_length",
            "snappy block length -1 at byte 16 is out of range",
        ),
        (
            codecs.XERIAL_HEADER + b"\x20\0\0\x01",
            "snappy_block_length",
            "snappy block length 536870913 at byte 16 is out of range",
        ),
        (
            codecs.XERIAL_HEADER + b"\x20\0\0\0",
            "snappy_truncated",
            "snappy data ends inside a block that starts at byte 16",
        ),
        (
            codecs.XERIAL_HEADER + b"\0\0\0\0",
            "snappy_block",
            "snappy block at byte 20 is damaged: snappy: corrupt input (empty)",
        ),
        (
            codecs.XERIAL_HEADER + b"\0\0\0\x01\x80",
            "snappy_block",
            ("snappy block at byte 20 is damaged: snappy: corrupt input (invalid header)"),
        ),
        (
            codecs.XERIAL_HEADER + b"\0\0\0\x05\x03\x10abc",
            "snappy_block",
            (
                "snappy block at byte 20 is damaged: snappy: corrupt input (expected "
                "literal read of length 5; remaining src: 3; remaining dst: 3)"
            ),
        ),
        (
            codecs.XERIAL_HEADER + codecs.XERIAL_HEADER[:15],
            "snappy_truncated",
            "snappy data ends inside a stream header that starts at byte 16",
        ),
        (
            codecs.XERIAL_HEADER + codecs.XERIAL_MAGIC[:7] + bytes(9),
            "snappy_version",
            "snappy stream at byte 16 has version 0, below 1",
        ),
        (
            codecs.XERIAL_HEADER + codecs.XERIAL_MAGIC[:6] + bytes(10),
            "snappy_magic",
            "snappy stream header at byte 16 is damaged",
        ),
        (
            codecs.XERIAL_MAGIC + bytes(8),
            "snappy_version",
            "snappy stream at byte 0 has version 0, below 1",
        ),
    ),
)
def test_damaged_snappy_is_refused(stream, check, text):
    error = refuse(Codec.SNAPPY, stream)
    assert error.check == check
    assert str(error) == text


BLOCK = compress(Codec.SNAPPY, b"sound")[16:]
"""A block of an xerial stream, with its length."""


@pytest.mark.parametrize(
    ("damaged", "text"),
    (
        (b"\0\0\0", "data ends inside a block length that starts at byte {at}"),
        (b"\0\0\0\x05ab", "data ends inside a block that starts at byte {at}"),
        (b"\xff\xff\xff\xff", "block length -1 at byte {at} is out of range"),
        (b"\0\0\0\x01\x80", "block at byte {block} is damaged: "),
        (b"\0\0\0\x02\x64a", "block of 2 bytes at byte {block} cannot hold 100"),
        (codecs.XERIAL_HEADER[:9], "data ends inside a stream header that starts at byte {at}"),
        (codecs.XERIAL_MAGIC[:6] + bytes(10), "stream header at byte {at} is damaged"),
        (codecs.XERIAL_MAGIC + bytes(8), "stream at byte {at} has version 0, below 1"),
    ),
)
def test_damaged_snappy_is_named_by_its_position(damaged, text):
    for count in (1, 3):
        stream = codecs.XERIAL_HEADER + BLOCK * count
        assert decompress(Codec.SNAPPY, stream) == b"sound" * count
        at = len(stream)
        message = str(refuse(Codec.SNAPPY, stream + damaged).args[0])
        assert message.startswith("snappy " + text.format(at=at, block=at + 4))


def zstd_frame(*blocks: bytes, descriptor: str = "0058") -> bytes:
    return bytes.fromhex("28b52ffd" + descriptor) + b"".join(blocks)


@pytest.mark.parametrize(
    ("frame", "check", "text"),
    (
        (
            b"\x28",
            "zstd_frame_header",
            (
                "zstd frame header at byte 0 is damaged: not enough data for frame "
                "parameters; need 5 bytes"
            ),
        ),
        (
            zstd_frame()[:5],
            "zstd_frame_header",
            (
                "zstd frame header at byte 0 is damaged: not enough data for frame "
                "parameters; need 6 bytes"
            ),
        ),
        (
            b"garbage that is no frame",
            "zstd_frame_header",
            (
                "zstd frame header at byte 0 is damaged: cannot get frame parameters: "
                "Unknown frame descriptor"
            ),
        ),
        (
            zstd_frame(b"\1\0\0") + b"garbage",
            "zstd_frame_header",
            (
                "zstd frame header at byte 9 is damaged: cannot get frame parameters: "
                "Unknown frame descriptor"
            ),
        ),
        (
            zstd_frame(b"\1\0\0") + b"\0",
            "zstd_frame_header",
            (
                "zstd frame header at byte 9 is damaged: cannot get frame parameters: "
                "Unknown frame descriptor"
            ),
        ),
        (zstd_frame(), "zstd_truncated", "zstd data ends inside a frame that starts at byte 0"),
        (
            zstd_frame(b"\1\0"),
            "zstd_truncated",
            "zstd data ends inside a frame that starts at byte 0",
        ),
        (
            zstd_frame(b"\x18\0\0abc"),
            "zstd_truncated",
            "zstd data ends inside a frame that starts at byte 0",
        ),
        (
            zstd_frame(b"\x19\0\0ab"),
            "zstd_truncated",
            "zstd data ends inside a frame that starts at byte 0",
        ),
        (
            zstd_frame(b"\x03\0\0"),
            "zstd_truncated",
            "zstd data ends inside a frame that starts at byte 0",
        ),
        (
            zstd_frame(b"\x07\0\0"),
            "zstd_frame",
            ("zstd frame at byte 0 is damaged: zstd decompress error: Data corruption detected"),
        ),  # reserved block type
        (
            zstd_frame(b"\1\0\0", descriptor="0458") + b"abc",
            "zstd_truncated",
            "zstd data ends inside a frame that starts at byte 0",
        ),
        (
            zstd_frame(b"\1\0\0", descriptor="0458") + b"abcd",
            "zstd_frame",
            (
                "zstd frame at byte 0 is damaged: zstd decompress error: Restored data "
                "doesn't match checksum"
            ),
        ),  # wrong checksum
        (
            zstd_frame(b"\1\0\0", descriptor="015807"),
            "zstd_frame",
            ("zstd frame at byte 0 is damaged: zstd decompress error: Dictionary mismatch"),
        ),  # an unknown dictionary
        (
            zstd_frame(b"\1\0\0", descriptor="0090"),
            "zstd_frame",
            (
                "zstd frame at byte 0 is damaged: zstd decompress error: Frame requires too "
                "much memory for decoding"
            ),
        ),  # a window of 256 MiB
        (
            zstd_frame(b"\x19\0\0abc", descriptor="2004"),
            "zstd_frame",
            ("zstd frame at byte 0 is damaged: zstd decompress error: Data corruption detected"),
        ),  # content size 4
        (
            b"\x50\x2a\x4d\x18\4\0\0\0abc",
            "zstd_truncated",
            "zstd data ends inside a skippable frame that starts at byte 0",
        ),
        (
            b"\x50\x2a\x4d\x18\4\0\0",
            "zstd_truncated",
            "zstd data ends inside a skippable frame that starts at byte 0",
        ),
    ),
)
def test_damaged_zstd_is_refused_and_leaves_no_trace(frame, check, text):
    error = refuse(Codec.ZSTD, frame)
    assert error.check == check
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, PLAIN)) == PLAIN
    assert str(error) == text


def test_zstd_window_up_to_the_library_default_is_read():
    assert decompress(Codec.ZSTD, zstd_frame(b"\x19\0\0abc", descriptor="0088")) == b"abc"
    assert decompress(Codec.ZSTD, b"") == b""  # as Kafka's reader sees it: no frame at all


def test_large_zstd_window_is_not_kept():
    decompress(Codec.ZSTD, zstd_frame(b"\x19\0\0abc", descriptor="0058"))
    decompress(Codec.ZSTD, zstd_frame(b"\x19\0\0abc", descriptor="0088"))
    assert codecs._thread.zstd_decompressor.memory_size() < 16 * MIB


@pytest.mark.parametrize(
    ("stream", "check", "text"),
    (
        (b"", "gzip_truncated", "gzip data ends inside a member that starts at byte 0"),
        (b"\x1f", "gzip_truncated", "gzip data ends inside a member that starts at byte 0"),
        (
            b"\x1f\x8c" + bytes(20),
            "gzip_member",
            (
                "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
                "incorrect header check"
            ),
        ),
        (
            compress(Codec.GZIP, PLAIN)[:-1],
            "gzip_truncated",
            "gzip data ends inside a member that starts at byte 0",
        ),
        (
            compress(Codec.GZIP, PLAIN)[:-4] + b"\0\0\0\1",
            "gzip_member",
            (
                "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
                "incorrect length check"
            ),
        ),
        (
            compress(Codec.GZIP, PLAIN)[:-8] + bytes(8),
            "gzip_member",
            (
                "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
                "incorrect data check"
            ),
        ),
        (
            compress(Codec.GZIP, PLAIN) * 2 + b"\x1f\x8b\x08",
            "gzip_truncated",
            "gzip data ends inside a member that starts at byte 146",
        ),
        (
            zlib.compress(PLAIN),
            "gzip_member",
            (
                "gzip member at byte 0 is damaged: Error -3 while decompressing data: "
                "incorrect header check"
            ),
        ),
    ),
)
def test_damaged_gzip_is_refused(stream, check, text):
    error = refuse(Codec.GZIP, stream)
    assert error.check == check
    assert str(error) == text


def test_gzip_reading_ends_where_no_member_begins():
    """The JDK's reader leaves the rest, too."""
    assert decompress(Codec.GZIP, compress(Codec.GZIP, PLAIN) + b"rest") == PLAIN


# --- limits and bombs ---------------------------------------------------------------------------


@by_codec
@pytest.mark.parametrize("kind", ("zeros", "text", "noise"))
def test_limit_is_inclusive(codec, kind):
    plain = content(kind, 200 * KIB)
    written = compress(codec, plain)
    assert decompress(codec, written, limit=len(plain)) == plain
    for limit in (len(plain) - 1, 1000, 0):
        error = refuse(codec, written, limit)
        assert error.check == "decompressed_size"
        assert f"limit of {limit} bytes" in str(error)
    assert decompress(codec, compress(codec, b""), limit=0) == b""


BOMBS = (
    "gzip",
    "gzip members",
    "zstd",
    "zstd frames",
    "zstd claim",
    "lz4",
    "snappy",
    "snappy claim",
    "snappy xerial claim",
    "snappy great claim",
)


@functools.cache
def bombs() -> dict[str, tuple[Codec, bytes]]:
    """Make small inputs that decompress to 1 GiB or more."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    mebibyte = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    zstd_rle = (0x2_0000 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    lz4_zeros = lz4.block.compress(bytes(4 * MIB), store_size=False)
    lz4_block = len(lz4_zeros).to_bytes(4, "little") + lz4_zeros
    claim = b"\x80\x80\x80\x80\x04"  # 2^30 as a varint
    return {
        "gzip": (Codec.GZIP, codecs.GZIP_HEADER + mebibyte * 1024),
        "gzip members": (Codec.GZIP, compress(Codec.GZIP, bytes(MIB)) * 1024),
        "zstd": (Codec.ZSTD, zstd_frame(zstd_rle * 8192, b"\1\0\0")),
        "zstd frames": (Codec.ZSTD, compress(Codec.ZSTD, bytes(MIB)) * 1024),
        "zstd claim": (Codec.ZSTD, zstd_frame(b"\1\0\0", descriptor="a000000040")),
        "lz4": (Codec.LZ4, lz4_frame(descriptor=0x70, tail=lz4_block * 256 + bytes(4))),
        "snappy": (
            Codec.SNAPPY,
            codecs.XERIAL_HEADER + compress(Codec.SNAPPY, bytes(64 * MIB))[16:],
        ),
        "snappy claim": (Codec.SNAPPY, claim + b"abc"),
        "snappy xerial claim": (
            Codec.SNAPPY,
            codecs.XERIAL_HEADER + b"\0\0\0\x08" + claim + b"abc",
        ),
        "snappy great claim": (Codec.SNAPPY, claim + bytes(52 * MIB)),
    }


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_stopped_within_the_limit(name):
    codec, bomb = bombs()[name]
    limit = 8 * MIB
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        error = refuse(codec, bomb, limit)
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert error.check in ("decompressed_size", "snappy_declared_length")
    assert taken <= 2 * limit + 5 * MIB  # pieces and their joint, and one lz4 block too many


def test_no_memory_is_taken_for_what_the_input_cannot_hold():
    """Claims below the limit: a snappy length, and zstd blocks that might be 128 KiB each."""
    claim = b"\x80\x80\x80\x01" + b"abc"
    empty_blocks = zstd_frame(b"\x14\0\0\0\0" * 4000, b"\1\0\0")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert refuse(Codec.SNAPPY, claim).check == "snappy_declared_length"
        assert decompress(Codec.ZSTD, empty_blocks) == b""
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert taken < 2 * MIB


def test_snappy_of_the_greatest_ratio_is_read():
    """A block of nearly nothing but copies of 64 bytes, 3 bytes each."""
    plain = bytes(32 * KIB)
    raw = bytes(cramjam.snappy.compress_raw(plain))
    assert len(plain) / len(raw) > 20
    assert decompress(Codec.SNAPPY, raw) == plain


@pytest.mark.skipif(sys.platform != "linux", reason="needs an address space limit that holds")
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_stopped_in_little_address_space(name, tmp_path):
    """The libraries' own memory counts here; a process of 160 MiB more refuses 1 GiB and more."""
    codec, bomb = bombs()[name]
    path = tmp_path / "bomb"
    path.write_bytes(bomb)
    program = f"""
import pathlib, resource
from logstore.errors import CorruptRecordError
from logstore.record.codecs import Codec, compress, decompress
codec = Codec({codec.value})
decompress(codec, compress(codec, b"warm"))
bomb = pathlib.Path({str(path)!r}).read_bytes()
size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + {160 * MIB},) * 2)
try:
    decompress(codec, bomb, limit={32 * MIB})
except CorruptRecordError as error:
    print(error.check)
"""
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() in ("decompressed_size", "snappy_declared_length"), run.stderr


# --- properties ---------------------------------------------------------------------------------

BORDERS = (0, 1, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 131_071, 131_073, MIB)
contents = st.one_of(
    st.binary(max_size=300),
    st.builds(
        content,
        st.sampled_from(("zeros", "text", "noise")),
        st.sampled_from(BORDERS),
        st.integers(0, 1000),
    ),
)


@by_codec
@settings(deadline=None)
@given(plain=contents)
def test_round_trip(codec, plain):
    assert decompress(codec, compress(codec, plain), limit=len(plain)) == plain


@by_codec
@settings(deadline=None)
@given(plain=contents, data=st.data())
def test_truncated_stream_is_refused_or_a_prefix(codec, plain, data):
    written = compress(codec, plain)
    cut = data.draw(st.integers(0, len(written) - 1))
    try:
        decompressed = decompress(codec, written[:cut])
    except CorruptRecordError:
        return
    # Only these cannot be distinguished from a truncation: a xerial stream, and no zstd frame.
    assert codec is Codec.SNAPPY or (codec is Codec.ZSTD and cut == 0)
    assert plain.startswith(decompressed)


@by_codec
@settings(deadline=None, max_examples=300)
@given(
    plain=contents,
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=4),
    slack=st.sampled_from((0, 1, 100_000)),
)
def test_flipped_bits_are_refused_or_decode_within_the_limit(codec, plain, flips, slack):
    written = bytearray(compress(codec, plain))
    for place, bit in flips:
        # Half of the flips fall into the first bytes, where the structure is.
        span = min(len(written), 24) if bit & 1 else len(written)
        written[int(place * (span - 1))] ^= 1 << bit
    limit = len(plain) + slack
    try:
        decompressed = decompress(codec, written, limit=limit)
    except CorruptRecordError:
        return
    assert len(decompressed) <= limit


@by_codec
@settings(deadline=None, max_examples=300)
@given(tail=st.binary(max_size=200), keep=st.integers(0, 24))
@example(tail=b"\xff" * 40, keep=7)
@example(tail=b"\x80" * 40, keep=16)
def test_arbitrary_bytes_are_refused_or_decode_within_the_limit(codec, tail, keep):
    stream = compress(codec, PLAIN)[:keep] + tail
    try:
        decompressed = decompress(codec, stream, limit=10_000)
    except CorruptRecordError:
        return
    assert len(decompressed) <= 10_000
