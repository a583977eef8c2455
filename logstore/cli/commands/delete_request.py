"""Parse the request file of `delete-records`, in the JSON format of kafka-delete-records.

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
"""The only version that Kafka's tool accepts, and the default."""


class DeleteRequestError(ValueError):
    """The request file is invalid. Nothing was deleted."""


def parse_request(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset before which to delete records, for each partition.

    Parameters
    ----------
    data : bytes
        File content. Unknown members are ignored, as in Kafka.

    Returns
    -------
    dict
        Offsets in file order. -1 means the high watermark.

    Raises
    ------
    DeleteRequestError
        The file is not valid JSON, has a different version or a member of the wrong type, or lists
        a partition twice.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DeleteRequestError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DeleteRequestError(f"expected an object, not {_shown(document)}")
    version = document.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise DeleteRequestError(f"version: expected {VERSION}, not {_shown(version)}")
    if not isinstance(partitions := _member(document, "partitions", ""), list):
        raise DeleteRequestError(f"partitions: expected a list, not {_shown(partitions)}")
    offsets: dict[TopicPartition, int] = {}
    places: dict[TopicPartition, str] = {}
    for number, item in enumerate(partitions):
        path = f"partitions[{number}]"
        if not isinstance(item, dict):
            raise DeleteRequestError(f"{path}: expected an object, not {_shown(item)}")
        topic = _member(item, "topic", f"{path}.")
        if not isinstance(topic, str):
            raise DeleteRequestError(f"{path}.topic: expected a name, not {_shown(topic)}")
        tp = TopicPartition(topic, _integer(item, "partition", path, bits=32))
        if tp in places:
            raise DeleteRequestError(f"{path}: {tp} is already listed as {places[tp]}")
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
        raise DeleteRequestError(f"{path}.{name}: expected an integer, not {_shown(value)}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise DeleteRequestError(f"{path}.{name}: {value} does not fit in {bits} bits")
    return value


def _shown(value: object) -> str:
    """Format a JSON value for a message, truncated to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
