"""Exports to Parquet and the Arrow IPC file format with pyarrow."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from logstore.errors import InvalidConfigurationError
from logstore.export.text import DECODED_FIELDS, decoded_fields
from logstore.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from logstore.export.rows import Row

GROUP_ROWS_MAX = 64 * 1024
GROUP_BYTES_MAX = 32 * 1024 * 1024
"""Rows, and bytes of keys and values, that are buffered for one row group."""

EXTRA = "kafka-logstore[export]"


class Columns:
    """Writes rows as row groups.

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
        self._rows: list[Row] = []
        self._bytes = 0
        self._sink = self._pa.PythonFile(stream, mode="w")
        if suffix == ".parquet":
            import pyarrow.parquet

            self._writer = pyarrow.parquet.ParquetWriter(
                self._sink, self._schema, compression="zstd"
            )
        else:
            self._writer = self._pa.ipc.new_file(self._sink, self._schema)

    def write(self, row: Row) -> None:
        """Buffer a row, and write a row group when the buffer is full."""
        record = row.record
        self._rows.append(row)
        self._bytes += len(record.key or b"") + len(record.value or b"")
        if len(self._rows) >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._write_group()

    def finish(self) -> None:
        """Write the remaining rows and the file footer."""
        if self._rows:
            self._write_group()
        self._writer.close()

    def close(self) -> None:
        """Release pyarrow's writer, which would otherwise write to the stream when collected."""
        with suppress(OSError):  # do not hide the original error
            self._writer.close()

    def _write_group(self) -> None:
        rows = self._rows
        records = [row.record for row in rows]
        columns: dict[str, list[Any]] = {
            "topic": [row.topic for row in rows],
            "partition": [row.partition for row in rows],
            "offset": [record.offset for record in records],
            "timestamp": [
                None if record.timestamp == NO_TIMESTAMP else record.timestamp for record in records
            ],
            "timestamp_type": [int(row.timestamp_type) for row in rows],
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "headers": [_headers(record.headers) for record in records],
            "batch_base_offset": [row.batch_base_offset for row in rows],
            "position": [row.position for row in rows],
            "control": [row.control for row in rows],
        }
        if self._fates:
            columns["fate"] = [row.fate for row in rows]
            columns["superseded_by"] = [row.superseded_by for row in rows]
        if self._decoded:
            found = zip(*map(decoded_fields, rows), strict=True)
            columns |= {
                name: list(fields) for name, fields in zip(DECODED_FIELDS, found, strict=True)
            }
        arrays = [self._pa.array(columns[field.name], type=field.type) for field in self._schema]
        self._writer.write_batch(self._pa.record_batch(arrays, schema=self._schema))
        rows.clear()
        self._bytes = 0


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


def _headers(headers: tuple[tuple[str, bytes | None], ...]) -> list[dict[str, Any]]:
    """Return headers for a column. Invalid UTF-8 in names is replaced."""
    return [
        {"name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for name, value in headers
    ]


def library(suffix: str) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Import pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise InvalidConfigurationError(
            f"a {suffix} file needs pyarrow: pip install '{EXTRA}'"
        ) from error
    return pyarrow
