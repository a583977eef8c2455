"""Fit a scenario to a directory's recording, and check how well it predicts the data.

All fitted numbers are keys of the scenario file and can be changed. If the recording does not
determine a value, a default is used and a note is added.
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
from logstore.simulate.start_state import spec_for
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
"""Default length of a fitted scenario."""

RATES_DAYS = 28
"""Maximum number of days, in whole weeks, to which rates are fitted."""

SPAN_MIN_MS = 3_600_000
"""Shorter recordings are not extrapolated to a day."""

LATE_MS = 60_000
"""A record is late if its timestamp is more than this before an earlier one.

Batching and concurrent producers cause smaller differences.
"""

RECORDS_MIN = 100
"""Minimum number of records to fit a key distribution."""

_SLOT_RECORDS, _SLOT_BATCHES = 30, 4
"""Records and batches that each hour of a profile needs on average."""

_PROFILES = ((14, 7), (2, 1))
"""Number of days required for a profile, and its length in days (a week or a day)."""

_DIRECTORIES = ("log.dir", "log.dirs")
_UNSEEN_MAX, _RECENT_MAX = 1 << 40, 1 << 24
_TRIAL_RECORDS = 10_000
_LARGE_SHARE = 0.001
_RECORD_OVERHEAD = 32


class Check(NamedTuple):
    """A prediction of the last third of arrivals from the first two, and the actual value."""

    topic: str
    what: str
    predicted: float
    real: float

    @property
    def error(self) -> float:
        """Relative error of the prediction. Positive if the prediction is too high."""
        return (self.predicted - self.real) / self.real if self.real else 0.0


@dataclass(frozen=True, slots=True)
class Fit:
    """A scenario that continues a directory, and the quality of the fit.

    Attributes
    ----------
    checks : tuple of Check
        Predictions of known data.
    notes : tuple of str
        Values that could not be fitted or were omitted, and their replacements.
    """

    scenario: Scenario
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    recording: Recording

    @property
    def text(self) -> str:
        """The scenario file, with checks, notes and damage as comments."""
        damages = [f"damage: {damage}" for damage in self.recording.damages]
        lines = _toml(self.scenario.tree, self.checks, [*damages, *self.notes])
        return "\n".join(lines) + "\n"


def fit(
    paths: str | Sequence[str],
    topics: Sequence[str] = (),
    *,
    days: float = DAYS,
    now_ms: int | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Scenario:
    """Fit a scenario that continues the workload of a directory.

    Parameters
    ----------
    paths : str or sequence of str
        Data directories, directories of data directories, or partition directories. They are not
        changed.
    topics : sequence of str
        Topic names, or empty for all.
    days : float
        Length of the scenario.
    now_ms : int, optional
        Start of the scenario. [default: latest timestamp]
    progress : callable, optional
        See `recording.record`.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `recording.record`.
    """
    recording = record(paths, topics, progress=progress)
    return fit_recording(recording, days=days, now_ms=now_ms, seed=seed).scenario


def fit_recording(
    recording: Recording,
    *,
    days: float = DAYS,
    now_ms: int | None = None,
    seed: int = 1,
    broker: Mapping[str, str] | None = None,
) -> Fit:
    """Fit a scenario to a recording; see `fit` for the parameters.

    Parameters
    ----------
    broker : mapping, optional
        Kafka broker configs.

    Raises
    ------
    InvalidConfigurationError
        A broker config is unknown or invalid.
    """
    notes: list[str] = [*recording.left_out]
    broker = {k: v for k, v in (broker or {}).items() if k not in _DIRECTORIES}
    start_ms = _start_ms(recording, now_ms, notes)
    topics: list[dict[str, Any]] = []
    checks: list[Check] = []
    for topic in recording.topics.values():
        topic = _without_future(topic, start_ms, notes)
        topics.append(_TopicFitter(topic, start_ms, notes).table())
        checks += _checks(topic, notes)
        notes += topic.assumed
    names = ", ".join(recording.topics)
    tree: dict[str, Any] = {
        "title": f"What if: {names}",
        "about": _about(recording, start_ms, checks),
        "from": recording.paths[0] if len(recording.paths) == 1 else list(recording.paths),
        "start": _iso(start_ms),
        "days": days,
        "seed": seed,
        "topics": topics,
    }
    if broker:
        tree["broker"] = broker
    return Fit(from_mapping(tree), tuple(checks), tuple(notes), recording)


def _start_ms(recording: Recording, now_ms: int | None, notes: list[str]) -> int:
    if now_ms is not None:
        return now_ms
    clock_ms = SystemClock().now_ms()
    stamps = [topic.newest_ms for topic in recording.topics.values() if topic.newest_ms is not None]
    if not stamps:
        notes.append("no record has a timestamp: the scenario starts at the system time")
        return clock_ms
    if max(stamps) > clock_ms:
        notes.append(
            f"the newest timestamp, {_iso(max(stamps))}, is in the future: the scenario starts at "
            "the system time"
        )
        return clock_ms
    return max(stamps)


def _without_future(topic: TopicRecording, now_ms: int, notes: list[str]) -> TopicRecording:
    """Return the recording with times capped at `now_ms`."""
    future = int((topic.arrivals.time_ms > now_ms).sum())
    if future:
        notes.append(f"{topic.name}: {future} records are newer than the start and count as of it")
    arrivals, batches, rates = topic.arrivals, topic.batches, topic.rates
    return replace(
        topic,
        arrivals=arrivals._replace(time_ms=np.minimum(arrivals.time_ms, now_ms)),
        batches=batches._replace(time_ms=np.minimum(batches.time_ms, now_ms)),
        rates=rates._replace(time_ms=np.minimum(rates.time_ms, now_ms)),
    )


# -- fitting -------------------------------------------------------------------------------


class _TopicFitter:
    """Fits a topic to its records up to a given time."""

    def __init__(self, topic: TopicRecording, until_ms: int, notes: list[str]) -> None:
        self.topic = topic
        self.until_ms = until_ms
        self.arrivals = topic.arrivals
        self._notes = notes

    def table(self) -> dict[str, Any]:
        """Return the scenario table of the topic."""
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
            self._note("no record shows the sizes of values: 100 bytes are assumed")
        tree["time"] = {"arrival": specs.POISSON, **profile, **self._lateness()}
        tree["producers"] = {"idempotent": bool((topic.batches.producer_id >= 0).any())}
        if topic.batches.is_transactional.any():
            self._note("transactions are not fitted: all records count as committed")
        if topic.newest_version is not None:
            header = effective_config(topic.configs).compaction_strategy_header
            tree["versions"] = {"header": header, "first": topic.newest_version + 1}
        tree["configs"] = dict(topic.configs)
        return tree

    def _note(self, text: str) -> None:
        self._notes.append(f"{self.topic.name}: {text}")

    # times

    def rate(self) -> tuple[float, dict[str, Any]]:
        """Return the records per day, and the profile keys."""
        rates, until = self.topic.rates, self.until_ms
        known = rates.time_ms >= 0
        total = int(rates.records.sum())
        if not known.any():
            if total:
                self._note(
                    f"no record has a timestamp: {total} records per day are assumed, as many as "
                    "there are"
                )
            else:
                self._note("the topic is empty: no records are simulated")
            return float(total), {}
        begin = max(int(rates.time_ms[known].min()), until - RATES_DAYS * DAY_MS)
        span = until - begin
        if span < SPAN_MIN_MS:
            self._note(
                f"all records are from {span / 60_000:.0f} minutes, too few to estimate a daily "
                f"rate: {total} records per day are assumed, as many as there are"
            )
            return float(total), {}
        inside = (rates.time_ms > begin) & (rates.time_ms <= until)
        rates = Rates._make(column[inside] for column in rates)
        profile = _profile(rates, begin, until)
        days = span / DAY_MS
        if profile:
            days = even_days(
                specs.Time(
                    start=_iso(begin),
                    days=days,
                    profile=tuple(profile["profile"]),
                    profile_days=profile["profile_days"],
                )
            )
        return _rounded(float(rates.records.sum()) / days, 6), profile

    def _shares(self) -> dict[str, float]:
        """Return the fraction of records in each partition."""
        rates, numbers = self.topic.rates, self.topic.partitions
        recent = rates.time_ms > self.until_ms - RATES_DAYS * DAY_MS
        if not recent.any():
            recent[:] = True
        counts = np.bincount(
            rates.partition[recent], rates.records[recent], minlength=1 + max(numbers)
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

    # records

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
        """Limit sizes so that no batch exceeds the limits of the topic."""
        config = effective_config(self.topic.configs)
        limit = min(config.segment_bytes, config.logstore_decompression_max_bytes)
        if specs.MAX_MESSAGE_BYTES in self.topic.configs:
            limit = min(limit, config.max_message_bytes)
        capacity = (limit - 2 * HEADER_SIZE - 4096) * 127 // 128
        longest = int(self.topic.keys.sizes.max()) if self.topic.keys.held else 0
        record_bytes = max(values.get("bytes", 0), _mean(values)) + longest + _RECORD_OVERHEAD
        sizes["max_records"] = max(1, min(sizes["max_records"], int(capacity // record_bytes)))
        sizes["min_records"] = min(sizes["min_records"], sizes["max_records"])
        most = capacity // sizes["max_records"] - longest - _RECORD_OVERHEAD
        if values["sizes"] == specs.FIXED or values["max_bytes"] <= most:
            return
        too_large = float((self.arrivals.value_bytes > most).mean())
        values["max_bytes"] = max(int(most), values["min_bytes"])
        if too_large > _LARGE_SHARE:
            self._note(
                f"{too_large:.1%} of the values are larger than {most} bytes, the limit for "
                f"{sizes['max_records']} records in a batch: they are simulated with that size"
            )

    def _content(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
        """Return the kind of content whose compressed size is closest to the recorded size."""
        batches = self.topic.batches
        size = float(batches.bytes.sum() / max(1, batches.records.sum()))
        errors = {
            content: abs(_trial_bytes(self.topic, {**values, "content": content}, sizes, 0) - size)
            for content in (specs.WORDS, specs.RANDOM)
        }
        return min(errors, key=lambda content: errors[content])

    # keys

    def keys(self) -> dict[str, Any]:
        """Return the `keys` table."""
        topic = self.topic
        keyed = self.arrivals.key >= 0
        null_share = 1 - float(keyed.mean()) if len(keyed) else 0.0
        table: dict[str, Any] = {"null_share": _rounded(null_share, 3)} if null_share else {}
        if null_share and effective_config(topic.configs).compact:
            self._note(f"{null_share:.1%} of the records have no key: none are simulated")
            table = {}
        if not topic.keys.held:
            if len(keyed) and null_share == 1:
                self._note("no record has a key, so updates cannot be recognized")
            return table
        if topic.is_cleaned or keyed.sum() < RECORDS_MIN:
            self._note(
                f"{int(keyed.sum())} uncleaned records are too few to show how often keys are "
                "written: equal frequencies and no new keys are assumed"
            )
            is_held = keyed & (self.arrivals.key < topic.keys.held)
            quiet = topic.keys.held - len(np.unique(self.arrivals.key[is_held]))
            return {**table, "quiet_share": _rounded(quiet / topic.keys.held * (1 - null_share), 4)}
        if topic.keys.held < topic.keys.count:
            self._note(
                f"only the {topic.keys.held} last written of {topic.keys.count} keys are written "
                "again"
            )
        if topic.left_out:
            self._note(f"{topic.left_out} older records are not used to fit the keys")
        candidates = _key_candidates(self.arrivals, topic)
        best = min(range(len(candidates)), key=lambda n: self._candidate_error(n))
        return table | _scale_shares(candidates[best], 1 - null_share)

    def _candidate_error(self, number: int) -> float:
        """Return a candidate's error in predicting the last third from the first two thirds."""
        early, late = _split_at_two_thirds(self.topic)
        if not len(late.key) or (early.key >= 0).sum() < RECORDS_MIN:
            return number
        table = _key_candidates(early, self.topic)[number]
        keys, new = _predict_keys(self.topic, early, table, int((late.key >= 0).sum()))
        actual = len(np.unique(late.key[late.key >= 0]))
        keys_error = abs(math.log(keys / actual))
        new_error = abs(math.log((new + 10) / (late.is_first.sum() + 10)))
        return keys_error + 0.5 * new_error + 0.02 * number  # prefers simpler candidates


def _key_candidates(arrivals: Arrivals, topic: TopicRecording) -> list[dict[str, Any]]:
    """Return candidate `keys` tables, estimated from arrivals.

    The first assumes that all records use a fixed set of keys. The share of unseen keys is
    estimated from keys seen once (Good-Turing), their number also from keys seen twice (Chao), and
    likewise the discount of small counts (Kneser-Ney). The second assumes that there are ever rarer
    keys, whose number is a power of the number of records (Heaps). The others assume that keys
    appear and disappear at the rates of the last third.
    """
    keyed = arrivals.key >= 0
    key, is_first = arrivals.key[keyed], arrivals.is_first[keyed]
    n = len(key)
    counts = np.bincount(key)
    counts = counts[counts > 0]
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    new_part = float(is_first.sum() / len(counts))
    if topic.keys.held <= len(counts):
        new_part = 1.0  # all keys of the log are among the arrivals
    missing = once / n
    hidden = once * once / (2 * twice) if twice else once * (once - 1) / 2
    closed = {
        "new_share": _rounded(missing * new_part, 4),
        "unseen": min(max(1, round(hidden * new_part)), _UNSEEN_MAX),
        "quiet_share": _rounded(missing * (1 - new_part), 4),
        "discount": min(_rounded(once / (once + 2 * twice), 3), 0.999) if once else 0.0,
    }
    end_ms = arrivals.time_ms[-1]
    rates, everything = topic.rates, topic.arrivals
    records = int(rates.records[rates.time_ms <= end_ms].sum())
    known = topic.keys.held - int(everything.is_first[everything.time_ms > end_ms].sum())
    growing = {**closed, "unseen": _unseen_keys(missing * new_part, max(records, n), max(known, 1))}
    if len(counts) + hidden + 2 * _chao_deviation(once, twice) < known + closed["unseen"]:
        closed = growing  # the log has more keys than the arrivals suggest, so most keys are rare
    last_third = slice(n - n // 3, None)
    _, first_in_window = np.unique(key, return_index=True)
    appears = np.zeros(n, np.bool_)
    appears[first_in_window] = True
    new_share = float(is_first[last_third].mean())
    quiet_share = float((appears & ~is_first)[last_third].mean())
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
    """Return the standard deviation of Chao's estimate of unseen keys."""
    if not twice:
        return math.inf
    ratio = once / twice
    return math.sqrt(twice * (ratio**2 / 2 + ratio**3 + ratio**4 / 4))


def _unseen_keys(new_share: float, records: int, keys: int) -> int:
    """Return the number of equally frequent unseen keys that is equivalent to a power law.

    Both predict the same number of new keys in `records` additional records. 0 means unlimited.
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


def _scale_shares(table: dict[str, Any], share: float) -> dict[str, Any]:
    """Convert shares of records with keys to shares of all records."""
    return {
        name: _rounded(value * share, 4) if name.endswith("_share") else value
        for name, value in table.items()
    }


def _values(sizes: Ints) -> dict[str, Any]:
    """Return the `values` table, fitted to recorded sizes. -1 means null."""
    sizes = np.minimum(sizes[sizes >= 0], 1 << 20)
    if not len(sizes):
        return {"sizes": specs.FIXED, "bytes": 0}
    low, high, mean = int(sizes.min()), int(sizes.max()), float(sizes.mean())
    if low == high:
        return {"sizes": specs.FIXED, "bytes": low}
    at = np.linspace(0.05, 0.95, 19)
    quantiles = np.quantile(sizes, at)
    even = low + at * (high - low)
    logs = np.log(np.maximum(sizes, 1))
    median, sigma = float(np.exp(np.median(logs))), min(4.0, float(logs.std()))
    fine = (np.arange(2_000) + 0.5) / 2_000
    normal = np.interp(fine, *_NORMAL)
    drawn = np.clip(np.rint(median * np.exp(sigma * normal)), low, high)
    median *= mean / drawn.mean()
    drawn = np.clip(np.rint(median * np.exp(sigma * normal)), low, high)
    if np.abs(even - quantiles).sum() <= np.abs(np.quantile(drawn, at) - quantiles).sum():
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
    """Return probabilities and their standard normal quantiles."""
    at = np.linspace(-5, 5, 2_001)
    return np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in at.tolist()]), at


_NORMAL = _normal_quantiles()


def _mean(values: Mapping[str, Any]) -> float:
    if values["sizes"] == specs.UNIFORM:
        return float(values["min_bytes"] + values["max_bytes"]) / 2
    return float(values["bytes"])


def _profile(rates: Rates, begin_ms: int, until_ms: int) -> dict[str, Any]:
    """Return the keys of a weekly or daily hourly profile. Empty if none is significant."""
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
    records = np.bincount(slot, _records_between(rates, edges), minlength=slots)
    exposure = np.bincount(slot, np.diff(edges), minlength=slots)
    weights = records / np.maximum(exposure, 1e-9)
    weights /= weights.mean()
    if weights.std() < 2 / math.sqrt(len(rates.records) / slots):  # not significant
        return {}
    return {
        "profile": [_rounded(weight, 3) for weight in weights.tolist()],
        "profile_days": float(length),
    }


def _records_between(rates: Rates, edges: Ints) -> NDArray[np.float64]:
    """Return the number of records in each interval, interpolating gaps left by the cleaner."""
    total = np.zeros(len(edges))
    for partition in np.unique(rates.partition).tolist():
        here = rates.partition == partition
        cumulative = np.cumsum(rates.records[here])
        times = rates.time_ms[here]
        last = np.append(times[1:] != times[:-1], True)  # last of the batches with the same time
        total += np.interp(edges, times[last], cumulative[last], left=0.0)
    return np.diff(total)


# -- checks --------------------------------------------------------------------------------


def _split_at_two_thirds(topic: TopicRecording) -> tuple[Arrivals, Arrivals]:
    """Split the arrivals at two thirds of their time."""
    cut = _cut_ms(topic)
    return topic.arrivals.before(cut), topic.arrivals.since(cut)


def _cut_ms(topic: TopicRecording) -> int:
    times = topic.arrivals.time_ms
    if not len(times):
        return 0
    return int(times[0] + (times[-1] - times[0]) * 2 // 3) + 1


def _checks(topic: TopicRecording, notes: list[str]) -> Iterator[Check]:
    """Predict the last third of the arrivals from the first two thirds."""
    times, cut = topic.arrivals.time_ms, _cut_ms(topic)
    if topic.is_cleaned or not len(times) or times[-1] - times[0] < SPAN_MIN_MS:
        notes.append(f"{topic.name}: the fit is not checked: too few uncleaned records")
        return
    early, late = _split_at_two_thirds(topic)
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
    table = _TopicFitter(past, cut, []).table()
    tree = {"start": _iso(cut), "days": (int(times[-1]) - cut) / DAY_MS, "topics": [table]}
    workload = from_mapping({**tree, "from": "-"}).topics[0].workload
    records = 0 if workload is None else workload.records
    actual = rates.records[rates.time_ms >= cut].sum()
    yield Check(topic.name, "records", records, float(actual))
    if "values" in table:
        each = _trial_bytes(past, table["values"], table["batches"], _share_of_deletes(table))
        actual_bytes = float(batches.bytes[batches.time_ms >= cut].sum())
        yield Check(topic.name, "bytes", each * records, actual_bytes)
    keyed = int((late.key >= 0).sum())
    if keyed and topic.keys.held:
        keys, new = _predict_keys(topic, early, table["keys"], keyed)
        yield Check(topic.name, "keys written", keys, len(np.unique(late.key[late.key >= 0])))
        yield Check(topic.name, "new keys", new, float(late.is_first.sum()))


def _share_of_deletes(table: Mapping[str, Any]) -> float:
    share: float = table.get("deletes", {}).get("share", 0.0)
    return share


def _predict_keys(
    topic: TopicRecording, early: Arrivals, table: Mapping[str, Any], records: int
) -> tuple[int, int]:
    """Draw keys for a number of records. Return how many are distinct, and how many are new."""
    later = topic.arrivals.key[
        topic.arrivals.is_first & (topic.arrivals.time_ms > early.time_ms[-1])
    ]
    shares = np.bincount(early.partition, minlength=1 + max(topic.partitions))
    population = KnownPopulation(
        replace(topic, arrivals=early),
        KnownKeys(**{**table, "null_share": 0.0}),
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
    distinct = np.unique(drawn)
    return len(distinct), int((distinct >= topic.keys.count).sum())


def _trial_bytes(
    topic: TopicRecording, values: Mapping[str, Any], batches: Mapping[str, Any], deletes: float
) -> float:
    """Return the mean size of a record in a trial block of batches."""
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
    keys = KnownKeys(null_share=0.0 if held else 1.0)
    spec = spec_for(spec, written)
    population = KnownPopulation(written, keys, {}, spec)
    block = build_block(spec, 0, None, population)
    parcels = pack_block(spec, block, keys=population.column(block))
    return sum(len(parcel.batches) for parcel in parcels) / _TRIAL_RECORDS


# -- output --------------------------------------------------------------------------------


def _about(recording: Recording, start_ms: int, checks: Sequence[Check]) -> str:
    sentences = [
        f"Starts from {' and '.join(recording.paths)} at {_iso(start_ms)} and continues the"
        " recorded workload."
    ]
    if checks:
        errors = ", ".join(f"{check.what} {check.error:+.0%}" for check in checks[:8])
        more = ", and so on" if len(checks) > 8 else ""
        sentences.append(
            "Errors of the fit, when the first two thirds of the uncleaned records predict the "
            f"last third: {errors}{more}."
        )
    return " ".join(sentences)


def _iso(time_ms: int) -> str:
    seconds = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{time_ms % 1000:03}Z"


def _rounded(value: float, digits: int) -> float:
    """Round a number to significant digits."""
    return float(f"{value:.{digits}g}")


def _toml(tree: Mapping[str, Any], checks: Sequence[Check], notes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a scenario file."""
    yield "# Fitted by logstore simulate --from; every number can be changed."
    yield from (f"# {check.topic}: {check.what} of the last third, predicted from the rest: "
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


def _toml_value(value: Any) -> str:  # noqa: ANN401  # any TOML value
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml_value(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return json.dumps(value)
