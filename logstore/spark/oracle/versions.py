"""Record versions (KIP-280) as columns. Source: docs/spec/cleaner.md §13.2."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

OFFSET = "offset"
TIMESTAMP = "timestamp"
HEADER = "header"
STRATEGIES = (OFFSET, TIMESTAMP, HEADER)

LONG = "long"
VARLONG = "varlong"
ENCODINGS = (LONG, VARLONG)

_LONG_BYTES = 8
_WORD_DIGITS = 16
_VARLONG_BYTES = 10
_WHOLE_VARLONG = f"^([89A-F][0-9A-F]){{0,{_VARLONG_BYTES - 1}}}[0-7][0-9A-F]$"
"""A complete varlong in hexadecimal. All bytes but the last have the continuation bit."""


def parse_version(strategy: str, header: str, encoding: str) -> tuple[Column, Column]:
    """Return whether a record has a version, and the version.

    The second column is only valid where the first one is true.
    """
    if strategy == OFFSET:
        return F.lit(False), F.lit(0).cast("bigint")
    if strategy == TIMESTAMP:
        return F.lit(True), F.unix_millis("timestamp")
    named = F.filter("headers", lambda each: each["key"] == header)
    # The last header with this name counts, even if only an earlier one is valid.
    value = F.try_element_at(named, F.lit(-1))["value"]
    return parse_varlong(value) if encoding == VARLONG else parse_long(value)


def parse_long(value: Column) -> tuple[Column, Column]:
    """Return whether a value has 8 bytes, and the signed big-endian number in them."""
    present = F.coalesce(F.length(value) == _LONG_BYTES, F.lit(False))
    return present, _word(F.hex(F.when(present, value)))


def parse_varlong(value: Column) -> tuple[Column, Column]:
    """Return whether a value is exactly one varlong, and the signed number in it.

    A varlong has 7 bits per byte, least significant first, in at most 10 bytes. It is
    zigzag-encoded, so the lowest bit is the sign. Redundant bytes are valid, and bits beyond 64 are
    dropped.
    """
    digits = F.hex(value)
    present = F.coalesce(digits.rlike(_WHOLE_VARLONG), F.lit(False))
    # Left-aligned in two words. Missing bytes are zero.
    padded = F.rpad(F.when(present, digits), 2 * _WORD_DIGITS, "0")
    words = [_word(F.substring(padded, 1 + at * _WORD_DIGITS, _WORD_DIGITS)) for at in (0, 1)]
    groups = [
        F.shiftleft(_byte(words[at // _LONG_BYTES], at % _LONG_BYTES).bitwiseAND(0x7F), 7 * at)
        for at in range(_VARLONG_BYTES)
    ]
    zigzag = reduce(lambda total, group: total.bitwiseOR(group), groups)
    sign = F.when(zigzag.bitwiseAND(1) == 1, F.lit(-1)).otherwise(F.lit(0)).cast("bigint")
    return present, F.shiftrightunsigned(zigzag, 1).bitwiseXOR(sign)


def _word(digits: Column) -> Column:
    """Parse 16 hexadecimal digits as a signed 64-bit number."""
    return F.conv(digits, 16, -10).cast("bigint")


def _byte(word: Column, at: int) -> Column:
    return F.shiftrightunsigned(word, 8 * (_LONG_BYTES - 1 - at)).bitwiseAND(0xFF)
