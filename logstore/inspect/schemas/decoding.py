"""How keys and values of records are decoded: each by its format, and no failure ends the rest."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from logstore.errors import InvalidRecordError, LogStoreError
from logstore.inspect.schemas.framing import unframe
from logstore.inspect.schemas.kinds import Schema
from logstore.inspect.schemas.values import parse_json


class DataFormat(Enum):
    """What the bytes of keys, or of values, are."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    CONFLUENT = "confluent"


class Decoder:
    """The decoder of records.

    Parameters
    ----------
    schemas : mapping of int to Schema
        By the numbers that Confluent's serializers write.
    """

    def __init__(
        self, key: DataFormat, value: DataFormat, schemas: Mapping[int, Schema] | None = None
    ) -> None:
        self._key = key
        self._value = value
        self._schemas = dict(schemas or {})

    @property
    def decodes(self) -> bool:
        """Whether anything is decoded at all."""
        return (self._key, self._value) != (DataFormat.BYTES, DataFormat.BYTES)

    def decode(self, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        """Return `key` and `value` of a record as JSON values, None where there is nothing.

        What cannot be decoded is None, too, and `error` says why.
        """
        errors: list[str] = []
        found: dict[str, Any] = {}
        for name, kind, data in (("key", self._key, key), ("value", self._value, value)):
            try:
                found[name] = None if data is None else self._decode(kind, data)
            except LogStoreError as error:
                found[name] = None
                errors.append(f"{name}: {error}")
        if errors:
            found["error"] = "; ".join(errors)
        return found

    def _decode(self, kind: DataFormat, data: bytes) -> Any:  # noqa: ANN401  # whatever JSON holds
        if kind is DataFormat.BYTES:
            return None
        if kind is DataFormat.JSON:
            return parse_json(data)
        if kind is DataFormat.TEXT:
            try:
                return data.decode()
            except UnicodeDecodeError as error:
                raise InvalidRecordError(f"not UTF-8: {error.reason}") from error
        framed = unframe(data)
        schema = self._schemas.get(framed.schema_id)
        if schema is None:
            raise InvalidRecordError(
                f"no file of schema {framed.schema_id} was given (--schema {framed.schema_id}=FILE)"
            )
        return schema.decode(framed.payload)
