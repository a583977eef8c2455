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
from logstore.analysis.preview import lost_by_settings, suppose_broker, suppose_topic
from logstore.analysis.reports import changes_between, deleted_json, rolled_json, segment_sizes
from logstore.analysis.view import Damaged
from logstore.clients.results import DeleteRecordsResult
from logstore.config.dynamic import Layer, changes_of
from logstore.config.keys import to_text
from logstore.config.overrides import alter_overrides
from logstore.errors import LogStoreError, TopicAlreadyExistsError
from logstore.names import validate_topic_name
from logstore.types import INT64_MAX
from logstore.ui.asking import Answer, post
from logstore.ui.context import Action
from logstore.ui.lines import alteration, broker_alteration, command_line, creation, of_partition
from logstore.ui.locks import refusal
from logstore.ui.settings import given_keys, given_settings
from logstore.wire.limits import Limits

if TYPE_CHECKING:
    from logstore.analysis.preview import Supposition
    from logstore.types import TopicPartition
    from logstore.ui.asking import Ask

PARTITIONS_MAX = Limits().partitions
"""Maximum number of partitions in a new topic, as in the wire protocol."""


# -- performing an operation -------------------------------------------------------------------


def _perform(
    ask: Ask,
    command: str | None,
    do: Callable[[], object],
    *,
    rehearse: Callable[[], object] | None = None,
    loses: Callable[[], Loss] = lambda: NOTHING_LOST,
    notes: tuple[str, ...] = (),
) -> object:
    """Perform an operation under the lock, or return its dry run or the loss to confirm.

    Parameters
    ----------
    command : str or None
        Equivalent command line, or None if there is none.
    do, rehearse : callable
        Perform the operation or a dry run. They return the JSON that the command line prints.
    loses : callable
        Returns the data that would be lost. Called under the lock.
    """
    token = ask.member("confirm", str, None)
    if rehearse is not None and ask.member("dry_run", bool, False):
        with ask.context.change_lock.hold():
            return {"done": rehearse(), "command": command, "notes": list(notes)}
    ask.context.check_writable()
    with ask.context.change_lock.hold():
        if loss := loses():
            # A re-created topic has a new id.
            ids = {part.topic: ask.broker.topic(part.topic).id for part in loss.parts}
            action = {"path": ask.address, "body": {**ask.body, "confirm": None}, "ids": ids}
            if token is None or not ask.context.change_lock.is_confirmed(token, action, loss):
                again = ask.context.change_lock.confirmation(action, loss)
                visible_loss = loss.visible_to(partial(ask.allows, "describe", "topic"))
                return Answer(409, refusal(visible_loss, again, command))
        done = do()
    return {"done": done, "command": command, "notes": list(notes)}


# -- topics ------------------------------------------------------------------------------------


def create_topic(ask: Ask) -> object:
    """Create a topic."""
    name = ask.member("name", str)
    if not ask.allows("create", "cluster"):
        ask.require("create", "topic", name)
    count = ask.member("partitions", int, 1)
    ask.check_number("partitions", count, 1, PARTITIONS_MAX)
    configs = given_settings(ask, "configs")
    broker = ask.broker
    validate_topic_name(name)
    overrides, notes = alter_overrides({}, configs, (), broker.broker_config)

    def rehearse() -> object:
        if any(topic.name == name and not topic.adopted for topic in broker.topics()):
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        return {"name": name, "partitions": count, "configs": dict(overrides)}

    return _perform(
        ask,
        creation(broker, name, count, configs),
        lambda: broker.create_topic(name, count, configs).to_json(),
        rehearse=rehearse,
        notes=notes,
    )


def alter_topic(ask: Ask) -> object:
    """Set and unset topic configs."""
    topic = ask.topic("alter_configs")
    given, unset = given_settings(ask, "set"), given_keys(ask, "unset")
    broker = ask.broker
    supposed = suppose_topic(broker.manager, topic, given, unset)

    def do() -> object:
        before = broker.describe_configs(topic)
        broker.alter_configs(topic, given, unset=unset)
        changed = changes_between(before, broker.describe_configs(topic))
        return {
            **broker.topic(topic).to_json(),
            "changed": [each.to_json() for each in changed],
        }

    return _perform(
        ask,
        alteration(broker, topic, given, unset),
        do,
        loses=partial(_lost_by_settings, ask, supposed),
        notes=supposed.notes,
    )


def delete_topic(ask: Ask) -> object:
    """Delete a topic."""
    topic = ask.topic("delete")
    broker = ask.broker

    def do() -> object:
        found = broker.topic(topic)
        sizes = [
            size for tp in broker.partitions(topic) for size in segment_sizes(broker.manager, tp)
        ]
        broker.delete_topic(topic)
        return deleted_json(found, sizes)

    def loses() -> Loss:
        return Loss.of_all(_lost_with(ask, each) for each in broker.partitions(topic))

    return _perform(ask, command_line(broker, "topic", "delete", names=[topic]), do, loses=loses)


def _lost_with(ask: Ask, topic_partition: TopicPartition) -> Loss:
    """Return the loss of an entire partition, estimated from file sizes if it cannot be opened."""
    try:
        return lost_with([ask.broker.log(topic_partition)])
    except LogStoreError:
        return lost_unread(ask.broker.manager, topic_partition)


def _lost_by_settings(ask: Ask, supposed: Supposition) -> Loss:
    """Return what retention would delete under the given settings, in all affected topics."""
    broker = ask.broker
    found = []
    for topic in supposed.configs:
        for tp in broker.partitions(topic):
            try:
                found.append(lost_by_settings(broker, supposed, tp))
            except LogStoreError:  # retention skips logs that cannot be opened
                continue
    return Loss.of_all(found)


# -- the broker --------------------------------------------------------------------------------


def alter_broker(ask: Ask) -> object:
    """Set and unset dynamic broker configs."""
    ask.require("alter_configs", "cluster")
    given, unset = given_settings(ask, "set"), given_keys(ask, "unset")
    cluster_wide = ask.member("cluster_wide", bool, False)
    changes = changes_of(given, unset)
    broker = ask.broker
    layer = Layer.CLUSTER if cluster_wide else Layer.BROKER
    supposed = suppose_broker(broker.manager, changes, layer)

    def do() -> object:
        before = broker.describe_broker_configs()
        broker.alter_broker_configs(changes, cluster_wide=cluster_wide)
        changed = changes_between(before, broker.describe_broker_configs())
        return {"changed": [each.to_json() for each in changed]}

    return _perform(
        ask,
        broker_alteration(broker, given, unset, cluster_wide=cluster_wide),
        do,
        loses=partial(_lost_by_settings, ask, supposed),
        notes=supposed.notes,
    )


# -- partitions --------------------------------------------------------------------------------


def roll(ask: Ask) -> object:
    """Roll the active segment."""
    tp = ask.topic_partition("alter")
    broker = ask.broker
    return _perform(
        ask,
        of_partition(broker, "roll", tp),
        lambda: rolled_json(tp, broker.roll(tp.topic, tp.partition)),
        rehearse=lambda: rolled_json(tp, broker.log(*tp).log_end_offset),
    )


def clean(ask: Ask) -> object:
    """Compact a partition that is due, or any partition with `force`."""
    tp = ask.topic_partition("alter")
    force, rolls = ask.member("force", bool, False), ask.member("roll", bool, False)
    broker = ask.broker
    options: dict[str, Any] = {"force": force, "roll": rolls}

    def run(*, dry_run: bool) -> object:
        with ask.context.cleaning_lock.hold():
            report = broker.clean(tp.topic, tp.partition, dry_run=dry_run, **options)
        for each in report.not_cleaned:
            # A real pass marks the partition uncleanable.
            if each.reason == "uncleanable" and cleaner_view(broker, tp).uncleanable is None:
                ask.context.partitions.note_damage(tp, Damaged(each.text, None))
        return report.to_json()

    def loses() -> Loss:
        if not force:
            return NOTHING_LOST
        with ask.context.cleaning_lock.hold():
            return lost_by_forced_cleaning(broker.cleaner, broker.log(*tp), roll=rolls)

    flags = [flag for flag, is_on in (("--force", force), ("--roll", rolls)) if is_on]
    return _perform(
        ask,
        of_partition(broker, "clean", tp, flags=flags, timed=True),
        partial(run, dry_run=False),
        rehearse=partial(run, dry_run=True),
        loses=loses,
    )


def retain(ask: Ask) -> object:
    """Apply retention to a partition once."""
    tp = ask.topic_partition("delete")
    broker = ask.broker
    run = partial(broker.retain, tp.topic, tp.partition)

    def loses() -> Loss:
        refuse_assumed_policy(broker.manager, tp)
        (decision,) = run(dry_run=True).decisions
        return lost_by_retention(broker.log(*tp), decision)

    # The command needs --policy here, because it deletes nothing under an assumed policy.
    is_assumed = policy_assumption(broker.manager, tp.topic) is not None
    policy = to_text(broker.manager.catalog.config(tp.topic).cleanup_policy)
    options = [("--config", f"cleanup.policy={policy}")] if is_assumed else []
    return _perform(
        ask,
        of_partition(broker, "retain", tp, options=options, timed=True),
        lambda: run().to_json(),
        rehearse=lambda: run(dry_run=True).to_json(),
        loses=loses,
    )


def delete_records(ask: Ask) -> object:
    """Delete the records of a partition before an offset."""
    tp = ask.topic_partition("delete")
    before = ask.member("before_offset", int)
    ask.check_number("before_offset", before, -1, INT64_MAX)
    broker = ask.broker
    log = broker.log(*tp)
    log.deletion_end(before)  # raises the errors of the deletion

    def result_json(low_watermark: int) -> object:
        return {"partitions": [DeleteRecordsResult(low_watermark).to_json(tp)]}

    return _perform(
        ask,
        of_partition(broker, "delete-records", tp, options=[("--before-offset", str(before))]),
        lambda: result_json(broker.manager.delete_records(tp, before)),
        rehearse=lambda: result_json(max(log.log_start_offset, log.deletion_end(before))),
        loses=lambda: lost_by_delete_records(log, before),
    )


def retry(ask: Ask) -> object:
    """Clear the uncleanable flag of a partition, so that the cleaner retries it."""
    tp = ask.topic_partition("alter")
    broker = ask.broker
    return _perform(
        ask,
        # The command has no uncleanable partitions: it always cleans.
        of_partition(broker, "clean", tp, timed=True),
        lambda: {**tp._asdict(), "was_uncleanable": broker.cleaner.retry(tp)},
        rehearse=lambda: {
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
        rehearsable=True,
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
            rehearsable=True,
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
