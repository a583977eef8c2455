"""Fault rules for requests: find the requests that match a rule, and refuse them fully or partly.

In Kafka's protocol, a response mirrors the arrays of its request, with an error code in each
element, so these functions work for every API. `without` removes the part of a request that matches
a rule, `refusal_of` builds the error response for that part, and `merged` adds it to the response
for the remaining part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import KAFKA_CODES
from logstore.faults.rules import Call, Kind
from logstore.messages import Message
from logstore.messages.compiler import classes
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.faults.rules import FaultRule
    from logstore.messages.schema import Field
    from logstore.wire.frames import RequestHead

CUT = "NETWORK_EXCEPTION"
"""The error that represents a closed connection. Brokers never send it."""

NO_PARTITION = -1
"""Partition number of a request element that refers to a topic as a whole."""

_TOPIC_NAMES = ("name", "topic")
_NAMES_ALONE = "topic_names"
"""The field of DeleteTopics that contains bare topic names."""

_PARTITION_NAMES = ("partition_index", "partition", "index")
_UNKNOWN_OFFSETS = ("base_offset", "high_watermark", "low_watermark")
_NAME_OF_ID = Callable[[str], str | None]


def kinds_of(apis: Iterable[str]) -> list[Kind]:
    """Return a rule kind for each API."""
    return [Kind(name, changes=True) for name in apis]


class Subject(NamedTuple):
    """The part of a message to which a rule applies.

    Attributes
    ----------
    topic : str or None
        None for all topics.
    partition : int or None
        None for all partitions.
    version : int
        Version of the message.
    name_of_id : callable
        Returns the name of the topic with an id, or None if the id is unknown.
    """

    topic: str | None
    partition: int | None
    version: int
    name_of_id: _NAME_OF_ID

    @classmethod
    def of(cls, rule: FaultRule, version: int, name_of_id: _NAME_OF_ID) -> Subject:
        """Return the part of a message to which a rule applies."""
        return cls(rule.topic, rule.partition, version, name_of_id)

    def includes(self, topic: str, partition: int) -> bool:
        """Return whether a partition matches."""
        return self.topic in (None, topic) and self.partition in (None, partition, NO_PARTITION)

    # -- fields --------------------------------------------------------------------------

    def arrays(self, message: Message) -> Iterator[Field]:
        """Yield the fields of a message that are arrays in this version."""
        for field in message.schema.structs[message.struct_name]:
            if field.is_array and self.version in field.versions:
                yield field

    def topic_of(self, element: object) -> str | None:
        """Return the name of the topic to which a structure refers, or None if it has none."""
        for attribute in _TOPIC_NAMES:
            name = getattr(element, attribute, None)
            if isinstance(name, str) and name:
                return name
        topic_id = getattr(element, "topic_id", None)
        return self.name_of_id(topic_id) if isinstance(topic_id, str) else None


def call_of(head: RequestHead, request: Message, name_of_id: _NAME_OF_ID) -> Call:
    """Convert a request to a `Call` for matching rules."""
    everything = Subject(None, None, head.version, name_of_id)
    partitions = tuple(dict.fromkeys(_partitions(request, everything, None)))
    group_id = getattr(request, "group_id", None)
    return Call(head.api.name, partitions, group_id, head.client_id)


def _partitions(message: Message, subject: Subject, topic: str | None) -> Iterator[TopicPartition]:
    for field in subject.arrays(message):
        for element in getattr(message, field.attribute) or ():
            number = _partition_of(element)
            if topic is not None and number is not None:
                yield TopicPartition(topic, number)
            elif field.attribute == _NAMES_ALONE:
                yield TopicPartition(element, NO_PARTITION)
            elif isinstance(element, Message):
                name = subject.topic_of(element)
                found = list(_partitions(element, subject, name))
                if name is not None and not found:
                    found = [TopicPartition(name, NO_PARTITION)]
                yield from found


def _partition_of(element: object) -> int | None:
    if type(element) is int:
        return element
    for attribute in _PARTITION_NAMES:
        number = getattr(element, attribute, None)
        if type(number) is int:
            return number
    return None


def without(message: Message, subject: Subject, topic: str | None = None) -> bool:
    """Remove the matching part of a message. Return whether any topic remains."""
    any_left = False
    for field in subject.arrays(message):
        elements = getattr(message, field.attribute)
        if elements is None:
            any_left = True
            continue
        kept = []
        for element in elements:
            number = _partition_of(element)
            if topic is not None and number is not None:
                is_left = not subject.includes(topic, number)
            elif field.attribute == _NAMES_ALONE:
                is_left = not subject.includes(element, NO_PARTITION)
            elif isinstance(element, Message) and (name := subject.topic_of(element)) is not None:
                has_parts = any(True for _ in _partitions(element, subject, name))
                is_left = (
                    without(element, subject, name)
                    if has_parts
                    else not subject.includes(name, NO_PARTITION)
                )
            else:
                is_left = subject.topic is not None
            if is_left:
                kept.append(element)
        setattr(message, field.attribute, kept)
        any_left |= bool(kept)
    return any_left


def refusal_of(head: RequestHead, request: Message, error: str, subject: Subject) -> Message:
    """Return an error response for the matching part of a request."""
    response = head.api.response()
    _mirror(request, response, KAFKA_CODES[error], subject, None)
    return response


@cache
def _has_errors(message: str, struct: str) -> bool:
    """Return whether a structure, or one of its nested structures, has an error code."""
    return any(
        field.attribute == "error_code" or (field.is_struct and _has_errors(message, field.element))
        for field in classes(message)[struct].schema.structs[struct]
    )


def _mirror(
    request: Message, response: Message, code: int, subject: Subject, topic: str | None
) -> None:
    """Fill a response structure from its request, with the error in the innermost structures."""
    kinds = classes(response.schema.name)
    asked = list(subject.arrays(request))
    is_innermost = True
    for field in subject.arrays(response):
        if not (asked and field.is_struct and _has_errors(response.schema.name, field.element)):
            continue
        is_innermost = False
        source = next((each for each in asked if each.attribute == field.attribute), asked[0])
        found = []
        for element in getattr(request, source.attribute) or ():
            is_topic = source.attribute == _NAMES_ALONE
            if is_topic and not subject.includes(element, NO_PARTITION):
                continue
            answer = _mirrored(element, kinds[field.element](), code, subject, topic)
            if answer is not None:
                found.append(answer)
        setattr(response, field.attribute, found)
    slots = type(response).__slots__
    if is_innermost and "error_code" in slots:
        setattr(response, "error_code", code)  # noqa: B010  # not all classes have it
        for name in _UNKNOWN_OFFSETS:
            if name in slots:
                setattr(response, name, -1)


def _mirrored(
    element: Any,  # noqa: ANN401  # a structure, a name, or a number
    answer: Message,
    code: int,
    subject: Subject,
    topic: str | None,
) -> Message | None:
    """Return the response to a request element, or None if the element does not match."""
    number = _partition_of(element)
    if topic is not None and number is not None and not subject.includes(topic, number):
        return None
    fields = [each for each in answer.schema.structs[answer.struct_name] if not each.is_array]
    if not isinstance(element, Message):  # the element is a name or a number
        kind = "string" if isinstance(element, str) else "int32"
        named = next(each for each in fields if each.element == kind)
        setattr(answer, named.attribute, element)
        _set_error(answer, code)
        return answer
    name = subject.topic_of(element)
    has_parts = any(True for _ in _partitions(element, subject, name)) if name else True
    if topic is None and name is not None and not has_parts:  # noqa: SIM102  # reads better
        if not subject.includes(name, NO_PARTITION):
            return None
    for field in fields:
        if field.attribute in type(element).__slots__:
            setattr(answer, field.attribute, getattr(element, field.attribute))
    _mirror(element, answer, code, subject, topic or name)
    if name is not None and topic is None and has_parts:
        is_left = any(getattr(answer, each.attribute) for each in subject.arrays(answer))
        return answer if is_left else None
    return answer


def _set_error(answer: Message, code: int) -> None:
    if "error_code" in type(answer).__slots__:
        setattr(answer, "error_code", code)  # noqa: B010  # not all classes have it


def merged(response: Message, refusal: Message, subject: Subject) -> Message:
    """Add the refusal of one part to the response for the rest.

    A refusal without parts replaces the response.
    """
    is_in_parts = False
    for field in subject.arrays(refusal):
        if field.is_struct and _has_errors(refusal.schema.name, field.element):
            is_in_parts = True
            found = [*getattr(response, field.attribute), *getattr(refusal, field.attribute)]
            setattr(response, field.attribute, found)
    return response if is_in_parts else refusal
