"""`logstore serve`: serve clients over Kafka's wire protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from logstore.cli.listener_options import ListenerOptions, listener_options
from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    command,
    listen_option,
    to_address,
    to_pairs,
    to_racks,
    topic_overrides,
)
from logstore.cli.schema_option import schema_option
from logstore.cli.show.output import note, plural
from logstore.cli.stopping import Stopping
from logstore.security.acls import ANONYMOUS

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.broker.plugins import PageSettings
    from logstore.cluster import Cluster, ClusterTopic
    from logstore.inspect.schemas.files import SchemaFiles
    from logstore.manager.topics.store import Topic
    from logstore.runtime import Clock

DEFAULT_ADDRESS = "127.0.0.1:9092"


class WantedTopic(NamedTuple):
    """A topic to create before the first client connects."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


def to_topics(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[WantedTopic, ...]:
    """Parse a repeated NAME[:PARTITIONS[:K=V]…]."""
    topics = []
    for value in values:
        name, _, rest = value.partition(":")
        number, *pairs = rest.split(":") if rest else ["1"]
        if not name or not (number.isascii() and number.isdigit() and int(number)):
            raise click.BadParameter(f"{value!r} is not NAME:PARTITIONS:K=V", ctx, param)
        topics.append(WantedTopic(name, int(number), to_pairs(ctx, param, pairs)))
    return tuple(topics)


@command(
    "serve",
    examples=[
        "logstore serve --memory --listen 127.0.0.1:0",
        "logstore serve --data-dir ./kafka-logs --topic users:3:cleanup.policy=compact",
        "logstore serve --memory --brokers 3 --topic users:6:min.insync.replicas=2",
        "logstore serve --memory --sasl-users users.txt --acl 'User:ann all topic:*'",
    ],
)
@listen_option(DEFAULT_ADDRESS)
@click.option(
    "--brokers",
    "count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Serve a cluster of N brokers with replication, on the port of --listen and the ports "
    "after it. Each broker has a subdirectory of the data directory.",
)
@click.option(
    "--racks",
    callback=to_racks,
    metavar="RACK,…",
    help="Rack of each broker, separated by commas. With replica.selector.class set to Kafka's "
    "RackAwareReplicaSelector, consumers with a rack read from followers.",
)
@click.option("--memory", is_flag=True, help="Keep all data in memory and write nothing to disk.")
@click.option(
    "--topic",
    "topics",
    callback=to_topics,
    multiple=True,
    metavar="NAME:PARTITIONS:K=V",
    help="Create a topic with its configuration if it does not exist. Can be repeated.",
)
@click.option(
    "--no-auto-create",
    is_flag=True,
    help="Do not create topics automatically when clients refer to them.",
)
@click.option(
    "--ui",
    "page_address",
    callback=to_address,
    metavar="HOST:PORT",
    help="Also serve a web page to inspect and operate the broker; port 0 picks a free port. "
    "With several brokers, each has a page, on this port and the ports after it.",
)
@click.option(
    "--ui-principal",
    default=ANONYMOUS,
    show_default=True,
    metavar="PRINCIPAL",
    help="Principal of the web page, to which ACLs apply.",
)
@schema_option
@accept_data_loss_option
@listener_options
def serve(
    settings: Settings,
    address: tuple[str, int],
    count: int,
    racks: tuple[str, ...] | None,
    memory: bool,  # as click passes it
    topics: tuple[WantedTopic, ...],
    no_auto_create: bool,  # as click passes it
    page_address: tuple[str, int] | None,
    ui_principal: str,
    schemas: SchemaFiles,
    **listener: Any,  # the fields of `ListenerOptions`
) -> None:
    """Serve Kafka clients in any language until SIGTERM or Ctrl-C.

    The first line on standard output is the bootstrap address (with several brokers, a
    comma-separated list). With --ui, the next lines are the URLs of the web pages, including an
    access token. The cleaner and retention run in the background. With several brokers, topics have
    up to three replicas, unless default.replication.factor or a client sets another number.

    Without users, any client that can reach the address may connect. Without ACLs, any client may
    perform any operation.
    """
    if schemas and page_address is None:
        raise click.UsageError("--schema decodes values on the page: it needs --ui")
    with Stopping() as stopping:
        opened = _opened(ListenerOptions(**listener), address[0])
        opened["auto_create"] = not no_auto_create
        served: Broker | Cluster[Clock]
        if count == 1 and racks is None:
            served = settings.open_broker(create=True, background=True, in_memory=memory)
        else:
            served = settings.open_cluster(count, in_memory=memory, racks=racks)
        with served:
            for topic in topics:
                _create(served, topic)
            with served.listen(*address, **opened) as listening:
                print(listening.bootstrap, flush=True)
                if page_address is not None:
                    settings_of_page: PageSettings = {
                        "authorizer": opened["authorizer"],
                        "principal": ui_principal,
                        "schemas": schemas,
                    }
                    pages = _pages(served, page_address, settings_of_page)
                    print("\n".join(pages), flush=True)
                stopping.wait()


def _pages(
    served: Broker | Cluster[Clock],
    address: tuple[str, int],
    settings: PageSettings,
) -> list[str]:
    """Start each broker's web page and return the URLs. A page closes with its broker."""
    from logstore.broker import Broker

    host, port = address
    brokers = [served] if isinstance(served, Broker) else list(served.brokers.values())
    return [
        broker.ui(host, port + number if port else 0, **settings).url
        for number, broker in enumerate(brokers)
    ]


def _opened(options: ListenerOptions, host: str) -> dict[str, Any]:
    """Check the listener options and return them as arguments of `listen`."""
    sasl, authorizer = options.sasl(), options.authorizer()
    if authorizer is not None and sasl is None:
        note("no authentication: every client is User:ANONYMOUS")
    return {"sasl": sasl, "authorizer": authorizer, "tls": options.tls(host)}


def _create(served: Broker | Cluster[Clock], wanted: WantedTopic) -> None:
    known: dict[str, Topic | ClusterTopic] = {topic.name: topic for topic in served.topics()}
    if wanted.name not in known:
        served.create_topic(wanted.name, wanted.partitions, topic_overrides(wanted.configs))
        return
    partitions = plural(len(known[wanted.name].partitions), "partition")
    note(f"topic {wanted.name} already exists with {partitions}; it is not changed")
