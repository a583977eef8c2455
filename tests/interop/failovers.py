"""Histories of transactions on three brokers of Kafka 4.3.1 and three of ours, with failures.

Both clusters have the same leaders. A round runs many histories at once: each stops at a random
step, a broker is killed on both sides, some requests being in flight, and the histories continue
while other brokers take over and the broker returns. A client finds its coordinator or leader
again and repeats its request, as clients do. The final responses and the end states must be equal.
Run by hand:

    python -m tests.interop.failovers 12 18 [SEED]           # rounds, histories of each
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from logstore.errors import KAFKA_CODES
from tests.interop.conversations import SETTINGS as QUIET
from tests.interop.transacting import TIMEOUT_MS, History
from tests.support.interop.answers import differences, errors_in
from tests.support.interop.judge import fast_scratch
from tests.support.interop.real_cluster import SIZE
from tests.support.interop.two_clusters import (
    CONNECTION_LOST,
    GROUPS,
    PARTITIONS,
    PATIENCE_S,
    PAUSE_S,
    TRANSACTIONS,
    Call,
    Client,
    KafkaCluster,
    Nodes,
    OurCluster,
    await_alive,
    await_registered,
    create_topic,
    describe,
    producers_of,
    read_log,
    settle,
    shared_versions,
)

SETTINGS = {
    **QUIET,
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "min.insync.replicas": "2",
    "default.replication.factor": str(SIZE),
}
"""Settings of both clusters."""

ROLES = ("transaction", "data", "group")
"""Roles of the killed broker, round after round."""

NAMES = {code: name for name, code in KAFKA_CODES.items()} | {CONNECTION_LOST: "connection lost"}


class Allowed(NamedTuple):
    """A known difference, after which a history ends.

    Attributes
    ----------
    is_meant : callable
        Takes the history, the call, Kafka's value and ours.
    """

    reason: str
    api: str
    path: str
    is_meant: Callable[[History, Call, Any, Any], bool]


FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

EARLY = (
    "Kafka answers EndTxn before it writes the markers: a batch or an offset of version 2 with the"
    " epoch of an old transaction may precede its marker, and shares its fate"
)

ALLOWED = [
    Allowed(
        "Kafka remembers the sequence of a first batch that it did not append, since it was a"
        " duplicate, and refuses later ones until the transaction ends",
        "Produce",
        r"errorCode$",
        lambda history, call, kafka, ours: (
            (kafka, ours) == (KAFKA_CODES["OUT_OF_ORDER_SEQUENCE_NUMBER"], 0)
            and call.route.key[1] in history.reuses
        ),
    ),
    Allowed(
        "Kafka fails when a producer requests its next epoch again, and this was the last one",
        "InitProducerId",
        r"\.(errorCode|producerId|producerEpoch)$",
        lambda history, call, kafka, ours: history.is_worn and kafka == -1,
    ),
    Allowed(
        "Kafka asks a producer that requests its next epoch during a transaction to repeat the"
        " request, and fences it if the coordinator has moved meanwhile",
        "InitProducerId",
        r"\.(errorCode|producerId|producerEpoch)$",
        lambda history, call, kafka, ours: (
            history.moves > history.renewed_at
            and kafka in (-1, *(KAFKA_CODES[name] for name in FENCED))
        ),
    ),
    Allowed(
        EARLY,
        "EndTxn",
        r"\.(errorCode|producerId|producerEpoch)$",
        lambda history, call, kafka, ours: (
            bool(history.early) and kafka in (KAFKA_CODES["INVALID_TXN_STATE"], -1)
        ),
    ),
    Allowed(
        EARLY,
        "OffsetFetch",
        r"\.(committedOffset|committedLeaderEpoch|metadata)$",
        lambda history, call, kafka, ours: history.has_early_offsets,
    ),
]
"""Known differences; no others are allowed. `EARLY` also concerns records."""


# -- rounds ----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Numbers of histories, failures, responses and differences."""

    histories: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    records: int = 0
    answers: dict[str, Counter[tuple[str, int, int]]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    used: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.histories} histories, killed {dict(self.kills)}, histories with"
            f" {dict(self.hits)}, {dict(self.events)}, requests in flight at a kill"
            f" {dict(self.in_flight)}, {self.slow} too slow, {self.records} records compared;"
            f" closed list: {dict(self.used)}; {len(self.differences)} differences;"
            f" {self.seconds:.0f} s"
        )

    def coverage(self) -> Iterator[str]:
        """Yield a line for each version of each API: the errors of both clusters."""
        keys = {key[:2] for answers in self.answers.values() for key in answers}
        for api, version in sorted(keys):
            parts = []
            for name, answers in self.answers.items():
                errors = {
                    NAMES[code]: count
                    for key, count in answers.items()
                    if key[:2] == (api, version)
                    for code in key[2:]
                }
                counts = [f"{error} {count}" for error, count in sorted(errors.items())]
                parts.append(f"{name} {', '.join(counts) or '-'}")
            yield f"{api} {version}: {'; '.join(parts)}"

    def versions_of(self, api: str) -> set[int]:
        """Return the versions of an API that both clusters responded to."""
        answers = self.answers.values()
        return set.intersection(
            *({version for name, version, _ in each if name == api} for each in answers)
        )


class Round:
    """Histories of which each is interrupted by the same kill.

    Parameters
    ----------
    kafka, ours : Nodes
    versions : mapping of str to (int, int)
        Versions of each API that both clusters serve.
    tally : Tally
        Gets the numbers and differences.
    number : int
        Number of the round, which determines the role of the killed broker.
    histories : int
    seed : int
    """

    def __init__(
        self,
        kafka: Nodes,
        ours: Nodes,
        versions: Mapping[str, tuple[int, int]],
        tally: Tally,
        number: int,
        histories: int,
        seed: int,
    ) -> None:
        self.rng = random.Random(seed)
        self.nodes = (kafka, ours)
        self.versions = versions
        self.tally = tally
        self.topic = f"t{number}"
        self.role = ROLES[number % len(ROLES)]
        self.broker = self.rng.randrange(SIZE)
        self._clients = self._clients_of(seed)
        self.histories = {
            History(seed * 1000 + each, self.topic, self.broker, self.role, versions): (
                self._clients_of(seed * 1000 + each)
            )
            for each in range(histories)
        }
        self._pending: dict[History, Pending] = {}
        self._parted: set[History] = set()

    def _clients_of(self, seed: int) -> tuple[Client, Client]:
        kafka, ours = (
            Client(nodes, self.versions, self.tally.answers[nodes.name], seed)
            for nodes in self.nodes
        )
        return kafka, ours

    def run(self, *, restarts: bool = True) -> None:
        """Run the round; differences are recorded.

        Parameters
        ----------
        restarts : bool
            Restart the broker while the last histories continue.

        Raises
        ------
        Difference
            A cluster does not settle.
        """
        create_topic(self._clients, self.topic)
        settle(self._clients, self.topics)
        for history in self.histories:
            self._pending[history] = Pending(next(history.run))
            self._run_to(history, history.park_after)
        parked = list(self._pending)
        self._kill(parked)
        if restarts:
            self._continue(len(parked) * 2 // 3)
            for nodes in self.nodes:
                nodes.begin_restart(self.broker)
            self._continue(len(parked) // 3)
            for nodes in self.nodes:
                nodes.await_restarted(self.broker)
            self.tally.hits["return"] += len(self._pending)
            self._move(self._pending)
            settle(self._clients, self.topics)
        self._continue(0)
        self._compare_logs(parked)
        for clients in (self._clients, *self.histories.values()):
            for client in clients:
                client.close()
        self.tally.histories += len(parked)
        for history in parked:
            self.tally.events.update(history.events)
            for event in ("fence", "timeout"):
                self.tally.hits[event] += event in history.events

    def _kill(self, parked: Sequence[History]) -> None:
        """Kill the broker, some requests being in flight."""
        self._send_some(parked)
        self._move(parked)
        for nodes in self.nodes:
            nodes.kill(self.broker)
        self.tally.kills[self.role] += 1
        self.tally.hits["kill"] += len(parked)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose leaders matter."""
        return GROUPS, TRANSACTIONS, self.topic

    @staticmethod
    def _move(histories: Iterable[History]) -> None:
        """Note that coordinators will move."""
        for history in histories:
            history.moves += 1

    def _send_some(self, parked: Sequence[History]) -> None:
        """Send requests whose responses the kill may prevent."""
        for history in parked:
            call = self._pending[history].call
            is_sent = call.may_repeat and call.is_done is None and not history.is_worn
            if is_sent and self.rng.random() < 0.6:
                self.tally.in_flight[call.api] += 1
                for client in self.histories[history]:
                    client.send(call)

    def _run_to(self, history: History, steps: int) -> None:
        """Run a history for some steps, and on to the next that is not urgent."""
        while history in self._pending and (steps > 0 or self._pending[history].call.is_urgent):
            if self._step(history):
                steps -= 1
            else:
                time.sleep(PAUSE_S)

    def _continue(self, most_left: int) -> None:
        """Continue the histories, in random order, until so many are left."""
        while len(self._pending) > most_left:
            moved = False
            for history in self.rng.sample(list(self._pending), len(self._pending)):
                moved |= self._step(history)
                while history in self._pending and self._pending[history].call.is_urgent:
                    if not self._step(history):
                        time.sleep(PAUSE_S)
            if not moved:
                time.sleep(PAUSE_S)

    def _step(self, history: History) -> bool:
        """Send a history's request unless it is in flight; return whether both responses came."""
        pending = self._pending[history]
        call = pending.call
        clients = self.histories[history]
        if not pending.answers:
            if call.is_urgent and not history.is_urgent:
                for client in self._clients:
                    await_alive(client, self.topics)
                history.urgent_since = time.monotonic()
            history.is_urgent = call.is_urgent
            pending.answers = [None, None]
            for client in clients:
                client.send_early(call)
        for place, client in enumerate(clients):
            if pending.answers[place] is None:
                pending.answers[place] = client.attempt(call)
        if call.is_urgent and time.monotonic() - history.urgent_since > TIMEOUT_MS / 1000:
            history.is_slow = True
        if None in pending.answers:
            if time.monotonic() < pending.deadline:
                return False
            late = [
                nodes.name
                for nodes, each in zip(self.nodes, pending.answers, strict=True)
                if each is None
            ]
            self._end_with(history, f"no response from {late} to {describe(call, clients[0])}")
            return True
        kafka, ours = pending.answers
        history.steps.append(f"{describe(call, clients[0])} -> {[*errors_in(kafka)]}")
        found = list(differences(kafka, ours))
        if reason := self._reason_for(history, call, found):
            self.tally.used[reason] += 1
            self._clean_up(history)
            return True
        if found:
            lines = [f"  {path}: Kafka {one!r}, here {other!r}" for path, one, other in found[:20]]
            self._end_with(history, "\n".join([f"{call.api} {call.version}", *lines]))
            return True
        try:
            self._pending[history] = Pending(history.run.send(kafka))
        except StopIteration:
            del self._pending[history]
        return True

    def _end_with(self, history: History, difference: str) -> None:
        self._note(history, difference)
        self._clean_up(history)

    def _clean_up(self, history: History) -> None:
        """End a history early. Its results are not compared."""
        del self._pending[history]
        self._parted.add(history)
        for transactional_id in history.ids:  # an open transaction would hide later records
            (call,) = History.begin_anew(transactional_id)
            for client in self.histories[history]:
                client.ask(call)

    def _note(self, history: History, difference: str) -> None:
        if history.is_slow:
            self.tally.slow += 1
            return
        lines = [f"{history.name} ({self.role} {self.broker}): {difference}"]
        lines += [f"    {step}" for step in history.steps[-14:]]
        self.tally.differences.append("\n".join(lines))

    @staticmethod
    def _reason_for(history: History, call: Call, found: Sequence[tuple[str, Any, Any]]) -> str:
        """Return the entry of the closed list that allows all differences, or nothing."""
        for each in ALLOWED:
            if found and all(
                call.api == each.api
                and re.search(each.path, path)
                and each.is_meant(history, call, kafka, ours)
                for path, kafka, ours in found
            ):
                return each.reason
        return ""

    def _compare_logs(self, histories: Sequence[History]) -> None:
        """Compare all and the committed values of each history, and the states of producers."""
        read = [
            [read_log(client, self.topic, number) for number in range(PARTITIONS)]
            for client in self._clients
        ]
        for history in histories:
            if history in self._parted:
                continue
            prefix = f"{history.name}/".encode()
            for number in range(PARTITIONS):
                kafka, ours = (
                    [[each for each in values if each.startswith(prefix)] for values in of[number]]
                    for of in read
                )
                self.tally.records += len(kafka[1])
                for isolation, one, other in zip(("committed", "all"), kafka, ours, strict=True):
                    if one != other and set(one) ^ set(other) <= history.early:
                        self.tally.used[EARLY] += 1
                        self._parted.add(history)
                    elif one != other:
                        self._note(
                            history,
                            f"{isolation} records of {self.topic}-{number}:"
                            f" Kafka {one}, here {other}",
                        )
        producers = [
            [producers_of(client, self.topic, number) for number in range(PARTITIONS)]
            for client in self._clients
        ]
        for history, clients in self.histories.items():
            if history in self._parted:
                continue
            for number in range(PARTITIONS):
                kafka, ours = (
                    {
                        name: of[number].get(client.value_of(name))
                        for name in {p.name for p in history.producers if p.name}
                    }
                    for client, of in zip(clients, producers, strict=True)
                )
                if kafka != ours:
                    self._note(
                        history,
                        f"producers of {self.topic}-{number}: Kafka {kafka}, here {ours}",
                    )


@dataclass(eq=False)
class Pending:
    """A history's next request, and the responses so far."""

    call: Call
    answers: list[Any] = field(default_factory=list)
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE_S)


# -- running ---------------------------------------------------------------------------------------


def run_rounds(
    home: Path,
    rounds: int,
    histories: int,
    seed: int = 1,
    say: Callable[[str], object] = lambda _: None,
) -> Tally:
    """Start both clusters, and run rounds of histories on them; return the tally.

    Parameters
    ----------
    home : Path
    rounds, histories : int
        Number of rounds, and of the histories in each.
    seed : int
    say : callable
        Gets a line after each round.

    Raises
    ------
    Unavailable
    Difference
        A cluster does not settle.
    """
    tally = Tally()
    began = time.monotonic()
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaCluster(home / "kafka", SETTINGS))
        ours = stack.enter_context(OurCluster(home / "ours", SETTINGS))
        versions = shared_versions((kafka, ours))
        _create_internal_topics((kafka, ours), versions)
        for number in range(rounds):
            each = Round(kafka, ours, versions, tally, number, histories, seed * 100 + number)
            each.run(restarts=number + 1 < rounds or rounds >= len(ROLES))
            tally.seconds = time.monotonic() - began
            say(f"round {number}: {tally}")
    return tally


def _create_internal_topics(
    clusters: Sequence[Nodes], versions: Mapping[str, tuple[int, int]]
) -> None:
    """Create the topics of the coordinators, so that both clusters have the same leaders."""
    clients = [Client(nodes, versions, Counter(), 0) for nodes in clusters]
    for client in clients:
        await_registered(client)
    for name in (GROUPS, TRANSACTIONS):
        create_topic(clients, name, {"cleanup.policy": "compact", "min.insync.replicas": "2"})
    for client in clients:
        client.close()


def main(arguments: list[str]) -> None:
    """Run rounds; print the coverage and the differences."""
    rounds, histories, *rest = map(int, arguments)
    with tempfile.TemporaryDirectory(dir=fast_scratch()) as home:
        tally = run_rounds(Path(home), rounds, histories, *rest, say=_write)
    for line in (*tally.coverage(), *tally.differences, str(tally)):
        _write(line)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
