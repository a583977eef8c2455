"""Load the schema files given by `--schema ID=FILE`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from logstore.inspect.schemas.kinds import Schema

SchemaFiles = tuple[int, tuple[str, ...]]
"""The id of a schema, and its files: the last one contains it and may reference the others."""

SCHEMA_ID_MAX = 2**31 - 1
_KINDS = (".avsc", ".proto", ".desc", ".json")


def to_schema(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[SchemaFiles, ...]:
    """Parse each `--schema ID=FILE[,FILE]`."""
    found: dict[int, tuple[str, ...]] = {}
    for text in values:
        number, sign, names = text.partition("=")
        paths = tuple(name for name in names.split(",") if name)
        if not (sign and number.isascii() and number.isdigit() and paths):
            raise click.BadParameter(f"{text!r} is not ID=FILE, such as 7=order.avsc", ctx, param)
        schema_id = int(number)
        if schema_id > SCHEMA_ID_MAX or schema_id in found:
            wrong = "too large" if schema_id > SCHEMA_ID_MAX else "given twice"
            raise click.BadParameter(f"the schema {schema_id} is {wrong}", ctx, param)
        for path in paths:
            if not Path(path).is_file():
                raise click.BadParameter(f"{path}: no such file", ctx, param)
        if not paths[-1].endswith(_KINDS):
            raise click.BadParameter(f"{paths[-1]!r} must end in {', '.join(_KINDS)}", ctx, param)
        found[schema_id] = paths
    return tuple(found.items())


def load_schemas(files: Sequence[SchemaFiles]) -> dict[int, Schema]:
    """Load the schemas from their files.

    Raises
    ------
    InvalidConfigurationError
        A file is not a valid schema, or a library is missing. The message names the file.
    """
    from logstore.errors import InvalidConfigurationError

    found: dict[int, Schema] = {}
    for schema_id, paths in files:
        try:
            found[schema_id] = _load(paths)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"schema {schema_id}, {paths[-1]}: {error}") from error
    return found


def _load(paths: Sequence[str]) -> Schema:
    from logstore.inspect.schemas.kinds import AvroSchema, JsonSchema, ProtobufSchema

    kind = Path(paths[-1]).suffix
    if kind == ".desc":
        return ProtobufSchema(Path(paths[-1]).read_bytes())
    if kind == ".proto":
        return ProtobufSchema(_compiled(paths))
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    return AvroSchema(texts) if kind == ".avsc" else JsonSchema(texts)


def _compiled(paths: Sequence[str]) -> bytes:
    """Compile .proto files to descriptors; imports are searched in the folder of each file."""
    from logstore.errors import InvalidConfigurationError
    from logstore.inspect.schemas.kinds import library

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
