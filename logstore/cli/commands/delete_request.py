"""The request file of `delete-records`: kafka-delete-records' JSON, checked before anything goes.

```
{"partitions": [{"topic": "users", "partition": 0, "offset": 42}], "version": 1}
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from logstore.types import TopicPartition

VERSION = 1
"""The only version that Kafka's tool knows; it is also what an absent one means."""


class DeleteRequestError(ValueError):
    """A request file says something that cannot be meant; nothing was deleted."""


def parse_request(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset before which each partition's records are to go.

    Parameters
    ----------
    data : bytes
        The whole file. Members it does not need are passed over, as Kafka does.

    Returns
    -------
    dict
        In the order of the file; an offset may be -1, which is the high watermark.

    Raises
    ------
    DeleteRequestError
        Not JSON, another version, a member of a wrong type (named with its place in the file),
        or a partition that is listed twice.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DeleteRequestError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DeleteRequestError(f"an object is expected, not {_shown(document)}")
    version = document.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise DeleteRequestError(f"version: {VERSION} is expected, not {_shown(version)}")
    if not isinstance(partitions := _member(document, "partitions", ""), list):
        raise DeleteRequestError(f"partitions: a list is expected, not {_shown(partitions)}")
    offsets: dict[TopicPartition, int] = {}
    places: dict[TopicPartition, str] = {}
    for number, item in enumerate(partitions):
        path = f"partitions[{number}]"
        if not isinstance(item, dict):
            raise DeleteRequestError(f"{path}: an object is expected, not {_shown(item)}")
        topic = _member(item, "topic", f"{path}.")
        if not isinstance(topic, str):
            raise DeleteRequestError(f"{path}.topic: a name is expected, not {_shown(topic)}")
        tp = TopicPartition(topic, _integer(item, "partition", path, bits=32))
        if tp in places:
            raise DeleteRequestError(f"{path}: {tp} is listed before, as {places[tp]}")
        places[tp] = path
        offsets[tp] = _integer(item, "offset", path, bits=64)
    return offsets


def _member(container: Mapping[str, Any], name: str, path: str) -> Any:  # noqa: ANN401  # any JSON
    if name not in container:
        raise DeleteRequestError(f"{path}{name} is missing")
    return container[name]


def _integer(item: Mapping[str, Any], name: str, path: str, *, bits: int) -> int:
    value = _member(item, name, f"{path}.")
    if type(value) is not int:
        raise DeleteRequestError(f"{path}.{name}: a whole number is expected, not {_shown(value)}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise DeleteRequestError(f"{path}.{name}: {value} is no number of {bits} bits")
    return value


def _shown(value: object) -> str:
    """Return a JSON value as it may stand in a message."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
