"""Selection of records by their content."""

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
    """Conditions on a record; all of them must hold.

    Attributes
    ----------
    key : bytes or None
        The key.
    text : bytes or None
        Bytes that the key, the value or the value of a header contains.
    pattern : callable or None
        Whether it matches a part of the key, the value or the value of a header.
    header, header_text : str or None, bytes or None
        Name of a header, and bytes that its value contains.
    first_ms, end_ms : int
        Bounds of the timestamp; the second one is exclusive.
    """

    key: bytes | None = None
    text: bytes | None = None
    pattern: Callable[[bytes], bool] | None = None
    header: str | None = None
    header_text: bytes | None = None
    first_ms: int = INT64_MIN
    end_ms: int = INT64_MAX

    def matches(self, record: RecordFields, decoded: bytes = b"") -> bool:
        """Return whether a record meets the conditions.

        Parameters
        ----------
        decoded : bytes
            The decoded key and value as JSON, which `text` and `pattern` also search.
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
