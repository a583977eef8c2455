"""`python -m logstore.bench.micro.worker TASK …`: tasks that need a separate process.

Prints a JSON object with the measurements.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path


def first_cleaning() -> dict[str, float]:
    """Clean 1,000 records in memory as the first work of this process."""
    from logstore.bench.measuring import Stopwatch

    with Stopwatch() as watch:
        from logstore import Broker, VirtualClock

        with Broker(clock=VirtualClock(), seed=0) as broker:
            broker.create_topic("users", configs={"cleanup.policy": "compact"})
            broker.append_many(
                "users", [(b"%d" % (number % 100), b"value") for number in range(1000)]
            )
            report = broker.clean("users", force=True, roll=True)
            assert report.to_json()["cleaned"][0]["messages_written"] == 100
    return {"cpu_s": watch.sample.cpu_s, "wall_s": watch.sample.wall_s}


def first_pass(data_dir: str) -> dict[str, float]:
    """Clean a data directory as the first work of this process."""
    from logstore import Broker
    from logstore.bench.measuring import Stopwatch

    with Broker(data_dir) as broker, Stopwatch() as watch:
        broker.clean(force=True, roll=True)
    return {"cpu_s": watch.sample.cpu_s, "wall_s": watch.sample.wall_s}


def first_records() -> dict[str, float]:
    """Import the library, open a broker in memory, append and read ten records."""
    from logstore.bench.measuring import Stopwatch

    with Stopwatch() as watch:
        from logstore import Broker

        with Broker() as broker:
            broker.create_topic("users")
            for number in range(10):
                broker.append("users", key=b"%d" % number, value=b"value")
            assert len(list(broker.read("users"))) == 10
    return {"cpu_s": watch.sample.cpu_s, "wall_s": watch.sample.wall_s}


def memory(warm: str, data_dir: str, map_bytes: str) -> dict[str, float]:
    """Clean a small log, then a large one, and return the growth of peak memory."""
    from logstore.bench.micro.cleaning import clean_with_logstore
    from logstore.jit import compile_always

    compile_always()
    clean_with_logstore(
        Path(warm), map_bytes=int(map_bytes)
    )  # compile kernels and load all modules
    before = _reset_peak()
    cleaned = clean_with_logstore(Path(data_dir), map_bytes=int(map_bytes))
    grown = _peak_kib() - before
    (stats,) = cleaned.report["cleaned"]
    return {"grown_bytes": grown << 10, "entries": stats["map_entries"], **cleaned.sample._asdict()}


def _reset_peak() -> int:
    """Reset the peak resident memory, and return the current value in KiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:  # not Linux: only growth above the previous peak is measured
        return _peak_kib()
    return _status_kib("VmRSS")


def _peak_kib() -> int:
    try:
        return _status_kib("VmHWM")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak >> 10 if sys.platform == "darwin" else peak


def _status_kib(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1])


def clean(warm: str, data_dir: str) -> dict[str, float]:
    """Clean a log as a warm-up, print a line, wait for a line, and clean another log."""
    from logstore.bench.micro.cleaning import clean_with_logstore
    from logstore.jit import compile_always

    compile_always()
    clean_with_logstore(Path(warm))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return dict(clean_with_logstore(Path(data_dir)).sample._asdict())


def cold(data_dir: str, threads: str) -> dict[str, float]:
    """Clean a directory with several threads as the first work of this process."""
    from logstore.bench.micro.cleaning import clean_with_logstore

    return dict(clean_with_logstore(Path(data_dir), threads=int(threads)).sample._asdict())


WORK = {
    each.__name__: each for each in (first_cleaning, first_pass, first_records, memory, clean, cold)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(WORK[sys.argv[1]](*sys.argv[2:])) + "\n")
