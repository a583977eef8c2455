"""Build the files of a release reproducibly and check them: `make release`.

    python -m tools.release              # build, check and hash into dist/
    python -m tools.release --no-checks  # without the checks of twine and check-wheel-contents

The files of the last commit are built, in a new directory, twice. The release fails if the two
builds differ in a byte. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

BUILD = """
import sys
from setuptools import build_meta
build_meta.build_{kind}(sys.argv[1])
"""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output; on failure print it and exit."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """Return the version in `logstore/__init__.py`, the only place that has it."""
    text = (ROOT / "logstore/__init__.py").read_text(encoding="utf-8")
    (result,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return result


# --- building -----------------------------------------------------------------------------------


def unpack(archive: bytes, target: Path) -> Path:
    """Unpack a tar archive with fixed permissions, and return its only directory."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(target, filter="data")
    for path in target.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    (top,) = target.iterdir()
    return top


def normalized(archive: bytes, epoch: int) -> bytes:
    """Return a source archive with sorted names, one time, one owner and one mode.

    setuptools records the times at which files were unpacked, and the owner.
    """
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        gzip.GzipFile("", "wb", fileobj=target, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as result,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.linkname = member.type, member.size, member.linkname
            clean.mtime, clean.mode = epoch, 0o755 if member.isdir() else 0o644
            result.addfile(clean, source.extractfile(member) if member.isfile() else None)
    return target.getvalue()


def built(commit: str, epoch: int) -> dict[str, bytes]:
    """Build the source archive of a commit, and the wheel from the source archive."""
    archive = subprocess.run(
        ["git", "archive", "--prefix=source/", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    files = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = unpack(archive, folder / "commit")
        for kind in ("sdist", "wheel"):
            output = folder / kind
            output.mkdir()
            run(sys.executable, "-c", BUILD.format(kind=kind), output, cwd=source, **environment)
            (made,) = output.iterdir()
            content = made.read_bytes()
            if kind == "sdist":
                content = normalized(content, epoch)
                source = unpack(gzip.decompress(content), folder / "unpacked")
            files[made.name] = content
    return files


# --- checks -------------------------------------------------------------------------------------


def contents(name: str, content: bytes) -> list[str]:
    """Return the names of the files in a wheel or a source archive, without its top directory."""
    if name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            return sorted(packed.namelist())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = [member.name for member in archive if member.isfile()]
    return sorted(file.partition("/")[2] for file in files)


def hashes(files: dict[str, bytes]) -> str:
    """Return the text of `SHA256SUMS`."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "".join(lines)


def main(arguments: list[str]) -> None:
    """Build the last commit twice, compare, check, and write `dist/`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-checks", action="store_true", help="build and compare only")
    options = parser.parse_args(arguments)
    commit = run("git", "rev-parse", "HEAD").strip()
    epoch = int(run("git", "show", "--no-patch", "--format=%ct", commit))
    files, again = built(commit, epoch), built(commit, epoch)
    if files != again:
        sys.exit(f"two builds differ:\n{hashes(files)}{hashes(again)}")
    DIST.mkdir(exist_ok=True)
    for path in DIST.iterdir():
        path.unlink()
    for name, content in files.items():
        (DIST / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes, {len(contents(name, content)):,} files")
    if not options.no_checks:
        paths = [DIST / name for name in files]
        print(run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *paths))
        wheels = [path for path in paths if path.suffix == ".whl"]
        print(run(sys.executable, "-m", "check_wheel_contents", *wheels), end="")
    (DIST / "SHA256SUMS").write_text(hashes(files), encoding="utf-8")
    print(f"commit {commit}, version {version()}, built twice with the same bytes:")
    print(hashes(files), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
