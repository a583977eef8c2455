"""Parsing of kafka-python's configs, shared by producer, consumer and admin client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DataFunction = Callable[[str, list[tuple[str, bytes]], Any], Any]
"""A serializer or deserializer, called with the topic, the headers and the data."""


def check_names(client: str, configs: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that all config names exist in kafka-python. The error suggests a similar name.

    Configs that are not in `known` have no effect in one process and are ignored.

    Raises
    ------
    InvalidConfigurationError
    """
    others = [name for name in configs if name not in known]
    idle = idle_names(client) if others else ()
    for name in others:
        if name not in idle:
            hint = and_nearest(name, [*known, *sorted(idle)])
            raise InvalidConfigurationError(f"unknown {client} configuration {name!r}{hint}")


def idle_names(client: str) -> Collection[str]:
    """Return the config names of a kafka-python client, or nothing for other kinds."""
    from logstore.clients import settings  # takes a millisecond

    kinds = {
        "admin": settings.AdminSettings,
        "consumer": settings.ConsumerSettings,
        "producer": settings.ProducerSettings,
    }
    return kinds[client].__optional_keys__ if client in kinds else ()


Parse = Callable[[str, Any], Any]
"""Returns the parsed value of a config, given its name and the value that was set."""


def config(name: str, default: object, parse: Parse) -> Any:  # noqa: ANN401  # like dataclasses.field
    """Declare a dataclass field for a config of kafka-python: name, default and parser."""
    return field(metadata={"name": name, "default": default, "parse": parse})


def defaults_of(kind: type[DataclassInstance]) -> dict[str, Any]:
    """Return the defaults, by name, of the configs that a class declares with `config`."""
    return {
        each.metadata["name"]: each.metadata["default"] for each in fields(kind) if each.metadata
    }


def parse_configs(kind: type[DataclassInstance], configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that a class declares with `config`.

    Raises
    ------
    InvalidConfigurationError
    """
    values = {**defaults_of(kind), **configs}
    return {
        each.name: each.metadata["parse"](name, values[name])
        for each in fields(kind)
        if (name := each.metadata.get("name")) is not None
    }


def closers_of(*functions: object) -> tuple[Callable[[], object], ...]:
    """Return the `close` methods of serializers and deserializers, if they exist."""
    return tuple(each.close for each in functions if callable(getattr(each, "close", None)))  # type: ignore[attr-defined]  # checked here


def number(lowest: int, highest: float = float("inf")) -> Parse:
    """Return a parser for a number in a range, both ends inclusive."""

    def parse(name: str, value: Any) -> float:  # noqa: ANN401  # any value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidConfigurationError(f"{name} must be a number, not {value!r}")
        if not lowest <= value <= highest:
            raise InvalidConfigurationError(f"{name} is out of range: {value}")
        return value

    return parse


def whole(lowest: int) -> Parse:
    """Return a parser for a 32-bit integer. Fractions are truncated."""
    parse = number(lowest, INT32_MAX)
    return lambda name, value: int(parse(name, value))


def flag(_: str, value: object) -> bool:
    """Parse a config as a boolean."""
    return bool(value)


def unchanged(_: str, value: Any) -> Any:  # noqa: ANN401  # any value
    """Return the value of a config."""
    return value


def text(name: str, value: object) -> str | None:
    """Check that a config is a non-empty string or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidConfigurationError(f"{name} must be a non-empty string, not {value!r}")
    return value


def data_function(name: str, given: Any, method_name: str) -> DataFunction | None:  # noqa: ANN401  # one of three kinds, see below
    """Adapt a serializer or deserializer to the signature of `DataFunction`.

    As in kafka-python, it can be a callable that takes the data, or an object with a method that
    takes (topic, data) or (topic, headers, data).

    Raises
    ------
    InvalidConfigurationError
    """
    if given is None:
        return None
    method = getattr(given, method_name, None)
    if method is None:
        if not callable(given):
            raise InvalidConfigurationError(f"{name} is not callable: {given!r}")
        return lambda _topic, _headers, data: given(data)
    try:
        inspect.signature(method).bind("topic", [], None)
    except TypeError:
        return lambda topic, _headers, data: method(topic, data)
    return lambda topic, headers, data: method(topic, headers, data)
