"""Schemas from files, whose extension determines the format."""

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


SchemaFiles = Mapping[int, Sequence[str] | Schema]
"""Schemas by their ids: loaded ones, or files, of which the last contains the schema."""


def load_schemas(files: SchemaFiles) -> dict[int, Schema]:
    """Load schemas from lists of files: the last file is the schema, the others its references.

    Raises
    ------
    InvalidConfigurationError
        A file is not a valid schema, or a library is missing. The message names the file or
        library.
    """
    found: dict[int, Schema] = {}
    for schema_id, paths in files.items():
        if not isinstance(paths, Sequence):
            found[schema_id] = paths
            continue
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
        return ProtobufSchema(compile_protobuf(paths))
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    return AvroSchema(texts) if kind == ".avsc" else JsonSchema(texts)


def compile_protobuf(paths: Sequence[str], *, seconds: float | None = None) -> bytes:
    """Compile .proto files to descriptors. Imports are searched in the directory of each file.

    Parameters
    ----------
    seconds : float, optional
        Time limit.

    Raises
    ------
    InvalidConfigurationError
        A file is invalid or takes too long, or the compiler is missing.
    """
    library("grpc_tools", "a .proto file")
    includes = dict.fromkeys(f"-I{Path(path).resolve().parent}" for path in reversed(paths))
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", *includes),
                *("--include_imports", "--descriptor_set_out=/dev/stdout"),
                Path(paths[-1]).name,
            ],
            capture_output=True,
            check=False,
            cwd=Path(paths[-1]).resolve().parent,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidConfigurationError(f"protoc takes more than {seconds} s") from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise InvalidConfigurationError(message or f"protoc exited with {done.returncode}")
    return done.stdout
