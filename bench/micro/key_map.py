"""Offset map lines: this map and Kafka's, filled to the load factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from logstore.bench.measuring import Sample, Stopwatch
from logstore.bench.micro.figures import MEGA, speeds
from logstore.bench.micro.kernels import get_keys, put_keys
from logstore.bench.micro.logs import MIB
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Figures, Line
from logstore.cleaner.kernels.hashing import LANES
from logstore.cleaner.kernels.hashing import Keys as BlockOfKeys
from logstore.cleaner.passes.offset_map import OffsetMap

KEY_BYTES = 16
LOAD = 0.9
PARTS = ("put", "hit", "miss")
DISTINCT = {"10": 0.1, "90": 0.9}
_TITLES = {
    "put": "put 16-byte keys",
    "hit": "look up present 16-byte keys",
    "miss": "look up absent 16-byte keys",
}


@dataclass(frozen=True)
class Keys:
    """Keys to put in order, their number `count`, and absent keys."""

    puts: np.ndarray
    absent: np.ndarray
    count: int


def keys_of(map_bytes: int, distinct: float, seed: int = 1) -> Keys:
    """Return keys that fill a map to its load factor; a fraction `distinct` of them is distinct."""
    random = np.random.Generator(np.random.Philox(seed))
    entries = int(map_bytes // OffsetMap.ENTRY_BYTES * LOAD) - 1
    count = int(entries / distinct)
    words = random.integers(0, 1 << 63, (entries, 2), np.int64)
    order = np.concatenate((random.permutation(entries), random.integers(0, entries, count)))
    puts = words[random.permutation(order[:count])].reshape(-1).view(np.uint8)
    absent = random.integers(0, 1 << 63, (entries, 2), np.int64).reshape(-1).view(np.uint8)
    return Keys(puts, absent, count)


def _lines(setting: Setting, *, name: str) -> Iterator[Line]:
    map_bytes = max(MIB, setting.total_bytes // 4)
    setting.report(f"map: {map_bytes >> 20} MiB, {name} % of the keys distinct")
    keys = keys_of(map_bytes, DISTINCT[name])
    key_map = OffsetMap(map_bytes, LOAD)
    room = BlockOfKeys.room_for(LANES)
    here: dict[str, list[Sample]] = {part: [] for part in PARTS}
    there: dict[str, list[Sample]] = {part: [] for part in PARTS}
    kafka = setting.kafka()
    puts, absent = setting.scratch / "puts", setting.scratch / "absent"
    puts.write_bytes(keys.puts.tobytes())
    absent.write_bytes(keys.absent.tobytes())
    for number in range(1 + setting.repeats):
        key_map.clear()
        samples = {}
        with Stopwatch() as watch:
            mapped = put_keys(key_map.arrays, keys.puts, KEY_BYTES, room)
        samples["put"] = watch.sample
        with Stopwatch() as watch:
            hits = get_keys(key_map.arrays, keys.puts, KEY_BYTES, room)
        samples["hit"] = watch.sample
        with Stopwatch() as watch:
            wrong = get_keys(key_map.arrays, keys.absent, KEY_BYTES, room)
        samples["miss"] = watch.sample
        assert (mapped, hits, wrong) == (keys.count, keys.count, 0)
        answer = kafka.map(puts, absent, map_bytes) if kafka is not None else None
        if number:
            for part in PARTS:
                here[part].append(samples[part])
                if answer is not None:
                    there[part].append(Sample(answer[f"{part}_ns"] / 1e9, 0.0))
    puts.unlink()
    absent.unlink()
    for part in PARTS:
        count = len(keys.absent) // KEY_BYTES if part == "miss" else keys.count
        peer = speeds(count, there[part], MEGA).judged if there[part] else None
        yield Line(
            name=f"map/{part}-{name}",
            title=f"{_TITLES[part]}, {name} % distinct",
            unit="M/s",
            higher_is_better=True,
            here=speeds(count, here[part], MEGA),
            peer=None if peer is None else Figures(peer),
            peer_name=setting.kafka_name,
            facts={"map_bytes": map_bytes, "keys": keys.count},
        )


def jobs() -> Iterator[Job]:
    """Yield two jobs: few and many distinct keys."""
    for name in DISTINCT:
        names = tuple(f"map/{part}-{name}" for part in PARTS)
        yield Job(names, True, partial(_lines, name=name))
