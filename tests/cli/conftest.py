"""Run the program in this process; copy golden directories; hash a tree."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from logstore.cli.main import main

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "kafka-3.9"


class Outcome(NamedTuple):
    """The result of a call."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def jsonl(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


Run = Callable[..., Outcome]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(data_dir: Path) -> Run:
    """Run the program on `data_dir`; `code` is the expected exit code."""

    def call(*args: object, code: int | None = 0, input: str | bytes | None = None) -> Outcome:
        result = CliRunner(env={"LOGSTORE_DATA_DIR": str(data_dir), "COLUMNS": None}).invoke(
            main, [str(arg) for arg in args], input=input
        )
        if code is not None:
            assert result.exit_code == code, f"{args}\n{result.stdout}\n{result.stderr}"
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Copy a golden data directory, such as `segments` or `clean-small/before`."""

    def copy(case: str) -> Path:
        target = tmp_path / case.replace("/", "-")
        shutil.copytree(GOLDEN / case / "data", target)
        return target

    return copy


def sound(directory: Path) -> None:
    """Leave a copied golden directory as it is."""


def torn_tail(directory: Path) -> None:
    """Turn a copied golden directory into the result of a crash during an append."""
    (directory / ".kafka_cleanshutdown").unlink()
    with sorted((directory / "golden-0").glob("*.log"))[-1].open("ab") as file:
        file.write(b"\1" * 40)


def tree_hash(directory: Path) -> str:
    """Hash names, contents and modification times of everything below a directory."""
    digest = hashlib.sha256()
    for parent, folders, files in os.walk(directory):
        folders.sort()
        for name in ["", *sorted(files)]:
            path = Path(parent, name)
            status = path.stat()
            digest.update(f"{path.relative_to(directory)} {status.st_mtime_ns}".encode())
            if name:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def lines(*items: object) -> str:
    return "".join(f"{json.dumps(item)}\n" for item in items)
