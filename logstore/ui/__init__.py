"""The web page of a broker: inspect logs, preview settings, operate the cleaner and the clock.

| module | content |
|---|---|
| `server` | `Ui`: a thread with an event loop, a socket, an address with a token |
| `access` | access control: token, host, origin |
| `app`, `static` | the application: routes of `api` and files of `front` |
| `api_request` | API requests, routes and error responses |
| `context` | state shared by all requests |
| `notices` | warnings about a copied directory |
| `locks` | serialization of operations, and confirmation of data loss |
| `settings`, `lines` | settings in request bodies; equivalent command lines |
| `api/…` | the JSON API, one module per subject; each exports `ROUTES` |
| `front/…` | the page itself: HTML, CSS and ES modules, without a build step |

API functions take an `ApiRequest` and may block, because they never run in the event loop. They
return a JSON-serializable value in the same form as `--format json`. The broker loads
this package through the `logstore.servers` entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.ui.server import Ui

EXTRA = "kafka-logstore[ui]"

__all__ = ["open_ui"]


def open_ui(broker: Broker, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Ui:
    """Serve a broker's web page, with the options of `Ui`.

    Raises
    ------
    InvalidConfigurationError
        See `Ui`. Also raised if a required package is not installed.
    """
    try:
        from logstore.ui.server import Ui
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise InvalidConfigurationError(
            f"the page needs {error.name}: pip install '{EXTRA}'"
        ) from error
    return Ui(broker, host, port, **options)
