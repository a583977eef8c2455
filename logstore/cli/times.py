"""Parse and format times and durations."""

from __future__ import annotations

from collections.abc import Callable

TIME_HELP = (
    "Unix ms; ISO 8601 such as 2024-01-31 or 2024-01-31T12:00:00Z (default zone: UTC); relative "
    "to now (-1h, -7d, +30m); or now, today, yesterday, tomorrow"
)

_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
"""Words for days, relative to today (UTC)."""


def parse_time(text: str, now_ms: Callable[[], int]) -> int:
    """Parse a time to Unix milliseconds.

    Parameters
    ----------
    text : str
        One of: milliseconds; an ISO 8601 date, or date and time with `Z`, an offset, or no zone
        (UTC), truncated to milliseconds; a signed duration with a unit, such as `-1h`; `now`;
        `today`, `yesterday` or `tomorrow` (midnight UTC).
    now_ms : callable
        Returns the base of relative times, in Unix milliseconds.

    Raises
    ------
    ValueError
        The text is not a time. The message can be shown to users.
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
