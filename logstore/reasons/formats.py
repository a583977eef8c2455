"""Times, durations and sizes in human-readable form."""

from __future__ import annotations

from logstore.types import DAY_MS, HOUR_MS, MINUTE_MS

_UNITS_MS = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": 1000}


def format_time(time_ms: int) -> str:
    """Return `2024-01-31 12:00:00.000Z`, or `-` for a negative time, which means none."""
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
    for unit, size_ms in _UNITS_MS.items():
        if duration_ms and duration_ms % size_ms == 0:
            return f"{duration_ms // size_ms}{unit}"
    return f"{duration_ms}ms"


def format_span(duration_ms: int, *, units: int = 2) -> str:
    """Return a duration in its largest units, truncated: `6d 23h`, `7d 1ms`, `250ms`."""
    parts = []
    rest_ms = duration_ms
    for unit, size_ms in (*_UNITS_MS.items(), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:units]) or "0ms"


def format_size(size_bytes: float) -> str:
    """Return `812 B`, `4.2 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
