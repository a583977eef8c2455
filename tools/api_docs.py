"""Write docs/api: every public name of the Python API, with the first line of its docstring.

`make docs` runs it. Each page has a table that is readable in the repository, and a directive for
each name, which `make docs-site` replaces with the signature and the whole docstring.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import logstore
import logstore.broker
import logstore.testing
from logstore import LogStoreError, errors
from logstore.testing import holes

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "docs" / "api"
PACKAGES = (logstore, logstore.broker, logstore.testing)


class Group(NamedTuple):
    """A page: its file, title, introduction and names, in order."""

    file: str
    title: str
    about: str
    names: str


GROUPS = (
    Group(
        "broker.md",
        "Broker, topics and configuration",
        "A broker in this process: topics, appending, reading, cleaning and retention.",
        "Broker Snapshot Topic TopicPartition ConfigValue NewRecord BatchWriter AppendedRange"
        " AppendInfo RecordMetadata ConsumerRecord TimestampType OffsetAndTimestamp"
        " DeleteRecordsResult AlterReplicaLogDirsResult Partitioner murmur2",
    ),
    Group(
        "clients.md",
        "Producers, consumers and admin clients",
        "Clients in this process, with kafka-python's interface.",
        "Producer FutureRecordMetadata Consumer ConsumedRecord OffsetAndMetadata"
        " ConsumerGroupMetadata AdminClient NewTopic ConfigResource MemberToRemove OffsetSpec",
    ),
    Group(
        "answers.md",
        "Reports of cleaning, retention and records",
        "Results of `clean`, `explain`, `fates`, `preview`, `retain`, `stats` and `erasure`. Their"
        " `to_json()` is the output of the command with `--format json`.",
        "CleanReport CleanerStats ExplainReport PartitionFates RecordFate PartitionStats KeyStats"
        " ErasureReport ErasurePlace Preview PartitionPreview Outlook ConfigChange Loss LostRecords"
        " RetainReport CleanerMetrics Reason",
    ),
    Group(
        "time-and-faults.md",
        "Clocks and faults",
        "Time that a test controls, and rules that make requests and disks fail.",
        "VirtualClock ShiftedClock SystemClock FaultRule",
    ),
    Group(
        "servers.md",
        "Clusters, listeners, the page and authorization",
        "Several brokers, and brokers that clients and browsers connect to.",
        "Cluster Listener Page Authorizer Acl AclFilter",
    ),
    Group(
        "testing.md",
        "Assertions, logs with holes and crashes",
        "The package `logstore.testing`; [TESTING-WITH-IT.md](../TESTING-WITH-IT.md) uses it.",
        "assert_compacted assert_tombstone_gone assert_committed history records_by_key holes"
        " HoleyLog FaultyFileSystem CrashMode Contents Names SimulatedCrash Operation Kind",
    ),
)
ERRORS = "errors.md"


def value(name: str) -> tuple[str, object]:
    """Return the public path of a name and its value."""
    if name == "holes":
        return holes.__name__, holes
    package = next(each for each in PACKAGES if name in each.__all__)
    return f"{package.__name__}.{name}", getattr(package, name)


def summary(thing: object) -> str:
    """Return the first paragraph of a docstring, without references to the specification."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    text = re.sub(r" \([\w-]+ §[\d.]+\)", "", text)
    return text.replace("|", "\\|")


def public(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, in the order of the source."""
    for base in () if issubclass(kind, enum.Enum) else kind.__mro__:
        if base.__module__.startswith("logstore"):
            for name, member in vars(base).items():
                plain = getattr(member, "__func__", member)  # of a static or class method
                if not name.startswith("_") and (
                    inspect.isfunction(plain) or isinstance(plain, property)
                ):
                    yield name, plain


def rows(name: str, thing: object) -> Iterator[str]:
    """Yield the rows of a name and its members."""
    yield f"| **`{name}`** | {summary(thing)} |"
    seen = set()
    if isinstance(thing, type):
        for member, code in public(thing):
            if member not in seen:
                seen.add(member)
                call = "" if isinstance(code, property) else "()"
                yield f"| `{name}.{member}{call}` | {summary(code)} |"


def page(group: Group) -> str:
    """Return the text of a page."""
    lines = [f"# {group.title}", "", group.about, "", "| name | summary |", "|---|---|"]
    names = group.names.split()
    for name in names:
        lines += rows(name, value(name)[1])
    lines += ["", "## Details", ""]
    for name in names:
        path, _ = value(name)
        lines += [f"::: {path}", ""]
    return "\n".join(lines)


# --- errors -------------------------------------------------------------------------------------


def error_items(
    kind: type[LogStoreError] = LogStoreError, depth: int = 0
) -> Iterator[tuple[str, int, type[LogStoreError]]]:
    """Yield name, depth and class of every error, each below its base class."""
    yield kind.__name__, depth, kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from error_items(each, depth + 1)


def error_page() -> str:
    """Return the page of errors: the tree of their classes."""
    lines = [
        "# Errors",
        "",
        "Each error is listed below its base class. The brackets contain `kafka_error`, its name in"
        " Kafka's protocol (`code` is its number), and `exit_code`, the exit code of the command"
        " line. Names with the prefix `errors.` are only in `logstore.errors`. Every error can be"
        " pickled.",
        "",
    ]
    for name, depth, kind in error_items():
        shown = name if name in logstore.__all__ else f"errors.{name}"
        about = summary(kind)
        lines.append(f"{'    ' * depth}- `{shown}` ({kind.kafka_error}, {kind.exit_code}): {about}")
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {**{group.file: page(group) for group in GROUPS}, ERRORS: error_page()}


def main() -> None:
    """Write the pages."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
