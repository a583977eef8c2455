"""The contents of a wheel and a source archive that are built in a used checkout."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"logstore", "pyspark_logstore"}

BUILD = """
from setuptools import build_meta
print(build_meta.build_wheel("dist"))
print(build_meta.build_sdist("dist"))
"""


def test_files_created_by_commands_are_not_packaged(tmp_path):
    checkout = tmp_path / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, checkout / name, ignore=skipped)
    files = ("pyproject.toml", "MANIFEST.in", "README.md")
    for name in (*files, "LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"):
        shutil.copy(ROOT / name, checkout / name)
    for left in ("logstore-demo/users-0", "logstore-data", "logstore_out", "tests/unit", "build/x"):
        (checkout / left).mkdir(parents=True)
        (checkout / left / "left.py").write_text("")
    (checkout / "tests" / "test_left.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=checkout,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    warned = re.findall(r".*Warning.*", done.stdout + done.stderr)
    assert warned == [], "a user sees them all"
    (wheel,) = (checkout / "dist").glob("*.whl")
    (archive,) = (checkout / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        inside = [PurePosixPath(name) for name in packed.namelist()]
        (entries,) = [name for name in packed.namelist() if name.endswith("/entry_points.txt")]
        assert "[pytest11]\nlogstore = logstore.testing.plugin\n" in packed.read(entries).decode()
    with tarfile.open(archive) as packed_source:
        sources = [PurePosixPath(*PurePosixPath(n).parts[1:]) for n in packed_source.getnames()]

    tops = {path.parts[0] for path in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    folders = {path.parts[0] for path in sources if len(path.parts) > 1}
    assert {folder for folder in folders if not folder.endswith(".egg-info")} == PACKAGES
    wanted = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
    }
    assert wanted <= {str(path) for path in inside}
    assert "logstore/py.typed" in map(str, inside)
    assert any(path.match("cli/demo/data/kafka-3.9/*") for path in inside)
    for data in (
        "messages/definitions/wire.txt",
        "simulate/templates/page.html",
        "bench/report/templates/bars.svg",
    ):
        assert any(path.match(data) for path in inside), data
    assert wanted <= {str(path) for path in sources}
    for notice in ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md", "preact.LICENSE.txt"):
        assert any("licenses" in path.parts and path.name == notice for path in inside), notice
        assert any(path.name == notice for path in sources), notice
