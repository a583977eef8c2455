"""The page: a broker's logs shown in a browser, a setting tried before it is set, time in hand.

| module | what it is |
|---|---|
| `server` | `Ui`: a thread with an event loop, a socket, an address with a token |
| `access` | who may ask at all: token, host, origin |
| `app`, `static` | the routes, and the files of `front` beside them |
| `asking` | a request as the functions of `api` see it; how errors are told |
| `site` | what requests share: the broker, and the threads that call it |
| `turns` | deeds one at a time, and the yes to a loss |
| `settings`, `lines` | settings as a body brings them; lines of the command line that do the same |
| `api/…` | the answers, one module a subject; each exports `ROUTES` |
| `front/…` | the page itself: HTML, ES modules, a style sheet, without a build step |

A function of `api` takes an `Ask`, may block (it never runs in the loop), and returns what becomes
JSON. Its shapes are those of the command line's `--format json`, which stand with the values.
A broker finds its way up here by the entry point `logstore.doors`.
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
    """Serve a broker's page; see `Ui`, whose options are taken.

    Raises
    ------
    InvalidConfigurationError
        As `Ui`; or what it needs is not installed.
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
