"""Claims of damaged or hostile bytes take no memory, and bombs no more than the config allows."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections import deque
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from logstore import messages
from logstore.cleaner.config import CleanerConfig
from logstore.config.broker_config import BrokerConfig
from logstore.config.log_config import LogConfig
from logstore.config.overrides import effective_config
from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageError,
    MessageSizeTooLargeError,
)
from logstore.messages import Message, schema, types
from logstore.messages.schema import definitions
from logstore.record.batch import RecordBatch, build_batch, decode_stored, seal_batch
from logstore.record.codecs import XERIAL_HEADER, Codec, compress, decompress
from logstore.record.records import Record, encode_record
from tests.fuzz.mutate import repair_batches
from tests.support.world.builders import batch, log_name, memory_world
from tests.support.world.cleaning import run_pass
from tests.support.world.random_messages import random_message

MIB = 1 << 20
KEY = "logstore.decompression.max.bytes"
CODECS = list(Codec)[1:]


def peak_of(call) -> int:
    """Peak of the bytes that Python allocated during a call."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        call()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak - before


def bomb(codec: Codec, size: int, count: int = 1) -> bytes:
    """A sound batch whose section unfolds to one record with `size` zeros."""
    section = encode_record(0, 0, b"k", bytes(size))
    return seal_batch(
        compress(codec, section),
        last_offset_delta=0,
        record_count=count,
        base_timestamp=0,
        max_timestamp=0,
    )


def with_codec(data: bytes, codec: Codec) -> bytes:
    return repair_batches(data[:22] + bytes([codec]) + data[23:])


# --- the setting --------------------------------------------------------------------------------


def test_the_limit_is_a_setting_of_broker_and_topic() -> None:
    assert LogConfig().logstore_decompression_max_bytes == 256 * MIB
    broker = BrokerConfig.from_properties({KEY: "1000"})
    assert effective_config({}, broker).logstore_decompression_max_bytes == 1000
    assert effective_config({KEY: "7"}, broker).logstore_decompression_max_bytes == 7


@pytest.mark.parametrize("codec", CODECS)
def test_readers_cleaner_and_appends_use_the_setting(codec: Codec) -> None:
    data = with_codec(bomb(codec, 5000), codec)
    world = memory_world()
    world.write(log_name(0), data)
    world.write(log_name(10), batch(10))
    for limit, refused in ((5100, False), (4999, True)):
        log = world.log(
            clean=False, cleanup_policy=("compact",), logstore_decompression_max_bytes=limit
        )
        for use in (
            lambda log=log: list(log.reader.records(0)),
            lambda log=log: log.reader.offset_for_timestamp(0),
            lambda log=log: run_pass(log, 0, 10, CleanerConfig(dedupe_buffer_bytes=24_000)),
        ):
            if not refused:
                use()
                continue
            with pytest.raises(CorruptRecordError) as found:
                use()
            assert found.value.check == "decompressed_size"
            assert (found.value.path, found.value.position) == (world.path(log_name(0)), 0)
        if refused:
            with pytest.raises(
                MessageSizeTooLargeError, match=r"logstore\.decompression\.max\.bytes"
            ):
                log.writer.append_batches(data)
        log.close()


def test_recovery_passes_over_what_a_section_unfolds_to() -> None:
    """It checks CRCs, not records; only a control batch is looked into, with a bound of its own."""
    data = with_codec(bomb(Codec.GZIP, 64 * MIB), Codec.GZIP)
    control = repair_batches(data[:22] + b"\x31" + data[23:43] + bytes(10) + data[53:])
    world = memory_world()
    world.write(log_name(0), batch(0, 4) + data[:0] + _moved(control, 5))
    assert peak_of(lambda: world.log(clean=False)) < 8 * MIB
    assert world.files()[log_name(0)] == batch(0, 4), "a marker that unfolds to 64 MiB is damage"


def _moved(data: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + data[8:]


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_than_twice_the_limit(codec: Codec) -> None:
    """64 MiB of zeros against a limit of 4 MiB; an lz4 block may exceed it by its own size."""
    stream = compress(codec, bytes(64 * MIB))
    with pytest.raises(CorruptRecordError, match="more than the limit"):
        decompress(codec, stream, limit=4 * MIB)

    def refuse() -> None:
        with pytest.raises(CorruptRecordError):
            decompress(codec, stream, limit=4 * MIB)

    assert peak_of(refuse) < 2 * 4 * MIB + 5 * MIB


def bombs_in_frames() -> dict[str, tuple[Codec, bytes]]:
    """Streams that claim far more than they hold, or hold very much in many small parts."""
    claim = b"\xff\xff\xff\xff\x07"  # a snappy length of 2^31 - 1
    member = gzip.compress(bytes(MIB), mtime=0)
    frame = bytes.fromhex("04224d186070") + b"\x73"
    return {
        "snappy-raw-claim": (Codec.SNAPPY, claim + bytes(20)),
        "snappy-block-claim": (Codec.SNAPPY, XERIAL_HEADER + b"\x00\x00\x00\x06" + claim + b"\0"),
        "snappy-block-length": (Codec.SNAPPY, XERIAL_HEADER + b"\x1f\xff\xff\xff" + bytes(20)),
        "gzip-members": (Codec.GZIP, member * 40),
        "lz4-block-claim": (Codec.LZ4, frame + b"\x00\x00\x3f\x00" + bytes(20)),
        "zstd-size-claim": (Codec.ZSTD, bytes.fromhex("28b52ffde0ffffffffffffff7f010000")),
        "zstd-window-claim": (Codec.ZSTD, bytes.fromhex("28b52ffd0088010000")),
        "zstd-frames": (Codec.ZSTD, compress(Codec.ZSTD, bytes(MIB)) * 40),
        "zstd-repeated-bytes": (
            Codec.ZSTD,
            bytes.fromhex("28b52ffd0058") + b"\x02\x00\x10\x00" * 512 + b"\x03\x00\x10\x00",
        ),
    }


@pytest.mark.parametrize("name", bombs_in_frames())
def test_a_claim_within_a_stream_takes_no_memory(name: str) -> None:
    codec, stream = bombs_in_frames()[name]

    def refuse() -> None:
        try:
            decompress(codec, stream, limit=4 * MIB)
        except CorruptRecordError:
            return
        assert name == "zstd-window-claim"  # a large window does not imply large contents

    assert peak_of(refuse) < 13 * MIB


@pytest.mark.parametrize("count", (2**31 - 1, 1_000_000, -1, -(2**31)))
@pytest.mark.parametrize("codec", Codec)
def test_a_record_count_takes_no_memory(count: int, codec: Codec) -> None:
    raw = build_batch([Record(0, 0, b"k", b"v" * 500)], codec=codec)
    lying = RecordBatch(repair_batches(raw[:57] + struct.pack(">i", count) + raw[61:]))
    lying.ensure_valid()

    def refuse() -> None:
        for decode in (lying.records, lying.columns):
            with pytest.raises(InvalidRecordError):
                decode()

    assert peak_of(refuse) < 2 * MIB


@pytest.mark.parametrize("length", (2**31 - 1, 2**30, 100_000_000))
def test_a_batch_length_takes_no_memory(length: int) -> None:
    sound = batch(0, 4)
    world = memory_world()
    torn = batch(5, 5, value=b"x" * 1000)
    world.write(log_name(0), sound + torn[:8] + struct.pack(">i", length) + torn[12:])
    assert peak_of(lambda: world.log(clean=False)) < 4 * MIB
    assert world.files()[log_name(0)] == sound


@pytest.mark.parametrize("field", ("size", "key", "value", "headers", "header key", "header value"))
def test_a_length_within_a_record_takes_no_memory(field: str) -> None:
    huge = b"\xfe\xff\xff\xff\x0f"  # 2^31 - 1
    body = {
        "size": b"",
        "key": b"\0\0\0" + huge,
        "value": b"\0\0\0\1" + huge,
        "headers": b"\0\0\0\1\1" + huge,
        "header key": b"\0\0\0\1\1\2" + huge,
        "header value": b"\0\0\0\1\1\2\2h" + huge,
    }[field] + bytes(40)
    size = huge if field == "size" else bytes([2 * len(body) & 0x7F | 0x80, 2 * len(body) >> 7])
    data = RecordBatch(
        seal_batch(
            size + body, last_offset_delta=0, record_count=1, base_timestamp=0, max_timestamp=0
        )
    )

    def refuse() -> None:
        for decode in (data.records, data.columns):
            with pytest.raises(InvalidRecordError):
                decode()

    refuse()  # compiles the kernel, which takes memory of its own
    assert peak_of(refuse) < 2 * MIB


def test_records_of_a_bomb_take_a_small_multiple_of_the_limit() -> None:
    """The worst: a section of 7-byte records, each of which becomes an object when listed."""
    count = 20_000
    section = b"".join(encode_record(0, 0, None, None) for _ in range(count))
    assert len(section) == 7 * count
    data = RecordBatch(
        seal_batch(
            section,
            codec=Codec.ZSTD,
            last_offset_delta=0,
            record_count=count,
            base_timestamp=0,
            max_timestamp=0,
        )
    )
    assert len(data.data) < 1000
    assert peak_of(data.columns) < 16 * len(section)
    last: list[Record] = []
    assert peak_of(lambda: last.extend(deque(decode_stored(data, MIB), 1))) < 17 * len(section)
    assert last == [Record(0, 0, None, None)]
    assert peak_of(data.records) < 80 * len(section)


CHILD = """
    import resource, sys
    from logstore.cleaner.config import CleanerConfig
    from logstore.errors import CorruptRecordError
    from logstore.record.codecs import Codec
    from tests.fuzz.test_bounds import bomb, with_codec
    from tests.support.world.builders import batch, log_name, memory_world
    from tests.support.world.cleaning import run_pass

    MIB = 1 << 20
    bombs = {codec: with_codec(bomb(codec, 96 * MIB), codec) for codec in (Codec.GZIP, Codec.ZSTD)}
    small = with_codec(bomb(Codec.GZIP, 10), Codec.GZIP)

    def try_all(data, refused):
        world = memory_world()
        world.write(log_name(0), data)
        world.write(log_name(10), batch(10))
        log = world.log(
            clean=False, cleanup_policy=("compact",), logstore_decompression_max_bytes=8 * MIB
        )
        for use in (
            lambda: list(log.reader.records(0)),
            lambda: log.reader.offset_for_timestamp(0),
            lambda: run_pass(log, 0, 10, CleanerConfig(dedupe_buffer_bytes=24000)),
        ):
            try:
                use()
            except CorruptRecordError as error:
                assert refused and error.check == "decompressed_size", error
            else:
                assert not refused
        log.close()

    try_all(small, False)  # compiles what there is to compile
    pages = int(open("/proc/self/statm").read().split()[0])
    bound = pages * resource.getpagesize() + 64 * MIB
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    for data in bombs.values():
        try_all(data, True)
    print("bounded")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and bounds the address space")
def test_a_process_with_little_memory_refuses_bombs_and_lives() -> None:
    """96 MiB behind 100 KB, a limit of 8 MiB, and 64 MiB to do it in."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "bounded\n", done.stderr


# --- messages -----------------------------------------------------------------------------------


def read_or_refused(kind: type[Message], version: int, data: bytes) -> None:
    with suppress(MessageError):
        messages.decode(kind, version, data)


@pytest.mark.parametrize("name", list(definitions())[::3])
def test_a_length_of_two_gibibytes_takes_no_memory(name: str) -> None:
    """Places of a message claim as much as a length can; what that costs is measured."""
    rng = Random(name)
    kind, version = getattr(types, name), schema(name).latest
    data = messages.encode_bytes(random_message(rng, name, version, elements_max=1), version)
    read_or_refused(kind, version, data)  # compiled now, not while memory is counted
    for at in sorted(rng.sample(range(len(data)), k=min(len(data), 16))):
        for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff"):
            hostile = data[:at] + claim + data[at + len(claim) :]
            assert peak_of(partial(read_or_refused, kind, version, hostile)) < MIB
