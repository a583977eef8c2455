"""Builds the applications with Maven, once for each state of the sources."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.support.interop.judge import ensure_jdk_and_maven, jars_of, locked, make

PROJECT = Path(__file__).parent
BUILDS = PROJECT / "target"
"""Git-ignored."""


class Apps(NamedTuple):
    """The applications with one release of Kafka's libraries: a profile of `pom.xml`."""

    profile: str
    kafka_version: str


def _pinned(profile: str) -> Apps:
    text = (PROJECT / "pom.xml").read_text(encoding="utf-8").partition(f"<id>{profile}</id>")[2]
    return Apps(profile, text.partition("<kafka.version>")[2].partition("<")[0])


RELEASES = tuple(_pinned(profile) for profile in ("kafka3", "kafka4"))


def class_path(apps: Apps) -> str:
    """Return the class path of the applications, which are compiled first if they changed.

    Raises
    ------
    Unavailable
        No JDK or Maven on this machine, or Maven could not fetch a library.
    RuntimeError
        The Java sources do not compile.
    """
    ensure_jdk_and_maven()
    BUILDS.mkdir(exist_ok=True)
    folder = BUILDS / apps.profile
    with locked(BUILDS / f"{apps.profile}.lock"):
        arguments = [f"-P{apps.profile}", f"-Dapps.build={folder}", "compile"]
        make(PROJECT, folder, ["pom.xml", "src"], arguments)
    return f"{folder / 'classes'}:{jars_of(folder)}"
