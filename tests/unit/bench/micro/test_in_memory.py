"""The kernels of a cleaning pass over segments in memory."""

import numpy as np

from logstore.bench.micro.cleaning import clean_with_logstore
from logstore.bench.micro.in_memory import MemoryCleaning
from logstore.bench.micro.logs import KIB, LogShape, make_log
from logstore.bench.micro.setting import Setting
from logstore.bench.suite import measure, select_jobs


def test_the_cleaner_leaves_the_same_in_memory_and_in_files(tmp_path):
    shape = LogShape(100, 0.2, 10, total_bytes=256 * KIB)
    make_log(shape, tmp_path / "log")
    paths = sorted(tmp_path.rglob("*.log"))[:-1]
    segments = [np.fromfile(path, np.uint8) for path in paths]
    assert len(segments) > 2
    cleaning = MemoryCleaning(segments, 2 * shape.records)
    kept = cleaning.run().kept.tobytes()
    assert kept == cleaning.run().kept.tobytes()
    clean_with_logstore(tmp_path / "log", map_bytes=2 << 20)
    cleaned = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.log"))[:-1])
    assert 0 < len(kept) < sum(map(len, segments)) / 2
    assert kept == cleaned


def test_lines_are_compared_with_a_copy_if_kafka_is_missing(tmp_path):
    setting = Setting(tmp_path, total_bytes=128 * KIB, repeats=1, warmups=0, has_peers=False)
    kernels, share = measure(select_jobs(["share/1KiB-10"], full=False), setting)
    assert (kernels.name, kernels.peer, kernels.peer_name) == (
        "kernels/1KiB-10",
        None,
        "peers were excluded",
    )
    assert (share.name, share.peer_name) == ("share/1KiB-10", "memcpy")
    assert share.ratio > 0
    assert not list(tmp_path.iterdir())
