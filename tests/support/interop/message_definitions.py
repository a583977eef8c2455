"""`make messages`: the tables of `logstore/messages/definitions`, from Kafka's message definitions.

The definitions are JSON files inside Kafka's jars, which Maven fetches as for the judges. Kafka 4
dropped versions that older clients speak (KIP-896), so a message has the versions of both releases:
each version is laid out as the newest release has it that knows it. What is written is this
project's own compact form (`logstore.messages.schema` reads it), without Kafka's texts.

From Kafka 4 on the number that begins a coordinator's key is its `apiKey`, and its version is 0;
before, that number was the key's version. Here it is the version, as it stands on disk.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore.messages.schema import Field as SchemaField
from logstore.messages.schema import parse as parse_schema
from tests.support.interop.judge import RELEASES, build

MESSAGES = Path(__file__).parents[3] / "logstore" / "messages"
DEFINITIONS = MESSAGES / "definitions"
TYPES = MESSAGES / "types.pyi"
UNIONS = {
    "wire": "Requests, responses and their headers",
    "records": "Records, and data inside records and requests",
}
"""Files and their first lines."""

LATEST = 1 << 15
"""Stands for the open end of `3+`."""

_NUMBERS = {"int8", "int16", "int32", "int64", "uint16", "uint32"}
_JARS = re.compile(r"kafka-[a-z-]*-\d[\d.]*\.jar$")


@dataclass
class Field:
    """A field, with the versions in which it is there, may be null, and is tagged."""

    name: str
    type: str
    versions: set[int]
    null: set[int]
    tagged: set[int]
    tag: int | None
    default: str | None
    ignorable: bool
    flexible: bool
    zero_copy: bool


@dataclass
class Message:
    """A message: its kind and key, its versions, and its structures in the order of use."""

    name: str
    kind: str
    key: int | None
    versions: set[int]
    flexible: set[int]
    unstable: set[int]
    structs: dict[str, list[Field]] = field(default_factory=dict)


def definitions_of(class_path: str) -> dict[str, Message]:
    """Return the messages that the jars of a class path define."""
    found: dict[str, Message] = {}
    for jar in sorted(class_path.split(":")):
        if not _JARS.search(jar):
            continue
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if re.match(r"(common/)?(message|metadata)/\w+\.json$", name):
                    text = archive.read(name).decode()
                    definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
                    message = parse(definition)
                    assert message.name not in found, message.name
                    found[message.name] = message
    return found


def parse(definition: Mapping[str, Any]) -> Message:
    """Read one of Kafka's definitions."""
    versions = ranges(definition["validVersions"])
    flexible = ranges(definition.get("flexibleVersions", "none")) & versions
    key = definition.get("apiKey")
    message = Message(definition["name"], definition["type"], key, versions, flexible, set())
    if definition.get("latestVersionUnstable"):
        message.unstable = {max(versions)}
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    _collect(message, message.name, definition.get("fields", ()), common, versions)
    if message.kind == "coordinator-key":
        assert versions == {0}, message.name
        assert not flexible, message.name
        message.versions = {key}
        for fields in message.structs.values():
            for each in fields:
                each.versions, each.null = {key}, each.null and {key}
    return message


def ranges(text: str) -> set[int]:
    """Return the versions of `none`, `3`, `3-5` or `3+`; the last is cut to what is valid."""
    if text == "none":
        return set()
    first, last = re.fullmatch(r"(\d+)(?:-(\d+)|\+)?", text).groups()
    end = LATEST if text.endswith("+") else int(last or first)
    return set(range(int(first), min(end, 99) + 1))


def _collect(
    message: Message,
    name: str,
    fields: Iterable[Mapping[str, Any]],
    common: Mapping[str, Any],
    valid: set[int],
) -> None:
    assert name not in message.structs, f"{message.name}: {name} twice"
    found = message.structs[name] = []
    for each in fields:
        tagged = ranges(each.get("taggedVersions", "none")) & valid
        versions = ranges(each["versions"]) & valid if "versions" in each else tagged
        found.append(
            Field(
                each["name"],
                each["type"],
                versions,
                ranges(each.get("nullableVersions", "none")) & versions,
                tagged & versions,
                int(each["tag"]) if "tag" in each else None,
                _default(each),
                bool(each.get("ignorable", False)),
                each.get("flexibleVersions") != "none",
                bool(each.get("zeroCopy", False)),
            )
        )
        element = each["type"].removeprefix("[]")
        if element[0].isupper() and element not in message.structs:
            inner = each["fields"] if "fields" in each else common[element]
            _collect(message, element, inner, common, valid)


def _default(each: Mapping[str, Any]) -> str | None:
    """Return a default that is not the type's own; JSON's null is none, as in Kafka's generator."""
    text = each.get("default")
    if text is None or text == "":
        return None
    if text == "null":
        return "null"
    if each["type"] == "bool":
        return "true" if str(text).lower() == "true" else None
    if each["type"] in _NUMBERS:
        return str(int(str(text), 0)) if int(str(text), 0) else None
    raise ValueError(f"default {text!r} of {each['name']}")


def united(old: Message | None, new: Message | None) -> Message:
    """Unite two releases' definitions; versions that both know are as in the new one."""
    if old is None or new is None or not new.versions:
        found = old or new
        assert found is not None
        return found
    assert new.name == old.name, (new.name, old.name)
    only_old = old.versions - new.versions
    if not only_old:
        return new
    united_message = Message(
        new.name,
        new.kind,
        new.key,
        new.versions | only_old,
        new.flexible | (old.flexible & only_old),
        new.unstable,
    )
    names = _merged(list(old.structs), list(new.structs))
    for name in names:
        before = {each.name: each for each in old.structs.get(name, ())}
        after = {each.name: each for each in new.structs.get(name, ())}
        united_message.structs[name] = [
            _united_field(before.get(each), after.get(each), only_old)
            for each in _merged(list(before), list(after))
        ]
    return united_message


def _united_field(old: Field | None, new: Field | None, only_old: set[int]) -> Field:
    if old is None:
        assert new is not None
        return new
    found = new or old
    assert (old.type, old.default, old.flexible) == (found.type, found.default, found.flexible)
    assert old.tag == found.tag or not old.tagged & only_old, found.name
    return Field(
        found.name,
        found.type,
        (old.versions & only_old) | (new.versions if new else set()),
        (old.null & only_old) | (new.null if new else set()),
        (old.tagged & only_old) | (new.tagged if new else set()),
        found.tag,
        found.default,
        found.ignorable or old.ignorable,
        found.flexible,
        found.zero_copy,
    )


def _merged(old: list[str], new: list[str]) -> list[str]:
    """Return the names of both in an order that agrees with each."""
    merged: list[str] = []
    rest = list(new)
    for name in old:
        if name in rest:
            at = rest.index(name)
            merged += rest[: at + 1]
            del rest[: at + 1]
        else:
            assert name not in merged, f"{name}: two orders"
            merged.append(name)
    return merged + rest


def written(message: Message) -> Iterator[str]:
    """Yield the lines of a message in the form of `logstore.messages.schema`."""
    valid = message.versions
    key = "-" if message.key is None else str(message.key)
    head = [message.name, message.kind, key, _text(valid, set())]
    if message.flexible:
        head.append(f"flexible={_text(message.flexible, valid)}")
    if message.unstable:
        head.append(f"unstable={_text(message.unstable, set())}")
    yield " ".join(head)
    for name, fields in message.structs.items():
        if name != message.name:
            yield name
        for each in fields:
            if each.versions:
                yield " ".join([f"  {each.name}", each.type, *_traits(each, valid)])


def _traits(each: Field, valid: set[int]) -> Iterator[str]:
    yield _text(each.versions, valid)
    if each.null:
        yield f"null={_text(each.null, valid)}"
    if each.tagged:
        yield f"tag={each.tag}:{_text(each.tagged, valid)}"
    if each.default is not None:
        yield f"default={each.default}"
    if each.ignorable:
        yield "ignorable"
    if not each.flexible:
        yield "inflexible"
    if each.zero_copy:
        yield "zerocopy"


def _text(versions: set[int], valid: set[int]) -> str:
    """Return versions as `0-3,5+`; a plus where they go on to the last valid one."""
    parts = []
    rest = sorted(versions)
    while rest:
        first = last = rest.pop(0)
        while rest and rest[0] == last + 1:
            last = rest.pop(0)
        if valid and last == max(valid):
            parts.append(f"{first}+")
        else:
            parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def files() -> dict[Path, str]:
    """Return path → text of the files that the releases' definitions give.

    Raises
    ------
    tests.support.interop.judge.Unavailable
    """
    old, new = (definitions_of(_class_path(build(release))) for release in RELEASES)
    parts: dict[str, list[Message]] = {name: [] for name in UNIONS}
    for name in sorted({*old, *new}):
        message = united(old.get(name), new.get(name))
        of_wire = message.kind in ("request", "response", "header")
        parts["wire" if of_wire else "records"].append(message)
    messages = sorted((each for part in parts.values() for each in part), key=lambda m: m.name)
    return {
        DEFINITIONS / f"{part}.txt": _table(UNIONS[part], found) for part, found in parts.items()
    } | {TYPES: _stub(messages)}


def _class_path(command: list[str]) -> str:
    return command[command.index("-cp") + 1]


def _table(title: str, messages: Iterable[Message]) -> str:
    head = (
        f"# {title}, of Kafka 3.9.2 and 4.4.0. Written by `make messages` from Kafka's\n"
        "# definitions; do not edit. `logstore.messages.schema` describes the format."
    )
    return "\n\n".join([head, *("\n".join(written(message)) for message in messages)]) + "\n"


_PYTHON = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "uuid": "str",
    "bytes": "Buffer",
    "records": "Buffer | list[Buffer]",
}


def _stub(messages: Iterable[Message]) -> str:
    """Return what type checkers read of the classes."""
    lines = [
        "# Written by `make messages` from Kafka's definitions; do not edit.",
        "from dataclasses import dataclass",
        "",
        "from logstore.messages.compiler import Buffer, Message",
    ]
    for message in messages:
        found = parse_schema("\n".join(written(message)))
        lines += ["", "@dataclass(kw_only=True)", f"class {found.name}(Message):"]
        own, *others = found.structs
        for name in others:
            lines += ["    @dataclass(kw_only=True)", f"    class {name}(Message):"]
            lines += [f"        {_annotation(found.name, each)}" for each in found.structs[name]]
            lines += ["" if found.structs[name] else "        ..."]
        lines += [f"    {_annotation(found.name, each)}" for each in found.structs[own]]
        if len(lines[-1]) and lines[-1].endswith(":"):
            lines[-1] += " ..."
    return "\n".join([*lines, ""])


def _annotation(message: str, each: SchemaField) -> str:
    if each.element[0].isupper():
        kind = f"{message}.{each.element}"
    else:
        kind = _PYTHON.get(each.element, "int")
    if each.is_array:
        kind = f"list[{kind}]"
    if each.null or (each.is_struct and not each.is_array and each.tagged):
        kind += " | None"
    return f"{each.attribute}: {kind} = ..."


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)
        sys.stdout.write(f"{path.name}: {len(text)} bytes\n")


if __name__ == "__main__":
    main()
