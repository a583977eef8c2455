"""The ASGI application: API routes and static files.

Each module in `_MODULES` exports its routes as `ROUTES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from logstore.config.suggest import and_nearest, nearest
from logstore.ui.access import Access
from logstore.ui.api import (
    actions,
    cleaner,
    clock,
    configs,
    erasure,
    groups,
    live,
    overview,
    partition,
    preview,
    records,
)
from logstore.ui.api_request import ApiRoute, failure
from logstore.ui.errors import InvalidRequestError, UnknownPlaceError
from logstore.ui.static import StaticFiles

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from logstore.ui.context import Context

_MODULES = (
    overview,
    partition,
    records,
    cleaner,
    live,
    configs,
    preview,
    actions,
    clock,
    groups,
    erasure,
)

ROUTES: tuple[ApiRoute, ...] = tuple(route for module in _MODULES for route in module.ROUTES)
"""All routes of the API."""


def application(context: Context, *, token: str, host: str, port: int) -> ASGIApp:
    """Return the ASGI application with access control."""
    front = StaticFiles()
    addresses = sorted({route.path for route in ROUTES})

    async def not_found(request: Request, error: Exception) -> Response:
        path = request.url.path
        if request.method in ("GET", "HEAD") and (file := await front.answer(request)) is not None:
            return file
        known = addresses if path.startswith("/api/") else front.addresses()
        near = nearest(path, known)
        message = f"unknown address {path}{and_nearest(path, known)}"
        return failure(UnknownPlaceError(message, suggestion=near), 404)

    async def wrong_method(request: Request, error: Exception) -> Response:
        allowed = sorted(
            {
                method
                for route in ROUTES
                if route.path_regex.match(request.url.path) and route.methods is not None
                for method in route.methods
            }
        )
        message = f"{request.url.path} allows {', '.join(allowed)}, not {request.method}"
        answer = failure(InvalidRequestError(message), 405)
        answer.headers["Allow"] = ", ".join(allowed)
        return answer

    app = Starlette(routes=ROUTES, exception_handlers={404: not_found, 405: wrong_method})
    app.router.redirect_slashes = False
    app.state.context = context
    context.actions = tuple(route.action for route in ROUTES if route.action is not None)
    return Access(app, token=token, host=host, port=port)
