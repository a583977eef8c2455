"""Random numbers of a workload: Philox streams, distributions and murmur2, using only NumPy.

NumPy only generates raw 64-bit words, whose sequence is defined by the algorithm. The distributions
are computed here, so that no NumPy release can change a workload.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.profiles import profile_curve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

# Each feature has its own stream, so that enabling one does not change the others. If these numbers
# changed, a seed would generate a different workload.
KEYS, SIZES, CONTENT, DELETES, LATENESS, VERSIONS, PRODUCERS, TRANSACTIONS, BATCHES = range(1, 10)
VERSION_FORMS, HOT, ARRIVALS = 10, 11, 12

_MURMUR_SEED = 0x9747B28C
_MURMUR_M = np.uint32(0x5BD1E995)


class Stream:
    """Random words for one purpose within a block.

    Parameters
    ----------
    seed : int
        64-bit seed of the workload.
    block : int
        Number of the block.
    purpose : int
        A constant defined above; the top word of the Philox counter.
    """

    def __init__(self, seed: int, block: int, purpose: int) -> None:
        key = np.array([seed, block], dtype=np.uint64)
        counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
        self._words = np.random.Philox(counter=counter, key=key)  # noqa: TID251  # a counter's words

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        words: NDArray[np.uint64] = self._words.random_raw(count)
        return words

    def uniform(self, count: int) -> Floats:
        """Return floats in [0, 1) with 53 random bits."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: int, count: int) -> Ints:
        """Return integers in [0, limit). The bias is below 2^-13 if `limit` is at most 2^40."""
        return (self.uniform(count) * limit).astype(np.int64)

    def chance(self, share: float, count: int) -> Bools:
        """Return booleans that are True with probability `share`."""
        return self.uniform(count) < share

    def normal(self, count: int) -> Floats:
        """Return standard normal floats (Box-Muller transform, cosine half)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(count)))
        return radius * np.cos(2.0 * np.pi * self.uniform(count))


@lru_cache(maxsize=4)
def zipf_table(count: int, exponent: float) -> Floats:
    """Return the cumulative distribution of a Zipf law over `count` ranks."""
    table = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    table /= table[-1]
    table.flags.writeable = False
    return table


def key_numbers(spec: specs.Spec, block: int, events: Ints) -> Ints:
    """Return the key number of each event in a block, in [0, keys.count)."""
    keys, count = spec.keys, len(events)
    stream = Stream(spec.seed, block, KEYS)
    if keys.distribution == specs.UNIFORM:
        return stream.below(keys.count, count)
    if keys.distribution == specs.ZIPF:
        table = zipf_table(keys.count, keys.exponent)
        return np.searchsorted(table, stream.uniform(count), side="right").astype(np.int64)
    anywhere = stream.below(keys.count, count)
    inside = stream.below(keys.hot_keys, count)
    hot = Stream(spec.seed, block, HOT).chance(keys.hot_share, count)
    numbers: Ints = np.where(hot, (hot_set_start(spec, events) + inside) % keys.count, anywhere)
    return numbers


def hot_set_start(spec: specs.Spec, events: Ints) -> Ints:
    """Return the first key of the hot set at each event, before wrapping around."""
    pace = spec.keys.count * spec.keys.sweeps / spec.records
    start: Ints = np.floor(events * pace).astype(np.int64)
    return start


def value_sizes(spec: specs.Spec, block: int, count: int) -> Ints:
    """Return the value sizes of a block in bytes."""
    values = spec.values
    if values.sizes == specs.FIXED:
        return np.full(count, values.bytes, dtype=np.int64)
    stream = Stream(spec.seed, block, SIZES)
    if values.sizes == specs.UNIFORM:
        sizes: Ints = values.min_bytes + stream.below(
            values.max_bytes - values.min_bytes + 1, count
        )
        return sizes
    drawn = np.rint(values.bytes * np.exp(values.sigma * stream.normal(count)))
    clipped: Ints = np.clip(drawn, values.min_bytes, values.max_bytes).astype(np.int64)
    return clipped


def content(spec: specs.Spec, block: int, size: int) -> Bytes:
    """Return `size` bytes, from which values are taken."""
    stream = Stream(spec.seed, block, CONTENT)
    if spec.values.content == specs.RANDOM:
        return stream.words(-(-size // 8)).astype("<u8", copy=False).view(np.uint8)[:size]
    picks = stream.words(-(-size // 32)).astype("<u8", copy=False).view("<u2") & 0x0FFF
    words: Bytes = _dictionary()[picks].reshape(-1)[:size]
    return words


@lru_cache(maxsize=1)
def _dictionary() -> Bytes:
    """Return 4096 words of eight characters, (4096, 8), which are the same in all workloads."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz0123456789 ,:", dtype=np.uint8)
    return letters[Stream(0, 0, CONTENT).below(len(letters), 4096 * 8)].reshape(4096, 8)


def arrival_ms(spec: specs.Spec, block: int, events: Ints) -> Ints:
    """Return the arrival time of each event, in Unix milliseconds. Never decreases."""
    time, span = spec.time, spec.time.days * DAY_MS
    positions: Floats = events.astype(np.float64)
    if time.arrival == specs.POISSON:
        positions = _poisson_positions(spec, block, events)
    even = positions * (span / spec.records)
    if time.profile:
        even = _apply_profile(time, even / span)
    # Time that slows down at noon puts more events there. Its derivative is always positive.
    day = 2.0 * np.pi / DAY_MS
    phase = day * (time.start_ms % DAY_MS)
    swing = time.daily_swing / day
    warped = even + swing * (np.sin(day * even + phase) - np.sin(phase))
    if time.burst_share:
        warped = _apply_bursts(time, warped)
    arrivals: Ints = time.start_ms + np.floor(warped).astype(np.int64)
    return arrivals


def _poisson_positions(spec: specs.Spec, block: int, events: Ints) -> Floats:
    """Return the positions of a Poisson process conditioned on the number of events."""
    drawn = np.sort(Stream(spec.seed, block, ARRIVALS).uniform(len(events)))
    positions: Floats = events[0] + drawn * len(events)
    return positions


def _apply_profile(time: specs.Time, shares: Floats) -> Floats:
    """Return when each fraction of all events has arrived, in ms after the start."""
    times, reached = profile_curve(time)
    if not reached[-1]:  # the profile is zero over the entire time span
        reached = times
    arrivals: Floats = np.interp(shares * reached[-1], reached, times)
    return arrivals


def _apply_bursts(time: specs.Time, times: Floats) -> Floats:
    """Compress the beginning of each period into a burst."""
    period, burst, share = time.burst_every_ms, time.burst_ms, time.burst_share
    number, position = np.divmod(times, period)
    position /= period
    quiet = (position - share) / max(1.0 - share, 1e-12)
    crowded = np.where(position < share, position / share * burst, burst + quiet * (period - burst))
    shifted: Floats = number * period + crowded
    return shifted


def key_bytes(spec: specs.Spec, numbers: Ints) -> Bytes:
    """Return the keys, (n, width): a prefix and a zero-padded number."""
    prefix = np.frombuffer(spec.keys.prefix.encode(), dtype=np.uint8)
    digits = spec.keys.digits
    keys = np.empty((len(numbers), len(prefix) + digits), dtype=np.uint8)
    keys[:, : len(prefix)] = prefix
    rest = numbers
    for column in range(keys.shape[1] - 1, len(prefix) - 1, -1):
        rest, digit = np.divmod(rest, 10)
        keys[:, column] = digit + ord("0")
    return keys


def parse_key_numbers(spec: specs.Spec, keys: Bytes) -> Ints:
    """Return the numbers of keys, (n,). The inverse of `key_bytes`."""
    digits = keys[:, len(spec.keys.prefix.encode()) :].astype(np.int64) - ord("0")
    numbers: Ints = digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    return numbers


def murmur2(keys: Bytes) -> NDArray[np.uint32]:
    """Return the murmur2 hashes of keys of equal length, (n, width), as Kafka clients do."""
    count, width = keys.shape
    # Array products wrap around without a warning.
    hashed = np.full(count, _MURMUR_SEED ^ width, dtype=np.uint32)
    whole = width - width % 4
    for at in range(0, whole, 4):
        word = np.ascontiguousarray(keys[:, at : at + 4]).view("<u4").reshape(count)
        word = word * _MURMUR_M
        word ^= word >> np.uint32(24)
        hashed = hashed * _MURMUR_M ^ word * _MURMUR_M
    if whole < width:
        for at in range(width - 1, whole - 1, -1):
            hashed = hashed ^ keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        hashed = hashed * _MURMUR_M
    hashed ^= hashed >> np.uint32(13)
    hashed = hashed * _MURMUR_M
    hashed ^= hashed >> np.uint32(15)
    return hashed


def partitions_of(keys: Bytes, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key according to Kafka's default partitioner."""
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partitions)).astype(np.int32)
