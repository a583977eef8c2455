"""Shell completion of topic names and paths."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DATA_DIR_VARIABLE = "LOGSTORE_DATA_DIR"
DEFAULT_DATA_DIR = "logstore-data"

_TOPICS = ("topic", "name")
_PATHS = ("path", "before", "after", "paths")
_EITHER = ("target",)


class Name(click.types.StringParamType):
    """A text parameter that is completed as a topic, a path, or either."""

    def __init__(self, *, topics: bool, paths: bool) -> None:
        self._topics = topics
        self._paths = paths

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return matching topics, or files if no topic matches or the text contains a slash."""
        from click.shell_completion import CompletionItem

        found = []
        if self._topics and "/" not in incomplete:
            found = [
                CompletionItem(topic) for topic in _topics_of(ctx) if topic.startswith(incomplete)
            ]
        if not found and self._paths:
            found = [CompletionItem(incomplete, type="file")]
        return found


def complete_names(params: list[click.Parameter]) -> None:
    """Enable completion for arguments of a command, depending on the arguments' names."""
    for param in params:
        if isinstance(param, click.Argument) and param.type is click.STRING:
            name = param.name
            topics, paths = name in (*_TOPICS, *_EITHER), name in (*_PATHS, *_EITHER)
            if topics or paths:
                param.type = Name(topics=topics, paths=paths)


def _topics_of(ctx: click.Context) -> list[str]:
    """Return the topics with directories in the data directories of the command line."""
    from logstore.names import parse_partition_dir
    from logstore.runtime import DiskFileSystem

    given = ctx.params.get("data_dirs") or (ctx.parent and ctx.parent.params.get("data_dirs"))
    from_variable = [
        each for each in os.environ.get(DATA_DIR_VARIABLE, "").split(os.pathsep) if each
    ]
    fs = DiskFileSystem()
    topics = set()
    for directory in given or from_variable or [DEFAULT_DATA_DIR]:
        if fs.is_dir(directory):
            parsed = map(parse_partition_dir, fs.list_dir(directory))
            topics |= {each.topic for each in parsed if each is not None}
    return sorted(topics)
