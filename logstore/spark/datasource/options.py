"""Data source options. Spark passes them as strings with case-insensitive names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError


def refuse_unknown(options: Mapping[str, str], known: Sequence[str], prefix: str = "") -> None:
    """Raise an error if any option is unknown.

    Parameters
    ----------
    known : sequence of str
        Known names (case-insensitive).
    prefix : str, optional
        Also accept options with this prefix.

    Raises
    ------
    InvalidConfigurationError
        An option is unknown. The message suggests the closest name.
    """
    names = {name.lower() for name in known}
    for option in options:
        is_free = bool(prefix) and option.lower().startswith(prefix)
        if option.lower() not in names and not is_free:
            raise InvalidConfigurationError(
                f"unknown option {option!r}{and_nearest(option, known)}"
            )


def resolve_synonyms(options: Mapping[str, str], *names: str) -> str | None:
    """Return the value of an option with synonyms, or None if not given.

    Raises
    ------
    InvalidConfigurationError
        Several of the synonyms are given.
    """
    named = [name for name in names if options.get(name) is not None]
    if len(named) > 1:
        raise InvalidConfigurationError(f"{' and '.join(named)} are synonyms: give one of them")
    return options[named[0]] if named else None


def parse_names(text: str | None) -> list[str] | None:
    """Split a comma-separated option. Return None if it is not given."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_number(option: str, text: str) -> int:
    """Parse a non-negative integer option."""
    if not text.strip().isdecimal():
        raise InvalidConfigurationError(f"{option}: {text!r} is not a non-negative integer")
    return int(text)


def parse_json(option: str, text: str, form: str) -> dict[str, object]:
    """Parse an option as a JSON object. `form` is an example for error messages."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{option}: {text!r} is not of the form {form}")
    return value
