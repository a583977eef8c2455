"""Decoding of keys and values by format. A failure only affects its own record."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from logstore.errors import InvalidRecordError, LogStoreError
from logstore.inspect.schemas.framing import unframe
from logstore.inspect.schemas.kinds import Schema
from logstore.inspect.schemas.values import parse_json


class DataFormat(Enum):
    """The formats of keys and values."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    CONFLUENT = "confluent"


class Decoder:
    """Decodes the keys and values of records.

    Parameters
    ----------
    schemas : mapping of int to Schema
        Schemas by the id that Confluent's serializers write.
    """

    def __init__(
        self, key: DataFormat, value: DataFormat, schemas: Mapping[int, Schema] | None = None
    ) -> None:
        self._key = key
        self._value = value
        self._schemas = dict(schemas or {})

    @property
    def decodes(self) -> bool:
        """Whether any keys or values are decoded."""
        return (self._key, self._value) != (DataFormat.BYTES, DataFormat.BYTES)

    def decode(self, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        """Return the `key` and `value` of a record as JSON values. Null remains None.

        If a key or value cannot be decoded, it is None, and `error` gives the reason.
        """
        errors: list[str] = []
        decoded: dict[str, Any] = {}
        for name, kind, data in (("key", self._key, key), ("value", self._value, value)):
            try:
                decoded[name] = None if data is None else self._decode(kind, data)
            except LogStoreError as error:
                decoded[name] = None
                errors.append(f"{name}: {error}")
        if errors:
            decoded["error"] = "; ".join(errors)
        return decoded

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
                f"schema {framed.schema_id} is unknown (add --schema {framed.schema_id}=FILE)"
            )
        return schema.decode(framed.payload)
