"""Settings as requests bring them, checked before the engine reads them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from logstore.ui.errors import InvalidRequestError

if TYPE_CHECKING:
    from logstore.ui.asking import Ask

KEYS_MAX = 1_000
"""Of one request."""


def given_settings(ask: Ask, name: str) -> dict[str, object]:
    """Return the member that has keys and values: texts, numbers, booleans or lists of texts.

    Raises
    ------
    InvalidRequestError
        Its field is the key, if one is wrong.
    """
    found = ask.member(name, dict, {})
    _check_count(name, len(found))
    return {_text(name, key): _value(key, value) for key, value in found.items()}


def given_keys(ask: Ask, name: str) -> list[str]:
    """Return the member that is a list of keys."""
    found = ask.member(name, list, [])
    _check_count(name, len(found))
    return [_text(name, key) for key in found]


def _check_count(name: str, count: int) -> None:
    if count > KEYS_MAX:
        raise InvalidRequestError(f"{name} has {count} keys, more than {KEYS_MAX}", field=name)


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
        f"{key}: a text, a number, true or false, or a list of texts is wanted, not"
        f" {json.dumps(value)[:80]}",
        field=key,
    )


def _text(field: str, value: Any) -> str:  # noqa: ANN401  # any JSON
    """Return a text that can be stored, and stand in a line of a shell."""
    if not isinstance(value, str):
        shown = json.dumps(value)[:80]
        raise InvalidRequestError(f"{field}: a text is wanted, not {shown}", field=field)
    if any(ord(each) < 0x20 or 0xD800 <= ord(each) < 0xE000 for each in value):
        raise InvalidRequestError(
            f"{field}: {json.dumps(value)[:80]} has a character that no setting has", field=field
        )
    return value
