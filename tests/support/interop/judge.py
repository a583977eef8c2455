"""Kafka's classes in a child process: build the judge once, start it, send it commands.

The judge is a Java process (`tests/interop/src`) that writes one JSON object per line; a second
release of Kafka is a second build of the same sources. Without a JDK or Maven, or without a network
for the first build, it raises `Unavailable` and the tests skip; under `LOGSTORE_INTEROP_REQUIRED=1`
they fail instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

PROJECT = Path(__file__).parents[2] / "interop"
BUILDS = PROJECT / "target"
"""Git-ignored directory of builds, one for each state of the sources."""

REQUIRED = os.environ.get("LOGSTORE_INTEROP_REQUIRED") == "1"

MAVEN_TIMEOUT_S = 420


class Release(NamedTuple):
    """A release of Kafka: its Maven profile, and whether its dump tool is a separate artifact."""

    profile: str
    separate_dump_tool: bool


KAFKA_3 = Release("kafka3", separate_dump_tool=False)
KAFKA_4 = Release("kafka4", separate_dump_tool=True)
RELEASES = (KAFKA_3, KAFKA_4)


def kafka_version(release: Release) -> str:
    """Return the version that a release's profile pins."""
    text = (PROJECT / "pom.xml").read_text(encoding="utf-8")
    profile = text.partition(f"<id>{release.profile}</id>")[2]
    return profile.partition("<kafka.version>")[2].partition("<")[0]


class Unavailable(Exception):
    """This machine cannot run Kafka's classes; the message names the missing part."""


class JudgeError(Exception):
    """A command failed in Kafka; `trace` is the Java stack trace."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace

    def __str__(self) -> str:
        return f"{self.args[0]}\n{self.trace}"


# -- building ------------------------------------------------------------------------------------


def build(release: Release) -> list[str]:
    """Return the command that starts a release's judge, compiling it if its sources changed.

    Raises
    ------
    Unavailable
        No JDK or Maven here, or Maven could not fetch a dependency.
    RuntimeError
        The Java sources do not compile.
    """
    ensure_jdk_and_maven()
    BUILDS.mkdir(exist_ok=True)
    with locked(BUILDS / f"{release.profile}.lock"):
        folder = BUILDS / release.profile
        make(
            PROJECT,
            folder,
            ["pom.xml", f"src/{release.profile}", "src/main"],
            ["-f", "pom.xml", f"-P{release.profile}", f"-Dinterop.build={folder}", "compile"],
        )
    command = ["java", "-XX:+UseSerialGC", "-Xmx1g"]
    if release.separate_dump_tool:
        with locked(BUILDS / "dump-tool.lock"):
            tool = BUILDS / "dump-tool"
            make(PROJECT, tool, ["dump-tool.xml"], ["-f", "dump-tool.xml"])
        command.append(f"-Djudge.dump.classpath={jars_of(tool)}")
    return [*command, "-cp", f"{folder / 'classes'}:{jars_of(folder)}", "judge.Judge"]


def ensure_jdk_and_maven() -> None:
    """Raise `Unavailable` if this machine cannot compile Java or fetch its libraries."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"not on the PATH: {', '.join(missing)} (a JDK 17 and Maven are needed)")


def make(project: Path, folder: Path, sources: list[str], maven: list[str]) -> None:
    """Run Maven in `project`, unless `folder` is up to date with `sources` and its jars exist.

    Raises
    ------
    Unavailable
        Maven failed, or did not finish in time.
    RuntimeError
        The Java sources do not compile.
    """
    stamp = folder / "stamp"
    digest = _digest(project, sources)
    if stamp.is_file() and stamp.read_text() == digest:
        jars = jars_of(folder).split(":")
        if all(Path(jar).is_file() for jar in jars):
            return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    output = folder / "classpath"
    arguments = [*maven, "dependency:build-classpath", "-Dmdep.includeScope=runtime"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", *arguments, f"-Dmdep.outputFile={output}"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not finish within {MAVEN_TIMEOUT_S} s") from error
    if done.returncode:
        reply = (done.stdout + done.stderr).strip()
        if "COMPILATION ERROR" in reply:
            raise RuntimeError(reply)
        first = next((line for line in reply.splitlines() if "ERROR" in line), reply)
        raise Unavailable(f"Maven failed: {first}")
    stamp.write_text(digest)


def jars_of(folder: Path) -> str:
    """Return the class path of the libraries that Maven resolved for a build directory."""
    return (folder / "classpath").read_text().strip()


def _digest(project: Path, sources: list[str]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        path = project / source
        files = [path] if path.is_file() else sorted(path.rglob("*.java"))
        for file in files:
            digest.update(str(file.relative_to(project)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One builder at a time, also among parallel test processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fast_scratch() -> str | None:
    """Return a directory in memory for temporary data, or None.

    Both engines sync often, which takes most of their time on a disk.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    return str(memory) if roomy and os.access(memory, os.W_OK) else None


# -- speaking ------------------------------------------------------------------------------------


class Judge:
    """A running judge. `tests/interop/README.md` describes its commands and responses."""

    def __init__(self, command: list[str]) -> None:
        self._scratch = tempfile.mkdtemp(prefix="judge-", dir=fast_scratch())
        java, *arguments = command
        self._process = subprocess.Popen(
            [java, f"-Djava.io.tmpdir={self._scratch}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.kafka_version: str = self._answer()["kafka_version"]

    @classmethod
    def start(cls, release: Release) -> Self:
        """Build if need be, and start.

        Raises
        ------
        Unavailable
        """
        return cls(build(release))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the process."""
        if self._process.poll() is None:
            self._process.stdin.write(b'{"command":"quit"}\n')
            self._process.stdin.close()
            self._process.wait(timeout=30)
        self._process.stdout.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def ask(self, command: str, data_dir: Path, topic: str, **arguments: Any) -> dict[str, Any]:
        """Send a command about partition 0 of a topic; return its result.

        Raises
        ------
        JudgeError
            Kafka's classes threw something.
        """
        request = {"command": command, "data_dir": str(data_dir), "topic": topic, **arguments}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the judge ended with status {self._process.wait(timeout=30)}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise JudgeError(answer["error"], answer["trace"])
        return answer["result"]
