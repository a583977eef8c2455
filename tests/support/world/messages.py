"""Whole messages of errors, for `pytest.raises(..., match=exactly(text))`."""

import re


def exactly(text: str) -> str:
    """Return the pattern that only the whole text matches; `{path}` is any directory."""
    escaped = re.escape(text).replace(re.escape("{path}"), r"\S*")
    return rf"\A{escaped}\Z"
