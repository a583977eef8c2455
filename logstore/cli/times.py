"""Parse and format times and durations."""

from __future__ import annotations

from collections.abc import Callable

TIME_HELP = (
    "Unix ms; ISO 8601 such as 2024-01-31 or 2024-01-31T12:00:00Z (default zone: UTC); relative "
    "to now (-1h, -7d, +30m); or now, today, yesterday, tomorrow"
)

_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
"""Words for a day, as days from today (UTC)."""


def parse_time(text: str, now_ms: Callable[[], int]) -> int:
    """Return Unix milliseconds.

    Parameters
    ----------
    text : str
        Milliseconds; or ISO 8601: a date, or date and time with `Z`, an offset or no zone
        (UTC), truncated to milliseconds; or a signed duration with a unit, such as `-1h`; or
        `now`; or `today`, `yesterday`, `tomorrow`, meaning midnight UTC.
    now_ms : callable
        Returns the Unix milliseconds that relative times are based on.

    Raises
    ------
    ValueError
        With a message for the user.
    """
    from logstore.config.units import INTEGER, UNITS_MS, parse_duration

    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    if text == "now":
        return now_ms()
    if text in _DAYS:
        day_ms = UNITS_MS["d"]
        return (now_ms() // day_ms + _DAYS[text]) * day_ms
    from datetime import UTC, datetime, timedelta

    try:
        if text[:1] in ("-", "+"):
            span_ms = parse_duration(text[1:])
            return now_ms() + (-span_ms if text[0] == "-" else span_ms)
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: give {TIME_HELP}") from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def format_time(time_ms: int) -> str:
    """Return `2024-01-31 12:00:00.000Z`; `-` for none (a negative time)."""
    if time_ms < 0:
        return "-"
    import time

    try:
        parts = time.gmtime(time_ms // 1000)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', parts)}.{time_ms % 1000:03d}Z"


def format_duration(duration_ms: int) -> str:
    """Return a duration in the largest unit that divides it: `7d`, `90s`, `1500ms`."""
    from logstore.config.units import UNITS_MS

    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % UNITS_MS[unit] == 0:
            return f"{duration_ms // UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def format_span(duration_ms: int, *, units: int = 2) -> str:
    """Return a duration in the largest units it has, cut off: `6d 23h`, `7d 1ms`, `250ms`."""
    from logstore.config.units import UNITS_MS

    parts = []
    rest_ms = duration_ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest_ms = divmod(rest_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:units]) or "0ms"
