"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from logstore.ui.api_request import ApiRequest, ApiRoute, failure, refuse_parameters
from logstore.ui.errors import TooManyClientsError

if TYPE_CHECKING:
    from starlette.requests import Request

    from logstore.ui.live import Live, Reader


async def events(request: Request) -> Response:
    """Stream events about partitions, passes and the clock until the client disconnects."""
    context = request.app.state.context
    try:
        refuse_parameters(request)
    except Exception as error:
        return failure(error)
    api_request = ApiRequest.without_parameters(context, request)
    reader = context.live.connect(partial(api_request.allows, "describe", "topic"))
    if reader is None:
        return failure(TooManyClientsError("too many clients of the event stream"), 503)
    return StreamingResponse(_events(context.live, reader), media_type="text/event-stream")


async def _events(live: Live, reader: Reader) -> AsyncIterator[bytes]:
    try:
        async for text in reader.texts():
            yield text
    finally:
        live.disconnect(reader)


ROUTES = (ApiRoute("/api/events", events, methods=["GET"]),)
