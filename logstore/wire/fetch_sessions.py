"""Incremental fetch sessions (KIP-227), in which a client does not repeat its partitions.

The first Fetch request of a session contains all partitions. Later requests only contain changes,
and responses only contain partitions with news. The number of sessions is limited. A new session
may evict an idle session or an old, smaller session.

Source: Kafka's FetchSession, with FetchSessionCacheShard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from logstore.messages.types import FetchRequest, FetchResponse
from logstore.names import MAX_TOPIC_LENGTH
from logstore.types import INT32_MAX, MINUTE_MS, NO_OFFSET

if TYPE_CHECKING:
    import random
    from contextlib import AbstractContextManager

    from logstore.storage.log.log import Log

NO_SESSION = 0

_INITIAL_EPOCH = 0
"""The epoch in a request for a new session."""

_FINAL_EPOCH = -1
"""The epoch in a request without a session."""

_EVICTION_MS = 2 * MINUTE_MS
"""After this time without requests, any new session may evict a session.

After this age, a larger new session may evict it.
"""

_SHARDS = 8
"""The number of independent caches among which Kafka distributes sessions in turn."""

_IDS_OF_SHARD = INT32_MAX // _SHARDS

_MAX_PARTITIONS = 250_000
"""Maximum number of partitions in all sessions, which use about 100 MiB. Kafka has no such limit.

Sessions do not store overlong topic names.
"""

_TOPIC_IDS_FROM = 13

Key = tuple[str, int]
"""A partition: its topic name or topic id, and its number."""


class SessionPartition:
    """A partition of a Fetch request, and the state that its session has last reported.

    Attributes
    ----------
    name : str
        Topic name, or "" if the topic id is unknown.
    topic_id : str
    asked : FetchRequest.FetchPartition
    log : Log or None
        The log of the partition during a request, or None after an `error`.
    error : int
        Error code, or 0 if there is none.
    """

    __slots__ = (
        "_high_watermark",
        "_log_start_offset",
        "asked",
        "error",
        "log",
        "name",
        "topic_id",
    )

    def __init__(self, name: str, topic_id: str, asked: FetchRequest.FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.asked = asked
        self.log: Log | None = None
        self.error = 0
        self._high_watermark = self._log_start_offset = NO_OFFSET

    def is_reported(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether the client already knows these offsets."""
        return high_watermark == self._high_watermark and log_start_offset == self._log_start_offset

    def note(self, found: FetchResponse.PartitionData) -> bool:
        """Store a response for the partition. Return whether it contains news to report."""
        has_news = bool(
            found.records
            or found.error_code
            or not self.is_reported(found.high_watermark, found.log_start_offset)
            or found.preferred_read_replica >= 0
            or found.diverging_epoch is not None
        )
        # Forget the high watermark after an error, so that the next successful read is reported.
        self._high_watermark = NO_OFFSET if found.error_code else found.high_watermark
        self._log_start_offset = found.log_start_offset
        return has_news


class _Session:
    """A session and its partitions, in the order in which they are read."""

    def __init__(self, session_id: int, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[Key, SessionPartition] = {}
        self.size = 0

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of a session. Sessions with the lowest rank are evicted first."""
        return self.size, self.id


class Context(NamedTuple):
    """The partitions of a Fetch request.

    Attributes
    ----------
    error : str or None
        Kafka's error name for the whole request, or None if it is valid.
    partitions : sequence of SessionPartition
    session_id : int
        The session of these partitions, or 0 if there is none.
    is_new : bool
        Whether a new session is requested.
    """

    error: str | None = None
    partitions: Sequence[SessionPartition] = ()
    session_id: int = NO_SESSION
    epoch: int = _FINAL_EPOCH
    is_new: bool = False
    uses_ids: bool = False


class FetchSessions:
    """The fetch sessions of a listener. The class is thread-safe.

    Parameters
    ----------
    slots : int
        Maximum number of sessions (`max.incremental.fetch.session.cache.slots`), rounded down to a
        multiple of eight as in Kafka.
    lock : context manager
    monotonic_ms : callable
    rng : random.Random
        Generates session ids.
    """

    def __init__(
        self,
        slots: int,
        lock: AbstractContextManager[object],
        monotonic_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._slots_of_shard = slots // _SHARDS
        self._lock = lock
        self._monotonic_ms = monotonic_ms
        self._rng = rng
        # The sessions of each shard, in the order of their last use.
        self._shards: list[dict[int, _Session]] = [{} for _ in range(_SHARDS)]
        self._turn = count()
        self._total_partitions = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return sum(len(shard) for shard in self._shards)

    def __repr__(self) -> str:
        return f"FetchSessions({len(self)}, {self._total_partitions} partitions)"

    def size_of(self, request: FetchRequest) -> int:
        """Return the number of partitions in a request's session, before the request changes it."""
        if request.session_id == NO_SESSION:
            return 0
        session = self._session(request.session_id)
        return 0 if session is None else len(session.partitions)

    # -- requests ------------------------------------------------------------------------

    def open(
        self, request: FetchRequest, version: int, name_of: Callable[[str], str | None]
    ) -> Context:
        """Return the partitions that a request reads, and update its session.

        Parameters
        ----------
        name_of : callable
            Returns the name of the topic with an id, or None if the id is unknown.
        """
        uses_ids = version >= _TOPIC_IDS_FROM
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            if session_id != NO_SESSION:
                with self._lock:
                    self._remove(session_id)
            named = dict(_named(request, uses_ids, name_of))
            is_new = epoch == _INITIAL_EPOCH
            return Context(partitions=list(named.values()), is_new=is_new, uses_ids=uses_ids)
        with self._lock:
            session = self._session(session_id)
            if session is None:
                return Context("FETCH_SESSION_ID_NOT_FOUND")
            if session.epoch != epoch:
                return Context("INVALID_FETCH_SESSION_EPOCH")
            if session.uses_ids != uses_ids:
                return Context("FETCH_SESSION_TOPIC_ID_ERROR")
            if any(len(topic.topic) > MAX_TOPIC_LENGTH for topic in request.topics):
                self._remove(session_id)
                return Context("FETCH_SESSION_ID_NOT_FOUND")
            _update(session, request, name_of)
            partitions = list(session.partitions.values())
            more = len(partitions) - session.size
            if self._total_partitions + more > _MAX_PARTITIONS:
                self._remove(session_id)
                return Context("FETCH_SESSION_ID_NOT_FOUND")
            if not partitions:
                self._remove(session_id)
                return Context()
            self._touch(session)
            session.epoch = _next(epoch)
            return Context(None, partitions, session_id, session.epoch)

    def finish(
        self,
        context: Context,
        found: Iterable[tuple[SessionPartition, FetchResponse.PartitionData]],
    ) -> tuple[int, list[tuple[SessionPartition, FetchResponse.PartitionData]]] | None:
        """Return the session id and the partitions to include in the response.

        Return None if another request has used the session in the meantime.
        """
        if context.session_id:
            return self._report(context, found)
        if not context.is_new:
            return NO_SESSION, list(found)
        reported = list(found)
        for partition, data in reported:
            partition.note(data)
        with self._lock:
            return self._create(context.uses_ids, [place for place, _ in reported]), reported

    def _report(
        self,
        context: Context,
        found: Iterable[tuple[SessionPartition, FetchResponse.PartitionData]],
    ) -> tuple[int, list[tuple[SessionPartition, FetchResponse.PartitionData]]] | None:
        with self._lock:
            session = self._session(context.session_id)
            if session is None or session.epoch != context.epoch:
                return None
            reported = []
            for partition, data in found:
                if not partition.note(data):
                    continue
                reported.append((partition, data))
                if data.records:
                    # Read this partition last in the next request, so that no partition starves.
                    key = partition.topic_id if session.uses_ids else partition.name
                    where = key, partition.asked.partition
                    session.partitions[where] = session.partitions.pop(where)
            return context.session_id, reported

    # -- the cache -----------------------------------------------------------------------

    def _session(self, session_id: int) -> _Session | None:
        return self._shard_of(session_id).get(session_id)

    def _shard_of(self, session_id: int) -> dict[int, _Session]:
        return self._shards[min(max(0, session_id) // _IDS_OF_SHARD, _SHARDS - 1)]

    def _create(self, uses_ids: bool, partitions: Sequence[SessionPartition]) -> int:
        """Create a session. Return its id, or 0 if it would exceed a limit."""
        number = next(self._turn) % _SHARDS
        shard = self._shards[number]
        size = len(partitions)
        if self._total_partitions + size > _MAX_PARTITIONS:
            return NO_SESSION
        if any(len(each.name) > MAX_TOPIC_LENGTH for each in partitions):
            return NO_SESSION
        now_ms = self._monotonic_ms()
        if len(shard) >= self._slots_of_shard and not self._evict(shard, size, now_ms):
            return NO_SESSION
        first = number * _IDS_OF_SHARD
        while (session_id := self._rng.randrange(max(first, 1), first + _IDS_OF_SHARD)) in shard:
            pass
        session = _Session(session_id, uses_ids, now_ms)
        session.partitions = {
            (each.topic_id if uses_ids else each.name, each.asked.partition): each
            for each in partitions
        }
        shard[session_id] = session
        self._touch(session)
        return session_id

    def _touch(self, session: _Session) -> None:
        shard = self._shard_of(session.id)
        shard[session.id] = shard.pop(session.id)
        session.used_ms = self._monotonic_ms()
        size = len(session.partitions)
        self._total_partitions += size - session.size
        session.size = size

    def _evict(self, shard: dict[int, _Session], size: int, now_ms: int) -> bool:
        """Evict an idle session, or an old session with fewer than `size` partitions.

        Return whether a session was evicted.
        """
        if not shard:
            return False
        session = next(iter(shard.values()))
        if now_ms - session.used_ms <= _EVICTION_MS:
            # The ranks use the sizes after each session's last request.
            old = [each for each in shard.values() if each.used_ms - each.created_ms > _EVICTION_MS]
            session = min(old, key=lambda each: each.rank, default=session)
            if not old or size <= session.size:
                return False
        self._remove(session.id)
        return True

    def _remove(self, session_id: int) -> None:
        session = self._shard_of(session_id).pop(session_id, None)
        if session is not None:
            self._total_partitions -= session.size


def _next(epoch: int) -> int:
    return 1 if epoch == INT32_MAX else epoch + 1


def _named(
    request: FetchRequest, uses_ids: bool, name_of: Callable[[str], str | None]
) -> Iterator[tuple[Key, SessionPartition]]:
    for topic in request.topics:
        name = (name_of(topic.topic_id) or "") if uses_ids else topic.topic
        key = topic.topic_id if uses_ids else name
        for asked in topic.partitions:
            yield (key, asked.partition), SessionPartition(name, topic.topic_id, asked)


def _update(session: _Session, request: FetchRequest, name_of: Callable[[str], str | None]) -> None:
    for key, new in _named(request, session.uses_ids, name_of):
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = new
        else:
            known.asked = new.asked
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if session.uses_ids else topic.topic
        for number in topic.partitions:
            session.partitions.pop((name, number), None)
