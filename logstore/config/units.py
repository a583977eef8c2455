"""Durations and sizes with units, for keys whose values are in milliseconds or bytes."""

from __future__ import annotations

import re

INTEGER = re.compile(r"[+-]?\d+")
UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_SIZE = re.compile(r"(\d+) ?([KMGT]i)?B")
_LOOSE_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS_BYTES = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def parse_duration(text: str) -> int:
    """Parse a duration such as `1500`, `7d`, `250ms` or `1d12h` into milliseconds.

    Raises
    ------
    ValueError
        The text is not a duration. The message can be shown to users.
    """
    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a duration: use milliseconds, or 7d, 12h, 5m, 30s, 250ms"
        )
    return sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))


def parse_size(text: str) -> int:
    """Parse a size such as `1024`, `100B`, `512KiB`, `10MiB`, `1GiB` or `1TiB` into bytes.

    Raises
    ------
    ValueError
        The text is not a size. The message can be shown to users.
    """
    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: use bytes, or 512KiB, 10MiB, 1GiB")
    return int(match[1]) * _UNITS_BYTES[match[2]]


def parse_loose_size(text: str) -> int:
    """Parse a size such as `4096`, `64MiB`, `64mb` or `1g`. All units are powers of 1024.

    Raises
    ------
    ValueError
        The text is not a size. The message can be shown to users.
    """
    match = _LOOSE_SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 4096, 64MiB or 1g")
    unit = match[2].upper()
    return int(match[1]) * _UNITS_BYTES[f"{unit}i" if unit else None]


def unit_of(key: str) -> str | None:
    """Return the unit in which a key's value may be given: `ms`, `bytes`, or None if unitless."""
    if key.endswith(".ms"):
        return "ms"
    return "bytes" if key.endswith((".bytes", ".buffer.size", ".max.bytes.per.second")) else None


def without_unit(key: str, text: str) -> str:
    """Convert a value with a unit to the key's milliseconds or bytes.

    Text other than a number followed by letters is returned unchanged.

    Raises
    ------
    ValueError
        The unit is unknown. The message can be shown to users.
    """
    stripped = text.strip()
    if stripped[:1].isdigit() and stripped[-1:].isalpha():
        unit = unit_of(key)
        if unit == "ms":
            return str(parse_duration(text))
        if unit == "bytes":
            return str(parse_size(text))
    return text
