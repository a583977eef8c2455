"""Preview of config changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logstore.types import INT32_MAX
from logstore.ui.asking import post
from logstore.ui.lines import alteration, broker_alteration, rehearsals
from logstore.ui.settings import given_keys, given_settings

if TYPE_CHECKING:
    from logstore.analysis.preview import Preview
    from logstore.ui.asking import Ask

READ_BYTES_MAX = 64 << 20
"""Maximum number of bytes read per request, unless `deep` is set."""

PARTITIONS_MAX = 100
"""Maximum number of partitions per request."""


def preview(ask: Ask) -> dict[str, Any]:
    """Return the effect of changing topic or broker configs."""
    given, unset = given_settings(ask, "set"), given_keys(ask, "unset")
    quick, deep = ask.member("quick", bool, False), ask.member("deep", bool, False)
    bounds: dict[str, Any] = {
        "quick": quick,
        "read_bytes_max": None if deep else READ_BYTES_MAX,
        "partitions_max": PARTITIONS_MAX,
    }
    broker = ask.broker
    name = ask.member("topic", str, None)
    if name is None:
        ask.require("describe_configs", "cluster")
        cluster_wide = ask.member("cluster_wide", bool, False)
        with ask.context.cleaning_lock.hold():
            outcome = broker.preview(set=given, unset=unset, cluster_wide=cluster_wide, **bounds)
        line = broker_alteration(broker, given, unset, cluster_wide=cluster_wide)
        return _visible(ask, outcome).to_json() | {"commands": {"set": line, "preview": []}}
    topic = ask.known_topic(name, "describe_configs", "describe")
    partition = ask.member("partition", int, None)
    if partition is not None:
        ask.check_number("partition", partition, 0, INT32_MAX)
    with ask.context.cleaning_lock.hold():
        outcome = broker.preview(topic, partition, set=given, unset=unset, **bounds)
    commands = {
        "set": alteration(broker, topic, given, unset),
        "preview": rehearsals(broker, outcome, topic, partition),
    }
    return outcome.to_json() | {"commands": commands}


def _visible(ask: Ask, outcome: Preview) -> Preview:
    """Remove partitions of topics that the principal may not describe."""
    seen = {
        topic.name for topic in ask.broker.topics() if ask.allows("describe", "topic", topic.name)
    }
    shown = tuple(each for each in outcome.partitions if each.topic in seen)
    parts = tuple(each for each in outcome.loss.parts if each.topic in seen)
    hidden = len(outcome.partitions) - len(shown)
    return replace(
        outcome,
        partitions=shown,
        left_out=outcome.left_out + hidden,
        loss=replace(outcome.loss, parts=parts),
    )


ROUTES = (
    post(
        "/api/preview",
        preview,
        "topic",
        "partition",
        "set",
        "unset",
        "quick",
        "deep",
        "cluster_wide",
    ),
)
