"""`logstore topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from logstore.cli.options import (
    Group,
    Settings,
    checked_partition,
    command,
    config_option,
    to_pairs,
    topic_overrides,
    warn_of_strategy,
)
from logstore.cli.show.output import (
    emit,
    emit_items,
    emit_json,
    emit_lines,
    emit_values,
    note,
    plural,
)
from logstore.cli.show.settings import emit_changes, emit_settings
from logstore.cli.show.tables import Styled, Table, paint
from logstore.config.keys import ORIGIN_DEFAULT
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.config.overrides import ConfigValue
    from logstore.manager.topics.store import Topic


@click.command(
    "topic",
    cls=Group,
    lazy={
        "create": ("logstore.cli.commands.topic:create", "Create a topic, or adopt a copied one."),
        "list": ("logstore.cli.commands.topic:list_topics", "List the topics of a data directory."),
        "describe": ("logstore.cli.commands.topic:describe", "Show the effective configuration."),
        "alter": ("logstore.cli.commands.topic:alter", "Change a topic's configuration."),
        "delete": ("logstore.cli.commands.topic:delete", "Delete a topic and all its data."),
    },
    examples=[
        "logstore topic create users --config cleanup.policy=compact",
        "logstore topic alter users --set segment.ms=1d --unset retention.ms",
    ],
)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@command(
    "create",
    examples=[
        "logstore topic create users --config cleanup.policy=compact",
        "logstore topic create events --partitions 3 --config retention.ms=7d",
    ],
)
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of partitions.",
)
@config_option("Topic configuration. Can be repeated. Units such as 7d, 12h or 1GiB are accepted.")
def create(
    settings: Settings, name: str, partitions: int, configs: tuple[tuple[str, str], ...]
) -> None:
    """Create topic NAME with its configs.

    Existing partition directories of this name, copied from a broker, are adopted: the configs are
    stored, and the data is not changed.
    """
    overrides = topic_overrides(configs)
    with settings.open_broker(create=True) as broker:
        created = broker.create_topic(name, partitions, overrides)
        if settings.as_table:
            count = plural(len(created.partitions), "partition")
            emit(f"created topic {name} with {count}")
        else:
            emit_json(created.to_json(), settings.output)
        warn_of_strategy(broker, name)


@command(
    "list",
    examples=[
        "logstore topic list",
        "logstore topic list --data-dir /var/kafka-logs --format json",
    ],
)
def list_topics(settings: Settings) -> None:
    """List the topics of the data directory, including adopted ones."""
    topics = settings.topics()
    if not settings.as_table:
        emit_items(
            (json.dumps(described.to_json()) for described in topics),
            output=settings.output,
            name="topics",
        )
        return
    if not topics:
        emit("no topics")
        return
    table = Table(
        ("topic", "partitions", "origin", "configuration"), right=("partitions",), wrap=True
    )
    emit_lines(
        table.lines(
            (
                Styled(described.name, "bold"),
                str(len(described.partitions)),
                "adopted" if described.adopted else "created",
                ", ".join(f"{key}={value}" for key, value in described.configs.items())
                or "defaults",
            )
            for described in topics
        )
    )


@command(
    "describe",
    examples=["logstore topic describe users", "logstore topic describe users --format json"],
)
@click.argument("name")
def describe(settings: Settings, name: str) -> None:
    """Show the effective configs of topic NAME: value, origin and description.

    The origin is `topic`, `dynamic broker` (set for the broker at run time), `dynamic default` (set
    cluster-wide), `broker` (from the config file) or `default`, followed by overridden values.
    """
    with settings.open_broker(read_only=True) as broker:
        checked_partition(broker, name, None)
        found = broker.topic(name)
        configs = broker.describe_configs(name)
        warn_of_strategy(broker, name)
    if settings.output == "json":
        emit_json(
            {
                **found.to_json(),
                "configs": {
                    key: {"value": each.value, "origin": each.origin}
                    for key, each in configs.items()
                },
                "layers": {
                    key: [layer._asdict() for layer in each.layers]
                    for key, each in configs.items()
                    if each.origin != ORIGIN_DEFAULT
                },
            }
        )
    elif settings.as_items:
        emit_values(
            (
                {"key": key, "value": each.value, "origin": each.origin}
                for key, each in configs.items()
            ),
            output=settings.output,
        )
    else:
        _show_description(found, configs)


def _show_description(found: Topic, configs: dict[str, ConfigValue]) -> None:
    numbers = ", ".join(map(str, found.partitions))
    topic_id = f"   id {found.id}" if found.id is not None else ""
    adopted = "   adopted: no stored configuration" if found.adopted else ""
    emit(f"{paint(found.name, 'bold')}{topic_id}   partitions {numbers}{adopted}\n")
    emit_settings(configs)


@command(
    "alter",
    examples=[
        "logstore topic alter users --set cleanup.policy=compact,delete --set retention.ms=30d",
        "logstore topic alter users --unset segment.ms",
    ],
)
@click.argument("name")
@click.option(
    "--set",
    "values",
    callback=to_pairs,
    multiple=True,
    metavar="K=V",
    help="Set a topic configuration. Can be repeated. Units such as 7d, 12h or 1GiB are accepted.",
)
@click.option(
    "--unset",
    "keys",
    multiple=True,
    metavar="K",
    help="Remove a topic configuration, restoring the broker's value or default. Can be repeated.",
)
def alter(
    settings: Settings, name: str, values: tuple[tuple[str, str], ...], keys: tuple[str, ...]
) -> None:
    """Change configs of topic NAME.

    If any change is invalid, none takes effect. If the topic was adopted, its configs are stored
    from then on.
    """
    if not values and not keys:
        raise click.UsageError("nothing to change: give --set K=V or --unset K")
    from logstore.analysis.reports import changes_between

    with settings.open_broker() as broker:
        checked_partition(broker, name, None)
        was_adopted = broker.topic(name).adopted
        before = broker.describe_configs(name)
        for text in broker.alter_configs(name, dict(values), unset=keys):
            note(text)
        found = broker.topic(name)
        after = broker.describe_configs(name)
        warn_of_strategy(broker, name)
    changed = changes_between(before, after)
    if settings.output == "json":
        emit_json({**found.to_json(), "changed": [each.to_json() for each in changed]})
    elif settings.as_items:
        emit_values((each.to_json() for each in changed), output=settings.output)
    elif changed:
        emit_changes(changed)
    else:
        emit(f"nothing to change for topic {name}: all values are already set")
    if was_adopted:
        note(f"topic {name} was adopted; its configuration is now stored")


@command(
    "delete",
    examples=["logstore topic delete users", "logstore topic delete users --format json"],
)
@click.argument("name")
def delete(settings: Settings, name: str) -> None:
    """Delete topic NAME without confirmation, including its configs and all data.

    The name can be reused immediately. Adopted topics are deleted too; use `inspect` to review the
    data first.
    """
    from logstore.analysis.reports import deleted_json, segment_sizes

    with settings.open_broker() as broker:
        checked_partition(broker, name, None)
        found = broker.topic(name)
        sizes = [
            size for tp in broker.partitions(name) for size in segment_sizes(broker.manager, tp)
        ]
        broker.delete_topic(name)
    if settings.as_table:
        count = plural(len(found.partitions), "partition")
        segments = plural(len(sizes), "segment")
        emit(f"deleted topic {name}: {count}, {segments}, {format_size(sum(sizes))}")
    else:
        emit_json(deleted_json(found, sizes), settings.output)
