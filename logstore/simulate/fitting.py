"""Fitting: how a topic was written, as the words of a scenario, and how well these tell it.

Every number is one that a scenario file may say, so whoever doubts one changes it. What cannot be
known takes a default, and is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logstore.config.overrides import effective_config
from logstore.record.codecs import Codec
from logstore.record.layout import HEADER_SIZE
from logstore.runtime import SystemClock
from logstore.simulate.population import KnownPopulation
from logstore.simulate.recording import Arrivals, Batches, Progress, Rates, record
from logstore.simulate.scenario import KnownKeys, Scenario, from_mapping
from logstore.simulate.starting import spec_for
from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.blocks import build_block
from logstore.workload.parcels import pack_block
from logstore.workload.profiles import MONDAY_MS, even_days

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.simulate.recording import Recording, TopicRecording

    Ints = NDArray[np.int64]

DAYS = 30.0
"""How long a directory goes on if nobody says."""

RATES_DAYS = 28
"""The rate is that of the last days, as many at most; whole weeks, and what was before is past."""

SPAN_MIN_MS = 3_600_000
"""A shorter time says nothing about a day."""

LATE_MS = 60_000
"""A timestamp that lies behind those before it by more is late; by less it is the way of batches
and of producers side by side."""

RECORDS_MIN = 100
"""Fewer records say nothing about keys."""

_SLOT_RECORDS, _SLOT_BATCHES = 30, 4
"""What an hour of a profile must have seen at the mean."""

_PROFILES = ((14, 7), (2, 1))
"""Days that are needed for a profile, and its length: of a week, or else of a day."""

_DIRECTORIES = ("log.dir", "log.dirs")
_UNSEEN_MAX, _RECENT_MAX = 1 << 40, 1 << 24
_TRIAL_RECORDS = 10_000
_LARGE_SHARE = 0.001
_RECORD_OVERHEAD = 32


class Check(NamedTuple):
    """What the first two thirds of the arrivals foretell of the last one, and what came."""

    topic: str
    what: str
    predicted: float
    real: float

    @property
    def error(self) -> float:
        """By which share of what came the prediction is too high."""
        return (self.predicted - self.real) / self.real if self.real else 0.0


@dataclass(frozen=True, slots=True)
class Fit:
    """A scenario that goes on from a directory.

    Attributes
    ----------
    checks : tuple of Check
        How well it tells what is known.
    notes : tuple of str
        What could not be fitted, or was left out, and what is taken instead.
    """

    scenario: Scenario
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    recording: Recording

    @property
    def text(self) -> str:
        """The scenario as a file, with the checks, notes and damages as comments."""
        damages = [f"damage: {damage}" for damage in self.recording.damages]
        lines = _toml(self.scenario.tree, self.checks, [*damages, *self.notes])
        return "\n".join(lines) + "\n"


def fit(
    path: str,
    topics: Sequence[str] = (),
    *,
    days: float = DAYS,
    now_ms: int | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Scenario:
    """Return a scenario that begins with what lies in a directory and goes on as it was written.

    Parameters
    ----------
    path : str
        A data directory, one that holds some, or a partition's folder. Nothing in it changes.
    topics : sequence of str
        Which; none means all.
    days : float
        How long it goes on.
    now_ms : int, optional
        When it begins; by default at the newest timestamp.
    progress : callable, optional
        See `recording.record`.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `recording.record`.
    """
    recording = record(path, topics, progress=progress)
    return fitted(recording, days=days, now_ms=now_ms, seed=seed).scenario


def fitted(
    recording: Recording,
    *,
    days: float = DAYS,
    now_ms: int | None = None,
    seed: int = 1,
    broker: Mapping[str, str] | None = None,
) -> Fit:
    """Fit a scenario to a recording; see `fit`, and `Fit` for what there is to know of it.

    Parameters
    ----------
    broker : mapping, optional
        Kafka's broker properties.

    Raises
    ------
    InvalidConfigurationError
        One is unknown or wrong.
    """
    notes: list[str] = [*recording.left_out]
    broker = {k: v for k, v in (broker or {}).items() if k not in _DIRECTORIES}
    start_ms = _start_ms(recording, now_ms, notes)
    topics: list[dict[str, Any]] = []
    checks: list[Check] = []
    for topic in recording.topics.values():
        topic = _without_future(topic, start_ms, notes)
        words = _Fitting(topic, start_ms, notes).words()
        topics.append(words)
        checks += _checks(topic, notes)
        notes += topic.assumed
    names = ", ".join(recording.topics)
    tree = {
        "title": f"What if: {names}",
        "about": _about(recording, start_ms, checks),
        "from": recording.path,
        "start": _moment(start_ms),
        "days": days,
        "seed": seed,
        "topics": topics,
    }
    if broker:
        tree["broker"] = broker
    return Fit(from_mapping(tree), tuple(checks), tuple(notes), recording)


def _start_ms(recording: Recording, now_ms: int | None, notes: list[str]) -> int:
    """Return the virtual now."""
    if now_ms is not None:
        return now_ms
    clock_ms = SystemClock().now_ms()
    stamps = [topic.newest_ms for topic in recording.topics.values() if topic.newest_ms is not None]
    if not stamps:
        notes.append("no record has a timestamp: it begins at this machine's time")
        return clock_ms
    if max(stamps) > clock_ms:
        notes.append(
            f"the newest timestamp, {_moment(max(stamps))}, lies in the future: it begins at this "
            "machine's time"
        )
        return clock_ms
    return max(stamps)


def _without_future(topic: TopicRecording, now_ms: int, notes: list[str]) -> TopicRecording:
    """Return a recording in which what came after now came at it."""
    late = int((topic.arrivals.time_ms > now_ms).sum())
    if late:
        notes.append(f"{topic.name}: {late} records that come later than the start count as of it")
    arrivals, batches, rates = topic.arrivals, topic.batches, topic.rates
    return replace(
        topic,
        arrivals=arrivals._replace(time_ms=np.minimum(arrivals.time_ms, now_ms)),
        batches=batches._replace(time_ms=np.minimum(batches.time_ms, now_ms)),
        rates=rates._replace(time_ms=np.minimum(rates.time_ms, now_ms)),
    )


# -- what is fitted ------------------------------------------------------------------------


class _Fitting:
    """The fitting of one topic, up to a moment."""

    def __init__(self, topic: TopicRecording, until_ms: int, notes: list[str]) -> None:
        self.topic = topic
        self.until_ms = until_ms
        self.arrivals = topic.arrivals
        self._notes = notes

    def words(self) -> dict[str, Any]:
        """Return the table of the topic."""
        topic = self.topic
        per_day, profile = self.rate()
        tree: dict[str, Any] = {
            "name": topic.name,
            "continued": True,
            "records_per_day": per_day,
            "partition_shares": self._shares(),
            "keys": self.keys(),
        }
        if len(self.arrivals.key):
            tree |= self._records()
        else:
            self._say("no record shows what its values are: they are 100 bytes")
        tree["time"] = {"arrival": specs.POISSON, **profile, **self._lateness()}
        tree["producers"] = {"idempotent": bool((topic.batches.producer_id >= 0).any())}
        if topic.batches.is_transactional.any():
            self._say("transactions are not fitted: all records count as committed")
        if topic.newest_version is not None:
            header = effective_config(topic.configs).compaction_strategy_header
            tree["versions"] = {"header": header, "first": topic.newest_version + 1}
        tree["configs"] = dict(topic.configs)
        return tree

    def _say(self, text: str) -> None:
        self._notes.append(f"{self.topic.name}: {text}")

    # when

    def rate(self) -> tuple[float, dict[str, Any]]:
        """Return the records of a day, and the words of the profile."""
        rates, until = self.topic.rates, self.until_ms
        known = rates.time_ms >= 0
        total = int(rates.records.sum())
        if not known.any():
            if total:
                self._say(
                    f"no record has a timestamp: {total} a day are assumed, as many as lie there"
                )
            else:
                self._say("there is no record: none comes")
            return float(total), {}
        begin = max(int(rates.time_ms[known].min()), until - RATES_DAYS * DAY_MS)
        span = until - begin
        if span < SPAN_MIN_MS:
            self._say(
                f"all records came within {span / 60_000:.0f} minutes, which says nothing of a "
                f"day: {total} a day are assumed, as many as lie there"
            )
            return float(total), {}
        inside = (rates.time_ms > begin) & (rates.time_ms <= until)
        rates = Rates._make(column[inside] for column in rates)
        profile = _profile(rates, begin, until)
        days = span / DAY_MS
        if profile:
            days = even_days(
                specs.Time(
                    start=_moment(begin),
                    days=days,
                    profile=tuple(profile["profile"]),
                    profile_days=profile["profile_days"],
                )
            )
        return _rounded(float(rates.records.sum()) / days, 6), profile

    def _shares(self) -> dict[str, float]:
        """Return how the records of the rate are spread over the partitions."""
        rates, numbers = self.topic.rates, self.topic.partitions
        lately = rates.time_ms > self.until_ms - RATES_DAYS * DAY_MS
        if not lately.any():
            lately[:] = True
        counts = np.bincount(
            rates.partition[lately], rates.records[lately], minlength=1 + max(numbers)
        )[list(numbers)]
        if not counts.sum():
            return {}
        shares = counts / counts.sum()
        return {
            str(number): _rounded(float(share), 4)
            for number, share in zip(numbers, shares, strict=True)
        }

    def _lateness(self) -> dict[str, Any]:
        late = self.arrivals.late_ms[self.arrivals.late_ms > LATE_MS]
        share = len(late) / max(1, len(self.arrivals.late_ms))
        most = min(int(late.max()), round(2 * late.mean()), self.until_ms) if len(late) else 0
        return {"late_share": _rounded(share, 3), "late_ms": most} if most > 0 else {}

    # what

    def _records(self) -> dict[str, Any]:
        batches = self.topic.batches
        values = _values(self.arrivals.value_bytes)
        deletes = float((self.arrivals.value_bytes < 0).mean())
        mean, deviation = float(batches.records.mean()), float(batches.records.std())
        half = min(math.sqrt(3) * deviation, mean - 1)
        sizes = {
            "min_records": max(1, round(mean - half)),
            "max_records": min(max(1, round(mean + half)), specs.BLOCK_RECORDS),
            "codec": Codec(int(np.bincount(batches.codec).argmax())).name.lower(),
        }
        self._bound(values, sizes)
        if sizes["codec"] != "none":
            values["content"] = self._content(values, sizes)
        tree: dict[str, Any] = {"values": values, "batches": sizes}
        if deletes:
            tree["deletes"] = {"share": _rounded(deletes, 3)}
        return tree

    def _bound(self, values: dict[str, Any], sizes: dict[str, Any]) -> None:
        """Let no batch become larger than the topic's configuration allows."""
        config = effective_config(self.topic.configs)
        limit = min(config.segment_bytes, config.logstore_decompression_max_bytes)
        if specs.MAX_MESSAGE_BYTES in self.topic.configs:
            limit = min(limit, config.max_message_bytes)
        room = (limit - 2 * HEADER_SIZE - 4096) * 127 // 128
        longest = int(self.topic.keys.sizes.max()) if self.topic.keys.held else 0
        wanted = max(values.get("bytes", 0), _mean(values)) + longest + _RECORD_OVERHEAD
        sizes["max_records"] = max(1, min(sizes["max_records"], int(room // wanted)))
        sizes["min_records"] = min(sizes["min_records"], sizes["max_records"])
        most = room // sizes["max_records"] - longest - _RECORD_OVERHEAD
        if values["sizes"] == specs.FIXED or values["max_bytes"] <= most:
            return
        known = self.arrivals.value_bytes
        lost = float((known > most).mean())
        values["max_bytes"] = max(int(most), values["min_bytes"])
        if lost > _LARGE_SHARE:
            self._say(
                f"{lost:.1%} of the values are larger than {most} bytes, of which a batch has room "
                f"for {sizes['max_records']}: they are simulated as that large"
            )

    def _content(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
        """Return which of the contents a codec makes nearly as small as those that are there."""
        batches = self.topic.batches
        real = float(batches.bytes.sum() / max(1, batches.records.sum()))
        errors = {
            content: abs(_trial_bytes(self.topic, {**values, "content": content}, sizes, 0) - real)
            for content in (specs.WORDS, specs.RANDOM)
        }
        return min(errors, key=lambda content: errors[content])

    # whose

    def keys(self) -> dict[str, Any]:
        """Return the words of the keys."""
        topic = self.topic
        keyed = self.arrivals.key >= 0
        null_share = 1 - float(keyed.mean()) if len(keyed) else 0.0
        words: dict[str, Any] = {"null_share": _rounded(null_share, 3)} if null_share else {}
        if null_share and effective_config(topic.configs).compact:
            self._say(f"{null_share:.1%} of the records have no key: none such comes any more")
            words = {}
        if not topic.keys.held:
            if len(keyed) and null_share == 1:
                self._say("no record has a key, so no update is told from another")
            return words
        if topic.is_cleaned or keyed.sum() < RECORDS_MIN:
            self._say(
                f"{int(keyed.sum())} records that no cleaning has seen do not show how often keys "
                "are written: equally often, and no new ones, is assumed"
            )
            quiet = topic.keys.held - len(np.unique(self.arrivals.key[keyed]))
            return {**words, "quiet_share": _rounded(quiet / topic.keys.held * (1 - null_share), 4)}
        if topic.keys.held < topic.keys.count:
            self._say(
                f"of {topic.keys.count} keys the {topic.keys.held} that were written last are "
                "written again, the others never"
            )
        if topic.left_out:
            self._say(f"{topic.left_out} records before the last ones do not count for the keys")
        candidates = _key_candidates(self.arrivals, topic)
        chosen = min(range(len(candidates)), key=lambda n: self._judged(n))
        return words | _scaled(candidates[chosen], 1 - null_share)

    def _judged(self, number: int) -> float:
        """Return how far a candidate is off if it foretells the last third from the first two."""
        early, late = _thirds(self.topic)
        if not len(late.key) or (early.key >= 0).sum() < RECORDS_MIN:
            return number
        words = _key_candidates(early, self.topic)[number]
        keys, new = _drawn(self.topic, early, words, int((late.key >= 0).sum()))
        real = len(np.unique(late.key[late.key >= 0]))
        errors = abs(math.log(keys / real)), abs(math.log((new + 10) / (late.is_first.sum() + 10)))
        return errors[0] + 0.5 * errors[1] + 0.02 * number  # the simpler one, if they are alike


def _key_candidates(arrivals: Arrivals, topic: TopicRecording) -> list[dict[str, Any]]:
    """Return the ways in which keys may have been written, the numbers from some arrivals.

    The first takes every record for a draw from the same keys: the share of those that were not
    met is what those that were met once tell (Good and Turing), how many they are is told by those
    that were met twice, too (Chao), and so is by how much counts of few are too high (Kneser and
    Ney). The second does so with more keys, which are written ever more seldom: their number grows
    by a power of that of the records (Heaps). The others take it that keys come and go, as the last
    third had them.
    """
    keyed = arrivals.key >= 0
    key, is_first = arrivals.key[keyed], arrivals.is_first[keyed]
    n = len(key)
    counts = np.bincount(key)
    counts = counts[counts > 0]
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    new_part = float(is_first.sum() / len(counts))
    if topic.keys.held <= len(counts):
        new_part = 1.0  # no key of the log was quiet
    missing = once / n
    hidden = once * once / (2 * twice) if twice else once * (once - 1) / 2
    closed = {
        "new_share": _rounded(missing * new_part, 4),
        "unseen": min(max(1, round(hidden * new_part)), _UNSEEN_MAX),
        "quiet_share": _rounded(missing * (1 - new_part), 4),
        "discount": min(_rounded(once / (once + 2 * twice), 3), 0.999) if once else 0.0,
    }
    seen_before = arrivals.time_ms[-1]
    rates, everything = topic.rates, topic.arrivals
    came = int(rates.records[rates.time_ms <= seen_before].sum())
    known = topic.keys.held - int(everything.is_first[everything.time_ms > seen_before].sum())
    growing = {**closed, "unseen": _unseen(missing * new_part, max(came, n), max(known, 1))}
    if len(counts) + hidden + 2 * _chao_deviation(once, twice) < known + closed["unseen"]:
        closed = growing  # there are more keys than these arrivals tell of: most are seldom
    lately = slice(n - n // 3, None)
    _, first_in_window = np.unique(key, return_index=True)
    appears = np.zeros(n, np.bool_)
    appears[first_in_window] = True
    new_share = float(is_first[lately].mean())
    quiet_share = float((appears & ~is_first)[lately].mean())
    open_ended = {
        "new_share": _rounded(new_share, 4),
        "quiet_share": _rounded(quiet_share, 4),
    }
    return [
        closed,
        growing,
        {**open_ended, "discount": closed["discount"]},
        *({**open_ended, "recent": min(max(16, n // part), _RECENT_MAX)} for part in (2, 8, 32)),
    ]


def _chao_deviation(once: int, twice: int) -> float:
    """Return the standard deviation of Chao's estimate of the keys that were not met."""
    if not twice:
        return math.inf
    ratio = once / twice
    return math.sqrt(twice * (ratio**2 / 2 + ratio**3 + ratio**4 / 4))


def _unseen(new_share: float, records: int, keys: int) -> int:
    """Return of how many keys that are written equally often as many come as a power law has come.

    That is when as many records have come again; 0: there is no end of them.
    """
    exponent = min(1.0, new_share * records / keys)
    grown, at_most = keys * (2**exponent - 1), new_share * records
    if not new_share or grown > 0.98 * at_most:
        return 0
    low, high = grown, 100 * at_most
    while high - low > 1:
        middle = (low + high) / 2
        if -math.expm1(-at_most / middle) * middle < grown:
            low = middle
        else:
            high = middle
    return max(1, round(high))


def _scaled(words: dict[str, Any], share: float) -> dict[str, Any]:
    """Return the words of keys with shares of all records, not of those with a key alone."""
    return {
        name: _rounded(value * share, 4) if name.endswith("_share") else value
        for name, value in words.items()
    }


def _values(sizes: Ints) -> dict[str, Any]:
    """Return the words of the sizes of values, from those that were there; -1 for none."""
    sizes = np.minimum(sizes[sizes >= 0], 1 << 20)
    if not len(sizes):
        return {"sizes": specs.FIXED, "bytes": 0}
    low, high, mean = int(sizes.min()), int(sizes.max()), float(sizes.mean())
    if low == high:
        return {"sizes": specs.FIXED, "bytes": low}
    at = np.linspace(0.05, 0.95, 19)
    real = np.quantile(sizes, at)
    even = low + at * (high - low)
    logs = np.log(np.maximum(sizes, 1))
    median, sigma = float(np.exp(np.median(logs))), min(4.0, float(logs.std()))
    fine = (np.arange(2_000) + 0.5) / 2_000
    normal = np.interp(fine, *_NORMAL)
    drawn = np.clip(np.rint(median * np.exp(sigma * normal)), low, high)
    median *= mean / drawn.mean()
    drawn = np.clip(np.rint(median * np.exp(sigma * normal)), low, high)
    if np.abs(even - real).sum() <= np.abs(np.quantile(drawn, at) - real).sum():
        return {"sizes": specs.UNIFORM, "min_bytes": low, "max_bytes": high}
    if low + median * math.exp(sigma**2 / 2) > specs.MEAN_VALUE_BYTES_MAX:
        return {"sizes": specs.FIXED, "bytes": min(round(mean), specs.MEAN_VALUE_BYTES_MAX)}
    return {
        "sizes": specs.LOGNORMAL,
        "bytes": max(1, round(median)),
        "sigma": _rounded(sigma, 3),
        "min_bytes": low,
        "max_bytes": high,
    }


def _normal_quantiles() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shares and the standard normal quantiles at them."""
    at = np.linspace(-5, 5, 2_001)
    return np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in at.tolist()]), at


_NORMAL = _normal_quantiles()


def _mean(values: Mapping[str, Any]) -> float:
    if values["sizes"] == specs.UNIFORM:
        return float(values["min_bytes"] + values["max_bytes"]) / 2
    return float(values["bytes"])


def _profile(rates: Rates, begin_ms: int, until_ms: int) -> dict[str, Any]:
    """Return the words of a weekly or daily profile, by hours; none if the time shows none."""
    days = (until_ms - begin_ms) / DAY_MS
    length = next((length for needed, length in _PROFILES if days >= needed), None)
    if length is None:
        return {}
    slots, hour = 24 * length, DAY_MS // 24
    if len(rates.records) / slots < _SLOT_BATCHES or rates.records.sum() / slots < _SLOT_RECORDS:
        return {}
    first, last = begin_ms // hour, -(-until_ms // hour)
    edges = np.clip(np.arange(first, last + 1) * hour, begin_ms, until_ms)
    slot = (np.arange(first, last) - MONDAY_MS // hour) % slots
    came = np.bincount(slot, _came_between(rates, edges), minlength=slots)
    exposure = np.bincount(slot, np.diff(edges), minlength=slots)
    weights = came / np.maximum(exposure, 1e-9)
    weights /= weights.mean()
    if weights.std() < 2 / math.sqrt(len(rates.records) / slots):  # no more than chance does
        return {}
    return {
        "profile": [_rounded(weight, 3) for weight in weights.tolist()],
        "profile_days": float(length),
    }


def _came_between(rates: Rates, edges: Ints) -> NDArray[np.float64]:
    """Return how many records came between moments; where cleanings left gaps, evenly in these."""
    total = np.zeros(len(edges))
    for partition in np.unique(rates.partition).tolist():
        here = rates.partition == partition
        reached = np.cumsum(rates.records[here])
        times = rates.time_ms[here]
        last = np.append(times[1:] != times[:-1], True)  # of several batches of a moment
        total += np.interp(edges, times[last], reached[last], left=0.0)
    return np.diff(total)


# -- how well it fits ----------------------------------------------------------------------


def _thirds(topic: TopicRecording) -> tuple[Arrivals, Arrivals]:
    """Return the arrivals of the first two thirds of their time, and those of the last."""
    cut = _cut_ms(topic)
    return topic.arrivals.before(cut), topic.arrivals.since(cut)


def _cut_ms(topic: TopicRecording) -> int:
    times = topic.arrivals.time_ms
    if not len(times):
        return 0
    return int(times[0] + (times[-1] - times[0]) * 2 // 3) + 1


def _checks(topic: TopicRecording, notes: list[str]) -> Iterator[Check]:
    """Foretell the last third of the arrivals from what came before it."""
    times, cut = topic.arrivals.time_ms, _cut_ms(topic)
    if topic.is_cleaned or not len(times) or times[-1] - times[0] < SPAN_MIN_MS:
        notes.append(f"{topic.name}: how well it fits cannot be told, as too little came lately")
        return
    early, late = _thirds(topic)
    if not len(late.key) or not len(early.key):
        return
    batches, rates = topic.batches, topic.rates
    past = replace(
        topic,
        arrivals=early,
        batches=Batches._make(column[batches.time_ms < cut] for column in batches),
        rates=Rates._make(column[rates.time_ms < cut] for column in rates),
    )
    if not len(past.batches.records):
        return
    fitting = _Fitting(past, cut, [])
    words = fitting.words()
    tree = {"start": _moment(cut), "days": (int(times[-1]) - cut) / DAY_MS, "topics": [words]}
    foretold = from_mapping({**tree, "from": "-"}).topics[0].workload
    records = 0 if foretold is None else foretold.records
    came = rates.records[rates.time_ms >= cut].sum()
    yield Check(topic.name, "records", records, float(came))
    if "values" in words:
        each = _trial_bytes(past, words["values"], words["batches"], _share_of_deletes(words))
        real_bytes = float(batches.bytes[batches.time_ms >= cut].sum())
        yield Check(topic.name, "bytes", each * records, real_bytes)
    keyed = int((late.key >= 0).sum())
    if keyed and topic.keys.held:
        keys, new = _drawn(topic, early, words["keys"], keyed)
        yield Check(topic.name, "keys written", keys, len(np.unique(late.key[late.key >= 0])))
        yield Check(topic.name, "new keys", new, float(late.is_first.sum()))


def _share_of_deletes(words: Mapping[str, Any]) -> float:
    share: float = words.get("deletes", {}).get("share", 0.0)
    return share


def _drawn(
    topic: TopicRecording, early: Arrivals, words: Mapping[str, Any], records: int
) -> tuple[int, int]:
    """Return how many keys so many records are about, and how many of them are new."""
    later = topic.arrivals.key[
        topic.arrivals.is_first & (topic.arrivals.time_ms > early.time_ms[-1])
    ]
    shares = np.bincount(early.partition, minlength=1 + max(topic.partitions))
    population = KnownPopulation(
        replace(topic, arrivals=early),
        KnownKeys(**{**words, "null_share": 0.0}),
        dict(enumerate(shares.tolist())),
        specs.Spec(seed=1, records=max(1, records)),
        unknown=later,
    )
    drawn = np.concatenate(
        [
            population.numbers(start // specs.BLOCK_RECORDS, np.arange(start, stop))
            for start in range(0, records, specs.BLOCK_RECORDS)
            for stop in [min(start + specs.BLOCK_RECORDS, records)]
        ]
    )
    found = np.unique(drawn)
    return len(found), int((found >= topic.keys.count).sum())


def _trial_bytes(
    topic: TopicRecording, values: Mapping[str, Any], batches: Mapping[str, Any], deletes: float
) -> float:
    """Return the bytes of a record in batches that are made so."""
    spec = specs.from_mapping(
        {
            "records": _TRIAL_RECORDS,
            "partitions": 1,
            "values": values,
            "batches": batches,
            "deletes": {"share": deletes},
            "configs": {**topic.configs, "cleanup.policy": "delete"},
        },
        must_compact=False,
    )
    held = topic.keys.held
    written = replace(topic, partitions=(0,))
    words = KnownKeys(null_share=0.0 if held else 1.0)
    spec = spec_for(spec, written)
    population = KnownPopulation(written, words, {}, spec)
    block = build_block(spec, 0, None, population)
    parcels = pack_block(spec, block, keys=population.column(block))
    return sum(len(parcel.batches) for parcel in parcels) / _TRIAL_RECORDS


# -- words ---------------------------------------------------------------------------------


def _about(recording: Recording, start_ms: int, checks: Sequence[Check]) -> str:
    sentences = [
        f"It begins with what lies in {recording.path}, at {_moment(start_ms)}, and goes on as "
        "that was written."
    ]
    if checks:
        said = ", ".join(f"{check.what} {check.error:+.0%}" for check in checks[:8])
        more = " and so on" if len(checks) > 8 else ""
        sentences.append(
            "How well it fits: from the first two thirds of what no cleaning has seen, the last "
            f"one is foretold with {said}{more}."
        )
    return " ".join(sentences)


def _moment(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{time_ms % 1000:03}Z"


def _rounded(value: float, digits: int) -> float:
    """Return a number with so many digits that count."""
    return float(f"{value:.{digits}g}")


def _toml(tree: Mapping[str, Any], checks: Sequence[Check], notes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a scenario's file."""
    yield "# Fitted by logstore simulate --from; every number may be changed."
    yield from (f"# {check.topic}: {check.what} of the last third, foretold from the rest: "
                f"{check.predicted:.0f}, real {check.real:.0f} ({check.error:+.1%})"
                for check in checks)  # fmt: skip
    yield from (f"# {line}" for note in notes for line in note.splitlines())
    for name, value in tree.items():
        if name not in ("topics", "broker"):
            yield f"{name} = {_toml_value(value)}"
    if "broker" in tree:
        yield "\n[broker]"
        yield from (f"{json.dumps(name)} = {_toml_value(v)}" for name, v in tree["broker"].items())
    for topic in tree["topics"]:
        yield "\n[[topics]]"
        for name, value in topic.items():
            if name != "configs":
                yield f"{name} = {_toml_value(value)}"
        yield "[topics.configs]"
        for name, value in topic["configs"].items():
            yield f"{json.dumps(name)} = {_toml_value(value)}"


def _toml_value(value: Any) -> str:  # noqa: ANN401  # what TOML can say
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml_value(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return json.dumps(value)
