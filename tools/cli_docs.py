"""Writes docs/CLI.md from the program's help; `make docs` runs it, a test checks it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from logstore.cli.main import COMMANDS, REGISTERED, main
from logstore.cli.options import SharedOption

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "CLI.md"
WIDTH = 100

INTRODUCTION = """\
# Command line

Generated from `logstore COMMAND --help` by `make docs`; do not edit.

Exit codes: 0 success; 1 request refused or data corrupt; 2 invalid usage, configuration or topic; 3
I/O failure; 130 interrupted. Messages are written to standard error, results to standard output. A
broken pipe ends a command without a message.

Shell completion of commands, options and their values:

    eval "$(_LOGSTORE_COMPLETE=bash_source logstore)"     # in ~/.bashrc
    eval "$(_LOGSTORE_COMPLETE=zsh_source logstore)"      # in ~/.zshrc, after compinit
    _LOGSTORE_COMPLETE=fish_source logstore | source      # in ~/.config/fish/config.fish

All commands have these options:
"""


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield (full name, command, context) of this distribution's commands, depth first."""
    root = click.Context(main, info_name="logstore", terminal_width=WIDTH, **main.context_settings)
    yield from _below(main, root)


def _below(
    group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        if group is main and name not in COMMANDS | REGISTERED:
            continue  # another package's
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from _below(command, inner)


def text() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for parameter in main.params:
        if isinstance(parameter, SharedOption):
            context = click.Context(main)
            record = parameter.get_help_record(context)
            assert record is not None
            parts.append(f"- `{record[0]}` {record[1]}\n")
    for path, command, context in commands():
        depth = path.count(" ") + 1
        parts.append(f"\n{'#' * depth} {path}\n\n```text\n{own_help(command, context)}\n```\n")
    return "".join(parts)


def own_help(command: click.Command, context: click.Context) -> str:
    """Return the help text without the shared options, which are listed once at the top."""
    return command.get_help(context).partition("\n\nShared options:")[0]


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")
