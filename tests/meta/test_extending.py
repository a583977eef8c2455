"""docs/EXTENDING.md lists the files that its examples are in."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/EXTENDING.md").read_text(encoding="utf-8")

EXAMPLES = {
    "Add an API of the protocol": "ListTransactions",
    "Add a setting": "batch.max.records",
    "Add a check of files": "txn_index_order",
    "Add a compaction strategy": "varlong",
    "Add a line to the benchmark": "idle/day",
}
OTHERS = {
    "logstore/inspect/schemas/avro_bounds.py",
    "logstore/faults/names.py",  # written by `make docs`
    "logstore/storage/log/drafts.py",  # builds what validate.py limits
    "logstore/record/kernels.py",  # varlongs are numbers of Kafka's records too
    "logstore/record/records.py",
    "logstore/record/varint.py",
    "cleaner/passes/version_map.py",
    "logstore/spark/oracle/rules.py",
    "logstore/ui/front/templates.js",  # written by `make docs`
}
"""Sources with an example that need no change for an addition of its kind."""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_section_has_an_example():
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == list(EXAMPLES)


@pytest.mark.parametrize("title", EXAMPLES)
def test_listed_files_contain_the_example_and_no_source_is_missing(title):
    spelling = re.compile(re.escape(EXAMPLES[title]).replace(r"\.", "[._]"), re.IGNORECASE)
    paths = re.findall(r"`((?:\w+/)+[\w.]+\.(?:py|md))`", section(title))
    assert paths
    for path in paths:
        if path == "docs/REASONS.md":  # lists it as the code of a reason
            continue
        assert spelling.search((ROOT / path).read_text(encoding="utf-8")), path
    command = ["git", "ls-files", "logstore/*.py", "logstore/*.js", "cleaner/*.py", "bench/*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    sources = {
        name
        for name in listed.stdout.splitlines()
        if not (ROOT / name).is_symlink()
        and spelling.search((ROOT / name).read_text(encoding="utf-8"))
    }
    assert sources - set(paths) - OTHERS == set()
