"""The option `--schema ID=FILE` of commands that decode keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

SCHEMA_ID_MAX = 2**31 - 1

SchemaFiles = Mapping[int, Sequence[str]]
"""The files of schemas by their ids: the last one contains it and may reference the others."""


def to_schema(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> SchemaFiles:
    """Parse each `--schema ID=FILE[,FILE]`."""
    from logstore.inspect.schemas.files import SUFFIXES

    found: dict[int, tuple[str, ...]] = {}
    for text in values:
        if Path(text).is_dir():
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
    return found


def schema_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add `--schema` to a command."""
    return click.option(
        "--schema",
        "schemas",
        callback=to_schema,
        multiple=True,
        metavar="ID=FILE|DIR",
        help="File with the schema of an id: .avsc, .proto, .desc (from protoc) or .json. Can be "
        "repeated. Files that it references precede it: ID=FILE,FILE. DIR: a folder with files "
        "named by their ids, such as 7.avsc.",
    )(command)
