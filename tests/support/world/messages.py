"""Whole messages of errors, for `pytest.raises(..., match=exactly(text))`."""

import re


def exactly(text: str) -> str:
    """Return the pattern that only the whole text matches."""
    return rf"\A{re.escape(text)}\Z"
