"""`logstore ui`: show a copied data directory in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    config_option,
    listen_option,
    topic_overrides,
)
from logstore.cli.schema_option import schema_option
from logstore.cli.show.output import note
from logstore.cli.stopping import Stopping
from logstore.cli.targets import open_target

if TYPE_CHECKING:
    from logstore.inspect.schemas.files import SchemaFiles

DEFAULT_ADDRESS = "127.0.0.1:0"


@command(
    "ui",
    examples=[
        "logstore ui",
        "logstore ui ./kafka-logs",
        "logstore ui ./kafka-logs/users-0 --config cleanup.policy=compact",
        "logstore ui ./kafka-logs --listen 127.0.0.1:8080 --open",
        "logstore ui ./kafka-logs --schema 7=order.avsc --schema ./schemas",
    ],
)
@click.argument("directory", required=False, metavar="[DATA_DIR]")
@listen_option(DEFAULT_ADDRESS)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@schema_option
@as_recovered_option
@config_option("Topic configuration to assume. Can be repeated.")
def ui(
    settings: Settings,
    directory: str | None,
    address: tuple[str, int],
    opens: bool,  # as click passes it
    schemas: SchemaFiles,
    as_recovered: bool,  # as click passes it
    configs: tuple[tuple[str, str], ...],
) -> None:
    """Show a data directory in a browser, until SIGTERM or Ctrl-C.

    The first line on standard output is the URL to open, including an access token. DATA_DIR may
    also be a partition directory or a .log file. No file in it is changed or created. A directory
    copied from a broker does not contain topic configs; pass them with --config. To inspect and
    operate a running broker, use serve --ui.

    Requires the ui extra: pip install 'kafka-logstore[ui]'.
    """
    overrides = topic_overrides(configs)
    path = directory if directory is None or "/" in directory else f"./{directory}"
    if path is not None and Path(path).is_dir() and not any(Path(path).iterdir()):
        settings, path = settings._replace(data_dirs=(path,)), None
    opened = open_target(settings, path, as_recovered=as_recovered, metadata_log=True)
    with Stopping() as stopping, opened as found:
        broker = found.opened()
        found.override(overrides)
        with broker.ui(*address, schemas=schemas) as page:
            print(page.url, flush=True)
            if opens and click.launch(page.url):
                note("could not start a browser: open the address above")
            stopping.wait()
