"""`logstore serve`: Kafka's wire protocol in front of a data directory, until told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from logstore.cli.doors import Door, door_options
from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    command,
    listen_option,
    to_address,
    to_pairs,
    topic_overrides,
)
from logstore.cli.show.output import note, plural
from logstore.cli.stopping import Stopping
from logstore.security.acls import ANONYMOUS

if TYPE_CHECKING:
    from logstore.broker import Broker, Topic
    from logstore.cluster import Cluster, ClusterTopic
    from logstore.runtime import Clock
    from logstore.security.authorizer import Authorizer

DEFAULT_ADDRESS = "127.0.0.1:9092"


class WantedTopic(NamedTuple):
    """A topic that is there when the first client comes."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


def to_topics(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[WantedTopic, ...]:
    """Return the topics of a repeated NAME[:PARTITIONS[:K=V]…]."""
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
    help="Serve a cluster of so many brokers that replicate, each at a port of its own: that of "
    "--listen and those after it. Each has a folder of its own in the data directory.",
)
@click.option("--memory", is_flag=True, help="Keep everything in memory, nothing on the disk.")
@click.option(
    "--topic",
    "topics",
    callback=to_topics,
    multiple=True,
    metavar="NAME:PARTITIONS:K=V",
    help="A topic to create if it is not there, with its configuration; repeatable.",
)
@click.option(
    "--no-auto-create",
    is_flag=True,
    help="Do not create the topics that clients ask for.",
)
@click.option(
    "--ui",
    "page_address",
    callback=to_address,
    metavar="HOST:PORT",
    help="Serve a page, too, that shows the broker in a browser and steers it; port 0 takes one "
    "that is free. Of several brokers each has one, at this port and those after it.",
)
@click.option(
    "--ui-principal",
    default=ANONYMOUS,
    show_default=True,
    metavar="PRINCIPAL",
    help="As whom the page acts, where there are ACLs.",
)
@accept_data_loss_option
@door_options
def serve(
    settings: Settings,
    address: tuple[str, int],
    count: int,
    memory: bool,  # as click gives it
    topics: tuple[WantedTopic, ...],
    no_auto_create: bool,  # as click gives it
    page_address: tuple[str, int] | None,
    ui_principal: str,
    **door: Any,  # the fields of `Door`
) -> None:
    """Serve Kafka's clients, in any language, until SIGTERM or Ctrl-C.

    The first line on standard output is the address for clients, or of several brokers their
    addresses, and nothing else; with --ui the next ones are the addresses of the pages, which end
    with a token. Topics are cleaned and expire in the background, as a broker's;
    those of several brokers have a replica on each, up to three, unless default.replication.factor
    or a client says otherwise. Without users everybody who can reach the
    address may come in, and without ACLs everybody who came in may do everything.
    """
    with Stopping() as stopping:
        opened = _opened(Door(**door), address[0])
        opened["auto_create"] = not no_auto_create
        served: Broker | Cluster[Clock]
        if count == 1:
            served = settings.open_broker(create=True, background=True, in_memory=memory)
        else:
            served = settings.open_cluster(count, in_memory=memory)
        with served:
            for topic in topics:
                _create(served, topic)
            with served.listen(*address, **opened) as listening:
                print(listening.bootstrap, flush=True)
                if page_address is not None:
                    pages = _pages(served, page_address, opened["authorizer"], ui_principal)
                    print("\n".join(pages), flush=True)
                stopping.wait()


def _pages(
    served: Broker | Cluster[Clock],
    address: tuple[str, int],
    authorizer: Authorizer | None,
    principal: str,
) -> list[str]:
    """Open the page of each broker, which closes with it, and return their addresses."""
    from logstore.broker import Broker

    host, port = address
    brokers = [served] if isinstance(served, Broker) else list(served.brokers.values())
    options = {"authorizer": authorizer, "principal": principal}
    return [
        broker.ui(host, port + number if port else 0, **options).url
        for number, broker in enumerate(brokers)
    ]


def _opened(door: Door, host: str) -> dict[str, Any]:
    """Return what the options make of a listener, before anything is opened."""
    sasl, authorizer = door.sasl(), door.authorizer()
    if authorizer is not None and sasl is None:
        note("nobody has to say who he is: the ACLs of User:ANONYMOUS and User:* are for all")
    return {"sasl": sasl, "authorizer": authorizer, "tls": door.tls(host)}


def _create(served: Broker | Cluster[Clock], wanted: WantedTopic) -> None:
    known: dict[str, Topic | ClusterTopic] = {topic.name: topic for topic in served.topics()}
    if wanted.name not in known:
        served.create_topic(wanted.name, wanted.partitions, topic_overrides(wanted.configs))
        return
    found = plural(len(known[wanted.name].partitions), "partition")
    note(f"topic {wanted.name} is there already, with {found}: it stays as it is")
