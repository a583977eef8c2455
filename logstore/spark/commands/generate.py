"""`logstore workload generate`: a topic of keyed records from a declarative file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logstore.cli.options import Settings, command, config_option, topic_overrides
from logstore.cli.show.output import (
    emit,
    emit_json,
    emit_lines,
    format_count,
    format_size,
    plural,
)
from logstore.cli.show.tables import Table
from logstore.spark.commands.workload import SparkOptions, spark_options
from logstore.workload.presets import PRESETS

if TYPE_CHECKING:
    from logstore.spark.generation.generate import Generated
    from logstore.workload.spec import Spec

_F = TypeVar("_F", bound=Callable[..., Any])


def spec_options(function: _F) -> _F:
    """Add the argument SPEC and the option --set to a command."""
    values = click.option(
        "--set",
        "values",
        multiple=True,
        metavar="KEY=VALUE",
        help="Another value for a key of the file: records=1000000, keys.count=500; repeatable.",
    )
    return click.argument("spec")(values(function))


@command(
    "generate",
    examples=[
        "logstore workload generate user-accounts --data-dir before",
        "logstore workload generate accounts.toml --set records=10000000 --set seed=7",
        "logstore workload generate cdc-table --config segment.bytes=67108864 --no-parquet",
    ],
)
@spec_options
@click.option(
    "--parquet",
    metavar="DIR",
    help="Where the rows go as Parquet, in the columns of Spark's Kafka source. "
    "Default: DATA_DIR.parquet/TOPIC.",
)
@click.option("--no-parquet", is_flag=True, help="Make the topic only.")
@click.option("--overwrite", is_flag=True, help="Put it in the place of what is there.")
@click.option(
    "--splits",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks that make records; the bytes do not depend on it. Default: what Spark takes.",
)
@config_option("A configuration of the topic, stored with it; repeatable.")
@spark_options
def generate(
    settings: Settings,
    spec: str,
    values: tuple[str, ...],
    parquet: str | None,
    no_parquet: bool,
    overwrite: bool,
    splits: int | None,
    configs: tuple[tuple[str, str], ...],
    master: str | None,
    driver_memory: str,
) -> None:
    """Make a topic as SPEC says: a TOML file, or the name of a preset.

    Equal specs make equal bytes, on any number of cores. The log is written in the virtual time
    of the spec: batches of several producers, transactions, tombstones and versions arrive as
    they would have, segments roll and files are dated by that time, whatever --now says.

    Presets: {presets}. docs/WORKLOAD-KEYS.md has every key.
    """
    if parquet is not None and no_parquet:
        raise click.UsageError("--parquet and --no-parquet exclude each other")
    chosen = spec_of(spec, values)
    data_dir = _data_dir(settings)
    overrides = topic_overrides(configs)
    with SparkOptions(master, driver_memory).session(f"generate {chosen.topic}") as spark:
        from logstore.spark.generation.generate import generate as run
        from logstore.spark.generation.generate import parquet_dir

        if not no_parquet:
            parquet = parquet or parquet_dir(data_dir, chosen.topic)
        made = run(
            spark,
            chosen,
            data_dir,
            parquet=parquet,
            splits=splits,
            configs=overrides,
            overwrite=overwrite,
        )
    _print(settings, made, data_dir, parquet)


generate.help = (generate.help or "").format(presets=", ".join(PRESETS))


def _data_dir(settings: Settings) -> str:
    directories = settings.directories(settings.broker_config())
    if len(directories) > 1:
        raise click.UsageError("a workload goes into one data directory; --data-dir says which")
    return directories[0]


def spec_of(name: str, values: Sequence[str]) -> Spec:
    """Return the workload of a file or preset, with the values of --set laid over it.

    Raises
    ------
    UsageError
        There is neither, or a value is no KEY=VALUE.
    InvalidConfigurationError
        The file is no TOML, or names what is not allowed.
    """
    from logstore.errors import InvalidConfigurationError
    from logstore.workload.spec import from_mapping

    if Path(name).is_file():
        try:
            tree = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidConfigurationError(f"{name} is no TOML: {error}") from error
    elif name in PRESETS:
        tree = {"preset": name}
    else:
        raise click.UsageError(
            f"{name!r} is neither a file nor a preset; presets are {', '.join(PRESETS)}"
        )
    for pair in values:
        _put(tree, pair)
    return from_mapping(tree)


def _put(tree: dict[str, Any], pair: str) -> None:
    """Lay KEY=VALUE over what the file says; KEY may lead into a table."""
    key, sign, text = pair.partition("=")
    *tables, last = key.strip().split(".")
    if not sign or not last:
        raise click.UsageError(f"--set {pair!r} is not KEY=VALUE")
    if tables[:1] == ["configs"]:
        tables, last = ["configs"], key.strip().partition(".")[2]
    for name in tables:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise click.UsageError(f"--set {pair!r}: {name} is no table")
    tree[last] = _value(text.strip())


def _value(text: str) -> object:
    """Return a TOML value, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _print(settings: Settings, made: Generated, data_dir: str, parquet: str | None) -> None:
    if not settings.as_table:
        emit_json(made.as_json() | {"data_dir": data_dir, "parquet": parquet}, settings.output)
        return
    emit(
        f"{made.topic}: {format_count(made.records)} records in "
        f"{plural(made.partitions, 'partition')}, {plural(made.batches, 'batch', 'batches')}, "
        f"{plural(made.markers, 'marker')}, {format_size(made.bytes)} in {data_dir}"
    )
    if parquet is not None:
        emit(f"the same rows as Parquet in {parquet}")
    print_stages(made.seconds, made.records)


def print_stages(seconds: Mapping[str, float], records: int) -> None:
    """Write how long each stage took, and how many records a second that makes."""
    table = Table(("stage", "seconds", "records/s"), right=("seconds", "records/s"))
    emit_lines(
        table.lines(
            (stage, f"{taken:.1f}", format_count(round(records / taken)) if taken else "")
            for stage, taken in seconds.items()
        )
    )
