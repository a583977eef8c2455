"""A survey that hides the damaged bytes of a partition's files.

This is a stage of `logstore.storage.loading.loader` for readers that skip damage. It works on an
overlay and does not change the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
    parse_segment_file,
)
from logstore.record.batch import decode_stored
from logstore.record.splice import SplicedFile
from logstore.record.survey import Damage, SegmentBounds, SpliceBuilder, survey
from logstore.record.walk import batch_totals
from logstore.runtime import FileKind, OverlayFileSystem
from logstore.storage.loading.leftovers import finish_swaps
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.config.log_config import LogConfig
    from logstore.record.records import Record
    from logstore.record.splice import Splice
    from logstore.runtime import File, FileSystem
    from logstore.storage.loading.leftovers import PartitionFiles

_TORN = ("torn_tail", "zero_tail")


class Leftover(NamedTuple):
    """A segment, or its beginning, that another segment superseded in a finished swap.

    Attributes
    ----------
    first_offset : int
        End of the superseded offsets (exclusive).
    path : str
        The file that supersedes them.
    is_whole : bool
        Whether the whole segment is superseded.
    """

    first_offset: int
    path: str
    is_whole: bool


@dataclass(slots=True)
class SurveyedFiles:
    """The result of a survey.

    Attributes
    ----------
    damages : list of Damage
        Damage that is followed by valid batches.
    torn : list of Damage
        Invalid bytes at the end of the log, from a crash or an incomplete copy.
    bounds : dict of str to SegmentBounds
        Bounds of the `.log` files that are not shown unchanged, by the path under which they are
        shown.
    """

    damages: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)
    bounds: dict[str, SegmentBounds] = field(default_factory=dict)


def survey_files(files: PartitionFiles, config: LogConfig, clean: bool) -> SurveyedFiles:
    """Finish swaps, check every batch of every segment, and hide invalid bytes.

    A damaged end of the log is reported as a finding, not as damage, because it is torn or the
    result of an unclean stop.
    """
    fs = files.fs
    assert isinstance(fs, OverlayFileSystem), "damage is skipped only in an overlay"
    limit = config.logstore_decompression_max_bytes
    origins: dict[str, str] = {}
    for path, parts in files.listed(kind=LOG_SUFFIX, state=SWAP_SUFFIX):
        bounds = SegmentBounds(path, parts.base_offset, parts.base_offset, None)
        shown = _ShownSegment(fs, bounds, limit)
        # The segments are complete, so the swap can be finished. They are surveyed again below.
        shown.show()
        if shown.damages and _has_sources(files, shown, limit):
            _drop_swap(files, parts.base_offset)
            continue
        origins[path.removesuffix(SWAP_SUFFIX)] = path
    finish_swaps(files)
    origins |= _show_misnamed(files)
    logs = {parts.base_offset: path for path, parts in files.listed(kind=LOG_SUFFIX)}
    paths = {base: origins.get(path, path) for base, path in logs.items()}
    superseded = find_superseded(fs.base, paths, limit)
    for base, leftover in superseded.items():
        text = leftover_text(leftover.path, leftover.first_offset)
        files.note("leftover_segment", logs[base], text)
    result = SurveyedFiles()
    behind: list[int] = []  # for each damage, the number of records before it
    records = 0
    last_offset: int | None = None
    for base, following in _with_following(logs, superseded):
        first_offset = superseded[base].first_offset if base in superseded else base
        bounds = SegmentBounds(paths[base], base, first_offset, following)
        shown = _ShownSegment(fs, bounds, limit)
        is_odd = shown.show(logs[base])
        if bounds.is_partly_superseded and shown.first_offset is not None:
            shown.damages.insert(0, (_superseded_part(bounds, shown), 0))
        if bounds.is_partly_superseded and shown.first_offset is None:
            for path, parts in files.listed():
                if parts.base_offset == base and parts.kind in SEGMENT_SUFFIXES:
                    fs.remove(path)
            files.changed()
        elif is_odd:
            result.bounds[logs[base]] = bounds
            for suffix in INDEX_SUFFIXES:
                index = logs[base].removesuffix(LOG_SUFFIX) + suffix
                if fs.exists(index):
                    fs.remove(index)
            files.changed()
        first = shown.first_offset
        result.damages = [
            each._replace(first_offset_after=first) if each.first_offset_after is None else each
            for each in result.damages
        ]
        for damage, before in shown.damages:
            if damage.last_offset_before is None:
                damage = damage._replace(last_offset_before=last_offset)
            result.damages.append(damage)
            behind.append(records + before)
        records += shown.records
        last_offset = last_offset if shown.last_offset is None else shown.last_offset
    result.damages = [
        each._replace(later_records=records - before)
        for each, before in zip(result.damages, behind, strict=True)
    ]
    kept = []
    for each in result.damages:
        is_end = each.first_offset_after is None
        if is_end and (not clean or each.check in _TORN):
            detail = f"{each.size_bytes} bytes after position {each.position} ({each.check})"
            files.note("truncated_tail", each.path, detail)
            result.torn.append(each)
        else:
            kept.append(each)
    result.damages = kept
    return result


def _has_sources(files: PartitionFiles, shown: _ShownSegment, limit: int) -> bool:
    """Return whether all sources of a damaged `.swap` still exist, so it can be dropped."""
    base, last = shown.bounds.base_offset, shown.last_offset
    live = {
        parts.base_offset: path
        for path, parts in files.listed(kind=LOG_SUFFIX)
        if parts.base_offset >= base and (last is None or parts.base_offset <= last)
    }
    if base not in live:
        return False
    end_base = max(live)
    return last is None or _end_offset(files.fs, live[end_base], end_base, limit) > last


def _drop_swap(files: PartitionFiles, base_offset: int) -> None:
    for path, parts in files.listed(state=SWAP_SUFFIX):
        if parts.base_offset == base_offset:
            detail = "it is damaged, and its source segments still exist"
            files.remove(path, "removed_leftover", detail)


def _show_misnamed(files: PartitionFiles) -> dict[str, str]:
    """Show each `.log` whose name is not 20 digits under its proper name, unless it is in use.

    Returns
    -------
    dict
        Maps the proper path to the actual path.
    """
    fs, found = files.fs, {}
    assert isinstance(fs, OverlayFileSystem)
    for name, kind in fs.base.kinds(files.directory).items():
        parts = parse_segment_file(name)
        if parts is None or parts.kind != LOG_SUFFIX or parts.state or kind is not FileKind.FILE:
            continue
        proper = f"{files.directory}/{file_name(parts.base_offset, LOG_SUFFIX)}"
        if parts.base_offset > INT64_MAX or fs.exists(proper):
            continue
        path = f"{files.directory}/{name}"
        fs.show(proper, partial(fs.base.open, path))
        found[proper] = path
        files.changed()
    return found


def find_superseded(fs: FileSystem, logs: Mapping[int, str], limit: int) -> dict[int, Leftover]:
    """Find the segments superseded by a swapped-in segment.

    A copy taken during a cleaning pass can contain the new segment and some of the old ones. The
    old segments then contain every record of the new one in their range.

    Parameters
    ----------
    logs : mapping of int to str
        Paths of `.log` files, by base offset.

    Returns
    -------
    dict
        The leftovers by the base offset of the old segment.

    Notes
    -----
    Reads the headers of all batches, and the records of segments that overlap.
    """
    found: dict[int, Leftover] = {}
    bases = sorted(logs)
    for slot, base in enumerate(bases[:-1]):
        if base in found:
            continue
        end = _end_offset(fs, logs[base], base, limit)
        overlapped: dict[int, Leftover] = {}
        records = 0
        for other in bases[slot + 1 :]:
            if end <= other:
                break
            new = _records(fs, logs[base], base, limit, other, INT64_MAX)
            old = _records(fs, logs[other], other, limit, other, INT64_MAX)
            other_end = _end_offset(fs, logs[other], other, limit)
            count = _count_among(_below(new, other_end), old)
            if count is None or other_end == other:
                records = 0
                break
            records += count
            overlapped[other] = Leftover(end, logs[base], other_end <= end)
        if records:  # without records, a damaged base offset is the likely cause
            found |= overlapped
    return found


def _count_among(records: Iterator[Record], others: Iterator[Record]) -> int | None:
    """Return the number of records, or None if any of them is missing from `others`.

    Both must be in offset order.
    """
    count = 0
    other = next(others, None)
    for record in records:
        while other is not None and other.offset < record.offset:
            other = next(others, None)
        if other is None or other != record:
            return None
        count += 1
    return count


def _below(records: Iterator[Record], end: int) -> Iterator[Record]:
    return (record for record in records if record.offset < end)


def _end_offset(fs: FileSystem, path: str, base: int, limit: int) -> int:
    """Return the offset after the last valid batch that can be found."""
    with closing(fs.open(path)) as file:
        try:
            totals = batch_totals(file, path)
        except (CorruptionError, UnsupportedFormatError):
            end = base
            for each in survey(file, SegmentBounds(path, base, base, None), limit):
                if not isinstance(each, Damage):
                    end = each.batch.header.next_offset
            return end
        return totals.last_offset + 1 if totals.batches else base


def _records(
    fs: FileSystem, path: str, base: int, limit: int, start: int, end: int
) -> Iterator[Record]:
    with closing(fs.open(path)) as file:
        for each in survey(file, SegmentBounds(path, base, base, None), limit):
            if isinstance(each, Damage) or each.batch.header.last_offset < start:
                continue
            for record in decode_stored(each.batch, limit):
                if start <= record.offset < end:
                    yield record


def _with_following(
    logs: Mapping[int, str], superseded: Mapping[int, Leftover]
) -> Iterator[tuple[int, int | None]]:
    """Yield each base offset with the first offset of the next segment that is not superseded."""
    bases = sorted(logs)
    for slot, base in enumerate(bases):
        following: int | None = None
        for other in bases[slot + 1 :]:
            following = superseded[other].first_offset if other in superseded else other
            if other not in superseded:
                break
        yield base, following


def leftover_text(path: str, first_offset: int) -> str:
    """Return the message that explains why a segment, or its beginning, is a leftover."""
    return f"{path} supersedes its offsets below {first_offset} after a finished swap"


def _superseded_part(bounds: SegmentBounds, shown: _ShownSegment) -> Damage:
    """Return the superseded beginning of a segment as mended damage."""
    end = shown.first_position
    return Damage(
        bounds.path,
        0,
        end,
        "segment_overlap",
        bounds.first_offset - 1,
        shown.first_offset,
        is_mended=True,
    )


class _ShownSegment:
    """A `.log` file, its valid batches, and how it is shown."""

    def __init__(self, fs: OverlayFileSystem, bounds: SegmentBounds, limit: int) -> None:
        self._fs = fs
        self.bounds = bounds
        self._limit = limit
        self.damages: list[tuple[Damage, int]] = []
        self.records = 0
        self.first_offset: int | None = None
        self.first_position = 0
        self.last_offset: int | None = None

    def show(self, path: str | None = None) -> bool:
        """Survey the file. If it is damaged, show it without the damage and return True.

        The file is shown under `path`, if given.
        """
        bounds = self.bounds
        splice = self._survey()
        if splice is None:
            return False
        self._fs.show(path or bounds.path, partial(_open, self._fs.base, splice))
        return True

    def _survey(self) -> Splice | None:
        bounds = self.bounds
        builder = SpliceBuilder(bounds.path, self._limit)
        with closing(self._fs.base.open(bounds.path)) as file:
            for each in survey(file, bounds, self._limit):
                if isinstance(each, Damage):
                    self.damages.append((each, self.records))
                    continue
                if self.first_offset is None:
                    self.first_offset = each.batch.header.base_offset
                    self.first_position = each.position
                self.last_offset = each.batch.header.last_offset
                self.records += each.batch.header.record_count
                builder.add(each)
            return builder.finish(file.size())


def _open(fs: FileSystem, splice: Splice) -> File:
    return SplicedFile(fs.open(splice.path), splice)
