"""`logstore roll`: start a new active segment."""

from __future__ import annotations

import click

from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    checked_partition,
    command,
    partition_option,
)
from logstore.cli.show.output import emit_json


@command(
    "roll", examples=["logstore roll users", "logstore roll users --partition 2 --format json"]
)
@click.argument("topic")
@partition_option("Partition number; required if the topic has several.")
@accept_data_loss_option
def roll(settings: Settings, topic: str, partition: int | None) -> None:
    """Start a new active segment in a partition of TOPIC.

    The cleaner excludes the active segment, so rolling makes all existing records cleanable.
    """
    with settings.open_broker() as broker:
        numbers = checked_partition(broker, topic, partition)
        if len(numbers) > 1:
            raise click.UsageError(
                f"topic '{topic}' has the partitions {', '.join(map(str, numbers))}: "
                "choose one with --partition"
            )
        base_offset = broker.roll(topic, numbers[0])
    if settings.as_table:
        print(f"{topic}-{numbers[0]}: the active segment now starts at offset {base_offset}")
    else:
        from logstore.analysis.reports import rolled_json
        from logstore.types import TopicPartition

        emit_json(rolled_json(TopicPartition(topic, numbers[0]), base_offset), settings.output)
