"""Directories that Kafka 3.9.2 wrote before and after its own cleaner ran, cleaned by ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from logstore.broker import Broker
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.record.walk import walk_buffer
from logstore.runtime import DiskFileSystem, FixedWallClock
from logstore.types import TopicPartition

DATA = Path(__file__).resolve().parents[2] / "data" / "kafka-3.9"
GOLDEN = TopicPartition("golden", 0)
COMPARED = (".log", ".index", ".timeindex", ".txnindex")


@cache
def manifest(case: str) -> dict:
    return json.loads((DATA / case / "manifest.json").read_text(encoding="utf-8"))


CASES = sorted(path.parent.name for path in DATA.glob("clean-*/manifest.json"))
PLAIN = [case for case in CASES if not manifest(case)["transactions"]]
TRANSACTIONAL = [case for case in CASES if manifest(case)["transactions"]]
ONE_PASS = [case for case in CASES if "partial-map" not in case]


def test_the_pairs_are_there() -> None:
    assert len(PLAIN) >= 18
    assert len(TRANSACTIONAL) >= 6


def copy_of(case: str, where: Path) -> Path:
    """Return a data directory with the files before cleaning and their original times."""
    data = where / "data"
    shutil.copytree(DATA / case / "before" / "data", data)
    for name, mtime_ms in manifest(case)["before"]["mtime_ms"].items():
        os.utime(data / "golden-0" / name, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
    return data


def open_broker(case: str, data: Path, **configs: str) -> Broker:
    """Return a broker on the directory with Kafka's time and settings, overridden by `configs`.

    Keys have underscores instead of dots.
    """
    expected = manifest(case)
    clock = FixedWallClock(expected["cleaning_time_ms"])
    broker = Broker(data, clock=clock, fs=DiskFileSystem(clock))
    own = {key.replace("_", "."): value for key, value in configs.items()}
    broker.override_configs("golden", expected["config"] | own)
    broker.cleaner.config = cleaner_config(case)
    return broker


def cleaner_config(case: str) -> CleanerConfig:
    expected = manifest(case)
    return CleanerConfig(
        dedupe_buffer_bytes=expected["dedupe_buffer_size"],
        load_factor=expected["dedupe_buffer_load_factor"],
    )


def run_one_pass(case: str, data: Path, **configs: str):
    """Run one pass over exactly the range that Kafka cleaned."""
    expected = manifest(case)
    with open_broker(case, data, **configs) as broker:
        log = broker.log("golden")
        steps = clean_pass(
            log,
            cleaner_config(case),
            expected["first_dirty_offset"],
            expected["upper_bound_offset"],
        )
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value


def files(partition: Path, suffixes: tuple[str, ...] = COMPARED) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(partition.iterdir()) if p.suffix in suffixes}


def assert_files_are_kafkas(case: str, data: Path) -> None:
    got = files(data / "golden-0")
    expected = files(DATA / case / "after" / "data" / "golden-0")
    assert got.keys() == expected.keys()
    if manifest(case)["compression"] == "none":
        assert got == expected
        return
    for name in expected:
        if name.endswith(".log"):
            assert_equal_unfolded(got[name], expected[name])
        elif name.endswith(".timeindex"):
            assert got[name] == expected[name]
        else:
            assert offsets_in(got[name]) == offsets_in(expected[name])


def assert_equal_unfolded(got: bytes, expected: bytes) -> None:
    """Compare batches; compressed sections are compared after decompression."""
    ours, kafkas = list(walk_buffer(got)), list(walk_buffer(expected))
    for our, kafka in zip(ours, kafkas, strict=True):
        our.ensure_valid()
        kafka.ensure_valid()
        assert our.header._replace(batch_length=0, crc=0) == kafka.header._replace(
            batch_length=0, crc=0
        )
        assert bytes(our.section()) == bytes(kafka.section())


def offsets_in(index: bytes) -> list[bytes]:
    return [index[at : at + 4] for at in range(0, len(index), 8)]


@pytest.mark.parametrize("case", CASES)
def test_one_pass_gives_kafkas_bytes(case: str, tmp_path: Path) -> None:
    expected = manifest(case)
    data = copy_of(case, tmp_path)
    stats = run_one_pass(case, data)
    assert_files_are_kafkas(case, data)
    assert stats.end_offset == expected["end_offset"]
    assert stats.map_entries == expected["map_slots_used"]
    kafkas = dict(expected["stats"])
    assert stats.map_utilization == pytest.approx(kafkas.pop("bufferUtilization"))
    ours = {
        "mapBytesRead": stats.map_bytes_read,
        "mapMessagesRead": stats.map_messages_read,
        "bytesRead": stats.bytes_read,
        "messagesRead": stats.messages_read,
        "bytesWritten": stats.bytes_written,
        "messagesWritten": stats.messages_written,
        "invalidMessagesRead": stats.invalid_messages_read,
    }
    if expected["compression"] != "none":
        del ours["bytesWritten"], kafkas["bytesWritten"]
    assert ours == kafkas
    assert sum(stats.fates.values()) == records_below(case, stats.end_offset)
    times = expected["after"]["mtime_ms"]  # times of the last source
    assert {
        name: (data / "golden-0" / name).stat().st_mtime_ns // 1_000_000 for name in times
    } == times


@pytest.mark.parametrize("case", CASES[::4])
def test_s244_strategy_header_without_a_name_gives_kafkas_bytes(case: str, tmp_path: Path) -> None:
    data = copy_of(case, tmp_path)
    stats = run_one_pass(case, data, compaction_strategy="header", compaction_strategy_header="")
    assert_files_are_kafkas(case, data)
    assert stats.strategy == "offset"
    assert stats.end_offset == manifest(case)["end_offset"]
    assert stats.map_utilization == pytest.approx(manifest(case)["stats"]["bufferUtilization"])


def records_below(case: str, end_offset: int) -> int:
    """Return the records of the segments below `end_offset`, including skipped batches."""
    logs = files(DATA / case / "before" / "data" / "golden-0", (".log",))
    bound = min(end_offset, manifest(case)["upper_bound_offset"])
    return sum(
        batch.header.record_count
        for name, data in logs.items()
        if int(name.removesuffix(".log")) < bound
        for batch in walk_buffer(data)
    )


@pytest.mark.parametrize("case", ONE_PASS)
def test_the_cleaner_manager_finds_range_and_checkpoint_itself(case: str, tmp_path: Path) -> None:
    """As `logstore clean --force`: D from the checkpoint, U from the log."""
    expected = manifest(case)
    data = copy_of(case, tmp_path)
    with open_broker(case, data) as broker:
        state = broker.cleaner.chooser.state_of(broker.log("golden"))
        assert state.first_dirty_offset == expected["first_dirty_offset"]
        assert state.first_uncleanable_offset == expected["uncleanable_offset"]
        assert state.upper_bound_offset == expected["upper_bound_offset"]
        report = broker.clean("golden", force=True)
        assert [stats.end_offset for stats in report.cleaned] == [expected["end_offset"]]
        assert report.not_cleaned == ()
    assert_files_are_kafkas(case, data)
    checkpoint = (data / "cleaner-offset-checkpoint").read_bytes()
    assert checkpoint == f"0\n1\ngolden 0 {expected['end_offset']}\n".encode()
    if case != "clean-dense-index-1":  # reset to 0 afterwards, for the next pass
        after = DATA / case / "after" / "data" / "cleaner-offset-checkpoint"
        assert checkpoint == after.read_bytes()


def test_partial_passes_of_kafka_one_after_another(tmp_path: Path) -> None:
    """Each pass of the series starts from our result of the preceding one, not from Kafka's."""
    series = ["clean-partial-map-1", "clean-partial-map-2", "clean-partial-map-3"]
    data = copy_of(series[0], tmp_path)
    for case in series:
        stats = run_one_pass(case, data)
        assert stats.end_offset == manifest(case)["end_offset"]
        assert_files_are_kafkas(case, data)


def test_recovery_of_a_cleaned_directory_changes_nothing(tmp_path: Path) -> None:
    case = "clean-segments"
    data = copy_of(case, tmp_path)
    with open_broker(case, data) as broker:
        broker.clean("golden", force=True)
    (data / ".kafka_cleanshutdown").unlink()
    with open_broker(case, data) as broker:
        assert broker.log("golden").log_end_offset == manifest(case)["after"]["log_end_offset"]
    got = files(data / "golden-0", (".log",))
    assert got == files(DATA / case / "after" / "data" / "golden-0", (".log",))


@pytest.mark.parametrize("case", ("clean-small", "clean-segments"))
def test_the_command_line_gives_kafkas_bytes(case: str, tmp_path: Path) -> None:
    expected = manifest(case)
    data = copy_of(case, tmp_path)
    program = "import sys; from logstore.cli.main import main; sys.exit(main())"
    options = ["--data-dir", str(data), "--now", str(expected["cleaning_time_ms"])]
    options += [f"--config={key}={value}" for key, value in expected["config"].items()]
    run = subprocess.run(
        [sys.executable, "-c", program, "clean", "golden", "--force", "--format=json", *options],
        capture_output=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"},
        text=True,
    )
    assert run.returncode == 0, run.stderr
    (stats,) = json.loads(run.stdout)["cleaned"]
    assert stats["end_offset"] == expected["end_offset"]
    assert stats["messages_written"] == expected["stats"]["messagesWritten"]
    assert_files_are_kafkas(case, data)
