"""Operations on topics, partitions and the broker, with their equivalent command lines.

If a request would delete readable records, the response describes the loss. To perform the
operation, the client repeats the request with the returned confirmation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.analysis.assumptions import policy_assumption, refuse_assumed_policy
from logstore.analysis.broker_state import cleaner_view
from logstore.analysis.losses import (
    NOTHING_LOST,
    Loss,
    lost_by_delete_records,
    lost_by_forced_cleaning,
    lost_by_retention,
    lost_unread,
    lost_with,
)
from logstore.analysis.preview import (
    hypothetical_broker_configs,
    hypothetical_topic_configs,
    lost_by_settings,
)
from logstore.analysis.reports import changes_between, deleted_json, rolled_json, segment_sizes
from logstore.analysis.view import Damaged
from logstore.clients.results import DeleteRecordsResult
from logstore.config.dynamic import Layer, changes_of
from logstore.config.keys import to_text
from logstore.config.overrides import alter_overrides
from logstore.errors import LogStoreError, TopicAlreadyExistsError
from logstore.names import validate_topic_name
from logstore.types import INT64_MAX
from logstore.ui.api_request import ApiResponse, post
from logstore.ui.context import Action
from logstore.ui.lines import alteration, broker_alteration, command_line, creation, of_partition
from logstore.ui.locks import refusal
from logstore.ui.settings import given_keys, given_settings
from logstore.wire.limits import Limits

if TYPE_CHECKING:
    from logstore.analysis.preview import HypotheticalConfigs
    from logstore.types import TopicPartition
    from logstore.ui.api_request import ApiRequest

PARTITIONS_MAX = Limits().partitions
"""Maximum number of partitions in a new topic, as in the wire protocol."""


# -- performing an operation -------------------------------------------------------------------


def _perform(
    request: ApiRequest,
    command: str | None,
    do: Callable[[], object],
    *,
    dry_run: Callable[[], object] | None = None,
    find_loss: Callable[[], Loss] = lambda: NOTHING_LOST,
    notes: tuple[str, ...] = (),
) -> object:
    """Perform an operation under the lock, or return its dry run or the loss to confirm.

    Parameters
    ----------
    command : str or None
        Equivalent command line, or None if there is none.
    do, dry_run : callable
        Perform the operation or a dry run. They return the JSON that the command line prints.
    find_loss : callable
        Returns the data that would be lost. Called under the lock.
    """
    token = request.member("confirm", str, None)
    if dry_run is not None and request.member("dry_run", bool, False):
        with request.context.change_lock.hold():
            return {"done": dry_run(), "command": command, "notes": list(notes)}
    request.context.check_writable()
    with request.context.change_lock.hold():
        if loss := find_loss():
            # A re-created topic has a new id.
            ids = {part.topic: request.broker.topic(part.topic).id for part in loss.parts}
            action = {
                "path": request.address,
                "body": {**request.body, "confirm": None},
                "ids": ids,
            }
            if token is None or not request.context.change_lock.is_confirmed(token, action, loss):
                again = request.context.change_lock.confirmation(action, loss)
                visible_loss = loss.visible_to(partial(request.allows, "describe", "topic"))
                return ApiResponse(409, refusal(visible_loss, again, command))
        done = do()
    return {"done": done, "command": command, "notes": list(notes)}


# -- topics ------------------------------------------------------------------------------------


def create_topic(request: ApiRequest) -> object:
    """Create a topic."""
    name = request.member("name", str)
    if not request.allows("create", "cluster"):
        request.require("create", "topic", name)
    count = request.member("partitions", int, 1)
    request.check_number("partitions", count, 1, PARTITIONS_MAX)
    configs = given_settings(request, "configs")
    broker = request.broker
    validate_topic_name(name)
    overrides, notes = alter_overrides({}, configs, (), broker.broker_config)

    def dry_run() -> object:
        if any(topic.name == name and not topic.adopted for topic in broker.topics()):
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        return {"name": name, "partitions": count, "configs": dict(overrides)}

    return _perform(
        request,
        creation(broker, name, count, configs),
        lambda: broker.create_topic(name, count, configs).to_json(),
        dry_run=dry_run,
        notes=notes,
    )


def alter_topic(request: ApiRequest) -> object:
    """Set and unset topic configs."""
    topic = request.topic("alter_configs")
    given, unset = given_settings(request, "set"), given_keys(request, "unset")
    broker = request.broker
    hypothetical = hypothetical_topic_configs(broker.manager, topic, given, unset)

    def do() -> object:
        before = broker.describe_configs(topic)
        broker.alter_configs(topic, given, unset=unset)
        changed = changes_between(before, broker.describe_configs(topic))
        return {
            **broker.topic(topic).to_json(),
            "changed": [each.to_json() for each in changed],
        }

    return _perform(
        request,
        alteration(broker, topic, given, unset),
        do,
        find_loss=partial(_lost_by_settings, request, hypothetical),
        notes=hypothetical.notes,
    )


def delete_topic(request: ApiRequest) -> object:
    """Delete a topic."""
    topic = request.topic("delete")
    broker = request.broker

    def do() -> object:
        found = broker.topic(topic)
        sizes = [
            size for tp in broker.partitions(topic) for size in segment_sizes(broker.manager, tp)
        ]
        broker.delete_topic(topic)
        return deleted_json(found, sizes)

    def find_loss() -> Loss:
        return Loss.of_all(_loss_of_partition(request, each) for each in broker.partitions(topic))

    return _perform(
        request, command_line(broker, "topic", "delete", names=[topic]), do, find_loss=find_loss
    )


def _loss_of_partition(request: ApiRequest, topic_partition: TopicPartition) -> Loss:
    """Return the loss of an entire partition, estimated from file sizes if it cannot be opened."""
    try:
        return lost_with([request.broker.log(topic_partition)])
    except LogStoreError:
        return lost_unread(request.broker.manager, topic_partition)


def _lost_by_settings(request: ApiRequest, hypothetical: HypotheticalConfigs) -> Loss:
    """Return what retention would delete under the given settings, in all affected topics."""
    broker = request.broker
    found = []
    for topic in hypothetical.configs:
        for tp in broker.partitions(topic):
            try:
                found.append(lost_by_settings(broker, hypothetical, tp))
            except LogStoreError:  # retention skips logs that cannot be opened
                continue
    return Loss.of_all(found)


# -- the broker --------------------------------------------------------------------------------


def alter_broker(request: ApiRequest) -> object:
    """Set and unset dynamic broker configs."""
    request.require("alter_configs", "cluster")
    given, unset = given_settings(request, "set"), given_keys(request, "unset")
    cluster_wide = request.member("cluster_wide", bool, False)
    changes = changes_of(given, unset)
    broker = request.broker
    layer = Layer.CLUSTER if cluster_wide else Layer.BROKER
    hypothetical = hypothetical_broker_configs(broker.manager, changes, layer)

    def do() -> object:
        before = broker.describe_broker_configs()
        broker.alter_broker_configs(changes, cluster_wide=cluster_wide)
        changed = changes_between(before, broker.describe_broker_configs())
        return {"changed": [each.to_json() for each in changed]}

    return _perform(
        request,
        broker_alteration(broker, given, unset, cluster_wide=cluster_wide),
        do,
        find_loss=partial(_lost_by_settings, request, hypothetical),
        notes=hypothetical.notes,
    )


# -- partitions --------------------------------------------------------------------------------


def roll(request: ApiRequest) -> object:
    """Roll the active segment."""
    tp = request.topic_partition("alter")
    broker = request.broker
    return _perform(
        request,
        of_partition(broker, "roll", tp),
        lambda: rolled_json(tp, broker.roll(tp.topic, tp.partition)),
        dry_run=lambda: rolled_json(tp, broker.log(*tp).log_end_offset),
    )


def clean(request: ApiRequest) -> object:
    """Compact a partition that is due, or any partition with `force`."""
    tp = request.topic_partition("alter")
    force, rolls = request.member("force", bool, False), request.member("roll", bool, False)
    broker = request.broker
    options: dict[str, Any] = {"force": force, "roll": rolls}

    def run(*, dry_run: bool) -> object:
        with request.context.cleaning_lock.hold():
            report = broker.clean(tp.topic, tp.partition, dry_run=dry_run, **options)
        for each in report.not_cleaned:
            # A real pass marks the partition uncleanable.
            if each.reason == "uncleanable" and cleaner_view(broker, tp).uncleanable is None:
                request.context.partitions.note_damage(tp, Damaged(each.text, None))
        return report.to_json()

    def find_loss() -> Loss:
        if not force:
            return NOTHING_LOST
        with request.context.cleaning_lock.hold():
            return lost_by_forced_cleaning(broker.cleaner, broker.log(*tp), roll=rolls)

    flags = [flag for flag, is_on in (("--force", force), ("--roll", rolls)) if is_on]
    return _perform(
        request,
        of_partition(broker, "clean", tp, flags=flags, timed=True),
        partial(run, dry_run=False),
        dry_run=partial(run, dry_run=True),
        find_loss=find_loss,
    )


def retain(request: ApiRequest) -> object:
    """Apply retention to a partition once."""
    tp = request.topic_partition("delete")
    broker = request.broker
    run = partial(broker.retain, tp.topic, tp.partition)

    def find_loss() -> Loss:
        refuse_assumed_policy(broker.manager, tp)
        (decision,) = run(dry_run=True).decisions
        return lost_by_retention(broker.log(*tp), decision)

    # The command needs --policy here, because it deletes nothing under an assumed policy.
    is_assumed = policy_assumption(broker.manager, tp.topic) is not None
    policy = to_text(broker.manager.catalog.config(tp.topic).cleanup_policy)
    options = [("--config", f"cleanup.policy={policy}")] if is_assumed else []
    return _perform(
        request,
        of_partition(broker, "retain", tp, options=options, timed=True),
        lambda: run().to_json(),
        dry_run=lambda: run(dry_run=True).to_json(),
        find_loss=find_loss,
    )


def delete_records(request: ApiRequest) -> object:
    """Delete the records of a partition before an offset."""
    tp = request.topic_partition("delete")
    before = request.member("before_offset", int)
    request.check_number("before_offset", before, -1, INT64_MAX)
    broker = request.broker
    log = broker.log(*tp)
    log.deletion_end(before)  # raises the same errors as the deletion

    def result_json(low_watermark: int) -> object:
        return {"partitions": [DeleteRecordsResult(low_watermark).to_json(tp)]}

    return _perform(
        request,
        of_partition(broker, "delete-records", tp, options=[("--before-offset", str(before))]),
        lambda: result_json(broker.manager.delete_records(tp, before)),
        dry_run=lambda: result_json(max(log.log_start_offset, log.deletion_end(before))),
        find_loss=lambda: lost_by_delete_records(log, before),
    )


def retry(request: ApiRequest) -> object:
    """Clear the uncleanable flag of a partition, so that the cleaner retries it."""
    tp = request.topic_partition("alter")
    broker = request.broker
    return _perform(
        request,
        # The command has no uncleanable partitions: it always cleans.
        of_partition(broker, "clean", tp, timed=True),
        lambda: {**tp._asdict(), "was_uncleanable": broker.cleaner.retry(tp)},
        dry_run=lambda: {
            **tp._asdict(),
            "was_uncleanable": cleaner_view(broker, tp).uncleanable is not None,
        },
    )


_PARTITION = "/api/partitions/{topic}/{partition}"

ROUTES = (
    post(
        "/api/topics",
        create_topic,
        "name",
        "partitions",
        "configs",
        "dry_run",
        "confirm",
        action=Action("create-topic", "create", "topic"),
        allows_dry_run=True,
    ),
    post(
        "/api/topics/{topic}/configs",
        alter_topic,
        "set",
        "unset",
        "confirm",
        action=Action("alter-configs", "alter_configs", "topic"),
    ),
    post(
        "/api/topics/{topic}",
        delete_topic,
        "confirm",
        action=Action("delete-topic", "delete", "topic"),
        method="DELETE",
    ),
    post(
        "/api/broker/configs",
        alter_broker,
        "set",
        "unset",
        "cluster_wide",
        "confirm",
        action=Action("alter-broker-configs", "alter_configs", "cluster"),
    ),
    *(
        post(
            f"{_PARTITION}/{name}",
            call,
            *members,
            "dry_run",
            "confirm",
            action=Action(name, operation, "topic"),
            allows_dry_run=True,
        )
        for name, call, operation, members in (
            ("roll", roll, "alter", ()),
            ("clean", clean, "alter", ("force", "roll")),
            ("retain", retain, "delete", ()),
            ("delete-records", delete_records, "delete", ("before_offset",)),
            ("retry", retry, "alter", ()),
        )
    ),
)
