"""`logstore append`: append records from a file or standard input to a topic."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING

import click

from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    checked_partition,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.output import (
    emit_json,
    emit_values,
    note,
    one_line,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cli.commands.append_lines import Parser
    from logstore.clients.writer import AppendedRange, BatchWriter
    from logstore.config.log_config import LogConfig
    from logstore.storage.log.drafts import NewRecord

CREATED_PARTITIONS_MAX = 1000
"""Maximum number of partitions that --create adds, in case a partition number has a typo."""

_PROGRESS_LINES = 4096


@command(
    "append",
    examples=[
        """echo '{"key": "1", "value": "ann"}' | logstore append users --create""",
        "logstore append users updates.jsonl --compression zstd",
        "logstore append users table.tsv --input-format tsv --partition 0",
        "logstore read users --format jsonl | logstore append copy --create",
    ],
)
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@partition_option("Partition for lines that do not specify one. [default: by hash of the key]")
@click.option(
    "--input-format",
    type=click.Choice(("jsonl", "tsv")),
    default="jsonl",
    show_default=True,
    help=r"jsonl: objects as `read` writes them. tsv: key, tab, value; \N is null.",
)
@click.option(
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    default="none",
    show_default=True,
    help="Codec of the batches; overridden by the topic's compression.type.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(1),
    metavar="N",
    help="Records per batch. [default: as many as fit in 16 KiB]",
)
@click.option("--create", is_flag=True, help="Create the topic if missing, with its partitions.")
@click.option("--skip-invalid", is_flag=True, help="Skip lines that cannot be appended.")
@click.option("--json-values", is_flag=True, help="Store numbers, objects etc. as JSON text.")
@config_option("Topic configuration for this run (stored with --create). Can be repeated.")
@accept_data_loss_option
def append(
    settings: Settings,
    topic: str,
    file: IO[bytes],
    partition: int | None,
    input_format: str,
    compression: str,
    batch_records: int | None,
    create: bool,
    skip_invalid: bool,
    json_values: bool,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Append records to TOPIC from FILE, or from standard input.

    A record is appended to the partition given in its line, or to --partition, or to the partition
    selected by Kafka's default partitioner. The default timestamp is the current time. In jsonl,
    `value` is required (null means a tombstone), and a missing `key` is null.

    At the first line that cannot be appended, the command stops with an error. Earlier lines have
    been appended. With --skip-invalid, such lines are skipped and counted.
    """
    from logstore.cli.commands.append_lines import parser

    overrides = topic_overrides(configs)
    with settings.open_broker(create=create) as broker:
        created = create and _create(broker, topic, partition, overrides)
        checked_partition(broker, topic, None if created else partition)
        if overrides and not created:
            broker.override_configs(topic, overrides)
        run = _Run(
            broker,
            broker.batch_writer(topic, compression=compression, batch_records=batch_records),
            partition,
            may_grow=created,
            skip_invalid=skip_invalid,
        )
        try:
            run.append_lines(parser(input_format, json_values=json_values), file)
        except KeyboardInterrupt:
            run.finish()
            click.echo(f"interrupted; appended {plural(run.taken, 'record')}", err=True)
            raise
        appended = run.finish()
    _report(settings, appended, run.skipped)
    if run.failure is not None:
        click.echo(f"error: {run.failure}", err=True)
        return 1
    return 0


def _create(
    broker: Broker, topic: str, partition: int | None, overrides: Mapping[str, str]
) -> bool:
    """Create the topic if it does not exist. Return whether it was created."""
    if any(known.name == topic for known in broker.topics()):
        return False
    broker.create_topic(topic, 1 if partition is None else partition + 1, overrides)
    return True


class _Run:
    """A pass over the input."""

    def __init__(
        self,
        broker: Broker,
        writer: BatchWriter,
        partition: int | None,
        *,
        may_grow: bool,
        skip_invalid: bool,
    ) -> None:
        self.writer = writer
        self.taken = 0
        self.skipped = 0
        self.failure: str | None = None
        self._broker = broker
        self._partition = partition
        self._may_grow = may_grow
        self._skip_invalid = skip_invalid
        self._check = _record_check(broker, writer.topic)

    def append_lines(self, parser: Parser, file: IO[bytes]) -> None:
        """Append lines until the first invalid one, unless invalid lines are skipped."""
        from logstore.cli.commands.append_lines import MalformedLineError, numbered_lines
        from logstore.errors import RequestError

        parse, is_blank = parser
        check, add = self._check, self.writer.add
        known = set(self.writer.partitions)
        with ProgressBar() as bar:
            lines = _watched(file, bar, self) if bar.visible else file
            for number, line in numbered_lines(lines):
                if is_blank(line):
                    continue
                try:
                    record, partition = parse(line)
                    if partition is None:
                        partition = self._partition
                    elif partition not in known:
                        known = self._grow(partition)
                    if check is not None:
                        check(record)
                    add(record, partition)
                except (MalformedLineError, RequestError) as error:
                    if not self._may_skip(number, error):
                        return
                else:
                    self.taken += 1

    def finish(self) -> list[AppendedRange]:
        """Append pending records and return the appended ranges."""
        from logstore.errors import RequestError

        try:
            return self.writer.finish()
        except RequestError as error:
            self.failure = self.failure or f"the last batch was rejected: {error}"
            return self.writer.appended

    def _may_skip(self, number: int, error: Exception) -> bool:
        if self._skip_invalid:
            self.skipped += 1
            return True
        self.failure = f"line {number}: {one_line(_reason(error))}"
        return False

    def _grow(self, partition: int) -> set[int]:
        """Add partitions, up to the one a line requires, to a topic created in this run."""
        from logstore.errors import UnknownTopicOrPartitionError

        topic = self.writer.topic
        if not self._may_grow or partition >= CREATED_PARTITIONS_MAX:
            raise UnknownTopicOrPartitionError(f"topic '{topic}' has no partition {partition}")
        grown = self._broker.create_partitions(topic, partition + 1)
        self.writer.partitions = grown.partitions
        return set(grown.partitions)


def _watched(file: IO[bytes], bar: ProgressBar, run: _Run) -> Iterator[bytes]:
    """Yield the lines of a file and update the progress bar."""
    total = _size_of(file)
    done = 0
    for number, line in enumerate(file):
        yield line
        done += len(line)
        if number % _PROGRESS_LINES == 0:
            bar.update("appending", done, total, plural(run.taken, "record"))


def _size_of(file: IO[bytes]) -> int | None:
    """Return the size of a regular file, or None for a pipe or terminal."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _record_check(broker: Broker, topic: str) -> Callable[[NewRecord], None] | None:
    """Return a check to apply before a record is batched, or None if none is needed.

    The log applies the same rules, but rejects the entire batch and does not know the line.
    """
    from logstore.analysis.broker_state import topic_config
    from logstore.storage.log.validate import check_keys, check_timestamps
    from logstore.types import INT64_MAX, TimestampType

    config: LogConfig = topic_config(broker, topic)
    clock = broker.clock
    is_bounded = config.message_timestamp_type is TimestampType.CREATE_TIME and (
        min(config.timestamp_before_max_ms, config.timestamp_after_max_ms) < INT64_MAX
    )
    if not config.compact and not is_bounded:
        return None

    def check(record: NewRecord) -> None:
        if record.key is None:
            check_keys([0], config)
        if is_bounded and record.timestamp is not None:
            check_timestamps([record.timestamp], config, clock.now_ms())

    return check


def _reason(error: Exception) -> str:
    """Return why a record was rejected, without its index in the batch."""
    from logstore.errors import InvalidRecordError, LogStoreError

    text = str(error)
    if isinstance(error, InvalidRecordError) and error.record_errors:
        text = error.record_errors[0][1]
    return f"{text} ({error.kafka_error})" if isinstance(error, LogStoreError) else text


def _report(settings: Settings, appended: list[AppendedRange], skipped: int) -> None:
    items = [stored._asdict() for stored in appended]
    if settings.output == "json":
        emit_json({"appended": items, "skipped": skipped})
    elif settings.as_items:
        emit_values(items, output=settings.output)
        if skipped:
            note(f"{plural(skipped, 'line')} skipped")
    else:
        _show(appended, skipped)


def _show(appended: list[AppendedRange], skipped: int) -> None:
    # Importing rich for a table would take longer than appending a few lines.
    for stored in appended:
        span = (
            f"offset {stored.first_offset}"
            if stored.first_offset == stored.last_offset
            else f"offsets {stored.first_offset}-{stored.last_offset}"
        )
        print(
            f"{stored.topic}-{stored.partition}: {plural(stored.records, 'record')} at {span}, "
            f"{format_size(stored.bytes)}"
        )
    if not appended:
        print("nothing appended")
    if skipped:
        print(f"{plural(skipped, 'line')} skipped")
