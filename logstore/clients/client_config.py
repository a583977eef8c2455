"""Parsing of kafka-python's configs, shared by producer, consumer and admin client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError

DataFunction = Callable[[str, list[tuple[str, bytes]], Any], Any]
"""A serializer or deserializer. It is called with the topic, the headers and the data."""


def check_names(client: str, configs: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise an error if kafka-python has no config with this name, and suggest a similar one.

    Configs of kafka-python that are not in `known` have no effect in one process and are ignored.

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
    """Return the configs of kafka-python's client of that kind; none for anything else."""
    from logstore.clients import settings  # takes a millisecond

    kinds = {
        "admin": settings.AdminSettings,
        "consumer": settings.ConsumerSettings,
        "producer": settings.ProducerSettings,
    }
    return kinds[client].__optional_keys__ if client in kinds else ()


def number(
    name: str, values: Mapping[str, Any], lowest: int, highest: float = float("inf")
) -> float:
    """Return a config as a number after checking its range.

    Raises
    ------
    InvalidConfigurationError
    """
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfigurationError(f"{name} must be a number, not {value!r}")
    if not lowest <= value <= highest:
        raise InvalidConfigurationError(f"{name} is out of range: {value}")
    return value


def data_function(name: str, given: Any, method_name: str) -> DataFunction | None:  # noqa: ANN401  # one of three kinds, see below
    """Adapt a serializer or deserializer to the signature of `DataFunction`.

    As in kafka-python, it may be a callable that takes the data, or an object with a method that
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
