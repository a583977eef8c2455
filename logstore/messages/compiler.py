"""Message classes, and decoders and encoders that are compiled per version on first use.

The decoder and encoder of a version are generated as Python source, so that a field takes only a
few bytecodes: adjacent numbers are one `struct` call, structures are inlined, and versions are not
checked at run time. Error reporting costs nothing on success: the failed source line identifies the
field, and the local variable `p` is the position.

Variables in the generated source: `data` is the input, `p` the position, `end` the length of the
input, `left` the number of array elements still allowed, `w` the bytes written, `out` the finished
buffers, `oN` messages and structures, `nN` lengths, `eN` ends, `lN` lists.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from logstore.messages.schema import PRIMITIVES, Field, Schema, schema
from logstore.types import INT16_MAX, decode_topic_id, encode_topic_id

Buffer = bytes | bytearray | memoryview

INLINE_BYTES = 512
"""Minimum size in bytes of a blob that is passed as a separate buffer instead of being copied."""

_UVARINTS = tuple(bytes((number,)) for number in range(128))
_NEW: Any = object()


class Malformed(ValueError):
    """Why bytes are malformed. The caller adds the field and position."""


class TooManyElements(Malformed):
    """A message exceeds the limit of array elements."""


# -- classes -------------------------------------------------------------------------------------


class Message:
    """A message, or a structure in a message, with attributes for the fields of all versions.

    The constructor takes keyword arguments. Omitted fields have Kafka's defaults. Strings are
    `str`, ids are 22 characters in Kafka's text format, arrays are lists, bytes are any buffer, and
    records are a buffer or a list of buffers. A tagged structure that is None is not encoded.
    """

    __slots__: tuple[str, ...] = ()
    schema: ClassVar[Schema]
    struct_name: ClassVar[str]

    def __init__(self, **fields: object) -> None:
        kind: Any = next(each for each in type(self).__mro__ if "struct_name" in vars(each))
        kind.__init__ = _constructor(kind)  # compiled for the first instance
        kind.__init__(self, **fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # its fields change

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"


_classes: dict[str, Mapping[str, type[Message]]] = {}


def classes(name: str) -> Mapping[str, type[Message]]:
    """Return the classes of a message by structure name, starting with the message itself.

    The classes of structures are also attributes of the message class.

    Raises
    ------
    KeyError
        The message is unknown.
    """
    known = _classes.get(name)
    # If threads race to create the classes, all threads must get the same classes.
    return _classes.setdefault(name, _make_classes(schema(name))) if known is None else known


def _make_classes(message: Schema) -> Mapping[str, type[Message]]:
    name = message.name
    kinds: dict[str, type[Message]] = {}
    for struct_name, fields in message.structs.items():
        own = struct_name == name
        kind = type(
            struct_name,
            (Message,),
            {
                "__slots__": tuple(field.attribute for field in fields),
                "__qualname__": name if own else f"{name}.{struct_name}",
                "__module__": "logstore.messages.types",
                "__doc__": f"{struct_name} of Kafka's {name}." if not own else f"Kafka's {name}.",
                "schema": message,
                "struct_name": struct_name,
            },
        )
        kinds[struct_name] = kind
        if not own:
            setattr(kinds[name], struct_name, kind)
    return kinds


def _constructor(kind: type[Message]) -> Any:  # noqa: ANN401  # from exec
    namespace = {"NEW": _NEW, "kinds": classes(kind.schema.name)}
    parameters, lines = [], []
    for field in kind.schema.structs[kind.struct_name]:
        name, default = field.attribute, default_expression(field)
        fresh = default != "None" and (field.is_array or field.is_struct)
        parameters.append(f"{name}={'NEW' if fresh else default}")
        value = f"{default} if {name} is NEW else {name}" if fresh else name
        lines.append(f"    self.{name} = {value}")
    star = "*, " if parameters else ""
    body = "\n".join(lines) or "    pass"
    scope: dict[str, Any] = {}
    exec(f"def __init__(self, {star}{', '.join(parameters)}):\n{body}", namespace, scope)
    return scope["__init__"]


def default_expression(field: Field) -> str:
    """Return a source expression for a field's default, which creates lists and structures."""
    if field.default_is_null:
        return "None"
    if field.is_array:
        return "[]"
    if field.is_struct:
        return "None" if _is_omitted_if_none(field) else f"kinds['{field.element}']()"
    return repr(field.default)


def _is_omitted_if_none(field: Field) -> bool:
    """Return whether a field is a tagged structure for which None means the omitted default."""
    return field.is_struct and not field.is_array and bool(field.tagged) and not field.null


# -- sources -------------------------------------------------------------------------------------


@dataclass
class Compiled:
    """A compiled function, and the fields of its source lines.

    Attributes
    ----------
    line_fields : dict of int to list of (int, str)
        The fields of each line, with their byte offsets from `p`.
    """

    call: Callable[..., Any]
    line_fields: Mapping[int, list[tuple[int, str]]]

    def locate(self, error: BaseException) -> tuple[str, int | None]:
        """Return the field at which a call failed, and the position (None for encoders)."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is self.call.__code__:
                names = trace.tb_frame.f_locals
                start, end = names.get("p"), names.get("end")
                fields = self.line_fields.get(trace.tb_lineno, [(0, "")])
                if start is None:
                    return fields[0][1], None
                # In a run of numbers, find the first field that exceeds the input.
                offset, path = ([each for each in fields if start + each[0] <= end] or fields)[-1]
                return path, start + offset
            trace = trace.tb_next
        return "", None


@dataclass
class _Source:
    """Source text under construction."""

    schema: Schema
    version: int
    names: dict[str, Any]
    lines: list[str] = dataclasses.field(default_factory=list)
    line_fields: dict[int, list[tuple[int, str]]] = dataclasses.field(default_factory=dict)
    depth: int = 1
    count: int = 0

    def emit(self, text: str, path: str | list[tuple[int, str]] = "") -> None:
        self.lines.append("    " * self.depth + text)
        if path:
            self.line_fields[len(self.lines) + 1] = [(0, path)] if isinstance(path, str) else path

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit the first line of a block, which contains the lines emitted in the context."""
        self.emit(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def packer(self, codes: str) -> str:
        name = f"S{codes.replace('?', 'B0').replace('16s', 'U')}"
        self.names.setdefault(name, struct.Struct(f">{codes}"))
        return name

    def compile(self, head: str) -> Compiled:
        text = "\n".join([head, *self.lines, ""])
        file_name = f"<{self.schema.name} {self.version}>"
        scope: dict[str, Any] = {}
        for name, packer in [*self.names.items()]:
            if isinstance(packer, struct.Struct):
                self.names[f"{name}u"], self.names[f"{name}p"] = packer.unpack_from, packer.pack
        exec(compile(text, file_name, "exec"), self.names, scope)
        (call,) = scope.values()
        return Compiled(call, self.line_fields)

    def is_flexible(self, field: Field | None = None) -> bool:
        return self.version in self.schema.flexible and not (field and field.inflexible)

    def fields(self, struct_name: str) -> Iterator[Field]:
        """Yield the untagged fields of this version."""
        for field in self.schema.structs[struct_name]:
            if self.version in field.versions and self.version not in field.tagged:
                yield field

    def tagged(self, struct_name: str) -> list[Field]:
        fields = [e for e in self.schema.structs[struct_name] if self.version in e.tagged]
        return sorted(fields, key=lambda field: field.tag)


def minimal_size(message: Schema, struct_name: str, version: int) -> int:
    """Return the minimum encoded size of a structure in bytes."""
    flexible = version in message.flexible
    size = int(flexible)
    for field in message.structs[struct_name]:
        if version in field.versions and version not in field.tagged:
            size += _minimal_field(message, field, version, flexible and not field.inflexible)
    return size


def _minimal_field(message: Schema, field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    return _minimal_element(message, field, version, flexible, nullable=version in field.null)


def _minimal_element(
    message: Schema, field: Field, version: int, flexible: bool, *, nullable: bool
) -> int:
    if field.element in PRIMITIVES:
        return PRIMITIVES[field.element][1]
    if field.is_struct:
        return 1 if nullable else minimal_size(message, field.element, version)
    if flexible:
        return 1
    return 2 if field.element == "string" else 4


# -- decoding ------------------------------------------------------------------------------------


def read_uvarint(data: Buffer, p: int, first: int) -> tuple[int, int]:
    """Return an unsigned varint and its end. The caller has read `first`, a byte above 127."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, p
    raise Malformed("a length or number is not a 32-bit varint")


def compile_decoder(name: str, version: int) -> Compiled:
    """Compile the decoder for a version of a message.

    The decoder takes the bytes, a position and the maximum number of array elements. It returns the
    message, its end and the remaining number of elements.
    """
    message = schema(name)
    kinds = classes(name)
    names: dict[str, Any] = {
        "Malformed": Malformed,
        "TooManyElements": TooManyElements,
        "new": object.__new__,
        "kinds": kinds,
        "text": encode_topic_id,
        "unpack": struct.unpack_from,
        "uvarint": read_uvarint,
        **{f"C{struct_name}": kind for struct_name, kind in kinds.items()},
    }
    source = _Source(message, version, names)
    source.emit("end = len(data)")
    if any(field.is_blob for fields in message.structs.values() for field in fields):
        source.emit("view = memoryview(data)")
    _decode_struct(source, "o", name, "")
    source.emit("return o, p, left")
    return source.compile("def decode(data, p, left):")


def _count_elements(source: _Source, number: str, path: str) -> None:
    """Emit a check of the element limit, to run before elements are decoded."""
    source.emit(f"left -= {number}")
    source.emit(f"if left < 0: raise TooManyElements(f'{{{number}}} elements are too many')", path)


class _Numbers:
    """Adjacent numbers that one call reads or writes."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.items: list[tuple[str, str, str]] = []

    def add(self, code: str, expression: str, path: str) -> None:
        self.items.append((code, expression, path))


class _Run(_Numbers):
    """Adjacent numbers that one call reads."""

    def flush(self) -> None:
        if not self.items:
            return
        targets = ", ".join(target for _, target, _ in self.items)
        codes = "".join(code for code, _, _ in self.items)
        fields, size = [], 0
        for code, _, path in self.items:
            fields.append((size, path))
            size += struct.calcsize(f">{code}")
        self.source.emit(f"{targets}, = {self.source.packer(codes)}u(data, p)", fields)
        self.source.emit(f"p += {size}")
        for code, target, _ in self.items:
            if code == "16s":
                self.source.emit(f"{target} = text({target})")
        self.items.clear()


def _decode_struct(source: _Source, var: str, struct_name: str, path: str) -> None:
    source.emit(f"{var} = new(C{struct_name})")
    run = _Run(source)
    for field in source.schema.structs[struct_name]:
        if source.version not in field.versions or source.version in field.tagged:
            source.emit(f"{var}.{field.attribute} = {default_expression(field)}")
    for field in source.fields(struct_name):
        _decode_field(source, run, f"{var}.{field.attribute}", field, _join(path, field))
    run.flush()
    if source.is_flexible():
        _decode_tags(source, var, struct_name, path)


def _join(path: str, field: Field) -> str:
    return f"{path}.{field.name}" if path else field.name


def _decode_field(source: _Source, run: _Run, target: str, field: Field, path: str) -> None:
    nullable = source.version in field.null
    if field.is_array:
        _decode_array(source, run, target, field, path, nullable=nullable)
    elif field.element in PRIMITIVES:
        run.add(PRIMITIVES[field.element][0], target, path)
    elif field.is_struct:
        run.flush()
        if nullable:
            _decode_nullable_struct(source, target, field, path)
        else:
            var = source.name("o")
            _decode_struct(source, var, field.element, path)
            source.emit(f"{target} = {var}")
    else:
        _decode_bytes(source, run, target, field, path, nullable=nullable)


def _null_byte(source: _Source, field: Field) -> int:
    """Return the byte that encodes a null structure. A byte of 1 precedes other structures."""
    # Kafka's generator encodes null as a byte of -1, but in tagged fields as a varint of 0.
    return 0 if source.version in field.tagged else 255


def _decode_nullable_struct(source: _Source, target: str, field: Field, path: str) -> None:
    number, var = source.name("n"), source.name("o")
    source.emit(f"{number} = data[p]", path)
    source.emit("p += 1")
    source.emit(f"if {number} == {_null_byte(source, field)}:")
    source.emit(f"    {target} = None")
    with source.block(f"elif {number} == 1:"):
        _decode_struct(source, var, field.element, path)
        source.emit(f"{target} = {var}")
    source.emit("else:")
    source.emit(f"    p -= 1; raise Malformed(f'invalid null marker {{{number}}}')", path)


def _decode_length(source: _Source, run: _Run, field: Field, path: str, code: str) -> str:
    """Emit code that reads a length, or -1 for null. Return the name of its variable."""
    number = source.name("n")
    if source.is_flexible(field):
        run.flush()
        source.emit(f"{number} = data[p]", path)
        source.emit("p += 1")
        source.emit(f"if {number} > 127: {number}, p = uvarint(data, p, {number})", path)
        source.emit(f"{number} -= 1")
    else:
        run.add(code, number, path)
        run.flush()
    return number


def _decode_bytes(
    source: _Source, run: _Run, target: str, field: Field, path: str, *, nullable: bool
) -> None:
    is_text = field.element == "string"
    number = _decode_length(source, run, field, path, "h" if is_text else "i")
    stop = source.name("e")
    source.emit(f"{stop} = p + {number}")
    null = f"{target} = None"
    _null_or_malformed(source, number, null if nullable else None, path)
    with source.block("else:"):
        source.emit(
            f"if {stop} > end: raise Malformed(f'{{{number}}} bytes, {{end - p}} left')", path
        )
        if is_text and source.is_flexible(field):
            too_long = f"a string of {{{number}}} bytes"
            source.emit(f"if {number} > {INT16_MAX}: raise Malformed(f'{too_long}')", path)
        if is_text:
            source.emit(f"{target} = str(data[p:{stop}], 'utf-8')", path)
        elif field.is_blob:
            source.emit(f"{target} = view[p:{stop}]")
        else:
            source.emit(f"{target} = bytes(data[p:{stop}])")
        source.emit(f"p = {stop}")


def _null_or_malformed(source: _Source, number: str, null: str | None, path: str) -> None:
    """Emit code that handles a negative length."""
    with source.block(f"if {number} < 0:"):
        if null is None:
            source.emit(f"raise Malformed(f'length {{{number}}} of a non-nullable field')", path)
        else:
            source.emit(f"if {number} != -1: raise Malformed(f'length {{{number}}}')", path)
            source.emit(null)


def _decode_array(
    source: _Source, run: _Run, target: str, field: Field, path: str, *, nullable: bool
) -> None:
    number = _decode_length(source, run, field, path, "i")
    flexible = source.is_flexible(field)
    least = _minimal_element(source.schema, field, source.version, flexible, nullable=False)
    least = max(least, 1)
    _null_or_malformed(source, number, f"{target} = None" if nullable else None, path)
    with source.block("else:"):
        bound = f"{number} * {least}" if least > 1 else number
        short = f"{{{number}}} elements, {{end - p}} bytes left"
        source.emit(f"if {bound} > end - p: raise Malformed(f'{short}')", path)
        _count_elements(source, number, path)
        code, size = PRIMITIVES.get(field.element, ("", 0))
        if code and code != "16s":
            source.emit(f"{target} = list(unpack(f'>{{{number}}}{code}', data, p))")
            source.emit(f"p += {number} * {size}" if size > 1 else f"p += {number}")
        else:
            _decode_elements(source, target, field, path, number)


def _decode_elements(source: _Source, target: str, field: Field, path: str, number: str) -> None:
    elements, var = source.name("l"), source.name("o")
    source.emit(f"{target} = {elements} = []")
    with source.block(f"for _ in range({number}):"):
        if field.is_struct:
            _decode_struct(source, var, field.element, path)
        elif field.element == "uuid":
            run = _Run(source)
            run.add("16s", var, path)
            run.flush()
        else:
            _decode_bytes(source, _Run(source), var, field, path, nullable=False)
        source.emit(f"{elements}.append({var})")


def _decode_tags(source: _Source, var: str, struct_name: str, path: str) -> None:
    count, tag, size, stop = (source.name(letter) for letter in "ntze")
    here = _join_name(path, "tagged fields")
    source.emit(f"{count} = data[p]", here)
    source.emit("p += 1")
    with source.block(f"if {count}:"):
        source.emit(f"if {count} > 127: {count}, p = uvarint(data, p, {count})", here)
        _count_elements(source, count, here)
        with source.block(f"for _ in range({count}):"):
            for number in (tag, size):
                source.emit(f"{number} = data[p]", here)
                source.emit("p += 1")
                source.emit(f"if {number} > 127: {number}, p = uvarint(data, p, {number})", here)
            source.emit(f"{stop} = p + {size}")
            source.emit(
                f"if {stop} > end: raise Malformed(f'{{{size}}} bytes, {{end - p}} left')", here
            )
            keyword = "if"
            for field in source.tagged(struct_name):
                with source.block(f"{keyword} {tag} == {field.tag}:"):
                    run = _Run(source)
                    _decode_field(
                        source, run, f"{var}.{field.attribute}", field, _join(path, field)
                    )
                    run.flush()
                    wrong = f"the value does not end after the {{{size}}} bytes of the tagged field"
                    source.emit(f"if p != {stop}: raise Malformed(f'{wrong}')", _join(path, field))
                keyword = "elif"
            if keyword == "if":
                source.emit(f"p = {stop}")
            else:
                source.emit("else:")
                source.emit(f"    p = {stop}")


def _join_name(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# -- encoding ------------------------------------------------------------------------------------


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def compile_encoder(name: str, version: int) -> Compiled:
    """Compile the encoder `message -> list of buffers` for a version of a message."""
    names: dict[str, Any] = {
        "Malformed": Malformed,
        "V": _UVARINTS,
        "id_bytes": decode_topic_id,
        "pack": struct.pack,
        "put_blob": _put_blob,
        "size_of": size_of,
        "uvarint": uvarint,
    }
    for struct_name, kind in classes(name).items():
        names[f"D{struct_name}"] = kind()
    source = _Source(schema(name), version, names)
    source.emit("w = bytearray()")
    source.emit("out = []")
    _encode_struct(source, "o", name, "")
    source.emit("if w or not out: out.append(w)")
    source.emit("return out")
    return source.compile("def encode(o):")


def size_of(blob: Buffer | list[Buffer]) -> int:
    """Return the size of a blob in bytes."""
    return sum(map(len, blob)) if isinstance(blob, list) else len(blob)


def _put_blob(w: bytearray, out: list[Buffer], blob: Buffer | list[Buffer]) -> bytearray:
    """Append the written bytes and a blob to `out`. Return a new buffer."""
    out.append(w)
    if isinstance(blob, list):
        out.extend(blob)
    else:
        out.append(blob)
    return bytearray()


class _Pack(_Numbers):
    """Adjacent numbers that one call writes."""

    def flush(self) -> None:
        if not self.items:
            return
        codes = "".join(code for code, _, _ in self.items)
        values = ", ".join(value for _, value, _ in self.items)
        names = " or ".join(path for _, _, path in self.items)
        self.source.emit(f"w += {self.source.packer(codes)}p({values})", names)
        self.items.clear()


def _encode_struct(source: _Source, var: str, struct_name: str, path: str) -> None:
    for field in source.schema.structs[struct_name]:
        if source.version not in field.versions and not field.ignorable:
            lost = f"version {source.version} has no field for it"
            condition = _not_default(field, f"{var}.{field.attribute}", struct_name)
            source.emit(f"if {condition}: raise Malformed('{lost}')", _join(path, field))
    run = _Pack(source)
    for field in source.fields(struct_name):
        _encode_field(source, run, f"{var}.{field.attribute}", field, _join(path, field))
    run.flush()
    if source.is_flexible():
        _encode_tags(source, var, struct_name, path)


def _not_default(field: Field, value: str, struct_name: str) -> str:
    """Return a source expression for whether a field differs from its default."""
    if field.default_is_null:
        return f"{value} is not None"
    if field.is_array:
        return f"({value} is None or {value})" if field.null else value
    if field.is_struct:
        default = f"D{field.element}"
        if _is_omitted_if_none(field):
            return f"{value} is not None and {value} != {default}"
        return f"{value} != {default}"
    return f"{value} != {field.default!r}"


def _encode_field(source: _Source, run: _Pack, value: str, field: Field, path: str) -> None:
    nullable = source.version in field.null
    if field.is_array:
        _encode_array(source, run, value, field, path, nullable=nullable)
    elif field.element in PRIMITIVES:
        code = PRIMITIVES[field.element][0]
        run.add(code, f"id_bytes({value})" if code == "16s" else value, path)
    elif field.is_struct:
        _encode_one_struct(source, run, value, field, path, nullable=nullable)
    else:
        _encode_bytes(source, run, value, field, path, nullable=nullable)


def _encode_one_struct(
    source: _Source, run: _Pack, value: str, field: Field, path: str, *, nullable: bool
) -> None:
    run.flush()
    var = source.name("o")
    source.emit(f"{var} = {value}")
    if not nullable:
        if _is_omitted_if_none(field):
            source.emit(f"if {var} is None: {var} = D{field.element}")
        _encode_struct(source, var, field.element, path)
        return
    source.emit(f"if {var} is None: w.append({_null_byte(source, field)})")
    with source.block("else:"):
        source.emit("w += b'\\x01'")
        _encode_struct(source, var, field.element, path)


def _encode_length(
    source: _Source, run: _Pack, field: Field, number: str, path: str, code: str
) -> None:
    if source.is_flexible(field):
        run.flush()
        source.emit(f"w += V[{number} + 1] if {number} < 127 else uvarint({number} + 1)", path)
    else:
        run.add(code, number, path)
        run.flush()


def _encode_bytes(
    source: _Source, run: _Pack, value: str, field: Field, path: str, *, nullable: bool
) -> None:
    is_text = field.element == "string"
    number, raw = source.name("n"), source.name("b")
    expression = f"{value}.encode()" if is_text else value
    size = f"size_of({raw})" if field.is_blob else f"len({raw})"
    if nullable:
        source.emit(f"if {value} is None: {raw} = b''; {number} = -1", path)
    with source.block("else:") if nullable else nullcontext():
        source.emit(f"{raw} = {expression}", path)
        source.emit(f"{number} = {size}", path)
        if is_text:
            too_long = f"a string of {{{number}}} bytes"
            source.emit(f"if {number} > {INT16_MAX}: raise Malformed(f'{too_long}')", path)
    _encode_length(source, run, field, number, path, "h" if is_text else "i")
    if field.is_blob:
        source.emit(f"if {number} < {INLINE_BYTES} and type({raw}) is not list:")
        source.emit(f"    w += {raw}", path)
        source.emit(f"else: w = put_blob(w, out, {raw})", path)
    else:
        source.emit(f"w += {raw}", path)


def _encode_array(
    source: _Source, run: _Pack, value: str, field: Field, path: str, *, nullable: bool
) -> None:
    number, elements = source.name("n"), source.name("l")
    source.emit(f"{elements} = {value}")
    if nullable:
        source.emit(f"if {elements} is None: {elements} = (); {number} = -1")
        source.emit(f"else: {number} = len({elements})", path)
    else:
        source.emit(f"{number} = len({elements})", path)
    _encode_length(source, run, field, number, path, "i")
    code, _ = PRIMITIVES.get(field.element, ("", 0))
    if code and code != "16s":
        source.emit(f"w += pack(f'>{{len({elements})}}{code}', *{elements})", path)
        return
    var = source.name("o")
    with source.block(f"for {var} in {elements}:"):
        inner = _Pack(source)
        if field.is_struct:
            _encode_struct(source, var, field.element, path)
            if source.lines[-1].endswith(":"):
                source.emit("pass")
        elif field.element == "uuid":
            source.emit(f"w += id_bytes({var})", path)
        else:
            _encode_bytes(source, inner, var, field, path, nullable=False)
        inner.flush()


def _encode_tags(source: _Source, var: str, struct_name: str, path: str) -> None:
    tagged = source.tagged(struct_name)
    if not tagged:
        source.emit("w += b'\\0'")
        return
    conditions = [_not_default(field, f"{var}.{field.attribute}", struct_name) for field in tagged]
    anything = " or ".join(conditions)
    with source.block(f"if {anything}:"):
        rest, count, sections = source.name("w"), source.name("n"), source.name("l")
        source.emit(f"{rest} = w; {sections} = bytearray(); {count} = 0")
        for field, condition in zip(tagged, conditions, strict=True):
            with source.block(f"if {condition}:"):
                source.emit("w = bytearray()")
                run = _Pack(source)
                assert not field.is_blob, f"{field.name}: the size of a blob is not in w"
                _encode_field(source, run, f"{var}.{field.attribute}", field, _join(path, field))
                run.flush()
                source.emit(f"{sections} += uvarint({field.tag}); {sections} += uvarint(len(w))")
                source.emit(f"{sections} += w; {count} += 1")
        source.emit(f"w = {rest}; w += uvarint({count}); w += {sections}")
    source.emit("else: w += b'\\0'")
