"""Every version of every message, beside Kafka's own classes.

Random messages that this engine wrote are read by Kafka, told as JSON and written again; Kafka then
makes each anew from the JSON and writes that too. All bytes and all JSON must be equal, and what
Kafka wrote is read here. Every version is judged by at least one release.
"""

import base64
import json
import random

import pytest

from logstore.messages import decode, encode_bytes, schema, to_json, types
from logstore.messages.schema import definitions
from tests.support.interop.message_definitions import files
from tests.support.world.random_messages import random_message

pytestmark = pytest.mark.interop

MESSAGES = 12
"""Of each version."""

CHANGED_SINCE_KAFKA_3 = {
    ("ReadShareGroupStateSummaryResponse", 0),
    ("ShareGroupMetadataValue", 0),
}
"""Of share groups, which were not settled in 3.9.2; Kafka 4 has the same version otherwise."""

NAMED_OTHERWISE_IN_KAFKA_3 = {
    "ConsumerGroupCurrentMemberAssignmentValue": {"assignmentEpochs"},
    "ConsumerGroupMetadataValue": {"metadataHash"},
    "ConsumerGroupTargetAssignmentMetadataValue": {"assignmentTimestamp"},
    "OffsetCommitValue": {"topicId"},
    "RemoteLogSegmentMetadataRecord": {"txnIndexEmpty"},
    "RemoteLogSegmentMetadataSnapshotRecord": {"txnIndexEmpty"},
    "TransactionLogValue": {
        "clientTransactionVersion",
        "nextProducerEpoch",
        "nextProducerId",
        "previousProducerId",
    },
    "TxnOffsetCommitRequest": {"generationId", "generationIdOrMemberEpoch"},
    "VoteRequest": {
        "candidateDirectoryId",
        "candidateEpoch",
        "candidateId",
        "replicaDirectoryId",
        "replicaEpoch",
        "replicaId",
    },
}
"""Fields that Kafka 4 added to a version as tagged ones, or renamed: the bytes are the same."""


def instances():
    """Yield name, version, message and bytes of random messages, the first one all defaults."""
    for name in definitions():
        rng = random.Random(name)
        for version in sorted(schema(name).versions):
            for number in range(MESSAGES):
                absent = 1.0 if number == 0 else 0.15
                message = random_message(rng, name, version, absent=absent)
                yield name, version, message, encode_bytes(message, version)


def ask(judge, scratch, rows):
    """Return what Kafka says of each row of name, version and bytes."""
    given, told = scratch / "given", scratch / "told"
    with given.open("w") as file:
        for name, version, data in rows:
            text = base64.b64encode(data).decode()
            file.write(json.dumps({"name": name, "version": version, "bytes": text}) + "\n")
    judge.ask("messages", scratch, "-", input=str(given), output=str(told))
    return [json.loads(line) for line in told.read_text().splitlines()]


def without(told, names):
    """Return JSON without the fields of some names, wherever they stand."""
    match told:
        case dict():
            return {key: without(each, names) for key, each in told.items() if key not in names}
        case list():
            return [without(each, names) for each in told]
    return told


def disagreement(row, answer, unnamed):
    """Return in what Kafka's answer differs, or None."""
    name, version, message, data = row
    if "error" in answer:
        return answer["error"]
    if base64.b64decode(answer["bytes"]) != data or answer["left"]:
        return "bytes"
    ours = json.loads(json.dumps(to_json(message, version)))
    if without(answer["json"], unnamed) != without(ours, unnamed):
        return "json"
    if not unnamed and answer["again"] is not None and base64.b64decode(answer["again"]) != data:
        return "bytes written from json"
    again = decode(getattr(types, name), version, base64.b64decode(answer["bytes"]))
    return None if encode_bytes(again, version) == data else "bytes written again"


def test_kafka_reads_and_writes_the_same(kafka3, kafka4, scratch, row):
    rows = list(instances())
    judged = set()
    releases = (kafka3, CHANGED_SINCE_KAFKA_3, NAMED_OTHERWISE_IN_KAFKA_3), (kafka4, set(), {})
    for judge, changed, renamed in releases:
        answers = ask(judge, scratch, [(name, version, data) for name, version, _, data in rows])
        found = {}
        for each, answer in zip(rows, answers, strict=True):
            name, version, message, _ = each
            if not answer or (name, version) in changed:
                continue
            judged.add((name, version))
            if (differs := disagreement(each, answer, renamed.get(name, ()))) is not None:
                found.setdefault((name, version), (differs, message))
        row("messages of every version", judge, sum(map(bool, answers)))
        assert found == {}
    known = {(name, version) for name in definitions() for version in schema(name).versions}
    assert known - judged == set()


def test_the_tables_are_what_the_jars_define():
    for path, text in files().items():
        if path.suffix == ".txt":
            assert path.read_text() == text, path
