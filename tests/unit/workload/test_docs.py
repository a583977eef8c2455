"""docs/WORKLOAD-KEYS.md matches the code."""

from __future__ import annotations

import tomllib

from logstore.workload.presets import PRESETS
from logstore.workload.spec import parse
from tests.support.world.generated import preset
from tools import workload_docs


def test_the_page_matches_the_code():
    assert workload_docs.TARGET.read_text(encoding="utf-8") == workload_docs.text(), (
        "run: make docs"
    )


def test_a_preset_can_be_taken_from_the_page_as_a_file():
    sections = workload_docs.text().split("```toml\n")[1:]
    files = [section.partition("```")[0] for section in sections]
    assert [tomllib.loads(file)["topic"] for file in files] == list(PRESETS)
    assert [parse(file) for file in files] == [preset(name) for name in PRESETS]
