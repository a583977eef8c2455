"""`logstore dump`: print files in the format of kafka-dump-log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import Settings, command
from logstore.cli.show.output import note, one_line

if TYPE_CHECKING:
    from logstore.inspect.decoders import DecoderClass
    from logstore.inspect.dump import DumpLine

_PENDING_LINES = 512


def to_decoder(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> DecoderClass | None:
    """Parse the class name of a decoder."""
    from logstore.errors import UnsupportedFormatError
    from logstore.inspect.decoders import decoder_class

    if value is None:
        return None
    try:
        return decoder_class(value)
    except UnsupportedFormatError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _classes(
    key: DecoderClass | None, value: DecoderClass | None
) -> tuple[DecoderClass, DecoderClass] | None:
    from logstore.inspect.decoders import DecoderClass

    if key is None and value is None:
        return None
    return key or DecoderClass(), value or DecoderClass()


@command(
    "dump",
    examples=[
        "logstore dump kafka-logs/users-0/00000000000000000000.log",
        "logstore dump kafka-logs/users-0/*.log --print-data-log",
        "logstore dump kafka-logs/__consumer_offsets-7/*.log --offsets-decoder",
        "logstore dump kafka-logs/users-0/*.index --verify-index-only",
        "logstore dump --deep-iteration --files users-0/00000000000000000000.log,"
        "users-0/00000000000000000000.timeindex",
    ],
)
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option(
    "--files",
    "listed",
    multiple=True,
    metavar="FILE,FILE",
    help="More files, separated by commas, as in kafka-dump-log.",
)
@click.option(
    "--deep-iteration", is_flag=True, help="Also show records; implied by --print-data-log."
)
@click.option("--print-data-log", is_flag=True, help="Show keys and values as unescaped UTF-8.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state."
)
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="Decode records of __cluster_metadata."
)
@click.option(
    "--remote-log-metadata-decoder", is_flag=True, help="Decode records of __remote_log_metadata."
)
@click.option(
    "--share-group-state-decoder", is_flag=True, help="Decode records of __share_group_state."
)
@click.option(
    "--key-decoder-class",
    callback=to_decoder,
    metavar="CLASS",
    help="Decoder class for keys, such as IntegerDecoder or LongDecoder; implies "
    "--print-data-log.  [default: StringDecoder]",
)
@click.option(
    "--value-decoder-class",
    callback=to_decoder,
    metavar="CLASS",
    help="Decoder class for values; also implies --print-data-log.  [default: StringDecoder]",
)
@click.option(
    "--verify-index-only", is_flag=True, help="Verify indexes without showing their entries."
)
@click.option(
    "--index-sanity-check", is_flag=True, help="Check the indexes without reading the log."
)
@click.option(
    "--max-message-size",
    type=click.IntRange(0),
    metavar="BYTES",
    default=5 * 1024 * 1024,
    help="Bytes to read when verifying an index entry.  [default: 5242880]",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(0),
    metavar="BYTES",
    default=2**31 - 1,
    help="Bytes to read from each .log file.  [default: all]",
)
@click.option("--skip-record-metadata", is_flag=True, help="Show only keys and values of records.")
def dump(
    settings: Settings,
    paths: tuple[str, ...],
    listed: tuple[str, ...],
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    cluster_metadata_decoder: bool,
    remote_log_metadata_decoder: bool,
    share_group_state_decoder: bool,
    key_decoder_class: DecoderClass | None,
    value_decoder_class: DecoderClass | None,
    **flags: Any,
) -> int:
    """Print .log, .checkpoint, index and .snapshot files in the format of kafka-dump-log.

    The output is identical to the output of Kafka's tool. Problems with indexes and offsets are
    printed on standard error after all files. As in Kafka, this includes valid indexes written by
    appends of several batches. Use `check` to verify files, and `inspect --batches` for JSON.
    Nothing is changed.
    """
    from logstore.config.overrides import ReadLimits
    from logstore.inspect.decoders import DECODERS
    from logstore.inspect.dump import DumpOptions, dump_files
    from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem

    chosen = (
        offsets_decoder,
        transaction_log_decoder,
        cluster_metadata_decoder,
        remote_log_metadata_decoder,
        share_group_state_decoder,
    )
    # As in Kafka's tool, the first one takes precedence.
    decoder = next((topic for topic, wanted in zip(DECODERS, chosen, strict=True) if wanted), None)
    files = [*paths, *(name for names in listed for name in names.split(",") if name)]
    if not files:
        raise click.UsageError("Missing argument 'FILE...'")
    for name in files:
        if not Path(name).exists():
            raise click.UsageError(f"{name}: no such file")
        if Path(name).is_dir():
            raise click.UsageError(f"{name} is a directory; name its files")
    if not settings.as_table:
        note("dump prints only kafka-dump-log's format; use inspect --batches for JSON")
    options = DumpOptions(
        decoder=decoder,
        decoder_classes=_classes(key_decoder_class, value_decoder_class),
        limits=ReadLimits.of(settings.broker_config()),
        working_dir=str(Path.cwd()),
        **flags,
    )
    return _print(dump_files(ReadOnlyFileSystem(DiskFileSystem()), files, options))


def _print(lines: Iterable[DumpLine]) -> int:
    """Print each line to its stream. If both streams are a terminal, preserve the order."""
    from logstore.inspect.dump import Stream

    # Like Java's PrintStream, replace unencodable characters with question marks.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    exit_code = 0
    pending: list[str] = []
    try:
        for line in lines:
            if line.stream is Stream.OUTPUT:
                pending.append(line.text)
                if len(pending) < _PENDING_LINES:
                    continue
            _flush(pending)
            if line.stream is not Stream.OUTPUT:
                sys.stdout.flush()
                text = line.text
                if line.stream is Stream.FAILURE:
                    text = f"error: {one_line(text)}"
                print(text, file=sys.stderr)
                exit_code = max(exit_code, line.exit_code)
    finally:
        _flush(pending)
    return exit_code


def _flush(pending: list[str]) -> None:
    if pending:
        text = "\n".join([*pending, ""])
        pending.clear()
        sys.stdout.write(text)
