"""A client connection: splits the received bytes into frames, decodes requests and sends responses.

One coroutine handles the requests in order. It pauses while the client does not read its responses.
The socket is not read while too many requests of this connection are queued, or while the requests
of all connections use too much memory (`RequestPool`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from logstore.errors import (
    KAFKA_CODES,
    IllegalStateError,
    LogStoreError,
    MessageError,
    TooManyElementsError,
)
from logstore.messages import Buffer, Message
from logstore.messages.apis import API_VERSIONS
from logstore.messages.types import (
    ApiVersionsResponse,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from logstore.wire.faulty import CUT, Subject, call_of, merged, refusal_of, without
from logstore.wire.frames import (
    LENGTH,
    RequestHead,
    UnsupportedRequestError,
    parse_body,
    parse_request_head,
    response_frame,
)
from logstore.wire.registry import Handler, HandlerThread
from logstore.wire.security import answer_token
from logstore.wire.session import ELEMENTS_IN_LOOP

if TYPE_CHECKING:
    from logstore.wire.pool import RequestPool
    from logstore.wire.session import Session

logger = logging.getLogger(__name__)

FAILED_AUTHENTICATION_DELAY_S = 0.1
"""Kafka's connection.failed.authentication.delay.ms, in seconds."""

JOINED_BYTES = 64 << 10
"""Maximum size of responses that are joined: a copy is cheaper than extra system calls."""

ELEMENT_BYTES = 512
"""Approximate memory per array element of a large request and its response."""

_TIME_SLICE_S = 0.005
"""How long a connection is served before the event loop serves other connections."""

_SMALL_CHUNK_BYTES = 4 << 10
"""Chunks below this size are collected in a bytearray, which uses less memory than objects."""


class Connection(asyncio.Protocol):
    """One client connection.

    Parameters
    ----------
    new_session : callable
        Creates the session of a transport, or returns None if a connection limit is reached.
    on_request : callable
        Called with the session, header, message and size of each request before it is handled.
    on_end : callable
        Called with this connection after it was closed.
    pool : RequestPool
        Limits the memory used by queued requests.
    start : callable
        Starts the task that handles the requests.

    Attributes
    ----------
    active_at : float
        When bytes were last received or sent, by the event loop's clock.
    """

    def __init__(
        self,
        new_session: Callable[[asyncio.Transport, Connection], Session | None],
        on_request: Callable[[Session, RequestHead, Message, int], object],
        on_end: Callable[[Connection], object],
        pool: RequestPool,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._new_session = new_session
        self._on_request = on_request
        self._on_end = on_end
        self._pool = pool
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._session: Session = cast("Session", None)
        self._task: asyncio.Task[None] | None = None
        self._frames: deque[Buffer] = deque()
        self._frame_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._can_write = True
        self._is_reading = True
        self._has_enough = False
        self._is_held = False
        self._is_over = False
        self._chunks: list[bytes | bytearray] = []
        self._received = 0
        self._wanted = LENGTH.size
        self._waiting_bytes = 0
        self._answering_bytes = 0
        self._answering_since = 0.0
        self._frame_began_at = 0.0
        self.active_at = self._slice_began = self._loop.time()

    # -- the transport's calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Create the session, and start the task that handles requests."""
        self._transport = cast("asyncio.Transport", transport)
        session = self._new_session(self._transport, self)
        if session is None:
            self._is_over = True
            self._transport.abort()
            return
        self._session = session
        self._pool.join(self)
        self._task = self._start(self._answer_all())

    def data_received(self, data: bytes) -> None:
        """Split the received bytes into requests."""
        if self._is_over:
            return
        self.active_at = self._loop.time()
        size, has_begun = len(data), self._received > 0
        self._waiting_bytes += size
        self._pool.take(size)
        self._keep(data)
        is_complete = self._received >= self._wanted and self._take_frames()
        if has_begun and is_complete:
            self._pool.end(self)
        if self._received and (is_complete or not has_begun):
            self._frame_began_at = self.active_at
            self._pool.begin(self)

    def _keep(self, data: bytes) -> None:
        chunks = self._chunks
        self._received += len(data)
        if not chunks or len(data) >= _SMALL_CHUNK_BYTES:
            chunks.append(data)
        elif isinstance(last := chunks[-1], bytearray):
            last += data
        else:
            chunks.append(bytearray(data))

    def _take_frames(self) -> bool:
        """Move complete requests from the chunks to the queue. Return whether any was complete."""
        chunks = self._chunks
        data = b"".join(chunks)
        ends = []
        at, end, limit = 0, len(data), self._frame_limit()
        self._wanted = LENGTH.size
        while end - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, at)
            if not 0 <= size <= limit:
                # Kafka raises an InvalidReceiveException here.
                logger.warning("%s: received a frame of %d bytes", self._session.client_host, size)
                self.abort()
                return False
            if end - at < LENGTH.size + size:
                self._wanted = LENGTH.size + size
                break
            at += LENGTH.size + size
            ends.append(at)
        self._chunks = [data[at:]] if at < end else []
        self._received = end - at
        if not ends:
            return False
        # Decoded messages refer to these bytes. Copy the requests if the remainder, which a view
        # would keep alive, is larger.
        view = memoryview(data if end - at <= at else data[:at])
        start = 0
        for stop in ends:
            self._frames.append(view[start + LENGTH.size : stop])
            start = stop
        if len(self._frames) >= self._session.service.limits.in_flight:
            self._has_enough = True
            self._update_reading()
        if self._frame_waiter is not None and not self._frame_waiter.done():
            self._frame_waiter.set_result(None)
        return True

    @property
    def missing_bytes(self) -> int:
        """The number of bytes missing from a partially received request, or 0 between requests."""
        if not self._received:
            return 0
        if self._received < LENGTH.size:  # the request's size has not been received yet
            return self._frame_limit()
        return self._wanted - self._received

    @property
    def held_bytes(self) -> int:
        """The memory used by the requests of this connection, in bytes."""
        return self._waiting_bytes + self._answering_bytes

    @property
    def held_since(self) -> float:
        """When the oldest request in memory began to be handled or, if incomplete, to arrive."""
        return self._answering_since if self._answering_bytes else self._frame_began_at

    def pause_reading(self) -> None:
        """Stop reading from the socket, because the request pool is full."""
        self._is_held = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Resume reading from the socket."""
        self._is_held = False
        self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading, depending on the limits."""
        reads = not (self._has_enough or self._is_held)
        if reads is self._is_reading or self._is_over:
            return
        self._is_reading = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _frame_limit(self) -> int:
        limits = self._session.service.limits
        if self._session.is_authenticated:
            return limits.frame_bytes
        return limits.frame_bytes_before_authentication

    def pause_writing(self) -> None:
        """Stop handling requests until the client reads its responses."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Resume handling requests."""
        self._can_write = True
        self.active_at = self._loop.time()
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the requests of a client that has disconnected."""
        self._end()
        self._on_end(self)

    def abort(self) -> None:
        """Close the connection immediately and cancel all of its requests."""
        self._end()
        self._transport.abort()

    def _end(self) -> None:
        """Stop handling requests, and release the memory of queued requests."""
        self._is_over = True
        if self._session is not None:
            self._session.is_over = True
        if self._task is not None:
            self._task.cancel()
        self._chunks.clear()
        self._frames.clear()
        self._received = 0
        self._pool.end(self)
        self._pool.give_back(self._waiting_bytes)
        self._waiting_bytes = 0

    @property
    def client_host(self) -> str:
        """The address of the client."""
        return self._session.client_host

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for its client to send a request or read a response."""
        waits = self._frame_waiter is not None or self._drain_waiter is not None
        return waits and not self._is_held

    # -- the coroutine -------------------------------------------------------------------

    async def _answer_all(self) -> None:
        try:
            while not self._session.ends:
                await self._answer_next()
                if self._session.has_failed:
                    # If the response and the close arrive together, some clients only see the
                    # close.
                    await asyncio.sleep(FAILED_AUTHENTICATION_DELAY_S)
                if not self._can_write:
                    self._drain_waiter = self._loop.create_future()
                    await self._drain_waiter
                    self._drain_waiter = None
        except UnsupportedRequestError as error:
            # Kafka also closes the connection (InvalidRequestException,
            # UnsupportedVersionException).
            logger.info("%s: %s", self._session.client_host, error)
        except IllegalStateError:  # the broker has been closed
            pass
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("a request of %s failed", self._session.client_host)
        finally:
            if not self._transport.is_closing():
                self._transport.close()

    async def _answer_next(self) -> None:
        if not self._frames:
            self._frame_waiter = self._loop.create_future()
            await self._frame_waiter
            self._frame_waiter = None
            self._slice_began = self.active_at
        elif self._loop.time() - self._slice_began > _TIME_SLICE_S:
            await asyncio.sleep(0)
            self._slice_began = self._loop.time()
        frame = self._frames.popleft()
        if self._has_enough and not self._frames:
            self._has_enough = False
            self._update_reading()
        size = LENGTH.size + len(frame)
        self._waiting_bytes -= size
        self._answering_bytes = size
        self._answering_since = self.active_at
        try:
            await self._answer(frame)
        finally:
            self._pool.give_back(self._answering_bytes)
            self._answering_bytes = 0

    async def _answer(self, frame: Buffer) -> None:
        session = self._session
        service = session.service
        if session.takes_tokens:
            try:
                token = answer_token(bytes(frame), session)
            except LogStoreError as error:
                # The response to a raw token has no error code, so close the connection.
                raise UnsupportedRequestError(str(error)) from error
            self._send([LENGTH.pack(len(token)), token])
            return
        try:
            head = parse_request_head(frame)
        except MessageError as error:
            raise UnsupportedRequestError(str(error)) from error
        served = service.versions.get(head.api.name)
        handler = service.handlers.get(head.api.name)
        if served is None or handler is None or not served.first <= head.version <= served.last:
            if head.api.key != API_VERSIONS:
                raise UnsupportedRequestError(
                    f"{head.api.name} version {head.version} is not supported"
                )
            # The client does not know the supported versions yet, so respond in version 0, which
            # every client can read (KIP-511).
            self._send(response_frame(head, _unknown_api_versions(session), 0))
            return
        if not session.is_authenticated and not handler.before_authentication:
            # Kafka also closes the connection (IllegalSaslStateException).
            raise UnsupportedRequestError(f"{head.api.name} request before authentication")
        try:
            few = min(ELEMENTS_IN_LOOP, service.limits.entries)
            request, elements = parse_body(head, frame, few)
        except TooManyElementsError:
            request, elements = await self._decode_large(head, frame)
        except MessageError as error:
            raise UnsupportedRequestError(str(error)) from error
        session.client_id = head.client_id
        session.api = head.api.name
        session.version = head.version
        session.is_large = elements > ELEMENTS_IN_LOOP
        if session.is_large:
            self._pool.take(elements * ELEMENT_BYTES)
            self._answering_bytes += elements * ELEMENT_BYTES
        self._on_request(session, head, request, self._answering_bytes - LENGTH.size)
        if service.faults.rules:
            response = await self._handle_by_rules(handler, head, frame, request)
        else:
            response = await self._handle(handler, request)
        if response is None:
            return
        if session.is_large:
            self._send(await service.run_large(partial(response_frame, head, response)))
        else:
            self._send(response_frame(head, response))

    async def _decode_large(self, head: RequestHead, frame: Buffer) -> tuple[Message, int]:
        """Decode a large request in a worker thread. Return it and its number of array elements."""
        service = self._session.service
        limit = service.limits.entries
        try:
            return await service.run_large(partial(parse_body, head, frame, limit))
        except TooManyElementsError as error:
            message = f"{error}: a request may have at most {limit} (logstore.request.max.entries)"
            logger.warning("%s: %s", self._session.client_host, message)
            raise UnsupportedRequestError(message) from error
        except MessageError as error:
            raise UnsupportedRequestError(str(error)) from error

    async def _handle_by_rules(
        self, handler: Handler, head: RequestHead, frame: Buffer, request: Message
    ) -> Message | None:
        """Handle a request, applying the fault rules of `Listener.fail`."""
        session, name_of_id = self._session, self._session.service.topic_of_id
        rules = session.service.faults.apply_to(call_of(head, request, name_of_id))
        for rule in rules:
            await asyncio.sleep(rule.delay_ms / 1000)
        if not rules or rules[-1].error is None:
            return await self._handle(handler, request)
        rule, error = rules[-1], rules[-1].error
        is_silent = isinstance(request, ProduceRequest) and request.acks == 0
        if error == CUT or is_silent:
            if rule.after:
                await self._handle(handler, request)
            session.ends = True
            return None
        subject = Subject.of(rule, head.version, name_of_id)
        refusal = refusal_of(head, request, error, subject)
        # Decode the request again, because `Listener.requests` retains the unchanged first copy.
        rest, _ = parse_body(head, frame, session.service.limits.entries)
        if not rule.after:
            is_left = without(rest, subject)
            if isinstance(rest, FetchRequest):
                rest.max_wait_ms = 0
            if not is_left and not isinstance(rest, MetadataRequest):
                return refusal
        response = await self._handle(handler, rest)
        assert response is not None, "only Produce requests can have no response"
        if rule.after:
            without(response, subject)
        return merged(response, refusal, subject)

    async def _handle(self, handler: Handler, request: Message) -> Message | None:
        session = self._session
        response: Any
        if handler.is_coroutine:
            response = await handler.function(request, session)
        elif handler.thread is HandlerThread.LOOP and not session.is_large:
            response = handler.function(request, session)
        elif handler.thread is not HandlerThread.WORKER:
            response = await session.run(partial(handler.function, request, session))
        else:
            call = partial(handler.function, request, session)
            response = await session.service.loops.blocking(call)
        assert response is None or isinstance(response, Message)
        return response

    def _send(self, buffers: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        self.active_at = self._loop.time()
        if sum(map(len, buffers)) <= JOINED_BYTES:
            transport.write(b"".join(buffers))
            return
        for buffer in buffers:  # `writelines` joins buffers in Python 3.11
            transport.write(buffer)


def _unknown_api_versions(session: Session) -> ApiVersionsResponse:
    served = session.service.versions["ApiVersions"]
    api = ApiVersionsResponse.ApiVersion(
        api_key=API_VERSIONS, min_version=served.first, max_version=served.last
    )
    code = KAFKA_CODES["UNSUPPORTED_VERSION"]
    return ApiVersionsResponse(error_code=code, api_keys=[api])
