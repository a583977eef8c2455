"""`python -m logstore.bench`: lines by name, a file and a page, and wrong usage."""

import pytest

from logstore.bench.__main__ import main
from logstore.bench.report.result import read_result


@pytest.fixture(autouse=True)
def _kernels_as_they_were(monkeypatch):
    """Compiling always is for good in a process, which tests share."""
    monkeypatch.setattr("logstore.bench.__main__.compile_always", lambda: None)


FAST = ("--mib", "1", "--repeats", "1", "--warmups", "0", "--no-peers")


def test_one_line_is_measured_and_kept(tmp_path, capsys):
    out = tmp_path / "r.json"
    assert main(["--only", "api/read", *FAST, "--out", str(out)]) == 0
    assert read_result(out).kind == "part"
    assert [line.name for line in read_result(out).lines] == ["api/read"]
    first = out.with_suffix(".html").read_text()
    assert "api/read" in first
    said = capsys.readouterr()
    assert "api/read" in said.out
    assert f"written: {out}" in said.err
    out.with_suffix(".html").unlink()
    assert main(["--page", str(out)]) == 0
    assert out.with_suffix(".html").read_text() == first


def test_a_part_is_retained_only_on_request(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("logstore.bench.__main__.RESULTS", tmp_path)
    assert main(["--only", "api/read", *FAST]) == 0
    assert "written" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_lines_are_listed(capsys):
    assert main(["--list"]) == 0
    assert "clean/100B-12\n" in capsys.readouterr().out


def test_an_unknown_line_is_wrong_usage(capsys):
    assert main(["--only", "cleen/*"]) == 2
    assert (
        "error: no line matches 'cleen/*'; the lines are: clean/100B-12" in capsys.readouterr().err
    )
