"""The `--schema ID=FILE` option of commands that decode keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from logstore.inspect.schemas.files import SchemaFiles
    from logstore.inspect.schemas.kinds import Schema

SCHEMA_ID_MAX = 2**31 - 1


def to_schema(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> SchemaFiles:
    """Parse each `--schema ID=FILE[,FILE]`."""
    if not values:
        return {}
    from logstore.inspect.schemas.files import SUFFIXES
    from logstore.inspect.schemas.registry import read_registry, registry_folder

    found: dict[int, tuple[str, ...]] = {}
    registered: dict[int, Schema] = {}
    for text in values:
        if Path(text).is_dir():
            if (log := registry_folder(text)) is not None:
                registered |= read_registry(log)
            for file in sorted(Path(text).iterdir()):
                if file.suffix in SUFFIXES and file.stem.isascii() and file.stem.isdigit():
                    found[int(file.stem)] = (str(file),)
            continue
        number, sign, names = text.partition("=")
        paths = tuple(name for name in names.split(",") if name)
        if not (sign and number.isascii() and number.isdigit() and paths):
            raise click.BadParameter(
                f"{text!r} is not ID=FILE, such as 7=order.avsc, or a folder of such files",
                ctx,
                param,
            )
        schema_id = int(number)
        if schema_id > SCHEMA_ID_MAX or schema_id in found:
            wrong = "too large" if schema_id > SCHEMA_ID_MAX else "given twice"
            raise click.BadParameter(f"the schema {schema_id} is {wrong}", ctx, param)
        for path in paths:
            if not Path(path).is_file():
                raise click.BadParameter(f"{path}: no such file", ctx, param)
        if not paths[-1].endswith(SUFFIXES):
            raise click.BadParameter(f"{paths[-1]!r} must end in {', '.join(SUFFIXES)}", ctx, param)
        found[schema_id] = paths
    return {**registered, **found}


def schema_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add `--schema` to a command."""
    return click.option(
        "--schema",
        "schemas",
        callback=to_schema,
        multiple=True,
        metavar="ID=FILE|DIR",
        help="Schema with this id: a .avsc, .proto, .desc (from protoc) or .json file. Can be "
        "repeated. List referenced files before the file that references them: ID=FILE,FILE. "
        "DIR: a directory of files named by id, such as 7.avsc, or of a Schema Registry's log "
        "(_schemas-0).",
    )(command)
