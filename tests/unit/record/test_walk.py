"""Walking buffers and files: the rule table of storage-format §4.2, row by row, and old formats."""

import random
import struct
import zlib

import pytest

from logstore.errors import CorruptRecordError, UnsupportedFormatError
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import Record
from logstore.record.walk import read_batch, refuse_old_format, walk_buffer, walk_headers
from logstore.runtime import MemoryFileSystem
from tests.support.world import golden
from tests.support.world.messages import exactly

PATH = "/t-0/00000000000000000000.log"
BATCH = golden.G3
END = len(BATCH)


def file_of(data):
    fs = MemoryFileSystem()
    fs.make_dirs("/t-0")
    file = fs.open(PATH, create=True)
    file.append([data])
    return file


def in_buffer(data):
    return [batch.data for batch in walk_buffer(data)]


def in_file_buffer(data):
    return [batch.data for batch in walk_buffer(data, PATH)]


def in_file(data):
    return [data[at.position : at.end_position] for at in walk_headers(file_of(data), PATH)]


WALKS = {"buffer": in_buffer, "file buffer": in_file_buffer, "file": in_file}
FILE_WALKS = {"file buffer": in_file_buffer, "file": in_file}


@pytest.fixture(params=list(WALKS))
def walk(request):
    return WALKS[request.param]


@pytest.fixture(params=list(FILE_WALKS))
def walk_file(request):
    return FILE_WALKS[request.param]


def old_message(magic, key=b"key", value=b"value", attributes=0):
    """An entry of magic 0 or 1, as Kafka wrote it before 0.11."""
    body = bytes([magic, attributes])
    if magic == 1:
        body += (1_500_000_000_000).to_bytes(8, "big")
    for part in (key, value):
        body += struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def entry(size, magic=2):
    """An entry of `size` bytes in all that says so."""
    raw = bytearray(struct.pack(">qii", 0, size - 12, -1) + bytes([magic % 256]))
    return bytes(raw.ljust(size, b"\0"))[:size]


def test_walks_yield_every_batch(walk):
    batches = list(golden.BATCHES.values())
    assert walk(b"".join(batches)) == batches
    assert walk(b"") == []


def test_batches_of_a_buffer_know_their_place():
    first, second = walk_buffer(golden.G1 + golden.G3, PATH, 1000)
    assert (first.path, first.position, second.position) == (PATH, 1000, 1000 + len(golden.G1))
    with pytest.raises(CorruptRecordError) as caught:
        list(walk_buffer(golden.G1 + bytes(61), PATH, 1000))
    assert (caught.value.path, caught.value.position) == (PATH, 1000 + len(golden.G1))


@pytest.mark.parametrize("cut", range(1, END))
def test_a_torn_batch_at_the_end_is_not_seen(walk, cut):
    assert walk(BATCH + BATCH[:cut]) == [BATCH]
    assert walk(BATCH[:cut]) == []


@pytest.mark.parametrize("count", range(1, 18))
def test_s013_up_to_17_zero_bytes_end_a_file(walk_file, count):
    """S-013: one to seventeen zeros after the last batch look like its end."""
    assert walk_file(BATCH + bytes(count)) == [BATCH]


@pytest.mark.parametrize("count", (18, 19, 60, 61, 62, 100, 5000, 70_000))
def test_s013_from_18_zero_bytes_on_a_file_is_corrupt_there(count):
    """S-013: a size of zero is invalid."""
    seen = []
    with pytest.raises(CorruptRecordError, match="less than the minimum") as caught:
        seen.extend(walk_headers(file_of(BATCH + bytes(count)), PATH))
    assert (caught.value.position, caught.value.path) == (END, PATH)
    with pytest.raises(CorruptRecordError) as caught:
        list(walk_buffer(BATCH + bytes(count), PATH))
    assert caught.value.position == END


def test_zero_bytes_in_memory_end_quietly_below_12_only():
    for count in range(1, 12):
        assert in_buffer(BATCH + bytes(count)) == [BATCH]
    for count in range(12, 70):
        with pytest.raises(CorruptRecordError):
            in_buffer(BATCH + bytes(count))


@pytest.mark.parametrize("length", (13, 1, 0, -1, -(2**31)))
def test_s012_batch_lengths_below_14_are_corrupt(walk, length):
    """S-012: batchLength 13 in 61 bytes and more."""
    data = BATCH[:8] + struct.pack(">i", length) + BATCH[12:]
    with pytest.raises(CorruptRecordError, match=f"batch length {length} ") as caught:
        walk(BATCH + data)
    assert (caught.value.position, caught.value.check) == (END, "batch_length")
    assert (caught.value.expected, caught.value.found) == (14, length)


@pytest.mark.parametrize(
    ("length", "message"),
    (
        (
            14,
            (
                "/t-0/00000000000000000000.log at position 0: batch of 26 bytes is "
                "smaller than its header"
            ),
        ),
        (
            15,
            (
                "/t-0/00000000000000000000.log at position 0: batch of 27 bytes is "
                "smaller than its header"
            ),
        ),
        (
            30,
            (
                "/t-0/00000000000000000000.log at position 0: batch of 42 bytes is "
                "smaller than its header"
            ),
        ),
        (
            48,
            (
                "/t-0/00000000000000000000.log at position 0: batch of 60 bytes is "
                "smaller than its header"
            ),
        ),
    ),
)
def test_s012_batches_below_61_bytes_walk_but_are_not_valid(walk, length, message):
    """S-012: batchLength 14 to 48 with magic 2."""
    short = entry(12 + length)
    assert walk(short + BATCH) == [short, BATCH]
    assert walk(BATCH + short) == [BATCH, short]
    file = file_of(short + BATCH)
    first, second = walk_headers(file, PATH)
    assert (first.header.size_bytes, first.end_position, second.position) == (len(short),) * 3
    with pytest.raises(CorruptRecordError, match=exactly(message)):
        read_batch(file, PATH, first.position, first.header.size_bytes).ensure_valid()
    # The bytes after a short batch are not read as fields of its header.
    assert first.header.record_count == 0
    read_batch(file, PATH, second.position, second.header.size_bytes).ensure_valid()


@pytest.mark.parametrize("magic", (3, 127, -1, -128))
def test_magic_outside_0_to_2_is_corrupt(walk, magic):
    with pytest.raises(CorruptRecordError, match=f"magic {magic} is not 2") as caught:
        walk(BATCH + entry(80, magic))
    assert (caught.value.position, caught.value.check) == (END, "magic")
    assert (caught.value.expected, caught.value.found) == (2, magic)


def test_magic_of_a_torn_batch_is_judged_in_memory_only(walk_file):
    torn = entry(80, 9)[:70]
    assert walk_file(BATCH + torn) == [BATCH]
    with pytest.raises(CorruptRecordError):
        in_buffer(BATCH + torn)


@pytest.mark.parametrize("magic", (0, 1))
def test_s011_old_messages_are_refused_by_name(walk, magic):
    """S-011: a sound entry of magic 0 or 1, first or later, small or of several megabytes."""
    for value in (b"", b"value", bytes(3_000_000)):
        message = old_message(magic, value=value)
        for data, position in ((message, 0), (message + BATCH, 0), (BATCH + message, END)):
            with pytest.raises(UnsupportedFormatError, match=f"format v{magic}") as caught:
                walk(data)
            assert (caught.value.position, caught.value.magic) == (position, magic)
            if walk is not in_buffer:
                assert caught.value.path == PATH
                assert PATH in str(caught.value)


@pytest.mark.parametrize("magic", (0, 1))
def test_s011_a_damaged_old_message_is_ordinary_corruption(walk, magic):
    """S-011: any byte under its CRC or of the CRC itself."""
    message = old_message(magic)
    for position in range(12, len(message)):
        data = bytearray(message)
        data[position] ^= 0x40
        with pytest.raises(CorruptRecordError, match="magic") as caught:
            walk(bytes(data) + BATCH)
        assert caught.value.position == 0


def test_s011_an_old_message_that_does_not_fit_is_a_torn_tail(walk):
    """S-011: a refusal needs the complete message, which noise could imitate otherwise."""
    assert walk(old_message(0)[:-1]) == []
    assert walk(BATCH + old_message(1)[:-1]) == [BATCH]


def test_s011_the_smallest_entry_of_magic_0_is_refused(walk):
    """S-011: null key and value in the fewest bytes that any format allows, batchLength 14."""
    body = bytes([0, 0]) + struct.pack(">ii", -1, -1)
    with pytest.raises(UnsupportedFormatError):
        walk(struct.pack(">qiI", 0, 14, zlib.crc32(body)) + body + BATCH)


# --- files that begin in an old format --------------------------------------------------------


def begins_old(data):
    """Whether a file of these bytes is refused as one of an old format."""
    fs = MemoryFileSystem()
    file = fs.open("f.log", create=True)
    file.append([data])
    try:
        refuse_old_format(file, "f.log")
    except UnsupportedFormatError as error:
        return (error.path, error.position) == ("f.log", 0)
    else:
        return False


@pytest.mark.parametrize("size", (5, 200_000))
@pytest.mark.parametrize("magic", (0, 1))
def test_a_file_of_old_messages_is_one_whatever_is_damaged(magic, size):
    """One message with any bit of its first 40 bytes flipped, but its magic, or torn anywhere."""
    message = old_message(magic, value=b"v" * size)
    assert begins_old(message)
    ends = [*range(40, len(message), 5000 if size > 1000 else 3)]
    assert [end for end in ends if not begins_old(message[:end])] == []
    key_size = range(18 + 8 * magic, 22 + 8 * magic)
    value_size = range(25 + 8 * magic, 29 + 8 * magic)
    for position in range(29 + 8 * magic):
        if position == 16:
            continue
        data = bytearray(message)
        data[position] ^= 0x01
        if position not in (*range(8, 12), *key_size, *value_size):
            assert begins_old(bytes(data)), position
        elif size == 5:  # a valid one after it decides
            assert begins_old(bytes(data) + old_message(magic)), position


def test_null_keys_and_values_fill_an_old_message_too():
    body = bytes([0, 0]) + struct.pack(">ii", -1, -1)
    assert begins_old(struct.pack(">qiI", 0, 14, 0) + body)


def test_no_other_file_is_treated_as_one_of_an_old_format():
    """Zeros and noise that a power failure left, and batches whose magic was hit, are damage."""
    for data in (b"", bytes(5), bytes(17), bytes(100_000), BATCH, BATCH[:30]):
        assert not begins_old(data)
    for magic in (0, 1):
        for batch in golden.BATCHES.values():
            for following in (b"", BATCH, bytes(4096)):
                data = batch[:16] + bytes([magic]) + batch[17:] + following
                assert not begins_old(data), (magic, batch)
    rng = random.Random(1)
    for _ in range(300):
        data = bytearray(rng.randbytes(rng.randrange(17, 400)))
        data[16] = rng.randrange(2)
        assert not begins_old(bytes(data))


# --- files ------------------------------------------------------------------------------------


def sizes_of(*sizes):
    """Batches of exactly these sizes."""
    batches = []
    for number, size in enumerate(sizes):
        overhead = 61 + 7
        for pad in range(max(0, size - overhead - 12), size):
            batch = build_batch([Record(number, 0, None, bytes(pad))])
            if len(batch) == size:
                break
        else:
            pytest.fail(f"no batch of {size} bytes")
        batches.append(batch)
    return batches


@pytest.mark.parametrize(
    "sizes",
    (
        (68,) * 3000,
        (70_000, 68, 68, 8300, 68, 70_000, 70_000, 69),
        (65_536, 65_536, 68),
        (65_535, 68, 65_537, 68),
        (65_536 - 30, 68, 65_536 - 61, 68),
        (65_536 - 17, 68, 65_536 - 60, 68, 65_536 - 12, 68),
        (8192, 8193, 68, 8192, 8193, 8193),
    ),
)
def test_read_ahead_borders_cut_no_header(sizes):
    batches = sizes_of(*sizes)
    data = b"".join(batches)
    found = list(walk_headers(file_of(data), PATH))
    assert [at.header for at in found] == [RecordBatch(batch).header for batch in batches]
    assert [data[at.position : at.end_position] for at in found] == batches


def test_a_walk_starts_and_ends_at_the_given_positions():
    batches = sizes_of(68, 70, 8300, 69)
    file = file_of(b"".join(batches))
    starts = [0, 68, 138, 8438, 8507]

    def positions(*bounds):
        return [at.position for at in walk_headers(file, PATH, *bounds)]

    assert positions(68) == starts[1:4]
    assert positions(68, 8438) == starts[1:3]
    assert positions(68, 8437) == starts[1:2]
    assert positions(0, 8438 + 17) == starts[:3]
    assert positions(8507) == positions(9000) == positions(0, 0) == []


def test_a_walk_of_large_batches_reads_little_of_them():
    batches = sizes_of(*(200_000,) * 20)
    file = file_of(b"".join(batches))
    sizes = []

    class Counting:
        def size(self):
            return file.size()

        def read(self, position, size):
            sizes.append(size)
            return file.read(position, size)

    assert len(list(walk_headers(Counting(), PATH))) == 20
    assert sum(sizes) < 2 * 65_536


@pytest.mark.parametrize("left", range(2 * END + 1))
def test_a_file_that_shrinks_ends_the_walk(left):
    """The end was taken before the cut: no header is made up from bytes that are gone."""
    data = golden.G3 + golden.G4
    file = file_of(data)
    walk = walk_headers(file, PATH, 0, len(data))
    file.truncate(left)
    found = [(at.position, at.header) for at in walk]
    whole = [(0, RecordBatch(golden.G3).header), (END, RecordBatch(golden.G4).header)]
    assert found == [item for item in whole if item[0] + 61 <= left]


def test_a_walk_does_not_see_what_is_appended_after_its_start():
    file = file_of(golden.G3)
    walk = walk_headers(file, PATH)
    assert next(walk).position == 0
    file.append([golden.G4])
    assert list(walk) == []


def test_read_batch_names_its_place():
    file = file_of(golden.G1 + golden.G3)
    batch = read_batch(file, PATH, len(golden.G1), END)
    assert (batch.data, batch.path, batch.position) == (golden.G3, PATH, len(golden.G1))
