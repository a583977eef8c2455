"""Times and sizes with units, as users write them for keys that count milliseconds or bytes."""

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
    """Return milliseconds of `1500`, `7d`, `12h`, `5m`, `30s`, `250ms`, or several: `1d12h`.

    Raises
    ------
    ValueError
        With a message for the user.
    """
    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration: give ms, or 7d, 12h, 5m, 30s, 250ms")
    return sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))


def parse_size(text: str) -> int:
    """Return bytes of `1024`, `512KiB`, `10MiB`, `1GiB`, `1TiB`, `100B`.

    Raises
    ------
    ValueError
        With a message for the user.
    """
    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size: give bytes, or 512KiB, 10MiB, 1GiB")
    return int(match[1]) * _UNITS_BYTES[match[2]]


def parse_loose_size(text: str) -> int:
    """Return bytes of `4096`, `64MiB`, `64mb` or `1g`: units are powers of 1024 in any spelling.

    Raises
    ------
    ValueError
    """
    match = _LOOSE_SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size such as 4096, 64MiB or 1g")
    unit = match[2].upper()
    return int(match[1]) * _UNITS_BYTES[f"{unit}i" if unit else None]


def unit_of(key: str) -> str | None:
    """Return the unit of a key that may be given with another one: `ms` or `bytes`; else None."""
    if key.endswith(".ms"):
        return "ms"
    return "bytes" if key.endswith((".bytes", ".buffer.size")) else None


def without_unit(key: str, text: str) -> str:
    """Return the number of a key of milliseconds or bytes that was given with a unit.

    Anything that is no number with letters behind it is returned as it is.

    Raises
    ------
    ValueError
        With a message for the user.
    """
    stripped = text.strip()
    if stripped[:1].isdigit() and stripped[-1:].isalpha():
        unit = unit_of(key)
        if unit == "ms":
            return str(parse_duration(text))
        if unit == "bytes":
            return str(parse_size(text))
    return text
