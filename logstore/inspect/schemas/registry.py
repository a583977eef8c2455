"""Schemas from the log of a Schema Registry, which stores them in the topic `_schemas`.

The log is untrusted data: entries may be invalid, and schemas hostile. A schema is not compiled
before a record needs it, so an invalid schema only affects its own records. Source: Confluent's
Schema Registry, `SchemaKey`, `SchemaValue` and `SchemaReference`.
"""

from __future__ import annotations

import re
import tempfile  # noqa: TID251  # protoc is another process
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.inspect.files import source_of_file, stored_records
from logstore.inspect.schemas.files import compile_protobuf
from logstore.inspect.schemas.kinds import AvroSchema, ProtobufSchema, Schema
from logstore.inspect.schemas.values import parse_json
from logstore.names import LOG_SUFFIX, parse_segment_file
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.types import INT32_MAX

TOPIC = "_schemas"

SCHEMA_BYTES_MAX = 1 << 20
"""Maximum size of a schema's text."""

TOTAL_BYTES_MAX = 64 << 20
"""Maximum total size of all texts."""

REFERENCES_MAX = 200
"""Maximum number of schemas that a schema refers to, directly or indirectly."""

DECOMPRESSION_MAX = 64 << 20
"""Maximum size of a decompressed batch."""

COMPILE_SECONDS = 20
"""Time limit for compiling a Protobuf schema."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


class _Entry(NamedTuple):
    """A stored schema: its id, type, text, and (name, subject, version) of its references."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...]


def registry_folder(path: str | Path) -> Path | None:
    """Return the directory of a registry's log (the path or a child), or None if there is none."""
    folder = Path(path)
    for each in (folder, folder / f"{TOPIC}-0"):
        if each.is_dir() and any(_is_segment(file.name) for file in each.iterdir()):
            return each
    return None


def read_registry(folder: Path) -> dict[int, Schema]:
    """Read the schemas in a registry's log by id. Damaged batches are skipped.

    Deleted schemas are included, because old records may need them. If an id was used twice, the
    last schema is used.

    Raises
    ------
    InvalidConfigurationError
        The total size of the schemas exceeds `TOTAL_BYTES_MAX`.
    """
    entries: dict[tuple[str, int], _Entry] = {}
    size = 0
    for key, value in _records(folder):
        found = _entry(key, value)
        if found is None:
            continue
        name, entry = found
        replaced = entries.pop(name, None)
        size += len(entry.text) - (0 if replaced is None else len(replaced.text))
        if size > TOTAL_BYTES_MAX:
            raise InvalidConfigurationError(
                f"{folder} has more than {TOTAL_BYTES_MAX} bytes of schemas"
            )
        entries[name] = entry
    return {entry.schema_id: _RegistrySchema(entry, entries) for entry in entries.values()}


def _is_segment(name: str) -> bool:
    parts = parse_segment_file(name)
    return parts is not None and parts.kind == LOG_SUFFIX


def _records(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    fs = ReadOnlyFileSystem(DiskFileSystem())
    for name in sorted(filter(_is_segment, fs.list_dir(str(folder)))):
        source = source_of_file(fs, f"{folder}/{name}", DECOMPRESSION_MAX)
        try:
            for stored in stored_records(source, 0, []):
                key, value = stored.record.key, stored.record.value
                if key is not None and value is not None and not stored.batch.header.is_control:
                    yield key, value
        finally:
            source.file.close()


def _entry(key: bytes, value: bytes) -> tuple[tuple[str, int], _Entry] | None:
    """Return a schema by subject and version, or None if the entry is invalid or not a schema."""
    if len(key) > SCHEMA_BYTES_MAX or len(value) > 8 * SCHEMA_BYTES_MAX:
        return None
    try:
        names, found = parse_json(key), parse_json(value)
    except InvalidRecordError:
        return None
    if not isinstance(names, dict) or not isinstance(found, dict):
        return None
    if names.get("keytype") != "SCHEMA":
        return None
    subject, version = names.get("subject"), names.get("version")
    schema_id, text = found.get("id"), found.get("schema")
    kind = found.get("schemaType", "AVRO")
    if not (
        isinstance(subject, str)
        and _is_number(version)
        and _is_number(schema_id)
        and isinstance(text, str)
        and isinstance(kind, str)
    ):
        return None
    references = found.get("references") or ()
    return (subject, version), _Entry(schema_id, kind, text, tuple(_references(references)))


def _references(found: object) -> Iterator[tuple[str, str, int]]:
    for each in found if isinstance(found, list) else ():
        if not isinstance(each, dict):
            continue
        name, subject, version = (each.get(name) for name in ("name", "subject", "version"))
        if isinstance(name, str) and isinstance(subject, str) and _is_number(version):
            yield name, subject, version


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= INT32_MAX


class _RegistrySchema:
    """A schema of a registry, compiled on first use."""

    def __init__(self, entry: _Entry, entries: Mapping[tuple[str, int], _Entry]) -> None:
        self._entry = entry
        self._entries = entries
        self._schema: Schema | None = None
        self._problem: str | None = None

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # as Schema has it
        """Decode one message; see `Schema.decode`."""
        if self._schema is None and self._problem is None:
            try:
                self._schema = self._compiled()
            except (InvalidConfigurationError, RecursionError) as error:
                self._problem = f"schema {self._entry.schema_id} is unusable: {error}"
        if self._schema is None:
            raise InvalidRecordError(str(self._problem))
        return self._schema.decode(payload)

    def _compiled(self) -> Schema:
        needed = self._with_references()
        for _, entry in needed:
            if len(entry.text) > SCHEMA_BYTES_MAX:
                raise InvalidConfigurationError(f"it is larger than {SCHEMA_BYTES_MAX} bytes")
        match self._entry.kind:
            case "AVRO":
                return AvroSchema([entry.text for _, entry in needed])
            case "PROTOBUF":
                return _protobuf([(name, entry.text) for name, entry in needed])
            case "JSON":
                return _Json()
            case kind:
                raise InvalidConfigurationError(f"unknown kind {kind[:80]!r}")

    def _with_references(self) -> list[tuple[str, _Entry]]:
        """Return this schema by name, after the schemas that it refers to."""
        ordered: dict[str, _Entry] = {}
        seen: set[str] = set()

        def add(name: str, entry: _Entry) -> None:
            for reference, subject, version in entry.references:
                if reference in seen:
                    continue
                if not _NAME.fullmatch(reference) or ".." in reference.split("/"):
                    raise InvalidConfigurationError(
                        f"{reference[:80]!r} is an invalid name of a reference"
                    )
                seen.add(reference)
                if len(seen) > REFERENCES_MAX:
                    raise InvalidConfigurationError(f"it has more than {REFERENCES_MAX} references")
                other = self._entries.get((subject, version))
                if other is None:
                    raise InvalidConfigurationError(
                        f"it refers to {subject[:80]}, version {version}, which is not in the log"
                    )
                if other is not self._entry:
                    add(reference, other)
            ordered[name] = entry

        add("", self._entry)
        return list(ordered.items())


class _Json:
    """JSON that is not validated, because a hostile schema could take forever."""

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401  # as Schema has it
        """Decode one message; see `Schema.decode`."""
        return parse_json(payload)


def _protobuf(files: Sequence[tuple[str, str]]) -> ProtobufSchema:
    """Compile .proto texts in a temporary directory. The last text is the schema."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schema.proto"
        for name, text in files:
            path = Path(folder) / (name or "schema.proto")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
        return ProtobufSchema(compile_protobuf([str(path)], seconds=COMPILE_SECONDS))
