"""Output of `inspect`: facts, a bar of sections, and a table of segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from logstore.analysis.summary import CORRUPT_BATCH
from logstore.cli.show.output import emit, emit_lines, format_count, plural
from logstore.cli.show.prose import wrapped
from logstore.cli.show.tables import (
    Cell,
    Styled,
    Table,
    can_print,
    display_text,
    full_width,
    is_bounded,
    output_width,
    paint,
)
from logstore.cli.show.verdict import STYLES as STATE_STYLES
from logstore.cli.show.verdict import (
    EmptyPartitions,
    short_amounts,
    short_state,
    summary_lines,
    verdict_lines,
)
from logstore.reasons.formats import format_size, format_span, format_time

if TYPE_CHECKING:
    from logstore.analysis.summary import FindingSummary, PartitionSummary, SegmentSummary
    from logstore.analysis.verdict import Summary, Verdict
    from logstore.record.survey import Damage

# Sections have different colours, bar textures and names.
STYLES = {"clean": "green", "dirty": "yellow", "uncleanable": "magenta", "active": "cyan"}
_GLYPHS = {"clean": "█", "dirty": "▓", "uncleanable": "▒", "active": "░"}
_ASCII_GLYPHS = {"clean": "#", "dirty": "x", "uncleanable": "-", "active": "."}
_BAR_WIDTH_MAX = 80
_SMALL_BAR_WIDTH = 12
_SEGMENTS_SHOWN = 40
_DAMAGES_SHOWN = 40
_WIDE = 96
_HIDDEN_FIRST = ("sections", "offsets", "policy", "segments", "lag", "dirty", "if rolled")
"""Columns of the partition table that are hidden on narrow terminals, in this order."""


def show_one(summary: PartitionSummary, *, is_deep: bool) -> None:
    """Print everything about a partition."""
    name = f"{summary.topic}-{summary.partition}"
    emit_lines(verdict_lines(name, summary.verdict, summary.now_ms))
    assumed = " (assumed)" if summary.is_policy_assumed else ""
    policy = f"cleanup.policy {summary.cleanup_policy or 'empty'}{assumed}"
    emit(f"{policy}  {paint(display_text(summary.directory), 'dim')}\n")
    emit_lines(_facts(summary))
    emit("")
    emit_lines(section_bar(summary.section_bytes(), width=min(_BAR_WIDTH_MAX, output_width())))
    emit("")
    emit_lines(_segment_lines(summary.segments))
    _print_recovery(summary.recovery)
    _print_damages(summary.damages)
    if summary.verdict is not None and summary.verdict.is_of_headers:
        _print_headers_only()


def _print_headers_only() -> None:
    text = "only batch headers were read; --deep also finds damage inside batches"
    emit(paint(f"\n{text}", "dim"))


def show_many(
    summary: Summary,
    summaries: Sequence[PartitionSummary],
    empty: EmptyPartitions,
    *,
    is_deep: bool,
    name_width: int = 0,
) -> None:
    """Print the summary and a line per partition. Names are at most `name_width` long.

    Parameters
    ----------
    empty : EmptyPartitions
        Counts partitions that are not listed.
    """
    if not summary.partitions:
        emit("no partitions")
        return
    emit_lines(summary_lines(summary))
    if not summaries:
        return
    findings: list[FindingSummary] = []
    damages: list[Damage] = []
    rows = []
    for each in summaries:
        if not each.recovery and empty.omits(each.topic, each.verdict):
            continue
        findings.extend(each.recovery)
        damages.extend(each.damages)
        rows.append(_overview_row(each, has_counts=is_deep))
    columns = ["partition", "verdict", "frees", "if rolled", "policy", "offsets", "records", "size"]
    columns += ["segments", "dirty", "lag"]
    columns += ["live keys", "tombstones"] if is_deep else []
    columns.append("sections")
    for name in _HIDDEN_FIRST:
        if is_bounded() and full_width(columns, rows) > output_width():
            columns.remove(name)
    table = Table(
        columns,
        right=(
            "frees",
            "if rolled",
            "records",
            "size",
            "segments",
            "dirty",
            "lag",
            "live keys",
            "tombstones",
        ),
        whole=("verdict", "policy", "offsets", "sections"),
        least={"partition": name_width},
    )
    if rows:
        emit("")
        emit_lines(table.lines([row[name] for name in columns] for row in rows))
    emit_lines(empty.lines())
    for each in summaries:
        if each.verdict is not None and each.verdict.notes:
            text = "; ".join(note.text for note in each.verdict.notes)
            emit_lines(("", *wrapped(f"note: {each.topic}-{each.partition}: {text}", "", "yellow")))
    _print_recovery(findings)
    _print_damages(damages)
    if summary.headers_only:
        _print_headers_only()


def _overview_row(summary: PartitionSummary, *, has_counts: bool) -> dict[str, Cell]:
    frees, if_rolled = short_amounts(summary.verdict)
    row: dict[str, Cell] = {
        "partition": Styled(f"{summary.topic}-{summary.partition}", "bold"),
        "verdict": _state(summary.verdict),
        "frees": frees,
        "if rolled": if_rolled,
        "policy": summary.cleanup_policy or "empty",
        "offsets": f"{summary.log_start_offset}..{summary.log_end_offset}",
        "records": format_count(summary.records),
        "size": format_size(summary.size_bytes),
        "segments": str(len(summary.segments)),
        "dirty": f"{summary.cleanable_ratio:.0%}",
        "lag": "" if summary.lag_ms is None else format_span(summary.lag_ms, units=1),
        "sections": _small_bar(summary.section_bytes()),
    }
    if has_counts:
        row["live keys"] = _counted(summary.live_keys)
        row["tombstones"] = _counted(summary.tombstones)
    return row


def _state(verdict: Verdict | None) -> Cell:
    return "" if verdict is None else Styled(short_state(verdict), STATE_STYLES[verdict.state])


def _small_bar(sizes: Mapping[str, int]) -> Styled:
    """Return a bar for a table cell, in the colour of the largest section."""
    glyphs = section_glyphs()
    shares = _shares(sizes, _SMALL_BAR_WIDTH)
    text = "".join(glyphs[section] * columns for section, columns in shares.items())
    largest = max(shares, key=lambda section: shares[section], default="")
    return Styled(text, STYLES.get(largest, ""))


def section_bar(sizes: Mapping[str, int], *, width: int) -> Iterator[str]:
    """Yield a bar whose parts are in proportion to the sections, and a legend.

    Parameters
    ----------
    sizes : mapping of str to int
        Bytes by section. Sections that are not empty get at least one column.
    """
    glyphs = section_glyphs()
    shares = _shares(sizes, width)
    if not shares:
        yield paint("no data", "dim")
        return
    yield "".join(
        paint(glyphs[section] * columns, STYLES[section]) for section, columns in shares.items()
    )
    yield "   ".join(
        f"{paint(glyphs[section], STYLES[section])} {section} {format_size(sizes[section])}"
        for section in shares
    )


def section_glyphs() -> Mapping[str, str]:
    """Return the bar character of each section, or ASCII if the encoding requires it."""
    return _GLYPHS if can_print("".join(_GLYPHS.values())) else _ASCII_GLYPHS


def _shares(sizes: Mapping[str, int], width: int) -> dict[str, int]:
    """Divide `width` columns in proportion among non-empty sections. Each gets at least one."""
    filled = {section: size for section, size in sizes.items() if size > 0}
    total = sum(filled.values())
    shares = {section: max(1, size * width // total) for section, size in filled.items()}
    if shares:
        largest = max(shares, key=lambda section: shares[section])
        shares[largest] = max(1, shares[largest] + width - sum(shares.values()))
    return shares


def _facts(summary: PartitionSummary) -> Iterator[str]:
    """Yield two columns of names and numbers."""
    left = [
        ("log start offset", format_count(summary.log_start_offset)),
        ("log end offset", format_count(summary.log_end_offset)),
        ("high watermark", format_count(summary.high_watermark)),
        ("last stable offset", format_count(summary.last_stable_offset)),
        ("first dirty offset", format_count(summary.first_dirty_offset)),
        ("first uncleanable offset", format_count(summary.first_uncleanable_offset)),
    ]
    right = [
        ("size", format_size(summary.size_bytes)),
        ("segments", format_count(len(summary.segments))),
        ("records", format_count(summary.records)),
        ("live keys", _counted(summary.live_keys)),
        ("tombstones", _counted(summary.tombstones)),
        ("dirty ratio", f"{summary.cleanable_ratio:.4f}"),
    ]
    widths = [max(len(pair[part]) for pair in side) for side in (left, right) for part in (0, 1)]
    for (name, value), (other, other_value) in zip(left, right, strict=True):
        yield (
            f"{paint(name.ljust(widths[0]), 'dim')}  {value.rjust(widths[1])}"
            f"      {paint(other.ljust(widths[2]), 'dim')}  {other_value.rjust(widths[3])}"
        )


def _counted(count: int | None) -> str:
    return "? (--deep)" if count is None else format_count(count)


def _segment_lines(segments: Sequence[SegmentSummary]) -> Iterator[str]:
    is_narrow = output_width() < _WIDE
    offsets = ("base", "last") if is_narrow else ("base offset", "last offset")
    numbers = (*offsets, "size", "batches", "records")
    table = Table((*numbers, "max timestamp", "section"), right=numbers)

    def row(segment: SegmentSummary) -> tuple[Cell, ...]:
        time = format_time(segment.max_timestamp)
        return (
            str(segment.base_offset),
            str(segment.last_offset) if segment.batches else "-",
            format_size(segment.size_bytes),
            format_count(segment.batches),
            format_count(segment.records),
            time.partition(".")[0] if is_narrow else time,
            Styled(segment.section, STYLES[segment.section]),
        )

    hidden = len(segments) - _SEGMENTS_SHOWN
    if hidden <= 0:
        return table.lines(map(row, segments))
    half = _SEGMENTS_SHOWN // 2
    rows = [*map(row, segments[:half])]
    rows.append(("...", "", "", "", "", "", f"{plural(hidden, 'segment')} more"))
    rows += map(row, segments[-half:])
    return table.lines(rows)


def _print_recovery(findings: Sequence[FindingSummary]) -> None:
    """Print the repairs that opening for writing would make, and other damage."""
    if not findings:
        return
    emit(paint("\nRecovery: repairs on opening for writing (nothing was changed)", "yellow"))
    table = Table(("action", "file", "detail"), wrap=True)
    emit_lines(
        table.lines(
            (
                Styled(finding.action, "bold red" if finding.action == CORRUPT_BATCH else "yellow"),
                "/".join(finding.path.rsplit("/", 2)[-2:]),
                finding.detail,
            )
            for finding in findings
        )
    )


def _print_damages(damages: Sequence[Damage]) -> None:
    """Print skipped damage. `check` lists all damage."""
    if not damages:
        return
    emit(
        paint(
            "\nDamage: skipped; --as-recovered shows the records that a broker would keep",
            "bold red",
        )
    )
    table = Table(("file", "position", "size", "check", "between", "intact after"), wrap=True)
    emit_lines(table.lines(map(_damage_row, damages[:_DAMAGES_SHOWN])))
    if len(damages) > _DAMAGES_SHOWN:
        emit(f"... and {plural(len(damages) - _DAMAGES_SHOWN, 'more damaged range')}")


def _damage_row(damage: Damage) -> tuple[Cell, ...]:
    before, after = damage.last_offset_before, damage.first_offset_after
    return (
        "/".join(damage.path.rsplit("/", 2)[-2:]),
        str(damage.position),
        format_size(damage.size_bytes),
        Styled(damage.check, "dim" if damage.is_mended else "bold red"),
        f"{'-' if before is None else before} .. {'-' if after is None else after}",
        plural(damage.later_records or 0, "record"),
    )
