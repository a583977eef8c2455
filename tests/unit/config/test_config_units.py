"""Times and sizes with units."""

from __future__ import annotations

import pytest

from logstore.config.units import parse_duration, parse_loose_size, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("1500", 1500),
        ("7d", 604_800_000),
        ("12h", 43_200_000),
        ("5m", 300_000),
        ("30s", 30_000),
        ("250ms", 250),
        ("1d12h", 129_600_000),
        ("2w", 1_209_600_000),
        ("-1", -1),
    ),
)
def test_duration_is_ms_or_with_units(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ("", "d", "7 d", "1.5h", "3y", "s30"))
def test_invalid_durations_are_refused(text):
    with pytest.raises(ValueError, match="is not a duration") as refusal:
        parse_duration(text)
    assert str(refusal.value) == (
        f"{text!r} is not a duration: use milliseconds, or 7d, 12h, 5m, 30s, 250ms"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    (("1500", 1500), ("100B", 100), ("512KiB", 524_288), ("2 MiB", 2_097_152), ("1TiB", 2**40)),
)
def test_size_is_bytes_or_with_a_unit(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ("", "KiB", "1.5MiB", "1MB", "1kib", "1GiB2"))
def test_invalid_sizes_are_refused(text):
    with pytest.raises(ValueError, match="is not a size") as refusal:
        parse_size(text)
    assert str(refusal.value) == f"{text!r} is not a size: use bytes, or 512KiB, 10MiB, 1GiB"


@pytest.mark.parametrize(
    ("text", "size"), (("4096", 4096), ("64MiB", 64 << 20), (" 64 mb", 64 << 20), ("1G", 1 << 30))
)
def test_loose_sizes_have_any_spelling(text, size):
    assert parse_loose_size(text) == size


@pytest.mark.parametrize("text", ("big", "-1", "1.5g", ""))
def test_other_texts_are_not_loose_sizes(text):
    with pytest.raises(ValueError, match="is not a size") as refusal:
        parse_loose_size(text)
    assert str(refusal.value) == f"{text!r} is not a size such as 4096, 64MiB or 1g"
