"""The clients of the sweep: their sources and the commands that start their programs.

Every version is pinned by hash: in `requirements/` those that the Python tests use anyway, in
`tests/interop/pom.xml` Kafka's, in `tests/interop/sweep` the others.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.support.interop.judge import (
    BUILDS,
    PROJECT,
    RELEASES,
    Release,
    Unavailable,
    kafka_version,
    locked,
)
from tests.support.interop.real_broker import class_path, java
from tests.support.interop.sweep import Client

ROOT = PROJECT.parents[1]
PROGRAMS = PROJECT / "sweep"
INSTALL_TIMEOUT_S = 420

GO_MODULES = {"sweep": PROGRAMS / "go", "kfake": ROOT / "bench" / "rivals" / "kfake"}
"""Folders of programs in Go."""

ABSENT = {
    ("aiokafka", "acls"): "its admin client has no calls for ACLs",
}
"""Actions that a client does not support: its program must report exactly these."""

Prepared = tuple[Sequence[str], Mapping[str, str]]


def locked_version(path: Path, pattern: str) -> str:
    """Return the version that a file of requirements names, the group of a pattern."""
    (result,) = re.findall(pattern, path.read_text(encoding="utf-8"))
    return result


def _python(program: str, *folders: Path) -> Prepared:
    """Return a Python program that searches these directories first for its imports."""
    path = ":".join(str(folder) for folder in (*folders, ROOT))
    return [sys.executable, "-m", f"tests.interop.sweep.{program}"], {"PYTHONPATH": path}


def _old_kafka_python() -> Prepared:
    lock = PROGRAMS / "kafka-python-2.txt"
    folder = BUILDS / "kafka-python-2"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--require-hashes", "--no-deps", "--target", str(folder), "-r", str(lock)]
    _once(folder, [lock], command)
    return _python("kafka_python", folder)


def _java(release: Release) -> Prepared:
    return java(class_path(release), "broker.Sweep"), {}


def go_program(source: Path) -> Path:
    """Return the program of a Go module, built if need be.

    Raises
    ------
    Unavailable
        There is no Go, an old one, or a module is not to be had.
    RuntimeError
        It does not compile.
    """
    ensure_go_modules(source)
    target = BUILDS / f"go-{source.name}" / "program"
    command = ["go", "build", "-mod=readonly", "-o", str(target), "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return target


def ensure_go_modules(source: Path) -> None:
    """Have the modules that a module needs where Go keeps them; raises as `go_program`."""
    ensure_tool("go", "Go 1.26 or newer")
    files = [source / "go.mod", source / "go.sum"]
    _once(BUILDS / f"go-{source.name}", files, ["go", "mod", "download"], source)


def node_modules(source: Path) -> Path:
    """Return a folder with the packages that a lock file of npm names.

    Raises
    ------
    Unavailable
    """
    ensure_tool("node", "Node.js 18 or newer")
    ensure_tool("npm", "npm")
    folder = BUILDS / "node"
    files = [source / "package.json", source / "package-lock.json"]
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _once(folder, files, command, folder, copied=True)
    return folder / "node_modules"


def ensure_tool(name: str, title: str) -> None:
    """Raise `Unavailable` if a program is not on the PATH."""
    if shutil.which(name) is None:
        raise Unavailable(
            f"not on the PATH: {name} ({title} is needed; .ci/run installs it where there is apt)"
        )


def _once(
    folder: Path,
    sources: Sequence[Path],
    command: Sequence[str],
    cwd: Path = ROOT,
    *,
    copied: bool = False,
) -> None:
    """Run a command that fills a directory, unless the directory is up to date for these
    sources."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / "stamp"
    BUILDS.mkdir(exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if stamp.is_file() and stamp.read_text() == digest:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if copied:
            for path in sources:
                shutil.copy(path, folder)
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{command[0]} did not finish within {error.timeout} s") from error
        if done.returncode:
            raise Unavailable(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")
        stamp.write_text(digest)


def _go() -> Prepared:
    return [str(go_program(GO_MODULES["sweep"]))], {}


def _node() -> Prepared:
    packages = node_modules(PROGRAMS / "node")
    return ["node", str(PROGRAMS / "node" / "sweep.js")], {"NODE_PATH": str(packages)}


def _title(name: str, path: Path, pattern: str) -> str:
    """Return a client's name with the version that a lock file names."""
    return f"{name} {locked_version(path, pattern)}"


CLIENTS = (
    Client(
        "confluent-kafka",
        f"confluent-kafka {version('confluent-kafka')} (librdkafka)",
        partial(_python, "confluent"),
    ),
    Client("aiokafka", f"aiokafka {version('aiokafka')}", partial(_python, "aio")),
    Client(
        "kafka-python-3",
        f"kafka-python {version('kafka-python')}",
        partial(_python, "kafka_python"),
    ),
    Client(
        "kafka-python-2",
        _title("kafka-python", PROGRAMS / "kafka-python-2.txt", r"(?m)^kafka-python==(\S+)"),
        _old_kafka_python,
    ),
    *(
        Client(
            f"java-{kafka_version(release)[:3]}",
            f"Java {kafka_version(release)} (kafka-clients)",
            partial(_java, release),
        )
        for release in RELEASES
    ),
    Client(
        "franz-go", _title("franz-go", GO_MODULES["sweep"] / "go.mod", r"twmb/franz-go v(\S+)"), _go
    ),
    Client(
        "kafkajs",
        _title("KafkaJS", PROGRAMS / "node" / "package.json", r'"kafkajs": "(.*)"'),
        _node,
    ),
)
