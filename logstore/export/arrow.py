"""Exports to Parquet and the Arrow IPC file format with pyarrow."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from logstore.cleaner.passes.fate import FATES
from logstore.errors import InvalidConfigurationError
from logstore.export.rows import NO_FATE
from logstore.export.text import DECODED_FIELDS, decoded_fields
from logstore.record.batch import stored_columns
from logstore.record.columns import RecordColumns, join_columns
from logstore.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from logstore.export.rows import Part
    from logstore.record.batch import RecordBatch

GROUP_ROWS_MAX = 64 * 1024
GROUP_BYTES_MAX = 32 * 1024 * 1024
"""Rows, and bytes of keys and values, that are buffered for one row group."""

EXTRA = "kafka-logstore[export]"


class Columns:
    """Writes records as row groups.

    Parameters
    ----------
    suffix : str
        `.parquet` or `.arrow`.

    Raises
    ------
    InvalidConfigurationError
        pyarrow is not installed.
    """

    def __init__(self, stream: BinaryIO, suffix: str, *, fates: bool, decoded: bool) -> None:
        self._pa = library(suffix)
        self._schema = _schema(self._pa, fates=fates, decoded=decoded)
        self._fates = fates
        self._decoded = decoded
        self._parts: list[Part] = []
        self._rows = self._bytes = 0
        self._sink = self._pa.PythonFile(stream, mode="w")
        if suffix == ".parquet":
            import pyarrow.parquet

            self._writer = pyarrow.parquet.ParquetWriter(
                self._sink, self._schema, compression="zstd"
            )
        else:
            self._writer = self._pa.ipc.new_file(self._sink, self._schema)

    @staticmethod
    def decode(batch: RecordBatch, limit: int) -> tuple[RecordColumns]:
        """Decode a batch into columns. Limit and errors are as in `stored_columns`."""
        return (stored_columns(batch, limit),)

    def write(self, part: Part) -> None:
        """Buffer the records of a part, and write a row group whenever the buffer is full."""
        columns = _columns(part)
        sizes = np.maximum(columns.keys.sizes, 0) + np.maximum(columns.values.sizes, 0)
        totals = np.cumsum(sizes, dtype=np.int64)
        start = 0
        while start < len(columns):
            before = int(totals[start - 1]) if start else 0
            full = np.searchsorted(totals, before + GROUP_BYTES_MAX - self._bytes)
            stop = min(start + GROUP_ROWS_MAX - self._rows, int(full) + 1, len(columns))
            self._parts.append(part.slice(start, stop))
            self._rows += stop - start
            self._bytes += int(totals[stop - 1]) - before
            if self._rows >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
                self._write_group()
            start = stop

    def finish(self) -> None:
        """Write the remaining rows and the file footer."""
        if self._parts:
            self._write_group()
        self._writer.close()

    def close(self) -> None:
        """Release pyarrow's writer, which would otherwise write to the stream when collected."""
        with suppress(OSError):  # do not hide the original error
            self._writer.close()

    def _write_group(self) -> None:
        from logstore.export.arrays import binary_array, header_lists

        pa, schema, parts = self._pa, self._schema, self._parts
        columns = join_columns([_columns(part) for part in parts])
        counts = [len(part.records) for part in parts]

        def repeated(name: str, values: list[Any]) -> Any:  # noqa: ANN401  # pyarrow has no types
            return pa.array(values, schema.field(name).type).take(pa.array(batches))

        batches = np.repeat(np.arange(len(parts)), counts)
        headers = [part.batch.header for part in parts]
        timestamps = columns.timestamps
        arrays = {
            "topic": repeated("topic", [part.topic for part in parts]),
            "partition": repeated("partition", [part.partition for part in parts]),
            "offset": columns.offsets,
            "timestamp": pa.array(timestamps, mask=timestamps == NO_TIMESTAMP),
            "timestamp_type": repeated(
                "timestamp_type", [int(header.timestamp_type) for header in headers]
            ),
            "key": binary_array(columns.keys),
            "value": binary_array(columns.values),
            "headers": header_lists(columns, schema.field("headers").type),
            "batch_base_offset": repeated(
                "batch_base_offset", [header.base_offset for header in headers]
            ),
            "position": repeated("position", [part.position for part in parts]),
            "control": list(
                chain.from_iterable(
                    part.controls or repeat(None, count)
                    for part, count in zip(parts, counts, strict=True)
                )
            ),
        }
        if self._fates:
            fates = [part.fates for part in parts if part.fates is not None]
            codes = np.concatenate([each.codes for each in fates])
            by = np.concatenate([each.superseded_by for each in fates])
            arrays["fate"] = pa.array(FATES).take(pa.array(codes, mask=codes == NO_FATE))
            arrays["superseded_by"] = pa.array(by, mask=by < 0)
        if self._decoded:
            rows = [
                decoded_fields(decoded)
                for part, count in zip(parts, counts, strict=True)
                for decoded in part.decoded or repeat(None, count)
            ]
            found = zip(*rows, strict=True)
            arrays |= {
                name: list(fields) for name, fields in zip(DECODED_FIELDS, found, strict=True)
            }
        columns_in_order = [_typed(pa, arrays[field.name], field.type) for field in schema]
        self._writer.write_batch(pa.record_batch(columns_in_order, schema=schema))
        parts.clear()
        self._rows = self._bytes = 0


def _columns(part: Part) -> RecordColumns:
    assert isinstance(part.records, RecordColumns)  # `decode` returns columns
    return part.records


def _typed(pa: Any, values: Any, kind: Any) -> Any:  # noqa: ANN401  # pyarrow has no types
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _schema(pa: Any, *, fates: bool, decoded: bool) -> Any:  # noqa: ANN401  # pyarrow has no types
    fields = [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
            nullable=False,
        ),
        pa.field("batch_base_offset", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("control", pa.string()),
    ]
    if fates:
        fields += [pa.field("fate", pa.string()), pa.field("superseded_by", pa.int64())]
    if decoded:
        fields += [pa.field(name, pa.string()) for name in DECODED_FIELDS]
    return pa.schema(fields)


def library(suffix: str) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Import pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise InvalidConfigurationError(
            f"a {suffix} file needs pyarrow: pip install '{EXTRA}'"
        ) from error
    return pyarrow
