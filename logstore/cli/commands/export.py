"""`logstore export`: write records, fates and decoded values to a file."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import click

from logstore.cli.commands.clean import is_within
from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.schema_option import schema_option
from logstore.cli.show.damage import SkippedDamage, found_json, report_damages
from logstore.cli.show.decoded import decoded_member, raw_option
from logstore.cli.show.output import (
    emit,
    emit_json,
    note,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.targets import Target, open_target
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from logstore.analysis.view import PartitionView
    from logstore.cleaner.passes.fate import FateChunk
    from logstore.export.rows import Part, Records, Row
    from logstore.inspect.schemas.decoding import Decoder
    from logstore.inspect.schemas.files import SchemaFiles
    from logstore.record.batch import RecordBatch
    from logstore.storage.log.log import Log

    Decode = Callable[[RecordBatch, int], Iterable[Records]]

SUFFIXES = (".parquet", ".arrow", ".csv", ".jsonl")
DATA_FORMATS = ("bytes", "text", "json", "confluent")


class Writer(Protocol):
    """A writer for an output format."""

    def decode(self, batch: RecordBatch, limit: int) -> Iterable[Records]: ...  # noqa: D102

    def write(self, part: Part) -> None: ...  # noqa: D102

    def finish(self) -> None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


def to_out(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Check that the file suffix is a known format."""
    if not value.endswith(SUFFIXES):
        raise click.BadParameter(f"{value!r} must end in {', '.join(SUFFIXES)}", ctx, param)
    return value


@command(
    "export",
    examples=[
        "logstore export users --out users.parquet",
        "logstore export ./kafka-logs/users-0 --out users.arrow --config cleanup.policy=compact",
        "logstore export users --out users.csv --value-format json",
        "logstore export orders --out orders.csv --value-format confluent --schema 7=order.avsc",
        "logstore export __consumer_offsets --out offsets.jsonl",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@click.option(
    "--out",
    callback=to_out,
    required=True,
    metavar="FILE",
    help="File to write; the suffix .parquet, .arrow, .csv or .jsonl selects the format.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--key-format",
    type=click.Choice(DATA_FORMATS),
    default="bytes",
    help="How to decode keys.  [default: bytes (not decoded)]",
)
@click.option(
    "--value-format",
    type=click.Choice(DATA_FORMATS),
    default="bytes",
    help="How to decode values. confluent: the schema registry's wire format with Avro, Protobuf "
    "or JSON Schema.  [default: bytes (not decoded)]",
)
@schema_option
@click.option(
    "--roll",
    is_flag=True,
    help="Compute fates as if the active segment were rolled first, so that it is included.",
)
@click.option("--no-fates", is_flag=True, help="Omit fates; the log is then read only once.")
@raw_option
@as_recovered_option
@config_option("Topic configuration to assume for the fates. Can be repeated.")
def export(
    settings: Settings,
    target: str | None,
    out: str,
    overwrite: bool,
    partition: int | None,
    key_format: str,
    value_format: str,
    schemas: SchemaFiles,
    roll: bool,
    no_fates: bool,
    raw: bool,
    as_recovered: bool,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Write the records of TOPIC_OR_PATH to a Parquet, Arrow, CSV or JSON lines file.

    TOPIC_OR_PATH is a topic, a partition directory, a data directory or a .log file. [default: the
    whole data directory] Each row has the location of a record and its fate in the next cleaning
    pass, as in `inspect --fate`. Transaction markers are included, with `control` set. Memory use
    does not depend on the size of the data. Parquet and Arrow require pyarrow.

    Decoded keys and values are additional JSON columns. If a record cannot be decoded, decode_error
    contains the reason. Records of Kafka's internal topics are decoded unless --raw is given.

    FILE is created only when it is complete. Damaged batches are skipped and reported, and the exit
    code is then 1.
    """
    from logstore.cli.show.messages import Recovery, show_messages
    from logstore.export.files import ExportFile
    from logstore.runtime import DiskFileSystem

    overrides = topic_overrides(configs)
    show_messages(Recovery.COMPUTED)
    decoder = _decoder(key_format, value_format, schemas)
    path = os.path.abspath(out)  # noqa: PTH100  # the engine's paths are strings
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        _check_place(found, out, path)
        if found.broker is None and overrides:
            raise click.UsageError("--config needs a topic or a directory, not a file")
        for topic in {tp.topic for tp in found.partitions} if overrides else ():
            assert found.broker is not None
            found.broker.override_configs(topic, overrides)
        run = _Run(found, decoder, fates=not no_fates, roll=roll, raw=raw)
        try:
            file = ExportFile(DiskFileSystem(), path, overwrite=overwrite)
        except FileExistsError:
            raise click.UsageError(f"{out} already exists; use --overwrite to replace it") from None
        with file, ProgressBar() as bar:
            writer = _writer(
                file.stream,
                out,
                fates=run.has_fates,
                decoded=run.decodes,
                escape_formulas=settings.escape_formulas,
            )
            with closing(writer):
                for part in run.parts(writer.decode, bar):
                    writer.write(part)
                writer.finish()
        return _report(settings, found, out, run, DiskFileSystem().stat(path).size)


def _decoder(key_format: str, value_format: str, schemas: SchemaFiles) -> Decoder:
    from logstore.inspect.schemas.decoding import DataFormat, Decoder
    from logstore.inspect.schemas.files import load_schemas

    if schemas and "confluent" not in (key_format, value_format):
        raise click.UsageError("--schema needs --key-format or --value-format confluent")
    found = load_schemas(schemas)
    return Decoder(DataFormat(key_format), DataFormat(value_format), found)


def _check_place(target: Target, out: str, path: str) -> None:
    """Reject an output file inside the directory that is being read."""
    from logstore.analysis.broker_state import data_dirs

    folders = [] if target.broker is None else data_dirs(target.broker)
    if target.file is not None and target.file.topic_partition is not None:
        folders = [target.file.path.rpartition("/")[0]]
    for folder in folders:
        if is_within(path, folder):
            raise click.UsageError(f"--out {out} is inside {folder}, which is only read")


def _writer(
    stream: Any,  # noqa: ANN401  # binary
    out: str,
    *,
    fates: bool,
    decoded: bool,
    escape_formulas: bool,
) -> Writer:
    from logstore.export.arrow import Columns
    from logstore.export.text import Csv, JsonLines

    if out.endswith(".jsonl"):
        return JsonLines(stream, fates=fates, decoded=decoded)
    if out.endswith(".csv"):
        return Csv(stream, fates=fates, decoded=decoded, escape_formulas=escape_formulas)
    return Columns(stream, f".{out.rpartition('.')[2]}", fates=fates, decoded=decoded)


class _Run:
    """The rows of an export, and counts for its report."""

    def __init__(
        self, target: Target, decoder: Decoder, *, fates: bool, roll: bool, raw: bool
    ) -> None:
        self._target = target
        self._decoder = decoder
        self._roll = roll
        self._raw = raw
        self.has_fates = fates and target.broker is not None
        self.decodes = decoder.decodes or (not raw and self._is_of_kafka())
        self.records = 0
        self.undecoded = 0
        self.damages_of_file = SkippedDamage()

    def _is_of_kafka(self) -> bool:
        partitions = self._target.partitions
        if self._target.file is not None and self._target.file.topic_partition is not None:
            partitions = (self._target.file.topic_partition,)
        return any(tp.topic.startswith("__") for tp in partitions)

    def parts(self, decode: Decode, bar: ProgressBar) -> Iterator[Part]:
        """Yield all records, decoded."""
        from logstore.export.rows import rows_of

        for part in self._found(decode, bar):
            self.records += len(part.records)
            if not self.decodes:
                yield part
                continue
            decoded = [self._decoded(row) if row.control is None else None for row in rows_of(part)]
            self.undecoded += sum("error" in each for each in decoded if each is not None)
            yield part._replace(decoded=decoded)

    def _decoded(self, row: Row) -> dict[str, Any] | None:
        of_kafka = decoded_member(row.topic, row.record, raw=self._raw).get("decoded")
        if of_kafka is not None:
            return dict(of_kafka)
        if not self._decoder.decodes:
            return None
        return self._decoder.decode(row.record.key, row.record.value)

    def _found(self, decode: Decode, bar: ProgressBar) -> Iterator[Part]:
        from logstore.export.rows import Part
        from logstore.inspect.files import valid_batches

        if (source := self._target.file) is not None:
            topic, partition = source.topic_partition or (None, None)
            met = SkippedDamage()
            for item in valid_batches(source, met.of_next_file()):
                for records in decode(item.batch, source.decompression_limit):
                    yield Part(topic, partition, item.batch, item.position, records, None)
            self.damages_of_file = met
            return
        for view in self._target.views():
            yield from self._of_partition(view, decode, bar)

    def _of_partition(
        self, view: PartitionView, decode: Decode, bar: ProgressBar
    ) -> Iterator[Part]:
        from logstore.export.rows import Fates, Part, from_offset

        name = str(view.topic_partition)
        bar.update(f"exporting {name}", 0, sum(s.size_bytes for s in view.log.segments))
        fates = Fates(view, self._fates) if self.has_fates else None
        start = view.log.log_start_offset
        done = 0
        for stored, lists in view.decoded(decode):
            done += stored.size_bytes
            bar.update(f"exporting {name}", done, sum(s.size_bytes for s in view.log.segments))
            for each in lists:
                records = from_offset(each, start)
                known = None if fates is None else fates.of(records)
                yield Part(*view.topic_partition, stored.batch, stored.position, records, known)
        bar.finish(f"exporting {name}")
        if fates is not None and fates.failure is not None:
            note(f"{name}: no fates from there on: {fates.failure}")

    def skipped_json(self) -> dict[str, Any]:
        """Return the skipped damage and the assumptions as JSON. Empty if there are none."""
        if self._target.broker is None:
            return self.damages_of_file.to_json()
        return found_json(self._target.broker, self._target.partitions)

    def _fates(self, log: Log) -> Iterator[FateChunk]:
        from logstore.analysis.fates import PartitionFates

        assert self._target.broker is not None
        return PartitionFates(self._target.broker.cleaner, log, roll=self._roll).chunks()


def _report(settings: Settings, target: Target, out: str, run: _Run, size_bytes: int) -> int:
    if run.undecoded:
        records = plural(run.undecoded, "record")
        note(f"{records} could not be decoded; see the column decode_error")
    if settings.as_table:
        emit(f"{out}: {plural(run.records, 'record')}, {format_size(size_bytes)}")
    else:
        report = {"path": out, "records": run.records, "size_bytes": size_bytes}
        report["undecoded"] = run.undecoded
        emit_json(report | run.skipped_json(), settings.output)
    if target.broker is None:
        return run.damages_of_file.report()
    return report_damages(target.broker, target.partitions)
