"""`logstore topic`: create, list and describe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Group,
    Settings,
    checked_partition,
    command,
    config_option,
    topic_overrides,
)
from logstore.cli.output import emit, emit_items, emit_json, emit_lines, note, plural
from logstore.cli.tables import Styled, Table, paint

if TYPE_CHECKING:
    from logstore.config import ConfigValue
    from logstore.topics import Topic

VERSION_STRATEGIES = ("timestamp", "header")


@click.command(
    "topic",
    cls=Group,
    lazy={
        "create": ("logstore.cli.cmd_topic:create", "Create a topic, or adopt a copied one."),
        "list": ("logstore.cli.cmd_topic:list_topics", "List the topics of a data directory."),
        "describe": ("logstore.cli.cmd_topic:describe", "Show every configuration in force."),
    },
    examples=["logstore topic create users --config cleanup.policy=compact"],
)
def topic() -> None:
    """Create, list and describe topics."""


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
    help="How many.",
)
@config_option("A topic configuration; repeatable. Times may be 7d, 12h, 30s.")
def create(
    settings: Settings, name: str, partitions: int, configs: tuple[tuple[str, str], ...]
) -> None:
    """Create topic NAME with its configuration.

    Partition folders of that name copied from a broker are taken over as they are: the
    configuration is stored, their data are not touched.
    """
    overrides = topic_overrides(configs)
    with settings.open_broker(create=True) as broker:
        created = broker.create_topic(name, partitions, overrides)
        if settings.as_table:
            count = plural(len(created.partitions), "partition")
            emit(f"created topic {name} with {count}")
        else:
            emit_json(_topic_json(created))
        _warn_of_lost_tombstones(broker.describe_configs(name))


@command(
    "list",
    examples=[
        "logstore topic list",
        "logstore topic list --data-dir /var/kafka-logs --format json",
    ],
)
def list_topics(settings: Settings) -> None:
    """List the topics of the data directory, adopted ones included."""
    with settings.open_broker(read_only=True) as broker:
        topics = broker.topics()
    if not settings.as_table:
        emit_items(
            (json.dumps(_topic_json(each)) for each in topics),
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
                Styled(each.name, "bold"),
                str(len(each.partitions)),
                "adopted" if each.adopted else "created",
                ", ".join(f"{key}={value}" for key, value in each.configs.items()) or "defaults",
            )
            for each in topics
        )
    )


@command(
    "describe",
    examples=["logstore topic describe users", "logstore topic describe users --format json"],
)
@click.argument("name")
def describe(settings: Settings, name: str) -> None:
    """Show every configuration in force for topic NAME: its value, its origin, its meaning.

    The origin is `topic` (set for it), `broker` (from the config file) or `default`.
    """
    with settings.open_broker(read_only=True) as broker:
        checked_partition(broker, name, None)
        found = broker.topic(name)
        configs = broker.describe_configs(name)
    if settings.output == "json":
        emit_json(
            {
                **_topic_json(found),
                "configs": {
                    key: {"value": each.value, "origin": each.origin}
                    for key, each in configs.items()
                },
            }
        )
    elif settings.output == "jsonl":
        emit_items(
            (
                json.dumps({"key": key, "value": each.value, "origin": each.origin})
                for key, each in configs.items()
            ),
            output="jsonl",
            name="configs",
        )
    else:
        _show_description(found, configs)
    _warn_of_lost_tombstones(configs)


def _show_description(found: Topic, configs: dict[str, ConfigValue]) -> None:
    numbers = ", ".join(map(str, found.partitions))
    adopted = "   adopted: no stored configuration" if found.adopted else ""
    emit(f"{paint(found.name, 'bold')}   partitions {numbers}{adopted}\n")
    rows = []
    for key, each in configs.items():
        style = {"topic": "bold green", "broker": "cyan"}.get(each.origin, "dim")
        origin = f"broker: {each.broker_key}" if each.broker_key else each.origin
        rows.append((key, Styled(each.value, style), Styled(origin, style), each.doc))
    table = Table(("configuration", "value", "origin", "meaning"), wrap=True)
    emit_lines(table.lines(rows))


def _topic_json(found: Topic) -> dict[str, Any]:
    return {
        "name": found.name,
        "partitions": len(found.partitions),
        "configs": dict(found.configs),
        "partition_numbers": list(found.partitions),
        "adopted": found.adopted,
    }


def _warn_of_lost_tombstones(configs: dict[str, ConfigValue]) -> None:
    """Warn where a late record may return after the tombstone that beat it is gone."""
    if configs["compaction.strategy"].value not in VERSION_STRATEGIES:
        return
    horizon = int(configs["delete.retention.ms"].value)
    for key in ("segment.ms", "max.compaction.lag.ms"):
        value = configs[key].value
        if int(value) >= horizon:
            note(
                f"{key} ({value}) is not below delete.retention.ms ({horizon}): under "
                f"compaction.strategy {configs['compaction.strategy'].value} an older record "
                "that arrives late may return after its tombstone is gone"
            )
