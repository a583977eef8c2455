"""`logstore broker`: describe and alter the broker settings stored in a data directory."""

from __future__ import annotations

import click

from logstore.cli.options import Group, Settings, command, to_pairs
from logstore.cli.show.output import emit, emit_json, emit_values, note
from logstore.cli.show.settings import emit_changes, emit_settings


@click.command(
    "broker",
    cls=Group,
    lazy={
        "describe": ("logstore.cli.commands.broker:describe", "Show the effective settings."),
        "alter": (
            "logstore.cli.commands.broker:alter",
            "Change settings; effective at the next start.",
        ),
    },
    examples=[
        "logstore broker describe",
        "logstore broker alter --set log.retention.ms=7d --unset log.cleaner.threads",
    ],
)
def broker() -> None:
    """Describe and alter the broker settings stored in a data directory."""


@command(
    "describe", examples=["logstore broker describe", "logstore broker describe --format json"]
)
def describe(settings: Settings) -> None:
    """Show the effective broker settings: value, origin and description.

    The origin is `dynamic broker` (set at run time or by broker alter), `dynamic default` (set
    cluster-wide), `broker` (from the config file) or `default`, followed by overridden values.
    """
    with settings.open_broker(read_only=True) as opened:
        configs = opened.describe_broker_configs()
    items = {key: {"value": each.value, "origin": each.origin} for key, each in configs.items()}
    if settings.output == "json":
        emit_json({"configs": items})
    elif settings.as_items:
        emit_values(({"key": key, **item} for key, item in items.items()), output=settings.output)
    else:
        emit_settings(configs)


@command(
    "alter",
    examples=[
        "logstore broker alter --set log.cleaner.threads=2 --set log.retention.ms=30d",
        "logstore broker alter --unset log.retention.ms",
    ],
)
@click.option(
    "--set",
    "values",
    callback=to_pairs,
    multiple=True,
    metavar="K=V",
    help="Set a broker configuration. Can be repeated. Units such as 7d, 12h or 1GiB are accepted.",
)
@click.option(
    "--unset",
    "keys",
    multiple=True,
    metavar="K",
    help="Remove a value set by --set. Can be repeated.",
)
@click.option(
    "--cluster-wide",
    is_flag=True,
    help="Change the cluster-wide default, which applies to brokers without a value of their own.",
)
def alter(
    settings: Settings,
    values: tuple[tuple[str, str], ...],
    keys: tuple[str, ...],
    cluster_wide: bool,  # as click passes it
) -> None:
    """Change dynamic settings of the broker that owns the data directory, while it is stopped.

    Dynamic settings are cleaner settings and topic defaults. They are stored in the directory,
    override the config file, and take effect at the next start. If any change is invalid, none is
    stored.
    """
    if not values and not keys:
        raise click.UsageError("nothing to change: give --set K=V or --unset K")
    from logstore.analysis.reports import changes_between
    from logstore.config.dynamic import changes_of

    changes = changes_of(dict(values), keys)
    with settings.open_broker() as opened:
        before = opened.describe_broker_configs()
        for text in opened.alter_broker_configs(changes, cluster_wide=cluster_wide):
            note(text)
        changed = changes_between(before, opened.describe_broker_configs())
    if settings.output == "json":
        emit_json({"changed": [each.to_json() for each in changed]})
    elif settings.as_items:
        emit_values((each.to_json() for each in changed), output=settings.output)
    elif changed:
        emit_changes(changed)
    else:
        emit("nothing to change: all values are already set")
