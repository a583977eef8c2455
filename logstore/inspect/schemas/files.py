"""Schemas from files, which are named by their extension."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from logstore.errors import InvalidConfigurationError
from logstore.inspect.schemas.kinds import (
    AvroSchema,
    JsonSchema,
    ProtobufSchema,
    Schema,
    library,
)

SUFFIXES = (".avsc", ".proto", ".desc", ".json")
"""Extensions of schema files."""


def load_schemas(files: Mapping[int, Sequence[str]]) -> dict[int, Schema]:
    """Load schemas from their files: the last one contains it, the others are its references.

    Raises
    ------
    InvalidConfigurationError
        A file is not a valid schema, or a library is missing. The message names the file.
    """
    found: dict[int, Schema] = {}
    for schema_id, paths in files.items():
        try:
            found[schema_id] = _load(paths)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"schema {schema_id}, {paths[-1]}: {error}") from error
    return found


def _load(paths: Sequence[str]) -> Schema:
    kind = Path(paths[-1]).suffix
    if kind == ".desc":
        return ProtobufSchema(Path(paths[-1]).read_bytes())
    if kind == ".proto":
        return ProtobufSchema(_compiled(paths))
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    return AvroSchema(texts) if kind == ".avsc" else JsonSchema(texts)


def _compiled(paths: Sequence[str]) -> bytes:
    """Compile .proto files to descriptors; imports are searched in the folder of each file."""
    library("grpc_tools", "a .proto file")
    includes = dict.fromkeys(f"-I{Path(path).resolve().parent}" for path in reversed(paths))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", *includes),
            *("--include_imports", "--descriptor_set_out=/dev/stdout"),
            Path(paths[-1]).name,
        ],
        capture_output=True,
        check=False,
        cwd=Path(paths[-1]).resolve().parent,
    )
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise InvalidConfigurationError(message or f"protoc exited with {done.returncode}")
    return done.stdout
