"""The forms of the page name keys that there are, each once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.topic_keys import TOPIC_KEYS

FRONT = Path(__file__).resolve().parents[3] / "logstore" / "ui" / "front"
KEY = re.compile(r'"((?:[a-z]+\.)+[a-z]+)"')


def listed(module: str, name: str) -> list[str]:
    """Return the keys of a table of a module."""
    text = (FRONT / module).read_text(encoding="utf-8")
    table = text[text.index(f"const {name} = ") :]
    return KEY.findall(table[: table.index(";\n")])


@pytest.mark.parametrize(
    ("module", "known"), (("settings.js", TOPIC_KEYS), ("broker.js", BROKER_KEYS))
)
def test_groups_of_a_form_name_keys_that_there_are(module, known):
    keys = listed(module, "GROUPS")

    assert keys
    assert set(keys) <= set(known)
    assert max(Counter(keys).values()) == 1
