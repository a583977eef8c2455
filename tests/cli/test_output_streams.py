"""Streams of lines and items are written in growing chunks, and completed after a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from logstore import TopicPartition
from logstore.cli.show import output as shown
from logstore.cli.show.output import emit_failure, emit_items, emit_lines, emit_values


class Stdout:
    """Standard output that records each flushed part."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._text = ""

    def write(self, text: str) -> None:
        self._text += text

    def flush(self) -> None:
        self.parts.append(self._text)
        self._text = ""

    @property
    def text(self) -> str:
        return "".join(self.parts) + self._text


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Stdout:
    stdout = Stdout()
    monkeypatch.setattr(shown, "sys", SimpleNamespace(stdout=stdout))
    return stdout


def failing(count: int) -> Iterator[str]:
    yield from (f"{number}" for number in range(count))
    raise OSError("the disk failed")


def test_chunks_of_lines_grow_up_to_a_limit(
    stdout: Stdout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "_CHUNK_LINES_MAX", 4)
    emit_lines(f"{number}" for number in range(12))
    assert [part.count("\n") for part in stdout.parts] == [1, 2, 4, 4, 1]
    assert stdout.text == "".join(f"{number}\n" for number in range(12))


def test_lines_before_a_failure_are_written(stdout: Stdout) -> None:
    with pytest.raises(OSError, match="the disk failed"):
        emit_lines(failing(5))
    assert stdout.text == "0\n1\n2\n3\n4\n"


@pytest.mark.parametrize("count", (0, 1, 2, 5, 8))
def test_items_are_one_document(
    stdout: Stdout, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(shown, "_CHUNK_LINES_MAX", 4)
    more = {"end": 7, "words": ["a"]}
    items = [f"{number}" for number in range(count)]
    emit_items(iter(items), output="json", name="numbers", more=lambda: more)
    assert json.loads(stdout.text) == {"numbers": [*range(count)]} | more
    assert stdout.text == f'{{"numbers": [{", ".join(items)}], "end": 7, "words": ["a"]}}\n'
    assert len(stdout.parts) == {0: 0, 1: 1, 2: 1, 5: 2, 8: 3}[count]


@pytest.mark.parametrize(
    ("count", "text"), ((0, ""), (1, '{"n": [0]}\n'), (5, '{"n": [0, 1, 2, 3, 4]}\n'))
)
def test_a_document_is_complete_or_empty_after_a_failure(
    stdout: Stdout, count: int, text: str
) -> None:
    with pytest.raises(OSError, match="the disk failed"):
        emit_items(failing(count), output="json", name="n", more=lambda: {"end": 7})
    assert stdout.text == text


def test_values_are_lines_or_rows(stdout: Stdout) -> None:
    values = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    emit_values(values, output="jsonl")
    emit_values(iter(values), output="csv")
    assert stdout.text == '{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n' + "a,b\n1,x\n2,\\N\n"


def test_a_failure_names_its_partition_once(capsys: pytest.CaptureFixture[str]) -> None:
    tp = TopicPartition("users", 3)
    emit_failure(tp, "the disk\nfailed", "KAFKA_STORAGE_ERROR")
    emit_failure(tp, "users-3 is damaged", "CORRUPT_MESSAGE")
    assert capsys.readouterr().err == (
        "error: users-3: the disk failed (KAFKA_STORAGE_ERROR)\n"
        "error: users-3 is damaged (CORRUPT_MESSAGE)\n"
    )
