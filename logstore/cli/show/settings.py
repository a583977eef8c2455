"""Tables of configs with their origins, and of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from logstore.cli.show.output import emit_lines
from logstore.cli.show.tables import Styled, Table
from logstore.config.keys import ORIGIN_DEFAULT, ORIGIN_TOPIC

if TYPE_CHECKING:
    from logstore.analysis.reports import ConfigChange
    from logstore.config.overrides import ConfigValue

_STYLES = {ORIGIN_TOPIC: "bold green", ORIGIN_DEFAULT: "dim"}
"""Style by origin. Broker configs are cyan."""


def emit_settings(configs: Mapping[str, ConfigValue]) -> None:
    """Print the table of effective configs."""
    rows = [
        (key, Styled(each.value, style), Styled(_origin_of(each), style), each.doc)
        for key, each in configs.items()
        for style in [_STYLES.get(each.origin, "cyan")]
    ]
    emit_lines(Table(("configuration", "value", "origin", "description"), wrap=True).lines(rows))


def _origin_of(config: ConfigValue) -> str:
    """Return the origin of a value, and the layers that it overrides."""
    origin = f"{config.origin}: {config.broker_key}" if config.broker_key else config.origin
    covered = [] if config.origin == ORIGIN_DEFAULT else config.layers[1:]
    return origin + "".join(f", overrides {layer.origin} {layer.value}" for layer in covered)


def emit_changes(changes: Iterable[ConfigChange]) -> None:
    """Print the table of changes."""
    table = Table(("configuration", "before", "after"), wrap=True)
    emit_lines(
        table.lines(
            (each.key, _value_and_origin(each.before), _value_and_origin(each.after))
            for each in changes
        )
    )


def _value_and_origin(config: ConfigValue) -> str:
    return f"{config.value} ({config.broker_key or config.origin})"
