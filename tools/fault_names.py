"""Write logstore/faults/names.py from the tables of kinds, errors and APIs; `make docs` runs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from logstore.errors import KAFKA_CODES
from logstore.faults.rules import DISK_KINDS, REQUEST_KINDS
from logstore.wire.versions import SERVED

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "logstore" / "faults" / "names.py"

_BEGIN = '''\
"""Names in fault rules as literal types, so that type checkers find a misspelled one.

Written by `make docs` from the tables of kinds, errors and APIs; do not edit.
"""

from __future__ import annotations

from typing import Literal
'''
_END = '''
FaultError = KafkaError | DiskError | int | type[Exception]
"""The error of a rule: of a request or of a disk."""
'''
_DISK_ERRORS = """
    EACCES EAGAIN EBADF EBUSY EDQUOT EEXIST EFBIG EINTR EINVAL EIO EISDIR EMFILE ENAMETOOLONG ENFILE
    ENODEV ENOENT ENOLCK ENOMEM ENOSPC ENOTDIR ENOTEMPTY ENXIO EPERM EROFS ESTALE ETIMEDOUT EXDEV
"""


def text() -> str:
    """Return the module."""
    kinds = [each.name for each in (*REQUEST_KINDS, *DISK_KINDS)]
    errors = [name for name in KAFKA_CODES if name != "NONE"]
    disk = "Names of `errno` that file operations have. Others are given by number."
    return "".join(
        (
            _BEGIN,
            _literal("FaultKind", kinds, "Kinds of calls that `Broker.fail` accepts."),
            _literal("ServedApi", sorted(SERVED), "APIs that `Listener.fail` accepts."),
            _literal("KafkaError", errors, "Kafka's names of errors."),
            _literal("DiskError", _DISK_ERRORS.split(), disk),
            _END,
        )
    )


def _literal(name: str, values: Iterable[str], about: str) -> str:
    lines = "".join(f'    "{value}",\n' for value in values)
    return f'\n{name} = Literal[\n{lines}]\n"""{about}"""\n'


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
