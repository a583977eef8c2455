"""The cheap parts of `make release`; the rest runs before each release."""

import gzip
import hashlib
import io
import tarfile

import logstore
from tools import release, try_release


def archive(mtime: int, owner: int, names: list[str]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid = len(name), mtime, owner
            member.mode = 0o600 if owner else 0o664
            packed.addfile(member, io.BytesIO(name.encode()))
    return target.getvalue()


def test_source_archives_have_the_same_bytes_whenever_and_by_whomever_they_are_made():
    first = release.normalized(archive(1, 0, ["top/a", "top/b"]), epoch=1_700_000_000)
    second = release.normalized(archive(2, 1000, ["top/b", "top/a"]), epoch=1_700_000_000)
    assert first == second
    assert release.contents("x.tar.gz", first) == ["a", "b"]
    with tarfile.open(fileobj=io.BytesIO(first)) as packed:
        assert {(each.mtime, each.uid, each.mode) for each in packed} == {(1_700_000_000, 0, 0o644)}
    assert gzip.decompress(first) == gzip.decompress(second)


def test_hashes_are_those_of_sha256sum():
    assert release.hashes({"b": b"2", "a": b"1"}) == (
        f"{hashlib.sha256(b'1').hexdigest()}  a\n{hashlib.sha256(b'2').hexdigest()}  b\n"
    )


def test_version_is_in_one_place():
    assert release.version() == logstore.__version__
    assert f'version = "{release.version()}"' not in (release.ROOT / "pyproject.toml").read_text()


def test_the_trial_runs_the_test_of_the_readme():
    assert "def test_" in try_release.readme_block("python", "def test_")
