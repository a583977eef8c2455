"""Options shared by all commands, the `Settings` built from them, and the help layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource

from logstore.cli.completing import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR, complete_names
from logstore.cli.times import TIME_HELP, parse_time

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from logstore.broker import Broker
    from logstore.cli.show.progress import ProgressBar
    from logstore.cluster import Cluster
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.manager.opening import LoadProgress
    from logstore.manager.topics.store import Topic
    from logstore.runtime import Clock

FORMATS = ("table", "json", "jsonl", "csv")

REPLICAS = 3
"""Default replication factor of a cluster that has at least this many brokers."""

_SHARED_KEY = "logstore.shared"
_F = TypeVar("_F", bound=Callable[..., Any])


# -- values of options -----------------------------------------------------------------------


def to_time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a TIME option to Unix milliseconds."""
    if value is None:
        return None
    try:
        return parse_time(value, partial(now_of, ctx))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def now_of(ctx: click.Context) -> int:
    """Return the base of relative times in Unix ms: `--now` or, if not set, the system clock."""
    from logstore.runtime import SystemClock

    fixed_ms: int | None = ctx.params.get("now_ms")
    above = ctx.parent.meta.get(_SHARED_KEY) if ctx.parent is not None else None
    if fixed_ms is None and above is not None:
        fixed_ms = above.now_ms
    return SystemClock().now_ms() if fixed_ms is None else fixed_ms


def to_pairs(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Parse a repeated KEY=VALUE option."""
    pairs = []
    for pair in values:
        key, sign, text = pair.partition("=")
        key = key.strip()
        if not sign or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", ctx, param)
        pairs.append((key, text))
    return tuple(pairs)


def to_racks(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Parse `--racks`."""
    return None if text is None else tuple(each.strip() for each in text.split(","))


def to_address(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """Parse HOST:PORT. IPv6 addresses must be in brackets."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        raise click.BadParameter(f"{value!r} is not HOST:PORT", ctx, param)
    return host.removeprefix("[").removesuffix("]"), int(port)


# -- settings ------------------------------------------------------------------------------


class Settings(NamedTuple):
    """The shared options of an invocation.

    Attributes
    ----------
    data_dirs : tuple of str
        From the command line or the environment. May be empty.
    config_file : str or None
        Path of a Kafka `server.properties`.
    now_ms : int or None
        Fixed wall-clock time in Unix milliseconds, or None for the system clock.
    output : str
        One of `FORMATS`.
    full : bool
        Whether tables may be wider than the terminal.
    escape_formulas : bool
        Whether to prefix CSV cells that a spreadsheet would evaluate with an apostrophe.
    debug : bool
        Whether to show tracebacks.
    as_recovered : bool
        Whether to read only data that would survive recovery, rather than all valid batches.
    accept_data_loss : bool
        Whether recovery may truncate valid batches after damage.
    """

    data_dirs: tuple[str, ...] = ()
    config_file: str | None = None
    now_ms: int | None = None
    output: str = "table"
    full: bool = False
    escape_formulas: bool = False
    debug: bool = False
    as_recovered: bool = False
    accept_data_loss: bool = False

    @property
    def as_table(self) -> bool:
        """Whether the output is for humans."""
        return self.output == "table"

    @property
    def as_items(self) -> bool:
        """Whether the output is one item per line, without an enclosing document."""
        return self.output in ("jsonl", "csv")

    def clock(self) -> Clock:
        """Return the system clock, or a clock with a fixed wall-clock time."""
        from logstore.runtime import FixedWallClock, SystemClock

        return SystemClock() if self.now_ms is None else FixedWallClock(self.now_ms)

    def broker_config(self) -> BrokerConfig:
        """Read the broker configs, and print a note for each config without effect."""
        from logstore.cli.show.output import note
        from logstore.config.broker_config import BrokerConfig, read_properties

        if self.config_file is None:
            return BrokerConfig.from_properties({})
        config = BrokerConfig.from_properties(read_properties(self.config_file))
        for text in config.notes:
            note(text)
        return config

    def directories(self, config: BrokerConfig) -> tuple[str, ...]:
        """Return the data directories: `--data-dir`, or `log.dirs`, or `./logstore-data`."""
        return self.data_dirs or config.log_dirs or (DEFAULT_DATA_DIR,)

    def open_broker(
        self,
        *,
        read_only: bool = False,
        dry_run: bool = False,
        create: bool = False,
        directories: Sequence[str] | None = None,
        background: bool = False,
        in_memory: bool = False,
        shown: OpenedFolder | None = None,
        metadata_log: bool = False,
    ) -> Broker:
        """Open the data directories.

        Directories that were not shut down cleanly are recovered, with a progress bar on a
        terminal. Recovery prints its findings on standard error.

        Parameters
        ----------
        read_only : bool
            Change nothing, and read all valid batches unless `as_recovered`.
        dry_run : bool
            Change nothing, and show partitions as a writing command would see them.
        create : bool
            Create missing directories. Off by default, to catch typos.
        background : bool
            Run the cleaner and retention in the background.
        in_memory : bool
            Keep everything in memory.
        shown : OpenedFolder, optional
            The only partition directory to load.
        metadata_log : bool
            Include the log of a KRaft node. Requires `read_only` or `dry_run`.

        Raises
        ------
        InvalidConfigurationError
            The configuration is invalid, or a directory is missing.
        """
        from logstore.broker import Broker
        from logstore.cli.show.messages import Recovery, show_messages
        from logstore.cli.show.progress import ProgressBar
        from logstore.runtime import DiskFileSystem, raise_descriptor_limit

        raise_descriptor_limit()
        on_damage = self._on_damage(read_only=read_only and not dry_run)
        read_only = read_only or dry_run
        show_messages(Recovery.COMPUTED if read_only else Recovery.MENDED)
        config = self.broker_config()
        if in_memory:
            return Broker(clock=self.clock(), broker_config=config, background=background)
        if directories is None:
            directories = self.directories(config)
        if not create:
            _check_exists(directories)
        clock = self.clock()
        with ProgressBar("partitions") as bar:
            broker = Broker(
                list(directories),
                clock=clock,
                fs=DiskFileSystem(clock)
                if read_only
                else None,  # so that reports show paths as the user gave them
                broker_config=config,
                read_only=read_only,
                background=background,
                on_damage=on_damage,
                shown=shown,
                metadata_log=metadata_log,
                on_load=partial(_show_load, bar) if bar.visible else None,
            )
        if read_only:
            note_writers(directories)
        return broker

    def topics(self) -> list[Topic]:
        """Return the topics of the data directories by name, including adopted topics.

        If the broker is read-only, the topics are read without importing the broker.

        Raises
        ------
        InvalidConfigurationError
            The configuration is invalid, or a directory is missing.
        """
        from logstore.broker.topics import read_topics
        from logstore.cli.show.messages import Recovery, show_messages

        show_messages(Recovery.COMPUTED)
        config = self.broker_config()
        directories = self.directories(config)
        _check_exists(directories)
        topics = read_topics(directories, self.clock(), config, self._on_damage(read_only=True))
        note_writers(directories)
        return topics

    def open_cluster(
        self, brokers: int, *, in_memory: bool, racks: Sequence[str] | None
    ) -> Cluster[Clock]:
        """Open a cluster with background work, in memory or in a single data directory.

        Raises
        ------
        InvalidConfigurationError
            The configuration is invalid, or there are several data directories.
        """
        from logstore.cli.show.messages import Recovery, show_messages
        from logstore.cluster import Cluster
        from logstore.errors import InvalidConfigurationError
        from logstore.runtime import raise_descriptor_limit

        raise_descriptor_limit()
        show_messages(Recovery.MENDED)
        config = self.broker_config()
        if "default.replication.factor" not in config.given:
            config = replace(config, default_replication_factor=min(brokers, REPLICAS))
        directories = self.directories(config)
        if len(directories) != 1 and not in_memory:
            raise InvalidConfigurationError(
                f"the brokers of a cluster share one data directory; {len(directories)} are given"
            )
        return Cluster(
            brokers,
            clock=self.clock(),
            data_dir=None if in_memory else directories[0],
            broker_config=config,
            background=True,
            racks=racks,
        )

    def _on_damage(self, *, read_only: bool) -> Literal["recover", "refuse", "pass_over"]:
        if read_only:
            return "recover" if self.as_recovered else "pass_over"
        return "recover" if self.accept_data_loss else "refuse"


def _check_exists(directories: Iterable[str]) -> None:
    """Raise an error if a data directory is missing."""
    from logstore.errors import InvalidConfigurationError
    from logstore.runtime import DiskFileSystem

    fs = DiskFileSystem()
    for path in directories:
        if not fs.exists(path):
            raise InvalidConfigurationError(
                f"data directory {path} does not exist; use --data-dir to name another"
            )


def note_writers(directories: Iterable[str]) -> None:
    """Print a note for each data directory to which another process is writing."""
    from logstore.cli.show.output import note

    for path, process_id in writers_of(directories).items():
        writer = f"process {process_id}" if process_id else "another process"
        note(f"{writer} is writing to {path}: the output may miss its latest changes")


def writers_of(directories: Iterable[str]) -> dict[str, int]:
    """Return the processes that have locked data directories. The id is 0 if unknown."""
    from logstore.names import LOCK_FILE
    from logstore.runtime import DiskFileSystem

    holders = {path: DiskFileSystem().lock_holder(f"{path}/{LOCK_FILE}") for path in directories}
    return {path: pid for path, pid in holders.items() if pid not in (None, os.getpid())}


def _show_load(bar: ProgressBar, step: LoadProgress) -> None:
    if step.total > 1:  # a single step only reports its end
        bar.update("recovering", step.done, step.total, str(step.topic_partition))


def checked_partition(broker: Broker, topic: str, partition: int | None) -> list[int]:
    """Return the partition numbers selected by TOPIC and --partition.

    Raises
    ------
    UnknownTopicOrPartitionError
        The topic is unknown. The message suggests similar names.
    """
    from logstore.errors import UnknownTopicOrPartitionError

    names = [known.name for known in broker.topics()]
    if topic not in names:
        raise UnknownTopicOrPartitionError(unknown_topic(topic, names))
    return [tp.partition for tp in broker.partitions(topic, partition)]


def unknown_topic(topic: str, names: Sequence[str]) -> str:
    """Return the error message for an unknown topic."""
    import difflib

    near = difflib.get_close_matches(topic, names, n=3, cutoff=0.5)
    if near:
        return f"unknown topic '{topic}'; did you mean {' or '.join(near)}?"
    if not names:
        return f"unknown topic '{topic}'; the data directory has no topics"
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    return f"unknown topic '{topic}'; the topics are: {shown}"


def topic_overrides(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Validate topic configs given as KEY=VALUE. Deprecated names are translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown (the message suggests the closest key), or a value is not allowed.
    """
    if not pairs:
        return {}
    from logstore.cli.show.output import note
    from logstore.config.overrides import parse_overrides

    overrides, notes = parse_overrides(dict(pairs))
    for text in notes:
        note(text)
    return overrides


# -- commands ------------------------------------------------------------------------------


class SharedOption(click.Option):
    """An option that every command has, listed in a separate section of the help."""


def _shared_options() -> list[click.Parameter]:
    return [
        SharedOption(
            ["--data-dir", "data_dirs"],
            multiple=True,
            metavar="DIR",
            help="Kafka log directory. Can be repeated. [default: "
            f"${DATA_DIR_VARIABLE}, log.dirs of the config file, or ./{DEFAULT_DATA_DIR}]",
        ),
        SharedOption(
            ["--config-file"],
            metavar="FILE",
            help="Kafka server.properties with the broker's settings.",
        ),
        SharedOption(
            ["--now", "now_ms"],
            callback=to_time,
            is_eager=True,  # other options may have relative times based on it
            metavar="TIME",
            help=f"Use a fixed wall-clock time: {TIME_HELP}.",
        ),
        SharedOption(
            ["--format", "output"],
            type=click.Choice(FORMATS),
            default="table",
            help="Output format. jsonl, csv: one item per line.  [default: table]",
        ),
        SharedOption(
            ["--full"], is_flag=True, help="Do not truncate long values to the terminal width."
        ),
        SharedOption(
            ["--escape-formulas"],
            is_flag=True,
            help="In CSV, prefix text that a spreadsheet would evaluate (starting with =, +, -, @, "
            "a tab or a line end) with an apostrophe.",
        ),
        SharedOption(["--debug"], is_flag=True, help="Show the traceback of an error."),
    ]


def _settings(ctx: click.Context, values: Mapping[str, Any]) -> Settings:
    """Override the settings of parent groups with the options of this level."""
    above = ctx.parent.meta.get(_SHARED_KEY) if ctx.parent is not None else None
    if above is None:
        variable = os.environ.get(DATA_DIR_VARIABLE, "")
        above = Settings(tuple(path for path in variable.split(os.pathsep) if path))
    options = {
        name: value
        for name, value in values.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    settings = above._replace(**options)
    ctx.meta[_SHARED_KEY] = settings
    return settings


def _set_shared_options(ctx: click.Context, params: Iterable[click.Parameter]) -> Settings:
    names = [p.name for p in params if isinstance(p, SharedOption) and p.name]
    return _settings(ctx, {name: ctx.params.pop(name) for name in names if name in ctx.params})


_PARTS_OF_LISTEN = ("port", "host", "bind", "address")
"""Options of other servers that correspond to a part of --listen."""


class Command(click.Command):
    """A command with the shared options, and examples in its help.

    Parameters
    ----------
    examples : sequence of str
        Command lines.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        complete_names(self.params)
        self.params.extend(_shared_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. For an unknown option, suggest the closest option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = self._nearest(error.option_name)
            hint = "" if near is None else f" Did you mean '{near}'?"
            raise click.UsageError(f"No such option '{error.option_name}'.{hint}", ctx) from error

    def _nearest(self, option: str) -> str | None:
        """Return the option that is closest to an unknown option."""
        from logstore.config.suggest import nearest

        # Ignore the dashes, which all options start with.
        names = {name.lstrip("-"): name for param in self.params for name in param.opts}
        wanted = option.lstrip("-")
        if wanted in _PARTS_OF_LISTEN and "listen" in names:
            return "--listen HOST:PORT"
        near = nearest(wanted, [name for name in names if len(name) > 1])
        return None if near is None else names[near]

    def invoke(self, ctx: click.Context) -> object:
        """Call the command function with `Settings` as the context object."""
        from logstore.cli.show.tables import cut_cells

        ctx.obj = _set_shared_options(ctx, self.params)
        cut_cells(not ctx.obj.full)
        if ctx.obj.output == "csv":
            from logstore.cli.show.csv_rows import escape_formulas

            escape_formulas(ctx.obj.escape_formulas)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, command options and shared options."""
        write_examples(formatter, self.examples)
        write_options(self, ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the examples section of a help text."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the sections for command options and shared options."""
    specific: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and isinstance(param, click.Option):
            (shared if isinstance(param, SharedOption) else specific).append(record)
    for heading, rows in (("Options", specific), ("Shared options", shared)):
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=28)


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command. Its first argument is the `Settings`."""

    def decorate(function: Callable[..., Any]) -> Command:
        return click.command(name, cls=Command, examples=examples)(click.pass_obj(function))

    return decorate


def config_option(help_text: str) -> Callable[[_F], _F]:
    """Return a decorator that adds a repeatable `--config KEY=VALUE`."""
    return click.option(
        "--config", "configs", callback=to_pairs, multiple=True, metavar="K=V", help=help_text
    )


def listen_option(default: str) -> Callable[[_F], _F]:
    """Return a decorator that adds `--listen` as parameter `address`."""
    return click.option(
        "--listen",
        "address",
        callback=to_address,
        default=default,
        show_default=True,
        metavar="HOST:PORT",
        help="Address to listen on; port 0 picks a free port.",
    )


def as_recovered_option(function: _F) -> _F:
    """Add `--as-recovered` to a command that reads."""
    return click.option(
        "--as-recovered",
        is_flag=True,
        help="Show only data that a broker's recovery would keep, not every valid batch.",
    )(function)


def all_option(function: _F) -> _F:
    """Add `--all` to a command that lists partitions, as parameter `lists_all`."""
    return click.option(
        "--all",
        "lists_all",
        is_flag=True,
        help="Also list empty partitions, which tables count if there are more than three.",
    )(function)


def accept_data_loss_option(function: _F) -> _F:
    """Add `--accept-data-loss` to a command that writes. It sets a field of `Settings`."""

    @click.option(
        "--accept-data-loss",
        is_flag=True,
        help="Allow recovery to truncate valid batches that follow damage.",
    )
    @wraps(function)
    def call(settings: Settings, *args: Any, accept_data_loss: bool, **kwargs: Any) -> object:
        return function(settings._replace(accept_data_loss=accept_data_loss), *args, **kwargs)

    return cast("_F", call)


def key_options(function: _F) -> _F:
    """Add `--key` and `--key-base64`."""
    for option in (
        click.option("--key-base64", metavar="B64", help="The key in base64, if it is not text."),
        click.option("--key", metavar="K", help="The key as text."),
    ):
        function = option(function)
    return function


def key_of(key: str | None, key_base64: str | None) -> bytes | None:
    """Return the key given by `--key` or `--key-base64`, or None if neither is given.

    Raises
    ------
    click.UsageError
        Both are given, or the base64 is invalid.
    """
    if key is not None and key_base64 is not None:
        raise click.UsageError("--key and --key-base64 are mutually exclusive")
    if key is not None:
        return key.encode("utf-8", "surrogateescape")
    if key_base64 is None:
        return None
    import base64
    import binascii

    try:
        return base64.b64decode(key_base64, validate=True)
    except binascii.Error as error:
        raise click.UsageError(f"--key-base64 {key_base64!r} is not base64: {error}") from error


def partition_option(help_text: str, *, required: bool = False) -> Callable[[_F], _F]:
    """Return a decorator that adds `--partition N`."""
    return click.option(
        "--partition",
        type=click.IntRange(0),
        metavar="N",
        required=required,
        help=help_text,
    )


# -- groups --------------------------------------------------------------------------------


class Group(click.Group):
    """A command group that imports commands on first use.

    Parameters
    ----------
    lazy : mapping
        (`module:attribute`, one-line help) by name.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]],
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy)
        self.examples = tuple(examples)
        self.params.extend(_shared_options())

    def invoke(self, ctx: click.Context) -> object:
        """Pass shared options that precede the command name to the command."""
        _set_shared_options(ctx, self.params)
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of `lazy`."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.lazy:
            return None
        import importlib

        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        imported = getattr(importlib.import_module(module), attribute)
        assert isinstance(imported, click.Command)
        return imported

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return matching commands and options, without importing commands."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=text)
            for name, text in self.short_helps(ctx)
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def short_helps(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return (name, one-line help) of all commands, without importing them."""
        return [(name, help_line) for name, (_, help_line) in self.lazy.items()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        rows = self.short_helps(ctx)
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, commands and options."""
        self.format_commands(ctx, formatter)
        write_examples(formatter, self.examples)
        write_options(self, ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. For an unknown name, suggest similar names."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            return name, command, args[1:]
        if not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"unknown command '{name}'{hint}")
        return super().resolve_command(ctx, args)


def choose(
    broker: Broker, topic: str | None, partition: int | None, overrides: Mapping[str, str]
) -> None:
    """Check that partitions exist, and override the configs of their topics."""
    if topic is not None:
        checked_partition(broker, topic, partition)
    if overrides:
        for name in [known.name for known in broker.topics()] if topic is None else [topic]:
            broker.override_configs(name, overrides)


def warn_of_strategy(broker: Broker, *topics: str) -> None:
    """Print notes about topic configs that KIP-280 advises against."""
    from logstore.analysis.broker_state import topic_config
    from logstore.cleaner.strategy import recommendations
    from logstore.cli.show.output import note

    for name in topics:
        for text in recommendations(topic_config(broker, name)):
            note(f"topic {name}: {text}")
