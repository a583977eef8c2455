"""Avro, JSON and Protobuf schemas, parsed from the text of their files.

The required libraries belong to the extra `schemas` and are imported on first use.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.inspect.schemas.avro_bounds import SCHEMA_DEPTH_MAX, bounds_check, check_schema
from logstore.inspect.schemas.framing import message_indexes
from logstore.inspect.schemas.values import check_depth, parse_json, plain

EXTRA = "kafka-logstore[schemas]"


class Schema(Protocol):
    """A schema that decodes payloads to JSON values."""

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # whatever JSON holds
        """Decode a single message.

        Raises
        ------
        InvalidRecordError
            The message does not match the schema.
        """


def library(name: str, purpose: str) -> Any:  # noqa: ANN401  # a module
    """Import a library of the extra `schemas`.

    Raises
    ------
    InvalidConfigurationError
        The library is not installed. The message shows how to install it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = "protobuf" if name.startswith("google.") else name.partition(".")[0]
        raise InvalidConfigurationError(
            f"{purpose} needs {package}: pip install '{EXTRA}'"
        ) from error


class AvroSchema:
    """An Avro schema. Logical types are applied.

    Parameters
    ----------
    texts : sequence of str
        The schema, preceded by the schemas whose names it uses.

    Raises
    ------
    InvalidConfigurationError
        A text is not an Avro schema, or fastavro is missing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        fastavro = library("fastavro", "an Avro schema")
        self._reader: Callable[..., Any] = fastavro.schemaless_reader
        named: dict[str, Any] = {}
        try:
            for text in texts:
                document = json.loads(text)
                check_depth(document, SCHEMA_DEPTH_MAX)  # otherwise the library could crash
                self._schema = fastavro.parse_schema(document, named)
                check_schema(self._schema, named)
        except Exception as error:  # many exception types of the library
            raise InvalidConfigurationError(f"not an Avro schema: {_reason(error)}") from error
        self._check = bounds_check(self._schema, named)

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # as Schema has it
        """Decode one message; see `Schema.decode`."""
        if self._check is not None:
            self._check(payload)
        stream = io.BytesIO(payload)
        try:
            value = self._reader(stream, self._schema)
        except Exception as error:  # many exception types of the library
            raise InvalidRecordError(f"does not match its Avro schema: {_reason(error)}") from error
        if left := len(payload) - stream.tell():
            raise InvalidRecordError(f"{left} bytes left after decoding with its Avro schema")
        return plain(value)


class JsonSchema:
    """A JSON Schema, against which JSON values are validated.

    Parameters
    ----------
    texts : sequence of str
        The schema, preceded by the schemas whose `$id` it refers to. Nothing is downloaded.

    Raises
    ------
    InvalidConfigurationError
        A text is not a JSON Schema, or jsonschema is missing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        jsonschema = library("jsonschema", "a JSON Schema")
        referencing = library("referencing", "a JSON Schema")
        draft = library("referencing.jsonschema", "a JSON Schema").DRAFT7
        try:
            documents = [json.loads(text) for text in texts]
            resources = [
                referencing.Resource.from_contents(document, default_specification=draft)
                for document in documents
            ]
            # A reference to a schema that was not given is an error and never a download.
            registry = referencing.Registry().with_resources(
                (identity, resource)
                for resource in resources
                if (identity := resource.id()) is not None
            )
            kinds = [
                jsonschema.validators.validator_for(document, default=jsonschema.Draft7Validator)
                for document in documents
            ]
            kind = kinds[-1]
            kind.check_schema(documents[-1])
            for document, each in zip(documents, kinds, strict=True):
                if each is kind and isinstance(document, dict):
                    # Otherwise the library would look up a different validator for it.
                    document.pop("$schema", None)
        except Exception as error:  # many exception types of the library
            raise InvalidConfigurationError(f"not a JSON Schema: {_reason(error)}") from error

        def unique_items(
            validator: Any,  # noqa: ANN401  # jsonschema has no types
            is_required: bool,
            value: object,
            schema: object,
        ) -> Iterator[Exception]:
            """Check uniqueness in linear time. The library compares each item with all others."""
            if not is_required or not isinstance(value, list):
                return
            if len({_hashable(each) for each in value}) < len(value):
                yield jsonschema.ValidationError("the items are not unique")

        kind = jsonschema.validators.extend(kind, {"uniqueItems": unique_items})
        self._validator = kind(documents[-1], registry=registry)

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # as Schema has it
        """Decode one message; see `Schema.decode`."""
        value = parse_json(payload)
        try:
            failure = next(self._validator.iter_errors(value), None)
        except Exception as error:  # a reference that cannot be resolved
            raise InvalidRecordError(f"its JSON Schema is unusable: {_reason(error)}") from error
        if failure is not None:
            raise InvalidRecordError(
                f"does not match its JSON Schema: {failure.json_path}: {_reason(failure)}"
            )
        return value


class ProtobufSchema:
    """A file of Protobuf messages, one of which is selected by a record's message indexes.

    Parameters
    ----------
    descriptor_set : bytes
        Output of `protoc --include_imports --descriptor_set_out`. Its last file is the schema.

    Raises
    ------
    InvalidConfigurationError
        The bytes are not a descriptor set, or protobuf is missing.
    """

    def __init__(self, descriptor_set: bytes) -> None:
        purpose = "a Protobuf schema"
        descriptor_pb2 = library("google.protobuf.descriptor_pb2", purpose)
        pool = library("google.protobuf.descriptor_pool", purpose).DescriptorPool()
        self._factory = library("google.protobuf.message_factory", purpose)
        self._to_dict: Callable[..., Any] = library(
            "google.protobuf.json_format", purpose
        ).MessageToDict
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
            for file in files:
                pool.Add(file)
            self._file = pool.FindFileByName(files[-1].name)
        except Exception as error:  # many exception types of the library
            raise InvalidConfigurationError(
                f"not a Protobuf descriptor set: {_reason(error)}"
            ) from error
        self._pool = pool
        self._messages = [
            self._file.message_types_by_name[each.name] for each in files[-1].message_type
        ]
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # as Schema has it
        """Decode one message; see `Schema.decode`."""
        indexes, data = message_indexes(payload)
        kind = self._classes.get(indexes)
        if kind is None:
            kind = self._classes[indexes] = self._find(indexes)
        try:
            return self._to_dict(
                kind.FromString(data),
                preserving_proto_field_name=True,
                descriptor_pool=self._pool,
            )
        except Exception as error:  # many exception types of the library
            raise InvalidRecordError(
                f"does not match its Protobuf schema: {_reason(error)}"
            ) from error

    def _find(self, indexes: tuple[int, ...]) -> Any:  # noqa: ANN401  # a class of messages
        messages = self._messages
        message = None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise InvalidRecordError(
                    f"its Protobuf schema has no message at {'.'.join(map(str, indexes))}"
                )
            message = messages[index]
            messages = list(message.nested_types)
        assert message is not None, "there is an index at least"
        return self._factory.GetMessageClass(message)


def _hashable(value: object) -> object:
    """Return an object that is equal for equal JSON values. 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Hashes of numbers are predictable, so an attacker could make them collide.
    return type(value) is bool, str(value).encode()


def _reason(error: Exception) -> str:
    """Return the first line of a library's message, because messages may be very long."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
