"""Preview of config changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logstore.types import INT32_MAX
from logstore.ui.api_request import post
from logstore.ui.lines import alteration, broker_alteration, preview_commands
from logstore.ui.settings import given_keys, given_settings

if TYPE_CHECKING:
    from logstore.analysis.preview import Preview
    from logstore.ui.api_request import ApiRequest

READ_BYTES_MAX = 64 << 20
"""Maximum number of bytes read per request, unless `deep` is set."""

PARTITIONS_MAX = 100
"""Maximum number of partitions per request."""


def preview(request: ApiRequest) -> dict[str, Any]:
    """Return the effect of changing topic or broker configs."""
    given, unset = given_settings(request, "set"), given_keys(request, "unset")
    quick, deep = request.member("quick", bool, False), request.member("deep", bool, False)
    bounds: dict[str, Any] = {
        "quick": quick,
        "read_bytes_max": None if deep else READ_BYTES_MAX,
        "partitions_max": PARTITIONS_MAX,
    }
    broker = request.broker
    name = request.member("topic", str, None)
    if name is None:
        request.require("describe_configs", "cluster")
        cluster_wide = request.member("cluster_wide", bool, False)
        with request.context.cleaning_lock.hold():
            outcome = broker.preview(set=given, unset=unset, cluster_wide=cluster_wide, **bounds)
        line = broker_alteration(broker, given, unset, cluster_wide=cluster_wide)
        return _without_hidden_topics(request, outcome).to_json() | {
            "commands": {"set": line, "preview": []}
        }
    topic = request.known_topic(name, "describe_configs", "describe")
    partition = request.member("partition", int, None)
    if partition is not None:
        request.check_number("partition", partition, 0, INT32_MAX)
    with request.context.cleaning_lock.hold():
        outcome = broker.preview(topic, partition, set=given, unset=unset, **bounds)
    commands = {
        "set": alteration(broker, topic, given, unset),
        "preview": preview_commands(broker, outcome, topic, partition),
    }
    return outcome.to_json() | {"commands": commands}


def _without_hidden_topics(request: ApiRequest, outcome: Preview) -> Preview:
    """Remove partitions of topics that the principal may not describe."""
    seen = {
        topic.name
        for topic in request.broker.topics()
        if request.allows("describe", "topic", topic.name)
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
