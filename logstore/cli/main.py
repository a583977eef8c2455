"""The `logstore` program: runs a command and converts errors to messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import Group
from logstore.cli.show.output import one_line, print_stderr
from logstore.cli.streams import forget_output

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "logstore.commands"
_METADATA_SUFFIXES = (".dist-info", ".egg-info")

EXIT_REFUSED = 1
EXIT_IO = 3
EXIT_INTERRUPTED = 130

_HELP = {
    "topic": "Create, list, describe, alter and delete topics.",
    "broker": "Describe and alter the settings of a broker.",
    "append": "Append records from a file or standard input.",
    "read": "Read records in offset order.",
    "roll": "Start a new active segment.",
    "clean": "Compact partitions by key, or show the effect (--dry-run).",
    "explain": "Explain why partitions are not cleaned, and when they will be.",
    "retain": "Delete old segments according to retention.",
    "delete-records": "Delete records before an offset.",
    "offsets": "Find offsets by timestamp, or the bounds of a log.",
    "inspect": "Show the content of a log directory.",
    "stats": "Count records, keys and bytes, live and dead.",
    "diff": "Explain each record's fate between two copies.",
    "erasure": "Find all bytes of a key and when they are deleted.",
    "check": "Verify files and their consistency.",
    "salvage": "Save all valid data to a new data directory.",
    "dump": "Print files in the format of kafka-dump-log.",
    "export": "Write records to Parquet, Arrow, CSV or JSON lines.",
    "simulate": "Simulate a scenario in virtual time.",
    "ui": "Show a log directory in a browser.",
    "serve": "Serve Kafka clients in any language.",
    "completion": "Print or install a completion script for a shell.",
    "warmup": "Compile the kernels in advance.",
    "demo": "Compact a small topic and verify the result.",
}

COMMANDS = {
    name: (f"logstore.cli.commands.{word}:{word}", text)
    for name, text in _HELP.items()
    for word in [name.replace("-", "_")]
}
"""Import path and one-line help by command."""

REGISTERED = {
    "bench": "Measure the speed of this machine on a log, or on a copy of yours.",
    "workload": "Generate keyed workloads and verify cleaned logs, on Spark.",
}
"""Commands of this distribution that are entry points."""


class Root(Group):
    """The root group, with built-in commands and commands registered by other packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the built-in commands, then the registered ones."""
        return [name for name, _ in self.short_helps(ctx)]

    def short_helps(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return (name, one-line help) without importing registered commands."""
        listed = [(name, text) for name, (_, text) in self.lazy.items()]
        others = [
            (name, REGISTERED.get(name, f"From {package}."))
            for name, package in registered()
            if name not in self.lazy
        ]
        return listed + others

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a built-in or registered command."""
        if cmd_name in self.lazy:
            return super().get_command(ctx, cmd_name)
        if cmd_name in dict(registered()):
            return _load_registered(cmd_name)
        return None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:  # noqa: ANN401  # as click has it
        """Run the command and exit with a code listed in docs/CLI.md."""
        args = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        sys.exit(self._run(args, prog_name or "logstore", complete_var, extra))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments. If the help is piped to a reader that has closed, exit with 0."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:
            forget_output()
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. If the output is piped to a reader that has closed, exit with 0."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            forget_output()
            return 0
        return result

    def _run(
        self,
        args: list[str],
        prog_name: str,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        debug = "--debug" in args
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except (click.Abort, KeyboardInterrupt):
            return EXIT_INTERRUPTED
        except click.UsageError as error:
            return _usage_failure(error)
        except click.ClickException as error:
            return _failure(error.format_message(), error.exit_code)
        except Exception as error:
            if debug:
                import traceback

                traceback.print_exc()
            return _report(error)
        finally:
            if "logstore.cli.show.messages" in sys.modules:
                from logstore.cli.show.messages import stop_messages

                stop_messages()
        return result if isinstance(result, int) else 0


def _usage_failure(error: click.UsageError) -> int:
    message = error.format_message()
    if error.ctx is not None:
        message = f"{message.rstrip('.')} (see: {error.ctx.command_path} --help)"
    return _failure(message, error.exit_code)


def _report(error: Exception) -> int:
    from logstore.errors import DataLossError, LogStoreError

    if isinstance(error, LogStoreError):
        name = error.kafka_error
        hint = "" if name == LogStoreError.kafka_error else f" ({name})"
        if isinstance(error, DataLossError):
            hint += "; salvage DIR --out DIR keeps them, --accept-data-loss deletes them"
        return _failure(f"{error}{hint}", error.exit_code)
    if isinstance(error, OSError):
        if error.errno == errno.EBADF and error.filename is None:  # a standard stream
            forget_output()
            return _failure(error.strerror or str(error), EXIT_IO)
        return _failure(str(error), EXIT_IO)
    kind = type(error).__name__
    return _failure(
        f"unexpected {kind}: {error}; this is a bug, --debug shows the traceback", EXIT_REFUSED
    )


def _failure(message: str, code: int) -> int:
    print_stderr(f"error: {one_line(message)}")
    return code


def registered() -> list[tuple[str, str]]:
    """Return (name, distribution) of the commands registered by installed packages.

    Parses `entry_points.txt`, because importing `importlib.metadata` takes longer than printing the
    help. `importlib.metadata` is only imported when a registered command runs.
    """
    commands: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        for metadata in _metadata_dirs(folder):
            try:
                with open(f"{folder}/{metadata}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123  # see _exists
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if f"[{ENTRY_POINTS}]" in text:
                for name in _names_in_section(text):
                    commands.setdefault(name, metadata.partition("-")[0])
    return sorted(commands.items())


def _metadata_dirs(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith(_METADATA_SUFFIXES)]  # noqa: PTH208
    except OSError:
        return []


def _names_in_section(text: str) -> list[str]:
    names = []
    is_ours = False
    for line in text.splitlines():
        if line.startswith("["):
            is_ours = line.strip() == f"[{ENTRY_POINTS}]"
        elif is_ours and "=" in line:
            names.append(line.partition("=")[0].strip())
    return names


def _load_registered(name: str) -> click.Command:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _load(point)
    raise click.ClickException(f"command '{name}' is registered, but its package is missing")


def _load(point: EntryPoint) -> click.Command:
    try:
        command = point.load()
    except Exception as error:
        raise click.ClickException(
            f"command '{point.name}' ({point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"command '{point.name}' ({point.value}) is not a click command")
    return command


@click.command(
    cls=Root,
    lazy=COMMANDS,
    name="logstore",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=[
        "logstore topic create users --config cleanup.policy=compact",
        """echo '{"key": "1", "value": "ann"}' | logstore append users""",
        "logstore clean users --force --roll",
        "logstore inspect users",
    ],
)
@click.version_option(package_name="kafka-logstore", prog_name="logstore")
def main() -> None:
    """Read, write and compact Kafka log directories, with file formats identical to Kafka's.

    Directories can be from a Kafka broker or from this program. Commands that read never write.
    """
