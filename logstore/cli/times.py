"""Times and durations as users write and read them."""

from __future__ import annotations

TIME_HELP = "Unix ms, or ISO 8601 such as 2024-01-31, 2024-01-31T12:00:00Z (no zone: UTC)"


def parse_time(text: str) -> int:
    """Return Unix milliseconds.

    Parameters
    ----------
    text : str
        Milliseconds, or ISO 8601: a date, or date and time with `Z`, an offset or nothing,
        which is UTC. Digits below a millisecond are cut off.

    Raises
    ------
    ValueError
        With a message for the user.
    """
    from logstore.config.units import INTEGER

    text = text.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: give {TIME_HELP}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


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


def format_span(duration_ms: int) -> str:
    """Return a duration in the two largest units it has, cut off: `6d 23h`, `7d 1ms`, `250ms`."""
    from logstore.config.units import UNITS_MS

    parts = []
    rest_ms = duration_ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest_ms = divmod(rest_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0ms"
