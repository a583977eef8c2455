"""Parts of the output that need a large or an unusual input."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from logstore.cli.show import damage as shown_damage
from logstore.cli.show import fates as shown_fates
from logstore.cli.show import inspect as shown_inspect
from logstore.cli.show import progress
from logstore.cli.show.bars import bar
from logstore.cli.show.curves import curve
from logstore.cli.show.damage import SkippedDamage, report_all
from logstore.cli.show.messages import FINDINGS_SHOWN_MAX, MessageHandler, Recovery
from logstore.cli.show.output import one_line
from logstore.cli.show.prose import bullet_list, wrapped
from logstore.record.survey import Damage
from logstore.storage.loading.views import TRANSIENT


def damage(number, **changes):
    members = {
        "path": f"d/t-0/{number}.log",
        "position": number,
        "size_bytes": 10,
        "check": "crc",
        "last_offset_before": None,
        "first_offset_after": number + 1,
        "later_records": 1,
    }
    return Damage(**dict.fromkeys(Damage._fields) | Damage._field_defaults | members | changes)


def test_many_damaged_ranges_are_cut_short(capsys):
    most = shown_damage.DAMAGES_SHOWN_MAX
    assert report_all([]) == 0
    assert report_all([damage(number) for number in range(most)]) == 1
    assert capsys.readouterr().err == "".join(
        f"damage: {damage(number)}\n" for number in range(most)
    )
    assert report_all([damage(number) for number in range(most + 1)]) == 1
    *_, last, total = capsys.readouterr().err.splitlines()
    assert last == f"damage: {damage(most - 1)}"
    assert total == f"note: {most + 1} damaged ranges in total; see logstore check"


def test_a_torn_end_of_the_last_file_is_a_note(capsys):
    met = SkippedDamage()
    assert (met.damages, met.to_json()) == ([], {})
    torn = {"first_offset_after": None, "check": "truncated"}
    first, middle, end = damage(1, **torn), damage(2), damage(3, **torn)
    whole = damage(4, first_offset_after=None, check="segment_size")
    met.of_next_file().append(first)
    met.of_next_file().extend([middle, end, whole])
    assert met.damages == [first, middle, whole]
    assert met.to_json() == {"damages": [each._asdict() for each in (first, middle, whole)]}
    assert met.report() == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        "note: 10 bytes after the last whole batch of d/t-0/3.log (truncated)"
    )
    alone = SkippedDamage()
    alone.of_next_file().append(end)
    assert (alone.damages, alone.report()) == ([], 0)


def test_the_table_of_damage_is_cut_short(capsys):
    most = shown_inspect._DAMAGES_SHOWN
    shown_inspect._print_damages([damage(number) for number in range(most)])
    assert len(capsys.readouterr().out.splitlines()) == most + 4
    shown_inspect._print_damages([damage(number) for number in range(most + 2)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == most + 5
    assert lines[-1] == "... and 2 more damaged ranges"
    assert shown_inspect._damage_row(damage(7, later_records=None))[4:] == ("- .. 8", "0 records")
    assert shown_inspect._damage_row(damage(7, last_offset_before=3, first_offset_after=None)) == (
        "t-0/7.log",
        "7",
        "10 B",
        ("crc", "bold red"),
        "3 .. -",
        "1 record",
    )


def test_each_failure_counts_from_the_last_record(monkeypatch):
    """A record between two failures shows progress, so the next failure is a first one again."""
    reopened = []
    listing = object.__new__(shown_fates._Listing)
    script = iter([[0, 1, None], [0, 1, None], [0, 1, 2, None], [2, 3]])

    def evaluate(_):
        for offset in next(script):
            if offset is None:
                raise TRANSIENT[0]("x")
            yield SimpleNamespace(offset=offset)

    listing._bar = progress.ProgressBar()
    listing._view = SimpleNamespace(
        log="log", evaluate=evaluate, reopen=lambda _log, failures, _: reopened.append(failures)
    )
    listing.fates = evaluate(None)
    assert [each.offset for each in listing] == [0, 1, 2, 3]
    assert reopened == [1, 2, 1]


def message(name, level, text):
    return logging.LogRecord(f"logstore.{name}", level, "f", 1, text, (), None)


@pytest.mark.parametrize(
    ("recovery", "printed", "summary"),
    (
        (Recovery.PART_OF_RESULT, 0, ""),
        (
            Recovery.COMPUTED,
            0,
            "note: recovery: {} findings, nothing was changed; see logstore inspect\n",
        ),
        (Recovery.MENDED, FINDINGS_SHOWN_MAX, "note: recovery: {} findings on opening{}\n"),
    ),
)
def test_findings_are_printed_or_counted(capsys, recovery, printed, summary):
    for count, hidden in (
        (FINDINGS_SHOWN_MAX, ""),
        (FINDINGS_SHOWN_MAX + 1, f"; the first {FINDINGS_SHOWN_MAX} are shown"),
    ):
        handler = MessageHandler(recovery)
        for number in range(count):
            handler.emit(message("storage.loading.loader", logging.WARNING, f"m{number}"))
        assert capsys.readouterr().err == "".join(
            f"warning: m{number}\n" for number in range(min(count, printed))
        )
        handler.finish()
        assert capsys.readouterr().err == summary.format(count, hidden)


def test_messages_of_the_compiler_are_notes_and_those_about_files_printed_once(capsys):
    handler = MessageHandler(Recovery.MENDED)
    for record in (
        message("jit", logging.INFO, "compiling"),
        message("cleaner", logging.INFO, "quiet"),
        message("cleaner", logging.ERROR, "two\nlines"),
        message("cleaner", logging.ERROR, "two\nlines"),
        message("manager.registry", logging.WARNING, "a file"),
        message("manager.registry", logging.WARNING, "a file"),
        message("manager.registry", logging.WARNING, "another"),
    ):
        handler.emit(record)
    handler.finish()
    assert capsys.readouterr().err.splitlines() == [
        "note: compiling",
        "error: two lines",
        "error: two lines",
        "warning: a file",
        "warning: another",
    ]


@pytest.mark.parametrize(
    ("part", "whole", "width", "text"),
    (
        (0, 5, 4, ""),
        (5, 0, 4, ""),
        (5, 5, 4, "████"),
        (9, 5, 4, "████"),
        (1, 10_000, 4, "▏"),
        (1, 2, 4, "██"),
        (5, 16, 2, "▋"),
    ),
)
def test_bars(part, whole, width, text):
    assert bar(part, whole, width) == text


def test_bars_and_curves_without_block_characters(monkeypatch):
    for module in ("bars", "curves", "prose"):
        monkeypatch.setattr(f"logstore.cli.show.{module}.can_print", lambda _: False)
    assert [bar(part, 4, 8) for part in (0.01, 1, 4, 9)] == ["#", "##", "########", "########"]
    assert curve([0, 1, 2, 7, 8], 9) == "_.-@@"
    assert list(bullet_list("Name", ["text"])) == ["", "Name:", "  - text"]


def test_curves():
    assert curve([], 5) == ""
    assert curve([0, 0], 5) == "▁▁"
    assert curve([0, 1, 2, 3, 4, 5, 6, 7, 8], 9) == "▁▂▃▄▅▆▇██"
    assert curve([0, 8, 4, 4], 2) == "██"
    assert curve([0, 0, 8, 8, 8], 2) == "▁█"


def test_sentences_are_wrapped_and_bulleted(monkeypatch):
    monkeypatch.setattr("logstore.cli.show.prose.output_width", lambda: 12)
    assert wrapped("aaaa bbbb cccc") == ["aaaa bbbb", "  cccc"]
    assert wrapped("aaaa\nbbbb", "    ") == ["    aaaa", "    bbbb"]
    assert list(bullet_list("Name", [])) == []
    assert list(bullet_list("Name", ["aaaa bbbb", "c"])) == [
        "",
        "Name:",
        "  • aaaa",
        "    bbbb",
        "  • c",
    ]
    monkeypatch.setattr("logstore.cli.show.prose.output_width", lambda: 500)
    assert list(map(len, wrapped("x" * 60 + " " + "y" * 39))) == [100]
    assert list(map(len, wrapped("x" * 60 + " " + "y" * 40))) == [60, 42]


def test_a_message_is_one_line_with_single_blanks():
    assert one_line(" a  b\t\tc\r\n\n d\x1b") == "a b c d\\x1b"
