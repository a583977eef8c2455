"""The tracked text files of the repository."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TEXT = {".py", ".pyi", ".md", ".js", ".css", ".html", ".toml", ".java", ".sh", ".yml", ""}
OTHERS = ("tests/data/", "logstore/messages/definitions/", "logstore/ui/front/vendor/", "LICENSE")
"""Names that begin so belong to Kafka, or to another project."""


@cache
def texts() -> dict[str, str]:
    """Return the text of each tracked file by its name."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = {name: ROOT / name for name in listed.stdout.splitlines()}
    return {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in paths.items()
        if path.suffix in TEXT
        and not name.startswith(OTHERS)
        and path.is_file()
        and not path.is_symlink()
    }
