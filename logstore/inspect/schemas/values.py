"""Conversion of decoded values to JSON types, which every output format supports."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from logstore.errors import InvalidRecordError
from logstore.record.json_text import to_base64

DEPTH_MAX = 500
"""Maximum nesting depth of JSON, which leaves room for encoding it again."""


def parse_json(data: bytes) -> Any:  # noqa: ANN401  # as json has it
    """Parse a JSON document.

    Raises
    ------
    InvalidRecordError
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"not JSON: {error}") from error
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        check_depth(value, DEPTH_MAX)
    return value


def plain(value: object) -> Any:  # noqa: ANN401  # whatever JSON holds
    """Convert a decoded value to JSON types.

    Bytes are converted to `{"base64": …}`, as in record headers, dates and times to ISO 8601, and
    durations to seconds. Decimals, UUIDs and numbers that JSON lacks (`NaN`, `Infinity`) are
    converted to strings.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": to_base64(bytes(value))}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:80]} is too large")
    return number


def check_depth(value: object, depth_max: int) -> None:
    """Raise `InvalidRecordError` if a JSON value is nested too deeply."""
    level = [value]
    for _ in range(depth_max + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return
        level = [
            inside
            for each in containers
            for inside in (each.values() if isinstance(each, dict) else each)
        ]
    raise InvalidRecordError(f"JSON is nested more than {depth_max} levels deep")
