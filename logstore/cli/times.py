"""Times and durations as users write and read them."""

from __future__ import annotations

from collections.abc import Callable

TIME_HELP = (
    "Unix ms, ISO 8601 such as 2024-01-31 or 2024-01-31T12:00:00Z (no zone: UTC), from now as -1h, "
    "-7d or +30m, or now, today, yesterday, tomorrow"
)

_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
"""Days whose first moment, by UTC, the words mean."""


def parse_time(text: str, now_ms: Callable[[], int]) -> int:
    """Return Unix milliseconds.

    Parameters
    ----------
    text : str
        Milliseconds, or ISO 8601: a date, or date and time with `Z`, an offset or nothing,
        which is UTC. Digits below a millisecond are cut off. Or a duration with its unit and a
        sign, as in `-1h`, or a word: `now`, or a day, which is its first moment.
    now_ms : callable
        Returns the Unix milliseconds that durations and words count from.

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
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: give {TIME_HELP}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
