"""Options of the data source as Spark hands them over: texts by names of any case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError


def refuse_unknown(options: Mapping[str, str], known: Sequence[str], prefix: str = "") -> None:
    """Look whether every option means something.

    Parameters
    ----------
    known : sequence of str
        Names; case does not count.
    prefix : str, optional
        Whatever begins with this is known as well.

    Raises
    ------
    InvalidConfigurationError
        One is unknown; the message has the nearest.
    """
    names = {name.lower() for name in known}
    for option in options:
        is_free = bool(prefix) and option.lower().startswith(prefix)
        if option.lower() not in names and not is_free:
            raise InvalidConfigurationError(
                f"unknown option {option!r}{and_nearest(option, known)}"
            )


def one_of(options: Mapping[str, str], *names: str) -> str | None:
    """Return the value of an option that has synonyms; None if it is not given.

    Raises
    ------
    InvalidConfigurationError
        Two of the synonyms are.
    """
    named = [name for name in names if options.get(name) is not None]
    if len(named) > 1:
        raise InvalidConfigurationError(f"{' and '.join(named)} say the same: give one of them")
    return options[named[0]] if named else None


def names_of(text: str | None) -> list[str] | None:
    """Return the items of a comma-separated option; None if it is not given."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]


def number_of(option: str, text: str) -> int:
    """Return an option's value as a number that is not negative."""
    if not text.strip().isdecimal():
        raise InvalidConfigurationError(f"{option}: {text!r} is no number")
    return int(text)


def json_of(option: str, text: str, form: str) -> dict[str, object]:
    """Return an option's value as a JSON object; `form` says what is expected."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{option}: {text!r} is not of the form {form}")
    return value
