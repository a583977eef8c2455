"""Damage from crashes, mistakes or bad disks, chosen once and applied to two directories."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.support.interop.live import Left, State

Damage = Callable[[Path], None]
"""A change of a partition's directory; missing files are skipped."""

LENGTH_POSITION, CRC_POSITION = 8, 17
"""Damage before the CRC field other than the length is excluded: the CRC does not cover it, and
docs/COMPATIBILITY.md describes how this engine handles it."""


class Scene(NamedTuple):
    """The known state of a stopped log."""

    rng: random.Random
    folder: Path
    state: State
    left: Left
    now_ms: int
    epoch: int

    @property
    def bases(self) -> list[int]:
        """The segments' base offsets."""
        return [base for base, _ in self.state["segments"]]

    @property
    def verified(self) -> list[int]:
        """The bases of the segments that the next start reads whole after an unclean stop."""
        below = [base for base in self.bases if base <= self.left.recovery_point]
        floor = below[-1] if below else self.bases[0]
        return [base for base in self.bases if base >= floor]


def choose(scene: Scene) -> list[tuple[str, Damage]]:
    """Choose the damage of a stopped log: often none, seldom several kinds."""
    table = [*_ANY_STOP, *(() if scene.left.clean else _UNCLEAN)]
    count = scene.rng.choice((0, 0, 1, 1, 2, 3) if not scene.left.clean else (0, 0, 0, 1, 2))
    chosen = []
    for name, make in scene.rng.sample(table, count):
        damage = make(scene)
        if damage is not None:
            chosen.append((name, damage))
    return chosen


def _name(base: int, suffix: str) -> str:
    return f"{base:020}{suffix}"


# -- missing and foreign files -------------------------------------------------------------------


def _remove(names: Sequence[str], folder: Path) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _without_indexes(scene: Scene) -> Damage:
    bases = scene.rng.sample(scene.bases, scene.rng.randint(1, len(scene.bases)))
    suffixes = scene.rng.choice(
        ((".index",), (".timeindex",), (".txnindex",), (".index", ".timeindex", ".txnindex"))
    )
    return partial(_remove, [_name(base, suffix) for base in bases for suffix in suffixes])


def _without_snapshots(scene: Scene) -> Damage:
    names = sorted(path.name for path in scene.folder.glob("*.snapshot"))
    return partial(_remove, names if scene.rng.random() < 0.5 else names[-1:])


def _without_epochs(scene: Scene) -> Damage:
    return partial(_remove, ["leader-epoch-checkpoint"])


def _orphan_index(scene: Scene) -> Damage:
    base = scene.rng.choice((scene.bases[0] + 1, scene.bases[-1] + 1, 10**12))
    name = _name(base, scene.rng.choice((".index", ".timeindex", ".txnindex")))

    def damage(folder: Path) -> None:
        if not (folder / _name(base, ".log")).exists():
            (folder / name).write_bytes(bytes(24))

    return damage


# -- leftovers -----------------------------------------------------------------------------------


def _leftover(suffix: str, scene: Scene) -> Damage | None:
    """Leave a segment's files under another name, next to the segment or instead of it."""
    # A cleaner never swaps the active segment, whose file may be longer than its data.
    bases = scene.bases[:-1] if suffix == ".swap" else scene.bases
    if not bases:
        return None
    base = scene.rng.choice(bases)
    in_place = suffix == ".swap" and scene.rng.random() < 0.5

    def damage(folder: Path) -> None:
        if not (folder / _name(base, ".index")).exists():
            return  # a cleaner never leaves a segment without
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            path = folder / _name(base, kind)
            target = path.with_name(path.name + suffix)
            if path.exists() and in_place:
                path.rename(target)
            elif path.exists():
                shutil.copy2(path, target)

    return damage


# -- the data ------------------------------------------------------------------------------------


def _torn_tail(scene: Scene) -> Damage:
    rng = scene.rng
    offset = scene.state["log_end_offset"]
    batch = build_batch(
        [Record(offset, scene.now_ms, b"torn", b"x" * 90)], partition_leader_epoch=scene.epoch
    )
    tail = rng.choice(
        (
            batch, batch[: rng.randrange(1, len(batch))], bytes(rng.choice((1, 17, 4000))),
            rng.randbytes(rng.randrange(1, 300)), batch + batch[:40],
        )
    )  # fmt: skip
    name = _name(scene.bases[-1], ".log")

    def damage(folder: Path) -> None:
        if (folder / name).exists():
            with (folder / name).open("ab") as file:
                file.write(tail)

    return damage


def _cut_log(scene: Scene) -> Damage | None:
    name, data = _some_log(scene)
    if not data:
        return None
    size = scene.rng.randrange(len(data))

    def damage(folder: Path) -> None:
        if (folder / name).exists():
            os.truncate(folder / name, size)

    return damage


def _flip_bit(scene: Scene) -> Damage | None:
    """Damage a batch, or its length field, so that it cannot pass for sound."""
    name, data = _some_log(scene)
    places = _batch_places(data)
    if not places:
        return None
    start, size = scene.rng.choice(places)
    in_length = scene.rng.random() < 0.2
    position = start + (
        LENGTH_POSITION + scene.rng.randrange(4)
        if in_length
        else scene.rng.randrange(CRC_POSITION, size)
    )
    bit = 1 << scene.rng.randrange(8)

    def damage(folder: Path) -> None:
        path = folder / name
        content = bytearray(path.read_bytes()) if path.exists() else bytearray()
        if position < len(content):
            content[position] ^= bit
            path.write_bytes(content)

    return damage


def _some_log(scene: Scene) -> tuple[str, bytes]:
    base = scene.rng.choice(scene.verified)
    size = dict(scene.state["segments"])[base]
    name = _name(base, ".log")
    return name, (scene.folder / name).read_bytes()[:size]


def _batch_places(data: bytes) -> list[tuple[int, int]]:
    places = []
    position = 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + LENGTH_POSITION : position + 12])
        places.append((position, size))
        position += size
    return places


# -- derived from the data -----------------------------------------------------------------------


def _damaged_index(scene: Scene) -> Damage:
    """Overwrite an index that recovery rebuilds."""
    rng = scene.rng
    name = _name(rng.choice(scene.verified), rng.choice((".index", ".timeindex")))
    content = rng.choice(
        (b"", bytes(48), rng.randbytes(48), rng.randbytes(rng.randrange(1, 50)), b"\xff" * 96)
    )

    def damage(folder: Path) -> None:
        if (folder / name).exists():
            (folder / name).write_bytes(content)

    return damage


def _damaged_snapshot(scene: Scene) -> Damage | None:
    names = sorted(path.name for path in scene.folder.glob("*.snapshot"))
    if not names:
        return None
    name = scene.rng.choice(names)
    content = scene.rng.choice((b"", b"\x00\x01", b"\x00\x01\x00\x00\x00\x07\x00\x00\x00\x00"))
    return lambda folder: (folder / name).write_bytes(content) and None


_ANY_STOP = (
    ("missing indexes", _without_indexes),
    ("missing snapshots", _without_snapshots),
    ("missing leader-epoch-checkpoint", _without_epochs),
    ("orphan index", _orphan_index),
    ("damaged snapshot", _damaged_snapshot),
    ("leftover .cleaned", partial(_leftover, ".cleaned")),
    ("leftover .deleted", partial(_leftover, ".deleted")),
    ("leftover .swap", partial(_leftover, ".swap")),
)

_UNCLEAN = (
    ("torn tail", _torn_tail),
    ("cut log", _cut_log),
    ("flipped bit", _flip_bit),
    ("damaged index", _damaged_index),
)

NAMES = frozenset(name for name, _ in (*_ANY_STOP, *_UNCLEAN))
"""All kinds of damage."""
