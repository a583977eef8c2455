"""Lines of the cleaner: copies, and a comparison that fails where a byte differs."""

import os
import shutil
from dataclasses import replace

import pytest

from logstore.bench.micro import clean_lines
from logstore.bench.micro.clean_lines import clean_line
from logstore.bench.micro.cleaning import (
    Difference,
    clean_with_logstore,
    compare,
    compare_unpacked,
    copy_log,
)
from logstore.bench.micro.logs import MIB, LogShape, make_log
from logstore.bench.micro.setting import Setting
from logstore.record.codecs import Codec, compress, decompress
from logstore.record.header import BatchHeader

SHAPE = LogShape(100, 0.2, 10, total_bytes=MIB)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "log"
    make_log(SHAPE, path)
    return path


def test_a_cleaning_leaves_the_log_that_was_copied_as_it_is(log, tmp_path):
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    cleaned = clean_with_logstore(copy_log(log, tmp_path / "copy"))
    assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before
    (done,) = cleaned.report["cleaned"]
    assert done["messages_read"] == SHAPE.records
    assert done["messages_written"] / SHAPE.records == pytest.approx(0.2, rel=0.1)
    assert cleaned.sample.cpu_s > 0


@pytest.fixture(scope="module")
def cleaned(log, tmp_path_factory):
    return cleaned_twice(log, tmp_path_factory.mktemp("bench"))


def cleaned_twice(log, folder):
    for name in ("here", "there"):
        clean_with_logstore(copy_log(log, folder / name))
    return folder


def pair(cleaned, tmp_path):
    """Copy both outputs, so that a test may change them."""
    for name in ("here", "there"):
        shutil.copytree(cleaned / name, tmp_path / name)
    return tmp_path / "here", tmp_path / "there"


def test_equal_outputs_are_compared_to_the_last_byte(cleaned, tmp_path):
    here, there = pair(cleaned, tmp_path)
    sizes = [path.stat().st_size for path in here.rglob("*") if path.suffix in (".log", ".index")]
    assert compare(here, there) >= sum(sizes) > 0


@pytest.mark.parametrize("suffix", (".log", ".index", ".timeindex"))
@pytest.mark.parametrize("place", (0, -1))
def test_a_comparison_fails_where_one_byte_differs(cleaned, tmp_path, suffix, place):
    here, there = pair(cleaned, tmp_path)
    path = next(path for path in sorted(there.rglob(f"*{suffix}")) if path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(Difference, match=f"byte {place % len(data)}$"):
        compare(here, there)


def test_a_comparison_fails_where_a_file_is_longer_or_missing(cleaned, tmp_path):
    here, there = pair(cleaned, tmp_path)
    path = min(there.rglob("*.log"))
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(Difference, match=f"byte {size - 1}"):
        compare(here, there)
    path.unlink()
    with pytest.raises(Difference, match=f"only one of .* has .*{path.name}"):
        compare(here, there)


@pytest.fixture(scope="module")
def compressed(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "log"
    make_log(replace(SHAPE, codec="zstd", total_bytes=MIB // 4), path)
    return cleaned_twice(path, path.parent)


@pytest.mark.slow
def test_compressed_batches_are_the_same_if_they_unfold_to_the_same(compressed, tmp_path):
    here, there = pair(compressed, tmp_path)
    path = min(there.rglob("*.log"))
    batches, position = [], 0
    data = path.read_bytes()
    while position < len(data):
        header = BatchHeader.unpack_from(data, position)
        section = decompress(Codec.ZSTD, data[position + 61 : position + header.size_bytes])
        body = compress(Codec.ZSTD, section, 9)  # another library's bytes
        batches.append(header._replace(batch_length=49 + len(body), crc=1).pack() + body)
        position += header.size_bytes
    path.write_bytes(b"".join(batches))
    assert path.read_bytes() != data
    assert compare_unpacked(here, there) > path.stat().st_size


@pytest.mark.parametrize("change", ("header", "record", "fewer"))
def test_compressed_batches_that_say_something_else_differ(compressed, tmp_path, change):
    here, there = pair(compressed, tmp_path)
    path = min(there.rglob("*.log"))
    data = path.read_bytes()
    header = BatchHeader.unpack_from(data)
    section = bytearray(decompress(Codec.ZSTD, data[61 : header.size_bytes]))
    if change == "header":
        first = header._replace(max_timestamp=header.max_timestamp + 1)
        path.write_bytes(first.pack() + data[61:])
    elif change == "record":
        section[-1] ^= 1
        body = compress(Codec.ZSTD, section)
        first = header._replace(batch_length=49 + len(body))
        path.write_bytes(first.pack() + body + data[header.size_bytes :])
    else:
        path.write_bytes(data[header.size_bytes :])
    with pytest.raises(Difference, match=f"the batch at offset {header.base_offset} differs"):
        compare_unpacked(here, there)


def test_a_segment_more_is_a_difference_too(compressed, tmp_path):
    here, there = pair(compressed, tmp_path)
    max(there.rglob("*.log")).unlink()
    with pytest.raises(Difference, match="have different segments"):
        compare_unpacked(here, there)


def test_a_line_has_a_sample_a_repeat_and_nothing_is_left_behind(tmp_path):
    setting = Setting(tmp_path, total_bytes=MIB, repeats=2, warmups=0, has_peers=False)
    name, (title, shape) = next(iter(clean_lines.FIVE_LOGS.items()))
    (line,) = clean_line(name, title, shape, setting)
    assert line.name == name
    assert len(line.here.judged) == len(line.here.wall) == 2
    assert line.peer is None
    assert line.peer_name == "peers were excluded"
    assert line.facts["survivors"] == pytest.approx(0.12, rel=0.1)
    assert list(tmp_path.iterdir()) == []
