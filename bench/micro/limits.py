"""Machine lines: the limits for all other lines, measured in the same run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version

import google_crc32c
import numpy as np

from logstore.bench.measuring import Run, Sample, Stopwatch, run_interleaved, timed
from logstore.bench.micro.figures import GIGA, NS, US, costs, speeds, wall_only
from logstore.bench.micro.kernels import crc_of_blocks, follow_links
from logstore.bench.micro.logs import KIB, MIB
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line

BLOCK = MIB
CRC_SIZES = {"100B": 100, "1KiB": KIB, "16KiB": 16 * KIB, "1MiB": MIB}


def _memcpy(setting: Setting) -> Iterator[Line]:
    size = setting.total_bytes
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    yield _limit("memcpy", "copy memory", setting, timed(lambda: np.copyto(target, source)), size)


def _read(setting: Setting) -> Iterator[Line]:
    path, size = setting.scratch / "limits", setting.total_bytes
    path.write_bytes(bytes(size))
    buffer = bytearray(BLOCK)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    yield _limit("read", "read a cached file, 1 MiB at a time", setting, timed(read), size)
    path.unlink()


def _write(setting: Setting, *, synced: bool) -> Iterator[Line]:
    path, size = setting.scratch / "limits", setting.total_bytes
    block = bytes(range(256)) * (BLOCK // 256)

    def run() -> Sample:
        path.unlink(missing_ok=True)
        with Stopwatch() as watch, path.open("wb", buffering=0) as file:
            for _ in range(size // BLOCK):
                file.write(block)
            if synced:
                os.fsync(file.fileno())
        return watch.sample

    name, title = (
        ("write-fsync", "write a file and fsync it") if synced else ("write", "write a file")
    )
    yield _limit(name, title, setting, run, size)
    path.unlink()


def _latency(setting: Setting) -> Iterator[Line]:
    """Measure dependent loads from memory that fits into no cache."""
    rows = setting.total_bytes // 8
    order = np.random.Generator(np.random.Philox(1)).permutation(rows)
    links = np.empty(rows, np.int64)
    links[order] = np.roll(order, -1)  # one cycle through all rows
    steps = min(rows, MIB)
    run = timed(lambda: follow_links(links, steps))
    samples = setting.samples(run)
    yield Line(
        name="limits/latency",
        title="load a word of memory at a position that the last load returned",
        unit="ns",
        higher_is_better=False,
        here=costs(steps, samples, NS),
        facts={"bytes": rows * 8},
    )


def _fsync(setting: Setting) -> Iterator[Line]:
    path, count = setting.scratch / "limits", 100

    def run() -> Sample:
        path.unlink(missing_ok=True)
        with path.open("wb", buffering=0) as file, Stopwatch() as watch:
            for _ in range(count):
                file.write(bytes(4 * KIB))
                os.fsync(file.fileno())
        return watch.sample

    samples = setting.samples(run)
    yield Line(
        name="limits/fsync",
        title="append 4 KiB to a file and fsync it, wall time",
        unit="µs",
        higher_is_better=False,
        here=wall_only(costs(count, samples, US)),
    )
    path.unlink()


def _limit(name: str, title: str, setting: Setting, run: Run, size: int) -> Line:
    return Line(
        name=f"limits/{name}",
        title=title,
        unit="GB/s",
        higher_is_better=True,
        here=speeds(size, setting.samples(run), GIGA),
        facts={"bytes": size},
    )


def _crc(setting: Setting, *, name: str) -> Iterator[Line]:
    size = CRC_SIZES[name]
    total = max(MIB, setting.total_bytes // 4)
    data = np.random.Generator(np.random.Philox(1)).integers(0, 256, total, np.uint8)
    whole = memoryview(data)
    starts = range(0, total - size + 1, size)
    checksum = google_crc32c.value
    blocks = [bytes(whole[start : start + size]) for start in starts]
    expected = 0
    for block in blocks:
        expected ^= checksum(block)
    assert crc_of_blocks(data, size) == expected

    def there() -> None:
        for block in blocks:
            checksum(block)

    contestants: dict[str, Run] = {
        "here": timed(lambda: crc_of_blocks(data, size)),
        "there": timed(there),
    }
    samples = run_interleaved(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    yield Line(
        name=f"crc/{name}",
        title=f"CRC-32C of blocks of {name}, vs. google-crc32c called from Python",
        unit="GB/s",
        higher_is_better=True,
        here=speeds(total, samples["here"], GIGA),
        peer=speeds(total, samples["there"], GIGA),
        peer_name=f"google-crc32c {version('google-crc32c')}",
        facts={"block_bytes": size},
    )


def jobs() -> Iterator[Job]:
    """Yield the limits, then CRCs by block size."""
    limits: dict[str, Callable[[Setting], Iterator[Line]]] = {
        "memcpy": _memcpy,
        "latency": _latency,
        "read": _read,
        "write": partial(_write, synced=False),
        "write-fsync": partial(_write, synced=True),
        "fsync": _fsync,
    }
    for name, limit in limits.items():
        yield Job((f"limits/{name}",), True, limit)
    for name in CRC_SIZES:
        yield Job((f"crc/{name}",), True, partial(_crc, name=name))
