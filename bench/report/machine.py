"""The machine and versions of a result, without host or user names."""

from __future__ import annotations

import os
import platform
import re
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from logstore.runtime.environment import usable_cores

_PACKAGES = (
    "kafka-logstore",
    "numpy",
    "numba",
    "google-crc32c",
    "lz4",
    "zstandard",
    "cramjam",
    "aiokafka",
    "kafka-python",
    "confluent-kafka",
)


class RunTimer:
    """Measures the duration of a harness run, and describes the machine."""

    def __init__(self) -> None:
        self._began, self._load = time.perf_counter(), load_average()
        self._made_at = datetime.now(UTC).isoformat(timespec="seconds")

    def facts(self) -> dict[str, Any]:
        """Return the current fields of `Run`."""
        return {
            "made_at": self._made_at,
            "seconds": round(time.perf_counter() - self._began, 1),
            "machine": machine(),
            "versions": versions(),
            "load": [self._load, load_average()],
        }


def machine() -> dict[str, Any]:
    """Return processor, usable cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of Python and of installed packages that affect results."""
    result = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


def load_average() -> float:
    """Return the load average over the last minute."""
    return round(os.getloadavg()[0], 2)
