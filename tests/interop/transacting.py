"""Random histories of transactional producers of both versions, as requests of their clients."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from logstore.coordinator.records import partition_for
from logstore.coordinator.transactions.state import (
    LAST_EPOCH,
    TransactionMetadata,
    TransactionState,
    encode_key,
    encode_value,
)
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import INT16_MAX
from tests.support.interop.answers import Side, errors_in
from tests.support.interop.two_clusters import (
    ANY,
    PARTITIONS,
    Call,
    Client,
    Fields,
    Route,
    draw_version,
    produce_fields,
)

TIMEOUT_MS = 3000
"""Timeout of the transactions that are left open; the others have ten minutes."""

LONG_MS = 600_000

REUSES = 0.1
"""How often an old producer begins a transaction with a sequence of the previous one."""

NOW_MS = int(time.time() * 1000)
"""Time of all records: brokers forget producers whose last record is old."""

Steps = Generator[Call, Any, None]
"""Yields calls, and is sent their responses."""


@dataclass(eq=False)
class Producer:
    """A producer as its client knows it."""

    transactional_id: str | None
    name: str = ""
    epoch: int = -1
    is_v2: bool = False
    sequences: Counter[int] = field(default_factory=Counter)
    sent: dict[int, Callable[[Side], Fields]] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    ended: tuple[str, int] | None = None

    @property
    def is_early(self) -> bool:
        """Whether the first transaction of version 2 reuses an epoch of the old protocol."""
        return self.is_v2 and self.ended == (self.name, self.epoch)

    def renew(self, answer: Fields) -> None:
        """Continue with the id and epoch of a response."""
        if (answer["producerId"], answer["producerEpoch"]) != (self.name, self.epoch):
            self.name, self.epoch = answer["producerId"], answer["producerEpoch"]
            self.sequences.clear()
        self.close()

    def close(self) -> None:
        """Forget the transaction, which has ended."""
        self.added.clear()
        self.groups.clear()
        self.sent.clear()

    def copy(self) -> Producer:
        """Return another instance of the client, with the same knowledge."""
        return replace(
            self,
            sequences=Counter(self.sequences),
            sent=dict(self.sent),
            added=set(self.added),
            groups=set(self.groups),
        )


class History:
    """One seed's history: the requests of one or two producers.

    Parameters
    ----------
    seed : int
    topic : str
        The data topic of the round.
    broker : int
        The broker that will be killed.
    role : str
        The role of this broker for the history: `transaction`, `group` or `data`.
    versions : mapping
    """

    def __init__(
        self,
        seed: int,
        topic: str,
        broker: int,
        role: str,
        versions: Mapping[str, tuple[int, int]],
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.name = f"h{seed}"
        self.topic = topic
        self._versions = versions
        self._values = 0
        self.is_worn = role == "transaction" and rng.random() < 0.12
        ids = [self._key_of(broker if role == "transaction" else None, f"x{seed}")]
        if rng.random() < 0.35 and not self.is_worn:
            ids.append(self._key_of(None, f"y{seed}"))
        self.ids = ids
        self.groups = [self._key_of(broker if role == "group" else None, f"g{seed}")]
        if rng.random() < 0.4:
            self.groups.append(self._key_of(None, f"k{seed}"))
        self.numbers = [broker] if role == "data" else []
        self.numbers += [each for each in range(PARTITIONS) if each not in self.numbers]
        if rng.random() < 0.5:
            self.numbers.pop()
        self.has_idempotent = role == "data" and rng.random() < 0.5
        self.park_after = 2 if self.is_worn else rng.randint(1, 7)
        self.producers: list[Producer] = []
        self.steps: list[str] = []
        self.events: Counter[str] = Counter()
        self.is_urgent = self.is_slow = False
        self.moves = self.renewed_at = 0
        self.reuses: set[int] = set()
        self.early: set[bytes] = set()
        self.has_early_offsets = False
        self.urgent_since = 0.0
        self.run = self._run()

    def _key_of(self, broker: int | None, prefix: str) -> str:
        """Return a key whose coordinator is at first a broker, or any."""
        number = 0
        while broker is not None and partition_for(f"{prefix}.{number}", PARTITIONS) != broker:
            number += 1
        return f"{prefix}.{number}"

    def version(self, api: str, least: int = 0, most: int = 99) -> int:
        """Draw a version that both serve."""
        return draw_version(self.rng, self._versions, api, least, most)

    def _run(self) -> Steps:
        lives = [self._live(each) for each in self.ids]
        if self.has_idempotent:
            lives.append(self._live_without_transactions())
        yield from self._interleave(lives)
        for producer in self.producers:
            if producer.transactional_id is not None:
                answer = yield self._described(producer)
                if answer["transactionStates"][0]["transactionState"] == "Ongoing":
                    yield from self._init(producer)
        for group in self.groups:
            yield self._offsets_of(group)

    def _interleave(self, lives: list[Steps]) -> Steps:
        """Take steps of several producers in random order."""
        pending = [(each, next(each)) for each in lives]
        while pending:
            place = self.rng.randrange(len(pending))
            life, call = pending[place]
            while True:
                answer = yield call
                try:
                    call = life.send(answer)
                except StopIteration:
                    pending.pop(place)
                    break
                pending[place] = life, call
                if not call.is_urgent:
                    break

    # -- producers ---------------------------------------------------------------------------------

    def _live(self, transactional_id: str) -> Steps:
        rng = self.rng
        producer = Producer(transactional_id)
        self.producers.append(producer)
        yield from self._init(producer)
        if self.is_worn:
            yield from self._wear(producer)
        producer.is_v2 = self.is_worn or rng.random() < 0.5
        changes = rng.random() < 0.4
        for number in range(rng.randint(3, 5)):
            if changes:
                producer.is_v2 = rng.random() < 0.5
            if number and rng.random() < 0.2:
                yield from self._time_out(producer)
            else:
                yield from self._transact(producer)

    def _transact(self, producer: Producer) -> Steps:
        rng = self.rng
        self.events[f"transactions of version {2 if producer.is_v2 else 0}"] += 1
        yield from self._write(producer)
        for _ in range(rng.randint(0, 4)):
            yield from self._act(producer)
        draw = rng.random()
        if draw < 0.65:
            yield from self._end(producer, committed=rng.random() < 0.65)
        elif draw < 0.85:
            yield from self._fence(producer)
        else:
            yield from self._init(producer, expected=(producer.name, producer.epoch))
            self.events["renewed"] += 1

    def _act(self, producer: Producer) -> Steps:
        """Continue a transaction with a correct or wrong request."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.45:
            yield from self._write(producer)
        elif draw < 0.65:
            yield from self._commit_offsets(producer)
        elif draw < 0.8 and producer.sent:
            yield self._produce(producer, rng.choice(sorted(producer.sent)), again=True)
        elif draw < 0.86:
            yield from self._send(producer, rng.choice(self.numbers), gap=rng.choice((1, 7)))
        elif draw < 0.93:
            other = producer.copy()
            other.epoch = min(max(0, producer.epoch + rng.choice((-1, -1, 1, 5))), INT16_MAX)
            yield from self._attempt_as(other)
        elif not producer.is_v2:
            yield from self._send(producer, rng.choice(self.numbers))

    def _attempt_as(self, other: Producer) -> Steps:
        """Send a request of another epoch."""
        draw = self.rng.random()
        number = self.rng.choice(self.numbers)
        if draw < 0.3:
            yield self._produce(other, number)
        elif draw < 0.5 and not other.is_v2:
            yield self._add(other, number)
        elif draw < 0.7:
            yield from self._commit_offsets(other)
        else:
            yield self._end_call(other, committed=self.rng.random() < 0.5)

    def _write(self, producer: Producer, *, is_urgent: bool = False) -> Steps:
        number = self.rng.choice(self.numbers)
        if not producer.is_v2 and number not in producer.added:
            answer = yield replace(self._add(producer, number), is_urgent=is_urgent)
            if not any(errors_in(answer)):
                producer.added.add(number)
                if producer.sequences[number] and self.rng.random() < REUSES:
                    self.events["sequence used again"] += 1
                    yield from self._send(producer, number, gap=-1)
                    self.reuses.add(number)
        yield from self._send(producer, number, is_urgent=is_urgent)

    def _send(
        self, producer: Producer, number: int, *, gap: int = 0, is_urgent: bool = False
    ) -> Steps:
        """Send a batch of one record, with a gap in the sequence or none."""
        call = replace(self._produce(producer, number, gap=gap), is_urgent=is_urgent)
        if producer.is_early:
            self.early.add(f"{self.name}/{self._values}".encode())
        answer = yield call
        if not any(errors_in(answer)):
            producer.added.add(number)
            producer.sequences[number] += gap + 1
            producer.sent[number] = call.build

    def _commit_offsets(self, producer: Producer, *, is_urgent: bool = False) -> Steps:
        group = self.rng.choice(self.groups)
        if not producer.is_v2 and group not in producer.groups:
            answer = yield replace(self._add_offsets(producer, group), is_urgent=is_urgent)
            if not any(errors_in(answer)):
                producer.groups.add(group)
        self.has_early_offsets |= producer.is_early
        answer = yield replace(self._txn_offset_commit(producer, group), is_urgent=is_urgent)
        if not any(errors_in(answer)):
            producer.groups.add(group)

    def _end(self, producer: Producer, *, committed: bool) -> Steps:
        """End a transaction; sometimes repeat the request, or send the opposite one."""
        rng = self.rng
        former = producer.copy()
        answer = yield self._end_call(producer, committed=committed)
        if not any(errors_in(answer)):
            if producer.is_v2:
                producer.renew(answer)
            else:
                producer.ended = producer.name, producer.epoch
            producer.close()
        if rng.random() < 0.35:
            self.events["end repeated"] += 1
            same = rng.random() < 0.7
            yield self._end_call(former, committed=committed if same else not committed)

    def _fence(self, producer: Producer) -> Steps:
        """Initialize the id again; the fenced producer sends some more requests."""
        former = producer.copy()
        yield from self._init(producer)
        self.events["fence"] += 1
        for _ in range(self.rng.randint(1, 3)):
            yield from self._attempt_as(former)

    def _time_out(self, producer: Producer) -> Steps:
        """Wait for the timeout of a transaction; its producer sends some more requests."""
        rng = self.rng
        yield from self._init(producer, TIMEOUT_MS)
        yield from self._write(producer, is_urgent=True)
        if rng.random() < 0.5:
            yield from self._commit_offsets(producer, is_urgent=True)
        moves = self.moves
        yield self._described(producer, {"CompleteAbort"})
        self.events["timeout"] += 1
        former = producer.copy()
        for _ in range(rng.randint(0, 2)):
            yield from self._attempt_as(former)
        # A coordinator forgets the former epoch when it moves, perhaps before the abort.
        if rng.random() < 0.5 and self.moves == moves:
            yield from self._init(producer, expected=(former.name, former.epoch))
        yield from self._init(producer)

    def _wear(self, producer: Producer) -> Steps:
        """Store a state with one of the last epochs, for the next coordinator."""
        self.events["worn"] += 1
        epoch = LAST_EPOCH - self.rng.randint(0, 2)
        transactional_id = producer.transactional_id
        assert transactional_id is not None
        number = partition_for(transactional_id, PARTITIONS)

        def store(client: Client) -> Any:
            producer_id = client.value_of(producer.name)
            metadata = TransactionMetadata(
                transactional_id,
                producer_id,
                epoch,
                LONG_MS,
                TransactionState.EMPTY,
                last_update_ms=int(time.time() * 1000),
                previous_producer_id=producer_id,
            )
            key, value = encode_key(transactional_id), encode_value(metadata)
            client.nodes.write_state(number, build_batch([Record(0, NOW_MS, key, value)]))
            return {"errorCode": 0}

        yield Call("a state of the last epochs", 0, lambda _: {}, ANY, store=store)
        producer.epoch = epoch

    def _live_without_transactions(self) -> Steps:
        """Send batches of an idempotent producer, repeat some, leave gaps."""
        rng = self.rng
        producer = Producer(None)
        self.producers.append(producer)
        yield from self._init(producer)
        for _ in range(rng.randint(4, 10)):
            number = rng.choice(self.numbers)
            draw = rng.random()
            if draw < 0.2 and number in producer.sent:
                yield self._produce(producer, number, again=True)
            elif draw < 0.3:
                yield from self._send(producer, number, gap=rng.choice((1, 7)))
            else:
                yield from self._send(producer, number)

    # -- requests ----------------------------------------------------------------------------------

    def _sender(self, known: Producer, side: Side) -> Fields:
        """Return the fields that name the producer of a transaction."""
        producer_id, epoch = self._identity(known, side)
        return {
            "transactional_id": known.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    def _identity(self, producer: Producer, side: Side) -> tuple[int, int]:
        return side.value_of(producer.name), producer.epoch

    def _init(
        self,
        producer: Producer,
        timeout_ms: int = LONG_MS,
        expected: tuple[str, int] | None = None,
    ) -> Steps:
        version = self.version("InitProducerId", least=0 if expected is None else 3)
        transactional_id = producer.transactional_id

        def build(side: Side) -> Fields:
            fields: dict[str, Any] = {
                "transactional_id": transactional_id,
                "transaction_timeout_ms": timeout_ms,
            }
            if expected is not None:
                fields["producer_id"] = side.value_of(expected[0])
                fields["producer_epoch"] = expected[1]
            return fields

        if expected is not None:
            self.renewed_at = self.moves
        route = ANY if transactional_id is None else Route("transaction", transactional_id)
        answer = yield Call("InitProducerId", version, build, route, may_repeat=False)
        if not any(errors_in(answer)):
            producer.renew(answer)

    @staticmethod
    def begin_anew(transactional_id: str) -> Steps:
        """Initialize a transactional id, which ends its transaction."""
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": LONG_MS}
        yield Call("InitProducerId", 4, lambda _: fields, Route("transaction", transactional_id))

    def _add(self, producer: Producer, number: int) -> Call:
        def build(side: Side) -> Fields:
            producer_id, epoch = self._identity(known, side)
            return {
                "v3_and_below_transactional_id": known.transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": self.topic, "partitions": [number]}],
            }

        known = producer.copy()
        version = self.version("AddPartitionsToTxn", most=3)
        return Call(
            "AddPartitionsToTxn", version, build, Route("transaction", known.transactional_id)
        )

    def _produce(
        self, producer: Producer, number: int, *, again: bool = False, gap: int = 0
    ) -> Call:
        """Return a request with a batch of one record: a new one, or the last one again."""
        if again:
            build = producer.sent[number]
        else:
            self._values += 1
            record = Record(0, NOW_MS, None, f"{self.name}/{self._values}".encode())
            known = producer.copy()

            def build(side: Side) -> Fields:
                producer_id, epoch = self._identity(known, side)
                data = build_batch(
                    [record],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=known.sequences[number] + gap,
                    is_transactional=known.transactional_id is not None,
                )
                return produce_fields(self.topic, number, data, known.transactional_id)

        if producer.transactional_id is None:
            version = self.version("Produce", least=3, most=12)
        elif producer.is_v2:
            version = self.version("Produce", least=12, most=12)
        else:
            version = self.version("Produce", least=3, most=11)
        return Call("Produce", version, build, Route("leader", (self.topic, number)))

    def _add_offsets(self, producer: Producer, group: str) -> Call:
        known = producer.copy()

        def build(side: Side) -> Fields:
            return {
                **self._sender(known, side),
                "group_id": group,
            }

        version = self.version("AddOffsetsToTxn")
        return Call("AddOffsetsToTxn", version, build, Route("transaction", known.transactional_id))

    def _txn_offset_commit(self, producer: Producer, group: str) -> Call:
        known = producer.copy()
        offset = self.rng.randrange(1, 1000)
        number = self.rng.choice(self.numbers)

        def build(side: Side) -> Fields:
            request = {"partition_index": number, "committed_offset": offset}
            return {
                **self._sender(known, side),
                "group_id": group,
                "topics": [
                    {"name": self.topic, "partitions": [{**request, "committed_metadata": ""}]}
                ],
            }

        bounds = {"least": 5, "most": 5} if known.is_v2 else {"most": 4}
        version = self.version("TxnOffsetCommit", **bounds)
        return Call("TxnOffsetCommit", version, build, Route("group", group))

    def _end_call(self, producer: Producer, *, committed: bool) -> Call:
        known = producer.copy()

        def build(side: Side) -> Fields:
            return {
                **self._sender(known, side),
                "committed": committed,
            }

        bounds = {"least": 5, "most": 5} if known.is_v2 else {"most": 4}
        version = self.version("EndTxn", **bounds)
        return Call("EndTxn", version, build, Route("transaction", known.transactional_id))

    def _described(
        self,
        producer: Producer,
        states: Collection[str] = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"),
    ) -> Call:
        transactional_id = producer.transactional_id
        return Call(
            "DescribeTransactions",
            0,
            lambda _: {"transactional_ids": [transactional_id]},
            Route("transaction", transactional_id),
            lambda data: data["transactionStates"][0]["transactionState"] in states,
        )

    def _offsets_of(self, group: str) -> Call:
        version = self.version("OffsetFetch", least=7, most=9)
        topics = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
        if version >= 8:
            fields: Fields = {"groups": [{"group_id": group, "topics": topics}]}
        else:
            fields = {"group_id": group, "topics": topics}
        fields |= {"require_stable": True}
        return Call("OffsetFetch", version, lambda _: fields, Route("group", group))
