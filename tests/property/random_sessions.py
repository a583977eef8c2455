"""Random requests to the cache of fetch sessions, whose contexts and responses are stored."""

from __future__ import annotations

import threading
from random import Random

import pytest

from logstore.messages.types import FetchRequest, FetchResponse
from logstore.wire import fetch_sessions
from logstore.wire.fetch_sessions import Context, FetchSessions, SessionPartition
from tests.support.world.transcripts import Transcript

FEW = 18
STEPS = 300
NAMES = ("a", "b", "c", "d", "e" * 249, "f" * 250)
IDS = {f"id of {name}": name for name in NAMES[:4]}
WAITS_MS = (0, 1, 1000, 119_999, 120_000, 120_001)


def transcribe(seed: int) -> Transcript:
    """Return random requests and their outcomes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_sessions, "_MAX_PARTITIONS", 16)
        return _Sessions(seed).run()


class _Sessions:
    """A small cache of sessions and its clients."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.now_ms = 1000
        self.cache = FetchSessions(
            (7, 8, 16, 8, 23, 24)[seed % 6], threading.Lock(), lambda: self.now_ms, Random(seed)
        )
        self.known: list[tuple[int, int]] = []

    def run(self) -> Transcript:
        """Send requests; some responses are finished later than the next request."""
        pending: list[Context] = []
        for _ in range(STEPS):
            self.now_ms += self.rng.choice(WAITS_MS) if self.rng.random() < 0.2 else 0
            pending.append(self.request())
            while pending and self.rng.random() < 0.8:
                self.finish(pending.pop(self.rng.randrange(len(pending))))
            self.transcript.note(self.now_ms, self.cache)
        return self.transcript

    def request(self) -> Context:
        """Send a request of a known session, with a right or a wrong epoch, or of none."""
        rng = self.rng
        session_id, epoch = 0, rng.choice((0, 0, -1, 1))
        if self.known and rng.random() < 0.7:
            session_id, epoch = rng.choice(self.known[-6:])
            epoch = rng.choice((epoch, epoch, epoch, epoch, epoch, epoch + 1, epoch - 1, 0, -1))
        version = rng.choice((12, 13, 13))
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[self.topic(version) for _ in range(rng.choice((0, 1, 1, 2, 4)))],
            forgotten_topics_data=[self.forgotten() for _ in range(rng.choice((0, 0, 1)))],
        )
        note = self.transcript.note
        note(version, request, self.cache.size_of(request))
        context = self.cache.open(request, version, IDS.get)
        note(context._replace(partitions=()), [_of(each) for each in context.partitions])
        if context.session_id:
            self.known.append((context.session_id, context.epoch))
        return context

    def topic(self, version: int) -> FetchRequest.FetchTopic:
        rng = self.rng
        name = rng.choice(NAMES if rng.random() < 0.1 else NAMES[:4])
        return FetchRequest.FetchTopic(
            topic=name if version < 13 else "",
            topic_id=f"id of {name}" if version >= 13 else "",
            partitions=[
                FetchRequest.FetchPartition(
                    partition=rng.randrange(3),
                    fetch_offset=rng.randrange(9),
                    current_leader_epoch=rng.randrange(3),
                    last_fetched_epoch=rng.randrange(3),
                    log_start_offset=rng.randrange(3),
                    partition_max_bytes=rng.randrange(100),
                )
                for _ in range(rng.choice((1, 1, 2)))
            ],
        )

    def forgotten(self) -> FetchRequest.ForgottenTopic:
        name = self.rng.choice(NAMES[:4])
        return FetchRequest.ForgottenTopic(
            topic=name, topic_id=f"id of {name}", partitions=[self.rng.randrange(3)]
        )

    def finish(self, context: Context) -> None:
        """Report what was found."""
        rng = self.rng
        found = [
            (
                partition,
                FetchResponse.PartitionData(
                    partition_index=partition.asked.partition,
                    error_code=rng.choice((0, 0, 0, 3, -1)),
                    high_watermark=rng.randrange(2),
                    log_start_offset=rng.randrange(2),
                    preferred_read_replica=rng.choice((-1, -1, -1, 0)),
                    records=rng.choice((b"", b"", None, b"r")),
                ),
            )
            for partition in context.partitions
        ]
        finished = self.cache.finish(context, found)
        if finished is None:
            self.transcript.note("superseded")
            return
        session_id, reported = finished
        if context.is_new and session_id:
            self.known.append((session_id, 1))
        self.transcript.note(session_id, [(_of(each), data) for each, data in reported])


def _of(partition: SessionPartition) -> tuple[object, ...]:
    return partition.name, partition.topic_id, partition.asked
