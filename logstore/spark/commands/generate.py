"""`logstore workload generate`: generate a topic of keyed records from a workload file."""

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
    plural,
)
from logstore.cli.show.tables import Table
from logstore.reasons.formats import format_size
from logstore.spark.commands.workload import SparkOptions, spark_options
from logstore.workload.presets import PRESETS

if TYPE_CHECKING:
    from logstore.spark.generation.generate import Generated
    from logstore.workload.spec import Spec

_F = TypeVar("_F", bound=Callable[..., Any])


def spec_options(function: _F) -> _F:
    """Add the SPEC argument and the --set option to a command."""
    values = click.option(
        "--set",
        "values",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key of SPEC: records=1000000, keys.count=500. Can be repeated.",
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
    help="Directory for the rows as Parquet, with the columns of Spark's Kafka source. "
    "[default: DATA_DIR.parquet/TOPIC]",
)
@click.option("--no-parquet", is_flag=True, help="Generate the topic only.")
@click.option("--overwrite", is_flag=True, help="Replace an existing topic and its Parquet files.")
@click.option(
    "--splits",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks that generate records; does not affect the output. [default: 4 per core]",
)
@config_option("Topic configuration, stored with the topic. Can be repeated.")
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
    """Generate a topic from SPEC, a TOML file or the name of a preset.

    The same spec produces the same bytes on any number of cores. Timestamps, segment rolls and
    file times follow the virtual time of the spec, so --now has no effect.

    Presets: {presets}. docs/WORKLOAD-KEYS.md describes every key.
    """
    if parquet is not None and no_parquet:
        raise click.UsageError("--parquet and --no-parquet are mutually exclusive")
    chosen = load_spec(spec, values)
    data_dir = _data_dir(settings)
    overrides = topic_overrides(configs)
    with SparkOptions(master, driver_memory).session(f"generate {chosen.topic}") as spark:
        from logstore.spark.generation.generate import generate as run
        from logstore.spark.generation.generate import parquet_dir

        if not no_parquet:
            parquet = parquet or parquet_dir(data_dir, chosen.topic)
        generated = run(
            spark,
            chosen,
            data_dir,
            parquet=parquet,
            splits=splits,
            configs=overrides,
            overwrite=overwrite,
        )
    _print(settings, generated, data_dir, parquet)


generate.help = (generate.help or "").format(presets=", ".join(PRESETS))


def _data_dir(settings: Settings) -> str:
    directories = settings.directories(settings.broker_config())
    if len(directories) > 1:
        raise click.UsageError("a workload is written to one data directory; give one --data-dir")
    return directories[0]


def load_spec(name: str, values: Sequence[str]) -> Spec:
    """Load a workload from a file or preset, with the overrides of --set.

    Raises
    ------
    UsageError
        No file or preset has this name, or a value is not KEY=VALUE.
    InvalidConfigurationError
        The file is not valid TOML or not a valid workload.
    """
    from logstore.errors import InvalidConfigurationError
    from logstore.workload.spec import from_mapping

    if Path(name).is_file():
        try:
            tree = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidConfigurationError(f"{name} is not TOML: {error}") from error
    elif name in PRESETS:
        tree = {"preset": name}
    else:
        raise click.UsageError(
            f"{name!r} is neither a file nor a preset; presets are {', '.join(PRESETS)}"
        )
    for pair in values:
        _override(tree, pair)
    return from_mapping(tree)


def _override(tree: dict[str, Any], pair: str) -> None:
    """Set KEY=VALUE in a workload. A dotted KEY names a key in a table."""
    key, sign, text = pair.partition("=")
    *tables, last = key.strip().split(".")
    if not sign or not last:
        raise click.UsageError(f"--set {pair!r} is not KEY=VALUE")
    if tables[:1] == ["configs"]:
        tables, last = ["configs"], key.strip().partition(".")[2]
    for name in tables:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise click.UsageError(f"--set {pair!r}: {name} is not a table")
    tree[last] = _value(text.strip())


def _value(text: str) -> object:
    """Parse a TOML value. Text that is not valid TOML is returned unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _print(settings: Settings, topic: Generated, data_dir: str, parquet: str | None) -> None:
    if not settings.as_table:
        emit_json(topic.as_json() | {"data_dir": data_dir, "parquet": parquet}, settings.output)
        return
    emit(
        f"{topic.topic}: {format_count(topic.records)} records in "
        f"{plural(topic.partitions, 'partition')}, {plural(topic.batches, 'batch', 'batches')}, "
        f"{plural(topic.markers, 'marker')}, {format_size(topic.bytes)} in {data_dir}"
    )
    if parquet is not None:
        emit(f"the same rows as Parquet in {parquet}")
    print_stages(topic.seconds, topic.records)


def print_stages(seconds: Mapping[str, float], records: int) -> None:
    """Print the duration and throughput of each stage."""
    table = Table(("stage", "seconds", "records/s"), right=("seconds", "records/s"))
    emit_lines(
        table.lines(
            (stage, f"{taken:.1f}", format_count(round(records / taken)) if taken else "")
            for stage, taken in seconds.items()
        )
    )
