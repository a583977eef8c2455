"""Idempotent and transactional producers of a random log, always in order.

A story is generated before it runs, so no batch may be refused: each client tracks what the log may
know of it, including forgotten state, and takes a new epoch where that is uncertain. Refused
batches are the subject of `tests.interop.producing`.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, EndTxnMarker, build_end_txn_batch
from logstore.record.records import Record
from logstore.types import INT32_MAX

Operation = dict[str, Any]

NEW_COORDINATOR = 0.1
"""Probability that a marker comes from a newly elected coordinator."""

IDS = (0, 1, 2, 3, 7000, 2**40 + 1)


@dataclass
class Client:
    """A producer's own state."""

    producer_id: int
    transactional: bool
    epoch: int
    sequence: int
    """The sequence number of its next record."""

    is_open: bool = False
    is_forgotten: bool = False
    """Whether the log may know fewer or older batches than it sent."""

    def begin_epoch(self) -> None:
        """Start a new epoch, as after `InitProducerId`."""
        self.epoch += 1
        self.sequence = 0
        self.is_forgotten = False


class Clients:
    """The producers of one log.

    Parameters
    ----------
    rng : random.Random
    codecs : sequence of Codec
        Their codecs, one drawn for each batch.
    """

    def __init__(self, rng: random.Random, codecs: Sequence[Codec]) -> None:
        self._rng = rng
        self._codecs = codecs
        self._coordinator_epoch = 0
        near_wrap = rng.random() < 0.15
        self._clients = [
            Client(
                producer_id,
                transactional=rng.random() < 0.7,
                epoch=rng.choice((0, 0, 5)),
                sequence=INT32_MAX - rng.randrange(40) if near_wrap else 0,
            )
            for producer_id in rng.sample(IDS, rng.randint(2, len(IDS)))
        ]

    @property
    def has_open(self) -> bool:
        """Whether a transaction is open."""
        return any(client.is_open for client in self._clients)

    def forget(self) -> None:
        """Take into account that the log reads its producers from its batches again.

        The newest state of a producer may be lost but older state kept.
        """
        for client in self._clients:
            client.is_forgotten = True

    # -- operations ----------------------------------------------------------------------

    def produce(self, records: Sequence[Record]) -> Operation:
        """Append a batch of one client."""
        rng = self._rng
        client = rng.choice(self._clients)
        what = "transactional data" if client.transactional else "idempotent data"
        if not client.is_open and (client.is_forgotten or rng.random() < 0.06):
            client.begin_epoch()
            what = f"{what} of a new epoch"
        batch = build_batch(
            [record._replace(offset=offset) for offset, record in enumerate(records)],
            codec=rng.choice(self._codecs),
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=client.sequence,
            is_transactional=client.transactional,
        )
        client.sequence = (client.sequence + len(records)) & INT32_MAX
        client.is_open = client.transactional
        return _lead(what, "client", batch, client)

    def end(self, now_ms: int) -> Operation | None:
        """End an open transaction, if any."""
        open_now = [client for client in self._clients if client.is_open]
        if not open_now:
            return None
        client = self._rng.choice(open_now)
        client.is_open = False
        if client.is_forgotten or self._rng.random() < 0.15:
            client.begin_epoch()
            return self._marker(client, ControlType.ABORT, now_ms, "abort by a new epoch")
        kind = self._rng.choice((ControlType.COMMIT, ControlType.ABORT))
        return self._marker(client, kind, now_ms, kind.name.lower())

    def end_nothing(self, now_ms: int) -> Operation | None:
        """End a transaction without data here, if a client can."""
        idle = [client for client in self._clients if client.transactional and not client.is_open]
        if not idle:
            return None
        client = self._rng.choice(idle)
        client.begin_epoch()
        kind = self._rng.choice((ControlType.COMMIT, ControlType.ABORT))
        return self._marker(client, kind, now_ms, f"empty {kind.name.lower()}")

    def _marker(self, client: Client, kind: ControlType, now_ms: int, what: str) -> Operation:
        self._coordinator_epoch += self._rng.random() < NEW_COORDINATOR
        marker = EndTxnMarker(kind, self._coordinator_epoch)
        batch = build_end_txn_batch(client.producer_id, client.epoch, marker, now_ms).data
        return _lead(what, "coordinator", batch, client)


def _lead(what: str, origin: str, batch: bytes, client: Client) -> Operation:
    return {
        "op": "lead",
        "what": what,
        "origin": origin,
        "batches": base64.b64encode(batch).decode(),
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
    }
