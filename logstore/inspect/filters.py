"""Selection of records by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.record.json_text import RecordFields

INT64_MIN = -INT64_MAX - 1


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions on a record, all of which must be met.

    Attributes
    ----------
    key : bytes or None
        Required key.
    text : bytes or None
        Bytes that the key, the value or a header value must contain.
    pattern : callable or None
        Returns whether a part of the key, the value or a header value matches.
    header, header_text : str or None, bytes or None
        Name of a required header, and bytes that its value must contain.
    first_ms, end_ms : int
        Bounds of the timestamp, the first inclusive, the second exclusive.
    """

    key: bytes | None = None
    text: bytes | None = None
    pattern: Callable[[bytes], bool] | None = None
    header: str | None = None
    header_text: bytes | None = None
    first_ms: int = INT64_MIN
    end_ms: int = INT64_MAX

    def matches(self, record: RecordFields, decoded: bytes = b"") -> bool:
        """Return whether a record meets all conditions.

        Parameters
        ----------
        decoded : bytes
            The decoded key and value as JSON, which `text` and `pattern` search as well.
        """
        if self.key is not None and record.key != self.key:
            return False
        if not self.first_ms <= record.timestamp < self.end_ms:
            return False
        if (self.header is not None or self.header_text is not None) and not any(
            (self.header is None or name == self.header)
            and (self.header_text is None or self.header_text in (value or b""))
            for name, value in record.headers
        ):
            return False
        if self.text is None and self.pattern is None:
            return True
        parts = [record.key, record.value, decoded, *(value for _, value in record.headers)]
        present = [part for part in parts if part is not None]
        if self.text is not None and not any(self.text in part for part in present):
            return False
        return self.pattern is None or any(map(self.pattern, present))
