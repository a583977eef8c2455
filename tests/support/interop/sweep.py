"""A sweep: each client performs the same actions on a listener; then the broker is checked.

The clients are programs, in `tests/interop/sweep` and, for Java, `broker.Sweep`. Each gets an
address, does the actions of `ACTIONS` in their order and prints a line of JSON for each (see
`tests/interop/sweep/reporting.py`). The actions:

produce
    100 records `0` to `99`, each filled up with blanks to 100 characters, with key `k` and header
    `h=x`, by gzip to partition 0 of `written`.
idempotent
    20 records `0` to `19`, one at a time, to `once`. The first answer is lost on its way.
transaction
    As `booking-1` write c0 to c9 to `booked` and offset 7 of `transfers` for group `booking`, and
    commit; write a0 to a9 and abort; write d0 and commit. Read `booked`, read_committed.
group
    Read all of `events` as group `readers`, and commit.
rebalance
    One member of `pair` gets all of `events`, with a second one each gets half; the second leaves.
delete_records
    Delete the records below 12 in `old`; request its first offset.
configs
    Ask for `retention.ms` of `configured`, set it to 12345, and ask again.
acls
    Let ann read and bob write topics that begin with `orders-`; list; delete bob's; list.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from logstore import Broker, TopicPartition
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.security.authorizer import Authorizer
from logstore.wire.limits import Limits
from logstore.wire.listener import Listener
from logstore.wire.versions import MINIMUM, SERVED, Versions
from tests.support.interop.judge import Unavailable

PROGRAM_TIMEOUT_S = 400
"""More than ten times the slowest program's time."""

TABLES: Mapping[str, Mapping[str, Versions]] = {"recommended": SERVED, "minimum": MINIMUM}

TOPICS = {
    "written": 1,
    "once": 1,
    "booked": 1,
    "transfers": 1,
    "events": 4,
    "old": 1,
    "configured": 1,
}
"""Topics that exist when a client starts, and their numbers of partitions."""

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
}

_COMMITTED = [*(f"c{number}" for number in range(10)), "d0"]
_ABORTED = [f"a{number}" for number in range(10)]
_EVENTS = sorted(f"{partition}-{number}" for partition in range(4) for number in range(25))

EXPECTED: Mapping[str, Any] = {
    "produce": {"first": 0},
    "idempotent": {},
    "transaction": {"read": _COMMITTED},
    "group": {"read": _EVENTS},
    "rebalance": {"sizes": [[4], [2, 2], [4]]},
    "delete_records": {"low": 12, "earliest": 12},
    "configs": {"before": "604800000", "after": "12345"},
    "acls": {"created": ["User:ann", "User:bob"], "left": ["User:ann"]},
}
"""Expected result of each action for a client."""

LEFT: Mapping[str, Any] = {
    "produce": {
        "records": [("k", f"{number:<100}", [("h", b"x")]) for number in range(100)],
        "codecs": {"GZIP"},
    },
    "idempotent": {
        "values": [str(number) for number in range(20)],
        "have_producer": True,
        "answers_lost": 1,
    },
    "transaction": {
        "committed": _COMMITTED,
        "all": [*_COMMITTED[:-1], *_ABORTED, "d0"],
        "offset": 7,
    },
    "group": {"offsets": [25, 25, 25, 25], "state": "Empty"},
    "rebalance": {"state": "Empty", "members": 2},
    "delete_records": {"log_start": 12, "values": [str(number) for number in range(12, 20)]},
    "configs": {"retention.ms": "12345"},
    "acls": ["User:ann READ PREFIXED orders-"],
}
"""Expected contents of the broker after each action."""

ACTIONS = tuple(EXPECTED)


class Client(NamedTuple):
    """A client, and the function that builds its program's command.

    Attributes
    ----------
    name : str
        As the ids of tests have it.
    title : str
        For people, with the version.
    prepare : callable
        Builds the client and returns the command without the address, and additional environment
        variables. Raises `Unavailable`.
    """

    name: str
    title: str
    prepare: Callable[[], tuple[Sequence[str], Mapping[str, str]]]


class SweepResult(NamedTuple):
    """The result of a sweep.

    Attributes
    ----------
    reports : dict
        The client's line, by action; see `reporting.py`.
    left : dict
        The broker's state afterwards, by action, as in `LEFT`.
    path : Path
        The data directory, closed.
    said : str
        The end of the program's standard error.
    end_versions : set of int
        Versions of the EndTxn requests.
    producer : ProducerIdAndEpoch
        Producer of `booking-1` in the end.
    """

    reports: Mapping[str, Mapping[str, Any]]
    left: Mapping[str, Any]
    path: Path
    said: str
    end_versions: set[int]
    producer: ProducerIdAndEpoch


def sweep(
    client: Client,
    table: str,
    path: Path,
    prepare: Callable[[Broker, Listener], object] = lambda broker, listener: None,
) -> SweepResult:
    """Run a client's program against a listener over a new data directory.

    `prepare` is called before the program starts.

    Raises
    ------
    Unavailable
        A dependency of the client is not installed.
    """
    command, environment = client.prepare()
    authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    with (
        Broker(path, broker_config=SETTINGS) as broker,
        broker.listen(
            authorizer=authorizer,
            versions=TABLES[table],
            auto_create=False,
            limits=Limits(remembered_requests=100_000),
        ) as listener,
    ):
        _fill(broker)
        lost = listener.fail("Produce", topic="once", drop=True, after=True, times=1)
        prepare(broker, listener)
        printed, said = _run([*command, listener.bootstrap], {**os.environ, **environment})
        left = _left(broker, listener, authorizer, lost.hits)
        end_versions = {each.version for each in listener.requests if each.api == "EndTxn"}
        producer = broker.coordinator.transactions()["booking-1"].producer
    reports = {}
    for line in printed.splitlines():
        report = json.loads(line)
        reports[report.pop("action")] = report
    return SweepResult(reports, left, path, said[-3000:], end_versions, producer)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """Return a program's output and errors; a program that hangs is killed."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        return process.communicate(timeout=PROGRAM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, said = process.communicate()
        return printed, f"{said}\nIt was ended after {PROGRAM_TIMEOUT_S} s."


def sweeps(
    clients: Sequence[Client], home: Path
) -> dict[tuple[str, str], SweepResult | Unavailable]:
    """Sweep with all clients and both tables, some side by side: they wait most of their time."""

    def one(client: Client, table: str) -> SweepResult | Unavailable:
        try:
            return sweep(client, table, home / f"{client.name}-{table}")
        except Unavailable as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        started = {
            (client.name, table): pool.submit(one, client, table)
            for client in clients
            for table in TABLES
        }
        return {key: future.result() for key, future in started.items()}


def _fill(broker: Broker) -> None:
    for topic, partitions in TOPICS.items():
        broker.create_topic(topic, partitions)
    for number in range(20):
        broker.append("old", key=b"k", value=b"%d" % number)
        broker.append("transfers", key=b"k", value=b"%d" % number)
    for partition in range(4):
        for number in range(25):
            value = b"%d-%d" % (partition, number)
            broker.append("events", key=None, value=value, partition=partition)


def _left(broker: Broker, listener: Listener, authorizer: Authorizer, lost: int) -> dict[str, Any]:
    """Return the broker's contents, in the format of `LEFT`."""

    def values(topic: str, **options: Any) -> list[str]:
        return [record.value.decode() for record in broker.read(topic, 0, **options)]

    def committed(group: str, topic: str) -> list[int]:
        offsets = broker.groups.committed(group)
        return [
            offsets[tp].offset
            for number in range(TOPICS[topic])
            if (tp := TopicPartition(topic, number)) in offsets
        ]

    written = broker.log("written").reader.batches(0)
    once = [batch.header for batch in broker.log("once").reader.batches(0)]
    joined = {
        request.body.member_id
        for request in listener.requests
        if request.api == "SyncGroup" and request.body.group_id == "pair"
    }
    return {
        "produce": {
            "records": [
                (record.key.decode(), record.value.decode(), list(record.headers))
                for record in broker.read("written", 0)
            ],
            "codecs": {batch.codec.name for batch in written},
        },
        "idempotent": {
            "values": values("once"),
            "have_producer": all(header.producer_id >= 0 for header in once),
            "answers_lost": lost,
        },
        "transaction": {
            "committed": values("booked", isolation="read_committed"),
            "all": values("booked", isolation="read_uncommitted"),
            "offset": sum(committed("booking", "transfers")),
        },
        "group": {
            "offsets": committed("readers", "events"),
            "state": broker.groups.describe("readers").state,
        },
        "rebalance": {"state": broker.groups.describe("pair").state, "members": len(joined)},
        "delete_records": {
            "log_start": broker.log("old").log_start_offset,
            "values": values("old"),
        },
        "configs": {"retention.ms": broker.describe_configs("configured")["retention.ms"].value},
        "acls": [
            f"{acl.principal} {acl.operation.name} {acl.pattern_type.name} {acl.resource_name}"
            for acl in authorizer.acls()
        ],
    }
