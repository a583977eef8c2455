"""`logstore broker`: describe and alter the settings that a data directory keeps of its broker."""

from __future__ import annotations

import click

from logstore.cli.options import Group, Settings, command, to_pairs
from logstore.cli.show.output import emit, emit_json, emit_values, note
from logstore.cli.show.settings import emit_changes, emit_settings


@click.command(
    "broker",
    cls=Group,
    lazy={
        "describe": ("logstore.cli.commands.broker:describe", "Show every setting in force."),
        "alter": ("logstore.cli.commands.broker:alter", "Change settings, from the next start on."),
    },
    examples=[
        "logstore broker describe",
        "logstore broker alter --set log.retention.ms=7d --unset log.cleaner.threads",
    ],
)
def broker() -> None:
    """Describe and alter the settings of a broker that its data directory keeps."""


@command(
    "describe", examples=["logstore broker describe", "logstore broker describe --format json"]
)
def describe(settings: Settings) -> None:
    """Show every setting of the broker in force: its value, its origin, its meaning.

    The origin is `dynamic broker` (set for it while it ran, or by broker alter), `dynamic default`
    (set so for all brokers), `broker` (from the config file) or `default`. Where one layer lies
    over others, they follow it.
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
    help="Give a broker key a value; repeatable. Times may be 7d or 12h, sizes 1GiB.",
)
@click.option(
    "--unset",
    "keys",
    multiple=True,
    metavar="K",
    help="Take back what was set this way; repeatable.",
)
@click.option(
    "--cluster-wide",
    is_flag=True,
    help="Set what holds for every broker of the cluster that says nothing of its own.",
)
def alter(
    settings: Settings,
    values: tuple[tuple[str, str], ...],
    keys: tuple[str, ...],
    cluster_wide: bool,  # as click gives it
) -> None:
    """Change settings of the broker whose data directory it is; it must not run meanwhile.

    They are kept in the directory and go before the config file, from the next start on: the
    settings that may also change while a broker runs, which are the cleaner's and the topics'
    defaults. All are checked together and take effect together, or not at all.
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
        emit("nothing changes: all of it is in force already")
