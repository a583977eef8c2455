"""Validation of configs in requests."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from logstore.ui.errors import InvalidRequestError

if TYPE_CHECKING:
    from logstore.ui.api_request import ApiRequest

KEYS_MAX = 1_000
"""Maximum number of configs in a request."""


def given_settings(request: ApiRequest, name: str) -> dict[str, object]:
    """Return a field of the request body that maps config keys to values.

    Raises
    ------
    InvalidRequestError
        A value is invalid. `field` is its key.
    """
    member = request.member(name, dict, {})
    _check_count(name, len(member))
    return {_text(name, key): _value(key, value) for key, value in member.items()}


def given_keys(request: ApiRequest, name: str) -> list[str]:
    """Return a field of the request body, a list of config keys."""
    member = request.member(name, list, [])
    _check_count(name, len(member))
    return [_text(name, key) for key in member]


def _check_count(name: str, count: int) -> None:
    if count > KEYS_MAX:
        raise InvalidRequestError(f"{name}: {count} keys exceed the limit {KEYS_MAX}", field=name)


def _value(key: str, value: Any) -> object:  # noqa: ANN401  # any JSON
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return _text(key, value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [_text(key, each) for each in value]
    raise InvalidRequestError(
        f"{key}: expected a string, a number, a boolean or a list of strings, not"
        f" {json.dumps(value)[:80]}",
        field=key,
    )


def _text(field: str, value: Any) -> str:  # noqa: ANN401  # any JSON
    """Return a text if it can be stored and used in a command line."""
    if not isinstance(value, str):
        shown = json.dumps(value)[:80]
        raise InvalidRequestError(f"{field}: expected a string, not {shown}", field=field)
    if any(ord(each) < 0x20 or 0xD800 <= ord(each) < 0xE000 for each in value):
        raise InvalidRequestError(
            f"{field}: {json.dumps(value)[:80]} has a control character or surrogate", field=field
        )
    return value
