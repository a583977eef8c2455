"""Compression of the records section, with Kafka's framing (storage-format §5).

Codec       Written                                          Read
0 none      input                                            input
1 gzip      one member, OS byte ff                           all members, any header fields
2 snappy    xerial stream, blocks of 32 KiB of input         xerial streams, or one raw block
3 lz4       one frame, independent blocks of 64 KiB          frames that Kafka accepts
4 zstd      one frame, no content size, no checksum          all frames, including skippable ones

The lz4 frame reader is implemented here, because the library accepts frames that Kafka rejects.

Readers do not trust their input. Before allocating memory, they compare a declared length with the
limit and with the maximum to which the input can expand. Output of undeclared length is read in
bounded steps. Malformed input raises `CorruptRecordError`. Like Kafka, readers ignore bytes after
an lz4 end mark or after the last gzip member; the record count reveals missing records.

Compression libraries are imported on first use, because most commands do not need them.
"""

from __future__ import annotations

import enum
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Final, NamedTuple

from logstore.errors import CorruptRecordError, InvalidConfigurationError

if TYPE_CHECKING:
    import zlib
    from collections.abc import Callable

    import zstandard

DEFAULT_LIMIT: Final = 256 * 1024 * 1024
"""Default limit of the decompressed size, 8 times a producer's default `buffer.memory`."""

GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
"""No flags, no time, no extra flags, unknown OS, as written by the JDK since 16."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
XERIAL_BLOCK_SIZE: Final = 32 * 1024
XERIAL_BLOCK_SIZE_MAX: Final = 512 * 1024 * 1024

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_STORED: Final = 0x8000_0000
LZ4_DEFAULT_LEVEL: Final = 9

ZSTD_DEFAULT_LEVEL: Final = 3
ZSTD_BLOCK_SIZE_MAX: Final = 128 * 1024
ZSTD_HEADER_SIZE_MAX: Final = 18
ZSTD_REPEATED_BYTE: Final = 1  # a block of one byte, repeated `block_size` times
ZSTD_COMPRESSED: Final = 2
ZSTD_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # after a byte from 50 to 5f
ZSTD_WINDOW_SIZE_KEPT: Final = 8 * 1024 * 1024

assert len(GZIP_HEADER) == 10
assert len(XERIAL_HEADER) == 16

_GZIP_STEP: Final = 64 * 1024  # input per call, small because zlib copies unread input
_GZIP_OUTPUT_STEP: Final = 1024 * 1024
_ZSTD_STEP: Final = 1024 * 1024  # output per call
# A snappy element of 3 bytes copies at most 64 bytes, so no input has a higher ratio.
_SNAPPY_RATIO_MAX: Final = (64, 3)
_WALKED_BYTES: Final = 16 * 1024  # contain a few thousand block headers at most

_thread = threading.local()


class Codec(enum.IntEnum):
    """A compression codec. The value is bits 0-2 of the batch attributes.

    `Codec(number)` raises `CorruptRecordError` for an undefined number (5 to 7), which can only
    come from a damaged header.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> str:
        """Name in configs and kafka-dump-log: `none`, `gzip`, `snappy`, `lz4` or `zstd`."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """Return the codec with this `kafka_name`.

        Raises
        ------
        InvalidConfigurationError
            No codec has this name. `uncompressed` and `producer` are values of the topic config
            `compression.type`, not codecs.
        """
        found = _BY_NAME.get(name)
        if found is not None:
            return found
        known = ", ".join(codec.kafka_name for codec in cls)
        message = f"unknown compression name: {name} (known: {known})"
        raise InvalidConfigurationError(message)

    @classmethod
    def _missing_(cls, value: object) -> Codec | None:
        if isinstance(value, int):
            raise _corrupt(
                f"unknown compression type id: {value}",
                "compression_type_id",
                expected="0 to 4",
                found=value,
            )
        return None


_BY_NAME = {codec.kafka_name: codec for codec in Codec}

_LZ4_RATIO_MAX: Final = 255
_RATIOS: Final = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: 22,
    Codec.LZ4: _LZ4_RATIO_MAX,
    Codec.ZSTD: ZSTD_BLOCK_SIZE_MAX // 4,  # a block of one repeated byte takes 4 bytes
}
"""Maximum number of bytes that one byte decompresses to."""

_WALKED: Final = (Codec.LZ4, Codec.ZSTD)


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress a records section as Kafka does.

    Parameters
    ----------
    codec : Codec
        With `Codec.NONE`, the result equals `data`. If `data` is `bytes`, it is returned itself.
    data : bytes | bytearray | memoryview
        Contiguous bytes, possibly empty.
    level : int | None
        gzip -1 or 1 to 9, lz4 1 to 17 (12 and above are equivalent), or zstd -131072 to 22. None
        means Kafka's default: gzip -1, lz4 9 (which selects the fast compressor), zstd 3.

    Returns
    -------
    bytes
        A complete stream. Empty only if `codec` is none and `data` is empty.

    Raises
    ------
    InvalidConfigurationError
        The codec does not have this level. `none` and snappy have no levels.

    Notes
    -----
    Thread-safe. The framing is identical to Kafka's, but the content depends on library versions.
    Source: docs/spec/storage-format.md §5, §16.
    """
    if level is not None:
        _check_level(codec, level)
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](_byte_view(data), level)


def decompress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    *,
    limit: int = DEFAULT_LIMIT,
    old_lz4: bool = False,
) -> bytes | memoryview:
    """Decompress a whole records section.

    Parameters
    ----------
    codec : Codec
        With `Codec.NONE`, the section is returned without copying.
    data : bytes | bytearray | memoryview
        Contiguous bytes of the section.
    limit : int
        Maximum decompressed size in bytes (inclusive). Not checked for `Codec.NONE`, because the
        bytes are already in memory.
    old_lz4 : bool
        Whether to ignore the header checksum of lz4 frames, which magic 0 clients computed over too
        many bytes (KAFKA-3160).

    Returns
    -------
    bytes | memoryview
        The records. With `Codec.NONE`, a view of `data`.

    Raises
    ------
    CorruptRecordError
        The bytes are damaged, truncated, framed in a way that Kafka rejects, or expand to more than
        `limit`. `check` names the violated rule, and the message contains the position within the
        section.

    Notes
    -----
    Thread-safe. O(input + output). Requires the memory of the output plus an eighth. The output can
    exceed `limit` by at most one lz4 block (4 MiB) before the error is raised. zstd also needs its
    window (at most 128 MiB). Source: storage-format §5; Kafka's `Lz4BlockInputStream`, xerial's
    `SnappyInputStream`.
    """
    if codec is Codec.NONE:
        return data if isinstance(data, bytes | memoryview) else memoryview(data)
    if codec is Codec.LZ4:
        return _decompress_lz4(_byte_view(data), limit, checks_header=not old_lz4)
    return _DECOMPRESSORS[codec](_byte_view(data), limit)


def size_bound(codec: Codec, data: bytes | bytearray | memoryview) -> int:
    """Return an upper bound of the decompressed size, without decompressing.

    For short lz4 and zstd sections, the bound is computed from block headers, otherwise from the
    codec's maximum ratio. O(1).
    """
    if codec in _WALKED and len(data) <= _WALKED_BYTES:
        try:
            return _walked_size(codec, _byte_view(data))
        except CorruptRecordError:
            return 0  # it cannot be decompressed
    return len(data) * _RATIOS[codec]


def _walked_size(codec: Codec, data: memoryview) -> int:
    """Return an upper bound of an lz4 or zstd section's decompressed size, from block headers."""
    size = position = 0
    if codec is Codec.LZ4:
        position, block_size_max, flags = _read_lz4_header(data, checks_header=False)
        while len(data) - position >= 4:
            block_size = int.from_bytes(data[position : position + 4], "little") & ~LZ4_STORED
            if block_size == 0:
                break
            size += min(block_size_max, block_size * _LZ4_RATIO_MAX)
            position += 4 + block_size + (4 if flags & 0x10 else 0)
        return size
    while position < len(data):
        if _is_zstd_skippable(data, position):
            position = _skip_zstd_frame(data, position)
        else:
            frame = _walk_zstd_frame(data, position)
            position = frame.end
            size += frame.size_max
    return size


def _byte_view(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _check_level(codec: Codec, level: int) -> None:
    allowed = _LEVELS.get(codec)
    if allowed is None:
        message = f"{codec.kafka_name} has no compression levels, found {level}"
        raise InvalidConfigurationError(message)
    if level not in allowed:
        text = "-1 or 1 to 9" if codec is Codec.GZIP else f"{allowed[0]} to {allowed[-1]}"
        message = f"{codec.kafka_name} compression level must be {text}, found {level}"
        raise InvalidConfigurationError(message)


def _corrupt(
    message: str, check: str, *, expected: object = None, found: object = None
) -> CorruptRecordError:
    return CorruptRecordError(message, check=check, expected=expected, found=found)


def _over_limit(codec: Codec, limit: int) -> CorruptRecordError:
    message = f"{codec.kafka_name} data decompresses to more than the limit of {limit} bytes"
    return _corrupt(message, "decompressed_size", expected=f"at most {limit}")


def _cut_short(codec: Codec, what: str, position: int) -> CorruptRecordError:
    message = f"{codec.kafka_name} data ends inside {what} that starts at byte {position}"
    return _corrupt(message, f"{codec.kafka_name}_truncated")


class _Output:
    """Decompressed pieces up to a limit, joined without another copy."""

    __slots__ = ("_buffer", "_codec", "_first", "_limit", "size")

    def __init__(self, codec: Codec, limit: int) -> None:
        self._codec = codec
        self._limit = limit
        self._first: bytes | memoryview | None = None
        self._buffer: BytesIO | None = None
        self.size = 0

    def add(self, piece: bytes | memoryview) -> None:
        if not self.size:
            self._first = piece  # most sections consist of one piece
        else:
            if self._buffer is None:
                self._buffer = BytesIO()
                self._buffer.write(self._first or b"")
                self._first = None
            self._buffer.write(piece)
        self.size += len(piece)
        if self.size > self._limit:
            raise _over_limit(self._codec, self._limit)

    def bytes(self) -> bytes:
        if self._buffer is not None:
            return self._buffer.getvalue()  # the buffer's memory, not a copy
        return b"" if self._first is None else bytes(self._first)


# --- gzip ---------------------------------------------------------------------------------------


def _compress_gzip(data: memoryview, level: int | None) -> bytes:
    import zlib

    # zlib would write OS 03 and the level into the header, so only use it for the deflate stream.
    deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data)
    checksum = zlib.crc32(data).to_bytes(4, "little")
    size = (len(data) & 0xFFFF_FFFF).to_bytes(4, "little")
    return b"".join((GZIP_HEADER, body, deflate.flush(), checksum, size))


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    import zlib

    output = _Output(Codec.GZIP, limit)
    position = 0
    while position == 0 or bytes(data[position : position + 2]) == GZIP_HEADER[:2]:
        start = position
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not member.eof:
            chunk = data[position : position + _GZIP_STEP]
            _inflate(member, chunk, output, start, limit)
            if not chunk and not member.eof:
                raise _cut_short(Codec.GZIP, "a member", start)
            position += len(chunk) - len(member.unused_data)
    return output.bytes()


def _inflate(
    member: zlib._Decompress, chunk: bytes | memoryview, output: _Output, start: int, limit: int
) -> None:
    """Decompress a gzip member's data within a chunk, in bounded steps."""
    import zlib

    while True:
        # Never 0, which would mean "no limit". One extra byte detects an overrun.
        step = min(_GZIP_OUTPUT_STEP, limit - output.size + 1)
        try:
            piece = member.decompress(chunk, step)
        except zlib.error as error:
            message = f"gzip member at byte {start} is damaged: {error}"
            raise _corrupt(message, "gzip_member") from error
        output.add(piece)
        chunk = member.unconsumed_tail
        if (
            member.eof or not chunk
        ):  # pending output is returned with the next chunk, before the trailer
            return


# --- snappy -------------------------------------------------------------------------------------


def _compress_snappy(data: memoryview, _level: int | None) -> bytes:
    from cramjam import snappy

    pieces: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if len(data) < len(XERIAL_HEADER) or bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(data, 0, 0, limit)
    _check_xerial_header(data, 0)
    output = _Output(Codec.SNAPPY, limit)
    position = len(XERIAL_HEADER)
    while position < len(data):
        word = bytes(data[position : position + 4])
        if len(word) < 4:
            raise _cut_short(Codec.SNAPPY, "a block length", position)
        if word == XERIAL_MAGIC[:4]:
            _check_xerial_header(data, position)
            position += len(XERIAL_HEADER)
            continue
        block_size = int.from_bytes(word, "big", signed=True)
        if not 0 <= block_size <= XERIAL_BLOCK_SIZE_MAX:
            message = f"snappy block length {block_size} at byte {position} is out of range"
            expected = f"0 to {XERIAL_BLOCK_SIZE_MAX}"
            raise _corrupt(message, "snappy_block_length", expected=expected, found=block_size)
        block = data[position + 4 : position + 4 + block_size]
        if len(block) < block_size:
            raise _cut_short(Codec.SNAPPY, "a block", position)
        output.add(_decompress_snappy_block(block, position + 4, output.size, limit))
        position += 4 + block_size
    return output.bytes()


def _check_xerial_header(data: memoryview, position: int) -> None:
    header = bytes(data[position : position + len(XERIAL_HEADER)])
    if len(header) < len(XERIAL_HEADER):
        raise _cut_short(Codec.SNAPPY, "a stream header", position)
    if header[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        message = f"snappy stream header at byte {position} is damaged"
        found = header[: len(XERIAL_MAGIC)].hex()
        raise _corrupt(message, "snappy_magic", expected=XERIAL_MAGIC.hex(), found=found)
    version = int.from_bytes(header[8:12], "big", signed=True)
    if version < 1:
        message = f"snappy stream at byte {position} has version {version}, below 1"
        raise _corrupt(message, "snappy_version", expected="at least 1", found=version)


def _decompress_snappy_block(block: memoryview, position: int, size: int, limit: int) -> bytes:
    """Decompress a raw block that starts at `position`, after `size` bytes of output."""
    import cramjam

    try:
        # The library allocates the declared length, so check the length first.
        declared = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        message = f"snappy block at byte {position} is damaged: {error}"
        raise _corrupt(message, "snappy_block") from error
    produced_max, consumed = _SNAPPY_RATIO_MAX
    if declared * consumed > len(block) * produced_max:
        message = f"snappy block of {len(block)} bytes at byte {position} cannot hold {declared}"
        raise _corrupt(message, "snappy_declared_length", found=declared)
    if declared > limit - size:
        raise _over_limit(Codec.SNAPPY, limit)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        message = f"snappy block at byte {position} is damaged: {error}"
        raise _corrupt(message, "snappy_block") from error


# --- lz4 ----------------------------------------------------------------------------------------


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    import lz4.frame

    # Kafka might not accept the library's defaults, now or in the future.
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, LZ4_DEFAULT_LEVEL) else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return frame


def _decompress_lz4(data: memoryview, limit: int, *, checks_header: bool = True) -> bytes:
    import lz4.block
    import xxhash

    position, block_size_max, flags = _read_lz4_header(data, checks_header=checks_header)
    checksum_size = 4 if flags & 0x10 else 0
    output = _Output(Codec.LZ4, limit)
    while True:
        start = position
        if len(data) - start < 4:
            raise _cut_short(Codec.LZ4, "a block length", start)
        word = int.from_bytes(data[start : start + 4], "little")
        block_size = word & ~LZ4_STORED
        if block_size == 0:
            break
        if block_size > block_size_max:
            message = f"lz4 block at byte {start} is longer than the frame's {block_size_max}"
            expected = f"at most {block_size_max}"
            raise _corrupt(message, "lz4_block_length", expected=expected, found=block_size)
        position = start + 4 + block_size + checksum_size
        if len(data) < position:
            raise _cut_short(Codec.LZ4, "a block", start)
        block = data[start + 4 : start + 4 + block_size]
        if checksum_size:
            stored = int.from_bytes(data[position - 4 : position], "little")
            computed = xxhash.xxh32_intdigest(block)
            if stored != computed:
                message = f"lz4 block at byte {start} has a wrong checksum"
                raise _corrupt(message, "lz4_block_checksum", expected=computed, found=stored)
        if word & LZ4_STORED:
            output.add(block)
        else:
            try:
                piece = lz4.block.decompress(block, uncompressed_size=block_size_max)
            except lz4.block.LZ4BlockError as error:
                message = f"lz4 block at byte {start} is damaged: {error}"
                raise _corrupt(message, "lz4_block") from error
            output.add(piece)
    if flags & 0x04 and len(data) - start < 8:  # the content checksum must exist but is not checked
        raise _cut_short(Codec.LZ4, "the end mark", start)
    return output.bytes()


def _read_lz4_header(data: memoryview, *, checks_header: bool) -> tuple[int, int, int]:
    """Return the position of the first block, the maximum block size in bytes, and the FLG byte."""
    import xxhash

    if len(data) < 6:
        raise _cut_short(Codec.LZ4, "a frame header", 0)
    magic = bytes(data[:4])
    if magic != LZ4_MAGIC:
        found = magic.hex()
        raise _corrupt("not an lz4 frame", "lz4_magic", expected=LZ4_MAGIC.hex(), found=found)
    flags, block_descriptor = data[4], data[5]
    if flags & 0x03:
        raise _corrupt("lz4 reserved flags are set", "lz4_flags", found=flags)
    if not flags & 0x20:
        raise _corrupt("lz4 frame with linked blocks", "lz4_block_independence", found=flags)
    if flags >> 6 != 1:
        raise _corrupt("lz4 frame of another version", "lz4_version", expected=1, found=flags >> 6)
    block_size_id = block_descriptor >> 4
    if block_descriptor & 0x0F or not 4 <= block_size_id <= 7:
        message = "lz4 block descriptor is not one of 40, 50, 60, 70"
        raise _corrupt(message, "lz4_block_descriptor", found=f"{block_descriptor:02x}")
    checksum_position = 14 if flags & 0x08 else 6
    if len(data) <= checksum_position:
        raise _cut_short(Codec.LZ4, "a frame header", 0)
    computed = xxhash.xxh32_intdigest(data[4:checksum_position]) >> 8 & 0xFF
    stored = data[checksum_position]
    if checks_header and stored != computed:
        message = "lz4 frame header has a wrong checksum"
        raise _corrupt(message, "lz4_header_checksum", expected=computed, found=stored)
    return checksum_position + 1, 1 << (2 * block_size_id + 8), flags


# --- zstd ---------------------------------------------------------------------------------------


def _compress_zstd(data: memoryview, level: int | None) -> bytes:
    import zstandard

    stream = _zstd_compressor(level).compressobj()
    # Kafka flushes the stream before closing it, which adds an empty last block.
    pieces = (
        stream.compress(data),
        stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH),
    )
    return b"".join(pieces)


def _zstd_compressor(level: int | None) -> zstandard.ZstdCompressor:
    """Return a compressor for this thread.

    Only the compressor for the default level is cached, because others are large.
    """
    import zstandard

    if level not in (None, ZSTD_DEFAULT_LEVEL):
        return zstandard.ZstdCompressor(level=level, write_content_size=False)
    compressor: zstandard.ZstdCompressor | None = getattr(_thread, "zstd_compressor", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL, write_content_size=False)
        _thread.zstd_compressor = compressor
    return compressor


class _ZstdFrame(NamedTuple):
    """Properties of a frame, from its headers. Sizes are in bytes."""

    end: int
    size_max: int  # upper bound of the decompressed size
    declared_size: int | None
    window_size: int


def _decompress_zstd(data: memoryview, limit: int) -> bytes:
    import zstandard

    output = _Output(Codec.ZSTD, limit)
    position = 0
    while position < len(data):
        start = position
        if _is_zstd_skippable(data, start):
            position = _skip_zstd_frame(data, start)
            continue
        # The library does not detect truncated frames, so determine the extent first.
        frame = _walk_zstd_frame(data, start)
        position = frame.end
        if frame.declared_size is not None and frame.declared_size > limit - output.size:
            raise _over_limit(Codec.ZSTD, limit)
        reader = _zstd_decompressor(frame.window_size).stream_reader(data[start:position])
        ended = False
        while not ended:
            step = min(_ZSTD_STEP, frame.size_max + 1, limit - output.size + 1)
            try:
                piece = reader.read(step)
            except zstandard.ZstdError as error:
                message = f"zstd frame at byte {start} is damaged: {error}"
                raise _corrupt(message, "zstd_frame") from error
            output.add(piece)
            # A short read means that the end of the frame was reached and its checksum verified.
            ended = len(piece) < step
    return output.bytes()


def _zstd_decompressor(window_size: int) -> zstandard.ZstdDecompressor:
    """Return a decompressor for this thread. Decompressors with a large window are not cached."""
    import zstandard

    if window_size > ZSTD_WINDOW_SIZE_KEPT:
        return zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor | None = getattr(_thread, "zstd_decompressor", None)
    if decompressor is None:
        decompressor = _thread.zstd_decompressor = zstandard.ZstdDecompressor()
    return decompressor


def _is_zstd_skippable(data: memoryview, start: int) -> bool:
    return data[start] >> 4 == 5 and bytes(data[start + 1 : start + 4]) == ZSTD_SKIPPABLE_MAGIC


def _skip_zstd_frame(data: memoryview, start: int) -> int:
    end = start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")
    if len(data) - start < 8 or end > len(data):
        raise _cut_short(Codec.ZSTD, "a skippable frame", start)
    return end


def _walk_zstd_frame(data: memoryview, start: int) -> _ZstdFrame:
    """Find the end of a frame from its block headers (RFC 8878 §3.1.1)."""
    import zstandard

    head = data[start : start + ZSTD_HEADER_SIZE_MAX]
    try:
        parameters = zstandard.get_frame_parameters(head)
        position = start + zstandard.frame_header_size(head)
    except zstandard.ZstdError as error:
        message = f"zstd frame header at byte {start} is damaged: {error}"
        raise _corrupt(message, "zstd_frame_header") from error
    size_max = 0
    is_last = 0
    while not is_last:
        if len(data) - position < 3:
            raise _cut_short(Codec.ZSTD, "a frame", start)
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, block_type, block_size = word & 1, word >> 1 & 3, word >> 3
        position += 3 + (1 if block_type == ZSTD_REPEATED_BYTE else block_size)
        size_max += ZSTD_BLOCK_SIZE_MAX if block_type == ZSTD_COMPRESSED else block_size
    if parameters.has_checksum:
        position += 4
    if position > len(data):
        raise _cut_short(Codec.ZSTD, "a frame", start)
    declared = parameters.content_size
    return _ZstdFrame(
        end=position,
        size_max=size_max,
        declared_size=None if declared == zstandard.CONTENTSIZE_UNKNOWN else declared,
        window_size=parameters.window_size,
    )


_LEVELS: Final = {
    Codec.GZIP: (-1, *range(1, 10)),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131_072, 23),
}

_COMPRESSORS: Final[dict[Codec, Callable[[memoryview, int | None], bytes]]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int], bytes]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
