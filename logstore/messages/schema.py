"""Message schemas: the fields of each message and their versions.

The tables in `definitions` contain one definition per message, separated by empty lines::

    DeleteRecordsRequest request 21 0-2 flexible=2+
      Topics []DeleteRecordsTopic 0+
      TimeoutMs int32 0+
    DeleteRecordsTopic
      Name string 0+
      ...

The first line has the name, kind, key (`-` for none) and versions of the message. `flexible`
versions have compact lengths and tagged fields (KIP-482), and `unstable` versions may change.
Indented lines are fields: name, type and versions, followed by `null=` with the versions in which
the field may be null, `tag=NUMBER:` with the versions in which it is tagged, `default=` unless the
default is the type's zero, `ignorable` if versions without the field drop its value silently,
`inflexible` if its length is never compact, and `zerocopy` if its bytes are views. Other lines
start a structure used by fields. `3+` extends to the last version of the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from logstore.errors import UnsupportedFormatError

PRIMITIVES = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""The `struct` code and the size in bytes of each fixed-size type."""

ZERO_UUID = "A" * 22
"""The null id (16 zero bytes) in Kafka's text format."""

Default = bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure.

    Attributes
    ----------
    name : str
        The name in Kafka's definitions.
    element : str
        The type, or the element type of an array.
    is_array : bool
    versions, null, tagged : frozenset of int
        The versions in which the field exists, may be null, and is tagged.
    default : bool, int, float, str, bytes or None
        The default of a primitive. Arrays and structures are empty by default.
    default_is_null : bool
        Whether the default is null.
    """

    name: str
    element: str
    is_array: bool
    versions: frozenset[int]
    null: frozenset[int]
    tagged: frozenset[int]
    tag: int
    default: Default
    default_is_null: bool
    ignorable: bool
    inflexible: bool
    zero_copy: bool

    @property
    def attribute(self) -> str:
        """The Python name: `topic_id` for `TopicId`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @property
    def json_name(self) -> str:
        """The name in Kafka's JSON: `topicId` for `TopicId`."""
        return self.name[0].lower() + self.name[1:]

    @property
    def is_struct(self) -> bool:
        """Whether the field is a structure or an array of structures."""
        return self.element[0].isupper()

    @property
    def is_blob(self) -> bool:
        """Whether the field's bytes are passed on without copying."""
        return self.element == "records" or self.zero_copy


@dataclass(frozen=True)
class Schema:
    """The schema of a message.

    Attributes
    ----------
    kind : str
        `request`, `response`, `header`, `data`, `metadata`, `coordinator-key` or
        `coordinator-value`.
    key : int or None
        API key or record type.
    versions, flexible, unstable : frozenset of int
    structs : dict of str to tuple of Field
        The fields by structure name. The first structure is the message itself.
    """

    name: str
    kind: str
    key: int | None
    versions: frozenset[int]
    flexible: frozenset[int]
    unstable: frozenset[int]
    structs: dict[str, tuple[Field, ...]]

    @cached_property
    def latest(self) -> int:
        """The newest version."""
        return max(self.versions)

    def check(self, version: int) -> None:
        """Raise `UnsupportedFormatError` if the version does not exist."""
        if version not in self.versions:
            known = f"{min(self.versions)} to {self.latest}"
            raise UnsupportedFormatError(f"{self.name} has no version {version}, only {known}")


@cache
def wire_definitions() -> dict[str, str]:
    """Return the definitions of requests, responses and headers by name."""
    return _read_table("wire.txt")


@cache
def record_definitions() -> dict[str, str]:
    """Return the definitions of record messages by name."""
    return _read_table("records.txt")


def _read_table(file_name: str) -> dict[str, str]:
    text = Path(__file__).with_name("definitions").joinpath(file_name).read_text("utf-8")
    _, *messages = text.split("\n\n")  # the first paragraph is a comment
    return {message.partition(" ")[0]: message for message in messages}


def definitions() -> dict[str, str]:
    """Return the definitions of all messages by name."""
    return wire_definitions() | record_definitions()


@cache
def schema(name: str) -> Schema:
    """Return the schema of a message, or raise KeyError if the name is unknown."""
    is_wire = name.endswith(("Request", "Response", "Header"))
    return parse((wire_definitions() if is_wire else record_definitions())[name])


def parse(text: str) -> Schema:
    """Parse the definition of a message."""
    lines = text.splitlines()
    name, kind, key, versions_text, *traits = lines[0].split()
    versions = _versions(versions_text, 0)
    latest = max(versions)
    structs: dict[str, list[Field]] = {name: []}
    fields = structs[name]
    for line in lines[1:]:
        if line.startswith(" "):
            fields.append(_field(line.split(), latest))
        else:
            fields = structs[line] = []
    named_traits = dict(trait.split("=") for trait in traits)
    return Schema(
        name,
        kind,
        None if key == "-" else int(key),
        versions,
        _versions(named_traits.get("flexible", ""), latest),
        _versions(named_traits.get("unstable", ""), latest),
        {struct: tuple(members) for struct, members in structs.items()},
    )


def _field(words: list[str], latest: int) -> Field:
    name, type_name, versions, *traits = words
    named_traits = dict(trait.split("=") for trait in traits if "=" in trait)
    tag, _, tagged = named_traits.get("tag", "0:").partition(":")
    element = type_name.removeprefix("[]")
    is_array = element is not type_name
    default, default_is_null = _default(element, named_traits.get("default"))
    return Field(
        name,
        element,
        is_array,
        _versions(versions, latest),
        _versions(named_traits.get("null", ""), latest),
        _versions(tagged, latest),
        int(tag),
        default,
        default_is_null,
        "ignorable" in traits,
        "inflexible" in traits,
        "zerocopy" in traits,
    )


def _default(element: str, text: str | None) -> tuple[Default, bool]:
    if text == "null":
        return None, True
    match element:
        case "bool":
            return text == "true", False
        case "float64":
            return 0.0, False
        case "uuid":
            return ZERO_UUID, False
        case "string":
            return "", False
        case "bytes" | "records":
            return b"", False
        case _ if element in PRIMITIVES:
            return int(text or 0), False
        case _:
            return None, False


def _versions(text: str, latest: int) -> frozenset[int]:
    """Parse version ranges such as `0-3,5+`."""
    versions: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if part.endswith("+"):
            versions.update(range(int(part[:-1]), latest + 1))
        else:
            versions.update(range(int(first), int(last or first) + 1))
    return frozenset(versions)
