"""Equivalent command lines for the operations of the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from logstore.analysis.broker_state import data_dirs
from logstore.broker.setup import MEMORY_DIR
from logstore.config.keys import to_text
from logstore.runtime import SystemClock

if TYPE_CHECKING:
    from logstore.analysis.preview import Preview
    from logstore.broker import Broker
    from logstore.types import TopicPartition


def command_line(
    broker: Broker,
    *words: str,
    names: Iterable[str] = (),
    options: Iterable[tuple[str, str]] = (),
    flags: Iterable[str] = (),
    timed: bool = False,
) -> str:
    """Return a command line, quoted for the shell.

    Parameters
    ----------
    broker : Broker
        The broker. Its data directories are added to the command line, unless they are in memory.
    *words : str
        Command and subcommand, such as `topic` and `create`.
    names : iterable of str
        Positional arguments. They may look like options.
    options, flags : iterable
        Options with and without values.
    timed : bool
        Whether the result depends on the time. If so, --now is added, unless the broker uses the
        system clock.
    """
    parts = ["logstore", *words]
    for name, value in options:
        parts += [name, value]
    parts += flags
    for path in data_dirs(broker):
        if path != MEMORY_DIR:
            parts += ["--data-dir", path]
    if timed and not isinstance(broker.clock, SystemClock):
        parts += ["--now", str(broker.clock.now_ms())]
    given = list(names)
    if any(name.startswith("-") for name in given):
        parts.append("--")
    return shlex.join([*parts, *given])


def of_partition(
    broker: Broker,
    command: str,
    topic_partition: TopicPartition,
    *,
    options: Iterable[tuple[str, str]] = (),
    flags: Iterable[str] = (),
    timed: bool = False,
) -> str:
    """Return the command line for a single partition."""
    topic, number = topic_partition
    return command_line(
        broker,
        command,
        names=[topic],
        options=[("--partition", str(number)), *options],
        flags=flags,
        timed=timed,
    )


def creation(broker: Broker, name: str, partitions: int, configs: Mapping[str, object]) -> str:
    """Return the command line to create a topic."""
    options = [("--config", f"{key}={to_text(value)}") for key, value in configs.items()]
    if partitions != 1:
        options.insert(0, ("--partitions", str(partitions)))
    return command_line(broker, "topic", "create", names=[name], options=options)


def alteration(
    broker: Broker, topic: str, given: Mapping[str, object], unset: Iterable[str]
) -> str | None:
    """Return the command line to alter a topic, or None if nothing changes."""
    options = [("--set", f"{key}={to_text(value)}") for key, value in given.items()]
    options += [("--unset", key) for key in unset]
    if not options:
        return None
    return command_line(broker, "topic", "alter", names=[topic], options=options)


def broker_alteration(
    broker: Broker, given: Mapping[str, object], unset: Iterable[str], *, cluster_wide: bool
) -> str | None:
    """Return the command line to alter the broker, or None if nothing changes."""
    options = [("--set", f"{key}={to_text(value)}") for key, value in given.items()]
    options += [("--unset", key) for key in unset]
    if not options:
        return None
    flags = ["--cluster-wide"] if cluster_wide else []
    return command_line(broker, "broker", "alter", options=options, flags=flags)


def preview_commands(
    broker: Broker, preview: Preview, topic: str, partition: int | None
) -> list[str]:
    """Return the command lines that print the preview of a topic."""
    options = [("--config", f"{each.key}={each.after.value}") for each in preview.changed]
    if partition is not None:
        options.insert(0, ("--partition", str(partition)))
    return [
        command_line(broker, command, names=[topic], options=options, flags=flags, timed=True)
        for command, flags in (
            ("explain", ()),
            ("clean", ("--dry-run",)),
            ("retain", ("--dry-run",)),
        )
    ]
