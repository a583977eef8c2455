"""Broker processes: whether they serve, and their CPU time."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

WITHIN_S = 120

_API_VERSIONS = 18
_REQUEST = struct.pack(
    ">hhih", _API_VERSIONS, 0, 1, -1
)  # version 0, correlation id 1, no client id

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def wait_for_apis(bootstrap: str) -> set[int]:
    """Wait until a broker responds, and return the keys of its APIs."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=WITHIN_S) as connection:
                connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
                with connection.makefile("rb") as answers:
                    (size,) = struct.unpack(">i", _exactly(answers.read, 4))
                    body = _exactly(answers.read, size)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
            continue
        (count,) = struct.unpack_from(">i", body, 6)
        return {key for key, _, _ in struct.iter_unpack(">hhh", body[10 : 10 + 6 * count])}


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = read(count)
    if len(data) < count:
        raise ConnectionError("the broker closed the connection")
    return data


def cpu_s(pid: int) -> float:
    """Return the user and system CPU time of all threads in a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
